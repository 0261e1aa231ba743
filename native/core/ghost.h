/* SPDX-License-Identifier: GPL-2.0 */
/*
 * Which blocks, not in the cache, were asked for not long ago?
 *
 * A block that is read once is not worth a write of the SSD; one that comes
 * back while the cache would still have had it, is. So what is missed is
 * remembered for as long as about one cache full of other misses of its tag.
 *
 * It is a table of 2 bytes, a fingerprint and the time by the clock of the
 * tag. A block has four places; when they are taken it replaces the oldest. It
 * is taken for another one once in a thousand times: then it is promoted early,
 * no more.
 *
 * Nothing is locked: entries are read and written as a whole, and one that is
 * lost to another thread is as if it had been replaced.
 */
#ifndef VCACHE_CORE_GHOST_H
#define VCACHE_CORE_GHOST_H

#include "types.h"

/* A clock goes through so many hours before it begins again; 0 is never. */
#define VC_GHOST_HOURS		15U

/* Hours for which something is remembered. */
#define VC_GHOST_WINDOW		8U

/* Places of a block. */
#define VC_GHOST_WAYS		4U

/**
 * struct vc_ghosts - what was missed not long ago
 * @entry: time in the upper 4 bits, 1 ... VC_GHOST_HOURS, or 0; fingerprint
 * @mask: number of entries, a power of two, at least VC_GHOST_WAYS, less one
 */
struct vc_ghosts {
	u16 *entry;
	u32 mask;
};

u32 vc_ghost_meet(const struct vc_ghosts *g, u16 slot, u64 block, u32 hour);

/**
 * vc_ghost_hour - what the clock of a tag says
 * @misses: that the tag has had of blocks it had not missed before; may wrap
 * @cells: of the cache that the tag can have
 */
static inline u32 vc_ghost_hour(u32 misses, u32 cells)
{
	u32 long_hour = cells / VC_GHOST_WINDOW;

	return misses / (long_hour ? long_hour : 1) % VC_GHOST_HOURS + 1;
}

#endif /* VCACHE_CORE_GHOST_H */
