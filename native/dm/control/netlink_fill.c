// SPDX-License-Identifier: GPL-2.0-only
/*
 * dm-vcache: netlink attributes of devices and tags.
 */
#include <linux/dm-ioctl.h>
#include <linux/slab.h>

#include "../base/compat.h"
#include "netlink.h"

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

/* Put how old the oldest data is that is not durable, and that is not on the origin. */
static int vc_fill_age(struct sk_buff *skb, struct vcache_tag *tag)
{
	struct vcache_log *log = tag->log;
	struct vcache_block *b;
	unsigned long now = jiffies, since = now;
	bool dirty;
	int r = 0;

	spin_lock_irq(&tag->lock);
	b = list_first_entry_or_null(&tag->dirty, struct vcache_block, node);
	if (b)
		since = b->since;
	spin_unlock_irq(&tag->lock);
	if (b)
		r = nla_put_u32(skb, VCACHE_A_TAG_DIRTY_AGE_MS, jiffies_to_msecs(now - since));
	if (r || !log)
		return r;
	spin_lock_irq(&log->lock);
	/* The open chunk counts as dirty even if nothing of it is. */
	dirty = log->dirty && atomic_read(&log->dirty_cells);
	since = log->dirty_since;
	spin_unlock_irq(&log->lock);
	return dirty ? nla_put_u32(skb, VCACHE_A_TAG_CACHE_DIRTY_AGE_MS,
				   jiffies_to_msecs(now - since)) : 0;
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
	       vcache_fill_stats(skb, tag) ?:
	       vc_fill_age(skb, tag) ?:
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
 * @tag: the tag; its device is locked
 * @said: the curve
 *
 * Return: 0 or -EMSGSIZE.
 */
int vcache_fill_curve(struct sk_buff *skb, struct vcache_tag *tag,
		      const struct vcache_curve_said *said)
{
	u64 grain = said->sizes[1] * VC_BLOCK_SIZE;
	u64 footprint = said->footprint * VC_BLOCK_SIZE;

	return vcache_put_number(skb, tag->dev, VCACHE_A_CURVE_MAJOR, VCACHE_A_CURVE_MINOR) ?:
	       nla_put_u32(skb, VCACHE_A_CURVE_ID, tag->id) ?:
	       nla_put_u64_64bit(skb, VCACHE_A_CURVE_GRAIN_BYTES, grain,
				 VCACHE_A_CURVE_PAD) ?:
	       nla_put_u64_64bit(skb, VCACHE_A_CURVE_FOOTPRINT_BYTES,
				 footprint, VCACHE_A_CURVE_PAD) ?:
	       vc_put_misses(skb, said, VC_CURVE_READ, VCACHE_A_CURVE_READS,
			     VCACHE_A_CURVE_READ_MISSES) ?:
	       vc_put_misses(skb, said, VC_CURVE_WRITE, VCACHE_A_CURVE_WRITES,
			     VCACHE_A_CURVE_WRITE_MISSES);
}

/* Put whom a lane is dedicated to. */
static int vc_put_owner(struct sk_buff *skb, struct vcache_pool *p, u32 lane)
{
	struct vcache_log *owner;
	u32 volume = 0, tag = 0;

	spin_lock_irq(&p->free_lock);
	owner = p->lane[lane].owner;
	if (owner) {
		volume = owner->vol->id;
		tag = owner->tag;
	}
	spin_unlock_irq(&p->free_lock);
	if (!owner)
		return 0;
	return nla_put_u32(skb, VCACHE_A_LANE_VOLUME, volume) ?:
	       nla_put_u32(skb, VCACHE_A_LANE_TAG, tag);
}

/* Put a counter of a lane. */
static int vc_put_lane_count(struct sk_buff *skb, const struct vcache_pool *p, u32 lane, int attr,
			     size_t field)
{
	u64 count = vcache_lane_count(p, lane, field);

	if (attr == VCACHE_A_LANE_BUSY_NS)
		count = jiffies64_to_nsecs(count);
	return nla_put_u64_64bit(skb, attr, count, VCACHE_A_LANE_PAD);
}

/**
 * vcache_fill_lane - put the attributes of a lane into a message
 * @skb: the message
 * @p: the pool
 * @lane: number of the lane
 *
 * Return: 0 or -EMSGSIZE.
 */
int vcache_fill_lane(struct sk_buff *skb, struct vcache_pool *p, u32 lane)
{
	dev_t number = disk_devt(dm_disk(p->md));
	u64 chunk = (u64)p->g.chunk_blocks * VC_BLOCK_SIZE;

	return nla_put_u32(skb, VCACHE_A_LANE_MAJOR, MAJOR(number)) ?:
	       nla_put_u32(skb, VCACHE_A_LANE_MINOR, MINOR(number)) ?:
	       nla_put_u32(skb, VCACHE_A_LANE_LANE, lane) ?:
	       nla_put_u64_64bit(skb, VCACHE_A_LANE_FREE_BYTES,
				 READ_ONCE(p->lane[lane].nfree) * chunk, VCACHE_A_LANE_PAD) ?:
	       vc_put_owner(skb, p, lane) ?:
	       vc_put_lane_count(skb, p, lane, VCACHE_A_LANE_READS,
				 offsetof(struct vcache_lane_counts, reads)) ?:
	       vc_put_lane_count(skb, p, lane, VCACHE_A_LANE_READ_NS,
				 offsetof(struct vcache_lane_counts, read_ns)) ?:
	       vc_put_lane_count(skb, p, lane, VCACHE_A_LANE_WRITES,
				 offsetof(struct vcache_lane_counts, writes)) ?:
	       vc_put_lane_count(skb, p, lane, VCACHE_A_LANE_WRITE_NS,
				 offsetof(struct vcache_lane_counts, write_ns)) ?:
	       vc_put_lane_count(skb, p, lane, VCACHE_A_LANE_BUSY_NS,
				 offsetof(struct vcache_lane_counts, busy));
}
