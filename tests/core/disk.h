/* SPDX-License-Identifier: GPL-2.0 */
/* A cache device in memory whose power can fail during any write. */
#ifndef VCACHE_TESTS_DISK_H
#define VCACHE_TESTS_DISK_H

#include <string.h>

#include "check.h"
#include "../../native/core/meta.h"

#define SECTOR 512

/* What remains of a failing write. */
enum tear {
	TEAR_ALL,	/* everything */
	TEAR_NONE,	/* nothing */
	TEAR_FRONT,	/* some of the first sectors */
	TEAR_ANY,	/* any of the sectors */
	TEAR_BLOCKS,	/* any of the blocks, whole */
	TEAR_KINDS
};

/**
 * struct disk - the device
 * @data: its contents
 * @blocks: its size
 * @writes: number of writes so far
 * @crash_at: the number of the write during which the power fails, or 0
 * @dead: it has failed
 * @bad: blocks that cannot be read, by number, or NULL
 * @rng: decides what remains of a failing write
 */
struct disk {
	u8 *data;
	u64 blocks;
	unsigned long writes;
	unsigned long crash_at;
	bool dead;
	bool *bad;
	uint64_t rng;
};

static inline void disk_init(struct disk *d, u64 blocks, uint64_t seed)
{
	memset(d, 0, sizeof(*d));
	d->blocks = blocks;
	d->data = calloc(blocks, VC_BLOCK_SIZE);
	CHECK(d->data);
	d->rng = seed * 0x9e3779b97f4a7c15ULL + 1;
}

static inline u8 *disk_at(struct disk *d, u64 block)
{
	CHECK(block < d->blocks);
	return d->data + block * VC_BLOCK_SIZE;
}

/* The power fails while @n blocks are in flight: any sectors arrive. */
static inline void disk_tear(struct disk *d, u64 block, u32 n, const u8 *from)
{
	enum tear kind = check_below(&d->rng, TEAR_KINDS);
	u32 sectors = n * VC_BLOCK_SECTORS, i;
	u32 front = check_below(&d->rng, sectors + 1);
	uint64_t arrive = check_next(&d->rng);

	for (i = 0; i < sectors; i++) {
		if (kind == TEAR_NONE || (kind == TEAR_FRONT && i >= front) ||
		    (kind == TEAR_ANY && check_below(&d->rng, 2)) ||
		    (kind == TEAR_BLOCKS &&
		     arrive >> i / VC_BLOCK_SECTORS % 64 & 1))
			continue;
		memcpy(disk_at(d, block) + (size_t)i * SECTOR,
		       from + (size_t)i * SECTOR, SECTOR);
	}
}

/* Does the power fail during this write? */
static inline bool disk_fails(struct disk *d)
{
	d->writes++;
	if (d->crash_at && d->writes >= d->crash_at)
		d->dead = true;
	return d->dead;
}

static inline int disk_read(void *ctx, u64 block, u32 n, void *buf)
{
	struct disk *d = ctx;
	u32 i;

	CHECK(n && block < d->blocks && n <= d->blocks - block);
	for (i = 0; i < n; i++) {
		if (d->bad && d->bad[block + i])
			return -EIO;
	}
	memcpy(buf, disk_at(d, block), (size_t)n * VC_BLOCK_SIZE);
	return 0;
}

static inline int disk_write(void *ctx, u64 block, u32 n, const void *buf)
{
	struct disk *d = ctx;

	CHECK(n && block < d->blocks && n <= d->blocks - block);
	if (d->dead)
		return -EIO;
	if (disk_fails(d)) {
		disk_tear(d, block, n, buf);
		return -EIO;
	}
	memcpy(disk_at(d, block), buf, (size_t)n * VC_BLOCK_SIZE);
	return 0;
}

static inline struct vcache_store disk_store(struct disk *d)
{
	return (struct vcache_store){ .ctx = d, .read = disk_read,
				  .write = disk_write };
}

#endif /* VCACHE_TESTS_DISK_H */
