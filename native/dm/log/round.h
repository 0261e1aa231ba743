/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * dm-vcache: a round: blocks that are copied out of the cache or inside it, sorted by
 * their place on the origin.
 */
#ifndef DM_VCACHE_ROUND_H
#define DM_VCACHE_ROUND_H

#include "log.h"

/* Most pages that are copied at a time: 512 KiB. */
#define VC_WINDOW		128U

/* Cells that are sorted together before they are destaged: 8 MiB. */
#define VC_ROUND_CELLS		2048U

#define VC_ROUND_CHUNKS		64U

/**
 * struct vcache_round_cell - a block to copy
 * @block: its number on the origin
 * @cell: its place in the cache
 * @reuse: vcache_chunk.reuse of its chunk, read while a reference was held
 * @mask: its valid sectors
 * @held: its range is held, see range.h
 * @extra: it was not noted, but added because it is next to a noted one on the origin
 */
struct vcache_round_cell {
	u64 block;
	u32 cell;
	u32 reuse;
	u8 mask;
	bool held;
	bool extra;
};

/**
 * struct vcache_round - blocks that are copied, and the memory for it
 * @cells: capacity of @cell
 * @nr: used entries of @cell
 * @clean: it has clean blocks, too
 * @chunks: used entries of @chunk
 * @worked: time spent with copying, jiffies
 * @chunk: the chunks, the oldest first
 * @gen: their generations, because they may be reclaimed meanwhile
 * @page: data of a window
 * @window: blocks of a window
 * @failed: blocks of a window that has failed
 * @range: runs of them that are held
 * @ranges: used entries of @range
 * @busy: blocks of the round that somebody else held
 * @bad: blocks of it that failed
 * @copied: blocks of it that are clean
 * @refused: the origin has refused a block, or one that failed could not be noted
 * @pending: requests on their way, plus one while more are made
 * @requests: requests made since vcache_round_begin()
 * @began: time of vcache_round_begin(), ns
 * @first: completion time of the first request, ns; 0: none is complete
 * @status: error of a request
 * @done: all requests are complete
 * @cell: the blocks, sorted by number
 */
struct vcache_round {
	u32 cells;
	u32 nr;
	bool clean;
	u32 chunks;
	unsigned long worked;
	struct vcache_chunk *chunk[VC_ROUND_CHUNKS];
	u64 gen[VC_ROUND_CHUNKS];
	struct page *page[VC_WINDOW];
	struct vcache_round_cell window[VC_WINDOW];
	struct vcache_round_cell failed[VC_WINDOW];
	struct vcache_range range[VC_WINDOW];
	u32 ranges;
	u32 busy;
	u32 bad;
	u32 copied;
	bool refused;
	atomic_t pending;
	u32 requests;
	u64 began;
	u64 first;
	blk_status_t status;
	struct completion done;
	struct vcache_round_cell cell[];
};

/* round.c */
void vcache_round_free(struct vcache_round *r);
struct vcache_round *vcache_round_make(u32 cells, gfp_t gfp);
int vcache_rounds_init(struct vcache_pool *p);
int vcache_round_cmp(const void *a, const void *b);
void vcache_round_note(struct vcache_round *r, struct vcache_pool *p, struct vcache_chunk *c);
void vcache_round_begin(struct vcache_round *r);
int vcache_round_wait(struct vcache_round *r);
struct bio *vcache_round_bio(struct vcache_round *r, struct vcache_pool *p,
			     struct block_device *bdev, blk_opf_t opf,
			     unsigned int pages, sector_t sector);
int vcache_round_read(struct vcache_round *r, struct vcache_pool *p,
		      const struct vcache_round_cell *cell, u32 n);

#endif /* DM_VCACHE_ROUND_H */
