/* SPDX-License-Identifier: GPL-2.0 */
/*
 * Where in the cache a sector of an origin is.
 *
 * There is one cell for each block of the cache device, and the cell says
 * what the block holds; so the map from places to sectors, which destage and
 * eviction need, and the map back are the same 12 bytes, and a hash table of
 * 2 to 4 more finds them. All memory is there from the start: a write never
 * waits for any. Neighbours on the origin that are neighbours in the cache are
 * read and written as one request; the cells do not limit that.
 *
 * Several cells may hold sectors of the same block, never the same sector: a
 * write of a part of a block takes only these sectors from the older cell.
 *
 * Of cells with the same key the caller serialises all calls; the buckets of
 * vc_index_group() neighbours share a lock in the kernel.
 */
#ifndef VCACHE_CORE_INDEX_H
#define VCACHE_CORE_INDEX_H

#include "format.h"

#define VC_CELL_NONE	(~0U)

/* Buckets that follow one another hold neighbours, in groups of so many. */
#define VC_GROUP_SHIFT	4

/* Most cells that can hold sectors of one block. */
#define VC_CELLS_PER_BLOCK VC_BLOCK_SECTORS

/**
 * struct vc_index - the cells of a cache device
 * @where: by cell: slot of the volume (16 bits), block (40), mask (8); mask 0:
 *	the cell is empty
 * @next: by cell: the next one in the bucket, or VC_CELL_NONE
 * @head: by bucket: its first cell, or VC_CELL_NONE
 * @cells: how many
 * @buckets: how many, a power of two, at least 1 << VC_GROUP_SHIFT
 */
struct vc_index {
	u64 *where;
	u32 *next;
	u32 *head;
	u32 cells;
	u32 buckets;
};

u32 vc_index_buckets(u32 cells);
void vc_index_init(struct vc_index *ix);
u32 vc_index_group(const struct vc_index *ix, u16 slot, u64 block);
u32 vc_index_find(const struct vc_index *ix, u16 slot, u64 block, u8 mask);
u8 vc_index_held(const struct vc_index *ix, u16 slot, u64 block);
unsigned int vc_index_cut(struct vc_index *ix, u16 slot, u64 block, u8 mask,
			  u32 *touched);
void vc_index_put(struct vc_index *ix, u32 cell, u16 slot, u64 block, u8 mask);
void vc_index_drop(struct vc_index *ix, u32 cell);

static inline u8 vc_cell_mask(const struct vc_index *ix, u32 cell)
{
	return (u8)ix->where[cell];
}

static inline u64 vc_cell_block(const struct vc_index *ix, u32 cell)
{
	return ix->where[cell] >> 8 & VC_WHERE_BLOCK_MAX;
}

static inline u16 vc_cell_slot(const struct vc_index *ix, u32 cell)
{
	return ix->where[cell] >> 48;
}

#endif /* VCACHE_CORE_INDEX_H */
