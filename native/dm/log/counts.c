// SPDX-License-Identifier: GPL-2.0-only
/*
 * dm-vcache: counters of lanes, see counts.h.
 *
 * The time for which a lane is busy is an estimate, as the kernel's own "io_ticks" of a disk is.
 * The first request that begins in a jiffy counts that jiffy, and the first one that ends in a
 * jiffy counts the time since the last count. So the shared stamp of a lane is written once a jiffy
 * only.
 */
#include <linux/slab.h>

#include "log.h"

/**
 * vcache_lane_counts_make - allocate the counters of all lanes of a pool
 *
 * Return: VC_LANES_MAX counters for each stripe, for kvfree(); NULL without memory.
 */
struct vcache_lane_counts *vcache_lane_counts_make(void)
{
	return kvzalloc((vcache_stats_mask + 1) * VC_LANES_MAX *
			sizeof(struct vcache_lane_counts), GFP_KERNEL);
}

static struct vcache_lane_counts *vc_lane_counts(const struct vcache_pool *p, u32 lane)
{
	u32 stripe = raw_smp_processor_id() & vcache_stats_mask;

	return &p->lane_counts[stripe * VC_LANES_MAX + lane];
}

/**
 * vcache_lane_count - add up a counter of a lane
 * @p: the pool
 * @lane: the lane
 * @field: offset of the counter, an atomic64_t, in struct vcache_lane_counts
 */
u64 vcache_lane_count(const struct vcache_pool *p, u32 lane, size_t field)
{
	const struct vcache_lane_counts *c = &p->lane_counts[lane];
	u64 sum = 0;
	u32 i;

	for (i = 0; i <= vcache_stats_mask; i++, c += VC_LANES_MAX)
		sum += atomic64_read((const atomic64_t *)((const u8 *)c + field));
	return sum;
}

/* Count this jiffy; or, if a request @ends, the time since the last count. */
static void vc_lane_busy(struct vcache_pool *p, u32 lane, bool ends)
{
	unsigned long *at = &p->lane_at[lane], was = READ_ONCE(*at), now = jiffies;

	if (likely(was == now) || cmpxchg(at, was, now) != was)
		return;
	atomic64_add(ends ? now - was : 1, &vc_lane_counts(p, lane)->busy);
}

/**
 * vcache_lane_begin - a request to a lane is about to be sent
 * @p: the pool
 * @lane: the lane
 */
void vcache_lane_begin(struct vcache_pool *p, u32 lane)
{
	vc_lane_busy(p, lane, false);
}

/**
 * vcache_lane_end - a request to a lane is complete
 * @p: the pool
 * @lane: the lane
 * @write: it was a write
 * @ns: how long it took
 */
void vcache_lane_end(struct vcache_pool *p, u32 lane, bool write, u64 ns)
{
	struct vcache_lane_counts *c = vc_lane_counts(p, lane);

	vc_lane_busy(p, lane, true);
	atomic64_inc(write ? &c->writes : &c->reads);
	atomic64_add(ns, write ? &c->write_ns : &c->read_ns);
}
