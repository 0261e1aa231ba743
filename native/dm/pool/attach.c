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
 * vcache_volume_sectors - get the size of a volume
 * @p: the pool
 * @id: number of the volume
 *
 * Return: sectors; 0 if there is no such volume.
 */
u64 vcache_volume_sectors(struct vcache_pool *p, u32 id)
{
	struct vcache_volume *v;
	u64 sectors;

	mutex_lock(&p->lock);
	v = vcache_volume_find(p, id);
	sectors = v ? v->sectors : 0;
	mutex_unlock(&p->lock);
	return sectors;
}

/**
 * vcache_volume_make - make a new volume in the first free slot
 * @p: the pool, locked
 * @id: its number, which no other volume has
 *
 * The slot is not written.
 *
 * Return: the volume, or an ERR_PTR().
 */
struct vcache_volume *vcache_volume_make(struct vcache_pool *p, u32 id)
{
	u32 slots = p->g.slot_blocks * VC_SLOTS_PER_BLOCK;
	unsigned long *used = bitmap_zalloc(slots, GFP_KERNEL);
	struct vcache_volume *v;

	lockdep_assert_held(&p->lock);
	if (!used)
		return ERR_PTR(-ENOMEM);
	list_for_each_entry(v, &p->volumes, node)
		__set_bit(v->slot, used);
	slots = find_first_zero_bit(used, slots);
	bitmap_free(used);
	if (slots == p->g.slot_blocks * VC_SLOTS_PER_BLOCK)
		return ERR_PTR(-ENOSPC);
	v = vcache_volume_alloc(p, id, slots);
	if (!v)
		return ERR_PTR(-ENOMEM);
	v->replayed = true;
	/* An earlier volume of this number may have left chunks: they are dead. */
	v->floor = atomic64_read(&p->seq) + 1;
	return v;
}

/* Claim a volume for a device. The pool is locked. Return: 0, or -EBUSY. */
static int vc_volume_claim(struct vcache_volume *v, struct vcache_dev *dev)
{
	lockdep_assert_held(&v->pool->lock);
	if (v->mode == VC_VOLUME_VSSD) {
		DMERR("%s: volume %u is an elastic SSD",
		      dm_device_name(v->pool->md), v->id);
		return -EBUSY;
	}
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
 * vcache_volume_change - use a volume as a table says
 * @v: the volume, attached; its device is suspended
 * @mode: enum vcache_volume_mode
 * @origin: its origin
 * @sectors: size of the origin
 *
 * The log knows of all writes in writeback mode only. So a change of the mode drops
 * everything that is cached.
 *
 * Return: 0; -EBUSY if the mode changes and there is dirty data; -EFBIG if the origin has
 * become smaller; another negative errno.
 */
int vcache_volume_change(struct vcache_volume *v, u32 mode,
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
		r = vcache_volume_clear(v);
	}
	if (!r && (mode != v->mode || sectors != v->sectors)) {
		vcache_saved_free(v);
		v->mode = mode;
		v->sectors = sectors;
		r = vcache_slot_save(v);
	}
	if (!r) {
		v->drain = false;
		if (v->origin != origin)
			vcache_saved_free(v);
		v->origin = origin;
	}
	mutex_unlock(&v->pool->lock);
	return r;
}

/**
 * vcache_pool_begin_use - check that a pool can be used, and note that it is not clean any more
 * @p: the pool, locked
 *
 * Return: 0, or -EROFS.
 */
int vcache_pool_begin_use(struct vcache_pool *p)
{
	lockdep_assert_held(&p->lock);
	if (!p->loaded || p->state != VC_POOL_OK) {
		DMERR("%s: the pool is not usable", dm_device_name(p->md));
		return -EROFS;
	}
	/* The clean flag is set while the pool is suspended: clear it. */
	if ((p->sb.flags & VC_SUPER_CLEAN) &&
	    vcache_pool_set_flags(p, p->sb.flags & ~VC_SUPER_CLEAN))
		return -EROFS;
	return 0;
}

/* Find or make a volume, and claim it for a device. The pool is locked. */
static struct vcache_volume *vc_volume_take(struct vcache_pool *p, u32 id,
					    struct vcache_dev *dev)
{
	struct vcache_volume *v = vcache_volume_find(p, id);
	int r;

	lockdep_assert_held(&p->lock);
	r = vcache_pool_begin_use(p);
	if (r)
		return ERR_PTR(r);
	if (!v)
		v = vcache_volume_make(p, id);
	r = PTR_ERR_OR_ZERO(v) ?: vc_volume_claim(v, dev);
	return r ? ERR_PTR(r) : v;
}

/**
 * vcache_volume_attach - attach a volume to a device
 * @p: the pool
 * @id: number of the volume; it is made if there is none
 * @mode: enum vcache_volume_mode
 * @dev: the device
 * @origin: the origin of the device
 * @sectors: size of the origin
 * @out: the volume; it does not destage before vcache_volume_resume()
 *
 * Return: 0 or a negative errno; the kernel log has the reason.
 */
int vcache_volume_attach(struct vcache_pool *p, u32 id, u32 mode, struct vcache_dev *dev,
			 struct block_device *origin, sector_t sectors,
			 struct vcache_volume **out)
{
	struct vcache_volume *v;
	int r = 0;

	mutex_lock(&p->lock);
	v = vc_volume_take(p, id, dev);
	if (!IS_ERR(v) && !v->replayed)
		r = vcache_volume_start(v);
	mutex_unlock(&p->lock);
	if (IS_ERR(v))
		return PTR_ERR(v);
	if (!r)
		r = vcache_volume_change(v, mode, origin, sectors);
	if (r)
		vcache_volume_detach(v, false);
	else
		*out = v;
	return r;
}

/**
 * vcache_volume_join - give a tag its log
 * @v: the volume
 * @tag: the tag
 *
 * Return: 0 or -ENOMEM.
 */
int vcache_volume_join(struct vcache_volume *v, struct vcache_tag *tag)
{
	struct vcache_log *log;

	mutex_lock(&v->pool->lock);
	log = vcache_log_get(v, tag->id);
	if (log) {
		rcu_assign_pointer(log->user, tag);
		if (v->pool->state == VC_POOL_FAILED && log->state == VC_LOG_OK &&
		    !vcache_log_dirty(log)) {
			WRITE_ONCE(log->state, VC_LOG_BYPASSED);
			WRITE_ONCE(v->bypass_in_part, true);
		}
		tag->log = log;
		vcache_tag_keep_lanes(tag);
	}
	mutex_unlock(&v->pool->lock);
	if (!log)
		return -ENOMEM;
	/* In volume scope hTag has no data. */
	if (!tag->curve && (tag->id || !tag->dev->volume))
		/* Requests run already: they must see it initialised. */
		smp_store_release(&tag->curve, vcache_curve_make());
	vcache_space_kick(v->pool);
	return 0;
}

/* Find a tag other than @tag that writes to a log, or NULL. Called under RCU. */
static struct vcache_tag *vc_log_other(const struct vcache_log *log,
				       const struct vcache_tag *tag)
{
	struct vcache_tag *other;

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
static void vc_log_pass_on(struct vcache_log *log, struct vcache_tag *tag)
{
	struct vcache_tag *other;

	lockdep_assert_held(&log->vol->pool->lock);
	if (rcu_access_pointer(log->user) != tag)
		return;
	rcu_read_lock();
	other = vc_log_other(log, tag);
	rcu_assign_pointer(log->user, other);
	rcu_read_unlock();
	if (!other) {
		vcache_log_release_spare(log);
		vcache_log_set_lanes(log, 0);
	}
}

/**
 * vcache_volume_leave - take the log from a tag
 * @tag: the tag, idle
 */
void vcache_volume_leave(struct vcache_tag *tag)
{
	struct vcache_log *log = tag->log;

	if (!log)
		return;
	mutex_lock(&log->append);
	vcache_log_close(log);
	mutex_unlock(&log->append);
	vcache_reads_close(log);
	mutex_lock(&log->vol->pool->lock);
	vc_log_pass_on(log, tag);
	/* From here on vc_log_pass_on() does not pass the log to this tag. */
	WRITE_ONCE(tag->log, NULL);
	mutex_unlock(&log->vol->pool->lock);
	/* The shares of other logs grow. */
	vcache_space_kick(log->vol->pool);
	synchronize_rcu();
}

/**
 * vcache_volume_detach - detach a volume from its device
 * @v: the volume
 * @forget: drop what is cached, because the origin will change without us
 *
 * Return: 0; -EBUSY if data has to be dropped that is dirty. Then the volume stays
 * attached.
 */
int vcache_volume_detach(struct vcache_volume *v, bool forget)
{
	struct vcache_pool *p = v->pool;
	struct vcache_log *log;
	int r = 0;

	vcache_volume_stop(v, MAX_SCHEDULE_TIMEOUT);
	list_for_each_entry_lockless(log, &v->logs, node)
		vcache_prefetch_drop(log);
	vcache_volume_close(v);
	mutex_lock(&p->lock);
	vcache_saved_free(v);
	vcache_volume_note_clean(v);
	if (forget)
		r = vcache_volume_clear(v);
	if (!r) {
		vcache_bad_free(v);
		v->dev = NULL;
		v->origin = NULL;
		v->drain = false;
		p->attached--;
	}
	mutex_unlock(&p->lock);
	return r;
}
