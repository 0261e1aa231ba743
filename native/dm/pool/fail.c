// SPDX-License-Identifier: GPL-2.0-only
/*
 * dm-vcache: failure of the cache device.
 *
 * See errors.c for when the device has failed.
 *
 * Tags without dirty data go on with their origin, as if they had no cache. The others have
 * lost data. Their writes fail, so that nothing is built on that, and so do reads of data
 * that only the cache has.
 *
 * If the device comes back, its data of a tag that went on is outdated. So the tag is
 * dropped from it before the first write bypasses it, because only some writes to the device
 * may fail; a volume without any dirty data is dropped as a whole. If that cannot be written
 * either, the pool stays failed until it is removed. User space has to drop these tags and
 * volumes (message "drop") before they are used with it again. The dirty data of a tag that
 * has lost it is still there when the device comes back.
 */
#include "internal.h"

/* The range of the dirty blocks of a log. */
static void vc_log_dirty_range(struct vcache_log *log, u64 *first, u64 *last)
{
	struct vcache_pool *p = log->vol->pool;
	struct vcache_chunk *c;
	u32 cell, k;

	*first = U64_MAX;
	*last = 0;
	/* Chunks leave the list only under the lock of the pool. */
	list_for_each_entry(c, &log->chunks, node) {
		if (!atomic_read(&c->dirty))
			continue;
		cell = vcache_chunk_nr(p, c) * p->g.chunk_blocks;
		for (k = 0; k < vcache_chunk_capacity(&p->g); k++, cell++) {
			u64 block = vcache_cell_block(&p->ix, cell);

			if (!vcache_cell_mask(&p->ix, cell) ||
			    test_bit(cell, p->cell_clean))
				continue;
			*first = min(*first, block);
			*last = max(*last, block);
		}
		cond_resched();
	}
}

static void vc_log_event(struct vcache_log *log, enum vcache_event_kind kind)
{
	struct vcache_tag *tag;

	rcu_read_lock();
	tag = rcu_dereference(log->user);
	if (tag)
		vcache_tag_event(tag, kind);
	rcu_read_unlock();
}

/* The cache had dirty data of a tag. */
static void vc_log_lost(struct vcache_log *log, u64 dirty)
{
	struct vcache_volume *v = log->vol;
	u64 first, last;

	vc_log_dirty_range(log, &first, &last);
	DMERR("%s: volume %u tag %u: lost %llu dirty sectors from %llu to %llu; its writes fail",
	      dm_device_name(v->pool->md), v->id, log->tag, dirty,
	      first * VC_BLOCK_SECTORS, (last + 1) * VC_BLOCK_SECTORS - 1);
	WRITE_ONCE(log->state, VC_LOG_LOST);
	vc_log_event(log, VCACHE_EVENT_KIND_CACHE_LOST);
}

/*
 * Is a write-through of a log at the origin? Until it arrives the cache may have the only
 * durable version of its blocks.
 */
static bool vc_log_writes_through(struct vcache_log *log)
{
	struct vcache_chunk *c;
	bool found = false;

	spin_lock_irq(&log->lock);
	list_for_each_entry(c, &log->chunks, node)
		found |= atomic_read(&c->pending) > (c->state == VC_CHUNK_OPEN);
	spin_unlock_irq(&log->lock);
	return found;
}

/* The cache had no dirty data of a tag, but of others of the same volume. */
static void vc_log_bypass(struct vcache_log *log)
{
	struct vcache_volume *v = log->vol;
	struct vcache_pool *p = v->pool;

	WRITE_ONCE(log->state, VC_LOG_BYPASSED);
	/* In volume scope hTag has no data. */
	if (!log->tag && v->dev->volume)
		return;
	WRITE_ONCE(v->bypass_in_part, true);
	DMERR("%s: volume %u tag %u continues without its cache%s",
	      dm_device_name(p->md), v->id, log->tag, log->forgotten ? "" :
	      "; drop the tag from the volume before the cache device is used again");
	vc_log_event(log, VCACHE_EVENT_KIND_CACHE_LOST);
}

/* Make what logs without dirty data have in the cache invalid on the device, if possible. */
static void vc_volume_forget_clean(struct vcache_volume *v)
{
	struct vcache_log *log;

	list_for_each_entry(log, &v->logs, node)
		log->forgotten = !vcache_log_dirty(log) && !vc_log_writes_through(log);
	if (v->pool->metadata_writable && !vcache_logs_forget(v))
		return;
	list_for_each_entry(log, &v->logs, node)
		log->forgotten = false;
}

/* Some tags of a volume have dirty data. Each of the others continues with the origin. */
static void vc_volume_cache_lost_in_part(struct vcache_volume *v)
{
	struct vcache_log *log;
	u64 dirty;

	vcache_dev_flush_origin(v->dev, v->origin);
	vc_volume_forget_clean(v);
	list_for_each_entry(log, &v->logs, node) {
		dirty = vcache_log_dirty(log);
		if (dirty)
			vc_log_lost(log, dirty);
		else
			vc_log_bypass(log);
	}
	vcache_dev_write_out(v->dev);
}

static bool vc_volume_writes_through(struct vcache_volume *v)
{
	struct vcache_log *log;

	list_for_each_entry(log, &v->logs, node) {
		if (vc_log_writes_through(log))
			return true;
	}
	return false;
}

static void vc_volume_cache_lost(struct vcache_volume *v)
{
	struct vcache_pool *p = v->pool;
	bool dropped;

	if (vcache_volume_dirty(v)) {
		vc_volume_cache_lost_in_part(v);
		return;
	}
	vcache_tag_event(v->dev->host, VCACHE_EVENT_KIND_CACHE_LOST);
	dropped = p->metadata_writable && !vc_volume_writes_through(v) &&
		  !vcache_volume_forget(v);
	DMERR("%s: volume %u continues without its cache%s",
	      dm_device_name(p->md), v->id, dropped ? "" :
	      "; drop the volume before the cache device is used again");
	WRITE_ONCE(v->bypass, true);
	vcache_dev_bypass(v->dev, v->origin);
}

/* Wait for workers that saw the pool before it failed, and are writing a record. */
static void vc_volume_wait_appends(struct vcache_volume *v)
{
	struct vcache_log *log;

	list_for_each_entry(log, &v->logs, node) {
		mutex_lock(&log->append);
		mutex_unlock(&log->append);
	}
}

/**
 * vcache_fail_work - deal with a failed cache device
 * @work: vcache_pool.fail_work
 */
void vcache_fail_work(struct work_struct *work)
{
	struct vcache_pool *p = container_of(work, struct vcache_pool, fail_work);
	struct vcache_volume *v;

	mutex_lock(&p->lock);
	if (p->state != VC_POOL_FAILED) {
		DMERR("%s: the cache device has failed",
		      dm_device_name(p->md));
		p->metadata_writable = p->state == VC_POOL_OK;
		WRITE_ONCE(p->state, VC_POOL_FAILED);
		/*
		 * Records that complete from now on get an error. So volumes that are
		 * clean now stay clean. Pairs with vc_record_end().
		 */
		synchronize_rcu();
		list_for_each_entry(v, &p->volumes, node)
			vc_volume_wait_appends(v);
		list_for_each_entry(v, &p->volumes, node) {
			/* One that is being replayed is not attached when that ends. */
			if (v->dev && v->replayed && v->origin)
				vc_volume_cache_lost(v);
		}
		p->metadata_writable = false;
	}
	mutex_unlock(&p->lock);
}
