// SPDX-License-Identifier: GPL-2.0-only
/*
 * dm-vcache: volumes of a pool and their logs, as objects.
 */
#include <linux/blkdev.h>
#include <linux/slab.h>

#include "internal.h"

const struct vcache_log_ops *vcache_log_upper __ro_after_init;

/**
 * vcache_log_register - set what upper layers do for logs and volumes
 * @ops: their operations; called before there is a pool
 */
void __init vcache_log_register(const struct vcache_log_ops *ops)
{
	vcache_log_upper = ops;
}

/**
 * vcache_volume_find - find a volume by its number
 * @p: the pool, locked
 * @id: the number
 *
 * Return: the volume, or NULL if there is none.
 */
struct vcache_volume *vcache_volume_find(struct vcache_pool *p, u32 id)
{
	struct vcache_volume *v;

	lockdep_assert_held(&p->lock);
	list_for_each_entry(v, &p->volumes, node) {
		if (v->id == id)
			return v;
	}
	return NULL;
}

static void vc_log_free(struct vcache_log *log)
{
	unsigned int i;

	vcache_pace_exit(log);
	cancel_work_sync(&log->seal_work);
	vcache_log_upper->exit_log(log);
	for (i = 0; i < VC_SEALS; i++)
		kfree(log->sealing[i].data);
	mutex_destroy(&log->append);
	mutex_destroy(&log->fill);
	kfree(log);
}

/**
 * vcache_volume_free - free a volume that nothing uses
 * @v: the volume
 */
void vcache_volume_free(struct vcache_volume *v)
{
	struct vcache_log *log, *next;

	cancel_delayed_work_sync(&v->destage);
	list_for_each_entry_safe(log, next, &v->logs, node)
		vc_log_free(log);
	list_del(&v->node);
	kfree(v);
}

/**
 * vcache_log_find - find the log of a tag
 * @v: the volume; its pool is locked
 * @tag: number of the tag
 *
 * Return: the log, or NULL if there is none.
 */
struct vcache_log *vcache_log_find(struct vcache_volume *v, u32 tag)
{
	struct vcache_log *log;

	lockdep_assert_held(&v->pool->lock);
	list_for_each_entry(log, &v->logs, node) {
		if (log->tag == tag)
			return log;
	}
	return NULL;
}

/**
 * vcache_log_get - find the log of a tag, or make it
 * @v: the volume; its pool is locked
 * @tag: number of the tag
 *
 * Return: the log, or NULL without memory.
 */
struct vcache_log *vcache_log_get(struct vcache_volume *v, u16 tag)
{
	struct vcache_pool *p = v->pool;
	struct vcache_log *log;
	unsigned int i;

	lockdep_assert_held(&v->pool->lock);
	log = vcache_log_find(v, tag);
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
	INIT_WORK(&log->seal_work, vcache_seal_work);
	vcache_pace_init(log);
	log->paced_limit = U32_MAX;
	log->served = atomic64_inc_return(&p->opens);
	vcache_log_upper->init_log(log);
	spin_lock_init(&log->stream_lock);
	for (i = 0; i < VC_SEALS; i++) {
		struct vcache_sealing *s = &log->sealing[i];

		s->data = kmalloc_array(VC_SEAL_COPIES, vcache_seal_bytes(&p->g),
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
 * vcache_volume_alloc - allocate a volume that is not in use
 * @p: the pool, locked
 * @id: number of the volume
 * @slot: its slot
 *
 * Return: the volume, or NULL without memory.
 */
struct vcache_volume *vcache_volume_alloc(struct vcache_pool *p, u32 id, u16 slot)
{
	struct vcache_volume *v = kzalloc(sizeof(*v), GFP_KERNEL);

	lockdep_assert_held(&p->lock);
	if (!v)
		return NULL;
	v->pool = p;
	v->id = id;
	v->slot = slot;
	v->stopped = true;
	INIT_LIST_HEAD(&v->logs);
	vcache_ranges_init(&v->ranges);
	vcache_ranges_init(&v->large);
	spin_lock_init(&v->doubt_lock);
	vcache_log_upper->init_volume(v);
	init_waitqueue_head(&v->idle);
	list_add_tail(&v->node, &p->volumes);
	return v;
}

/**
 * vcache_log_dirty - count the dirty sectors of a log
 * @log: the log
 *
 * Blocks of which only some sectors are dirty count in full.
 */
u64 vcache_log_dirty(struct vcache_log *log)
{
	return (u64)atomic_read(&log->dirty_cells) * VC_BLOCK_SECTORS;
}

/**
 * vcache_log_dirty_chunks - count the chunks of a log that are dirty, or not noted as clean
 * @log: the log
 *
 * The open chunk counts only if it has dirty blocks.
 */
u32 vcache_log_dirty_chunks(struct vcache_log *log)
{
	struct vcache_chunk *c;
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
 * vcache_volume_dirty - count the dirty sectors of a volume
 * @v: the volume
 */
u64 vcache_volume_dirty(struct vcache_volume *v)
{
	struct vcache_log *log;
	u64 sectors = 0;

	list_for_each_entry_lockless(log, &v->logs, node)
		sectors += READ_ONCE(log->dirty) ? vcache_log_dirty(log) : 0;
	return sectors;
}

/**
 * vcache_volume_flush_origin - make write-through data durable on the origin
 * @v: the volume, in use
 *
 * Called before the log drops its copies. Needed only if the origin has no FUA.
 *
 * Return: 0 or a negative errno.
 */
int vcache_volume_flush_origin(struct vcache_volume *v)
{
	if (!v->dev || !vcache_origin_needs_flush(v->dev, v->origin))
		return 0;
	return vcache_origin_flush(v->dev, v->origin);
}

/**
 * vcache_volume_stuck - do writers wait for chunks while the origin refuses dirty data?
 * @v: the volume
 */
bool vcache_volume_stuck(struct vcache_volume *v)
{
	struct vcache_log *log;
	bool starved = false;

	if (READ_ONCE(v->pool->state) == VC_POOL_FAILED)
		return false;
	list_for_each_entry_lockless(log, &v->logs, node)
		starved |= READ_ONCE(log->starved);
	return starved && READ_ONCE(v->failing);
}
