/* SPDX-License-Identifier: Apache-2.0 */
/* Declarations shared by the parts of the load generator. */
#ifndef POWERCUT_LOAD_H
#define POWERCUT_LOAD_H

#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

#include "stamp.h"

#define WRITE_MAX (1u << 20)
#define AIO_DEPTH 4

/*
 * Ways to write, to flush and to discard; in the order of action_names[] of main.c.
 */
enum action {
	ACT_WRITE,	/* pwrite, O_DIRECT */
	ACT_AIO,	/* several writes at once, io_submit */
	ACT_DSYNC,	/* pwritev2 with RWF_DSYNC */
	ACT_FDATASYNC,
	ACT_AIOSYNC,	/* IOCB_CMD_FDSYNC, runs in a kernel thread */
	ACT_SYNC,	/* sync(2) */
	ACT_DISCARD,	/* BLKDISCARD, or a punched hole in a file */
	ACT_ZERO,	/* BLKZEROOUT */
	ACT_READ,	/* compare with our last write */
	ACT_LOOK,	/* others write it too: check that it is of this place */
	ACT_APPEND,	/* writes that allocate blocks: at the end of a file, */
	ACT_HOLE,	/* in a hole behind it */
	ACT_PREALLOC,	/* fallocate; later writes convert unwritten extents */
	ACT_REPLACE,	/* delete a file, begin a new one */
	ACT_NR
};

struct worker {
	uint32_t id;
	uint64_t seed;
	uint64_t ops;		/* stop after so many, */
	uint64_t ms;		/* or after so long */
	char cgroup[256];	/* cgroup to join first; "-": none */
	char path[256];		/* device, file, or directory of a file worker */
	uint32_t file;		/* of path; a file worker numbers its own from here */
	uint64_t first, count;	/* sectors it writes; limit of a file's size */
	uint32_t largest;	/* sectors of a write */
	uint32_t grain;		/* sectors that writes are aligned to */
	uint32_t weight[ACT_NR];

	uint32_t seq;
	uint32_t total;		/* of the weights */
	uint64_t *last;		/* op that wrote each sector last, 0: none */
	uint8_t *buffer;	/* AIO_DEPTH * WRITE_MAX, aligned */
	unsigned long aio;
};

/* journal.c: the journal of events, in the kernel's trace buffer */
void journal_open(const char *path);
__attribute__((format(printf, 1, 2))) void journal(const char *format, ...);

/* io.c: operations that leave their events in the journal */
uint64_t rnd(struct worker *w, uint64_t n);
uint64_t op_next(struct worker *w);
void io_init(struct worker *w);
struct span { uint64_t sector; uint32_t count; };
void io_write(struct worker *w, int fd, uint32_t file, struct span at, int dsync);
void io_write_many(struct worker *w, int fd, uint32_t file, const struct span *at, unsigned int n);
void io_flush(struct worker *w, int fd, uint32_t file, enum action how);
void io_discard(struct worker *w, int fd, uint32_t file, struct span at);
void io_zero(struct worker *w, int fd, uint32_t file, struct span at);
void io_read(struct worker *w, int fd, uint32_t file, struct span at, bool alone);
uint64_t now_ms(void);
enum action act_next(struct worker *w);

/* range.c, files.c: kinds of workers */
void work_range(struct worker *w);
void work_fill(struct worker *w);
void work_files(struct worker *w);

/* dump.c: the stamps of the files under a directory */
int dump(const char *directory, const char *output);

__attribute__((noreturn, format(printf, 1, 2))) void die(const char *format, ...);

#endif
