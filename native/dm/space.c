// SPDX-License-Identifier: GPL-2.0-only
/*
 * dm-vcache: room in the cache: who gets chunks, and whose go.
 *
 * A log may have more than its share while a tenth of the pool is free; that
 * tenth is for logs below theirs. So a tag that writes faster than its origin
 * can follow ends up waiting for its own destage, and nobody else does. Every
 * log can have two chunks to write to, whatever its share. The last two that are
 * free are for carrying (see below), and nobody else writes when these are in use.
 *
 * How much is whose share: share.c. When chunks run short those go first in which
 * nothing counts any more, whoever has them; then the oldest one of a log, of the
 * log furthest over its share first. What counts in it has to be on the origin. How
 * it goes: kill.c. A log that has no more than its share loses nothing to one that
 * has: only when that tenth is being used up, by other logs below theirs, it lets
 * go as well.
 *
 * Where none can go like that, and most of what a log has in the cache is
 * superseded, the rest of its oldest chunk is carried to its end: so a log
 * whose data fits into the cache does not wait for its origin.
 *
 * DOC: Waking up
 *
 * Once the pool is said to be short of space, whatever lets one more chunk go
 * has to call vc_space_kick(), or writers wait for ever: nothing dirty is left
 * in a chunk (vc_cell_settled()), or nothing at all (vc_cell_emptied()), who kept
 * one we wanted lets go of it (vc_lookup_done()), a seal is there, something is
 * discarded. What merely has to be tried again is, after VC_SPACE_RETRY.
 */
#include "reads.h"

/* After so long those who wait get chunks, and others the lock of the pool. */
#define VC_ROOM_TIME (HZ / 2)

/* Chunks that are carried before others get their turn. */
#define VC_CARRY_BATCH 4U

/* Chunks that go in a tick because they are above a limit. */
#define VC_DEFLATE_BATCH 4U

/* When something could not be done now, look again after so long. */
#define VC_SPACE_RETRY 1UL

/* That tenth; with what is for carrying there has to be one for a writer. */
static u32 vc_pool_reserve(const struct vc_pool *p)
{
	return max(vc_pool_size(p) / VC_COMMON_OF, vc_pool_for_carry(p) + 1);
}

/*
 * May a log have one more chunk, by its share and by what others need? One that
 * has just its share may have the last one above the reserve: then it has more,
 * and gives its own, or it would wait for others to do so.
 */
static bool vc_log_may_grow(struct vc_pool *p, struct vc_log *log)
{
	u32 has = vc_log_chunks(log), share = READ_ONCE(log->share);

	return has < READ_ONCE(log->most) &&
	       (p->nfree + (has <= share) > vc_pool_reserve(p) || has < share);
}

/*
 * What nobody waits for has no chunk of the reserve, or all would have to give;
 * nor, above the share of its log, one that others over theirs would give; nor one
 * for which the log would have to give another of its own.
 */
static bool vc_log_may_prefetch(struct vc_pool *p, struct vc_log *log)
{
	u32 has = vc_log_chunks(log), keep = vc_pool_reserve(p);

	if (has >= READ_ONCE(log->share))
		keep += p->nlogs + 1;
	return has + 1 < READ_ONCE(log->most) && p->nfree > keep;
}

/* Called with the lock of the free list. */
static bool vc_chunk_may_take(struct vc_pool *p, struct vc_log *log,
			      enum vc_take take)
{
	/* Without one to carry to, no chunk could go whose data has to last. */
	if (p->nfree <= (take == VC_TAKE_CARRY ? 0 : vc_pool_for_carry(p)))
		return false;
	switch (take) {
	case VC_TAKE_WRITE:
		return log->nr < VC_CHUNKS_MIN || vc_log_may_grow(p, log);
	case VC_TAKE_READ:
		return vc_log_may_grow(p, log);
	case VC_TAKE_PREFETCH:
		return vc_log_may_prefetch(p, log);
	default:
		/* It makes more of them free. */
		return true;
	}
}

/**
 * vc_chunk_take - take a free chunk for a log
 * @p: the pool
 * @log: the log, its lock is held
 * @take: what for
 *
 * Return: NULL when there is none, or the log has to leave it to others.
 */
struct vc_chunk *vc_chunk_take(struct vc_pool *p, struct vc_log *log,
			       enum vc_take take)
{
	struct vc_chunk *c = NULL;
	unsigned long flags;

	spin_lock_irqsave(&p->free_lock, flags);
	if (vc_chunk_may_take(p, log, take)) {
		c = list_first_entry(&p->free, struct vc_chunk, node);
		list_del_init(&c->node);
		c->state = VC_CHUNK_SPARE;
		p->nfree--;
	}
	spin_unlock_irqrestore(&p->free_lock, flags);
	return c;
}

/* Have the next chunk ready before a flush needs it. */
static void vc_log_provide(struct vc_log *log)
{
	struct vc_pool *p = log->vol->pool;
	bool wake = false;

	spin_lock_irq(&log->lock);
	if (!log->spare && rcu_access_pointer(log->user) &&
	    (log->starved || log->nr)) {
		log->spare = vc_chunk_take(p, log, VC_TAKE_WRITE);
		/* With one there already, it is not a chunk that it lacks. */
		wake = log->spare && log->starved;
	}
	if (log->held && READ_ONCE(p->nfree) >= vc_pool_for_carry(p)) {
		log->held = false;
		wake = true;
	}
	spin_unlock_irq(&log->lock);
	if (wake)
		vc_log_wake(log);
}

/* Are so many chunks of a log more than so many percent of what it has? */
static bool vc_log_exceeds(struct vc_log *log, u32 nr, u32 percent)
{
	return (u64)nr * 100 > (u64)vc_log_chunks(log) * percent;
}

/* The oldest chunk of a list of a log, if it may go; or NULL. */
static struct vc_chunk *vc_log_oldest(struct list_head *list)
{
	struct vc_chunk *c = list_first_entry_or_null(list, struct vc_chunk,
						      node);

	return c && vc_chunk_may_die(c) ? c : NULL;
}

/*
 * A chunk of a log that was read before a restart, and may go, or NULL: it need
 * not wait for what was written before it.
 */
static struct vc_chunk *vc_log_warm(struct vc_log *log)
{
	struct vc_chunk *c;

	if (!log->warm)
		return NULL;
	list_for_each_entry(c, &log->chunks, node) {
		if (c->warm && vc_chunk_may_die(c))
			return c;
	}
	return NULL;
}

/* How many blocks of a chunk were read? The lock of the pool keeps the chunk. */
static u32 vc_chunk_hot(struct vc_pool *p, const struct vc_chunk *c)
{
	u32 cell = vc_chunk_nr(p, c) * p->g.chunk_blocks, hot = 0, i;

	for (i = cell; i < cell + vc_log_room(&p->g); i++)
		hot += READ_ONCE(p->heat[i]) && vc_cell_mask(&p->ix, i);
	return hot;
}

/*
 * The chunk with the least in it, of the oldest of what a log has missed twice that
 * may go; or NULL. One that is full gives nothing without a loss, so that what is
 * dirty had better go to the origin, and its chunks then; unless there is nothing, or
 * the origin takes nothing, or there is no time. Called with the lock of the log.
 */
static struct vc_chunk *vc_log_emptiest(struct vc_log *log)
{
	struct vc_pool *p = log->vol->pool;
	u32 room = vc_log_room(&p->g), look = VC_VICTIMS;
	struct vc_chunk *c, *least = NULL;
	int live = vc_keep_most(room) + 1;

	if (!log->dirty || READ_ONCE(log->vol->failing) ||
	    READ_ONCE(p->nfree) < vc_pool_reserve(p) / 2)
		live = room + 1;
	list_for_each_entry(c, &log->reads[VC_READS_MAIN].chunks, node) {
		if (!look--)
			break;
		if (atomic_read(&c->live) < live && vc_chunk_may_die(c)) {
			live = atomic_read(&c->live);
			least = c;
		}
	}
	return least;
}

/*
 * Which goes of a chunk of what a log has written, and one of what it has read?
 * Where it fits, that of which less has to be copied. Either may be NULL, then it
 * is the other one.
 */
static struct vc_chunk *vc_log_choose(struct vc_pool *p, bool fits,
				      struct vc_chunk *written,
				      struct vc_chunk *read)
{
	if (!written || !read)
		return written ?: read;
	if (fits)
		return vc_written_goes(atomic_read(&written->live),
				       atomic_read(&read->live)) ?
		       written : read;
	return vc_written_goes(vc_chunk_hot(p, written),
			       vc_chunk_hot(p, read)) ? written : read;
}

/*
 * The chunk of a log that goes first, if there is one that may go; or NULL.
 * What was missed once has little room; of the others that goes with which less is
 * lost, until most of what there is was read.
 */
static struct vc_chunk *vc_log_victim(struct vc_log *log)
{
	struct vc_reads *small = &log->reads[VC_READS_SMALL];
	struct vc_pool *p = log->vol->pool;
	struct vc_chunk *c = NULL, *written, *read;
	bool fits = vc_reads_fit(log);

	spin_lock_irq(&log->lock);
	if (vc_log_exceeds(log, small->nr, VC_SMALL_PERCENT))
		c = vc_log_oldest(&small->chunks);
	written = vc_log_oldest(&log->chunks);
	read = fits ? vc_log_emptiest(log) :
	       vc_log_oldest(&log->reads[VC_READS_MAIN].chunks);
	if (read && !fits && vc_log_exceeds(log, vc_log_reads(log),
					    READ_ONCE(p->reads_percent)))
		written = NULL;
	if (!c && !written && !read)
		c = vc_log_oldest(&small->chunks) ?: vc_log_warm(log);
	spin_unlock_irq(&log->lock);
	return c ?: vc_log_choose(p, fits, written, read);
}

/* A chunk of a log in which nothing counts any more, and may go; or NULL. */
static struct vc_chunk *vc_log_husk(struct vc_log *log)
{
	struct list_head *lists[] = {
		&log->chunks,
		&log->reads[VC_READS_SMALL].chunks,
		&log->reads[VC_READS_MAIN].chunks,
	};
	struct vc_chunk *c = NULL;
	u32 i;

	spin_lock_irq(&log->lock);
	for (i = 0; i < ARRAY_SIZE(lists) && !c; i++) {
		c = vc_log_oldest(lists[i]);
		if (c && atomic_read(&c->live))
			c = NULL;
	}
	spin_unlock_irq(&log->lock);
	return c;
}

/* Such a chunk, whoever has it: nobody loses anything with it. */
static struct vc_chunk *vc_pool_husk(struct vc_pool *p)
{
	struct vc_chunk *c;
	struct vc_volume *v;
	struct vc_log *log;

	list_for_each_entry(v, &p->volumes, node) {
		list_for_each_entry(log, &v->logs, node) {
			c = vc_log_husk(log);
			if (c)
				return c;
		}
	}
	return NULL;
}

static bool vc_log_is_over(struct vc_log *log)
{
	return vc_log_chunks(log) > log->share;
}

/* How far is a log over its share, in thousandths of it? */
static u64 vc_log_excess(struct vc_log *log)
{
	return div_u64((u64)vc_log_chunks(log) * 1000, log->share + 1);
}

/*
 * The chunk that @of finds in the log furthest over its share, of those that have
 * to give one; or NULL.
 */
static struct vc_chunk *vc_pool_first(struct vc_pool *p,
				      struct vc_chunk *(*of)(struct vc_log *))
{
	struct vc_chunk *c, *first = NULL;
	struct vc_volume *v;
	struct vc_log *log;
	u64 most = 0;
	bool all = READ_ONCE(p->nfree) < vc_pool_reserve(p);

	list_for_each_entry(v, &p->volumes, node) {
		list_for_each_entry(log, &v->logs, node) {
			if ((!all && !vc_log_is_over(log)) ||
			    (first && vc_log_excess(log) <= most))
				continue;
			c = of(log);
			if (c) {
				first = c;
				most = vc_log_excess(log);
			}
		}
	}
	return first;
}

/*
 * The oldest chunk of a log, if carrying pays: where three quarters of what
 * the log has are dirty, a chunk that is gained costs three that are copied.
 */
static struct vc_chunk *vc_log_burden(struct vc_log *log)
{
	struct vc_volume *v = log->vol;
	struct vc_chunk *c, *first;
	u64 dirty = 0;

	if (READ_ONCE(v->stopped) || READ_ONCE(v->drain) ||
	    v->pool->state != VC_POOL_OK)
		return NULL;
	spin_lock_irq(&log->lock);
	list_for_each_entry(c, &log->chunks, node)
		dirty += atomic_read(&c->dirty);
	first = list_first_entry_or_null(&log->chunks, struct vc_chunk, node);
	if (first && (first->state != VC_CHUNK_SEALED ||
		      !atomic_read(&first->dirty) ||
		      dirty * 4 > (u64)log->nr * 3 *
				 vc_log_room(&v->pool->g)))
		first = NULL;
	spin_unlock_irq(&log->lock);
	return first;
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

/*
 * Chunks that should be free: the reserve; and one for each log, as far as it
 * takes that from logs over their share only.
 */
static u32 vc_pool_low(struct vc_pool *p)
{
	u32 low = vc_pool_reserve(p);

	if (vc_pool_has_over(p))
		low += p->nlogs + 1;
	return min(low, vc_pool_size(p) / 2);
}

/* Is there one who cannot write for want of a chunk, and its origin takes data? */
static bool vc_pool_has_starved(struct vc_pool *p)
{
	struct vc_volume *v;
	struct vc_log *log;

	list_for_each_entry(v, &p->volumes, node) {
		list_for_each_entry(log, &v->logs, node) {
			if (READ_ONCE(log->starved) && !READ_ONCE(v->failing))
				return true;
		}
	}
	return false;
}

/* Is somebody to be told when one more chunk can go? */
static bool vc_pool_short(struct vc_pool *p)
{
	return READ_ONCE(p->nfree) < vc_pool_low(p) || vc_pool_shrinks(p);
}

/*
 * Nothing can go of what is known: find out what a volume has that was not
 * used since the pool was loaded. Return: there was one.
 */
static bool vc_pool_look_further(struct vc_pool *p)
{
	struct vc_volume *v;

	list_for_each_entry(v, &p->volumes, node) {
		if (!v->replayed && !v->dev)
			return !vc_volume_start(v);
	}
	return false;
}

/* Carry a chunk, @left at most. Return: false: not now; there is more to do. */
static bool vc_pool_carry(struct vc_pool *p, struct vc_chunk *c, u32 *left)
{
	unsigned long delay = 0;

	if (*left) {
		(*left)--;
		if (vc_carry_chunk(c->log, c))
			return true;
		delay = VC_SPACE_RETRY;
	}
	mod_delayed_work(p->wq, &p->space_work, delay);
	return false;
}

/* Keep what is hot in a chunk, and let it die. Return: false: not now. */
static bool vc_pool_kill(struct vc_pool *p, struct vc_chunk *c)
{
	int r = vc_chunk_kill(p, c, true);

	if (r == -EAGAIN)
		mod_delayed_work(p->wq, &p->space_work, VC_SPACE_RETRY);
	return !r;
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
	struct vc_chunk *c;

	list_for_each_entry(v, &p->volumes, node) {
		list_for_each_entry(log, &v->logs, node) {
			while (left && vc_log_chunks(log) >= log->most) {
				c = vc_log_victim(log);
				if (!c || !vc_pool_kill(p, c))
					break;
				left--;
			}
		}
	}
	if (!left)
		mod_delayed_work(p->wq, &p->space_work, VC_SPACE_RETRY);
}

/* The log of a chunk that is to leave has to let go of its oldest first. */
static struct vc_chunk *vc_leaving_first(struct vc_chunk *c)
{
	struct vc_log *log = c->log;
	struct vc_chunk *first;

	if (READ_ONCE(c->state) == VC_CHUNK_OPEN && c->reads)
		vc_reads_close(log);
	else if (READ_ONCE(c->state) == VC_CHUNK_OPEN)
		vc_log_close_idle(log);
	spin_lock_irq(&log->lock);
	if (c->reads || c->warm)
		first = vc_chunk_may_die(c) ? c : NULL;
	else
		first = vc_log_oldest(&log->chunks);
	spin_unlock_irq(&log->lock);
	return first;
}

/*
 * Let go of what is behind the new end of the pool, a few chunks at a time. What
 * has still to be destaged kicks us when it is.
 */
static void vc_pool_vacate(struct vc_pool *p)
{
	u32 i, left = VC_DEFLATE_BATCH;
	bool further = false;
	struct vc_chunk *first;

	for (i = p->limit; i < p->g.chunks; i++) {
		struct vc_chunk *c = &p->chunk[i];

		if (left && vc_chunk_leaves(c) && c->log) {
			first = vc_leaving_first(c);
			/* What is in the way is so of others, too. */
			if (first)
				left = vc_pool_kill(p, first) ? left - 1 : 0;
		}
		further |= vc_chunk_leaves(c) && !c->log;
		cond_resched();
	}
	/* The oldest chunk of a log may be one that we had passed. */
	vc_pool_count_leaving(p);
	if (!p->leaving)
		vc_pool_shrunk(p);
	else if (!left || (further && vc_pool_look_further(p)))
		mod_delayed_work(p->wq, &p->space_work, VC_SPACE_RETRY);
}

/* Let others have the lock. Return: false: there is more to do. */
static bool vc_pool_later(struct vc_pool *p)
{
	mod_delayed_work(p->wq, &p->space_work, 0);
	return false;
}

static void vc_pool_make_room(struct vc_pool *p)
{
	unsigned long end = jiffies + VC_ROOM_TIME;
	struct vc_chunk *c, *burden;
	u32 left = VC_CARRY_BATCH;
	struct vc_volume *v;
	bool more = true, clean = true;

	WRITE_ONCE(p->short_of_space, vc_pool_short(p));
	smp_mb(); /* what we do not see yet of the chunks, kicks us */
	while (more && READ_ONCE(p->nfree) < vc_pool_low(p)) {
		c = vc_pool_husk(p) ?: vc_pool_first(p, vc_log_victim);
		burden = c ? NULL : vc_pool_first(p, vc_log_burden);
		clean = c;
		if (time_after(jiffies, end))
			more = vc_pool_later(p);
		else if (c)
			more = vc_pool_kill(p, c);
		else if (burden)
			more = vc_pool_carry(p, burden, &left);
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
	vc_pool_share(p);
	vc_pool_deflate(p);
	vc_pool_make_room(p);
	if (vc_pool_shrinks(p))
		vc_pool_vacate(p);
	list_for_each_entry(v, &p->volumes, node) {
		list_for_each_entry(log, &v->logs, node)
			vc_log_provide(log);
	}
	mutex_unlock(&p->lock);
}

/* Any chunk of a log that may go, or NULL. */
static struct vc_chunk *vc_log_any(struct vc_log *log)
{
	struct vc_chunk *c;

	spin_lock_irq(&log->lock);
	c = vc_log_oldest(&log->chunks) ?:
	    vc_log_oldest(&log->reads[VC_READS_SMALL].chunks) ?:
	    vc_log_oldest(&log->reads[VC_READS_MAIN].chunks) ?:
	    vc_log_warm(log);
	spin_unlock_irq(&log->lock);
	return c;
}

/**
 * vc_log_shed - let chunks of a log die, of those that may
 * @log: the log; its pool is locked
 * @most: how many at most
 *
 * Return: 0 or a negative errno.
 */
int vc_log_shed(struct vc_log *log, u32 most)
{
	struct vc_chunk *c;
	int r = 0;

	while (!r && most-- && (c = vc_log_any(log))) {
		r = vc_chunk_kill(log->vol->pool, c, false);
		cond_resched();
	}
	return r;
}

/**
 * vc_log_clear - let all chunks of a log die
 * @log: the log; its pool is locked, nothing uses it, all it has is clean
 *
 * Return: 0 or a negative errno.
 */
int vc_log_clear(struct vc_log *log)
{
	int r;

	vc_reads_close(log);
	r = vc_log_shed(log, U32_MAX);
	return r ?: vc_log_chunks(log) ? -EBUSY : 0;
}
