/* SPDX-License-Identifier: GPL-2.0 */
/*
 * How often has a block to be missed until it is worth a place in the cache: once,
 * or twice?
 *
 * Twice keeps what is read once off the SSD, and costs a hit of each block that
 * comes back; once has those hits, and writes all that is read. So it is counted
 * how many of the blocks that are missed for the first time come back soon: are
 * missed again a short time later (ghost.h), or, where once is enough, are read in
 * the cache. Where few come back, as in a scan, it has to be twice. It begins with
 * that, and is decided anew after each sixteenth of a cache full.
 *
 * Nothing is locked: a count that is lost to another thread is a read that was not.
 */
#ifndef VCACHE_CORE_LEVEL_H
#define VCACHE_CORE_LEVEL_H

#include "types.h"

/* Decisions while as many blocks are missed as the cache can hold. */
#define VC_LEVEL_PERIODS	16U

/* Once is enough when more than one of so many comes back, ... */
#define VC_LEVEL_BEGINS		20U

/* ... and until fewer than one of so many do. */
#define VC_LEVEL_ENDS		40U

/**
 * struct vc_level - how often a tag has to miss a block
 * @first: blocks missed for the first time, of late
 * @again: blocks of such that came back
 * @once: once is enough
 */
struct vc_level {
	u32 first;
	u32 again;
	u32 once;
};

void vc_level_miss(struct vc_level *l, u32 first, u32 again, u32 cells);

/* A block that was missed once was read in the cache. */
static inline void vc_level_hit(struct vc_level *l)
{
	WRITE_ONCE(l->again, READ_ONCE(l->again) + 1);
}

#endif /* VCACHE_CORE_LEVEL_H */
