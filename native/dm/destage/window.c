// SPDX-License-Identifier: GPL-2.0-only
/*
 * dm-vcache: a window of a destage round: it is read from the cache, and written to the
 * origin. See flight.c for when, and how many at a time.
 *
 * If a window fails, its blocks are copied one by one. Blocks that fail alone as well are
 * left out of further windows for some time, see bad.c.
 */
#include <linux/blkdev.h>

#include "internal.h"

/*
 * Blocks of a failed window are tried alone for so long, jiffies, but at least so many. The
 * others are tried in the next round.
 */
#define VC_ALONE_TIME	HZ
#define VC_ALONE_MIN	4U

/* Most blocks of what counts as one request to an origin: a disk writes them in 2 ms. */
#define VC_REQUEST_MOST	64U

/*
 * Which sectors of a block may be written: those that are still valid since it was read, if
 * its range is held? Whoever supersedes them later waits for the range.
 */
static u8 vc_window_mask(struct vcache_pool *p, const struct vcache_round_cell *c)
{
	if (!c->held)
		return 0;
	if (READ_ONCE(vcache_cell_chunk(p, c->cell)->reuse) != c->reuse)
		return 0;
	return c->mask & READ_ONCE(p->ix.where[c->cell]);
}

/* Let the last one who wrote to a log pay for a request, unless an operator waits for it. */
static void vc_window_charge(const struct vcache_log *log, struct bio *bio)
{
	struct vcache_tag *tag;

	if (READ_ONCE(log->vol->drain))
		return;
	rcu_read_lock();
	tag = rcu_dereference(log->user);
	if (tag)
		vcache_payer_charge(tag, bio);
	rcu_read_unlock();
}

/* A request is complete. The worker waits for its window, so the volume stays until then. */
static void vc_window_written(struct bio *bio)
{
	struct vcache_volume *v = ((struct vcache_window *)bio->bi_private)->vol;

	atomic_dec(&v->writes);
	wake_up(&v->room);
	vcache_window_end_io(bio);
}

/* Send a request to the origin when the queue has room for it. */
static void vc_window_submit(struct vcache_volume *v, struct bio *bio)
{
	wait_event(v->room, atomic_read(&v->writes) < v->queue.depth.value);
	atomic_inc(&v->writes);
	submit_bio_noacct(bio);
	vcache_queue_sent(&v->queue, ktime_get_ns());
}

/*
 * Send a window to the origin, to be written durably; consecutive blocks in one request. @log has
 * its first block: if a volume has a payer, it has one log with data.
 */
static void vc_window_send_write(struct vcache_window *w, struct vcache_volume *v,
				 const struct vcache_log *log)
{
	blk_opf_t opf = REQ_OP_WRITE | vcache_durable_flags(v->origin);
	struct bio *bio = NULL;
	struct blk_plug plug;
	u32 i;

	vcache_window_begin(w);
	w->vol = v;
	if (!v->writing++)
		vcache_queue_begin(&v->queue, w->began);
	blk_start_plug(&plug);
	for (i = 0; i < w->nr; i++) {
		struct vcache_round_cell *c = &w->cell[i];
		unsigned long mask = vc_window_mask(v->pool, c);
		unsigned int s, e;

		for (s = find_first_bit(&mask, VC_BLOCK_SECTORS);
		     s < VC_BLOCK_SECTORS;
		     s = find_next_bit(&mask, VC_BLOCK_SECTORS, e)) {
			sector_t at = c->block * VC_BLOCK_SECTORS + s;

			e = find_next_zero_bit(&mask, VC_BLOCK_SECTORS, s);
			if (bio && bio_end_sector(bio) != at) {
				vc_window_submit(v, bio);
				bio = NULL;
			}
			if (!bio) {
				bio = vcache_window_bio(w, v->pool, v->origin, opf,
							w->nr - i, at);
				bio->bi_end_io = vc_window_written;
				vc_window_charge(log, bio);
			}
			__bio_add_page(bio, w->page[i],
				       (e - s) << SECTOR_SHIFT,
				       s << SECTOR_SHIFT);
			atomic64_add(e - s, &v->destaged);
		}
	}
	if (bio)
		vc_window_submit(v, bio);
	blk_finish_plug(&plug);
	vcache_window_sent(w);
}

/*
 * Add a dirty block to a window because its neighbour is in it, wherever it is in the cache.
 * Return: false if it is not dirty as a whole, or has failed.
 */
static bool vc_window_add(struct vcache_window *w, struct vcache_volume *v, u64 block)
{
	struct vcache_round_cell *c = &w->cell[w->nr];

	if (vcache_bad_has(v, block) || !vcache_lookup_dirty(v, block, &c->cell))
		return false;
	c->block = block;
	c->reuse = vcache_cell_chunk(v->pool, c->cell)->reuse;
	c->mask = VC_MASK_ALL;
	c->extra = true;
	w->nr++;
	return true;
}

/* Extend a window by the dirty blocks that follow its last block on the origin. */
static void vc_window_extend(struct vcache_window *w, struct vcache_volume *v, u32 most)
{
	while (w->nr < most && w->cell[w->nr - 1].mask == VC_MASK_ALL &&
	       vc_window_add(w, v, w->cell[w->nr - 1].block + 1))
		;
}

/* Is a block dirty as a whole? It may be so no longer when this returns. */
static bool vc_block_is_dirty(struct vcache_volume *v, u64 block)
{
	u32 cell;

	if (!vcache_lookup_dirty(v, block, &cell))
		return false;
	vcache_lookup_done(v->pool, cell);
	return true;
}

/* Blocks of a long request to an origin. */
static u32 vc_request_blocks(const struct vcache_volume *v)
{
	return min(queue_max_sectors(bdev_get_queue(v->origin)) / VC_BLOCK_SECTORS,
		   VC_REQUEST_MOST);
}

/*
 * Extend a window by the dirty blocks that precede @block, which is added next, but not by those
 * before @first. They fill at most one request with it: what is far from the blocks of the round
 * can wait.
 */
static void vc_window_precede(struct vcache_window *w, struct vcache_volume *v, u32 most,
			      u64 first, u64 block)
{
	u32 room = min(most - w->nr, vc_request_blocks(v)) - 1;
	u64 from = block;

	if (w->nr)
		first = w->cell[w->nr - 1].block + 1;
	while (room-- && from > first && vc_block_is_dirty(v, from - 1))
		from--;
	for (; from < block; from++)
		vc_window_add(w, v, from);
}

/* Which noted blocks are in the window already, because they follow another? Those before this. */
static u64 vc_window_extra(const struct vcache_window *w, u64 before)
{
	if (!w->nr || !w->cell[w->nr - 1].extra)
		return before;
	return w->cell[w->nr - 1].block + 1;
}

/*
 * Earlier windows of the round may still be in flight. The blocks of the next one are behind
 * theirs, except for another part of the last one.
 */
static void vc_window_pass(struct vcache_round *r, const struct vcache_window *w)
{
	if (!w->nr)
		return;
	r->extra = vc_window_extra(w, r->extra);
	r->after = w->cell[w->nr - 1].block + 1;
}

/**
 * vcache_window_fill - fill the next window of a round
 * @r: the round; its next blocks are dealt with
 * @w: the window
 * @v: the volume
 * @most: most blocks
 *
 * A window of few blocks may have more if these belong to one request, which takes hardly longer
 * then. The chunks of its blocks stay until it is read. A window without blocks: none are left.
 */
void vcache_window_fill(struct vcache_round *r, struct vcache_window *w,
			struct vcache_volume *v, u32 most)
{
	u32 extended = max(most, vc_request_blocks(v));

	w->nr = 0;
	for (; r->from < r->nr && w->nr < most; r->from++) {
		struct vcache_round_cell *c = &r->cell[r->from];

		if (c->block < vc_window_extra(w, r->extra))
			continue;
		/* The mask is 0 if it was superseded, or is clean by now. */
		c->mask = vcache_lookup_pin(v, c->cell, c->block, false);
		if (!c->mask)
			continue;
		c->reuse = vcache_cell_chunk(v->pool, c->cell)->reuse;
		if (c->mask == VC_MASK_ALL)
			vc_window_precede(w, v, extended, r->after, c->block);
		w->cell[w->nr++] = *c;
		vc_window_extend(w, v, extended);
	}
	vc_window_pass(r, w);
}

/* Hold the blocks of a window from @from to before @to, which follow one another. */
static bool vc_window_hold_run(struct vcache_window *w, struct vcache_volume *v,
			       u32 from, u32 to)
{
	u32 i;

	if (!vcache_range_try(&v->ranges, &w->range[w->ranges],
			      w->cell[from].block, w->cell[to - 1].block))
		return false;
	w->ranges++;
	for (i = from; i < to; i++)
		w->cell[i].held = true;
	return true;
}

/* Hold the blocks of a window that nobody else holds. Return: how many others do hold. */
static u32 vc_window_hold(struct vcache_window *w, struct vcache_volume *v)
{
	u32 from, to, i, busy = 0;

	w->ranges = 0;
	for (i = 0; i < w->nr; i++)
		w->cell[i].held = false;
	for (from = 0; from < w->nr; from = to) {
		for (to = from + 1; to < w->nr &&
		     w->cell[to].block == w->cell[to - 1].block + 1; to++)
			;
		if (vc_window_hold_run(w, v, from, to))
			continue;
		VCACHE_PROBE("destage leaves out a block that is written");
		for (i = from; i < to; i++)
			busy += !vc_window_hold_run(w, v, i, i + 1);
	}
	return busy;
}

static void vc_window_release(struct vcache_window *w, struct vcache_volume *v)
{
	while (w->ranges)
		vcache_range_put(&v->ranges, &w->range[--w->ranges]);
}

/* Mark the blocks of a window clean: they are durable on the origin. */
static void vc_window_clean(struct vcache_round *r, struct vcache_window *w,
			    struct vcache_volume *v)
{
	u32 i;

	for (i = 0; i < w->nr; i++) {
		struct vcache_round_cell *c = &w->cell[i];

		if (!c->held)
			continue;
		vcache_lookup_clean(v, c->cell, c->block, c->reuse);
		vcache_bad_remove(v, c->block);
		r->copied++;
	}
}

/**
 * vcache_window_write - begin to write a window to the origin
 * @r: the round
 * @w: the window; it is being read
 * @v: the volume
 *
 * Waits until it has been read.
 *
 * Return: 0, then vcache_window_finish() is needed; or an error, then all its blocks stay dirty.
 */
int vcache_window_write(struct vcache_round *r, struct vcache_window *w,
			struct vcache_volume *v)
{
	struct vcache_log *log = vcache_cell_chunk(v->pool, w->cell[0].cell)->log;
	int error = vcache_window_wait(w);
	u32 i;

	for (i = 0; i < w->nr; i++)
		vcache_lookup_done(v->pool, w->cell[i].cell);
	if (error)
		return error;
	vcache_pool_read_ok(v->pool);
	r->busy += vc_window_hold(w, v);
	vc_window_send_write(w, v, log);
	return 0;
}

/**
 * vcache_window_finish - complete a window
 * @r: the round
 * @w: the window; it is being written
 * @v: the volume
 *
 * Waits until it is durable on the origin, and marks its blocks clean.
 *
 * Return: 0, or an error; then all its blocks stay dirty.
 */
int vcache_window_finish(struct vcache_round *r, struct vcache_window *w,
			 struct vcache_volume *v)
{
	int error = vcache_window_wait(w);

	if (!--v->writing)
		vcache_queue_end(&v->queue, w->ended);
	if (!error && vcache_isolation_of(v->origin) == VCACHE_ISOLATION_DEGRADED)
		error = blkdev_issue_flush(v->origin);
	if (!error)
		vc_window_clean(r, w, v);
	vc_window_release(w, v);
	r->refused |= error;
	return error;
}

/**
 * vcache_window_copy - copy a window
 * @r: the round
 * @w: the window, filled
 * @v: the volume
 *
 * Return: 0, or an error; then all its blocks stay dirty.
 */
int vcache_window_copy(struct vcache_round *r, struct vcache_window *w, struct vcache_volume *v)
{
	int error;

	vcache_window_send_read(w, v->pool, w->cell, w->nr);
	error = vcache_window_write(r, w, v);
	return error ?: vcache_window_finish(r, w, v);
}

/* Copy the @i-th block of a window that has failed. Return: 0, or an error. */
static int vc_window_copy_one(struct vcache_round *r, struct vcache_window *w,
			      struct vcache_volume *v, u32 i)
{
	struct vcache_round_cell *c = &w->cell[0];

	*c = r->each[i];
	c->mask = vcache_lookup_pin(v, c->cell, c->block, false);
	if (!c->mask)
		return 0;
	c->reuse = vcache_cell_chunk(v->pool, c->cell)->reuse;
	w->nr = 1;
	return vcache_window_copy(r, w, v);
}

/**
 * vcache_window_copy_each - copy the blocks of a window that has failed, one by one
 * @r: the round; none of its windows is in flight
 * @w: the window
 * @v: the volume
 *
 * Return: 0 if that succeeded for some of them, or the error of the window.
 */
int vcache_window_copy_each(struct vcache_round *r, struct vcache_window *w,
			    struct vcache_volume *v)
{
	unsigned long end = jiffies + VC_ALONE_TIME;
	u32 i, n = w->nr, good = 0;

	VCACHE_PROBE("window is copied block by block");
	memcpy(r->each, w->cell, n * sizeof(r->each[0]));
	for (i = 0; i < n; i++) {
		int failed;

		if (i >= VC_ALONE_MIN && time_after(jiffies, end))
			break;
		failed = vc_window_copy_one(r, w, v, i);
		if (!failed) {
			good++;
			continue;
		}
		if (vcache_bad_add(v, r->each[i].block, failed)) {
			r->refused = true;
			return failed;
		}
		r->bad++;
	}
	return good ? 0 : w->error;
}
