/* SPDX-License-Identifier: GPL-2.0 */
/*
 * The index: where in the cache is a sector of an origin?
 *
 * There is one cell for each block of the cache device. It says which sectors of which
 * origin block it has. So the same 10 bytes serve the map from places to sectors, which
 * destage and reclaim need, and the map back; a hash table of 2 more bytes finds the
 * cells. All cells of a chunk belong to one volume, whose slot is stored once for each
 * chunk. All memory is allocated at the start, so no write waits for memory. Blocks that
 * are consecutive both on the origin and in the cache are read and written as one request.
 *
 * Several cells may have sectors of the same block, but never the same sector. A write of
 * a part of a block takes only these sectors from the older cell.
 *
 * The caller serialises all calls for the same block. In the kernel, the blocks of a
 * vcache_index_group() share a lock.
 */
#ifndef VCACHE_CORE_INDEX_H
#define VCACHE_CORE_INDEX_H

#include "format.h"

#define VC_CELL_NONE	(~0U)

/* So many consecutive buckets are a group, which has consecutive blocks. */
#define VC_GROUP_SHIFT	4

/* Most cells that can have sectors of one block. */
#define VC_CELLS_PER_BLOCK VC_BLOCK_SECTORS

/**
 * struct vcache_index - the cells of a cache device
 * @where: for each cell: upper half of the number of the next cell in its bucket (16 bits),
 *	block (40), mask (8); mask 0: the cell is empty
 * @next: for each cell: lower half of that number, which is VC_CELL_NONE in the last cell
 * @head: for each bucket: its first cell, or VC_CELL_NONE
 * @slot: for each chunk: slot of the volume that its cells belong to
 * @cells: number of cells
 * @chunk_cells: cells of a chunk; @slot has an entry for the last chunk even if it is cut off
 * @buckets: number of buckets, see vcache_index_buckets()
 */
struct vcache_index {
	u64 *where;
	u16 *next;
	u32 *head;
	u16 *slot;
	u32 cells;
	u32 chunk_cells;
	u32 buckets;
};

u32 vcache_index_buckets(u32 cells);
u32 vcache_cell_next(const struct vcache_index *ix, u32 cell);
void vcache_index_init(struct vcache_index *ix);
u32 vcache_index_group(const struct vcache_index *ix, u16 slot, u64 block);
u32 vcache_index_find(const struct vcache_index *ix, u16 slot, u64 block, u8 mask);
u8 vcache_index_held(const struct vcache_index *ix, u16 slot, u64 block);
unsigned int vcache_index_cut(struct vcache_index *ix, u16 slot, u64 block, u8 mask,
			      u32 *touched);
void vcache_index_put(struct vcache_index *ix, u32 cell, u16 slot, u64 block, u8 mask);
void vcache_index_drop(struct vcache_index *ix, u32 cell);

static inline u8 vcache_cell_mask(const struct vcache_index *ix, u32 cell)
{
	return (u8)READ_ONCE(ix->where[cell]);
}

static inline u64 vcache_cell_block(const struct vcache_index *ix, u32 cell)
{
	return READ_ONCE(ix->where[cell]) >> 8 & VC_WHERE_BLOCK_MAX;
}

static inline u16 vcache_cell_slot(const struct vcache_index *ix, u32 cell)
{
	return READ_ONCE(ix->slot[cell / ix->chunk_cells]);
}

#endif /* VCACHE_CORE_INDEX_H */
