// SPDX-License-Identifier: GPL-2.0-only
/*
 * dm-vcache: volumes of a pool and their logs, as objects.
 */
#include <linux/blkdev.h>
#include <linux/slab.h>

#include "internal.h"

const struct vc_log_ops *vc_log_upper __ro_after_init;

/**
 * vc_log_register - set what upper layers do for logs and volumes
 * @ops: their operations; called before there is a pool
 */
void __init vc_log_register(const struct vc_log_ops *ops)
{
	vc_log_upper = ops;
}

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

static void vc_log_free(struct vc_log *log)
{
	unsigned int i;

	cancel_work_sync(&log->seal_work);
	vc_log_upper->exit_log(log);
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
	vc_log_upper->init_log(log);
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
	INIT_LIST_HEAD(&v->logs);
	vc_ranges_init(&v->ranges);
	vc_log_upper->init_volume(v);
	init_waitqueue_head(&v->idle);
	list_add_tail(&v->node, &p->volumes);
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

/**
 * vc_volume_flush_origin - make write-through data durable on the origin
 * @v: the volume, in use
 *
 * Called before the log drops its copies. Needed only if the origin has no FUA.
 *
 * Return: 0 or a negative errno.
 */
int vc_volume_flush_origin(struct vc_volume *v)
{
	if (!v->dev || !READ_ONCE(v->dev->through) ||
	    vc_isolation(v->origin) != VCACHE_ISOLATION_DEGRADED)
		return 0;
	return blkdev_issue_flush(v->origin);
}

/**
 * vc_volume_stuck - do writers wait for chunks while the origin refuses dirty data?
 * @v: the volume
 */
bool vc_volume_stuck(struct vc_volume *v)
{
	struct vc_log *log;
	bool starved = false;

	if (READ_ONCE(v->pool->state) == VC_POOL_FAILED)
		return false;
	list_for_each_entry_lockless(log, &v->logs, node)
		starved |= READ_ONCE(log->starved);
	return starved && READ_ONCE(v->failing);
}
