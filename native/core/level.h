/* SPDX-License-Identifier: GPL-2.0 */
/*
 * Must a block be missed once or twice before it is promoted?
 *
 * Twice keeps blocks that are read once off the SSD, and costs a hit of each block that
 * is read again. Once gains these hits, and writes every block that is read. So the blocks
 * that are missed for the first time are counted, and how many of them come back soon: are
 * missed again a short time later (ghost.h); or, if once is enough, are read from the
 * cache. If few come back, as in a scan, it must be twice. It begins with twice, and is
 * decided again after each sixteenth of a cache full.
 *
 * There are no locks. If a race loses a count, that is as if a read had not been.
 */
#ifndef VCACHE_CORE_LEVEL_H
#define VCACHE_CORE_LEVEL_H

#include "types.h"

/* Decisions for each cache full of missed blocks. */
#define VC_LEVEL_PERIODS	16U

/* Once is enough if more than one of so many blocks comes back, ... */
#define VC_LEVEL_BEGINS		20U

/* ... until fewer than one of so many does. */
#define VC_LEVEL_ENDS		40U

/**
 * struct vcache_level - whether a block of a tag must be missed once or twice
 * @first: blocks missed for the first time, recently
 * @again: how many such blocks came back
 * @once: once is enough
 */
struct vcache_level {
	u32 first;
	u32 again;
	u32 once;
};

void vcache_level_miss(struct vcache_level *l, u32 first, u32 again, u32 cells);

/* A block that was missed once is read from the cache. */
static inline void vcache_level_hit(struct vcache_level *l)
{
	WRITE_ONCE(l->again, READ_ONCE(l->again) + 1);
}

#endif /* VCACHE_CORE_LEVEL_H */
