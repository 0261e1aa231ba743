// SPDX-License-Identifier: GPL-2.0-only
/*
 * dm-vcache: memory and requests of a round, see round.h.
 */
#include <linux/blkdev.h>

#include "internal.h"
#include "round.h"

/* Rounds that can run when memory is short. */
#define VC_ROUNDS_MIN 2

/**
 * vcache_round_free - free a round
 * @r: the round, or NULL
 */
void vcache_round_free(struct vcache_round *r)
{
	unsigned int i;

	if (!r)
		return;
	for (i = 0; i < VC_WINDOW; i++) {
		if (r->page[i])
			__free_page(r->page[i]);
	}
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
	unsigned int i;

	r = kvzalloc(struct_size(r, cell, cells), gfp);
	if (!r)
		return NULL;
	r->cells = cells;
	init_completion(&r->done);
	for (i = 0; i < VC_WINDOW; i++) {
		r->page[i] = alloc_page(gfp);
		if (!r->page[i]) {
			vcache_round_free(r);
			return NULL;
		}
	}
	return r;
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
 * memory is short, volumes wait for one of VC_ROUNDS_MIN.
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

static void vc_round_end_io(struct bio *bio)
{
	struct vcache_round *r = bio->bi_private;

	if (bio->bi_status)
		r->status = bio->bi_status;
	if (!READ_ONCE(r->first))
		WRITE_ONCE(r->first, ktime_get_ns());
	bio_put(bio);
	if (atomic_dec_and_test(&r->pending))
		complete(&r->done);
}

/**
 * vcache_round_begin - prepare to send requests
 * @r: the round
 */
void vcache_round_begin(struct vcache_round *r)
{
	r->status = BLK_STS_OK;
	r->requests = 0;
	r->began = ktime_get_ns();
	r->first = 0;
	reinit_completion(&r->done);
	atomic_set(&r->pending, 1);
}

/**
 * vcache_round_wait - wait for all requests
 * @r: the round
 *
 * Return: 0, or the error of a request that failed.
 */
int vcache_round_wait(struct vcache_round *r)
{
	if (!atomic_dec_and_test(&r->pending))
		wait_for_completion_io(&r->done);
	return blk_status_to_errno(r->status);
}

/**
 * vcache_round_bio - make a request of a round
 * @r: the round
 * @p: the pool
 * @bdev: the device that it goes to
 * @opf: operation and flags
 * @pages: most pages that it can have
 * @sector: first sector
 */
struct bio *vcache_round_bio(struct vcache_round *r, struct vcache_pool *p,
			     struct block_device *bdev, blk_opf_t opf,
			     unsigned int pages, sector_t sector)
{
	struct bio *bio = bio_alloc_bioset(bdev, pages, opf, GFP_NOIO, &p->bs);

	bio->bi_iter.bi_sector = sector;
	bio->bi_private = r;
	bio->bi_end_io = vc_round_end_io;
	atomic_inc(&r->pending);
	r->requests++;
	return bio;
}

/**
 * vcache_round_read - read a window of cells from the cache device
 * @r: the round
 * @p: the pool
 * @cell: the cells
 * @n: how many, at most VC_WINDOW
 *
 * Consecutive cells are read with one request.
 *
 * Return: 0 or an error.
 */
int vcache_round_read(struct vcache_round *r, struct vcache_pool *p,
		      const struct vcache_round_cell *cell, u32 n)
{
	struct bio *bio = NULL;
	struct blk_plug plug;
	int error;
	u32 i;

	vcache_round_begin(r);
	blk_start_plug(&plug);
	for (i = 0; i < n; i++) {
		if (bio && cell[i].cell != cell[i - 1].cell + 1) {
			submit_bio_noacct(bio);
			bio = NULL;
		}
		if (!bio)
			bio = vcache_round_bio(r, p, p->bdev, REQ_OP_READ, n - i,
					       (u64)cell[i].cell * VC_BLOCK_SECTORS);
		__bio_add_page(bio, r->page[i], VC_BLOCK_SIZE, 0);
		/* Submitting may take 10 us each time, and a flush may wait for us. */
		cond_resched();
	}
	submit_bio_noacct(bio);
	blk_finish_plug(&plug);
	error = vcache_round_wait(r);
	if (!error)
		vcache_pool_read_ok(p);
	return error;
}
