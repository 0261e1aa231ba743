// SPDX-License-Identifier: GPL-2.0-only
/*
 * dm-vcache: a cache device that fails.
 *
 * When it refuses several records in a row it is taken for dead. Volumes with
 * nothing in the cache that their origins have not go on from the origin, as
 * if they had no cache. The others have lost data: their writes fail, so that
 * nobody builds on it, and so do reads of what only the cache has.
 *
 * If the device comes back, what it has of a volume that went on is old. It is
 * told so before the first write goes past it: it may refuse some writes only.
 * One that is gone cannot be told. So the pool stays failed until it is
 * removed, and user space sees to it that what these volumes have in it is
 * dropped (message "drop") before they use it again.
 */
#include "pool.h"

/* So many records that fail one after the other are a dead device. */
#define VC_ERRORS_MAX 4

/**
 * vc_pool_record_done - count a record
 * @p: the pool
 * @failed: the cache device has refused it
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

static void vc_volume_cache_lost(struct vc_volume *v)
{
	struct vc_pool *p = v->pool;
	u64 dirty = vc_volume_dirty(v);

	vc_tag_event(v->dev->host, VCACHE_EVENT_KIND_CACHE_LOST);
	if (dirty) {
		DMERR("%s: volume %u: %llu sectors are in the failed cache only; its writes fail",
		      dm_device_name(p->md), v->id, dirty);
		return;
	}
	if (p->metadata_writable && vc_volume_forget(v))
		p->metadata_writable = false;
	DMERR("%s: volume %u goes on without its cache%s",
	      dm_device_name(p->md), v->id, p->metadata_writable ? "" :
	      "; if that comes back, drop the volume before it is used");
	WRITE_ONCE(v->bypass, true);
	vc_dev_bypass(v->dev);
}

/**
 * vc_fail_work - the cache device has failed
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
		 * Records that arrive from now on are refused: what is clean
		 * now stays so. Pairs with vc_record_end().
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
