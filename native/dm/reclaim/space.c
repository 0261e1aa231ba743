// SPDX-License-Identifier: GPL-2.0-only
/*
 * dm-vcache: space in the cache: which logs get chunks, and which give them up.
 *
 * Terms: doc/source/architecture.rst defines log, chunk, lane, origin, destage and
 * relocation. log.h lists the states of a chunk, and ../../core/format.h describes seals. A
 * cell is the place of one block in the cache.
 *
 * This is about the chunks of the shared lanes; own.c is about dedicated lanes.
 *
 * Getting chunks (take.c). A tenth of the shared chunks is the common reserve. A log may have
 * more than its fair share (share.c) only while more than the reserve is free. The
 * reserve is for logs below their share. So a tag that writes faster than its origin
 * waits for its own destage, and no other tag waits for it. Every log may have
 * VC_CHUNKS_MIN chunks to write to, whatever its share. The last VC_RELOCATE_MAX free
 * chunks are for relocation only (relocate.c); writers wait while these are in use.
 *
 * Giving up chunks. When fewer chunks are free than vc_pool_low(), chunks are reclaimed
 * (reclaim.c) in this order:
 *
 * 1. empty chunks of any log;
 * 2. chunks of the logs above their fair share, the log furthest above it first. victim.c
 *    says which chunk. It must be clean: all its valid data is on the origin. A log may
 *    have no clean chunk. Its oldest chunk is then relocated instead: the dirty blocks in
 *    it are copied to the end of the log, and the chunk is reclaimed without waiting for
 *    the origin. That is done only if at most three quarters of the log's space are dirty,
 *    see vcache_relocate_candidate(). It comes before a log less far above its share gives up
 *    a chunk. So a log whose data fits into its share, or into its maximum, does not wait
 *    for its origin;
 * 3. chunks of all logs, in one of two cases: fewer chunks than about half of the reserve
 *    are free; or fewer than the reserve are free, and no log is above its share.
 *
 * The last half of the reserve is for logs below their guaranteed share: no other log may
 * make them wait. A log between its guaranteed and its fair share waits until logs above
 * their fair share release chunks, or gives up its own oldest chunks, as they do.
 *
 * If the log furthest above its share can neither give up nor relocate a chunk, another
 * log gives one up, and vcache_log.reclaim_pending is set for the first log. Until
 * vc_pool_update_reclaim() clears it, this log gets no chunk while it is above its share,
 * and its dirty data is destaged at full speed. Otherwise a log would gain cache by having
 * more dirty data than others.
 *
 * DOC: Waking up
 *
 * While vcache_pool.short_of_space is set, every event that makes one more chunk
 * reclaimable must call vcache_space_kick(), or writers wait for ever. The events are: a
 * chunk has no dirty cells any more (vc_cell_cleaned()), or no live ones
 * (vc_cell_emptied()); the last reader of a wanted chunk is done (vcache_lookup_done()); a
 * chunk is sealed; something is discarded. What only has to be tried again is tried
 * after a while, see vcache_space_retry().
 */
#include "internal.h"

/*
 * After this time a run of vcache_space_work() stops reclaiming. It releases the lock of the
 * pool, which others wait for, and is queued again if there is more to do.
 */
#define VC_SPACE_TIME (HZ / 20)

/* Chunks that one run relocates at most. */
#define VC_RELOCATE_BATCH 4U

/* Chunks that one run reclaims because logs have reached vcache_log.most. */
#define VC_DEFLATE_BATCH 4U

/*
 * Must all logs give up chunks? Yes, if fewer are free than half of the reserve, less the
 * chunks for relocation: a relocation that uses these now will return as many.
 */
static bool vc_pool_is_used_up(const struct vcache_pool *p)
{
	u32 relocate = vcache_pool_relocate_reserve(p);

	return READ_ONCE(p->nfree) <
	       max(vcache_pool_guaranteed_reserve(p) - relocate, relocate + 1);
}

/* Find an empty chunk in any log: reclaiming it costs no data. */
static struct vcache_chunk *vc_pool_empty_chunk(struct vcache_pool *p)
{
	struct vcache_chunk *c;
	struct vcache_volume *v;
	struct vcache_log *log;

	list_for_each_entry(v, &p->volumes, node) {
		list_for_each_entry(log, &v->logs, node) {
			c = vcache_log_empty_chunk(log, VC_SHARED);
			if (c)
				return c;
		}
	}
	return NULL;
}

/* Does any log have more than its share? */
static bool vc_pool_has_over(struct vcache_pool *p)
{
	struct vcache_volume *v;
	struct vcache_log *log;

	list_for_each_entry(v, &p->volumes, node) {
		list_for_each_entry(log, &v->logs, node) {
			if (vcache_log_is_over(log))
				return true;
		}
	}
	return false;
}

/* Must all logs give up chunks, or only those above their shares? */
static bool vc_pool_asks_all(struct vcache_pool *p)
{
	return vc_pool_is_used_up(p) ||
	       (READ_ONCE(p->nfree) < vcache_pool_reserve(p) &&
		!vc_pool_has_over(p));
}

/*
 * Must a log give up a chunk, whatever its share, because it is starved and may not grow?
 * That does not apply to a log with dedicated lanes. It may not grow here until more than
 * the reserve is free, and would give up shared chunks until then, although its next chunk
 * may as well come from its dedicated lanes.
 */
static bool vc_log_lacks(const struct vcache_pool *p, const struct vcache_log *log)
{
	return READ_ONCE(log->starved) && !READ_ONCE(log->lanes) &&
	       !vcache_log_may_grow(p, log);
}

/* How much does a log have, in thousandths of its share? */
static u64 vc_log_excess(const struct vcache_log *log)
{
	return div_u64((u64)vcache_log_has(log, VC_SHARED) * 1000, log->share + 1);
}

/* Does the writer of a log wait, and was it served before that of another log? */
static bool vc_log_is_next(const struct vcache_log *log, const struct vcache_log *than)
{
	return READ_ONCE(log->starved) &&
	       (!READ_ONCE(than->starved) ||
		READ_ONCE(log->served) < READ_ONCE(than->served));
}

/* Is a log further above its share than another one; or, with @ties, as far and served next? */
static bool vc_log_gives_before(struct vcache_log *log, const struct vcache_log *than, bool ties)
{
	u64 excess = vc_log_excess(log), other = vc_log_excess(than);

	return excess > other || (excess == other && ties && vc_log_is_next(log, than));
}

/*
 * Of the logs that must give up a chunk, find the one furthest above its share for which
 * @of returns a chunk. Of two that are as far, it is the one that is next to be served: it will
 * get the space that its chunk leaves. If @than is not NULL, only logs further above their
 * shares than @than count. Logs with a reclaim pending are skipped: vc_pool_update_reclaim()
 * looks at them once per run. Return: the chunk, or NULL.
 */
static struct vcache_chunk *vc_pool_first(struct vcache_pool *p,
					  struct vcache_chunk *(*of)(struct vcache_log *,
								     enum vcache_domain),
					  struct vcache_log *than)
{
	const struct vcache_log *most = than;
	struct vcache_chunk *c, *first = NULL;
	struct vcache_volume *v;
	struct vcache_log *log;
	bool all = vc_pool_asks_all(p);

	list_for_each_entry(v, &p->volumes, node) {
		list_for_each_entry(log, &v->logs, node) {
			if (READ_ONCE(log->reclaim_pending) ||
			    (!all && !vcache_log_is_over(log) &&
			     !vc_log_lacks(p, log)) ||
			    (most && !vc_log_gives_before(log, most, first)))
				continue;
			c = of(log, VC_SHARED);
			if (c) {
				first = c;
				most = log;
			}
		}
	}
	return first;
}

/*
 * @giver gives up a chunk: mark a reclaim as pending in all logs that are further above
 * their shares and give up none. If @giver is NULL no log can give up a chunk: mark the
 * log furthest above its share, so that the free chunks are left to logs below theirs.
 */
static void vc_pool_mark_reclaim(struct vcache_pool *p, struct vcache_log *giver)
{
	u64 most = giver ? vc_log_excess(giver) : 0;
	struct vcache_log *log, *furthest = NULL;
	struct vcache_volume *v;

	list_for_each_entry(v, &p->volumes, node) {
		list_for_each_entry(log, &v->logs, node) {
			if (!vcache_log_is_over(log) || vc_log_excess(log) <= most)
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
 * Low watermark: with fewer free chunks, chunks are reclaimed. It is the reserve. While any
 * log is above its share, it is higher by one chunk for each log in use, and one more. The
 * logs above their shares give up chunks until that many are free.
 */
static u32 vc_pool_low(struct vcache_pool *p)
{
	u32 low = vcache_pool_reserve(p);

	if (vc_pool_has_over(p))
		low += p->nusers + 1;
	return min(low, READ_ONCE(p->shared) / 2);
}

/*
 * A pending reclaim ends when the log is back at its share, when enough chunks are free,
 * or when the log can give up a chunk again. Then it is the first to give one.
 */
static void vc_pool_update_reclaim(struct vcache_pool *p)
{
	struct vcache_volume *v;
	struct vcache_log *log;

	list_for_each_entry(v, &p->volumes, node) {
		list_for_each_entry(log, &v->logs, node) {
			if (READ_ONCE(log->reclaim_pending) &&
			    (!vcache_log_is_over(log) ||
			     READ_ONCE(p->nfree) > vc_pool_low(p) ||
			     vcache_log_victim(log, VC_SHARED) ||
			     vcache_relocate_candidate(log, VC_SHARED)))
				WRITE_ONCE(log->reclaim_pending, false);
		}
	}
}

/*
 * Is any log starved on a volume whose origin is not failing? Logs that may have nothing in
 * shared lanes do not count.
 */
static bool vc_pool_has_starved(struct vcache_pool *p)
{
	struct vcache_volume *v;
	struct vcache_log *log;

	list_for_each_entry(v, &p->volumes, node) {
		list_for_each_entry(log, &v->logs, node) {
			if (READ_ONCE(log->starved) && READ_ONCE(log->most) &&
			    !READ_ONCE(v->failing))
				return true;
		}
	}
	return false;
}

/* Must vcache_space_kick() be called when one more chunk can be reclaimed? */
static bool vc_pool_short(struct vcache_pool *p)
{
	struct vcache_volume *v;
	struct vcache_log *log;

	list_for_each_entry(v, &p->volumes, node) {
		list_for_each_entry(log, &v->logs, node) {
			if (READ_ONCE(log->reclaim_pending) || vcache_own_is_short(log) ||
			    vcache_log_must_vacate(log) || log->unsealed)
				return true;
		}
	}
	return READ_ONCE(p->nfree) < vc_pool_low(p) || vcache_pool_shrinks(p);
}

/**
 * vcache_pool_look_further - replay a volume that was not used since the pool was loaded
 * @p: the pool, locked
 *
 * Called when none of the known chunks can be reclaimed. The chunks of a volume are known
 * only after its replay, and some of them may be clean.
 *
 * Return: a volume was replayed.
 */
bool vcache_pool_look_further(struct vcache_pool *p)
{
	struct vcache_volume *v;

	lockdep_assert_held(&p->lock);
	list_for_each_entry(v, &p->volumes, node) {
		if (!v->replayed && !v->dev)
			return !vcache_volume_start(v);
	}
	return false;
}

/**
 * vcache_space_retry - run again later, though no event may start a run
 * @p: the pool, locked
 *
 * In the next jiffy at first, then less and less often until a chunk becomes free: what is
 * waited for may be a device that hangs.
 */
void vcache_space_retry(struct vcache_pool *p)
{
	unsigned long delay = max(READ_ONCE(p->space_retry), 1UL);

	lockdep_assert_held(&p->lock);
	WRITE_ONCE(p->space_retry, min_t(unsigned long, 2 * delay, VC_SPACE_RETRY_MAX));
	queue_delayed_work(p->wq, &p->space_work, delay);
}

/* Relocate a chunk, up to @left in a run. Return: false: try again in the next run. */
static bool vc_pool_relocate(struct vcache_pool *p, struct vcache_chunk *c, u32 *left)
{
	if (*left) {
		(*left)--;
		if (vcache_relocate_chunk(c->log, c))
			return true;
		vcache_space_retry(p);
	} else {
		mod_delayed_work(p->wq, &p->space_work, 0);
	}
	return false;
}

/**
 * vcache_pool_reclaim - reclaim a chunk, and keep what is hot in it
 * @p: the pool, locked
 * @c: the chunk
 *
 * Return: false if it cannot be reclaimed now.
 */
bool vcache_pool_reclaim(struct vcache_pool *p, struct vcache_chunk *c)
{
	int r = vcache_chunk_reclaim(p, c, VC_RECLAIM_KEEP);

	lockdep_assert_held(&p->lock);
	if (r == -EAGAIN)
		vcache_space_retry(p);
	return !r;
}

/*
 * Close the open chunks of a log in shared lanes, if it may have none there: only a
 * closed chunk can be reclaimed.
 */
static void vc_log_vacate_shared(struct vcache_log *log)
{
	enum vcache_reads_kind kind;
	struct vcache_chunk *c;

	if (log->most || !vcache_log_has(log, VC_SHARED))
		return;
	for (kind = 0; kind < VC_READS_KINDS; kind++)
		vcache_reads_leave(log, kind, VC_SHARED);
	spin_lock_irq(&log->lock);
	c = READ_ONCE(log->open);
	if (c && c->own)
		c = NULL;
	spin_unlock_irq(&log->lock);
	if (c)
		vcache_log_close_idle(log);
}

/*
 * Reclaim a chunk of a log that has reached vcache_log.most. If none is reclaimable, relocate
 * the dirty blocks of the oldest one. Return: true: look again; false: not now.
 */
static bool vc_log_deflate(struct vcache_pool *p, struct vcache_log *log, u32 *left)
{
	struct vcache_chunk *c = vcache_log_empty_chunk(log, VC_SHARED) ?:
				 vcache_log_victim(log, VC_SHARED);

	if (!c) {
		c = vcache_relocate_candidate(log, VC_SHARED);
		return c && vc_pool_relocate(p, c, left);
	}
	if (!vcache_pool_reclaim(p, c))
		return false;
	(*left)--;
	return true;
}

/*
 * Reclaim chunks of logs that have reached vcache_log.most, a few in a run, because others use
 * the device, too. vcache_log.most is one chunk below the maximum of the tag if that is more
 * than VC_CHUNKS_MIN: the blocks that are kept of a reclaimed chunk may need one. By
 * vcache_log_may_grow() a log that has reached it gets no other chunk until it has given one
 * up. Dirty chunks have to be destaged first. That is urgent, as the share of the log has
 * become small with its maximum.
 */
static void vc_pool_deflate(struct vcache_pool *p)
{
	u32 left = VC_DEFLATE_BATCH;
	struct vcache_volume *v;
	struct vcache_log *log;

	list_for_each_entry(v, &p->volumes, node) {
		list_for_each_entry(log, &v->logs, node) {
			vc_log_vacate_shared(log);
			while (left &&
			       vcache_log_has(log, VC_SHARED) >= log->most &&
			       vc_log_deflate(p, log, &left)) {
				vcache_pool_give_spares(p, true);
				cond_resched();
			}
		}
	}
	if (!left)
		vcache_space_retry(p);
}

/* Let others have the lock, and run again. Return: false. */
static bool vc_pool_later(struct vcache_pool *p)
{
	mod_delayed_work(p->wq, &p->space_work, 0);
	return false;
}

/*
 * Choose between reclaim and relocation: the log furthest above its share relocates
 * before logs less far above theirs give up chunks. Sets @c to the chunk to reclaim, or
 * NULL. Return: the chunk to relocate, or NULL.
 */
static struct vcache_chunk *vc_pool_choose(struct vcache_pool *p, struct vcache_chunk **c)
{
	struct vcache_chunk *relocate;

	*c = vc_pool_first(p, vcache_log_victim, NULL);
	relocate = vc_pool_first(p, vcache_relocate_candidate, *c ? (*c)->log : NULL);
	if (relocate)
		*c = NULL;
	vc_pool_mark_reclaim(p, relocate ? relocate->log : *c ? (*c)->log : NULL);
	return relocate;
}

/*
 * Reclaim a chunk. If that fails its log is blocked for a while, and others may give up
 * chunks. Return: whether to look for another one.
 */
static bool vc_pool_reclaim_or_skip(struct vcache_pool *p, struct vcache_chunk *c)
{
	struct vcache_log *log = c->log;

	return vcache_pool_reclaim(p, c) || vcache_log_is_blocked(log);
}

/*
 * A writer waits for a chunk, and none can be reclaimed: close the open read chunks, because
 * only a closed chunk can be. Return: whether there was one.
 */
static bool vc_pool_close_reads(struct vcache_pool *p)
{
	struct vcache_volume *v;
	struct vcache_log *log;
	bool closed = false;

	if (!vc_pool_has_starved(p))
		return false;
	list_for_each_entry(v, &p->volumes, node) {
		list_for_each_entry(log, &v->logs, node)
			closed |= vcache_reads_close(log);
	}
	return closed;
}

static void vc_pool_make_space(struct vcache_pool *p)
{
	unsigned long end = jiffies + VC_SPACE_TIME;
	struct vcache_chunk *c, *relocate;
	u32 left = VC_RELOCATE_BATCH;
	struct vcache_volume *v;
	bool more = true, clean = true;

	WRITE_ONCE(p->short_of_space, vc_pool_short(p));
	smp_mb(); /* whoever changes a chunk after we looked at it sees the flag, and kicks */
	vc_pool_update_reclaim(p);
	if (vcache_own_make_space(p, end))
		vcache_space_retry(p);
	while (more && READ_ONCE(p->nfree) < vc_pool_low(p)) {
		vcache_pool_give_spares(p, true);
		c = vc_pool_empty_chunk(p);
		relocate = c ? NULL : vc_pool_choose(p, &c);
		clean = c;
		if (time_after(jiffies, end))
			more = vc_pool_later(p);
		else if (c)
			more = vc_pool_reclaim_or_skip(p, c);
		else if (relocate)
			more = vc_pool_relocate(p, relocate, &left);
		else
			more = vcache_pool_look_further(p) || vc_pool_close_reads(p);
		cond_resched();
	}
	WRITE_ONCE(p->short_of_space, vc_pool_short(p));
	WRITE_ONCE(p->short_of_clean, p->short_of_space && !clean &&
		   (READ_ONCE(p->nfree) < vcache_pool_reserve(p) ||
		    vc_pool_has_starved(p)));
	if (!p->short_of_space)
		return;
	list_for_each_entry(v, &p->volumes, node) {
		/* Else no clean chunk is reclaimed, and both would wake each other for ever. */
		if (!READ_ONCE(v->stopped) && !READ_ONCE(v->failing) &&
		    READ_ONCE(p->state) == VC_POOL_OK)
			mod_delayed_work(p->wq, &v->destage, 0);
	}
}

/**
 * vcache_space_work - reclaim chunks, and reserve spare chunks for logs
 * @work: vcache_pool.space_work
 */
void vcache_space_work(struct work_struct *work)
{
	struct vcache_pool *p = container_of(to_delayed_work(work), struct vcache_pool,
					     space_work);
	struct vcache_volume *v;
	struct vcache_log *log;
	bool blocked = false;

	mutex_lock(&p->lock);
	vcache_pool_give_spares(p, true);
	vcache_pool_give_up_unsealed(p);
	if (p->foreign)
		vcache_own_clear(p);
	vcache_pool_share(p);
	vc_pool_deflate(p);
	vc_pool_make_space(p);
	if (vcache_pool_shrinks(p))
		vcache_pool_vacate(p);
	vcache_pool_migrate(p);
	/* Others may wait for what is reserved now. */
	if (vcache_pool_give_spares(p, false) && vc_pool_short(p))
		mod_delayed_work(p->wq, &p->space_work, 0);
	/* The turn of a writer may end without an event: look again while others wait for it. */
	if (vcache_pool_take_turns(p) && p->state == VC_POOL_OK)
		vcache_space_retry(p);
	list_for_each_entry(v, &p->volumes, node) {
		list_for_each_entry(log, &v->logs, node) {
			blocked |= vcache_log_is_blocked(log);
			/* There will be no chunk for its writes: they fail. */
			if (p->state != VC_POOL_OK)
				vcache_log_wake(log);
		}
	}
	mutex_unlock(&p->lock);
	if (blocked && p->state == VC_POOL_OK)
		queue_delayed_work(p->wq, &p->space_work, VC_BLOCKED_DELAY);
}
