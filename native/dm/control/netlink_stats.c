// SPDX-License-Identifier: GPL-2.0-only
/*
 * dm-vcache: netlink attributes of a tag's counters.
 */
#include "../base/compat.h"
#include "netlink.h"

static_assert(VC_HIST_BUCKETS == VCACHE_HISTOGRAM_BUCKETS);

/**
 * struct vc_count - a counter and its attribute
 * @attr: the attribute
 * @field: offset of the counter in its struct
 * @shift: the counter has units of so many bits
 */
struct vc_count {
	int attr;
	size_t field;
	unsigned int shift;
};

#define VC_STAT(name, member, shift) \
	{ VCACHE_A_STATS_##name, offsetof(struct vcache_stats, member), shift }

static const struct vc_count vc_tag_counts[] = {
	VC_STAT(READS, reads, 0),
	VC_STAT(READ_BYTES, read_sectors, SECTOR_SHIFT),
	VC_STAT(READ_HIT_BYTES, read_hit_sectors, SECTOR_SHIFT),
	VC_STAT(WRITES, writes, 0),
	VC_STAT(WRITE_BYTES, write_sectors, SECTOR_SHIFT),
	VC_STAT(ABSORBED_BYTES, absorbed_sectors, SECTOR_SHIFT),
	VC_STAT(FUA_WRITES, fua_writes, 0),
	VC_STAT(WRITEOUTS, writeouts, 0),
	VC_STAT(WRITEOUT_BYTES, writeout_sectors, SECTOR_SHIFT),
	VC_STAT(WRITEOUT_ERRORS, writeout_errors, 0),
	VC_STAT(FLUSHES, flushes, 0),
	VC_STAT(FLUSH_NS, flush_ns, 0),
	VC_STAT(WAITS, waits, 0),
	VC_STAT(WAIT_NS, wait_ns, 0),
	VC_STAT(DISCARDS, discards, 0),
	VC_STAT(DEVICE_FLUSHES, device_flushes, 0),
	VC_STAT(TAGGED_FLUSHES, tagged_flushes, 0),
	VC_STAT(CACHE_HIT_BYTES, cache_hit_sectors, SECTOR_SHIFT),
	VC_STAT(MIGRATED_BLOCKS, migrated, 0),
	VC_STAT(READ_NS, read_ns, 0),
	VC_STAT(WRITE_NS, write_ns, 0),
	VC_STAT(ORIGIN_READS, origin_reads, 0),
	VC_STAT(ORIGIN_READ_NS, origin_read_ns, 0),
	VC_STAT(FLUSH_SPACE_NS, flush_cause_ns[VC_FLUSH_SPACE], 0),
	VC_STAT(FLUSH_CACHE_NS, flush_cause_ns[VC_FLUSH_CACHE], 0),
	VC_STAT(FLUSH_ORIGIN_NS, flush_cause_ns[VC_FLUSH_ORIGIN], 0),
	VC_STAT(FLUSH_OTHERS_NS, flush_cause_ns[VC_FLUSH_OTHERS], 0),
	VC_STAT(FLUSH_DEVICE_NS, flush_cause_ns[VC_FLUSH_DEVICE], 0),
};

#define VC_LOG_COUNT(name, member) \
	{ VCACHE_A_STATS_##name##_BYTES, offsetof(struct vcache_log_counts, member), \
	  VC_BLOCK_SHIFT }

/* These are blocks. */
static const struct vc_count vc_log_counts[] = {
	VC_LOG_COUNT(SSD_DATA, data),
	VC_LOG_COUNT(SSD_RECORD, record),
	VC_LOG_COUNT(SSD_RELOCATED, relocated),
	VC_LOG_COUNT(SSD_PROMOTED, promoted),
	VC_LOG_COUNT(EVICTED, evicted),
	VC_LOG_COUNT(EVICTED_OWN, evicted_own),
	VC_LOG_COUNT(EVICTED_LIMIT, evicted_limit),
	VC_LOG_COUNT(GAINED, gained),
	VC_LOG_COUNT(REFUSED_STREAM, refused[VC_REFUSED_STREAM]),
	VC_LOG_COUNT(REFUSED_LEVEL, refused[VC_REFUSED_LEVEL]),
	VC_LOG_COUNT(REFUSED_SPACE, refused[VC_REFUSED_SPACE]),
};

static int vc_put_histogram(struct sk_buff *skb, int attr, const struct vcache_stats *stats,
			    size_t field)
{
	struct nlattr *hist;
	unsigned int i;
	u64 count;

	hist = nla_reserve(skb, attr, VC_HIST_BUCKETS * sizeof(u64));
	if (!hist)
		return -EMSGSIZE;
	for (i = 0; i < VC_HIST_BUCKETS; i++) {
		count = vcache_stats_sum(stats, field + i * sizeof(atomic64_t));
		memcpy(nla_data(hist) + i * sizeof(count), &count, sizeof(count));
	}
	return 0;
}

/* Put the counters of what a tag has in the cache, if it has a log. */
static int vc_put_log_counts(struct sk_buff *skb, const struct vcache_log *log)
{
	const struct vc_count *c = vc_log_counts;
	unsigned int i;
	u64 blocks;

	for (i = 0; log && i < ARRAY_SIZE(vc_log_counts); i++, c++) {
		blocks = atomic64_read((const atomic64_t *)((const u8 *)&log->counts + c->field));
		if (nla_put_u64_64bit(skb, c->attr, blocks << c->shift, VCACHE_A_STATS_PAD))
			return -EMSGSIZE;
	}
	return 0;
}

/**
 * vcache_fill_stats - put the counters of a tag into a message
 * @skb: the message
 * @tag: the tag; its device is locked
 *
 * Return: 0 or -EMSGSIZE.
 */
int vcache_fill_stats(struct sk_buff *skb, struct vcache_tag *tag)
{
	const struct vc_count *c = vc_tag_counts;
	struct nlattr *nest;
	unsigned int i;

	lockdep_assert_held(&tag->dev->lock);
	nest = nla_nest_start(skb, VCACHE_A_TAG_STATS);
	if (!nest)
		return -EMSGSIZE;
	for (i = 0; i < ARRAY_SIZE(vc_tag_counts); i++, c++) {
		if (nla_put_u64_64bit(skb, c->attr,
				      vcache_stats_sum(tag->stats, c->field) << c->shift,
				      VCACHE_A_STATS_PAD))
			return -EMSGSIZE;
	}
	if (vc_put_log_counts(skb, tag->log) ||
	    vc_put_histogram(skb, VCACHE_A_STATS_FLUSH_HIST, tag->stats,
			     offsetof(struct vcache_stats, flush_hist)) ||
	    vc_put_histogram(skb, VCACHE_A_STATS_READ_HIST, tag->stats,
			     offsetof(struct vcache_stats, read_hist)) ||
	    vc_put_histogram(skb, VCACHE_A_STATS_WRITE_HIST, tag->stats,
			     offsetof(struct vcache_stats, write_hist)))
		return -EMSGSIZE;
	nla_nest_end(skb, nest);
	return 0;
}
