// SPDX-License-Identifier: GPL-2.0-only
/*
 * dm-vcache: the open chunk of a log: opened, filled, closed, sealed.
 *
 * When the open chunk is full, the log takes the next one, and a seal to collect its
 * entries. A closed chunk is sealed when its last record is complete. A writer that finds
 * no chunk, or no seal, is woken when there is one.
 */
#include "internal.h"

/* Note whether the writer of a log waits. Called with the lock of the log held. */
static void vc_log_set_starved(struct vcache_log *log, bool starved)
{
	lockdep_assert_held(&log->lock);
	if (starved && !log->starved)
		vcache_pace_stop(&log->pace, ktime_get_ns());
	else if (!starved && log->starved)
		vcache_pace_go(&log->pace, ktime_get_ns());
	WRITE_ONCE(log->starved, starved);
}

/**
 * vcache_log_kick - wake the workers of all tags that write to a log
 * @log: the log
 *
 * A removed tag may have a successor.
 */
void vcache_log_kick(struct vcache_log *log)
{
	struct vcache_tag *user, *tag;

	rcu_read_lock();
	user = rcu_dereference(log->user);
	if (user) {
		list_for_each_entry_rcu(tag, &user->dev->tags, node) {
			if (READ_ONCE(tag->log) == log)
				queue_work(tag->dev->wq, &tag->work);
		}
	}
	rcu_read_unlock();
}

/**
 * vcache_log_wake - wake the writer of a log: there is a chunk or a seal for it
 * @log: the log
 */
void vcache_log_wake(struct vcache_log *log)
{
	unsigned long flags;
	bool starved;

	spin_lock_irqsave(&log->lock, flags);
	starved = log->starved;
	vc_log_set_starved(log, false);
	spin_unlock_irqrestore(&log->lock, flags);
	if (starved)
		vcache_log_kick(log);
}

static void vc_sealing_done(struct vcache_log *log, struct vcache_sealing *s)
{
	unsigned long flags;

	spin_lock_irqsave(&log->lock, flags);
	s->chunk->sealing = NULL;
	s->chunk->state = VC_CHUNK_SEALED;
	if (!atomic_read(&s->chunk->live))
		WRITE_ONCE(log->emptied, true);
	list_move_tail(&s->node, &log->seals);
	spin_unlock_irqrestore(&log->lock, flags);
	vcache_log_wake(log);
	if (!READ_ONCE(log->vol->stopped))
		mod_delayed_work(log->vol->pool->wq, &log->vol->destage, 0);
	/* A reclaim may wait for the seal, see reseal.c. */
	vcache_space_kick(log->vol->pool);
	wake_up(&log->vol->idle);
}

/* Write a seal. If that fails recovery reads the records of the chunk, which is slower. */
static void vc_seal_write(struct vcache_log *log, struct vcache_sealing *s)
{
	struct vcache_pool *p = log->vol->pool;
	u32 chunk = vcache_chunk_nr(p, s->chunk);
	struct vcache_log_info info = {
		.gen = s->chunk->gen, .seq = s->seq ?: s->chunk->gen,
		.volume = log->vol->id, .chunk = chunk, .tag = log->tag,
		.revision = 1,
	};

	vcache_seal_copies(&p->g, s->data, s->nr, &info);
	if (!s->chunk->failed &&
	    p->store.write(p, (u64)chunk * p->g.chunk_blocks +
			   vcache_chunk_capacity(&p->g),
			   VC_SEAL_COPIES * p->g.seal_blocks, s->data))
		DMWARN_LIMIT("%s: the seal of chunk %u cannot be written",
			     dm_device_name(p->md), chunk);
	atomic64_add(VC_SEAL_COPIES * p->g.seal_blocks, &log->counts.record);
	vc_sealing_done(log, s);
}

/**
 * vcache_seal_work - write the seals of chunks whose records are complete
 * @work: vcache_log.seal_work
 */
void vcache_seal_work(struct work_struct *work)
{
	struct vcache_log *log = container_of(work, struct vcache_log, seal_work);
	struct vcache_sealing *s;

	for (;;) {
		spin_lock_irq(&log->lock);
		s = list_first_entry_or_null(&log->closed, struct vcache_sealing,
					     node);
		if (s)
			list_del_init(&s->node);
		spin_unlock_irq(&log->lock);
		if (!s)
			break;
		vc_seal_write(log, s);
	}
}

/**
 * vcache_chunk_put_pending - drop a reference in vcache_chunk.pending
 * @log: its log
 * @c: the chunk
 *
 * Called when a record of the chunk is complete, and when the chunk is closed. The last
 * one queues the seal.
 */
void vcache_chunk_put_pending(struct vcache_log *log, struct vcache_chunk *c)
{
	unsigned long flags;

	if (!atomic_dec_and_test(&c->pending))
		return;
	spin_lock_irqsave(&log->lock, flags);
	list_add_tail(&c->sealing->node, &log->closed);
	spin_unlock_irqrestore(&log->lock, flags);
	queue_work(log->vol->pool->wq, &log->seal_work);
}

/**
 * vcache_log_close - close the open chunk
 * @log: the log, its append lock is held
 */
void vcache_log_close(struct vcache_log *log)
{
	struct vcache_chunk *c = log->open;

	lockdep_assert_held(&log->append);
	if (!c)
		return;
	WRITE_ONCE(log->open, NULL);
	WRITE_ONCE(c->state, VC_CHUNK_CLOSED);
	vcache_chunk_put_pending(log, c);
}

/* Writers are held up while the log is drained: otherwise the drain might never end. */
static bool vc_log_held_up(struct vcache_log *log)
{
	return READ_ONCE(log->vol->drain) && log->dirty >= VC_DRAIN_CHUNKS;
}

/* Take the chunk to write next; NULL if there is none. The lock of the log is held. */
static struct vcache_chunk *vc_log_next(struct vcache_log *log, enum vcache_append_kind kind)
{
	struct vcache_chunk *c;

	lockdep_assert_held(&log->lock);
	if (kind != VC_APPEND_RELOCATE && vc_log_held_up(log))
		return NULL;
	c = log->spare;
	WRITE_ONCE(log->spare, NULL);
	return c ?: vcache_log_upper->take_chunk(log->vol->pool, log,
				  kind == VC_APPEND_RELOCATE ? VC_TAKE_RELOCATE :
				  VC_TAKE_WRITE, VC_OWN);
}

/**
 * vcache_chunk_open - begin to fill a chunk
 * @log: its log, locked
 * @c: the chunk, a spare one
 *
 * The caller holds a reference in vcache_chunk.pending, which keeps the chunk open until
 * vcache_chunk_put_pending() or vcache_reads_put_pending().
 */
void vcache_chunk_open(struct vcache_log *log, struct vcache_chunk *c)
{
	lockdep_assert_held(&log->lock);
	c->log = log;
	c->failed = false;
	c->stale = false;
	c->discards = false;
	c->wanted = false;
	c->warm = false;
	c->unread_until = 0;
	c->since = jiffies;
	c->state = VC_CHUNK_OPEN;
	atomic_set(&c->live, 0);
	atomic_set(&c->dirty, 0);
	atomic_set(&c->pending, 1);
}

/**
 * vcache_log_gets_dirty - a chunk of a log is not clean any more
 * @log: the log, locked
 * @c: the chunk
 */
void vcache_log_gets_dirty(struct vcache_log *log, struct vcache_chunk *c)
{
	lockdep_assert_held(&log->lock);
	if (!log->dirty || time_before(c->since, log->dirty_since))
		WRITE_ONCE(log->dirty_since, c->since);
	WRITE_ONCE(log->dirty, log->dirty + 1);
}

/**
 * vcache_log_gets_clean - a chunk of a log has become clean, or is reclaimed
 * @log: the log, locked
 * @c: the chunk, still in the list of the log
 *
 * If it was the oldest one, the next one that is not clean is the oldest now. Chunks become clean
 * in about this order, so it is near.
 */
void vcache_log_gets_clean(struct vcache_log *log, struct vcache_chunk *c)
{
	struct vcache_chunk *next = c;

	lockdep_assert_held(&log->lock);
	WRITE_ONCE(log->dirty, log->dirty - 1);
	if (!log->dirty || time_after(c->since, log->dirty_since))
		return;
	list_for_each_entry_continue(next, &log->chunks, node) {
		if (next->clean)
			continue;
		WRITE_ONCE(log->dirty_since, next->since);
		return;
	}
}

/* Open the next chunk. Return: false if there is no chunk, or no seal, yet. */
static bool vc_log_open(struct vcache_log *log, enum vcache_append_kind kind)
{
	struct vcache_pool *p = log->vol->pool;
	struct vcache_chunk *c = NULL;
	struct vcache_sealing *s;
	bool others = false, reserved;
	unsigned long flags;

	spin_lock_irqsave(&log->lock, flags);
	s = list_first_entry_or_null(&log->seals, struct vcache_sealing, node);
	reserved = log->spare;
	if (s)
		c = vc_log_next(log, kind);
	/* Relocation does not change whether the writer waits. */
	if (kind != VC_APPEND_RELOCATE) {
		others = c && log->starved;
		vc_log_set_starved(log, !c);
		if (c) {
			WRITE_ONCE(log->served, atomic64_inc_return(&p->opens));
			vcache_pace_next(log, reserved);
		}
	}
	if (c) {
		list_del_init(&s->node);
		memset(s->data, 0, vcache_seal_bytes(&p->g));
		s->nr = 0;
		s->seq = 0;
		s->chunk = c;
		c->sealing = s;
		c->gen = atomic64_inc_return(&p->seq);
		c->clean = vcache_append_is_clean(kind);
		vcache_chunk_open(log, c);
		list_add_tail(&c->node, &log->chunks);
		WRITE_ONCE(log->nr, log->nr + 1);
		WRITE_ONCE(log->nr_own, log->nr_own + c->own);
		if (!c->clean)
			vcache_log_gets_dirty(log, c);
		WRITE_ONCE(log->open, c);
		WRITE_ONCE(log->by_relocation, kind == VC_APPEND_RELOCATE && !reserved);
		log->at = 0;
	}
	spin_unlock_irqrestore(&log->lock, flags);
	/* The writer that waits may be another one than the caller. */
	if (others)
		vcache_log_kick(log);
	/* Who relocates is what would be woken. */
	if (c || kind != VC_APPEND_RELOCATE)
		vcache_space_kick(p);
	return c;
}

/* Must the open chunk be closed before the next record? */
static bool vc_log_full(struct vcache_log *log, bool clean)
{
	struct vcache_pool *p = log->vol->pool;
	struct vcache_chunk *c = log->open;

	return READ_ONCE(c->stale) || READ_ONCE(c->failed) ||
	       c->clean != clean || log->at + 2 > vcache_chunk_capacity(&p->g) ||
	       c->sealing->nr == vcache_seal_capacity(&p->g);
}

/*
 * Relocation needs at most one more chunk to free one, if no writer fills that. So writers
 * wait while the chunks reserved for relocation are in use, and while the log has more
 * chunks than its maximum because of it. They also wait while the writer of another log is the
 * next to get a chunk: otherwise a log that is relocated would use up what that gains, and the
 * others would get nothing.
 */
static bool vc_log_hold(struct vcache_log *log)
{
	struct vcache_pool *p = log->vol->pool;
	unsigned long flags;

	if (vcache_log_upper->may_write(log))
		return false;
	spin_lock_irqsave(&log->lock, flags);
	vc_log_set_starved(log, true);
	log->held = true;
	spin_unlock_irqrestore(&log->lock, flags);
	vcache_space_kick(p);
	return true;
}

/* A writer goes on in a chunk that relocation has opened: that is its turn. */
static void vc_log_adopt(struct vcache_log *log)
{
	unsigned long flags;

	lockdep_assert_held(&log->append);
	spin_lock_irqsave(&log->lock, flags);
	WRITE_ONCE(log->by_relocation, false);
	WRITE_ONCE(log->served, atomic64_inc_return(&log->vol->pool->opens));
	spin_unlock_irqrestore(&log->lock, flags);
}

/**
 * vcache_log_space - how many data blocks can the next record have?
 * @log: the log, its append lock is held
 * @kind: kind of the record; a chunk has only clean records, or only others
 *
 * Opens a chunk if there is none.
 *
 * Return: 0 if there is no chunk.
 */
u32 vcache_log_space(struct vcache_log *log, enum vcache_append_kind kind)
{
	struct vcache_pool *p = log->vol->pool;
	u32 space;

	lockdep_assert_held(&log->append);
	if (kind != VC_APPEND_RELOCATE && vc_log_hold(log))
		return 0;
	if (log->open && vc_log_full(log, vcache_append_is_clean(kind)))
		vcache_log_close(log);
	if (!log->open && !vc_log_open(log, kind))
		return 0;
	if (kind != VC_APPEND_RELOCATE && log->by_relocation)
		vc_log_adopt(log);
	space = min(vcache_chunk_capacity(&p->g) - log->at - 1,
		    vcache_seal_capacity(&p->g) - log->open->sealing->nr);
	return min(space, VC_RECORD_MAX);
}

/**
 * vcache_log_close_idle - close the open chunk of a log, unless a record is being written
 * @log: the log
 *
 * A chunk must be closed before it can be reclaimed, or sealed again.
 */
void vcache_log_close_idle(struct vcache_log *log)
{
	if (!mutex_trylock(&log->append))
		return;
	if (log->open && log->at)
		vcache_log_close(log);
	mutex_unlock(&log->append);
}
