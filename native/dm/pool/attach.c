// SPDX-License-Identifier: GPL-2.0-only
/*
 * dm-vcache: attaching volumes of a pool to devices, and giving logs to their tags.
 *
 * A volume keeps its chunks while no target uses it. It is replayed when it is used for
 * the first time since the pool was loaded. Each volume is replayed by itself: neither its
 * size nor its state affects other volumes.
 */
#include "internal.h"

/**
 * vc_volume_sectors - get the size of a volume
 * @p: the pool
 * @id: number of the volume
 *
 * Return: sectors; 0 if there is no such volume.
 */
u64 vc_volume_sectors(struct vc_pool *p, u32 id)
{
	struct vc_volume *v;
	u64 sectors;

	mutex_lock(&p->lock);
	v = vc_volume_find(p, id);
	sectors = v ? v->sectors : 0;
	mutex_unlock(&p->lock);
	return sectors;
}

/* Make a new volume in the first free slot. The pool is locked. */
static struct vc_volume *vc_volume_make(struct vc_pool *p, u32 id)
{
	u32 slots = p->g.slot_blocks * VC_SLOTS_PER_BLOCK;
	unsigned long *used = bitmap_zalloc(slots, GFP_KERNEL);
	struct vc_volume *v;

	if (!used)
		return ERR_PTR(-ENOMEM);
	list_for_each_entry(v, &p->volumes, node)
		__set_bit(v->slot, used);
	slots = find_first_zero_bit(used, slots);
	bitmap_free(used);
	if (slots == p->g.slot_blocks * VC_SLOTS_PER_BLOCK)
		return ERR_PTR(-ENOSPC);
	v = vc_volume_alloc(p, id, slots);
	if (!v)
		return ERR_PTR(-ENOMEM);
	v->replayed = true;
	/* An earlier volume of this number may have left chunks: they are dead. */
	v->floor = atomic64_read(&p->seq) + 1;
	return v;
}

/* Claim a volume for a device. The pool is locked. Return: 0, or -EBUSY. */
static int vc_volume_claim(struct vc_volume *v, struct vc_dev *dev)
{
	if (v->dev) {
		DMERR("%s: volume %u is in use by %s",
		      dm_device_name(v->pool->md), v->id,
		      dm_device_name(v->dev->md));
		return -EBUSY;
	}
	v->dev = dev;
	v->pool->attached++;
	return 0;
}

/**
 * vc_volume_change - use a volume as a table says
 * @v: the volume, attached; its device is suspended
 * @mode: enum vc_volume_mode
 * @origin: its origin
 * @sectors: size of the origin
 *
 * The log knows of all writes in writeback mode only. So a change of the mode drops
 * everything that is cached.
 *
 * Return: 0; -EBUSY if the mode changes and there is dirty data; -EFBIG if the origin has
 * become smaller; another negative errno.
 */
int vc_volume_change(struct vc_volume *v, u32 mode,
		     struct block_device *origin, sector_t sectors)
{
	int r = 0;

	mutex_lock(&v->pool->lock);
	if (sectors < v->sectors) {
		DMERR("%s: volume %u has %llu sectors, but its origin has %llu now",
		      dm_device_name(v->pool->md), v->id, v->sectors,
		      (u64)sectors);
		r = -EFBIG;
	} else if (mode != v->mode) {
		r = vc_volume_clear(v);
	}
	if (!r && (mode != v->mode || sectors != v->sectors)) {
		v->mode = mode;
		v->sectors = sectors;
		r = vc_slot_save(v);
	}
	if (!r) {
		v->drain = false;
		v->origin = origin;
	}
	mutex_unlock(&v->pool->lock);
	return r;
}

/* Find or make a volume, and claim it for a device. The pool is locked. */
static struct vc_volume *vc_volume_take(struct vc_pool *p, u32 id,
					struct vc_dev *dev)
{
	struct vc_volume *v = vc_volume_find(p, id);
	int r;

	if (!p->loaded || p->state != VC_POOL_OK) {
		DMERR("%s: the pool is not usable", dm_device_name(p->md));
		return ERR_PTR(-EROFS);
	}
	/* The clean flag is set while the pool is suspended: clear it. */
	if ((p->sb.flags & VC_SUPER_CLEAN) &&
	    vc_pool_set_flags(p, p->sb.flags & ~VC_SUPER_CLEAN))
		return ERR_PTR(-EROFS);
	if (!v)
		v = vc_volume_make(p, id);
	r = PTR_ERR_OR_ZERO(v) ?: vc_volume_claim(v, dev);
	return r ? ERR_PTR(r) : v;
}

/**
 * vc_volume_attach - attach a volume to a device
 * @p: the pool
 * @id: number of the volume; it is made if there is none
 * @mode: enum vc_volume_mode
 * @dev: the device
 * @origin: the origin of the device
 * @sectors: size of the origin
 * @out: the volume; it does not destage before vc_volume_resume()
 *
 * Return: 0 or a negative errno; the kernel log has the reason.
 */
int vc_volume_attach(struct vc_pool *p, u32 id, u32 mode, struct vc_dev *dev,
		     struct block_device *origin, sector_t sectors,
		     struct vc_volume **out)
{
	struct vc_volume *v;
	int r = 0;

	mutex_lock(&p->lock);
	v = vc_volume_take(p, id, dev);
	if (!IS_ERR(v) && !v->replayed)
		r = vc_volume_start(v);
	mutex_unlock(&p->lock);
	if (IS_ERR(v))
		return PTR_ERR(v);
	if (!r)
		r = vc_volume_change(v, mode, origin, sectors);
	if (r)
		vc_volume_detach(v, false);
	else
		*out = v;
	return r;
}

/**
 * vc_volume_join - give a tag its log
 * @v: the volume
 * @tag: the tag
 *
 * Return: 0 or -ENOMEM.
 */
int vc_volume_join(struct vc_volume *v, struct vc_tag *tag)
{
	struct vc_log *log;

	mutex_lock(&v->pool->lock);
	log = vc_log_get(v, tag->id);
	if (log) {
		rcu_assign_pointer(log->user, tag);
		if (v->pool->state == VC_POOL_FAILED && log->state == VC_LOG_OK &&
		    !vc_log_dirty(log)) {
			WRITE_ONCE(log->state, VC_LOG_BYPASSED);
			WRITE_ONCE(v->bypass_in_part, true);
		}
		tag->log = log;
		vc_tag_keep_lanes(tag);
	}
	mutex_unlock(&v->pool->lock);
	if (!log)
		return -ENOMEM;
	/* In volume scope hTag has no data. */
	if (!tag->curve && (tag->id || !tag->dev->volume))
		/* Requests run already: they must see it initialised. */
		smp_store_release(&tag->curve, vc_curve_make());
	vc_space_kick(v->pool);
	return 0;
}

/* Find a tag other than @tag that writes to a log, or NULL. Called under RCU. */
static struct vc_tag *vc_log_other(const struct vc_log *log,
				   const struct vc_tag *tag)
{
	struct vc_tag *other;

	list_for_each_entry_rcu(other, &tag->dev->tags, node) {
		if (other != tag && READ_ONCE(other->log) == log)
			return other;
	}
	return NULL;
}

/*
 * Another tag of the same number may use the log: a newer one, or an older one that was
 * removed but still has data to write. Pass the log on to it. The pool is locked.
 */
static void vc_log_pass_on(struct vc_log *log, struct vc_tag *tag)
{
	struct vc_tag *other;

	if (rcu_access_pointer(log->user) != tag)
		return;
	rcu_read_lock();
	other = vc_log_other(log, tag);
	rcu_assign_pointer(log->user, other);
	rcu_read_unlock();
	if (!other) {
		vc_log_release_spare(log);
		vc_log_set_lanes(log, 0);
	}
}

/**
 * vc_volume_leave - take the log from a tag
 * @tag: the tag, idle
 */
void vc_volume_leave(struct vc_tag *tag)
{
	struct vc_log *log = tag->log;

	if (!log)
		return;
	mutex_lock(&log->append);
	vc_log_close(log);
	mutex_unlock(&log->append);
	vc_reads_close(log);
	mutex_lock(&log->vol->pool->lock);
	vc_log_pass_on(log, tag);
	/* From here on vc_log_pass_on() does not pass the log to this tag. */
	WRITE_ONCE(tag->log, NULL);
	mutex_unlock(&log->vol->pool->lock);
	/* The shares of other logs grow. */
	vc_space_kick(log->vol->pool);
	synchronize_rcu();
}

/**
 * vc_volume_detach - detach a volume from its device
 * @v: the volume
 * @forget: drop what is cached, because the origin will change without us
 *
 * Return: 0; -EBUSY if data has to be dropped that is dirty. Then the volume stays
 * attached.
 */
int vc_volume_detach(struct vc_volume *v, bool forget)
{
	struct vc_pool *p = v->pool;
	struct vc_log *log;
	int r = 0;

	vc_volume_stop(v, MAX_SCHEDULE_TIMEOUT);
	list_for_each_entry_lockless(log, &v->logs, node)
		vc_prefetch_drop(log);
	vc_volume_close(v);
	mutex_lock(&p->lock);
	vc_volume_note_clean(v);
	if (forget)
		r = vc_volume_clear(v);
	if (!r) {
		vc_bad_free(v);
		v->dev = NULL;
		v->origin = NULL;
		v->drain = false;
		p->attached--;
	}
	mutex_unlock(&p->lock);
	return r;
}
