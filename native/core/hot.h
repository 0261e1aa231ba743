/* SPDX-License-Identifier: GPL-2.0 */
/*
 * How often must a block have been read to be hot, so that it is kept when its chunk is
 * reclaimed?
 *
 * The level follows what is reclaimed: at most half of the blocks of reclaimed chunks shall be
 * hot, as the levels of SMQ have equal sizes (dm-cache-policy-smq.c of Linux). If many blocks
 * are read often, a block that was read once is not worth a copy. The level is decided again
 * after each sixteenth of a cache full of reclaimed blocks.
 */
#ifndef VCACHE_CORE_HOT_H
#define VCACHE_CORE_HOT_H

#include "replace.h"
#include "types.h"

/* Decisions for each cache full of reclaimed blocks. */
#define VC_HOT_PERIODS		16U

/**
 * struct vcache_hot - the hot level of a tag
 * @count: reclaimed blocks by their heat, recently
 * @total: sum of these
 * @raised: how much the level is above the lowest one
 */
struct vcache_hot {
	u32 count[VC_HEAT_MAX + 1];
	u32 total;
	u32 raised;
};

void vcache_hot_note(struct vcache_hot *h, const u32 *count, u32 cells);

/**
 * vcache_hot_level - least heat of a hot block
 * @h: the level
 * @lowest: VC_HEAT_MAIN or VC_HEAT_NEW
 */
static inline u32 vcache_hot_level(const struct vcache_hot *h, u32 lowest)
{
	u32 level = lowest + READ_ONCE(h->raised);

	return level < VC_HEAT_MAX ? level : VC_HEAT_MAX;
}

#endif /* VCACHE_CORE_HOT_H */
