// SPDX-License-Identifier: GPL-2.0-only
/*
 * dm-vcache: volumes of a pool, from their first use to their end.
 *
 * A volume keeps its chunks while no target uses it. It is replayed when it is used for
 * the first time since the pool was loaded. Each volume is replayed by itself: neither its
 * size nor its state affects other volumes.
 */
#include <linux/blkdev.h>
#include <linux/slab.h>

#include "reads.h"
#include "round.h"

/**
 * vc_volume_find - find a volume by its number
 * @p: the pool, locked
 * @id: the number
 *
 * Return: the volume, or NULL if there is none.
 */
struct vc_volume *vc_volume_find(struct vc_pool *p, u32 id)
{
	struct vc_volume *v;

	list_for_each_entry(v, &p->volumes, node) {
		if (v->id == id)
			return v;
	}
	return NULL;
}

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

static void vc_log_free(struct vc_log *log)
{
	unsigned int i;

	cancel_work_sync(&log->seal_work);
	cancel_work_sync(&log->promote_work);
	vc_prefetch_drop(log);
	for (i = 0; i < VC_SEALS; i++)
		kfree(log->sealing[i].data);
	mutex_destroy(&log->append);
	mutex_destroy(&log->fill);
	kfree(log);
}

/**
 * vc_volume_free - free a volume that nothing uses
 * @v: the volume
 */
void vc_volume_free(struct vc_volume *v)
{
	struct vc_log *log, *next;

	cancel_delayed_work_sync(&v->destage);
	list_for_each_entry_safe(log, next, &v->logs, node)
		vc_log_free(log);
	list_del(&v->node);
	kfree(v);
}

/**
 * vc_log_find - find the log of a tag
 * @v: the volume; its pool is locked
 * @tag: number of the tag
 *
 * Return: the log, or NULL if there is none.
 */
struct vc_log *vc_log_find(struct vc_volume *v, u32 tag)
{
	struct vc_log *log;

	list_for_each_entry(log, &v->logs, node) {
		if (log->tag == tag)
			return log;
	}
	return NULL;
}

/**
 * vc_log_get - find the log of a tag, or make it
 * @v: the volume; its pool is locked
 * @tag: number of the tag
 *
 * Return: the log, or NULL without memory.
 */
struct vc_log *vc_log_get(struct vc_volume *v, u16 tag)
{
	struct vc_pool *p = v->pool;
	struct vc_log *log;
	unsigned int i;

	log = vc_log_find(v, tag);
	if (log)
		return log;
	log = kzalloc(sizeof(*log), GFP_KERNEL);
	if (!log)
		return NULL;
	log->vol = v;
	log->tag = tag;
	log->most = U32_MAX;
	log->own_part = U32_MAX;
	log->own_most = U32_MAX;
	log->credit = VC_CREDIT_FIRST;
	log->blocked_until = jiffies;
	mutex_init(&log->append);
	spin_lock_init(&log->lock);
	INIT_LIST_HEAD(&log->chunks);
	INIT_LIST_HEAD(&log->records);
	INIT_LIST_HEAD(&log->seals);
	INIT_LIST_HEAD(&log->closed);
	INIT_WORK(&log->seal_work, vc_seal_work);
	vc_reads_init(log);
	spin_lock_init(&log->stream_lock);
	for (i = 0; i < VC_SEALS; i++) {
		struct vc_sealing *s = &log->sealing[i];

		s->data = kmalloc_array(VC_SEAL_COPIES, vc_seal_bytes(&p->g),
					GFP_KERNEL);
		if (!s->data) {
			vc_log_free(log);
			return NULL;
		}
		list_add_tail(&s->node, &log->seals);
	}
	list_add_tail_rcu(&log->node, &v->logs);
	return log;
}

/**
 * vc_volume_alloc - allocate a volume that is not in use
 * @p: the pool, locked
 * @id: number of the volume
 * @slot: its slot
 *
 * Return: the volume, or NULL without memory.
 */
struct vc_volume *vc_volume_alloc(struct vc_pool *p, u32 id, u16 slot)
{
	struct vc_volume *v = kzalloc(sizeof(*v), GFP_KERNEL);

	if (!v)
		return NULL;
	v->pool = p;
	v->id = id;
	v->slot = slot;
	v->stopped = true;
	v->most = VC_ROUND_CELLS;
	v->width = VC_WINDOW;
	v->rest_until = jiffies;
	INIT_LIST_HEAD(&v->logs);
	vc_ranges_init(&v->ranges);
	vc_bad_init(v);
	INIT_DELAYED_WORK(&v->destage, vc_destage_work);
	init_waitqueue_head(&v->idle);
	list_add_tail(&v->node, &p->volumes);
	return v;
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

/**
 * vc_log_dirty - count the dirty sectors of a log
 * @log: the log
 *
 * Blocks of which only some sectors are dirty count in full.
 */
u64 vc_log_dirty(struct vc_log *log)
{
	struct vc_chunk *c;
	u64 blocks = 0;

	spin_lock_irq(&log->lock);
	list_for_each_entry(c, &log->chunks, node)
		blocks += atomic_read(&c->dirty);
	spin_unlock_irq(&log->lock);
	return blocks * VC_BLOCK_SECTORS;
}

/**
 * vc_log_dirty_chunks - count the chunks of a log that are dirty, or not noted as clean
 * @log: the log
 *
 * The open chunk counts only if it has dirty blocks.
 */
u32 vc_log_dirty_chunks(struct vc_log *log)
{
	struct vc_chunk *c;
	u32 n;

	spin_lock_irq(&log->lock);
	n = log->dirty;
	c = READ_ONCE(log->open);
	if (c && !c->clean && !atomic_read(&c->dirty))
		n--;
	spin_unlock_irq(&log->lock);
	return n;
}

/**
 * vc_volume_dirty - count the dirty sectors of a volume
 * @v: the volume
 */
u64 vc_volume_dirty(struct vc_volume *v)
{
	struct vc_log *log;
	u64 sectors = 0;

	list_for_each_entry_lockless(log, &v->logs, node)
		sectors += READ_ONCE(log->dirty) ? vc_log_dirty(log) : 0;
	return sectors;
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

/**
 * vc_volume_start - find out which valid data a volume has in the cache
 * @v: the volume, its pool is locked; see vc_volume_replay()
 *
 * A write in write-through mode leaves no record if the cache gets no copy. So the copies
 * that a replay finds may be outdated, and are dropped.
 *
 * Return: 0 or a negative errno.
 */
int vc_volume_start(struct vc_volume *v)
{
	int r = vc_volume_replay(v);

	/* It may have failed meanwhile, when it did not know what the volume has. */
	if (!r && v->pool->state == VC_POOL_FAILED)
		r = -EIO;
	if (!r && v->mode == VC_VOLUME_WRITETHROUGH)
		r = vc_volume_clear(v);
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

/**
 * vc_log_release_spare - free the chunk that is reserved for a log
 * @log: the log; its pool is locked
 *
 * Called when no tag writes to the log, or the pool shrinks: others may need the chunk.
 */
void vc_log_release_spare(struct vc_log *log)
{
	struct vc_chunk *spare;

	spin_lock_irq(&log->lock);
	spare = log->spare;
	log->spare = NULL;
	spin_unlock_irq(&log->lock);
	if (spare)
		vc_chunk_free(log->vol->pool, spare);
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
