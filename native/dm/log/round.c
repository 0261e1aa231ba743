// SPDX-License-Identifier: GPL-2.0-only
/*
 * dm-vcache: memory and requests of a round, see round.h.
 */
#include <linux/blkdev.h>

#include "internal.h"
#include "round.h"

/* Rounds that can run when memory is short. */
#define VC_ROUNDS_MIN 2

static void vc_window_free_pages(struct vcache_window *w)
{
	unsigned int i;

	for (i = 0; i < VC_WINDOW; i++) {
		if (w->page[i])
			__free_page(w->page[i]);
	}
}

/* Prepare a window whose memory is 0. Return: whether there was memory for its pages. */
static bool vc_window_init(struct vcache_window *w, gfp_t gfp)
{
	unsigned int i;

	INIT_LIST_HEAD(&w->node);
	init_completion(&w->done);
	for (i = 0; i < VC_WINDOW; i++) {
		w->page[i] = alloc_page(gfp);
		if (!w->page[i])
			return false;
	}
	return true;
}

/**
 * vcache_window_free - free a window
 * @w: the window, made by vcache_window_make(), or NULL
 */
void vcache_window_free(struct vcache_window *w)
{
	if (!w)
		return;
	vc_window_free_pages(w);
	kvfree(w);
}

/**
 * vcache_window_make - allocate a window
 * @gfp: allocation flags
 *
 * Return: the window, or NULL without memory.
 */
struct vcache_window *vcache_window_make(gfp_t gfp)
{
	struct vcache_window *w = kvzalloc(sizeof(*w), gfp);

	if (!w || vc_window_init(w, gfp))
		return w;
	vcache_window_free(w);
	return NULL;
}

/**
 * vcache_round_free - free a round
 * @r: the round, or NULL
 */
void vcache_round_free(struct vcache_round *r)
{
	if (!r)
		return;
	vc_window_free_pages(&r->own);
	kvfree(r);
}

/**
 * vcache_round_make - allocate a round
 * @cells: most cells that it can have
 * @gfp: allocation flags
 *
 * Return: the round, or NULL without memory.
 */
struct vcache_round *vcache_round_make(u32 cells, gfp_t gfp)
{
	struct vcache_round *r;

	r = kvzalloc(struct_size(r, cell, cells), gfp);
	if (!r)
		return NULL;
	r->cells = cells;
	if (vc_window_init(&r->own, gfp))
		return r;
	vcache_round_free(r);
	return NULL;
}

static void *vc_rounds_alloc(gfp_t gfp, void *p)
{
	u32 cells = max(((struct vcache_pool *)p)->g.chunk_blocks, VC_ROUND_CELLS);

	return vcache_round_make(cells, gfp);
}

static void vc_rounds_free(void *r, void *p)
{
	vcache_round_free(r);
}

/**
 * vcache_rounds_init - reserve memory for destage rounds
 * @p: the pool; its geometry is known
 *
 * A round takes half a MiB. A volume holds one for as long as its round takes. When
 * memory is short, volumes wait for one of VC_ROUNDS_MIN. Each has a window of its own. More
 * windows are a matter of speed only, so there is no reserve of them.
 *
 * Return: 0 or -ENOMEM.
 */
int vcache_rounds_init(struct vcache_pool *p)
{
	return mempool_init(&p->rounds, VC_ROUNDS_MIN, vc_rounds_alloc,
			    vc_rounds_free, p);
}

/**
 * vcache_round_cmp - compare two blocks by their place on the origin
 * @a: &struct vcache_round_cell
 * @b: the same
 */
int vcache_round_cmp(const void *a, const void *b)
{
	const struct vcache_round_cell *x = a, *y = b;

	return x->block < y->block ? -1 : x->block > y->block;
}

/**
 * vcache_round_note - add the dirty cells of a chunk to a round, or all with vcache_round.clean
 * @r: the round
 * @p: the pool
 * @c: the chunk, not written any more
 *
 * Meanwhile dirty cells may become clean or superseded, but no cell becomes dirty. If
 * nothing keeps the chunk from being reclaimed, vcache_lookup_pin() has to check each cell.
 */
void vcache_round_note(struct vcache_round *r, struct vcache_pool *p, struct vcache_chunk *c)
{
	u32 cell = vcache_chunk_nr(p, c) * p->g.chunk_blocks;
	u32 end = cell + vcache_chunk_capacity(&p->g);

	for (; cell < end; cell++) {
		u8 mask = READ_ONCE(p->ix.where[cell]);

		if (!mask || r->nr == r->cells ||
		    (!r->clean && test_bit(cell, p->cell_clean)))
			continue;
		r->cell[r->nr].cell = cell;
		r->cell[r->nr].block = vcache_cell_block(&p->ix, cell);
		r->cell[r->nr].extra = false;
		r->cell[r->nr++].mask = mask;
	}
}

static void vc_window_put(struct vcache_window *w)
{
	if (!atomic_dec_and_test(&w->pending))
		return;
	w->ended = ktime_get_ns();
	complete(&w->done);
}

/**
 * vcache_window_end_io - a request of a window is complete
 * @bio: the request
 */
void vcache_window_end_io(struct bio *bio)
{
	struct vcache_window *w = bio->bi_private;

	if (bio->bi_status)
		w->status = bio->bi_status;
	if (!READ_ONCE(w->first))
		WRITE_ONCE(w->first, ktime_get_ns());
	bio_put(bio);
	vc_window_put(w);
}

/* As vcache_window_end_io(), for the cache device; see vcache_window_mark(). */
static void vc_window_end_cache(struct bio *bio)
{
	struct vcache_window *w = bio->bi_private;

	vcache_lane_end(w->pool, page_private(bio->bi_io_vec[0].bv_page), op_is_write(bio_op(bio)),
			ktime_get_ns() - w->began);
	vcache_window_end_io(bio);
}

/**
 * vcache_window_begin - prepare to send requests
 * @w: the window
 */
void vcache_window_begin(struct vcache_window *w)
{
	w->status = BLK_STS_OK;
	w->requests = 0;
	w->began = ktime_get_ns();
	w->first = 0;
	reinit_completion(&w->done);
	atomic_set(&w->pending, 1);
}

/**
 * vcache_window_sent - all requests are sent
 * @w: the window
 */
void vcache_window_sent(struct vcache_window *w)
{
	vc_window_put(w);
}

/**
 * vcache_window_wait - wait for all requests
 * @w: the window; its requests are sent
 *
 * Return: 0, or the error of a request that failed.
 */
int vcache_window_wait(struct vcache_window *w)
{
	wait_for_completion_io(&w->done);
	return blk_status_to_errno(w->status);
}

/**
 * vcache_window_mark - note the lane of a page that may be the first one of a request
 * @w: the window
 * @p: the pool
 * @i: number of the page
 * @cell: the cell that it is read from, or written to
 */
void vcache_window_mark(struct vcache_window *w, struct vcache_pool *p, u32 i, u32 cell)
{
	w->pool = p;
	set_page_private(w->page[i], vcache_cell_chunk(p, cell)->lane);
}

/**
 * vcache_window_bio - make a request of a window
 * @w: the window
 * @p: the pool
 * @bdev: the device that it goes to
 * @opf: operation and flags
 * @pages: most pages that it can have
 * @sector: first sector
 *
 * A request to the cache device needs vcache_window_mark() of its first page.
 */
struct bio *vcache_window_bio(struct vcache_window *w, struct vcache_pool *p,
			      struct block_device *bdev, blk_opf_t opf,
			      unsigned int pages, sector_t sector)
{
	struct bio *bio = bio_alloc_bioset(bdev, pages, opf, GFP_NOIO, &p->bs);

	bio->bi_iter.bi_sector = sector;
	bio->bi_private = w;
	bio->bi_end_io = vcache_window_end_io;
	if (bdev == p->bdev) {
		bio->bi_end_io = vc_window_end_cache;
		vcache_lane_begin(p, vcache_cell_chunk(p, sector / VC_BLOCK_SECTORS)->lane);
	}
	atomic_inc(&w->pending);
	w->requests++;
	return bio;
}

/**
 * vcache_window_send_read - begin to read cells from the cache device
 * @w: the window that gets their data
 * @p: the pool
 * @cell: the cells
 * @n: how many, 1 to VC_WINDOW
 *
 * Consecutive cells are read with one request.
 */
void vcache_window_send_read(struct vcache_window *w, struct vcache_pool *p,
			     const struct vcache_round_cell *cell, u32 n)
{
	struct bio *bio = NULL;
	struct blk_plug plug;
	u32 i;

	vcache_window_begin(w);
	blk_start_plug(&plug);
	for (i = 0; i < n; i++) {
		if (bio && cell[i].cell != cell[i - 1].cell + 1) {
			submit_bio_noacct(bio);
			bio = NULL;
		}
		if (!bio)
			bio = vcache_window_bio(w, p, p->bdev, REQ_OP_READ, n - i,
						(u64)cell[i].cell * VC_BLOCK_SECTORS);
		vcache_window_mark(w, p, i, cell[i].cell);
		__bio_add_page(bio, w->page[i], VC_BLOCK_SIZE, 0);
		/* Submitting may take 10 us each time, and a flush may wait for us. */
		cond_resched();
	}
	submit_bio_noacct(bio);
	blk_finish_plug(&plug);
	vcache_window_sent(w);
}

/**
 * vcache_window_read - read cells from the cache device
 * @w: the window that gets their data
 * @p: the pool
 * @cell: the cells
 * @n: how many, 1 to VC_WINDOW
 *
 * Return: 0 or an error.
 */
int vcache_window_read(struct vcache_window *w, struct vcache_pool *p,
		       const struct vcache_round_cell *cell, u32 n)
{
	int error;

	vcache_window_send_read(w, p, cell, n);
	error = vcache_window_wait(w);
	if (!error)
		vcache_pool_read_ok(p);
	return error;
}
