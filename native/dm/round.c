// SPDX-License-Identifier: GPL-2.0-only
/*
 * dm-vcache: the memory and the requests of a round, see round.h.
 */
#include <linux/blkdev.h>

#include "round.h"

/* Rounds that go on when there is no memory. */
#define VC_ROUNDS_MIN 2

/**
 * vc_round_free - free what vc_round_make() has made
 * @r: the round, or NULL
 */
void vc_round_free(struct vc_round *r)
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
 * vc_round_make - the memory for rounds
 * @cells: blocks that one can have
 * @gfp: how to get it
 *
 * Return: NULL without memory.
 */
struct vc_round *vc_round_make(u32 cells, gfp_t gfp)
{
	struct vc_round *r;
	unsigned int i;

	r = kvzalloc(struct_size(r, cell, cells), gfp);
	if (!r)
		return NULL;
	r->cells = cells;
	init_completion(&r->done);
	for (i = 0; i < VC_WINDOW; i++) {
		r->page[i] = alloc_page(gfp);
		if (!r->page[i]) {
			vc_round_free(r);
			return NULL;
		}
	}
	return r;
}

static void *vc_rounds_alloc(gfp_t gfp, void *p)
{
	u32 cells = max(((struct vc_pool *)p)->g.chunk_blocks, VC_ROUND_CELLS);

	return vc_round_make(cells, gfp);
}

static void vc_rounds_free(void *r, void *p)
{
	vc_round_free(r);
}

/**
 * vc_rounds_init - set memory for rounds of destage aside
 * @p: the pool; its geometry is known
 *
 * Half a MiB each. A volume holds one for as long as its round takes. When memory is
 * short, volumes wait for one of VC_ROUNDS_MIN.
 *
 * Return: 0 or -ENOMEM.
 */
int vc_rounds_init(struct vc_pool *p)
{
	return mempool_init(&p->rounds, VC_ROUNDS_MIN, vc_rounds_alloc,
			    vc_rounds_free, p);
}

/**
 * vc_round_cmp - compare two blocks by their place on the origin
 * @a: &struct vc_round_cell
 * @b: the same
 */
int vc_round_cmp(const void *a, const void *b)
{
	const struct vc_round_cell *x = a, *y = b;

	return x->block < y->block ? -1 : x->block > y->block;
}

/**
 * vc_round_note - note what is dirty in a chunk
 * @r: the round
 * @p: the pool
 * @c: the chunk, not written any more
 *
 * It becomes less meanwhile, never more, while the chunk lives. Where nothing
 * keeps it from being reclaimed, vc_lookup_pin() has to tell.
 */
void vc_round_note(struct vc_round *r, struct vc_pool *p, struct vc_chunk *c)
{
	u32 cell = vc_chunk_nr(p, c) * p->g.chunk_blocks;
	u32 end = cell + vc_chunk_capacity(&p->g);

	for (; cell < end; cell++) {
		u8 mask = READ_ONCE(p->ix.where[cell]);

		if (!mask || test_bit(cell, p->cell_clean) ||
		    r->nr == r->cells)
			continue;
		r->cell[r->nr].cell = cell;
		r->cell[r->nr].block = vc_cell_block(&p->ix, cell);
		r->cell[r->nr].extra = false;
		r->cell[r->nr++].mask = mask;
	}
}

static void vc_round_end_io(struct bio *bio)
{
	struct vc_round *r = bio->bi_private;

	if (bio->bi_status)
		r->status = bio->bi_status;
	if (!READ_ONCE(r->first))
		WRITE_ONCE(r->first, ktime_get_ns());
	bio_put(bio);
	if (atomic_dec_and_test(&r->pending))
		complete(&r->done);
}

/**
 * vc_round_begin - requests are going to be sent
 * @r: the round
 */
void vc_round_begin(struct vc_round *r)
{
	r->status = BLK_STS_OK;
	r->requests = 0;
	r->began = ktime_get_ns();
	r->first = 0;
	reinit_completion(&r->done);
	atomic_set(&r->pending, 1);
}

/**
 * vc_round_wait - wait for the requests
 * @r: the round
 *
 * Return: 0, or the error of one that failed.
 */
int vc_round_wait(struct vc_round *r)
{
	if (!atomic_dec_and_test(&r->pending))
		wait_for_completion_io(&r->done);
	return blk_status_to_errno(r->status);
}

/**
 * vc_round_bio - a request of a round
 * @r: the round
 * @p: the pool
 * @bdev: where it goes
 * @opf: what it does
 * @pages: most that it has
 * @sector: where it begins
 */
struct bio *vc_round_bio(struct vc_round *r, struct vc_pool *p,
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
 * vc_round_read - read a window of cells
 * @r: the round
 * @p: the pool
 * @cell: the cells
 * @n: how many, at most VC_WINDOW
 *
 * Cells that follow one another are one request. Return: 0 or an error.
 */
int vc_round_read(struct vc_round *r, struct vc_pool *p,
		  const struct vc_round_cell *cell, u32 n)
{
	struct bio *bio = NULL;
	struct blk_plug plug;
	u32 i;

	vc_round_begin(r);
	blk_start_plug(&plug);
	for (i = 0; i < n; i++) {
		if (bio && cell[i].cell != cell[i - 1].cell + 1) {
			submit_bio_noacct(bio);
			bio = NULL;
		}
		if (!bio)
			bio = vc_round_bio(r, p, p->bdev, REQ_OP_READ, n - i,
					   (u64)cell[i].cell * VC_BLOCK_SECTORS);
		__bio_add_page(bio, r->page[i], VC_BLOCK_SIZE, 0);
		/* A request may take us 10 us, and somebody's flush waits. */
		cond_resched();
	}
	submit_bio_noacct(bio);
	blk_finish_plug(&plug);
	return vc_round_wait(r);
}
