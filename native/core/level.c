// SPDX-License-Identifier: GPL-2.0
#include "level.h"

/**
 * vcache_level_miss - count missed blocks, and decide again when it is time
 * @l: the level
 * @first: how many were missed for the first time
 * @again: how many were missed again after a short time
 * @cells: how many blocks of the cache the tag can have
 */
void vcache_level_miss(struct vcache_level *l, u32 first, u32 again, u32 cells)
{
	first += READ_ONCE(l->first);
	again += READ_ONCE(l->again);
	if (first > cells / VC_LEVEL_PERIODS) {
		u32 part = READ_ONCE(l->once) ? VC_LEVEL_ENDS : VC_LEVEL_BEGINS;

		WRITE_ONCE(l->once, again > first / part);
		/* Older counts weigh half as much each time. */
		first /= 2;
		again /= 2;
	}
	WRITE_ONCE(l->first, first);
	WRITE_ONCE(l->again, again);
}
