/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The content of a written sector identifies the write, its file and the place.
 * tests/powercut/stamps.py reads the same layout.
 */
#ifndef POWERCUT_STAMP_H
#define POWERCUT_STAMP_H

#include <stdbool.h>
#include <stdint.h>

#define SECTOR 512u
#define STAMP_MAGIC 0x7463727770636176ull /* "vacpwrct" */

/*
 * Little-endian, as the machines this runs on. The filler depends on the
 * write, so that a sector made of halves of two writes has a wrong checksum.
 */
struct stamp {
	uint64_t magic;
	uint64_t op;		/* which write: worker << 32 | its number */
	uint64_t sector;	/* where in the file */
	uint32_t file;		/* which file; 0: the block device itself */
	uint32_t writer;	/* which worker */
	uint64_t filler[59];
	uint32_t unused;
	uint32_t crc;		/* CRC-32 (IEEE 802.3) of all before it */
};

_Static_assert(sizeof(struct stamp) == SECTOR, "a stamp is one sector");

void stamp_init(void);
void stamp_fill(struct stamp *s, uint64_t op, uint32_t file, uint64_t sector);
bool stamp_valid(const struct stamp *s);

#endif
