// SPDX-License-Identifier: GPL-2.0-only
/*
 * dm-vcache: room in the cache: who gets chunks, and whose go.
 *
 * A log may have more than its share while a tenth of the pool is free; that
 * tenth is for logs below theirs. So a tag that writes faster than its origin
 * can follow ends up waiting for its own destage, and nobody else does. Every
 * log can have two chunks to write to, whatever its share. The last two that are
 * free are for relocation (see below), and nobody else writes when these are in use.
 *
 * How much is whose share: share.c. When chunks run short those go first in which
 * nothing counts any more, whoever has them; then the oldest one of a log, of the
 * log furthest over its share first. What counts in it has to be on the origin. How
 * it goes: reclaim.c. A log that has no more than its share loses nothing to one that
 * has: only when less than half of that tenth is left it lets go as well. That half is
 * reserved for logs below their guaranteed share: no log above it may make them wait. A
 * log between its guaranteed and its fair share waits until logs above their fair share
 * release chunks, or gives up its own oldest chunks, as they do.
 *
 * Where none of a log can go like that, and most of what it has in the cache is
 * superseded, the rest of its oldest chunk is relocated to its end, before those less
 * over their share give: so a log whose data fits into the cache does not wait for its
 * origin. Nor does one whose data fits into its maximum.
 *
 * If the log furthest over its share cannot give up a chunk either, another log gives
 * one up, and the first log has a reclaim pending. While it has, it gets no chunk above
 * its share, and its dirty data is destaged at full speed. Otherwise a log would gain
 * cache by having more dirty data than others.
 *
 * DOC: Waking up
 *
 * Once the pool is said to be short of space, whatever lets one more chunk go
 * has to call vc_space_kick(), or writers wait for ever: nothing dirty is left
 * in a chunk (vc_cell_cleaned()), or nothing at all (vc_cell_emptied()), who kept
 * one we wanted lets go of it (vc_lookup_done()), a seal is there, something is
 * discarded. What merely has to be tried again is, after VC_SPACE_RETRY.
 */
#include "reads.h"

/* After so long those who wait get chunks, and others the lock of the pool. */
#define VC_SPACE_TIME (HZ / 2)

/* Chunks that one run relocates at most. */
#define VC_RELOCATE_BATCH 4U

/* Chunks that go in a tick because they are above a limit. */
#define VC_DEFLATE_BATCH 4U

/**
 * vc_pool_reserve - that tenth; with what is for relocation there has to be one for a
 *	writer
 * @p: the pool
 */
u32 vc_pool_reserve(const struct vc_pool *p)
{
	return max(READ_ONCE(p->shared) / VC_COMMON_OF,
		   vc_pool_relocate_reserve(p) + 1);
}

/* Free chunks that are reserved for logs below their guaranteed share. */
static u32 vc_pool_guaranteed_reserve(const struct vc_pool *p)
{
	return max(vc_pool_reserve(p) / 2, vc_pool_relocate_reserve(p) + 1);
}

/* With fewer left than that, but for those in use for relocation, all have to give. */
static bool vc_pool_is_used_up(const struct vc_pool *p)
{
	u32 relocate = vc_pool_relocate_reserve(p);

	return READ_ONCE(p->nfree) < max(vc_pool_guaranteed_reserve(p) - relocate, relocate + 1);
}

/**
 * vc_log_may_grow - may a log have one more chunk, by its share and by what others
 *	need?
 * @p: the pool
 * @log: the log
 *
 * One that has just its share may have the last one above the reserve: then it has
 * more, and gives its own, or it would wait for others to do so. One with lanes of its
 * own takes nothing that would have to be given back at once: what is in the way of that
 * is in its own lanes, and need not go.
 */
bool vc_log_may_grow(const struct vc_pool *p, const struct vc_log *log)
{
	u32 has = vc_log_has(log, VC_SHARED), share = READ_ONCE(log->share);

	if (READ_ONCE(log->reclaim_pending) && has > share)
		return false;
	if (has >= READ_ONCE(log->most))
		return false;
	if (has < READ_ONCE(log->guaranteed))
		return true;
	if (READ_ONCE(log->lanes))
		return READ_ONCE(p->nfree) >
		       vc_pool_reserve(p) +
		       (has < share ? 0 : READ_ONCE(p->nusers) + 1);
	return READ_ONCE(p->nfree) + (has <= share) > vc_pool_reserve(p) ||
	       (has < share && READ_ONCE(p->nfree) > vc_pool_guaranteed_reserve(p));
}

/*
 * In shared lanes. What nobody waits for has no chunk of the reserve, or all would
 * have to give; nor, above the share of its log, one that others over theirs would
 * give; nor one for which the log would have to give another of its own.
 */
static bool vc_log_may_prefetch(struct vc_pool *p, struct vc_log *log)
{
	u32 has = vc_log_has(log, VC_SHARED), keep = vc_pool_reserve(p);

	if (has >= READ_ONCE(log->share))
		keep += READ_ONCE(p->nusers) + 1;
	return has + 1 < READ_ONCE(log->most) && p->nfree > keep &&
	       !READ_ONCE(log->reclaim_pending);
}

/* In shared lanes; called with the lock of the free lists. */
static bool vc_chunk_may_take(struct vc_pool *p, struct vc_log *log,
			      enum vc_take take)
{
	/* Without one to relocate to, no chunk could go whose data has to last. */
	if (p->nfree <= (take == VC_TAKE_RELOCATE ? 0 : vc_pool_relocate_reserve(p)))
		return false;
	switch (take) {
	case VC_TAKE_WRITE:
		return log->nr < VC_CHUNKS_MIN || vc_log_may_grow(p, log);
	case VC_TAKE_READ:
	case VC_TAKE_KEEP_OWN:
		return vc_log_may_grow(p, log);
	case VC_TAKE_PREFETCH:
		return vc_log_may_prefetch(p, log);
	default:
		/* It makes more of them free; but what comes where none may be goes again. */
		return READ_ONCE(log->most);
	}
}

/**
 * vc_chunk_take - take a free chunk for a log
 * @p: the pool
 * @log: the log, its lock is held
 * @take: what for
 * @first: in which lanes rather; in the others when it gets none there
 *
 * Return: NULL when there is none, or the log has to leave it to others.
 */
struct vc_chunk *vc_chunk_take(struct vc_pool *p, struct vc_log *log,
			       enum vc_take take, enum vc_domain first)
{
	struct vc_chunk *c = NULL;
	unsigned long flags;
	unsigned int i;

	spin_lock_irqsave(&p->free_lock, flags);
	for (i = 0; i < VC_DOMAINS && !c; i++) {
		bool own = i ? first == VC_SHARED : first == VC_OWN;

		if (own ? !vc_own_may_take(p, log, take) :
			  !vc_chunk_may_take(p, log, take))
			continue;
		c = vc_lane_get(p, own ? log : NULL);
		if (c)
			c->own = own;
	}
	spin_unlock_irqrestore(&p->free_lock, flags);
	return c;
}

/* Reserve the next chunk of a log before a flush needs it. */
static void vc_log_reserve_spare(struct vc_log *log)
{
	struct vc_pool *p = log->vol->pool;
	bool wake = false;

	spin_lock_irq(&log->lock);
	if (!log->spare && rcu_access_pointer(log->user) &&
	    (log->starved || log->nr)) {
		log->spare = vc_chunk_take(p, log, VC_TAKE_WRITE, VC_OWN);
		/* With one there already, it is not a chunk that it lacks. */
		wake = log->spare && log->starved;
	}
	if (log->held && vc_log_may_write(log)) {
		log->held = false;
		wake = true;
	}
	spin_unlock_irq(&log->lock);
	if (wake)
		vc_log_wake(log);
}

/* Find an empty chunk in any log: reclaiming it costs no data. */
static struct vc_chunk *vc_pool_empty_chunk(struct vc_pool *p)
{
	struct vc_chunk *c;
	struct vc_volume *v;
	struct vc_log *log;

	list_for_each_entry(v, &p->volumes, node) {
		list_for_each_entry(log, &v->logs, node) {
			c = vc_log_empty_chunk(log, VC_SHARED);
			if (c)
				return c;
		}
	}
	return NULL;
}

static bool vc_log_is_over(struct vc_log *log)
{
	return vc_log_has(log, VC_SHARED) > log->share;
}

/* Has a log more than its share? */
static bool vc_pool_has_over(struct vc_pool *p)
{
	struct vc_volume *v;
	struct vc_log *log;

	list_for_each_entry(v, &p->volumes, node) {
		list_for_each_entry(log, &v->logs, node) {
			if (vc_log_is_over(log))
				return true;
		}
	}
	return false;
}

/* Have all to give? Else those over their shares, since there are some. */
static bool vc_pool_asks_all(struct vc_pool *p)
{
	return vc_pool_is_used_up(p) ||
	       (READ_ONCE(p->nfree) < vc_pool_reserve(p) &&
		!vc_pool_has_over(p));
}

/*
 * Who gets none has to give its own in any case; but with lanes of its own it would give
 * here until all of the reserve is free, for one that may as well be there.
 */
static bool vc_log_lacks(const struct vc_pool *p, const struct vc_log *log)
{
	return READ_ONCE(log->starved) && !READ_ONCE(log->lanes) &&
	       !vc_log_may_grow(p, log);
}

/* How far is a log over its share, in thousandths of it? */
static u64 vc_log_excess(struct vc_log *log)
{
	return div_u64((u64)vc_log_has(log, VC_SHARED) * 1000, log->share + 1);
}

/*
 * Of the logs that have to give up a chunk, and are further over their shares than @than
 * unless that is NULL, find the one furthest over for which @of finds a chunk. Logs with
 * a reclaim pending are skipped: vc_pool_update_reclaim() looks at them once per run.
 * Return: the chunk, or NULL.
 */
static struct vc_chunk *vc_pool_first(struct vc_pool *p,
				      struct vc_chunk *(*of)(struct vc_log *,
							     enum vc_domain),
				      struct vc_log *than)
{
	u64 most = than ? vc_log_excess(than) : 0;
	struct vc_chunk *c, *first = NULL;
	struct vc_volume *v;
	struct vc_log *log;
	bool all = vc_pool_asks_all(p);

	list_for_each_entry(v, &p->volumes, node) {
		list_for_each_entry(log, &v->logs, node) {
			if (READ_ONCE(log->reclaim_pending) ||
			    (!all && !vc_log_is_over(log) &&
			     !vc_log_lacks(p, log)) ||
			    ((first || than) && vc_log_excess(log) <= most))
				continue;
			c = of(log, VC_SHARED);
			if (c) {
				first = c;
				most = vc_log_excess(log);
			}
		}
	}
	return first;
}

/*
 * @giver gives up a chunk: mark a reclaim as pending in all logs that are further over
 * their shares and give up none. If @giver is NULL no log can give up a chunk: mark the
 * log furthest over its share, so that the free chunks are left to logs below theirs.
 */
static void vc_pool_mark_reclaim(struct vc_pool *p, struct vc_log *giver)
{
	u64 most = giver ? vc_log_excess(giver) : 0;
	struct vc_log *log, *furthest = NULL;
	struct vc_volume *v;

	list_for_each_entry(v, &p->volumes, node) {
		list_for_each_entry(log, &v->logs, node) {
			if (!vc_log_is_over(log) || vc_log_excess(log) <= most)
				continue;
			if (giver) {
				WRITE_ONCE(log->reclaim_pending, true);
				continue;
			}
			furthest = log;
			most = vc_log_excess(log);
		}
	}
	if (furthest)
		WRITE_ONCE(furthest->reclaim_pending, true);
}

/*
 * Chunks that should be free: the reserve; and one for each log in use, as far as it
 * takes that from logs over their share only.
 */
static u32 vc_pool_low(struct vc_pool *p)
{
	u32 low = vc_pool_reserve(p);

	if (vc_pool_has_over(p))
		low += p->nusers + 1;
	return min(low, READ_ONCE(p->shared) / 2);
}

/*
 * A pending reclaim ends when the log can give up a chunk again, and then it is the
 * first to give; when the log is back at its share; or when enough chunks are free.
 */
static void vc_pool_update_reclaim(struct vc_pool *p)
{
	struct vc_volume *v;
	struct vc_log *log;

	list_for_each_entry(v, &p->volumes, node) {
		list_for_each_entry(log, &v->logs, node) {
			if (READ_ONCE(log->reclaim_pending) &&
			    (!vc_log_is_over(log) ||
			     READ_ONCE(p->nfree) > vc_pool_low(p) ||
			     vc_log_victim(log, VC_SHARED) ||
			     vc_relocate_candidate(log, VC_SHARED)))
				WRITE_ONCE(log->reclaim_pending, false);
		}
	}
}

/* Is there one who cannot write for want of a chunk, and its origin takes data? */
static bool vc_pool_has_starved(struct vc_pool *p)
{
	struct vc_volume *v;
	struct vc_log *log;

	list_for_each_entry(v, &p->volumes, node) {
		list_for_each_entry(log, &v->logs, node) {
			if (READ_ONCE(log->starved) && READ_ONCE(log->most) &&
			    !READ_ONCE(v->failing))
				return true;
		}
	}
	return false;
}

/* Is somebody to be told when one more chunk can go? */
static bool vc_pool_short(struct vc_pool *p)
{
	struct vc_volume *v;
	struct vc_log *log;

	list_for_each_entry(v, &p->volumes, node) {
		list_for_each_entry(log, &v->logs, node) {
			if (READ_ONCE(log->reclaim_pending) || vc_own_is_short(log) ||
			    vc_log_must_vacate(log))
				return true;
		}
	}
	return READ_ONCE(p->nfree) < vc_pool_low(p) || vc_pool_shrinks(p);
}

/**
 * vc_pool_look_further - find out what a volume has that was not used since the
 *	pool was loaded
 * @p: the pool, locked
 *
 * Nothing can go of what is known. Return: there was one.
 */
bool vc_pool_look_further(struct vc_pool *p)
{
	struct vc_volume *v;

	list_for_each_entry(v, &p->volumes, node) {
		if (!v->replayed && !v->dev)
			return !vc_volume_start(v);
	}
	return false;
}

/* Carry a chunk, @left at most. Return: false: not now; there is more to do. */
static bool vc_pool_relocate(struct vc_pool *p, struct vc_chunk *c, u32 *left)
{
	unsigned long delay = 0;

	if (*left) {
		(*left)--;
		if (vc_relocate_chunk(c->log, c))
			return true;
		delay = VC_SPACE_RETRY;
	}
	mod_delayed_work(p->wq, &p->space_work, delay);
	return false;
}

/**
 * vc_pool_reclaim - keep what is hot in a chunk, and reclaim it
 * @p: the pool, locked
 * @c: the chunk
 *
 * Return: false: not now.
 */
bool vc_pool_reclaim(struct vc_pool *p, struct vc_chunk *c)
{
	int r = vc_chunk_reclaim(p, c, VC_RECLAIM_KEEP);

	if (r == -EAGAIN)
		mod_delayed_work(p->wq, &p->space_work, VC_SPACE_RETRY);
	return !r;
}

/*
 * Close the open chunks of a log in shared lanes, if it may have none there: only a
 * closed chunk can be reclaimed.
 */
static void vc_log_vacate_shared(struct vc_log *log)
{
	enum vc_reads_kind kind;
	struct vc_chunk *c;

	if (log->most || !vc_log_has(log, VC_SHARED))
		return;
	for (kind = 0; kind < VC_READS_KINDS; kind++)
		vc_reads_leave(log, kind, VC_SHARED);
	spin_lock_irq(&log->lock);
	c = READ_ONCE(log->open);
	if (c && c->own)
		c = NULL;
	spin_unlock_irq(&log->lock);
	if (c)
		vc_log_close_idle(log);
}

/*
 * Let a chunk go of a log that has its maximum; if none can, what is left in its oldest
 * is relocated. Return: true: look again; false: not now.
 */
static bool vc_log_deflate(struct vc_pool *p, struct vc_log *log, u32 *left)
{
	struct vc_chunk *c = vc_log_victim(log, VC_SHARED);

	if (!c) {
		c = vc_relocate_candidate(log, VC_SHARED);
		return c && vc_pool_relocate(p, c, left);
	}
	if (!vc_pool_reclaim(p, c))
		return false;
	(*left)--;
	return true;
}

/*
 * Let go what logs have above their limits, a few chunks at a time: others use
 * the device, too. What is dirty goes when it is on the origin; with its share
 * that has become small as well.
 */
static void vc_pool_deflate(struct vc_pool *p)
{
	u32 left = VC_DEFLATE_BATCH;
	struct vc_volume *v;
	struct vc_log *log;

	list_for_each_entry(v, &p->volumes, node) {
		list_for_each_entry(log, &v->logs, node) {
			vc_log_vacate_shared(log);
			while (left &&
			       vc_log_has(log, VC_SHARED) >= log->most &&
			       vc_log_deflate(p, log, &left))
				cond_resched();
		}
	}
	if (!left)
		mod_delayed_work(p->wq, &p->space_work, VC_SPACE_RETRY);
}

/* Let others have the lock. Return: false: there is more to do. */
static bool vc_pool_later(struct vc_pool *p)
{
	mod_delayed_work(p->wq, &p->space_work, 0);
	return false;
}

/*
 * Which chunk goes, or what is left in which is relocated? Of the log furthest over its
 * share: it relocates before others give. Sets @c to the one that goes, or NULL; returns
 * the other one, or NULL.
 */
static struct vc_chunk *vc_pool_choose(struct vc_pool *p, struct vc_chunk **c)
{
	struct vc_chunk *relocate;

	*c = vc_pool_first(p, vc_log_victim, NULL);
	relocate = vc_pool_first(p, vc_relocate_candidate, *c ? (*c)->log : NULL);
	if (relocate)
		*c = NULL;
	vc_pool_mark_reclaim(p, relocate ? relocate->log : *c ? (*c)->log : NULL);
	return relocate;
}

static void vc_pool_make_space(struct vc_pool *p)
{
	unsigned long end = jiffies + VC_SPACE_TIME;
	struct vc_chunk *c, *relocate;
	u32 left = VC_RELOCATE_BATCH;
	struct vc_volume *v;
	bool more = true, clean = true;

	WRITE_ONCE(p->short_of_space, vc_pool_short(p));
	smp_mb(); /* what we do not see yet of the chunks, kicks us */
	vc_pool_update_reclaim(p);
	if (vc_own_make_space(p, end))
		mod_delayed_work(p->wq, &p->space_work, VC_SPACE_RETRY);
	while (more && READ_ONCE(p->nfree) < vc_pool_low(p)) {
		c = vc_pool_empty_chunk(p);
		relocate = c ? NULL : vc_pool_choose(p, &c);
		clean = c;
		if (time_after(jiffies, end))
			more = vc_pool_later(p);
		else if (c)
			more = vc_pool_reclaim(p, c);
		else if (relocate)
			more = vc_pool_relocate(p, relocate, &left);
		else
			more = vc_pool_look_further(p);
		cond_resched();
	}
	WRITE_ONCE(p->short_of_space, vc_pool_short(p));
	WRITE_ONCE(p->short_of_clean, p->short_of_space && !clean &&
		   (READ_ONCE(p->nfree) < vc_pool_reserve(p) ||
		    vc_pool_has_starved(p)));
	if (!p->short_of_space)
		return;
	list_for_each_entry(v, &p->volumes, node) {
		if (!v->stopped && !v->failing)
			mod_delayed_work(p->wq, &v->destage, 0);
	}
}

/**
 * vc_space_work - give out chunks, and let old ones go
 * @work: vc_pool.space_work
 */
void vc_space_work(struct work_struct *work)
{
	struct vc_pool *p = container_of(to_delayed_work(work), struct vc_pool,
					 space_work);
	struct vc_volume *v;
	struct vc_log *log;

	mutex_lock(&p->lock);
	if (p->foreign)
		vc_own_clear(p);
	vc_pool_share(p);
	vc_pool_deflate(p);
	vc_pool_make_space(p);
	if (vc_pool_shrinks(p))
		vc_pool_vacate(p);
	vc_pool_migrate(p);
	list_for_each_entry(v, &p->volumes, node) {
		list_for_each_entry(log, &v->logs, node)
			vc_log_reserve_spare(log);
	}
	mutex_unlock(&p->lock);
}

/**
 * vc_log_reclaim - reclaim chunks of a log, as far as they are reclaimable
 * @log: the log; its pool is locked
 * @most: how many at most
 *
 * Return: 0 or a negative errno.
 */
int vc_log_reclaim(struct vc_log *log, u32 most)
{
	struct vc_chunk *c;
	int r = 0;

	while (!r && most-- && (c = vc_log_any(log))) {
		r = vc_chunk_reclaim(log->vol->pool, c, VC_RECLAIM_ALL);
		cond_resched();
	}
	return r;
}

/**
 * vc_log_clear - reclaim all chunks of a log
 * @log: the log; its pool is locked, nothing uses it, all it has is clean
 *
 * Return: 0 or a negative errno.
 */
int vc_log_clear(struct vc_log *log)
{
	int r;

	vc_reads_close(log);
	r = vc_log_reclaim(log, U32_MAX);
	return r ?: vc_log_chunks(log) ? -EBUSY : 0;
}
