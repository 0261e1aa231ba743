// SPDX-License-Identifier: GPL-2.0-only
/*
 * dm-vcache: the state of a mapped device, from its first table to its end.
 *
 * Tags and buffered data belong to the mapped device, not to a table. While a new table
 * replaces an old one, both refer to the same state.
 *
 * DOC: Origins that hang
 *
 * A suspend waits until all data is written out. A noflush suspend is also the first step
 * of replacing a table whose origin hangs, so it waits only while there is progress. Then
 * the device is &vcache_dev.hung: write-outs, a round of destage or promotions are still at the
 * origin, and go on when it answers.
 *
 * - They use &vcache_dev.origin and &vcache_volume.origin, not the table. &vcache_dev.held
 *   keeps these open when the table is gone.
 * - A block stays in WRITEOUT until its write-out completes, and a round is the same work
 *   item before and after the suspend. So the next table may write to the same origin at
 *   once: no second version of a sector is sent before the first one has arrived.
 * - Nothing orders them against writes through another device, which may be a path to the
 *   same disk. So a table with another origin, mode or volume is refused meanwhile.
 * - What frees the state of the device, or moves the map of the pool, waits for them.
 */
#include <linux/blkdev.h>
#include <linux/slab.h>

#include "../base/compat.h"
#include "internal.h"

/* A suspend without a flush takes an origin for hung after so long without progress. */
#define VC_HUNG_AFTER (5 * HZ)

/* How long a worker that is not at the origin may take to see that it has to stop. */
#define VC_STOP_TIME (HZ / 2)

/* Reserved write-out requests, for when memory is short. */
#define VC_BIOS_MIN 64

static void vc_dev_free(struct vcache_dev *dev)
{
	vcache_tags_free(dev);
	vcache_extents_free(dev);
	vcache_blocks_exit(dev);
	vcache_nvme_drop(dev);
	if (dev->large_wq)
		destroy_workqueue(dev->large_wq);
	if (dev->discard_wq)
		destroy_workqueue(dev->discard_wq);
	if (dev->flush_wq)
		destroy_workqueue(dev->flush_wq);
	if (dev->wq)
		destroy_workqueue(dev->wq);
	bioset_exit(&dev->retries);
	bioset_exit(&dev->bs);
	mutex_destroy(&dev->lock);
	cleanup_srcu_struct(&dev->writers);
	kfree(dev);
}

/**
 * vcache_dev_make - make the state of a mapped device
 * @md: the mapped device
 *
 * Return: the state, or NULL without memory.
 */
struct vcache_dev *vcache_dev_make(struct mapped_device *md)
{
	struct vcache_dev *dev = kzalloc(sizeof(*dev), GFP_KERNEL);
	int no_blocks;

	if (!dev || init_srcu_struct(&dev->writers)) {
		kfree(dev);
		return NULL;
	}
	dev->md = md;
	dev->suspended = true;
	mutex_init(&dev->lock);
	INIT_LIST_HEAD(&dev->tags);
	no_blocks = vcache_blocks_init(dev);
	init_llist_head(&dev->reap);
	INIT_WORK(&dev->reap_work, vcache_reap_work);
	init_llist_head(&dev->granted);
	INIT_WORK(&dev->granted_work, vcache_granted_work);
	spin_lock_init(&dev->park_lock);
	INIT_LIST_HEAD(&dev->parked);
	INIT_WORK(&dev->park_work, vcache_park_work);
	spin_lock_init(&dev->flush_lock);
	bio_list_init(&dev->flushq);
	INIT_WORK(&dev->flush_work, vcache_flush_work);
	INIT_DELAYED_WORK(&dev->age_work, vcache_age_work);
	INIT_DELAYED_WORK(&dev->event_work, vcache_event_work);
	INIT_DELAYED_WORK(&dev->collect_work, vcache_collect_work);
	init_waitqueue_head(&dev->idle);

	dev->wq = alloc_workqueue("vcache/%s", WQ_MEM_RECLAIM, 0,
				  dm_device_name(md));
	dev->flush_wq = alloc_workqueue("vcache-flush/%s", WQ_MEM_RECLAIM, 0,
					dm_device_name(md));
	dev->discard_wq = alloc_workqueue("vcache-discard/%s",
					  WQ_MEM_RECLAIM | WQ_UNBOUND, 0,
					  dm_device_name(md));
	dev->large_wq = alloc_workqueue("vcache-large/%s", WQ_MEM_RECLAIM | WQ_HIGHPRI, 0,
					dm_device_name(md));
	if (no_blocks || !dev->wq || !dev->flush_wq || !dev->discard_wq || !dev->large_wq ||
	    vcache_fallback_init(dev) ||
	    bioset_init(&dev->bs, VC_BIOS_MIN,
			offsetof(struct vcache_writeout, bio), BIOSET_NEED_BVECS))
		goto bad;
	vcache_dev_lock(dev);
	dev->host = vcache_tag_make(dev, 0);
	vcache_dev_unlock(dev);
	if (!dev->host)
		goto bad;
	strscpy(dev->host->name, "host", sizeof(dev->host->name));
	return dev;
bad:
	vc_dev_free(dev);
	return NULL;
}

/*
 * Are write-outs under way, although the device is suspended? A worker may wait for the
 * origin to take one more. Workers that have just been woken count, too.
 */
static bool vc_dev_writes(struct vcache_dev *dev)
{
	bool busy = atomic_read(&dev->inflight);
	struct vcache_tag *tag;

	rcu_read_lock();
	list_for_each_entry_rcu(tag, &dev->tags, node)
		busy |= work_busy(&tag->work) || work_busy(&tag->commit_work);
	rcu_read_unlock();
	return busy;
}

/* Wait for write-outs under way. Return: false if none completed for so many jiffies. */
static bool vc_dev_settle(struct vcache_dev *dev, long patience)
{
	unsigned long end = jiffies + patience;
	int left = atomic_read(&dev->inflight);

	while (vc_dev_writes(dev)) {
		int now = atomic_read(&dev->inflight);

		if (now != left)
			end = jiffies + patience;
		else if (time_after(jiffies, end))
			return false;
		left = now;
		schedule_timeout_uninterruptible(1);
	}
	return true;
}

/*
 * Stop all work. Buffered data stays in the buffer. Return: false if write-outs are still
 * under way, and none completed for the time of @patience.
 */
static bool vc_dev_quiesce(struct vcache_dev *dev, long patience)
{
	WRITE_ONCE(dev->suspended, true);
	cancel_delayed_work_sync(&dev->age_work);
	if (patience != MAX_SCHEDULE_TIMEOUT && !vc_dev_settle(dev, patience))
		return false;
	/* Not under @lock: discards in this workqueue take it. */
	flush_workqueue(dev->wq);
	wait_event(dev->idle, !atomic_read(&dev->inflight));
	flush_work(&dev->reap_work);
	flush_work(&dev->park_work);
	return true;
}

static void vc_dev_release_origin(struct vcache_dev *dev)
{
	if (dev->held)
		vcache_bdev_release(dev->held);
	dev->held = NULL;
	WRITE_ONCE(dev->hung, false);
}

/* The device is removed: free data that could not be written out, and report that. */
static void vc_dev_drop(struct vcache_dev *dev)
{
	unsigned long sectors = 0;
	struct vcache_block *b;

	/* Nobody else uses the blocks any more. */
	rcu_read_lock();
	while ((b = vcache_blocks_next(dev, 0, ULONG_MAX))) {
		sectors += bitmap_weight(b->valid, VC_PAGE_SECTORS);
		vcache_blocks_swap(dev, b->index, b, NULL);
		vcache_block_put(b);
	}
	rcu_read_unlock();
	if (sectors)
		DMERR("%s: removed while its origin failed: %lu sectors lost",
		      dm_device_name(dev->md), sectors);
}

/* A table is removed. The next active table brings its own origin. */
static void vc_dev_forget(struct vcache_dev *dev, struct vcache_target *vt)
{
	vcache_dev_lock(dev);
	if (dev->target == vt)
		WRITE_ONCE(dev->target, NULL);
	vcache_dev_unlock(dev);
}

/**
 * vcache_dev_put - drop a table's reference to the state of its device
 * @dev: the device
 * @vt: the table
 *
 * With the last table the state is freed. The device has been suspended, so it is drained,
 * except for data that the origin refused. That is not tried again: the origin may be in
 * use elsewhere by now, and have newer data. This waits for write-outs at an origin that
 * hangs: they use the data.
 */
void vcache_dev_put(struct vcache_dev *dev, struct vcache_target *vt)
{
	/* Not under the lock of the registry: the next table may be replayed under ours. */
	vc_dev_forget(dev, vt);
	if (!vcache_registry_put(dev))
		return;
	vc_dev_quiesce(dev, MAX_SCHEDULE_TIMEOUT);
	cancel_delayed_work_sync(&dev->event_work);
	cancel_delayed_work_sync(&dev->collect_work);
	/* The completion of the last write-out may still be about to wake somebody. */
	synchronize_rcu();
	vc_dev_drop(dev);
	vcache_tags_free(dev);
	if (dev->vol)
		vcache_volume_detach(dev->vol, false);
	vc_dev_release_origin(dev);
	vc_dev_free(dev);
}

/* Make the tag of a device in volume scope, if it has none. */
static int vc_dev_fix_tag(struct vcache_dev *dev, struct vcache_target *vt)
{
	struct vcache_tag *tag, *next;

	lockdep_assert_held(&dev->lock);
	if (vt->scope != VCACHE_SCOPE_VOLUME)
		return 0;
	vt->tag = vcache_tag_find(dev, vt->tag_id) ?: vcache_tag_make(dev, vt->tag_id);
	if (!vt->tag)
		return -ENOMEM;
	list_for_each_entry_safe(tag, next, &dev->tags, node) {
		if (tag != vt->tag && tag != dev->host && !tag->orphan)
			vcache_tag_remove(tag);
	}
	return 0;
}

/* Give all tags their logs. Called under vcache_dev.lock. */
static int vc_dev_join(struct vcache_dev *dev)
{
	struct vcache_tag *tag;
	int r = 0;

	lockdep_assert_held(&dev->lock);
	list_for_each_entry(tag, &dev->tags, node) {
		if (!r)
			r = vcache_volume_join(dev->vol, tag);
	}
	return r;
}

/* Detach from the volume of the previous table. */
static int vc_dev_leave_volume(struct vcache_dev *dev)
{
	struct vcache_tag *tag;
	int r;

	r = vcache_volume_detach(dev->vol, true);
	if (r)
		return r;
	list_for_each_entry(tag, &dev->tags, node)
		vcache_volume_leave(tag);
	dev->vol = NULL;
	return 0;
}

/*
 * Attach to the volume that the table names, if any. The device is suspended, so nothing
 * is buffered. Called under vcache_dev.lock.
 */
static int vc_dev_fix_volume(struct vcache_dev *dev, struct vcache_target *vt)
{
	struct vcache_pool *p = vt->pool_dev ? vcache_pool_find(vt->pool_dev->bdev) :
			    NULL;
	u32 mode = vt->mode == VCACHE_MODE_WRITEBACK ? VC_VOLUME_WRITEBACK :
		   VC_VOLUME_WRITETHROUGH;
	struct vcache_volume *v = dev->vol;
	int r;

	lockdep_assert_held(&dev->lock);
	if (v && (v->pool != p || v->id != vt->volume)) {
		r = vc_dev_leave_volume(dev);
		if (r)
			return r;
	} else if (v) {
		return vcache_volume_change(v, mode, vt->origin->bdev,
					    vt->ti->len);
	}
	if (!p)
		return 0;
	r = vcache_volume_attach(p, vt->volume, mode, dev, vt->origin->bdev,
				 vt->ti->len, &v);
	if (r)
		return r;
	dev->vol = v;
	return vc_dev_join(dev);
}

/**
 * vcache_dev_keeps_volume - would a new table leave dirty data in the cache behind?
 * @dev: the device
 * @vt: the new table
 *
 * This is checked when the table is loaded. A check at resume would leave the device
 * suspended. If a drain has begun, the suspend will finish it.
 */
bool vcache_dev_keeps_volume(struct vcache_dev *dev, struct vcache_target *vt)
{
	bool keeps = false;

	vcache_dev_lock(dev);
	if (dev->vol && dev->writeback && !READ_ONCE(dev->vol->drain) &&
	    (vt->mode != VCACHE_MODE_WRITEBACK ||
	     vt->volume != dev->vol->id ||
	     vcache_pool_find(vt->pool_dev->bdev) != dev->vol->pool))
		keeps = vcache_volume_dirty(dev->vol) ||
			atomic_long_read(&dev->nblocks);
	vcache_dev_unlock(dev);
	return keeps;
}

/* Has the buffer sectors behind the end of a device of this size? */
static bool vc_dev_has_beyond(struct vcache_dev *dev, sector_t len)
{
	unsigned long index = len >> VC_PAGE_SECTORS_SHIFT;
	unsigned int rest = len & (VC_PAGE_SECTORS - 1);
	struct vcache_block *b;
	bool beyond;

	rcu_read_lock();
	b = rest ? vcache_blocks_load(dev, index) : NULL;
	beyond = b && find_next_bit(b->valid, VC_PAGE_SECTORS, rest) <
		      VC_PAGE_SECTORS;
	rcu_read_unlock();
	return beyond || vcache_buffer_covers(dev, index + !!rest, ULONG_MAX);
}

/* Has a table the same origin, mode and volume as the one before it? */
static bool vc_dev_goes_on(struct vcache_dev *dev, struct vcache_target *vt)
{
	struct vcache_volume *v = dev->vol;

	if (vt->origin->bdev->bd_dev != dev->origin->bd_dev ||
	    vt->mode != dev->mode || !v != !vt->pool_dev)
		return false;
	return !v || (vt->volume == v->id &&
		      vcache_pool_find(vt->pool_dev->bdev) == v->pool);
}

/* May a table follow one whose origin hung? */
static bool vc_dev_may_follow(struct vcache_dev *dev, struct vcache_target *vt)
{
	if (!dev->hung || vc_dev_goes_on(dev, vt))
		return true;
	return vc_dev_settle(dev, VC_STOP_TIME) &&
	       (!dev->vol || !vcache_volume_is_busy(dev->vol));
}

/* Decide where write-outs go. The cache may have failed, and be bypassed, before that. */
static void vc_dev_choose_store(struct vcache_dev *dev, bool writeback,
				struct block_device *origin)
{
	struct vcache_volume *v = dev->vol;

	dev->writeback = writeback && !READ_ONCE(v->bypass);
	if (writeback && READ_ONCE(v->pool->state) == VC_POOL_FAILED)
		vcache_dev_flush_origin(dev, origin);
	else
		dev->store = writeback ? v->pool->bdev : origin;
}

/**
 * vcache_dev_activate - make a table the active one
 * @dev: its device, suspended
 * @vt: the table
 *
 * Data that was written to the origin before we used it may be in its volatile cache. None
 * of our flushes will reach that, so the origin is flushed here.
 *
 * Return: 0 or a negative errno. Then dm leaves the device suspended, and buffered data
 * waits for another table.
 */
int vcache_dev_activate(struct vcache_dev *dev, struct vcache_target *vt)
{
	struct block_device *bdev = vt->origin->bdev;
	bool moved = false;
	int r;

	if (!vc_dev_may_follow(dev, vt)) {
		DMERR("%s: the previous origin hangs: origin, mode and volume must stay",
		      dm_device_name(dev->md));
		return -EBUSY;
	}
	if (vc_dev_has_beyond(dev, vt->ti->len)) {
		DMERR("%s: buffered data is behind the end of the new table",
		      dm_device_name(dev->md));
		return -EBUSY;
	}
	if (dev->flushed_origin != bdev->bd_dev) {
		r = blkdev_issue_flush(bdev);
		if (r && r != -EOPNOTSUPP) {
			DMERR("%s: cannot flush the origin: error %d",
			      dm_device_name(dev->md), r);
			return r;
		}
		moved = true;
		dev->flushed_origin = bdev->bd_dev;
	}
	if (vcache_isolation_of(bdev) == VCACHE_ISOLATION_DEGRADED)
		DMWARN("%s: no FUA on the origin: flushes are device-wide (isolation=degraded)",
		       dm_device_name(dev->md));
	vcache_dev_lock(dev);
	if (moved)
		vcache_nvme_drop(dev);
	r = vc_dev_fix_volume(dev, vt) ?: vc_dev_fix_tag(dev, vt);
	if (!r) {
		WRITE_ONCE(dev->target, vt);
		dev->mode = vt->mode;
		WRITE_ONCE(dev->origin, bdev);
		dev->volume = vt->scope == VCACHE_SCOPE_VOLUME;
		if (dev->vol)
			vcache_destage_limit(dev->vol, &vt->limits);
		vc_dev_choose_store(dev, vt->mode == VCACHE_MODE_WRITEBACK, bdev);
	}
	vcache_dev_unlock(dev);
	if (!r)
		vc_dev_release_origin(dev);
	vcache_limits_update();
	return r;
}

/*
 * Is it impossible to write out the buffered data, because the cache is full and the
 * origin refuses its dirty data?
 */
static bool vc_dev_stuck(struct vcache_dev *dev)
{
	return dev->vol && vcache_volume_stuck(dev->vol);
}

/**
 * vcache_dev_presuspend - begin a suspend
 * @dev: the device
 * @noflush: requests that wait are given back to dm instead of waiting for the origin
 */
void vcache_dev_presuspend(struct vcache_dev *dev, bool noflush)
{
	struct vcache_tag *tag;

	if (!noflush)
		return;
	WRITE_ONCE(dev->noflush, true);
	vcache_dev_lock(dev);
	list_for_each_entry(tag, &dev->tags, node)
		vcache_tag_requeue(tag);
	vcache_dev_unlock(dev);
	vcache_parked_requeue(dev);
	vcache_flush_requeue(dev);
}

/* This grows whenever buffered data is written out, and whenever destage makes space. */
static unsigned long vc_dev_progress(struct vcache_dev *dev)
{
	unsigned long destaged = dev->vol ?
				 atomic64_read(&dev->vol->destaged) : 0;

	return destaged - atomic_long_read(&dev->pending);
}

/* Write out all data. Return: false if there was no progress for the time of @patience. */
static bool vc_dev_drain(struct vcache_dev *dev, long patience)
{
	unsigned long progress;

	vcache_dev_write_out(dev);
	do {
		progress = vc_dev_progress(dev);
		if (wait_event_timeout(dev->idle, vcache_dev_drained(dev) ||
				       vc_dev_stuck(dev), patience))
			return true;
	} while (vc_dev_progress(dev) != progress);
	return false;
}

/* Stop all I/O to the origin. Return: false if it does not answer. */
static bool vc_dev_stop(struct vcache_dev *dev, long patience)
{
	/* For a resize the table stays, so the data may stay in memory. */
	bool quiet = READ_ONCE(dev->frozen) || vc_dev_drain(dev, patience);

	quiet &= vc_dev_quiesce(dev, quiet ? patience : VC_STOP_TIME);
	if (!dev->vol)
		return quiet;
	if (quiet)
		return vcache_volume_quiesce(dev->vol, patience);
	vcache_volume_stop(dev->vol, 1);
	return false;
}

/* The origin hangs. Keep it open, or wait for it after all. */
static void vc_dev_hang(struct vcache_dev *dev)
{
	unsigned int noio = memalloc_noio_save();

	dev->held = vcache_bdev_hold(dev->origin);
	memalloc_noio_restore(noio);
	if (IS_ERR(dev->held)) {
		dev->held = NULL;
		DMERR("%s: the origin does not answer, and cannot be kept open",
		      dm_device_name(dev->md));
		vc_dev_stop(dev, MAX_SCHEDULE_TIMEOUT);
		return;
	}
	WRITE_ONCE(dev->hung, true);
	DMWARN("%s: suspended, but the origin hangs: the next table must have the same one",
	       dm_device_name(dev->md));
}

/**
 * vcache_dev_postsuspend - end a suspend: no request of dm is in flight any more
 * @dev: the device
 *
 * All data is written out, also in a noflush suspend. There, requests that waited have
 * been given back; but data that was accepted must not depend on the target of the next
 * table. Data that the origin refuses stays in memory. So does all data in a noflush
 * suspend if the origin hangs.
 */
void vcache_dev_postsuspend(struct vcache_dev *dev)
{
	if (!vc_dev_stop(dev, dev->noflush ? VC_HUNG_AFTER :
			 MAX_SCHEDULE_TIMEOUT))
		vc_dev_hang(dev);
	else if (atomic_long_read(&dev->nblocks) && !READ_ONCE(dev->frozen))
		DMWARN("%s: suspended with buffered data that its origin refuses",
		       dm_device_name(dev->md));
}

/**
 * vcache_dev_resume - allow I/O again
 * @dev: the device
 */
void vcache_dev_resume(struct vcache_dev *dev)
{
	WRITE_ONCE(dev->noflush, false);
	WRITE_ONCE(dev->suspended, false);
	if (dev->vol)
		vcache_volume_resume(dev->vol);
	/* The origin may accept now what it refused before. */
	vcache_dev_write_out(dev);
	queue_work(dev->wq, &dev->park_work);
	queue_delayed_work(dev->wq, &dev->age_work, 1);
	queue_delayed_work(system_long_wq, &dev->collect_work, 1);
}
