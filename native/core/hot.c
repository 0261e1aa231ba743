// SPDX-License-Identifier: GPL-2.0
#include "hot.h"

/* The lowest level, less one, of which at most half of the blocks are hot. */
static u32 vc_hot_raised(const struct vcache_hot *h)
{
	u32 level = VC_HEAT_MAX, hot = h->count[level];

	while (level > 1 && hot + h->count[level - 1] <= h->total / 2)
		hot += h->count[--level];
	return level - 1;
}

/**
 * vcache_hot_note - note the blocks of a chunk that is reclaimed, and decide when it is time
 * @h: the level
 * @count: its blocks by heat, up to VC_HEAT_MAX
 * @cells: how many blocks of the cache the tag can have
 */
void vcache_hot_note(struct vcache_hot *h, const u32 *count, u32 cells)
{
	u32 i;

	for (i = 0; i <= VC_HEAT_MAX; i++) {
		h->count[i] += count[i];
		h->total += count[i];
	}
	if (h->total <= cells / VC_HOT_PERIODS)
		return;
	WRITE_ONCE(h->raised, vc_hot_raised(h));
	/* Older counts weigh half as much each time. */
	h->total = 0;
	for (i = 0; i <= VC_HEAT_MAX; i++) {
		h->count[i] /= 2;
		h->total += h->count[i];
	}
}
