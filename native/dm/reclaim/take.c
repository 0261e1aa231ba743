// SPDX-License-Identifier: GPL-2.0-only
/*
 * dm-vcache: which logs get free chunks of the shared lanes. space.c says which logs give
 * chunks up; its first comment has the rules of both.
 */
#include "internal.h"

/**
 * vcache_pool_reserve - free shared chunks that are for logs below their share
 * @p: the pool
 *
 * A tenth; and at least one chunk for a writer beside those for relocation. And what elastic SSDs
 * wait for.
 */
u32 vcache_pool_reserve(const struct vcache_pool *p)
{
	return max(READ_ONCE(p->shared) / VC_COMMON_OF,
		   vcache_pool_relocate_reserve(p) + 1) + READ_ONCE(p->direct_wanted);
}

/**
 * vcache_pool_guaranteed_reserve - free chunks for logs below their guaranteed share
 * @p: the pool
 */
u32 vcache_pool_guaranteed_reserve(const struct vcache_pool *p)
{
	return max(vcache_pool_reserve(p) / 2, vcache_pool_relocate_reserve(p) + 1);
}

/**
 * vcache_log_may_grow - may a log have one more chunk of the shared lanes?
 * @p: the pool
 * @log: the log
 *
 * A log that has exactly its share may take the last chunk above the reserve. Then it is
 * above its share and gives up a chunk of its own. Otherwise it would wait until other
 * logs give up theirs.
 *
 * A log with dedicated lanes takes a shared chunk only if so many stay free that it need
 * not give one up at once. It might be unable to: written chunks are reclaimed from the
 * oldest on. The oldest one may be in a dedicated lane, where its reclaim frees no shared
 * chunk. As long as it stays, newer ones in shared lanes cannot be reclaimed.
 */
bool vcache_log_may_grow(const struct vcache_pool *p, const struct vcache_log *log)
{
	u32 has = vcache_log_has(log, VC_SHARED), share = READ_ONCE(log->share);

	if (READ_ONCE(log->reclaim_pending) && has > share)
		return false;
	if (has >= READ_ONCE(log->most))
		return false;
	if (has < READ_ONCE(log->guaranteed))
		return true;
	if (READ_ONCE(log->lanes))
		return READ_ONCE(p->nfree) >
		       vcache_pool_reserve(p) +
		       (has < share ? 0 : READ_ONCE(p->nusers) + 1);
	return READ_ONCE(p->nfree) + (has <= share) > vcache_pool_reserve(p) ||
	       (has < share && READ_ONCE(p->nfree) > vcache_pool_guaranteed_reserve(p));
}

/*
 * May a log have a chunk of the shared lanes for prefetched blocks? No request waits for
 * these blocks, so the chunk must not come from the reserve, below which logs within their
 * shares may have to give up chunks. If the log already has its share, the chunk must not
 * force this or any other log to give one up. And it must not bring the log to vcache_log.most,
 * where vc_pool_deflate() would reclaim one.
 */
static bool vc_log_may_prefetch(struct vcache_pool *p, struct vcache_log *log)
{
	u32 has = vcache_log_has(log, VC_SHARED), keep = vcache_pool_reserve(p);

	if (has >= READ_ONCE(log->share))
		keep += READ_ONCE(p->nusers) + 1;
	return has + 1 < READ_ONCE(log->most) && p->nfree > keep &&
	       !READ_ONCE(log->reclaim_pending);
}

/*
 * May a log take a chunk of the shared lanes for the purpose @take? Called with
 * vcache_pool.free_lock held.
 */
static bool vc_chunk_may_take(struct vcache_pool *p, struct vcache_log *log,
			      enum vcache_take take)
{
	lockdep_assert_held(&p->free_lock);
	/* The last ones are for relocation: without them only destage empties dirty chunks. */
	if (p->nfree <= (take == VC_TAKE_RELOCATE ? 0 : vcache_pool_relocate_reserve(p)))
		return false;
	switch (take) {
	case VC_TAKE_WRITE:
		return log->nr < VC_CHUNKS_MIN || vcache_log_may_grow(p, log);
	case VC_TAKE_READ:
	case VC_TAKE_KEEP_OWN:
		return vcache_log_may_grow(p, log);
	case VC_TAKE_PREFETCH:
		return vc_log_may_prefetch(p, log);
	default:
		/*
		 * To keep or relocate blocks frees more chunks than it takes. A log whose
		 * maximum in shared lanes is 0 would have to vacate the chunk again.
		 */
		return READ_ONCE(log->most);
	}
}

/* A log has taken a chunk: count what others, or the log itself, have lost for it. */
static void vc_chunk_count_gain(struct vcache_log *log, struct vcache_chunk *c)
{
	bool same = c->lost_tag == log->tag && c->lost_slot == log->vol->slot;

	atomic64_add(c->lost, same ? &log->counts.evicted_own : &log->counts.gained);
	c->lost = 0;
}

/**
 * vcache_chunk_take - take a free chunk for a log
 * @p: the pool
 * @log: the log, its lock is held
 * @take: what for
 * @first: preferred lanes; the others are tried if there is no chunk in these
 *
 * Return: the chunk; NULL if none is free, or the log has to leave it to others.
 */
struct vcache_chunk *vcache_chunk_take(struct vcache_pool *p, struct vcache_log *log,
				       enum vcache_take take, enum vcache_domain first)
{
	struct vcache_chunk *c = NULL;
	unsigned long flags;
	unsigned int i;

	lockdep_assert_held(&log->lock);
	spin_lock_irqsave(&p->free_lock, flags);
	for (i = 0; i < VC_DOMAINS && !c; i++) {
		bool own = i ? first == VC_SHARED : first == VC_OWN;

		if (own ? !vcache_own_may_take(p, log, take) :
			  !vc_chunk_may_take(p, log, take))
			continue;
		c = vcache_lane_get(p, own ? log : NULL);
		if (c) {
			c->own = own;
			vc_chunk_count_gain(log, c);
		}
	}
	spin_unlock_irqrestore(&p->free_lock, flags);
	return c;
}

/*
 * Does the writer of a log wait for a chunk of the shared lanes that it gets as soon as enough
 * are free? Not if it must give up chunks before, or if its volume is suspended: nobody may wait
 * for that.
 */
static bool vc_log_waits(const struct vcache_log *log)
{
	u32 has = vcache_log_has(log, VC_SHARED);

	return READ_ONCE(log->starved) && !READ_ONCE(log->lanes) && !READ_ONCE(log->spare) &&
	       !READ_ONCE(log->vol->failing) && !READ_ONCE(log->vol->stopped) &&
	       has < READ_ONCE(log->most) &&
	       !(READ_ONCE(log->reclaim_pending) && has > READ_ONCE(log->share));
}

/**
 * vcache_log_yields - must a writer leave what relocation has gained to others?
 * @log: the log
 *
 * Relocation takes chunks out of turn. Of a log above its share, only the relocated blocks go
 * there while the writer of another log waits that got its last chunk earlier.
 */
bool vcache_log_yields(const struct vcache_log *log)
{
	if (!READ_ONCE(log->by_relocation) || !READ_ONCE(log->open) ||
	    !vcache_log_is_over(log) ||
	    READ_ONCE(log->vol->pool->turn) >= READ_ONCE(log->served))
		return false;
	VCACHE_PROBE("writer leaves what relocation gains to others");
	return true;
}

/* May a writer that was held go on? Then it is held no longer. */
static bool vc_log_release(struct vcache_log *log)
{
	lockdep_assert_held(&log->lock);
	if (!log->held || !vcache_log_may_write(log))
		return false;
	log->held = false;
	return true;
}

/**
 * vcache_pool_take_turns - find out which waiting writer is the next to get a chunk
 * @p: the pool, locked
 *
 * Return: whether any writer is held.
 */
bool vcache_pool_take_turns(struct vcache_pool *p)
{
	struct vcache_volume *v;
	struct vcache_log *log;
	u64 turn = U64_MAX;
	bool held = false, wake;

	lockdep_assert_held(&p->lock);
	list_for_each_entry(v, &p->volumes, node) {
		list_for_each_entry(log, &v->logs, node) {
			if (vc_log_waits(log))
				turn = min(turn, READ_ONCE(log->served));
		}
	}
	WRITE_ONCE(p->turn, turn);
	list_for_each_entry(v, &p->volumes, node) {
		list_for_each_entry(log, &v->logs, node) {
			spin_lock_irq(&log->lock);
			wake = vc_log_release(log);
			held |= log->held;
			spin_unlock_irq(&log->lock);
			if (wake)
				vcache_log_wake(log);
		}
	}
	return held;
}

/* Reserve the next chunk of a log before a flush needs it. Return: whether there was one. */
static bool vc_log_reserve_spare(struct vcache_log *log)
{
	struct vcache_pool *p = log->vol->pool;
	bool took = false, wake = false;

	spin_lock_irq(&log->lock);
	if (!log->spare && rcu_access_pointer(log->user) &&
	    (log->starved || log->nr)) {
		WRITE_ONCE(log->spare, vcache_chunk_take(p, log, VC_TAKE_WRITE, VC_OWN));
		log->spare_since = ktime_get_ns();
		took = log->spare;
		/* If it had a spare chunk already, it waits for a seal, not for a chunk. */
		wake = log->spare && log->starved;
	}
	wake |= vc_log_release(log);
	spin_unlock_irq(&log->lock);
	if (wake)
		vcache_log_wake(log);
	return took;
}

/* Reserve spare chunks for the logs that are above their shares, or for the others. */
static bool vc_pool_reserve_spares(struct vcache_pool *p, bool over)
{
	struct vcache_volume *v;
	struct vcache_log *log;
	bool took = false;

	list_for_each_entry(v, &p->volumes, node) {
		list_for_each_entry(log, &v->logs, node) {
			if (vcache_log_is_over(log) == over)
				took |= vc_log_reserve_spare(log);
		}
	}
	return took;
}

/* Does a writer wait for the next chunk of a log, or is it slowed down for want of that? */
static bool vc_log_wants(const struct vcache_log *log)
{
	return READ_ONCE(log->starved) || (READ_ONCE(log->pace.delay) && !READ_ONCE(log->spare));
}

/* Of the logs that want a chunk, find the one that was served first later than @after. */
static struct vcache_log *vc_pool_next_to_serve(struct vcache_pool *p, bool over, u64 after)
{
	struct vcache_log *log, *next = NULL;
	struct vcache_volume *v;
	u64 served, first = U64_MAX;

	list_for_each_entry(v, &p->volumes, node) {
		list_for_each_entry(log, &v->logs, node) {
			served = READ_ONCE(log->served);
			if (!vc_log_wants(log) || vcache_log_is_over(log) != over ||
			    served <= after || served >= first)
				continue;
			next = log;
			first = served;
		}
	}
	return next;
}

/*
 * Give chunks to the logs that want one, in the order in which they got their last one. So a
 * log that is slowed down gets as many as one that is not.
 */
static bool vc_pool_serve(struct vcache_pool *p, bool over)
{
	struct vcache_log *log;
	bool took = false;
	u64 after = 0;

	while ((log = vc_pool_next_to_serve(p, over, after))) {
		after = READ_ONCE(log->served);
		took |= vc_log_reserve_spare(log);
	}
	return took;
}

/**
 * vcache_pool_give_spares - reserve spare chunks for logs, and wake writers that wait for one
 * @p: the pool, locked
 * @starved: only for logs whose writers wait, or are slowed down
 *
 * Logs below their shares come first, and writers that wait before others.
 *
 * Return: whether any log has got one.
 */
bool vcache_pool_give_spares(struct vcache_pool *p, bool starved)
{
	bool took = vc_pool_serve(p, false);

	lockdep_assert_held(&p->lock);
	took |= vc_pool_serve(p, true);
	/* Those who were held may go on at once: relocation takes some time. */
	vcache_pool_take_turns(p);
	if (starved)
		return took;
	took |= vc_pool_reserve_spares(p, false);
	return vc_pool_reserve_spares(p, true) || took;
}
