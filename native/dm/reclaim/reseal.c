// SPDX-License-Identifier: GPL-2.0-only
/*
 * dm-vcache: sealing chunks again, before a chunk is reclaimed whose records supersede
 * entries of them.
 *
 * If that fails, the records of the other log would become valid again. So that log gives
 * up the chunk and all older ones: they are destaged and reclaimed. Until then no chunk of
 * the volume's other logs can be reclaimed; other volumes do not notice.
 *
 * Two logs that give up chunks would wait for each other. So all logs of the volume give up
 * their chunks up to the newest one that cannot be sealed. One write of the volume's slot
 * makes these chunks dead, all at once.
 */
#include "internal.h"

/* Find the newest stale chunk of a log, or NULL. */
static struct vcache_chunk *vc_log_stale(struct vcache_log *log)
{
	struct vcache_chunk *c, *stale = NULL;

	spin_lock_irq(&log->lock);
	list_for_each_entry_reverse(c, &log->chunks, node) {
		if (READ_ONCE(c->stale)) {
			stale = c;
			break;
		}
	}
	spin_unlock_irq(&log->lock);
	return stale;
}

/* Seal a chunk again, without superseded entries. Return: 0 or a negative errno. */
static int vc_chunk_reseal(struct vcache_pool *p, struct vcache_chunk *c)
{
	int r = vcache_chunk_reseal(&p->store, &p->g, &p->ix, vcache_chunk_nr(p, c),
				    c->gen, p->work);

	/* Its first record has failed: there is nothing to seal. */
	return r == -EBADMSG && !atomic_read(&c->live) ? 0 : r;
}

/* Seal a stale chunk again. Return: 0 or a negative errno. */
static int vc_chunk_refresh(struct vcache_pool *p, struct vcache_chunk *c)
{
	int r;

	VCACHE_PROBE("stale chunk sealed again");
	WRITE_ONCE(c->stale, false);
	smp_mb(); /* a cell is emptied before its chunk becomes stale again */
	r = vc_chunk_reseal(p, c);
	if (r)
		WRITE_ONCE(c->stale, true);
	return r;
}

/* A chunk cannot be sealed again: it and all older ones of its log have to go. */
static void vc_log_give_up(struct vcache_log *log, struct vcache_chunk *c, int error)
{
	struct vcache_volume *v = log->vol;

	if (log->unsealed < c->gen)
		DMWARN("%s: volume %u tag %u: cannot seal chunk %u again: error %d; giving it up",
		       dm_device_name(v->pool->md), v->id, log->tag,
		       vcache_chunk_nr(v->pool, c), error);
	VCACHE_PROBE("log gives up a chunk");
	WRITE_ONCE(log->unsealed, max(log->unsealed, c->gen));
	if (!v->stopped && v->pool->state == VC_POOL_OK)
		mod_delayed_work(v->pool->wq, &v->destage, 0);
}

/*
 * Seal the stale chunks of a log again, and all older ones: an entry that is dropped from
 * a seal may have hidden an older one. Chunks up to generation @behind need no seal. Chunks leave
 * the list only under the lock of the pool, which is held.
 */
static int vc_log_refresh(struct vcache_pool *p, struct vcache_log *log, u64 behind)
{
	struct vcache_chunk *c, *last = vc_log_stale(log);
	int r = 0;

	lockdep_assert_held(&p->lock);
	if (!last || last->gen <= behind)
		return 0;
	list_for_each_entry(c, &log->chunks, node) {
		if (c->gen <= behind)
			continue;
		/*
		 * It is tried again when the chunk has its first seal. That is written with all
		 * entries, even if it is late because the origin has not got its data.
		 */
		if (READ_ONCE(c->state) != VC_CHUNK_SEALED) {
			vcache_log_close_idle(log);
			return -EAGAIN;
		}
		r = vc_chunk_refresh(p, c);
		if (r)
			vc_log_give_up(log, c, r);
		if (r || c == last)
			break;
	}
	return r;
}

/**
 * vcache_reseal_others - drop what the records of a log supersede from the seals of other logs
 * @p: the pool, locked
 * @v: the volume
 * @log: the log, or NULL for all logs that are forgotten
 *
 * When a chunk of @log is reclaimed, its records are gone, and what they supersede must not
 * become valid again. See rule 2 in ../core/format.h. Logs that are forgotten need no seals.
 *
 * Return: 0; -EAGAIN if a chunk has no seal yet; another negative errno.
 */
int vcache_reseal_others(struct vcache_pool *p, struct vcache_volume *v,
			 const struct vcache_log *log)
{
	struct vcache_log *other;
	int r = 0;

	lockdep_assert_held(&p->lock);
	list_for_each_entry(other, &v->logs, node) {
		if (other != log && !other->forgotten)
			r = vc_log_refresh(p, other, 0) ?: r;
	}
	return r;
}

/**
 * vcache_reseal_older - drop what a chunk supersedes from the seals of older ones of its log
 * @p: the pool, locked
 * @c: a chunk that is reclaimed
 *
 * There are older ones if the cache device cannot read them. What @c supersedes in them must not
 * become valid again, unless that is superseded otherwise: see rule 1 in ../core/format.h. A
 * chunk that is stale stays so: that concerns the records of other logs.
 *
 * Return: 0; -EAGAIN if an older chunk has no seal yet; another negative errno.
 */
int vcache_reseal_older(struct vcache_pool *p, struct vcache_chunk *c)
{
	struct vcache_chunk *older;
	int r = 0;

	lockdep_assert_held(&p->lock);
	if (vcache_chunk_is_empty(c))
		return 0;
	list_for_each_entry(older, &c->log->chunks, node) {
		if (older == c || r)
			break;
		VCACHE_PROBE("chunk reclaimed behind one that cannot be read");
		r = READ_ONCE(older->state) == VC_CHUNK_SEALED ? vc_chunk_reseal(p, older) :
								 -EAGAIN;
	}
	return r;
}

/* Reclaim the chunks that a log gives up, as far as they are clean. */
static void vc_log_reclaim_unsealed(struct vcache_log *log)
{
	struct vcache_volume *v = log->vol;
	struct vcache_chunk *c, *first;

	for (;;) {
		spin_lock_irq(&log->lock);
		first = list_first_entry_or_null(&log->chunks, struct vcache_chunk,
						 node);
		c = vcache_log_oldest(log);
		spin_unlock_irq(&log->lock);
		if (!c || c->gen > log->unsealed)
			break;
		if (!vcache_pool_reclaim(v->pool, c))
			return;
		cond_resched();
	}
	if (first && first->gen <= log->unsealed)
		return;
	WRITE_ONCE(log->unsealed, 0);
	list_for_each_entry(log, &v->logs, node)
		WRITE_ONCE(log->blocked_until, jiffies);
}

/* Up to which generation do several logs of a volume give up chunks? 0: at most one does. */
static u64 vc_volume_unsealed(struct vcache_volume *v)
{
	struct vcache_log *log;
	unsigned int n = 0;
	u64 gen = 0;

	list_for_each_entry(log, &v->logs, node) {
		n += !!log->unsealed;
		gen = max(gen, log->unsealed);
	}
	return n > 1 ? gen : 0;
}

/*
 * Give up all chunks of a log up to a generation. Return: 0 if all of them are sealed and clean;
 * -EAGAIN.
 */
static int vc_log_give_up_to(struct vcache_log *log, u64 gen)
{
	struct vcache_chunk *c, *open;
	bool ready = true;
	u64 newest = 0;

	/* The writer may have closed it, then it is in the list. */
	open = READ_ONCE(log->open);
	if (open && READ_ONCE(open->gen) <= gen) {
		vcache_log_close_idle(log);
		return -EAGAIN;
	}
	spin_lock_irq(&log->lock);
	list_for_each_entry(c, &log->chunks, node) {
		if (c->gen > gen)
			continue;
		newest = max(newest, c->gen);
		ready &= c->state == VC_CHUNK_SEALED && !atomic_read(&c->dirty);
	}
	spin_unlock_irq(&log->lock);
	WRITE_ONCE(log->unsealed, max(log->unsealed, newest));
	return ready ? 0 : -EAGAIN;
}

/*
 * Make all chunks of a volume up to a generation dead, when they are clean. What they supersede
 * in newer chunks is removed there first: it must not become valid again. The older ones of
 * these chunks become invalid together, so none of them needs a seal. Return: 0 or a negative
 * errno.
 */
static int vc_volume_forget_to(struct vcache_volume *v, u64 gen)
{
	struct vcache_log *log;
	u64 floor = v->floor;
	int r = 0;

	if (floor > gen)
		return 0;
	list_for_each_entry(log, &v->logs, node)
		r = vc_log_give_up_to(log, gen) ?: r;
	list_for_each_entry(log, &v->logs, node)
		r = r ?: vc_log_refresh(v->pool, log, gen);
	r = r ?: vcache_volume_flush_origin(v);
	if (r)
		return r;
	VCACHE_PROBE("volume gives up chunks of several logs");
	v->floor = gen + 1;
	r = vcache_slot_save(v);
	if (r)
		v->floor = floor;
	list_for_each_entry(log, &v->logs, node)
		WRITE_ONCE(log->blocked_until, jiffies);
	return r;
}

/**
 * vcache_pool_give_up_unsealed - reclaim chunks that cannot be sealed again
 * @p: the pool, locked
 */
void vcache_pool_give_up_unsealed(struct vcache_pool *p)
{
	struct vcache_volume *v;
	struct vcache_log *log;

	lockdep_assert_held(&p->lock);
	list_for_each_entry(v, &p->volumes, node) {
		u64 gen = vc_volume_unsealed(v);
		int r = gen ? vc_volume_forget_to(v, gen) : 0;

		if (r) {
			vcache_space_retry(p);
			continue;
		}
		list_for_each_entry(log, &v->logs, node) {
			if (log->unsealed)
				vc_log_reclaim_unsealed(log);
		}
	}
}
