/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * dm-vcache: counters of logs and of lanes.
 *
 * Those of a log change when something is written to the cache device, or when a read misses
 * it; no read hit writes them. They count from the load of the volume, so they outlive a tag.
 *
 * Those of a lane change with each request to the cache device, so they have stripes, see
 * ../tag/stats.h.
 *
 * DOC: Evictions
 *
 * A matrix of victims and beneficiaries would grow with the square of the tags, and most of it
 * would be 0. So a log has four sums. @evicted is all that it has lost. @evicted_limit is what it
 * has lost because of a limit of its own: its maximum, its lanes, or a command. Of the rest it is
 * known who has profited only when the space is taken: the chunk remembers its last log, and what
 * was lost with it. If that log takes it again, this is counted in @evicted_own, else in @gained of
 * the taker. So what a log has lost to others is @evicted less @evicted_limit and @evicted_own, and
 * those who have gained are known by name.
 */
#ifndef DM_VCACHE_COUNTS_H
#define DM_VCACHE_COUNTS_H

#include <linux/atomic.h>
#include <linux/cache.h>
#include <linux/types.h>

struct vcache_pool;

/* Why blocks that were read from the origin were not promoted. */
enum vcache_refusal_cause {
	VC_REFUSED_STREAM,	/* a long sequential read */
	VC_REFUSED_LEVEL,	/* they were not missed often enough */
	VC_REFUSED_SPACE,	/* there was no chunk, no memory, or too much under way */
	VC_REFUSALS
};

/**
 * struct vcache_log_counts - counters of a log, blocks
 * @data: written to the cache device: data of write-outs
 * @record: the same: heads of records, and seals
 * @relocated: the same: relocated blocks, and those that were kept
 * @promoted: the same: data that was read from the origin
 * @evicted: valid blocks that were dropped when their chunk was reclaimed
 * @evicted_own: those of them whose space the log has taken again
 * @evicted_limit: those of them that a limit of its own has cost
 * @gained: blocks of other logs that were dropped for space which this log has taken
 * @refused: blocks that were read from the origin and not promoted
 */
struct vcache_log_counts {
	atomic64_t data;
	atomic64_t record;
	atomic64_t relocated;
	atomic64_t promoted;
	atomic64_t evicted;
	atomic64_t evicted_own;
	atomic64_t evicted_limit;
	atomic64_t gained;
	atomic64_t refused[VC_REFUSALS];
};

/**
 * struct vcache_lane_counts - counters of a lane
 * @reads: requests that read from it
 * @read_ns: how long these took
 * @writes: requests that wrote to it
 * @write_ns: how long these took
 * @busy: how long any request was under way, jiffies
 */
struct vcache_lane_counts {
	atomic64_t reads;
	atomic64_t read_ns;
	atomic64_t writes;
	atomic64_t write_ns;
	atomic64_t busy;
};

/* counts.c */
struct vcache_lane_counts *vcache_lane_counts_make(void);
u64 vcache_lane_count(const struct vcache_pool *p, u32 lane, size_t field);
void vcache_lane_begin(struct vcache_pool *p, u32 lane);
void vcache_lane_end(struct vcache_pool *p, u32 lane, bool write, u64 ns);

#endif /* DM_VCACHE_COUNTS_H */
