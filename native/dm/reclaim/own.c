// SPDX-License-Identifier: GPL-2.0-only
/*
 * dm-vcache: space in the dedicated lanes of a log, see lane.c.
 *
 * No other log takes chunks there, so there is nothing to share out. While the log may take
 * chunks of the shared lanes, its dedicated lanes may be full. When it may not, a tenth of
 * the dedicated chunks is kept free (vc_own_reserve()), so that no writer of the log waits
 * while it has clean chunks. Empty chunks are always reclaimed. Otherwise hot blocks would
 * be placed in the shared lanes although there is space here.
 *
 * vcache_log_victim() chooses the chunk, as in shared lanes, but only from this log. Written
 * chunks are reclaimed from the oldest on. The oldest one may be in a shared lane; then it
 * is reclaimed, and the next one, until a chunk of the dedicated lanes is free.
 *
 * A lane that becomes dedicated may have chunks of other logs. These foreign chunks are
 * reclaimed a few at a time. Dirty ones are destaged first.
 */
#include "internal.h"

/* Chunks reclaimed for one log in a run, because others want the lock, too. */
#define VC_OWN_BATCH 16U

/* Foreign chunks reclaimed in one run. */
#define VC_FOREIGN_BATCH 4U

static u32 vc_own_relocate_reserve(const struct vcache_log *log)
{
	return vcache_relocate_reserve(READ_ONCE(log->own_size));
}

/* Chunks that are kept free for writers: a tenth; at least one beside those to relocate. */
static u32 vc_own_reserve(const struct vcache_log *log)
{
	return max(READ_ONCE(log->own_size) / 10, vc_own_relocate_reserve(log) + 1);
}

/* Can a log get one more chunk in the shared lanes? */
static bool vc_own_may_do_without(const struct vcache_log *log)
{
	const struct vcache_pool *p = log->vol->pool;

	return vcache_log_may_grow(p, log) &&
	       READ_ONCE(p->nfree) > vcache_pool_relocate_reserve(p);
}

/**
 * vcache_own_is_short - are too few chunks free in the dedicated lanes of a log?
 * @log: the log
 *
 * Not while it can get more in the shared lanes.
 */
bool vcache_own_is_short(const struct vcache_log *log)
{
	const struct vcache_pool *p = log->vol->pool;
	u64 lanes = READ_ONCE(log->lanes);

	return lanes && vcache_lanes_free(p, lanes) < vc_own_reserve(log) &&
	       !vc_own_may_do_without(log);
}

/**
 * vcache_own_is_urgent - are so few dedicated chunks free that cached blocks must be dropped?
 * @log: the log
 *
 * As in the shared lanes, that is so with less than half of the reserve. If the reserve is
 * small, it is also so as long as a writer would get no chunk.
 */
bool vcache_own_is_urgent(const struct vcache_log *log)
{
	u32 nfree = vcache_lanes_free(log->vol->pool, READ_ONCE(log->lanes));

	return nfree < max(vc_own_reserve(log) / 2, vc_own_relocate_reserve(log) + 1);
}

/**
 * vcache_own_has_space - may a log have one more read chunk in its dedicated lanes?
 * @log: the log
 */
bool vcache_own_has_space(const struct vcache_log *log)
{
	return vcache_lanes_free(log->vol->pool, log->lanes) > vc_own_reserve(log) &&
	       vcache_log_has(log, VC_OWN) < READ_ONCE(log->own_most);
}

/**
 * vcache_own_may_take - may a log take a chunk in its dedicated lanes?
 * @p: the pool; its free lists are locked
 * @log: the log, locked
 * @take: what for
 */
bool vcache_own_may_take(const struct vcache_pool *p, const struct vcache_log *log,
			 enum vcache_take take)
{
	u32 nfree = log->lanes ? vcache_lanes_free(p, log->lanes) : 0;
	bool below = vcache_log_has(log, VC_OWN) < READ_ONCE(log->own_most);

	lockdep_assert_held(&p->free_lock);
	lockdep_assert_held(&log->lock);
	if (nfree <= (take == VC_TAKE_RELOCATE ? 0 : vc_own_relocate_reserve(log)))
		return false;
	switch (take) {
	case VC_TAKE_WRITE:
		return below || log->nr < VC_CHUNKS_MIN;
	case VC_TAKE_READ:
		/*
		 * If the log may not grow in the shared lanes either, it gets one chunk of
		 * the reserve. That makes the lanes short, so another chunk is reclaimed.
		 * Without it nothing would be reclaimed, and no block promoted.
		 */
		return below && nfree + !vc_own_may_do_without(log) >
				vc_own_reserve(log);
	case VC_TAKE_KEEP:
		return below && nfree > vc_own_reserve(log);
	case VC_TAKE_PREFETCH:
		/* It may not bring the log to its maximum, where another chunk is reclaimed. */
		return vcache_log_has(log, VC_OWN) + 1 < READ_ONCE(log->own_most) &&
		       nfree > vc_own_reserve(log);
	default:
		/* To keep or relocate blocks frees more chunks than it takes. */
		return true;
	}
}

/* Has a log no more chunks in lanes of this kind than its maximum, less one? */
static bool vc_log_is_within(const struct vcache_log *log, enum vcache_domain domain)
{
	return READ_ONCE(log->nr) <= VC_CHUNKS_MIN ||
	       vcache_log_has(log, domain) <= (domain == VC_OWN ? READ_ONCE(log->own_most) :
								  READ_ONCE(log->most));
}

/**
 * vcache_log_may_write - is there a chunk for a writer, beside those for relocation?
 * @log: the log
 *
 * What a log has above vcache_log.most was taken for blocks that are relocated or kept. If the
 * writer filled that, relocation would take one more chunk each time, whatever the maximum. What
 * it has by relocation above its share, it may fill in its turn, see vcache_log_yields().
 *
 * A log with dedicated lanes does not wait for what happens in the shared ones.
 */
bool vcache_log_may_write(const struct vcache_log *log)
{
	const struct vcache_pool *p = log->vol->pool;
	u64 lanes = READ_ONCE(log->lanes);

	if (lanes && vcache_lanes_free(p, lanes) >= vc_own_relocate_reserve(log) &&
	    vc_log_is_within(log, VC_OWN))
		return true;
	return (!lanes || READ_ONCE(log->most)) && vc_log_is_within(log, VC_SHARED) &&
	       !vcache_log_yields(log) && READ_ONCE(p->nfree) >= vcache_pool_relocate_reserve(p);
}

/* Reclaim empty chunks until there is space for a read chunk. Return: there are more. */
static bool vc_own_sweep(struct vcache_pool *p, struct vcache_log *log)
{
	u32 left = VC_OWN_BATCH;
	struct vcache_chunk *c;

	while (!vcache_own_has_space(log)) {
		c = vcache_log_empty_chunk(log, VC_OWN);
		if (!c)
			return false;
		if (!left-- || vcache_chunk_reclaim(p, c, VC_RECLAIM_ALL))
			return true;
	}
	return false;
}

/* Reclaim or relocate chunks until enough are free. Return: there is more to do. */
static bool vc_log_make_own_space(struct vcache_pool *p, struct vcache_log *log,
				  unsigned long end)
{
	u32 left = VC_OWN_BATCH;
	struct vcache_chunk *c;

	while (vcache_own_is_short(log)) {
		if (!left-- || time_after(jiffies, end))
			return true;
		c = vcache_log_empty_chunk(log, VC_OWN) ?: vcache_log_victim(log, VC_OWN);
		if (c) {
			int r = vcache_chunk_reclaim(p, c, VC_RECLAIM_KEEP);

			if (r)
				return r == -EAGAIN;
		} else {
			c = vcache_relocate_candidate(log, VC_OWN);
			if (!c) {
				WRITE_ONCE(log->own_short, true);
				return false;
			}
			if (!vcache_relocate_chunk(log, c))
				return true;
		}
		cond_resched();
	}
	WRITE_ONCE(log->own_short, false);
	return false;
}

/*
 * Reclaim a chunk above a log's maximum in its dedicated lanes; if none is reclaimable,
 * relocate one. Return: there is more to do.
 */
static bool vc_log_deflate_own(struct vcache_pool *p, struct vcache_log *log)
{
	struct vcache_chunk *c;

	if (vcache_log_has(log, VC_OWN) < log->own_most)
		return false;
	c = vcache_log_empty_chunk(log, VC_OWN) ?: vcache_log_victim(log, VC_OWN);
	if (c)
		return !vcache_chunk_reclaim(p, c, VC_RECLAIM_KEEP);
	c = vcache_relocate_candidate(log, VC_OWN);
	return c && vcache_relocate_chunk(log, c);
}

/**
 * vcache_own_make_space - reclaim chunks in the dedicated lanes of all logs
 * @p: the pool, locked
 * @end: stop at this time, jiffies
 *
 * Return: there is more to do.
 */
bool vcache_own_make_space(struct vcache_pool *p, unsigned long end)
{
	struct vcache_volume *v;
	struct vcache_log *log;
	bool more = false;

	lockdep_assert_held(&p->lock);
	list_for_each_entry(v, &p->volumes, node) {
		list_for_each_entry(log, &v->logs, node) {
			if (!log->lanes) {
				WRITE_ONCE(log->own_short, false);
				continue;
			}
			more |= vc_log_deflate_own(p, log);
			more |= vc_own_sweep(p, log);
			more |= vc_log_make_own_space(p, log, end);
		}
	}
	return more;
}

/* Reclaim foreign chunks of a dedicated lane. Return: how many are still there. */
static u32 vc_own_clear_lane(struct vcache_pool *p, const struct vcache_lane *l,
			     struct vcache_clearing *by)
{
	u32 first = max(l->first, p->g.first_chunk);
	u32 i, end = min(l->end, p->g.chunks), foreign = 0;

	vcache_pool_clear(p, first, end, l->owner, by);
	for (i = first; i < end; i++) {
		struct vcache_log *log = READ_ONCE(p->chunk[i].log);

		if (!vcache_chunk_used(&p->chunk[i]) || log == l->owner)
			continue;
		foreign++;
		if (log)
			WRITE_ONCE(log->misplaced, log->misplaced + 1);
	}
	return foreign;
}

/**
 * vcache_own_clear - reclaim foreign chunks: those of other logs in dedicated lanes
 * @p: the pool, locked
 */
void vcache_own_clear(struct vcache_pool *p)
{
	struct vcache_clearing by = { .left = VC_FOREIGN_BATCH };
	u32 i, n, foreign = 0;
	struct vcache_volume *v;
	struct vcache_log *log;

	lockdep_assert_held(&p->lock);
	list_for_each_entry(v, &p->volumes, node) {
		list_for_each_entry(log, &v->logs, node) {
			WRITE_ONCE(log->own_foreign, 0);
			WRITE_ONCE(log->misplaced, 0);
		}
	}
	for (i = 0; i < p->nlanes; i++) {
		struct vcache_lane *l = &p->lane[i];

		if (!l->owner)
			continue;
		n = vc_own_clear_lane(p, l, &by);
		WRITE_ONCE(l->owner->own_foreign, l->owner->own_foreign + n);
		foreign += n;
	}
	WRITE_ONCE(p->foreign, foreign);
	if (foreign)
		vcache_pool_clear_again(p, &by);
}
