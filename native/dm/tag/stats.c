// SPDX-License-Identifier: GPL-2.0-only
/*
 * dm-vcache: the stripes of a tag's counters, see stats.h.
 */
#include <linux/cpumask.h>
#include <linux/log2.h>
#include <linux/slab.h>

#include "internal.h"

/* The number of stripes less one. */
unsigned int vcache_stats_mask __ro_after_init;

/**
 * vcache_stats_init - find out how many stripes are of use on this host
 */
void __init vcache_stats_init(void)
{
	vcache_stats_mask = min_t(unsigned int, roundup_pow_of_two(nr_cpu_ids),
				  VC_STATS_STRIPES) - 1;
}

/**
 * vcache_stats_make - allocate the counters of a tag
 *
 * Return: the stripes, for kvfree(); NULL without memory.
 */
struct vcache_stats *vcache_stats_make(void)
{
	return kvzalloc((vcache_stats_mask + 1) * sizeof(struct vcache_stats), GFP_KERNEL);
}

/**
 * vcache_stats_sum - add a counter up
 * @stats: the stripes
 * @field: offset of the counter, an atomic64_t, in struct vcache_stats
 */
u64 vcache_stats_sum(const struct vcache_stats *stats, size_t field)
{
	unsigned int i;
	u64 sum = 0;

	for (i = 0; i <= vcache_stats_mask; i++)
		sum += atomic64_read((const atomic64_t *)((const u8 *)&stats[i] + field));
	return sum;
}
