/* SPDX-License-Identifier: Apache-2.0 */
/* What the parts of vload share. */
#ifndef VLOAD_H
#define VLOAD_H

#include <stdint.h>

struct job {
	char dev[64];
	uint64_t size;		/* bytes of the device that are used */
	uint64_t bs;		/* bytes of a request */
	uint64_t fsync;		/* writes between two fdatasync, 0: never */
	uint64_t reads;		/* percent of the requests that read, in a mix */
	uint64_t think_us;	/* slept after each request and its fdatasync */
	uint64_t ramp_ms, time_ms, tail_ms;
	uint64_t seed;
};

/* vload.c */
void reply(const char *format, ...) __attribute__((format(printf, 1, 2)));
void reply_errno(const char *what);
uint64_t now_ns(void);
uint64_t next_random(uint64_t *state);
void think(uint64_t us);

/* mix.c */
void mix(const struct job *job, int commands);
void verify(const struct job *job);

#endif
