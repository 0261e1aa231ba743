// SPDX-License-Identifier: GPL-2.0-only
/*
 * dm-vcache: dropping what a volume has in the cache: because its origin is used without
 * the cache, because its mode changes, or because an administrator asks for it.
 */
#include <linux/slab.h>

#include "internal.h"

/**
 * vcache_log_reclaim - reclaim chunks of a log, as far as they are reclaimable
 * @log: the log; its pool is locked
 * @most: how many at most
 *
 * Nothing in them is kept.
 *
 * Return: 0 or a negative errno.
 */
int vcache_log_reclaim(struct vcache_log *log, u32 most)
{
	struct vcache_chunk *c;
	int r = 0;

	lockdep_assert_held(&log->vol->pool->lock);
	while (!r && most-- && (c = vcache_log_any(log))) {
		r = vcache_chunk_reclaim(log->vol->pool, c, VC_RECLAIM_ALL);
		cond_resched();
	}
	return r;
}

/*
 * Reclaim all chunks of a log, which nothing uses, and whose chunks are all clean. The pool is
 * locked. Return: 0; -EBUSY if some are not reclaimable; another negative errno.
 */
static int vc_log_clear(struct vcache_log *log)
{
	int r;

	lockdep_assert_held(&log->vol->pool->lock);
	vcache_reads_close(log);
	log->blocked_until = jiffies;
	r = vcache_log_reclaim(log, U32_MAX);
	return r ?: vcache_log_chunks(log) ? -EBUSY : 0;
}

/**
 * vcache_volume_forget - make all that the volume has in the cache invalid
 * @v: the volume, its pool is locked
 *
 * One write of the volume slot does that: records written so far do not count any more,
 * wherever they are.
 *
 * Return: 0 or a negative errno.
 */
int vcache_volume_forget(struct vcache_volume *v)
{
	lockdep_assert_held(&v->pool->lock);
	v->floor = atomic64_inc_return(&v->pool->seq);
	return vcache_slot_save(v);
}

/* Note that all chunks of a log are dead. In memory they stay as they are. */
static void vc_log_note_dead(struct vcache_log *log)
{
	struct vcache_pool *p = log->vol->pool;
	struct vcache_chunk *c;

	list_for_each_entry(c, &log->chunks, node) {
		u32 nr = vcache_chunk_nr(p, c);

		vcache_table_entry(p, nr)->dead = cpu_to_le64(c->gen);
		set_bit(nr / VC_CHUNKS_PER_BLOCK, p->table_dirty);
	}
}

/**
 * vcache_logs_forget - make all that some logs have in the cache invalid on the device
 * @v: the volume; its pool is locked; vcache_log.forgotten is set for these logs, all of
 *	whose data is clean
 *
 * What their records supersede in other logs is removed there first: it must not become valid
 * again. That is not needed among them, because they become invalid together.
 *
 * Return: 0 or a negative errno.
 */
int vcache_logs_forget(struct vcache_volume *v)
{
	struct vcache_pool *p = v->pool;
	struct vcache_log *log;
	int r = vcache_reseal_others(p, v, NULL);

	lockdep_assert_held(&p->lock);
	if (r)
		return r;
	mutex_lock(&p->table_lock);
	list_for_each_entry(log, &v->logs, node) {
		if (log->forgotten)
			vc_log_note_dead(log);
	}
	mutex_unlock(&p->table_lock);
	return vcache_table_save_all(p);
}

/**
 * vcache_volume_clear - reclaim all chunks of a volume
 * @v: the volume; its pool is locked
 *
 * Return: 0; -EBUSY if some are dirty; another negative errno.
 */
int vcache_volume_clear(struct vcache_volume *v)
{
	struct vcache_log *log;
	int r;

	lockdep_assert_held(&v->pool->lock);
	if (vcache_volume_dirty(v)) {
		DMERR("%s: volume %u has dirty data: drain it first",
		      dm_device_name(v->pool->md), v->id);
		return -EBUSY;
	}
	r = vcache_volume_forget(v);
	list_for_each_entry(log, &v->logs, node) {
		if (!r)
			r = vc_log_clear(log);
	}
	return r;
}

/* Drop all blocks of a chunk. */
static void vc_chunk_empty(struct vcache_pool *p, struct vcache_chunk *c)
{
	u32 cell = vcache_chunk_nr(p, c) * p->g.chunk_blocks, k;

	for (k = 0; k < vcache_chunk_capacity(&p->g); k++)
		vcache_lookup_drop(p, cell + k);
	cond_resched();
}

/* Free the slot. From then on the chunks belong to no volume. */
static int vc_volume_erase(struct vcache_volume *v)
{
	struct vcache_pool *p = v->pool;
	u32 i, id = v->id;
	int r;

	cancel_delayed_work_sync(&v->destage);
	v->id = 0;
	r = vcache_slot_save(v) ?: vcache_direct_forget(v);
	if (r) {
		v->id = id;
		return r;
	}
	for (i = p->g.first_chunk; i < p->g.chunks; i++) {
		struct vcache_chunk *c = &p->chunk[i];

		if (c->log ? c->log->vol != v :
		    !p->found[i].gen || p->found[i].volume != id)
			continue;
		if (c->log)
			vc_chunk_empty(p, c);
		p->found[i].gen = 0;
		list_del_init(&c->node);
		vcache_chunk_release(p, c);
	}
	vcache_volume_free(v);
	return 0;
}

/* Find a volume that no device uses. Return: the volume, or an error. */
static struct vcache_volume *vc_volume_find_unused(struct vcache_pool *p, u32 id,
						   const char **error)
{
	struct vcache_volume *v = vcache_volume_find(p, id);

	if (!v) {
		*error = "there is no such volume";
		return ERR_PTR(-ENOENT);
	}
	if (v->dev || v->vssd_used) {
		*error = "the volume is in use";
		return ERR_PTR(-EBUSY);
	}
	return v;
}

/**
 * vcache_volume_drop - remove a volume from its pool, for an administrator
 * @p: the pool
 * @id: its number
 * @force: even if that loses data
 * @error: set to what is wrong
 *
 * Return: 0 or a negative errno.
 */
int vcache_volume_drop(struct vcache_pool *p, u32 id, bool force, const char **error)
{
	struct vcache_volume *v;
	int r;

	mutex_lock(&p->lock);
	v = vc_volume_find_unused(p, id, error);
	r = PTR_ERR_OR_ZERO(v);
	if (!r && !force && v->mode == VC_VOLUME_VSSD) {
		*error = "the cache has the only copy of the data of an elastic SSD";
		r = -EBUSY;
	}
	if (!r && !force && (!v->replayed || vcache_volume_dirty(v))) {
		*error = "the volume may have dirty data in the cache";
		r = -EBUSY;
	}
	if (!r)
		r = vc_volume_erase(v);
	mutex_unlock(&p->lock);
	return r;
}

/**
 * vcache_volume_drop_vssd - remove what an elastic SSD that was removed has left in a pool
 * @p: the pool
 * @id: number of its volume
 * @error: set to what is wrong
 *
 * Return: 0 or a negative errno; -EBUSY if it is another volume, or in use.
 */
int vcache_volume_drop_vssd(struct vcache_pool *p, u32 id, const char **error)
{
	struct vcache_volume *v;
	int r;

	mutex_lock(&p->lock);
	v = vc_volume_find_unused(p, id, error);
	r = PTR_ERR_OR_ZERO(v);
	if (!r && v->mode != VC_VOLUME_VSSD) {
		*error = "the volume is one of a cache";
		r = -EBUSY;
	}
	if (!r) {
		*error = "the cache device cannot be written";
		r = vc_volume_erase(v);
	}
	mutex_unlock(&p->lock);
	return r;
}

/* Empty the chunks of a log, and reclaim them. */
static int vc_log_erase(struct vcache_log *log)
{
	struct vcache_chunk *c;

	list_for_each_entry(c, &log->chunks, node)
		vc_chunk_empty(log->vol->pool, c);
	return vc_log_clear(log);
}

/**
 * vcache_volume_drop_tag - drop what one tag of a volume has in the cache, for an administrator
 * @p: the pool
 * @id: number of the volume
 * @tag: number of the tag
 * @force: even if that loses data
 * @error: set to what is wrong
 *
 * Return: 0 or a negative errno.
 */
int vcache_volume_drop_tag(struct vcache_pool *p, u32 id, u32 tag, bool force,
			   const char **error)
{
	struct vcache_log *log = NULL;
	struct vcache_volume *v;
	int r;

	mutex_lock(&p->lock);
	v = vc_volume_find_unused(p, id, error);
	r = PTR_ERR_OR_ZERO(v);
	if (!r && !v->replayed) {
		*error = "the volume cannot be replayed";
		r = vcache_volume_start(v);
	}
	if (!r) {
		log = vcache_log_find(v, tag);
		*error = "the tag has nothing in the cache";
		r = log ? 0 : -ENOENT;
	}
	if (!r && !force && vcache_log_dirty(log)) {
		*error = "the tag may have dirty data in the cache";
		r = -EBUSY;
	}
	if (!r) {
		*error = "the cache device cannot be written";
		r = vc_log_erase(log);
	}
	mutex_unlock(&p->lock);
	return r;
}

/**
 * vcache_volume_start - find out which valid data a volume has in the cache
 * @v: the volume, its pool is locked; see vcache_volume_replay()
 *
 * A write in write-through mode leaves no record if the cache gets no copy. So the copies
 * that a replay finds may be outdated, and are dropped.
 *
 * Return: 0 or a negative errno.
 */
int vcache_volume_start(struct vcache_volume *v)
{
	int r = vcache_volume_replay(v);

	lockdep_assert_held(&v->pool->lock);
	/* It may have failed meanwhile, when it did not know what the volume has. */
	if (!r && v->pool->state == VC_POOL_FAILED)
		r = -EIO;
	if (!r && v->mode == VC_VOLUME_WRITETHROUGH)
		r = vcache_volume_clear(v);
	return r;
}
