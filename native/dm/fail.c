// SPDX-License-Identifier: GPL-2.0-only
/*
 * dm-vcache: failure of the cache device.
 *
 * The device has failed when several records in a row fail, or reads of several different
 * chunks without a successful one between them. A bad block that is read again and again
 * does not count again.
 *
 * Volumes without dirty data go on with their origin, as if they had no cache. The others
 * have lost data. Their writes fail, so that nothing is built on that, and so do reads of
 * data that only the cache has.
 *
 * If the device comes back, its data of a volume that went on is outdated. So the volume
 * is dropped from it before the first write bypasses it, because only some writes to the
 * device may fail. If that cannot be written either, the pool stays failed until it is
 * removed. User space has to drop these volumes (message "drop") before they are used with
 * it again.
 */
#include "pool.h"

/**
 * vc_pool_record_done - count a completed record
 * @p: the pool
 * @failed: the cache device has failed to write it
 */
void vc_pool_record_done(struct vc_pool *p, bool failed)
{
	if (!failed) {
		if (atomic_read(&p->errors))
			atomic_set(&p->errors, 0);
	} else if (atomic_inc_return(&p->errors) == VC_ERRORS_MAX) {
		queue_work(p->wq, &p->fail_work);
	}
}

/**
 * vc_pool_read_failed - count a read that the cache device has failed
 * @p: the pool
 * @cell: the first cell that was read
 */
void vc_pool_read_failed(struct vc_pool *p, u32 cell)
{
	u32 chunk = cell / p->g.chunk_blocks, n, i;
	unsigned long flags;

	spin_lock_irqsave(&p->error_lock, flags);
	n = READ_ONCE(p->read_errors);
	for (i = 0; i < n && p->unreadable[i] != chunk; i++)
		;
	if (i == n && n < VC_ERRORS_MAX) {
		p->unreadable[n] = chunk;
		WRITE_ONCE(p->read_errors, n + 1);
		if (n + 1 == VC_ERRORS_MAX)
			queue_work(p->wq, &p->fail_work);
	}
	spin_unlock_irqrestore(&p->error_lock, flags);
}

static void vc_volume_cache_lost(struct vc_volume *v)
{
	struct vc_pool *p = v->pool;
	u64 dirty = vc_volume_dirty(v);

	vc_tag_event(v->dev->host, VCACHE_EVENT_KIND_CACHE_LOST);
	if (dirty) {
		DMERR("%s: volume %u: %llu dirty sectors are lost with the cache; its writes fail",
		      dm_device_name(p->md), v->id, dirty);
		return;
	}
	if (p->metadata_writable && vc_volume_forget(v))
		p->metadata_writable = false;
	DMERR("%s: volume %u continues without its cache%s",
	      dm_device_name(p->md), v->id, p->metadata_writable ? "" :
	      "; drop the volume before the cache device is used again");
	WRITE_ONCE(v->bypass, true);
	vc_dev_bypass(v->dev);
}

/**
 * vc_fail_work - deal with a failed cache device
 * @work: vc_pool.fail_work
 */
void vc_fail_work(struct work_struct *work)
{
	struct vc_pool *p = container_of(work, struct vc_pool, fail_work);
	struct vc_volume *v;

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
		list_for_each_entry(v, &p->volumes, node) {
			if (v->dev)
				vc_volume_cache_lost(v);
		}
		p->metadata_writable = false;
	}
	mutex_unlock(&p->lock);
}
