// SPDX-License-Identifier: GPL-2.0-only
/*
 * dm-vcache: netlink attributes of devices and tags.
 */
#include <linux/dm-ioctl.h>
#include <linux/slab.h>

#include "../base/compat.h"
#include "netlink.h"

static_assert(VC_HIST_BUCKETS == VCACHE_HISTOGRAM_BUCKETS);

/**
 * vc_dev_number - get the device number of a device
 * @dev: the device
 */
static dev_t vc_dev_number(struct vcache_dev *dev)
{
	return disk_devt(dm_disk(dev->md));
}

/**
 * vcache_put_number - put major and minor of a device into a message
 * @skb: the message
 * @dev: the device
 * @major: attribute
 * @minor: attribute
 *
 * Return: 0 or -EMSGSIZE.
 */
int vcache_put_number(struct sk_buff *skb, struct vcache_dev *dev, int major,
		      int minor)
{
	dev_t number = vc_dev_number(dev);

	return nla_put_u32(skb, major, MAJOR(number)) ?:
	       nla_put_u32(skb, minor, MINOR(number));
}

static u64 vc_dev_dirty(struct vcache_dev *dev, u32 *tags, bool *broken)
{
	struct vcache_tag *tag;
	u64 sectors = 0;

	*tags = 0;
	*broken = false;
	list_for_each_entry(tag, &dev->tags, node) {
		*tags += !tag->orphan;
		sectors += atomic64_read(&tag->dirty_sectors);
		*broken |= atomic_read(&tag->bad);
	}
	return sectors << SECTOR_SHIFT;
}

static int vc_put_name(struct sk_buff *skb, struct vcache_dev *dev)
{
	char *name = kmalloc(DM_NAME_LEN, GFP_KERNEL);
	int r;

	if (!name)
		return -ENOMEM;
	r = dm_copy_name_and_uuid(dev->md, name, NULL);
	/* After -ENXIO dm is about to remove the device. */
	if (!r)
		r = nla_put_string(skb, VCACHE_A_DEVICE_NAME, name);
	else if (r == -ENXIO)
		r = 0;
	kfree(name);
	return r;
}

/* Put the cache attributes of a device. */
static int vc_fill_volume(struct sk_buff *skb, struct vcache_target *vt)
{
	struct vcache_volume *v = vt->dev->vol;
	bool broken;

	if (!v)
		return 0;
	broken = READ_ONCE(v->failing) || READ_ONCE(v->nbad) || READ_ONCE(v->bypass) ||
		 READ_ONCE(v->pool->state) != VC_POOL_OK;
	return nla_put_string(skb, VCACHE_A_DEVICE_POOL, vt->pool_dev->name) ?:
	       nla_put_u32(skb, VCACHE_A_DEVICE_VOLUME, v->id) ?:
	       nla_put_u64_64bit(skb, VCACHE_A_DEVICE_CACHE_DIRTY_BYTES,
				 vcache_volume_dirty(v) << SECTOR_SHIFT,
				 VCACHE_A_DEVICE_PAD) ?:
	       (broken ? nla_put_flag(skb, VCACHE_A_DEVICE_CACHE_BROKEN) : 0);
}

/**
 * vcache_fill_device - put the attributes of a device into a message
 * @skb: the message
 * @dev: the device, locked, with an active table
 *
 * Return: 0 or -EMSGSIZE.
 */
int vcache_fill_device(struct sk_buff *skb, struct vcache_dev *dev)
{
	struct vcache_target *vt = dev->target;
	bool broken;
	u32 tags;
	u64 dirty = vc_dev_dirty(dev, &tags, &broken);

	lockdep_assert_held(&dev->lock);
	return vcache_put_number(skb, dev, VCACHE_A_DEVICE_MAJOR,
				 VCACHE_A_DEVICE_MINOR) ?:
	       vc_put_name(skb, dev) ?:
	       nla_put_u32(skb, VCACHE_A_DEVICE_MODE, vt->mode) ?:
	       nla_put_u32(skb, VCACHE_A_DEVICE_SCOPE, vt->scope) ?:
	       nla_put_u32(skb, VCACHE_A_DEVICE_ISOLATION,
			   vcache_target_isolation(vt)) ?:
	       nla_put_u64_64bit(skb, VCACHE_A_DEVICE_SECTORS, vt->ti->len,
				 VCACHE_A_DEVICE_PAD) ?:
	       nla_put_string(skb, VCACHE_A_DEVICE_ORIGIN, vt->origin->name) ?:
	       nla_put_u64_64bit(skb, VCACHE_A_DEVICE_DIRTY_BYTES, dirty,
				 VCACHE_A_DEVICE_PAD) ?:
	       nla_put_u32(skb, VCACHE_A_DEVICE_TAGS, tags) ?:
	       (dev->suspended ?
		nla_put_flag(skb, VCACHE_A_DEVICE_SUSPENDED) : 0) ?:
	       vc_fill_volume(skb, vt) ?:
	       (broken ? nla_put_flag(skb, VCACHE_A_DEVICE_BROKEN) : 0);
}

static int vc_fill_histogram(struct sk_buff *skb, int attr, atomic64_t *counts)
{
	struct nlattr *hist;
	unsigned int i;
	u64 count;

	hist = nla_reserve(skb, attr, VC_HIST_BUCKETS * sizeof(u64));
	if (!hist)
		return -EMSGSIZE;
	for (i = 0; i < VC_HIST_BUCKETS; i++) {
		count = atomic64_read(&counts[i]);
		memcpy(nla_data(hist) + i * sizeof(count), &count,
		       sizeof(count));
	}
	return 0;
}

static int vc_fill_stats(struct sk_buff *skb, struct vcache_stats *st)
{
	const struct {
		int attr;
		atomic64_t *value;
		unsigned int shift;
	} counters[] = {
		{ VCACHE_A_STATS_READS, &st->reads },
		{ VCACHE_A_STATS_READ_BYTES, &st->read_sectors, SECTOR_SHIFT },
		{ VCACHE_A_STATS_READ_HIT_BYTES, &st->read_hit_sectors,
		  SECTOR_SHIFT },
		{ VCACHE_A_STATS_WRITES, &st->writes },
		{ VCACHE_A_STATS_WRITE_BYTES, &st->write_sectors,
		  SECTOR_SHIFT },
		{ VCACHE_A_STATS_ABSORBED_BYTES, &st->absorbed_sectors,
		  SECTOR_SHIFT },
		{ VCACHE_A_STATS_FUA_WRITES, &st->fua_writes },
		{ VCACHE_A_STATS_WRITEOUTS, &st->writeouts },
		{ VCACHE_A_STATS_WRITEOUT_BYTES, &st->writeout_sectors,
		  SECTOR_SHIFT },
		{ VCACHE_A_STATS_WRITEOUT_ERRORS, &st->writeout_errors },
		{ VCACHE_A_STATS_FLUSHES, &st->flushes },
		{ VCACHE_A_STATS_FLUSH_NS, &st->flush_ns },
		{ VCACHE_A_STATS_WAITS, &st->waits },
		{ VCACHE_A_STATS_WAIT_NS, &st->wait_ns },
		{ VCACHE_A_STATS_DISCARDS, &st->discards },
		{ VCACHE_A_STATS_DEVICE_FLUSHES, &st->device_flushes },
		{ VCACHE_A_STATS_TAGGED_FLUSHES, &st->tagged_flushes },
		{ VCACHE_A_STATS_CACHE_HIT_BYTES, &st->cache_hit_sectors,
		  SECTOR_SHIFT },
		{ VCACHE_A_STATS_MIGRATED_BLOCKS, &st->migrated },
		{ VCACHE_A_STATS_READ_NS, &st->read_ns },
	};
	struct nlattr *nest;
	unsigned int i;
	u64 count;

	nest = nla_nest_start(skb, VCACHE_A_TAG_STATS);
	if (!nest)
		return -EMSGSIZE;
	for (i = 0; i < ARRAY_SIZE(counters); i++) {
		count = atomic64_read(counters[i].value);
		if (nla_put_u64_64bit(skb, counters[i].attr,
				      count << counters[i].shift,
				      VCACHE_A_STATS_PAD))
			return -EMSGSIZE;
	}
	if (vc_fill_histogram(skb, VCACHE_A_STATS_FLUSH_HIST, st->flush_hist) ||
	    vc_fill_histogram(skb, VCACHE_A_STATS_READ_HIST, st->read_hist))
		return -EMSGSIZE;
	nla_nest_end(skb, nest);
	return 0;
}

static int vc_fill_cgroups(struct sk_buff *skb, struct vcache_tag *tag)
{
	struct vcache_cgroups *cgs;
	unsigned int i;
	int r = 0;

	cgs = rcu_dereference_protected(tag->cgroups,
					lockdep_is_held(&tag->dev->lock));
	for (i = 0; cgs && i < cgs->nr && !r; i++)
		r = nla_put_u64_64bit(skb, VCACHE_A_TAG_CGROUP, cgs->id[i],
				      VCACHE_A_TAG_PAD);
	return r;
}

/* The mode that the writes of a tag have now. */
static enum vcache_mode vc_tag_mode(const struct vcache_tag *tag)
{
	return tag->dev->writeback ? tag->mode : tag->dev->target->mode;
}

/* Put the cache attributes of a tag. */
static int vc_fill_log(struct sk_buff *skb, struct vcache_log *log)
{
	u64 chunk;

	if (!log)
		return 0;
	chunk = (u64)log->vol->pool->g.chunk_blocks * VC_BLOCK_SIZE;
	return nla_put_u64_64bit(skb, VCACHE_A_TAG_CACHED_BYTES,
				 vcache_log_chunks(log) * chunk,
				 VCACHE_A_TAG_PAD) ?:
	       nla_put_u64_64bit(skb, VCACHE_A_TAG_CACHE_DIRTY_BYTES,
				 vcache_log_dirty(log) << SECTOR_SHIFT,
				 VCACHE_A_TAG_PAD) ?:
	       nla_put_u64_64bit(skb, VCACHE_A_TAG_CACHE_SHARE_BYTES,
				 vcache_log_part(log) * chunk,
				 VCACHE_A_TAG_PAD) ?:
	       nla_put_u64_64bit(skb, VCACHE_A_TAG_PREFETCH_WAITING_BYTES,
				 atomic64_read(&log->prefetch.waiting) *
				 VC_BLOCK_SIZE, VCACHE_A_TAG_PAD) ?:
	       nla_put_u64_64bit(skb, VCACHE_A_TAG_PREFETCHED_BYTES,
				 atomic64_read(&log->prefetch.done) *
				 VC_BLOCK_SIZE, VCACHE_A_TAG_PAD) ?:
	       nla_put_u64_64bit(skb, VCACHE_A_TAG_CACHE_OWN_BYTES,
				 vcache_log_has(log, VC_OWN) * chunk,
				 VCACHE_A_TAG_PAD) ?:
	       nla_put_u64_64bit(skb, VCACHE_A_TAG_CACHE_HOT_BYTES,
				 (u64)atomic_read(&log->hot) * VC_BLOCK_SIZE,
				 VCACHE_A_TAG_PAD);
}

/**
 * vcache_fill_extents - put the counters of a tag's extents into a message
 * @skb: the message
 * @tag: the tag; its device is locked
 *
 * Return: 0 or -EMSGSIZE.
 */
int vcache_fill_extents(struct sk_buff *skb, struct vcache_tag *tag)
{
	lockdep_assert_held(&tag->dev->lock);
	return nla_put_u32(skb, VCACHE_A_TAG_EXTENTS_COUNT, tag->extents.runs) ?:
	       nla_put_u64_64bit(skb, VCACHE_A_TAG_EXTENTS_SECTORS, tag->extents.sectors,
				 VCACHE_A_TAG_PAD);
}

/**
 * vcache_fill_tag - put the attributes of a tag into a message
 * @skb: the message
 * @tag: the tag; its device is locked, with an active table
 *
 * Return: 0 or -EMSGSIZE.
 */
int vcache_fill_tag(struct sk_buff *skb, struct vcache_tag *tag)
{
	lockdep_assert_held(&tag->dev->lock);
	return vcache_put_number(skb, tag->dev, VCACHE_A_TAG_MAJOR,
				 VCACHE_A_TAG_MINOR) ?:
	       nla_put_u32(skb, VCACHE_A_TAG_ID, tag->id) ?:
	       nla_put_string(skb, VCACHE_A_TAG_NAME, tag->name) ?:
	       nla_put_u32(skb, VCACHE_A_TAG_WEIGHT, tag->weight) ?:
	       vc_fill_cgroups(skb, tag) ?:
	       vcache_fill_extents(skb, tag) ?:
	       nla_put_u64_64bit(skb, VCACHE_A_TAG_LIMIT_BYTES,
				 (u64)READ_ONCE(tag->limit) << PAGE_SHIFT,
				 VCACHE_A_TAG_PAD) ?:
	       nla_put_u64_64bit(skb, VCACHE_A_TAG_DIRTY_BYTES,
				 (u64)atomic64_read(&tag->dirty_sectors)
				 << SECTOR_SHIFT, VCACHE_A_TAG_PAD) ?:
	       nla_put_u64_64bit(skb, VCACHE_A_TAG_INFLIGHT_BYTES,
				 (u64)atomic_read(&tag->inflight_sectors)
				 << SECTOR_SHIFT, VCACHE_A_TAG_PAD) ?:
	       vc_fill_stats(skb, &tag->stats) ?:
	       nla_put_u32(skb, VCACHE_A_TAG_MODE, vc_tag_mode(tag)) ?:
	       nla_put_u64_64bit(skb, VCACHE_A_TAG_CACHE_MIN_BYTES,
				 tag->least, VCACHE_A_TAG_PAD) ?:
	       nla_put_u64_64bit(skb, VCACHE_A_TAG_CACHE_MAX_BYTES,
				 tag->most, VCACHE_A_TAG_PAD) ?:
	       nla_put_u64_64bit(skb, VCACHE_A_TAG_CACHE_LANES,
				 tag->lanes, VCACHE_A_TAG_PAD) ?:
	       vc_fill_log(skb, tag->log) ?:
	       (atomic_read(&tag->bad) ?
		nla_put_flag(skb, VCACHE_A_TAG_BROKEN) : 0);
}

/* Put the accesses of a kind, and how many of them a cache of each size would miss. */
static int vc_put_misses(struct sk_buff *skb, const struct vcache_curve_said *said,
			 enum vcache_curve_kind kind, int accesses, int misses)
{
	return nla_put_u64_64bit(skb, accesses, said->accesses[kind],
				 VCACHE_A_CURVE_PAD) ?:
	       nla_put(skb, misses, sizeof(said->misses[kind]),
		       said->misses[kind]);
}

/**
 * vcache_fill_curve - put the curve of a tag into a message
 * @skb: the message
 * @asked: attributes of the request, which name the tag
 * @said: the curve
 *
 * Return: 0 or -EMSGSIZE.
 */
int vcache_fill_curve(struct sk_buff *skb, struct nlattr **asked,
		      const struct vcache_curve_said *said)
{
	u64 grain = said->sizes[1] * VC_BLOCK_SIZE;
	u64 footprint = said->footprint * VC_BLOCK_SIZE;

	return nla_put_u32(skb, VCACHE_A_CURVE_MAJOR,
			   nla_get_u32(asked[VCACHE_A_CURVE_MAJOR])) ?:
	       nla_put_u32(skb, VCACHE_A_CURVE_MINOR,
			   nla_get_u32(asked[VCACHE_A_CURVE_MINOR])) ?:
	       nla_put_u32(skb, VCACHE_A_CURVE_ID,
			   nla_get_u32(asked[VCACHE_A_CURVE_ID])) ?:
	       nla_put_u64_64bit(skb, VCACHE_A_CURVE_GRAIN_BYTES, grain,
				 VCACHE_A_CURVE_PAD) ?:
	       nla_put_u64_64bit(skb, VCACHE_A_CURVE_FOOTPRINT_BYTES,
				 footprint, VCACHE_A_CURVE_PAD) ?:
	       vc_put_misses(skb, said, VC_CURVE_READ, VCACHE_A_CURVE_READS,
			     VCACHE_A_CURVE_READ_MISSES) ?:
	       vc_put_misses(skb, said, VC_CURVE_WRITE, VCACHE_A_CURVE_WRITES,
			     VCACHE_A_CURVE_WRITE_MISSES);
}
