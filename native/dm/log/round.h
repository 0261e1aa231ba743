/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * dm-vcache: a round: blocks that are copied out of the cache or inside it, sorted by
 * their place on the origin.
 */
#ifndef DM_VCACHE_ROUND_H
#define DM_VCACHE_ROUND_H

#include "log.h"

/* Most pages of a window: 512 KiB. */
#define VC_WINDOW		128U

/* Cells that are sorted together before they are destaged: 32 MiB. */
#define VC_ROUND_CELLS		8192U

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
 * struct vcache_window - blocks that are copied together, and the memory for it
 * @node: of destage: a list of the round, see flight.c
 * @pool: the pool, if it has requests to the cache device
 * @vol: of destage: the volume
 * @page: their data
 * @cell: the blocks
 * @nr: how many
 * @range: runs of them that are held
 * @ranges: used entries of @range
 * @alone: no other window of the round is in flight
 * @error: why it has failed
 * @pending: requests on their way, plus one while more are made
 * @requests: requests made since vcache_window_begin()
 * @began: time of vcache_window_begin(), ns
 * @first: completion time of the first request, ns; 0: none is complete
 * @ended: completion time of the last request, ns; valid after vcache_window_wait()
 * @status: error of a request
 * @done: all requests are complete
 */
struct vcache_window {
	struct list_head node;
	struct vcache_pool *pool;
	struct vcache_volume *vol;
	struct page *page[VC_WINDOW];
	struct vcache_round_cell cell[VC_WINDOW];
	u32 nr;
	struct vcache_range range[VC_WINDOW];
	u32 ranges;
	bool alone;
	int error;
	atomic_t pending;
	u32 requests;
	u64 began;
	u64 first;
	u64 ended;
	blk_status_t status;
	struct completion done;
};

/**
 * struct vcache_round - blocks that are copied window by window, and the memory for it
 * @cells: capacity of @cell
 * @nr: used entries of @cell
 * @clean: it has clean blocks, too
 * @chunks: used entries of @chunk
 * @chunk: the chunks, the oldest first
 * @gen: their generations, because they may be reclaimed meanwhile
 * @from: blocks before this entry of @cell are dealt with
 * @after: the next window has no block before this one of the origin, except noted ones
 * @extra: noted blocks before this one were in an earlier window
 * @idle: windows that can be used
 * @reading: windows that are read from the cache, the earliest first
 * @writing: windows that are written to the origin, the earliest first
 * @failed: windows that have failed
 * @flying: length of @reading and @writing
 * @flew: since when there are any, jiffies
 * @worked: time spent with copying, jiffies
 * @failures: windows in a row that have failed altogether
 * @skip: blocks to leave out because of them
 * @error: the first error of a window, or 0
 * @busy: blocks of the round that somebody else held
 * @bad: blocks of it that failed
 * @copied: blocks of it that are clean
 * @refused: the origin has refused a block, or one that failed could not be noted
 * @own: a window
 * @each: blocks of a window that has failed
 * @cell: the blocks, sorted by number
 */
struct vcache_round {
	u32 cells;
	u32 nr;
	bool clean;
	u32 chunks;
	struct vcache_chunk *chunk[VC_ROUND_CHUNKS];
	u64 gen[VC_ROUND_CHUNKS];
	u32 from;
	u64 after;
	u64 extra;
	struct list_head idle;
	struct list_head reading;
	struct list_head writing;
	struct list_head failed;
	u32 flying;
	unsigned long flew;
	unsigned long worked;
	u32 failures;
	u32 skip;
	int error;
	u32 busy;
	u32 bad;
	u32 copied;
	bool refused;
	struct vcache_window own;
	struct vcache_round_cell each[VC_WINDOW];
	struct vcache_round_cell cell[];
};

/* round.c */
void vcache_round_free(struct vcache_round *r);
struct vcache_round *vcache_round_make(u32 cells, gfp_t gfp);
int vcache_rounds_init(struct vcache_pool *p);
int vcache_round_cmp(const void *a, const void *b);
void vcache_round_note(struct vcache_round *r, struct vcache_pool *p, struct vcache_chunk *c);
void vcache_window_free(struct vcache_window *w);
struct vcache_window *vcache_window_make(gfp_t gfp);
void vcache_window_begin(struct vcache_window *w);
void vcache_window_sent(struct vcache_window *w);
int vcache_window_wait(struct vcache_window *w);
void vcache_window_end_io(struct bio *bio);
void vcache_window_mark(struct vcache_window *w, struct vcache_pool *p, u32 i, u32 cell);
struct bio *vcache_window_bio(struct vcache_window *w, struct vcache_pool *p,
			      struct block_device *bdev, blk_opf_t opf,
			      unsigned int pages, sector_t sector);
void vcache_window_send_read(struct vcache_window *w, struct vcache_pool *p,
			     const struct vcache_round_cell *cell, u32 n);
int vcache_window_read(struct vcache_window *w, struct vcache_pool *p,
		       const struct vcache_round_cell *cell, u32 n);

#endif /* DM_VCACHE_ROUND_H */
