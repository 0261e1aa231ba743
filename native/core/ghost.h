/* SPDX-License-Identifier: GPL-2.0 */
/*
 * Ghosts: blocks that are not in the cache and were missed recently.
 *
 * A block that is read once is not worth a write to the SSD. A block is worth it if it is
 * read again while the cache would still have had it. So a missed block is remembered
 * until its tag has missed about one cache full of other blocks.
 *
 * An entry of the table has 2 bytes: a fingerprint, and the time on the clock of the tag.
 * Each block has four places. If these are taken it replaces the oldest entry. One block in
 * a thousand is mistaken for another one, and promoted early. That does no harm.
 *
 * There are no locks. Entries are read and written as a whole. If a race loses one, that is
 * as if it had been replaced.
 */
#ifndef VCACHE_CORE_GHOST_H
#define VCACHE_CORE_GHOST_H

#include "types.h"

/* The clock counts 1 to so many hours and begins again; 0 in an entry: none. */
#define VC_GHOST_HOURS		15U

/* An entry is valid for so many hours. */
#define VC_GHOST_WINDOW		8U

/* Places that a block can have. */
#define VC_GHOST_WAYS		4U

/**
 * struct vcache_ghosts - a table of ghosts
 * @entry: time in the upper 4 bits, 1 to VC_GHOST_HOURS, or 0; fingerprint
 * @entries: how many, a multiple of VC_GHOST_WAYS, not 0; see vcache_ghost_entries()
 */
struct vcache_ghosts {
	u16 *entry;
	u32 entries;
};

/**
 * vcache_ghost_entries - choose the size of the table
 * @cells: cells of the cache
 *
 * Return: one entry for each cell, at least VC_GHOST_WAYS, at most what a u32 can hold.
 */
static inline u32 vcache_ghost_entries(u32 cells)
{
	u32 ways = cells / VC_GHOST_WAYS;

	return (ways ? ways : 1) * VC_GHOST_WAYS;
}

u32 vcache_ghost_meet(const struct vcache_ghosts *g, u16 slot, u64 block, u32 hour);

/**
 * vcache_ghost_hour - read the clock of a tag
 * @misses: misses of the tag that were no ghosts; may wrap
 * @cells: how many cells of the cache the tag can have
 */
static inline u32 vcache_ghost_hour(u32 misses, u32 cells)
{
	u32 long_hour = cells / VC_GHOST_WINDOW;

	return misses / (long_hour ? long_hour : 1) % VC_GHOST_HOURS + 1;
}

#endif /* VCACHE_CORE_GHOST_H */
