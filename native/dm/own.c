// SPDX-License-Identifier: GPL-2.0-only
/*
 * dm-vcache: room in lanes that a log has for itself, see lane.c.
 *
 * Nobody else takes chunks there, so there is nothing to share out. When the log can
 * have no more in shared lanes either, a few chunks are kept free, that no write has
 * to wait while something clean can go; and always, as long as there are chunks in
 * which nothing counts any more: else these would have what is hot go to shared ones.
 * What goes is what would go in shared lanes (vc_log_victim()), but for the log's own.
 * Its oldest chunk may be in a shared lane and in the way of those behind it: then that
 * goes, and the next, until one of its own lanes does.
 *
 * What others have in such a lane, from before, leaves: a few chunks at a time, what
 * is dirty when it is on its origin.
 */
#include "reads.h"

/* That a log had to wait for room here: others want the lock, too. */
#define VC_OWN_BATCH 16U

/* Foreign chunks reclaimed in one run. */
#define VC_FOREIGN_BATCH 4U

static u32 vc_own_relocate_reserve(const struct vc_log *log)
{
	return vc_relocate_reserve(READ_ONCE(log->own_size));
}

/* Chunks that are free for writers: with what is for relocation one at least. */
static u32 vc_own_reserve(const struct vc_log *log)
{
	return max(READ_ONCE(log->own_size) / 10, vc_own_relocate_reserve(log) + 1);
}

/* Can a log have one more chunk in the shared lanes? */
static bool vc_own_may_do_without(const struct vc_log *log)
{
	const struct vc_pool *p = log->vol->pool;

	return vc_log_may_grow(p, log) &&
	       READ_ONCE(p->nfree) > vc_pool_relocate_reserve(p);
}

/**
 * vc_own_is_short - are fewer chunks free in a log's own lanes than should be?
 * @log: the log
 *
 * None has to be while it can have more in the shared ones.
 */
bool vc_own_is_short(const struct vc_log *log)
{
	const struct vc_pool *p = log->vol->pool;
	u64 lanes = READ_ONCE(log->lanes);

	return lanes && vc_lanes_free(p, lanes) < vc_own_reserve(log) &&
	       !vc_own_may_do_without(log);
}

/**
 * vc_own_is_urgent - are so few chunks free in a log's own lanes that any has to go,
 *	be it with a loss?
 * @log: the log
 *
 * Half of what should be, as in shared lanes; but these may be few, so it does as well
 * while no writer gets one.
 */
bool vc_own_is_urgent(const struct vc_log *log)
{
	u32 nfree = vc_lanes_free(log->vol->pool, READ_ONCE(log->lanes));

	return nfree < max(vc_own_reserve(log) / 2, vc_own_relocate_reserve(log) + 1);
}

/**
 * vc_own_has_space - may a log have one more chunk of reads in its own lanes?
 * @log: the log
 */
bool vc_own_has_space(const struct vc_log *log)
{
	return vc_lanes_free(log->vol->pool, log->lanes) > vc_own_reserve(log) &&
	       vc_log_has(log, VC_OWN) < READ_ONCE(log->own_most);
}

/**
 * vc_own_may_take - may a log take a chunk in its own lanes?
 * @p: the pool; its free lists are locked
 * @log: the log, locked
 * @take: what for
 */
bool vc_own_may_take(const struct vc_pool *p, const struct vc_log *log,
		     enum vc_take take)
{
	u32 nfree = log->lanes ? vc_lanes_free(p, log->lanes) : 0;
	bool below = vc_log_has(log, VC_OWN) < READ_ONCE(log->own_most);

	if (nfree <= (take == VC_TAKE_RELOCATE ? 0 : vc_own_relocate_reserve(log)))
		return false;
	switch (take) {
	case VC_TAKE_WRITE:
		return below || log->nr < VC_CHUNKS_MIN;
	case VC_TAKE_READ:
		/*
		 * Where it can have no more anywhere it gets one of those that are kept
		 * free, and then its oldest goes: or nothing would, and nothing came.
		 */
		return below && nfree + !vc_own_may_do_without(log) >
				vc_own_reserve(log);
	case VC_TAKE_KEEP:
		return below && nfree > vc_own_reserve(log);
	case VC_TAKE_PREFETCH:
		/* Nor one for which it would have to give another. */
		return vc_log_has(log, VC_OWN) + 1 < READ_ONCE(log->own_most) &&
		       nfree > vc_own_reserve(log);
	default:
		/* It makes more of them free. */
		return true;
	}
}

/**
 * vc_log_may_write - is there a chunk for a writer, beside those for relocation?
 * @log: the log
 *
 * Who has lanes of its own does not wait for what happens in the shared ones.
 */
bool vc_log_may_write(const struct vc_log *log)
{
	const struct vc_pool *p = log->vol->pool;
	u64 lanes = READ_ONCE(log->lanes);

	if (lanes && vc_lanes_free(p, lanes) >= vc_own_relocate_reserve(log))
		return true;
	return (!lanes || READ_ONCE(log->most)) &&
	       READ_ONCE(p->nfree) >= vc_pool_relocate_reserve(p);
}

/* Let go what holds nothing, so that a chunk of reads has room. Return: there is more. */
static bool vc_own_sweep(struct vc_pool *p, struct vc_log *log)
{
	u32 left = VC_OWN_BATCH;
	struct vc_chunk *c;

	while (!vc_own_has_space(log)) {
		c = vc_log_empty_chunk(log, VC_OWN);
		if (!c)
			return false;
		if (!left-- || vc_chunk_reclaim(p, c, VC_RECLAIM_ALL))
			return true;
	}
	return false;
}

/* Return: there is more to do. */
static bool vc_log_make_own_space(struct vc_pool *p, struct vc_log *log,
				  unsigned long end)
{
	u32 left = VC_OWN_BATCH;
	struct vc_chunk *c;

	while (vc_own_is_short(log)) {
		if (!left-- || time_after(jiffies, end))
			return true;
		c = vc_log_empty_chunk(log, VC_OWN) ?: vc_log_victim(log, VC_OWN);
		if (c) {
			int r = vc_chunk_reclaim(p, c, VC_RECLAIM_KEEP);

			if (r)
				return r == -EAGAIN;
		} else {
			c = vc_relocate_candidate(log, VC_OWN);
			if (!c) {
				WRITE_ONCE(log->own_short, true);
				return false;
			}
			if (!vc_relocate_chunk(log, c))
				return true;
		}
		cond_resched();
	}
	WRITE_ONCE(log->own_short, false);
	return false;
}

/*
 * Let go what is above a maximum in a log's own lanes; if nothing can, relocate. Return:
 * there is more.
 */
static bool vc_log_deflate_own(struct vc_pool *p, struct vc_log *log)
{
	struct vc_chunk *c;

	if (vc_log_has(log, VC_OWN) < log->own_most)
		return false;
	c = vc_log_victim(log, VC_OWN);
	if (c)
		return !vc_chunk_reclaim(p, c, VC_RECLAIM_KEEP);
	c = vc_relocate_candidate(log, VC_OWN);
	return c && vc_relocate_chunk(log, c);
}

/**
 * vc_own_make_space - let go what is old in lanes that logs have for themselves
 * @p: the pool, locked
 * @end: no longer than that, jiffies
 *
 * Return: there is more to do.
 */
bool vc_own_make_space(struct vc_pool *p, unsigned long end)
{
	struct vc_volume *v;
	struct vc_log *log;
	bool more = false;

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
static u32 vc_own_clear_lane(struct vc_pool *p, const struct vc_lane *l,
			     struct vc_clearing *by)
{
	u32 first = max(l->first, p->g.first_chunk);
	u32 i, end = min(l->end, p->g.chunks), foreign = 0;

	vc_pool_clear(p, first, end, l->owner, by);
	for (i = first; i < end; i++) {
		struct vc_log *log = READ_ONCE(p->chunk[i].log);

		if (!vc_chunk_used(&p->chunk[i]) || log == l->owner)
			continue;
		foreign++;
		if (log)
			WRITE_ONCE(log->misplaced, log->misplaced + 1);
	}
	return foreign;
}

/**
 * vc_own_clear - reclaim foreign chunks: those of other logs in dedicated lanes
 * @p: the pool, locked
 */
void vc_own_clear(struct vc_pool *p)
{
	struct vc_clearing by = { .left = VC_FOREIGN_BATCH };
	u32 i, n, foreign = 0;
	struct vc_volume *v;
	struct vc_log *log;

	list_for_each_entry(v, &p->volumes, node) {
		list_for_each_entry(log, &v->logs, node) {
			WRITE_ONCE(log->own_foreign, 0);
			WRITE_ONCE(log->misplaced, 0);
		}
	}
	for (i = 0; i < p->nlanes; i++) {
		struct vc_lane *l = &p->lane[i];

		if (!l->owner)
			continue;
		n = vc_own_clear_lane(p, l, &by);
		WRITE_ONCE(l->owner->own_foreign, l->owner->own_foreign + n);
		foreign += n;
	}
	WRITE_ONCE(p->foreign, foreign);
	if (foreign)
		vc_pool_clear_again(p, &by);
}
