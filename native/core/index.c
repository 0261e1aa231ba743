// SPDX-License-Identifier: GPL-2.0
#include "hash.h"
#include "index.h"

static u64 vc_cell_key(u16 slot, u64 block)
{
	return (u64)slot << 48 | block << 8;
}

/**
 * vcache_index_buckets - choose the number of buckets for so many cells
 * @cells: how many
 *
 * Return: the largest power of two that is not greater, but at least one group.
 */
u32 vcache_index_buckets(u32 cells)
{
	u32 n = 1U << VC_GROUP_SHIFT;

	while (n <= cells / 2)
		n <<= 1;
	return n;
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
		ix->next[i] = VC_CELL_NONE;
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

	return x & ((ix->buckets >> VC_GROUP_SHIFT) - 1);
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
	u64 key = vc_cell_key(slot, block);
	u32 c = *vc_index_bucket(ix, slot, block);

	while (c != VC_CELL_NONE && ((ix->where[c] & ~0xffULL) != key ||
				     !(ix->where[c] & mask)))
		c = ix->next[c];
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
	u64 key = vc_cell_key(slot, block);
	u32 c = *vc_index_bucket(ix, slot, block);
	u8 held = 0;

	for (; c != VC_CELL_NONE; c = ix->next[c]) {
		if ((ix->where[c] & ~0xffULL) == key)
			held |= vcache_cell_mask(ix, c);
	}
	return held;
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
	u64 key = vc_cell_key(slot, block);
	u32 *link = vc_index_bucket(ix, slot, block);
	unsigned int n = 0;

	while (*link != VC_CELL_NONE) {
		u32 c = *link;

		if ((ix->where[c] & ~0xffULL) == key &&
		    (ix->where[c] & mask)) {
			WRITE_ONCE(ix->where[c], ix->where[c] & ~(u64)mask);
			touched[n++] = c;
			if (!vcache_cell_mask(ix, c)) {
				*link = ix->next[c];
				ix->next[c] = VC_CELL_NONE;
				continue;
			}
		}
		link = &ix->next[c];
	}
	return n;
}

/**
 * vcache_index_put - set an empty cell
 * @ix: the index
 * @cell: the cell
 * @slot: the volume
 * @block: the block
 * @mask: the sectors, not 0; no other cell has any of them, see vcache_index_cut()
 */
void vcache_index_put(struct vcache_index *ix, u32 cell, u16 slot, u64 block, u8 mask)
{
	u32 *head = vc_index_bucket(ix, slot, block);

	WRITE_ONCE(ix->where[cell], vc_cell_key(slot, block) | mask);
	ix->next[cell] = *head;
	*head = cell;
}

/**
 * vcache_index_drop - empty a cell
 * @ix: the index
 * @cell: the cell; may be empty already
 */
void vcache_index_drop(struct vcache_index *ix, u32 cell)
{
	u32 *link;

	if (!vcache_cell_mask(ix, cell))
		return;
	link = vc_index_bucket(ix, vcache_cell_slot(ix, cell),
			       vcache_cell_block(ix, cell));
	while (*link != cell)
		link = &ix->next[*link];
	*link = ix->next[cell];
	ix->next[cell] = VC_CELL_NONE;
	WRITE_ONCE(ix->where[cell], 0);
}
