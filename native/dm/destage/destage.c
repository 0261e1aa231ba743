// SPDX-License-Identifier: GPL-2.0-only
/*
 * dm-vcache: destage: writing dirty blocks to the origin, in the background.
 *
 * DOC: Rounds and windows
 *
 * A round takes the oldest dirty chunks of a log, sorts their valid blocks by their
 * place on the origin, and copies them window by window. Blocks that are neighbours on the
 * origin are read into consecutive pages and written as one request. Dirty blocks of other
 * chunks that precede or follow on the origin go with them: for a slow disk a long request
 * costs hardly more than a short one. When a window is durable on the origin, its cells are
 * clean. A chunk without dirty cells can be reclaimed; until then it serves reads.
 *
 * If only the open chunk is dirty, the round takes what has been written of it, and leaves
 * it open. So a tag that writes little does not use a new chunk each time.
 *
 * A window references its chunks only while it reads them. Writing takes as long as the
 * origin does, and blocks that were relocated meanwhile need not stay.
 *
 * A volume has one round at a time, for all its logs: an older version of a block must not
 * overwrite a newer one on the origin, whichever tags wrote them. For the same reason a
 * window holds the ranges of its blocks, see range.h. A round may have several windows in
 * flight, see flight.c. Memory for
 * VC_ROUNDS_MIN rounds is reserved, so destage makes progress when memory is short.
 *
 * DOC: Pace
 *
 * Rounds run at full speed when most of the log's share is dirty, when nothing has been
 * written for a while, when clean chunks run short, when the tag of the log has left the
 * writeback mode, and in a drain. Above a quarter of the share they run slowly. There is no
 * urgency then, and blocks that are overwritten meanwhile need not be written at all. An operator
 * can change these parts of a share, limit the rate, and pause destage, see limit.c.
 *
 * The writes do not have REQ_SYNC. So the writeback throttling of the block layer
 * (blk-wbt) keeps them from delaying reads, if the origin has it. While others read from
 * an origin, windows are also throttled by us: see throttle.c.
 */
#include <linux/blkdev.h>
#include <linux/delay.h>
#include <linux/sort.h>

#include "internal.h"

/* A log without a write for so long is destaged at full speed. */
#define VC_IDLE_MS	2000U

/* How often to look for work while something is dirty. */
#define VC_DESTAGE_TICK	(HZ / 2)

/* How long to wait after a failed round. */
#define VC_RETRY_DELAY	(5 * HZ)

/* Most cells of the first round: how fast the origin is, is not known. */
#define VC_ROUND_FIRST	2048U

/* Longest time that a round should take. */
#define VC_ROUND_TIME	(HZ / 2)

/*
 * Can a round that has @n chunks so far take this one? Of the open chunk it finds the
 * blocks of durable records only, so it may copy these.
 */
static bool vc_round_takes(struct vcache_chunk *c, u32 n)
{
	if (c->state == VC_CHUNK_OPEN)
		return !n && atomic_read(&c->dirty);
	return c->state == VC_CHUNK_SEALED && n < VC_ROUND_CHUNKS;
}

/* Leave bad blocks out of a round. */
static void vc_round_omit_bad(struct vcache_round *r, struct vcache_volume *v)
{
	u32 i, n = 0;

	for (i = 0; v->nbad && i < r->nr; i++) {
		if (!vcache_bad_has(v, r->cell[i].block))
			r->cell[n++] = r->cell[i];
	}
	if (v->nbad)
		r->nr = n;
}

/* Sort the blocks of a round. What was written in sequence is in order already. */
static void vc_round_sort(struct vcache_round *r)
{
	u32 i;

	for (i = 1; i < r->nr; i++) {
		if (r->cell[i].block < r->cell[i - 1].block) {
			sort(r->cell, r->nr, sizeof(r->cell[0]), vcache_round_cmp, NULL);
			return;
		}
	}
}

/*
 * Take the oldest dirty chunks of a log. If the first ones are superseded altogether, take
 * these alone: they cost nothing, and may be enough. Return: false if there are none.
 */
static bool vc_round_fill(struct vcache_round *r, struct vcache_log *log)
{
	struct vcache_volume *v = log->vol;
	struct vcache_chunk *c;
	u32 dirty = 0, n = 0, i;

	r->nr = 0;
	spin_lock_irq(&log->lock);
	list_for_each_entry(c, &log->chunks, node) {
		u32 more = atomic_read(&c->dirty);

		if (c->clean || c->gen <= log->passed)
			continue;
		if (!vc_round_takes(c, n) || dirty + more > r->cells ||
		    (n && dirty + more > (dirty ? v->most : 0)))
			break;
		dirty += more;
		r->gen[n] = c->gen;
		r->chunk[n++] = c;
	}
	spin_unlock_irq(&log->lock);
	r->chunks = n;
	for (i = 0; i < n; i++)
		vcache_round_note(r, v->pool, r->chunk[i]);
	vc_round_omit_bad(r, v);
	vc_round_sort(r);
	return n;
}

/* Are too few clean chunks left in the lanes of this log, or must it give up chunks? */
static bool vc_log_lacks_clean(const struct vcache_log *log)
{
	return READ_ONCE(log->vol->pool->short_of_clean) ||
	       READ_ONCE(log->reclaim_pending) || READ_ONCE(log->own_short) ||
	       READ_ONCE(log->unsealed);
}

/* Is more than a percentage of a log's share dirty? */
static bool vc_log_dirty_above(struct vcache_log *log, u32 percent)
{
	return (u64)READ_ONCE(log->dirty) * 100 > (u64)vcache_log_part(log) * percent;
}

/**
 * vcache_log_is_rest - is the dirty data of a log what is left of an earlier mode of its tag?
 * @log: the log
 *
 * More of it does not come, and somebody may wait until it is at the origin.
 */
bool vcache_log_is_rest(struct vcache_log *log)
{
	struct vcache_tag *tag;
	bool rest;

	rcu_read_lock();
	tag = rcu_dereference(log->user);
	rest = tag && READ_ONCE(tag->mode) != VCACHE_MODE_WRITEBACK;
	rcu_read_unlock();
	return rest;
}

/*
 * Must the dirty data of this log be destaged at full speed? A writer that waits for a
 * chunk is no reason while clean chunks can be reclaimed.
 */
static bool vc_log_is_urgent(struct vcache_log *log)
{
	struct vcache_volume *v = log->vol;
	u32 dirty = READ_ONCE(log->dirty);

	return READ_ONCE(v->drain) || vcache_log_is_rest(log) || vc_log_lacks_clean(log) ||
	       READ_ONCE(v->pool->leaving) || vcache_log_must_vacate(log) ||
	       (READ_ONCE(log->starved) && dirty >= READ_ONCE(log->nr)) ||
	       vc_log_dirty_above(log, READ_ONCE(v->limits.high)) ||
	       time_after(jiffies, READ_ONCE(log->written) +
			  msecs_to_jiffies(VC_IDLE_MS));
}

/**
 * vcache_volume_is_urgent - is any log of a volume urgent?
 * @v: the volume
 *
 * A round of one log makes all others wait.
 */
bool vcache_volume_is_urgent(struct vcache_volume *v)
{
	struct vcache_log *log;

	if (READ_ONCE(v->stopped))
		return true;
	list_for_each_entry_lockless(log, &v->logs, node) {
		if (vcache_log_dirty_chunks(log) && !vcache_destage_held(log) &&
		    vc_log_is_urgent(log))
			return true;
	}
	return false;
}

/*
 * Note that a chunk is clean, if it is sealed and has no dirty blocks. The caller holds
 * vcache_pool.table_lock. Return: whether it has become clean.
 */
static bool vc_chunk_note_clean(struct vcache_log *log, struct vcache_chunk *c, u64 gen)
{
	struct vcache_pool *p = log->vol->pool;
	u32 nr = vcache_chunk_nr(p, c);
	bool clean;

	spin_lock_irq(&log->lock);
	clean = c->log == log && c->gen == gen && !c->clean &&
		c->state == VC_CHUNK_SEALED && !atomic_read(&c->dirty);
	if (clean) {
		c->clean = true;
		vcache_log_gets_clean(log, c);
	}
	spin_unlock_irq(&log->lock);
	/* A failed record may be on the device, and a replay would take its data for clean. */
	if (clean && !c->failed) {
		vcache_table_entry(p, nr)->clean = cpu_to_le64(gen);
		set_bit(nr / VC_CHUNKS_PER_BLOCK, p->table_dirty);
	}
	return clean;
}

/*
 * Note which chunks of a round are clean. The chunk table need not be written for that:
 * it must say so at a clean shutdown only. Return: how many have become clean.
 */
static u32 vc_round_clean(struct vcache_round *r, struct vcache_log *log)
{
	struct vcache_pool *p = log->vol->pool;
	u32 i, n = 0;

	mutex_lock(&p->table_lock);
	for (i = 0; i < r->chunks; i++)
		n += vc_chunk_note_clean(log, r->chunk[i], r->gen[i]);
	mutex_unlock(&p->table_lock);
	/* Else a writer that waits for a chunk, reclaim and destage would wake each other. */
	if (n)
		vcache_log_wake(log);
	return n;
}

/**
 * vcache_volume_note_clean - note which chunks of a volume are clean
 * @v: the volume, stopped, with all chunks closed; its pool is locked
 *
 * Dirty blocks of the open chunk may have been written in a window of another chunk. No
 * round has looked at the open chunk since.
 */
void vcache_volume_note_clean(struct vcache_volume *v)
{
	struct vcache_chunk *c;
	struct vcache_log *log;

	lockdep_assert_held(&v->pool->lock);
	mutex_lock(&v->pool->table_lock);
	list_for_each_entry(log, &v->logs, node) {
		list_for_each_entry(c, &log->chunks, node)
			vc_chunk_note_clean(log, c, c->gen);
	}
	mutex_unlock(&v->pool->table_lock);
}

/* Should this log be destaged now? */
static bool vc_log_due(struct vcache_log *log)
{
	if (vcache_destage_held(log))
		return false;
	return vc_log_is_urgent(log) ||
	       (vc_log_dirty_above(log, READ_ONCE(log->vol->limits.low)) &&
		time_after_eq(jiffies, log->vol->rest_until));
}

/*
 * Adapt the length of rounds to the origin: the other logs of the volume wait for each of
 * them.
 */
static void vc_round_adapt(struct vcache_volume *v, unsigned long took)
{
	if (took > VC_ROUND_TIME)
		v->most = max(v->most / 2, 1U);
	else if (took < VC_ROUND_TIME / 4)
		v->most = min(v->most * 2, VC_ROUND_CELLS);
}

/*
 * Note how a round went. A round that found nothing to copy does not tell whether the
 * origin still fails.
 */
static void vc_round_note_error(struct vcache_round *r, struct vcache_volume *v,
				int error)
{
	if (error && !v->failing)
		DMERR("%s: cannot destage volume %u: error %d; its dirty data stays in the cache",
		      dm_device_name(v->pool->md), v->id, error);
	if (error)
		wake_up(&v->dev->idle);
	if (error || r->copied)
		WRITE_ONCE(v->failing, error);
}

/*
 * Nothing can be destaged: close the open chunk, so that it can be reclaimed. Not if it has bad
 * blocks: it could only be relocated, and the chunk that gets its blocks would be closed, too,
 * without end.
 */
static void vc_log_close_clean(struct vcache_log *log)
{
	struct vcache_chunk *c;
	bool dirty;

	spin_lock_irq(&log->lock);
	c = READ_ONCE(log->open);
	dirty = c && atomic_read(&c->dirty);
	spin_unlock_irq(&log->lock);
	if (dirty)
		VCACHE_PROBE("open chunk has only bad blocks");
	else
		vcache_log_close_idle(log);
}

/* Do a round of a log. Return: false if there is nothing to do, or it failed. */
static bool vc_destage_round(struct vcache_round *r, struct vcache_volume *v,
			     struct vcache_log *log)
{
	u32 cleaned = 0;
	int error;

	if (!vc_round_fill(r, log)) {
		if (v->failing)
			log->passed = 0;
		if (vc_log_lacks_clean(log))
			vc_log_close_clean(log);
		return false;
	}
	error = vcache_round_copy(r, v, log);
	if (!error)
		cleaned = vc_round_clean(r, log);
	vc_round_adapt(v, r->worked);
	vc_round_note_error(r, v, error);
	/* Not if there are only bad blocks: reclaim would ask for another round at once. */
	if (cleaned || r->copied)
		vcache_space_kick(v->pool);
	if (error) {
		log->passed = r->gen[r->chunks - 1];
		return false;
	}
	/* Go on behind chunks that have only bad blocks. */
	if (cleaned || r->copied || r->busy) {
		v->progress = true;
	} else if (v->nbad) {
		log->passed = r->gen[r->chunks - 1];
		return true;
	}
	return cleaned || r->nr > r->busy + r->bad;
}

static bool vc_destage_log(struct vcache_volume *v, struct vcache_log *log)
{
	struct vcache_round *r = mempool_alloc(&v->pool->rounds, GFP_NOIO);
	bool done = vc_destage_round(r, v, log);

	mempool_free(r, &v->pool->rounds);
	return done;
}

/* Do a round of each log that needs one. Return: whether there is more to do. */
static bool vc_destage_pass(struct vcache_volume *v)
{
	struct vcache_log *log;
	bool more = false;

	list_for_each_entry_lockless(log, &v->logs, node) {
		if (READ_ONCE(v->stopped))
			return false;
		if (READ_ONCE(log->dirty) && vc_log_due(log))
			more |= vc_destage_log(v, log);
		if (!READ_ONCE(log->dirty) && vc_log_lacks_clean(log))
			vcache_log_close_idle(log);
	}
	return more && !v->failing;
}

/**
 * vcache_destage_soon - schedule destage when the first block of a chunk becomes dirty
 * @v: the volume
 *
 * Called in any context.
 */
void vcache_destage_soon(struct vcache_volume *v)
{
	if (!READ_ONCE(v->stopped))
		queue_delayed_work(v->pool->wq, &v->destage, VC_DESTAGE_TICK);
}

/**
 * vcache_destage_now - look now whether something has to be destaged
 * @v: the volume
 */
void vcache_destage_now(struct vcache_volume *v)
{
	if (!READ_ONCE(v->stopped))
		mod_delayed_work(v->pool->wq, &v->destage, 0);
}

static void vc_volume_destage(struct vcache_volume *v)
{
	struct vcache_log *log;
	bool dirty = false, more;

	vcache_bad_retry(v);
	/* Not in a pass: logs that have only bad blocks would keep one another going. */
	if (!v->failing) {
		list_for_each_entry_lockless(log, &v->logs, node)
			log->passed = 0;
	}
	do {
		v->progress = false;
		more = vc_destage_pass(v);
		if (!more)
			WRITE_ONCE(v->bad_only, v->nbad && !v->progress);
		wake_up(&v->idle);
	} while (more);
	if (READ_ONCE(v->stopped))
		return;
	list_for_each_entry_lockless(log, &v->logs, node)
		dirty |= vcache_log_dirty_chunks(log);
	/* If nothing is dirty, what the origin refused has been discarded. */
	if (!dirty) {
		WRITE_ONCE(v->failing, false);
		vcache_bad_clear(v);
	} else {
		queue_delayed_work(v->pool->wq, &v->destage, v->failing ?
				   VC_RETRY_DELAY : VC_DESTAGE_TICK);
	}
}

/**
 * vc_destage_work - destage a volume
 * @work: vcache_volume.destage
 */
static void vc_destage_work(struct work_struct *work)
{
	struct vcache_volume *v = container_of(to_delayed_work(work),
					       struct vcache_volume, destage);

	WRITE_ONCE(v->destaging, true);
	smp_mb(); /* pairs with vcache_volume_stop() */
	vc_volume_destage(v);
	/* Pairs with vcache_volume_is_busy(). */
	smp_store_release(&v->destaging, false);
	wake_up(&v->idle);
}

/**
 * vcache_destage_init - prepare a volume for destage
 * @v: the volume, new
 */
void vcache_destage_init(struct vcache_volume *v)
{
	v->most = VC_ROUND_FIRST;
	vcache_destage_limits_init(v);
	vcache_flight_init(v);
	vcache_bad_init(v);
	INIT_DELAYED_WORK(&v->destage, vc_destage_work);
}
