/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * dm-vcache: counters of a tag, as the netlink attributes of the same names.
 *
 * A tag has several copies of them, its stripes. A processor adds to the stripe of its number, so
 * that processors which serve the same tag seldom write the same cache line. Whoever reads a
 * counter adds the stripes up. One copy for each processor would need 4 KiB for each tag and
 * processor.
 */
#ifndef DM_VCACHE_STATS_H
#define DM_VCACHE_STATS_H

#include <linux/atomic.h>
#include <linux/cache.h>

#include "../../core/histogram.h"
#include "../base/base.h"

/* Most stripes; a power of two. */
#define VC_STATS_STRIPES 8U

/* What a flush waits for. */
enum vcache_flush_cause {
	VC_FLUSH_SPACE,		/* for space in the log, or for its pace */
	VC_FLUSH_CACHE,		/* for writes to the cache device */
	VC_FLUSH_ORIGIN,	/* for writes to the origin */
	VC_FLUSH_OTHERS,	/* for data of tags that it covers besides its own */
	VC_FLUSH_DEVICE,	/* for a FLUSH of the device */
	VC_FLUSH_CAUSES
};

struct vcache_stats {
	atomic64_t reads;
	atomic64_t read_ns;
	atomic64_t read_sectors;
	atomic64_t read_hit_sectors;
	atomic64_t cache_hit_sectors;
	atomic64_t origin_reads;
	atomic64_t origin_read_ns;
	atomic64_t migrated;
	atomic64_t writes;
	atomic64_t write_ns;
	atomic64_t write_sectors;
	atomic64_t absorbed_sectors;
	atomic64_t fua_writes;
	atomic64_t writeouts;
	atomic64_t writeout_sectors;
	atomic64_t writeout_errors;
	atomic64_t flushes;
	atomic64_t flush_ns;
	atomic64_t flush_cause_ns[VC_FLUSH_CAUSES];
	atomic64_t waits;
	atomic64_t wait_ns;
	atomic64_t discards;
	atomic64_t device_flushes;
	atomic64_t tagged_flushes;
	/* At the end, away from the counters that are updated together. */
	atomic64_t flush_hist[VC_HIST_BUCKETS];
	atomic64_t read_hist[VC_HIST_BUCKETS];
	atomic64_t write_hist[VC_HIST_BUCKETS];
} ____cacheline_aligned_in_smp;

extern unsigned int vcache_stats_mask;

/* stats.c */
void vcache_stats_init(void);
struct vcache_stats *vcache_stats_make(void);
u64 vcache_stats_sum(const struct vcache_stats *stats, size_t field);

/* Add up a counter of a tag. */
#define vcache_stats_get(tag, field) \
	vcache_stats_sum((tag)->stats, offsetof(struct vcache_stats, field))

#endif /* DM_VCACHE_STATS_H */
