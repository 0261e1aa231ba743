// SPDX-License-Identifier: GPL-2.0-only
/*
 * dm-vcache: from the cache to the origin, in the background.
 *
 * A round takes the oldest chunks of a log that are not clean, sorts what
 * still counts in them by its place on the origin, and copies it: neighbours
 * there are read into neighbouring pages and written as one request. What
 * follows there and is dirty goes with them, in whatever chunk it is: for a
 * slow disk a long request costs hardly more than a short one. That goes by
 * windows. When one is durable on the origin its cells are clean, and a chunk
 * with no other cells can be reclaimed; until then it stays in the cache for reads. The
 * chunk that is open goes when no other is dirty, as far as it is written, and
 * stays open: who writes little, now and then, needs no chunk each time. A
 * window keeps its chunks only while it is read: writing it takes as long as
 * the origin does, and what has been relocated meanwhile need not stay.
 *
 * A volume has one round at a time, also for logs of different tags: a newer
 * version of a block, whoever wrote it, must not reach the origin before an
 * older one. Memory for some rounds is set aside, so that they go on when
 * there is none.
 *
 * They go at full speed when the log has most of its share dirty, when nothing
 * has been written for a while, when chunks run short, or when all has to go.
 * From a quarter of the share on they go slowly: there is no hurry, and what is
 * overwritten meanwhile never goes.
 *
 * Their writes are background writes for the block layer, whose writeback
 * throttling (blk-wbt) keeps them from delaying reads of the origin, where it
 * is there. While others read from an origin, windows are throttled: see throttle.c.
 */
#include <linux/blkdev.h>
#include <linux/delay.h>
#include <linux/sort.h>

#include "round.h"

/* A volume without a write for so long is destaged. */
#define VC_IDLE_MS	2000U

/* Look again after so long, while something is dirty. */
#define VC_DESTAGE_TICK	(HZ / 2)

/* After the origin has refused something, wait for so long. */
#define VC_RETRY_DELAY	(5 * HZ)

/* How long a round should take at most. */
#define VC_ROUND_TIME	(HZ / 2)

/* Fewest blocks of another window: an origin may be far away rather than slow. */
#define VC_WINDOW_MIN		32U

/* How long a window should take at most. */
#define VC_WINDOW_TIME		(HZ / 10)

/* Where there is no hurry, a rest is so many times as long as the window took. */
#define VC_REST_EASY	8U

/* Whether there is one now, is asked so often. */
#define VC_REST_SLICE_MS	20U

/*
 * Can a round that has @n chunks so far have this one? In the open one records
 * count when they are durable, so that what is found there may go.
 */
static bool vc_round_takes(struct vc_chunk *c, u32 n)
{
	if (c->state == VC_CHUNK_OPEN)
		return !n && atomic_read(&c->dirty);
	return c->state == VC_CHUNK_SEALED && n < VC_ROUND_CHUNKS;
}

/*
 * Take the oldest dirty chunks of a log. Those in which all is superseded go by
 * themselves: that costs nothing, and may be enough. Return: false when there are
 * none.
 */
static bool vc_round_fill(struct vc_round *r, struct vc_log *log)
{
	struct vc_volume *v = log->vol;
	struct vc_chunk *c;
	u32 dirty = 0, n = 0, i;

	r->nr = 0;
	spin_lock_irq(&log->lock);
	list_for_each_entry(c, &log->chunks, node) {
		u32 more = atomic_read(&c->dirty);

		if (c->clean)
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
		vc_round_note(r, v->pool, r->chunk[i]);
	sort(r->cell, r->nr, sizeof(r->cell[0]), vc_round_cmp, NULL);
	return n;
}

/* What of a block has not been superseded, or relocated, since it was read? */
static u8 vc_window_mask(struct vc_pool *p, const struct vc_round_cell *c)
{
	if (READ_ONCE(vc_cell_chunk(p, c->cell)->reuse) != c->reuse)
		return 0;
	return c->mask & READ_ONCE(p->ix.where[c->cell]);
}

/* Write a window to the origin, durably; what follows there in one request. */
static int vc_round_write(struct vc_round *r, struct vc_volume *v, u32 n)
{
	blk_opf_t opf = REQ_OP_WRITE | vc_durable_flags(v->origin);
	struct bio *bio = NULL;
	struct blk_plug plug;
	int error;
	u32 i;

	vc_round_begin(r);
	blk_start_plug(&plug);
	for (i = 0; i < n; i++) {
		struct vc_round_cell *c = &r->window[i];
		unsigned long mask = vc_window_mask(v->pool, c);
		unsigned int s, e;

		for (s = find_first_bit(&mask, VC_BLOCK_SECTORS);
		     s < VC_BLOCK_SECTORS;
		     s = find_next_bit(&mask, VC_BLOCK_SECTORS, e)) {
			sector_t at = c->block * VC_BLOCK_SECTORS + s;

			e = find_next_zero_bit(&mask, VC_BLOCK_SECTORS, s);
			if (bio && bio_end_sector(bio) != at) {
				submit_bio_noacct(bio);
				bio = NULL;
			}
			if (!bio)
				bio = vc_round_bio(r, v->pool, v->origin, opf,
						   n - i, at);
			__bio_add_page(bio, r->page[i],
				       (e - s) << SECTOR_SHIFT,
				       s << SECTOR_SHIFT);
			atomic64_add(e - s, &v->destaged);
		}
	}
	if (bio)
		submit_bio_noacct(bio);
	blk_finish_plug(&plug);
	error = vc_round_wait(r);
	if (!error && vc_isolation(v->origin) == VCACHE_ISOLATION_DEGRADED)
		error = blkdev_issue_flush(v->origin);
	return error;
}

/* Is there too little that is clean where this log has its chunks? */
static bool vc_log_lacks_clean(const struct vc_log *log)
{
	return READ_ONCE(log->vol->pool->short_of_clean) ||
	       READ_ONCE(log->reclaim_pending) || READ_ONCE(log->own_short);
}

/*
 * Should what this log has dirty go as soon as it can? A writer that waits for
 * a chunk is no reason while there are clean ones to let go.
 */
static bool vc_log_is_urgent(struct vc_log *log)
{
	struct vc_volume *v = log->vol;
	u32 share = vc_log_part(log), dirty = READ_ONCE(log->dirty);

	return READ_ONCE(v->drain) || vc_log_lacks_clean(log) ||
	       READ_ONCE(v->pool->leaving) || vc_log_must_vacate(log) ||
	       (READ_ONCE(log->starved) && dirty >= READ_ONCE(log->nr)) ||
	       dirty > share - share / 4 ||
	       time_after(jiffies, READ_ONCE(log->written) +
			  msecs_to_jiffies(VC_IDLE_MS));
}

/* A round of one log keeps all others of its volume waiting. */
static bool vc_volume_is_urgent(struct vc_volume *v)
{
	struct vc_log *log;

	if (READ_ONCE(v->stopped))
		return true;
	list_for_each_entry_lockless(log, &v->logs, node) {
		if (vc_log_dirty_chunks(log) && vc_log_is_urgent(log))
			return true;
	}
	return false;
}

/* Rest after a window that took so many jiffies, if there is no hurry. */
static void vc_volume_rest(struct vc_volume *v, unsigned long took)
{
	v->rest_until = jiffies + max(took, 1UL) * VC_REST_EASY;
	while (time_before(jiffies, v->rest_until) && !vc_volume_is_urgent(v))
		msleep(VC_REST_SLICE_MS);
}

/*
 * Add what follows the last block of the window on the origin, and is dirty,
 * wherever it is in the cache: there it is one request with it.
 */
static u32 vc_window_extend(struct vc_round *r, struct vc_volume *v, u32 n,
			    u32 most)
{
	while (n < most && r->window[n - 1].mask == VC_MASK_ALL) {
		struct vc_round_cell *c = &r->window[n];

		c->block = r->window[n - 1].block + 1;
		if (!vc_lookup_dirty(v, c->block, &c->cell))
			break;
		c->reuse = vc_cell_chunk(v->pool, c->cell)->reuse;
		c->mask = VC_MASK_ALL;
		c->extra = true;
		n++;
	}
	return n;
}

/* Does the block go with those that follow what was noted? */
static bool vc_window_has(const struct vc_round *r, u32 n, u64 block)
{
	return n && r->window[n - 1].extra && block <= r->window[n - 1].block;
}

/*
 * Fill the window, with the @from-th block of the round and what comes next.
 * Return: how many of the round's are dealt with.
 */
static u32 vc_window_fill(struct vc_round *r, struct vc_volume *v, u32 from,
			  u32 most, u32 *n)
{
	u32 i;

	*n = 0;
	for (i = from; i < r->nr && *n < most; i++) {
		struct vc_round_cell *c = &r->cell[i];

		if (vc_window_has(r, *n, c->block))
			continue;
		/* Something newer has taken its place, or it went already. */
		c->mask = vc_lookup_pin(v, c->cell, c->block);
		if (!c->mask)
			continue;
		c->reuse = vc_cell_chunk(v->pool, c->cell)->reuse;
		r->window[(*n)++] = *c;
		*n = vc_window_extend(r, v, *n, most);
	}
	return i - from;
}

/* Copy a window of @n blocks. Return: 0 or an error; then all stay dirty. */
static int vc_window_copy(struct vc_round *r, struct vc_volume *v, u32 n)
{
	int error = vc_round_read(r, v->pool, r->window, n);
	u32 i;

	for (i = 0; i < n; i++)
		vc_lookup_done(v->pool, r->window[i].cell);
	error = error ?: vc_round_write(r, v, n);
	if (error)
		return error;
	vc_throttle_learn(v, r);
	for (i = 0; i < n; i++) {
		struct vc_round_cell *c = &r->window[i];

		vc_lookup_clean(v, c->cell, c->block, c->reuse);
	}
	return 0;
}

/* Others of the volume wait for it: let it be short, as the origin is slow. */
static void vc_window_adapt(struct vc_volume *v, unsigned long took)
{
	if (took > VC_WINDOW_TIME)
		v->width = max(v->width / 2, VC_WINDOW_MIN);
	else if (took < VC_WINDOW_TIME / 4)
		v->width = min(v->width * 2, VC_WINDOW);
}

/*
 * The next window, with the @from-th block of the round and what comes next. Sets
 * @more to how many of them are dealt with; 0: there are none. Return: 0 or an error.
 */
static int vc_round_window(struct vc_round *r, struct vc_volume *v,
			   struct vc_log *log, u32 from, u32 *more)
{
	bool throttled = vc_throttle_wanted(log);
	bool held = throttled && vc_throttle_begin(v);
	unsigned long start = jiffies, took = 0;
	int error = 0;
	u32 n;

	*more = vc_window_fill(r, v, from, throttled ? VC_WINDOW_THROTTLED : v->width,
			       &n);
	if (n) {
		error = vc_window_copy(r, v, n);
		took = jiffies - start;
		r->worked += took;
		if (!error)
			vc_window_adapt(v, took);
	} else {
		*more = 0;
	}
	if (throttled)
		vc_throttle_end(v, took, held);
	return error;
}

/*
 * What was refused stays dirty. Nothing is lost, and nothing is reclaimed. A round that
 * was in no hurry ends when there is one: what is superseded by now may be enough.
 */
static int vc_round_copy(struct vc_round *r, struct vc_volume *v,
			 struct vc_log *log)
{
	bool urgent = vc_volume_is_urgent(v);
	u32 from, n;
	int error;

	r->worked = 0;
	for (from = 0; from < r->nr && !READ_ONCE(v->stopped); from += n) {
		unsigned long worked = r->worked;

		error = vc_round_window(r, v, log, from, &n);
		if (error)
			return error;
		if (!n)
			break;
		vc_volume_rest(v, r->worked - worked);
		if (!urgent && vc_volume_is_urgent(v))
			break;
		cond_resched();
	}
	return 0;
}

/*
 * Note that a chunk is clean, if it is sealed and has nothing dirty. The table
 * is locked. Return: it has become clean.
 */
static bool vc_chunk_note_clean(struct vc_log *log, struct vc_chunk *c, u64 gen)
{
	struct vc_pool *p = log->vol->pool;
	u32 nr = vc_chunk_nr(p, c);
	bool clean;

	spin_lock_irq(&log->lock);
	clean = c->log == log && c->gen == gen && !c->clean &&
		c->state == VC_CHUNK_SEALED && !atomic_read(&c->dirty);
	if (clean) {
		c->clean = true;
		log->dirty--;
	}
	spin_unlock_irq(&log->lock);
	if (clean) {
		vc_table_entry(p, nr)->clean = cpu_to_le64(gen);
		set_bit(nr / VC_CHUNKS_PER_BLOCK, p->table_dirty);
	}
	return clean;
}

/*
 * The chunk table need not say that chunks are clean before they are reclaimed, but a
 * clean shutdown is one with that. Return: how many have become clean.
 */
static u32 vc_round_clean(struct vc_round *r, struct vc_log *log)
{
	struct vc_pool *p = log->vol->pool;
	u32 i, n = 0;

	mutex_lock(&p->table_lock);
	for (i = 0; i < r->chunks; i++)
		n += vc_chunk_note_clean(log, r->chunk[i], r->gen[i]);
	mutex_unlock(&p->table_lock);
	vc_log_wake(log);
	return n;
}

/**
 * vc_volume_note_clean - note which chunks of a volume are clean
 * @v: the volume, stopped, all of its chunks closed; its pool is locked
 *
 * What was dirty in the open chunk may have gone with others to the origin,
 * and no round has looked at that chunk since.
 */
void vc_volume_note_clean(struct vc_volume *v)
{
	struct vc_chunk *c;
	struct vc_log *log;

	mutex_lock(&v->pool->table_lock);
	list_for_each_entry(log, &v->logs, node) {
		list_for_each_entry(c, &log->chunks, node)
			vc_chunk_note_clean(log, c, c->gen);
	}
	mutex_unlock(&v->pool->table_lock);
}

/* Is it time for this log? */
static bool vc_log_due(struct vc_log *log)
{
	return vc_log_is_urgent(log) ||
	       (READ_ONCE(log->dirty) > vc_log_part(log) / 4 &&
		time_after_eq(jiffies, log->vol->rest_until));
}

/**
 * vc_log_close_idle - close the chunk being written, if nobody writes to it now
 * @log: the log
 *
 * Only a chunk that is closed can go, or be sealed again.
 */
void vc_log_close_idle(struct vc_log *log)
{
	if (!mutex_trylock(&log->append))
		return;
	if (log->open && log->at)
		vc_log_close(log);
	mutex_unlock(&log->append);
}

/*
 * The other logs of the volume wait for a round. On a slow origin take few
 * chunks at a time.
 */
static void vc_round_adapt(struct vc_volume *v, unsigned long took)
{
	if (took > VC_ROUND_TIME)
		v->most = max(v->most / 2, 1U);
	else if (took < VC_ROUND_TIME / 4)
		v->most = min(v->most * 2, VC_ROUND_CELLS);
}

/* Return: a round was done; false: nothing to do, or it failed. */
static bool vc_destage_round(struct vc_round *r, struct vc_volume *v,
			     struct vc_log *log)
{
	u32 cleaned = 0;
	int error;

	if (!vc_round_fill(r, log)) {
		if (vc_log_lacks_clean(log))
			vc_log_close_idle(log);
		return false;
	}
	error = vc_round_copy(r, v, log);
	if (!error)
		cleaned = vc_round_clean(r, log);
	vc_round_adapt(v, r->worked);
	if (error && !v->failing)
		DMERR("%s: destaging volume %u fails with error %d, its data stays in the cache",
		      dm_device_name(v->pool->md), v->id, error);
	v->failing = error;
	if (!error)
		vc_space_kick(v->pool);
	else
		wake_up(&v->dev->idle);
	return !error && (cleaned || r->nr);
}

static bool vc_destage_log(struct vc_volume *v, struct vc_log *log)
{
	struct vc_round *r = mempool_alloc(&v->pool->rounds, GFP_NOIO);
	bool done = vc_destage_round(r, v, log);

	mempool_free(r, &v->pool->rounds);
	return done;
}

/* One round of each log that has something to do. Return: more to do. */
static bool vc_destage_pass(struct vc_volume *v)
{
	struct vc_log *log;
	bool more = false;

	list_for_each_entry_lockless(log, &v->logs, node) {
		if (READ_ONCE(v->stopped))
			return false;
		if (READ_ONCE(log->dirty) && vc_log_due(log))
			more |= vc_destage_log(v, log);
		if (!READ_ONCE(log->dirty) && vc_log_lacks_clean(log))
			vc_log_close_idle(log);
	}
	return more && !v->failing;
}

/**
 * vc_destage_soon - something is dirty where nothing was
 * @v: the volume
 *
 * Any context.
 */
void vc_destage_soon(struct vc_volume *v)
{
	if (!READ_ONCE(v->stopped))
		queue_delayed_work(v->pool->wq, &v->destage, VC_DESTAGE_TICK);
}

/**
 * vc_destage_work - destage a volume
 * @work: vc_volume.destage
 */
void vc_destage_work(struct work_struct *work)
{
	struct vc_volume *v = container_of(to_delayed_work(work),
					   struct vc_volume, destage);
	struct vc_log *log;
	bool dirty = false;

	while (vc_destage_pass(v))
		wake_up(&v->idle);
	wake_up(&v->idle);
	if (READ_ONCE(v->stopped))
		return;
	list_for_each_entry_lockless(log, &v->logs, node)
		dirty |= vc_log_dirty_chunks(log);
	/* What the origin has refused may be discarded by now. */
	if (!dirty)
		v->failing = false;
	else
		queue_delayed_work(v->pool->wq, &v->destage, v->failing ?
				   VC_RETRY_DELAY : VC_DESTAGE_TICK);
}
