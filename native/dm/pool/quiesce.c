// SPDX-License-Identifier: GPL-2.0-only
/*
 * dm-vcache: stopping a volume: drains, and suspends; and letting it go on.
 */
#include <linux/blkdev.h>

#include "internal.h"

/* A chunk may have been opened meanwhile: close that one after so long. */
#define VC_CLOSE_AGAIN (HZ / 10 + 1)

static bool vc_log_sealed(struct vcache_log *log)
{
	struct list_head *seal;
	u32 n = 0;

	/* Not list_count_nodes(): a part of the 6.1 kernels does not have it. */
	spin_lock_irq(&log->lock);
	list_for_each(seal, &log->seals)
		n++;
	spin_unlock_irq(&log->lock);
	return n == VC_SEALS;
}

/**
 * vcache_volume_close - close and seal all open chunks
 * @v: the volume; no tag writes to it any more
 *
 * Until the volume is stopped relocation may open a chunk. That is closed, too.
 */
void vcache_volume_close(struct vcache_volume *v)
{
	struct vcache_log *log;

	list_for_each_entry_lockless(log, &v->logs, node) {
		do {
			mutex_lock(&log->append);
			vcache_log_close(log);
			mutex_unlock(&log->append);
			vcache_reads_close(log);
		} while (!wait_event_timeout(v->idle, vc_log_sealed(log),
					     VC_CLOSE_AGAIN));
	}
}

/**
 * vcache_volume_is_busy - does I/O to the origin go on, although the volume is stopped?
 * @v: the volume
 */
bool vcache_volume_is_busy(struct vcache_volume *v)
{
	/* Pairs with vc_destage_work(): what the round did is visible. */
	return smp_load_acquire(&v->destaging) || atomic_read(&v->promoting);
}

/**
 * vcache_volume_stop - stop I/O to the origin
 * @v: the volume
 * @patience: how long to wait for the I/O that is under way, in jiffies;
 *	MAX_SCHEDULE_TIMEOUT: until it ends
 *
 * Return: false if it is still under way. No round and no promotion begins, but those under
 * way go on when the origin answers.
 */
bool vcache_volume_stop(struct vcache_volume *v, long patience)
{
	WRITE_ONCE(v->stopped, true);
	smp_mb(); /* pairs with vcache_promote_enter() and vc_destage_work() */
	if (!wait_event_timeout(v->idle, !vcache_volume_is_busy(v), patience))
		return false;
	synchronize_rcu();
	cancel_delayed_work_sync(&v->destage);
	/* Relocation opens chunks, and holds the lock: wait for its end. */
	mutex_lock(&v->pool->lock);
	mutex_unlock(&v->pool->lock);
	return true;
}

/**
 * vcache_volume_drain - begin to destage everything
 * @v: the volume, in use
 *
 * The drain lasts until a table changes the mode, or the volume is detached. Writers are
 * held up while there is dirty data, so it ends.
 */
void vcache_volume_drain(struct vcache_volume *v)
{
	WRITE_ONCE(v->drain, true);
	vcache_bad_retry_now(v);
	if (!v->stopped)
		mod_delayed_work(v->pool->wq, &v->destage, 0);
}

/*
 * Complete a drain, if there is one. Return: false if nothing was destaged for the time of
 * @patience.
 */
static bool vc_volume_end_drain(struct vcache_volume *v, long patience)
{
	u64 left;

	if (!v->drain || v->stopped)
		return true;
	WRITE_ONCE(v->bad_only, false);
	mod_delayed_work(v->pool->wq, &v->destage, 0);
	do {
		left = vcache_volume_dirty(v);
		if (wait_event_timeout(v->idle,
				       !vcache_volume_dirty(v) || READ_ONCE(v->failing) ||
				       READ_ONCE(v->bad_only), patience))
			return true;
	} while (vcache_volume_dirty(v) != left);
	return false;
}

/**
 * vcache_volume_quiesce - stop I/O to the origin, and seal all chunks
 * @v: the volume; nothing writes to it any more
 * @patience: how long to wait for the origin, see vcache_volume_stop()
 *
 * A drain is completed first, except for what the origin refuses. Only a round or two are
 * left of it, because it holds writers up.
 *
 * Return: false if the origin does not answer; then not all chunks are sealed.
 */
bool vcache_volume_quiesce(struct vcache_volume *v, long patience)
{
	bool drained;

	vcache_volume_close(v);
	vcache_volume_flush_origin(v);
	drained = vc_volume_end_drain(v, patience);
	if (!vcache_volume_stop(v, drained ? patience : 1))
		return false;
	vcache_volume_close(v);
	return true;
}

/**
 * vcache_volume_resume - allow I/O to the origin again
 * @v: the volume
 */
void vcache_volume_resume(struct vcache_volume *v)
{
	struct vcache_log *log;

	/* A resize of the map holds the lock: wait for its end. */
	mutex_lock(&v->pool->lock);
	WRITE_ONCE(v->stopped, false);
	vcache_bad_retry_now(v);
	list_for_each_entry(log, &v->logs, node)
		vcache_prefetch_resume(log);
	mutex_unlock(&v->pool->lock);
	queue_delayed_work(v->pool->wq, &v->destage, 0);
	vcache_space_kick(v->pool);
}
