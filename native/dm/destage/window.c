// SPDX-License-Identifier: GPL-2.0-only
/*
 * dm-vcache: a window of a destage round: it is read from the cache, and written to the
 * origin.
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

/* Write a window to the origin, durably; consecutive blocks in one request. */
static int vc_window_write(struct vcache_round *r, struct vcache_volume *v, u32 n)
{
	blk_opf_t opf = REQ_OP_WRITE | vcache_durable_flags(v->origin);
	struct bio *bio = NULL;
	struct blk_plug plug;
	int error;
	u32 i;

	vcache_round_begin(r);
	blk_start_plug(&plug);
	for (i = 0; i < n; i++) {
		struct vcache_round_cell *c = &r->window[i];
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
				bio = vcache_round_bio(r, v->pool, v->origin, opf,
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
	error = vcache_round_wait(r);
	if (!error && vcache_isolation_of(v->origin) == VCACHE_ISOLATION_DEGRADED)
		error = blkdev_issue_flush(v->origin);
	return error;
}

/*
 * Add a dirty block to a window of @n blocks because its neighbour is in it, wherever it is in
 * the cache. Return: false if it is not dirty as a whole, or has failed.
 */
static bool vc_window_add(struct vcache_round *r, struct vcache_volume *v, u32 n, u64 block)
{
	struct vcache_round_cell *c = &r->window[n];

	if (vcache_bad_has(v, block) || !vcache_lookup_dirty(v, block, &c->cell))
		return false;
	c->block = block;
	c->reuse = vcache_cell_chunk(v->pool, c->cell)->reuse;
	c->mask = VC_MASK_ALL;
	c->extra = true;
	return true;
}

/* Extend a window by the dirty blocks that follow its last block on the origin. */
static u32 vc_window_extend(struct vcache_round *r, struct vcache_volume *v, u32 n,
			    u32 most)
{
	while (n < most && r->window[n - 1].mask == VC_MASK_ALL &&
	       vc_window_add(r, v, n, r->window[n - 1].block + 1))
		n++;
	return n;
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
 * Extend a window by the dirty blocks that precede @block, which is added next. They fill at
 * most one request with it: what is far from the blocks of the round can wait.
 */
static u32 vc_window_precede(struct vcache_round *r, struct vcache_volume *v, u32 n,
			     u32 most, u64 block)
{
	u64 first = n ? r->window[n - 1].block + 1 : 0, from = block;
	u32 room = min(most - n, vc_request_blocks(v)) - 1;

	while (room-- && from > first && vc_block_is_dirty(v, from - 1))
		from--;
	for (; from < block; from++)
		n += vc_window_add(r, v, n, from);
	return n;
}

/* Is the block in the window already, as one of those that follow another? */
static bool vc_window_has(const struct vcache_round *r, u32 n, u64 block)
{
	return n && r->window[n - 1].extra && block <= r->window[n - 1].block;
}

/*
 * Fill a window, from the @from-th block of the round on. Sets @n to its length. A window of few
 * blocks may have more if these belong to one request, which takes hardly longer then.
 * Return: how many blocks of the round are dealt with.
 */
static u32 vc_window_fill(struct vcache_round *r, struct vcache_volume *v, u32 from,
			  u32 most, u32 *n)
{
	u32 extended = max(most, vc_request_blocks(v)), i;

	*n = 0;
	for (i = from; i < r->nr && *n < most; i++) {
		struct vcache_round_cell *c = &r->cell[i];

		if (vc_window_has(r, *n, c->block))
			continue;
		/* The mask is 0 if it was superseded, or is clean by now. */
		c->mask = vcache_lookup_pin(v, c->cell, c->block, false);
		if (!c->mask)
			continue;
		c->reuse = vcache_cell_chunk(v->pool, c->cell)->reuse;
		if (c->mask == VC_MASK_ALL)
			*n = vc_window_precede(r, v, *n, extended, c->block);
		r->window[(*n)++] = *c;
		*n = vc_window_extend(r, v, *n, extended);
	}
	return i - from;
}

/* Hold the blocks of a window from @from to before @to, which follow one another. */
static bool vc_window_hold_run(struct vcache_round *r, struct vcache_volume *v,
			       u32 from, u32 to)
{
	u32 i;

	if (!vcache_range_try(&v->ranges, &r->range[r->ranges],
			      r->window[from].block, r->window[to - 1].block))
		return false;
	r->ranges++;
	for (i = from; i < to; i++)
		r->window[i].held = true;
	return true;
}

/* Hold the blocks of a window that nobody else holds. */
static void vc_window_hold(struct vcache_round *r, struct vcache_volume *v, u32 n)
{
	u32 from, to, i;

	r->ranges = 0;
	for (i = 0; i < n; i++)
		r->window[i].held = false;
	for (from = 0; from < n; from = to) {
		for (to = from + 1; to < n &&
		     r->window[to].block == r->window[to - 1].block + 1; to++)
			;
		if (vc_window_hold_run(r, v, from, to))
			continue;
		VCACHE_PROBE("destage leaves out a block that is written");
		for (i = from; i < to; i++)
			r->busy += !vc_window_hold_run(r, v, i, i + 1);
	}
}

static void vc_window_release(struct vcache_round *r, struct vcache_volume *v)
{
	while (r->ranges)
		vcache_range_put(&v->ranges, &r->range[--r->ranges]);
}

/*
 * Write a window of @n blocks, and mark them clean. Return: 0, or an error; then all stay
 * dirty.
 */
static int vc_window_clean(struct vcache_round *r, struct vcache_volume *v, u32 n)
{
	int error = vc_window_write(r, v, n);
	u32 i;

	if (error)
		return error;
	vcache_throttle_learn(v, r);
	for (i = 0; i < n; i++) {
		struct vcache_round_cell *c = &r->window[i];

		if (!c->held)
			continue;
		vcache_lookup_clean(v, c->cell, c->block, c->reuse);
		vcache_bad_remove(v, c->block);
		r->copied++;
	}
	return 0;
}

/* Copy a window of @n blocks. Return: 0, or an error; then all stay dirty. */
static int vc_window_copy(struct vcache_round *r, struct vcache_volume *v, u32 n)
{
	int error = vcache_round_read(r, v->pool, r->window, n);
	u32 i;

	for (i = 0; i < n; i++)
		vcache_lookup_done(v->pool, r->window[i].cell);
	if (error)
		return error;
	vc_window_hold(r, v, n);
	error = vc_window_clean(r, v, n);
	vc_window_release(r, v);
	r->refused |= error;
	return error;
}

/* Copy the @i-th block of a window that has failed. Return: 0, or an error. */
static int vc_window_copy_one(struct vcache_round *r, struct vcache_volume *v, u32 i)
{
	struct vcache_round_cell *c = &r->window[0];

	*c = r->failed[i];
	c->mask = vcache_lookup_pin(v, c->cell, c->block, false);
	if (!c->mask)
		return 0;
	c->reuse = vcache_cell_chunk(v->pool, c->cell)->reuse;
	return vc_window_copy(r, v, 1);
}

/*
 * Copy the blocks of a window that has failed with @error, one by one. Return: 0 if that
 * succeeded for some of them, or the error.
 */
static int vc_window_copy_each(struct vcache_round *r, struct vcache_volume *v, u32 n,
			       int error)
{
	unsigned long end = jiffies + VC_ALONE_TIME;
	u32 i, good = 0;

	VCACHE_PROBE("window is copied block by block");
	memcpy(r->failed, r->window, n * sizeof(r->failed[0]));
	for (i = 0; i < n; i++) {
		int failed;

		if (i >= VC_ALONE_MIN && time_after(jiffies, end))
			break;
		failed = vc_window_copy_one(r, v, i);
		if (!failed) {
			good++;
			continue;
		}
		if (vcache_bad_add(v, r->failed[i].block, failed)) {
			r->refused = true;
			return failed;
		}
		r->bad++;
	}
	return good ? 0 : error;
}

/**
 * vcache_window_next - copy the next window of a round
 * @r: the round
 * @v: the volume
 * @from: the first block of the round that is not dealt with
 * @most: most blocks of the window
 * @n: set to the number of blocks of the window
 * @dealt: set to how many blocks of the round are dealt with
 *
 * Return: 0; or an error if no block could be copied, then all of them stay dirty.
 */
int vcache_window_next(struct vcache_round *r, struct vcache_volume *v, u32 from, u32 most,
		       u32 *n, u32 *dealt)
{
	int error = 0;

	*dealt = vc_window_fill(r, v, from, most, n);
	if (*n)
		error = vc_window_copy(r, v, *n);
	if (error)
		error = vc_window_copy_each(r, v, *n, error);
	return error;
}
