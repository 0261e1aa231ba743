// SPDX-License-Identifier: GPL-2.0
#include "hash.h"
#include "index.h"

/* Bits of vcache_index.where above the block. */
#define VC_NEXT_SHIFT 48

/**
 * vcache_cell_next - find the next cell in the same bucket
 * @ix: the index
 * @cell: a cell that is not empty
 *
 * Return: the cell, or VC_CELL_NONE.
 */
u32 vcache_cell_next(const struct vcache_index *ix, u32 cell)
{
	return (u32)(ix->where[cell] >> VC_NEXT_SHIFT) << 16 | ix->next[cell];
}

/* The block and the sectors stay, so others may read them meanwhile. */
static void vc_cell_set_next(struct vcache_index *ix, u32 cell, u32 next)
{
	u64 own = ix->where[cell] & ((1ULL << VC_NEXT_SHIFT) - 1);

	WRITE_ONCE(ix->where[cell], (u64)(next >> 16) << VC_NEXT_SHIFT | own);
	ix->next[cell] = (u16)next;
}

static bool vc_cell_is(const struct vcache_index *ix, u32 cell, u16 slot, u64 block)
{
	return vcache_cell_block(ix, cell) == block && vcache_cell_slot(ix, cell) == slot;
}

/* A number below @n, in proportion to a number of 32 bits. */
static u32 vc_index_part(u32 x, u32 n)
{
	return (u32)((u64)x * n >> 32);
}

/**
 * vcache_index_buckets - choose the number of buckets for so many cells
 * @cells: how many
 *
 * Return: one for two cells, in complete groups, but at least one group.
 */
u32 vcache_index_buckets(u32 cells)
{
	u32 groups = cells >> (VC_GROUP_SHIFT + 1);

	return (groups ? groups : 1) << VC_GROUP_SHIFT;
}

/* Elements to initialise between two chances for others to run. */
#define VC_INIT_STEP	65536U

/**
 * vcache_index_init - make the index empty
 * @ix: its arrays and sizes are set
 */
void vcache_index_init(struct vcache_index *ix)
{
	u32 i;

	for (i = 0; i < ix->cells; i++) {
		ix->where[i] = 0;
		if (!(i % VC_INIT_STEP))
			cond_resched();
	}
	for (i = 0; i < ix->buckets; i++) {
		ix->head[i] = VC_CELL_NONE;
		if (!(i % VC_INIT_STEP))
			cond_resched();
	}
}

/**
 * vcache_index_group - find the group of buckets of a block
 * @ix: the index
 * @slot: the volume
 * @block: the block
 *
 * Return: a number below @ix->buckets >> VC_GROUP_SHIFT.
 */
u32 vcache_index_group(const struct vcache_index *ix, u16 slot, u64 block)
{
	u64 x = vcache_hash((u64)slot << 48 | block >> VC_GROUP_SHIFT);

	return vc_index_part(x >> 32, ix->buckets >> VC_GROUP_SHIFT);
}

static u32 *vc_index_bucket(const struct vcache_index *ix, u16 slot, u64 block)
{
	u32 group = vcache_index_group(ix, slot, block);
	u32 in = block & ((1U << VC_GROUP_SHIFT) - 1);

	return &ix->head[group << VC_GROUP_SHIFT | in];
}

/**
 * vcache_index_find - find a cell that has any of some sectors of a block
 * @ix: the index
 * @slot: the volume
 * @block: the block
 * @mask: the sectors
 *
 * Return: the cell, or VC_CELL_NONE.
 */
u32 vcache_index_find(const struct vcache_index *ix, u16 slot, u64 block, u8 mask)
{
	u32 c = *vc_index_bucket(ix, slot, block);

	while (c != VC_CELL_NONE &&
	       !(vcache_cell_mask(ix, c) & mask && vc_cell_is(ix, c, slot, block)))
		c = vcache_cell_next(ix, c);
	return c;
}

/**
 * vcache_index_held - find all sectors of a block that are in the cache
 * @ix: the index
 * @slot: the volume
 * @block: the block
 *
 * Return: the sectors, bit 0 the first.
 */
u8 vcache_index_held(const struct vcache_index *ix, u16 slot, u64 block)
{
	u32 c = *vc_index_bucket(ix, slot, block);
	u8 held = 0;

	for (; c != VC_CELL_NONE; c = vcache_cell_next(ix, c)) {
		if (vc_cell_is(ix, c, slot, block))
			held |= vcache_cell_mask(ix, c);
	}
	return held;
}

/* Take the cell between two others out of its bucket; VC_CELL_NONE: there is none. */
static void vc_index_unlink(struct vcache_index *ix, u32 *head, u32 before, u32 next)
{
	if (before == VC_CELL_NONE)
		*head = next;
	else
		vc_cell_set_next(ix, before, next);
}

/**
 * vcache_index_cut - remove some sectors of a block
 * @ix: the index
 * @slot: the volume
 * @block: the block
 * @mask: the sectors
 * @touched: space for VC_CELLS_PER_BLOCK cells: those that had any of the sectors; a cell
 *	is empty now if its mask is 0
 *
 * Return: the number of cells in @touched.
 */
unsigned int vcache_index_cut(struct vcache_index *ix, u16 slot, u64 block, u8 mask,
			      u32 *touched)
{
	u32 *head = vc_index_bucket(ix, slot, block);
	u32 c = *head, before = VC_CELL_NONE, next;
	unsigned int n = 0;

	for (; c != VC_CELL_NONE; c = next) {
		next = vcache_cell_next(ix, c);
		if (vcache_cell_mask(ix, c) & mask && vc_cell_is(ix, c, slot, block)) {
			WRITE_ONCE(ix->where[c], ix->where[c] & ~(u64)mask);
			touched[n++] = c;
			if (!vcache_cell_mask(ix, c)) {
				vc_index_unlink(ix, head, before, next);
				continue;
			}
		}
		before = c;
	}
	return n;
}

/**
 * vcache_index_put - set an empty cell
 * @ix: the index
 * @cell: the cell; all others of its chunk that are not empty are of the same volume
 * @slot: the volume
 * @block: the block
 * @mask: the sectors, not 0; no other cell has any of them, see vcache_index_cut()
 */
void vcache_index_put(struct vcache_index *ix, u32 cell, u16 slot, u64 block, u8 mask)
{
	u32 *head = vc_index_bucket(ix, slot, block);

	WRITE_ONCE(ix->slot[cell / ix->chunk_cells], slot);
	WRITE_ONCE(ix->where[cell], block << 8 | mask);
	vc_cell_set_next(ix, cell, *head);
	*head = cell;
}

/**
 * vcache_index_drop - empty a cell
 * @ix: the index
 * @cell: the cell; may be empty already
 */
void vcache_index_drop(struct vcache_index *ix, u32 cell)
{
	u32 *head, c, before = VC_CELL_NONE;

	if (!vcache_cell_mask(ix, cell))
		return;
	head = vc_index_bucket(ix, vcache_cell_slot(ix, cell), vcache_cell_block(ix, cell));
	for (c = *head; c != cell; c = vcache_cell_next(ix, c))
		before = c;
	vc_index_unlink(ix, head, before, vcache_cell_next(ix, cell));
	WRITE_ONCE(ix->where[cell], 0);
}
