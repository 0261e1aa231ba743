// SPDX-License-Identifier: GPL-2.0-only
/*
 * dm-vcache: changes of the index of the cache, under its locks. See lookup.c for look-ups.
 */
#include "internal.h"

/**
 * vcache_cell_count - update vcache_log.hot: is a block hot that is in a shared lane?
 * @p: the pool
 * @cell: its cell
 *
 * Called with the lock of the group. A lane may become dedicated, or shared, at any time. So
 * vcache_pool.cell_hot says whether the cell was counted, and it is uncounted exactly once.
 *
 * Return: true if the cell is hot now and was not before.
 */
bool vcache_cell_count(struct vcache_pool *p, u32 cell)
{
	struct vcache_chunk *c = vcache_cell_chunk(p, cell);
	bool hot = vcache_cell_mask(&p->ix, cell) && !READ_ONCE(c->own) &&
		   READ_ONCE(p->heat[cell]) >= VC_HEAT_SHARED;

	if (hot == test_bit(cell, p->cell_hot))
		return false;
	change_bit(cell, p->cell_hot);
	atomic_add(hot ? 1 : -1, &c->log->hot);
	return hot;
}

/* A cell has become empty. Called with the lock of the group. */
static void vc_cell_emptied(struct vcache_pool *p, u32 cell)
{
	struct vcache_chunk *c = vcache_cell_chunk(p, cell);

	atomic_dec(&c->log->live);
	vcache_cell_count(p, cell);
	if (!atomic_dec_and_test(&c->live))
		return;
	WRITE_ONCE(c->log->emptied, true);
	if (READ_ONCE(p->short_of_space))
		vcache_space_kick(p);
}

/* A cell of a chunk is dirty now. */
static void vc_cell_dirtied(struct vcache_volume *v, struct vcache_chunk *c)
{
	atomic_inc(&c->log->dirty_cells);
	if (atomic_inc_return(&c->dirty) == 1)
		vcache_log_upper->dirty(v);
}

/* A cell is no longer dirty. Without dirty cells its chunk may be reclaimable. */
static void vc_cell_cleaned(struct vcache_pool *p, u32 cell)
{
	struct vcache_chunk *c = vcache_cell_chunk(p, cell);

	atomic_dec(&c->log->dirty_cells);
	if (atomic_dec_and_test(&c->dirty) && READ_ONCE(p->short_of_space))
		vcache_space_kick(p);
}

/* Drop sectors. Called with the lock of the group. Return: how hot the block was. */
static u8 vc_lookup_cut_locked(struct vcache_volume *v, struct vcache_log *by,
			       u64 block, u8 mask)
{
	u32 touched[VC_CELLS_PER_BLOCK];
	struct vcache_pool *p = v->pool;
	unsigned int i, n;
	u8 heat = 0;

	lockdep_assert_held(vcache_cell_lock(v->pool, v->slot, block));
	n = vcache_index_cut(&p->ix, v->slot, block, mask, touched);
	for (i = 0; i < n; i++) {
		struct vcache_chunk *c = vcache_cell_chunk(p, touched[i]);

		heat = max(heat, READ_ONCE(p->heat[touched[i]]));
		if (by && c->log != by)
			WRITE_ONCE(c->stale, true);
		if (vcache_cell_mask(&p->ix, touched[i]))
			continue;
		vc_cell_emptied(p, touched[i]);
		if (!test_bit(touched[i], p->cell_clean))
			vc_cell_cleaned(p, touched[i]);
	}
	return heat;
}

/**
 * vcache_lookup_cut - drop some sectors of a block from the cache
 * @v: the volume
 * @by: the log that has a record of it; NULL in write-through mode without one
 * @block: the block
 * @mask: the sectors
 */
void vcache_lookup_cut(struct vcache_volume *v, struct vcache_log *by, u64 block, u8 mask)
{
	spinlock_t *lock = vcache_cell_lock(v->pool, v->slot, block);
	unsigned long flags;

	spin_lock_irqsave(lock, flags);
	vc_lookup_cut_locked(v, by, block, mask);
	spin_unlock_irqrestore(lock, flags);
}

/*
 * The cache device could not read a cell. Called with the lock of the group.
 *
 * The cell of a read chunk is dropped. A cell that a record describes stays in the index
 * until its chunk is dead: otherwise a later write could bypass the log, and a discard
 * could do without a record, and after a crash the old data would be valid again.
 */
static void vc_cell_failed(struct vcache_pool *p, u32 cell)
{
	struct vcache_chunk *c = vcache_cell_chunk(p, cell);

	if (c->reads) {
		vcache_index_drop(&p->ix, cell);
		vc_cell_emptied(p, cell);
	} else {
		set_bit(cell, p->cell_bad);
		WRITE_ONCE(c->bad, true);
	}
}

/**
 * vcache_lookup_failed - the cache device could not read a range: do not try its clean cells
 *	again
 * @v: the volume
 * @cell: the cell of the first sector; its chunk is referenced
 * @sector: the first sector
 * @len: how many; they are in consecutive cells of one chunk
 */
void vcache_lookup_failed(struct vcache_volume *v, u32 cell, sector_t sector,
			  unsigned int len)
{
	u64 block = sector / VC_BLOCK_SECTORS;
	u64 end = DIV_ROUND_UP_ULL(sector + len, VC_BLOCK_SECTORS);
	struct vcache_pool *p = v->pool;

	for (; block < end; block++, cell++) {
		spinlock_t *lock = vcache_cell_lock(p, v->slot, block);
		unsigned long flags;

		spin_lock_irqsave(lock, flags);
		if (vcache_cell_mask(&p->ix, cell) && test_bit(cell, p->cell_clean))
			vc_cell_failed(p, cell);
		spin_unlock_irqrestore(lock, flags);
	}
}

/* Set a cell. Called with the lock of the group. */
static void vc_lookup_put_locked(struct vcache_volume *v, u32 cell, u64 block,
				 u8 mask, bool clean, u8 heat)
{
	struct vcache_pool *p = v->pool;
	struct vcache_chunk *c = vcache_cell_chunk(p, cell);

	lockdep_assert_held(vcache_cell_lock(v->pool, v->slot, block));
	WRITE_ONCE(p->heat[cell], heat);
	atomic_inc(&c->live);
	atomic_inc(&c->log->live);
	vcache_index_put(&p->ix, cell, v->slot, block, mask);
	vcache_cell_count(p, cell);
	if (clean) {
		set_bit(cell, p->cell_clean);
	} else {
		clear_bit(cell, p->cell_clean);
		vc_cell_dirtied(v, c);
	}
}

/**
 * vcache_lookup_put - some sectors of a block are in a cell from now on, and nowhere else
 * @v: the volume
 * @by: the log that has the record of it
 * @cell: the cell
 * @block: the block
 * @mask: the sectors
 */
void vcache_lookup_put(struct vcache_volume *v, struct vcache_log *by, u32 cell, u64 block,
		       u8 mask)
{
	spinlock_t *lock = vcache_cell_lock(v->pool, v->slot, block);
	unsigned long flags;
	u8 heat;

	spin_lock_irqsave(lock, flags);
	heat = vc_lookup_cut_locked(v, by, block, mask);
	vc_lookup_put_locked(v, cell, block, mask,
			     vcache_cell_chunk(v->pool, cell)->clean, heat);
	spin_unlock_irqrestore(lock, flags);
}

/**
 * vcache_lookup_drop - empty a cell
 * @p: the pool
 * @cell: the cell, of a chunk that is not written any more
 *
 * Afterwards nobody uses the chunk because of this cell. So the lock is taken even if the
 * cell is empty: the code that has just emptied it may still use the chunk and its log.
 */
void vcache_lookup_drop(struct vcache_pool *p, u32 cell)
{
	u16 slot = vcache_cell_slot(&p->ix, cell);
	u64 block = vcache_cell_block(&p->ix, cell);
	spinlock_t *lock = vcache_cell_lock(p, slot, block);
	unsigned long flags;

	/*
	 * A cell keeps its slot and its block until its chunk is freed, even when it is
	 * empty. So this is its lock.
	 */
	spin_lock_irqsave(lock, flags);
	if (vcache_cell_mask(&p->ix, cell)) {
		vcache_index_drop(&p->ix, cell);
		vc_cell_emptied(p, cell);
		if (!test_bit(cell, p->cell_clean))
			vc_cell_cleaned(p, cell);
	}
	spin_unlock_irqrestore(lock, flags);
}

/**
 * vcache_lookup_sort - update vcache_log.hot after a lane became dedicated or shared, or a block
 *	has cooled
 * @p: the pool, locked, so that the chunk is not reclaimed
 * @cell: the cell
 *
 * A cell that is being filled or read just now may be counted as it was before.
 */
void vcache_lookup_sort(struct vcache_pool *p, u32 cell)
{
	u16 slot = vcache_cell_slot(&p->ix, cell);
	u64 block = vcache_cell_block(&p->ix, cell);
	spinlock_t *lock = vcache_cell_lock(p, slot, block);
	unsigned long flags;

	lockdep_assert_held(&p->lock);
	if (!vcache_cell_mask(&p->ix, cell))
		return;
	spin_lock_irqsave(lock, flags);
	/* If it has just been filled with another block, that has another lock. */
	if (vcache_cell_mask(&p->ix, cell) && vcache_cell_slot(&p->ix, cell) == slot &&
	    vcache_cell_block(&p->ix, cell) == block)
		vcache_cell_count(p, cell);
	spin_unlock_irqrestore(lock, flags);
}

/**
 * vcache_lookup_clean - mark a cell clean, because its data is durable on the origin
 * @v: the volume
 * @cell: the cell
 * @block: the block that was found in it
 * @reuse: vcache_chunk.reuse, read while the chunk was referenced; if it has changed the cell
 *	has other data, perhaps of the same block, and nothing is done
 */
void vcache_lookup_clean(struct vcache_volume *v, u32 cell, u64 block, u32 reuse)
{
	struct vcache_pool *p = v->pool;
	spinlock_t *lock = vcache_cell_lock(p, v->slot, block);
	unsigned long flags;
	u8 mask;

	spin_lock_irqsave(lock, flags);
	mask = vcache_cell_mask(&p->ix, cell);
	smp_rmb(); /* the reuse count changes before a cell of the reused chunk is filled */
	if (mask && READ_ONCE(vcache_cell_chunk(p, cell)->reuse) == reuse &&
	    !test_and_set_bit(cell, p->cell_clean))
		vc_cell_cleaned(p, cell);
	spin_unlock_irqrestore(lock, flags);
}

/* Mark the cells of a block in a chunk dirty. */
static void vc_block_make_dirty(struct vcache_volume *v, struct vcache_chunk *c,
				u64 block)
{
	struct vcache_pool *p = v->pool;
	spinlock_t *lock = vcache_cell_lock(p, v->slot, block);
	unsigned long flags;
	u8 left = VC_MASK_ALL;
	u32 cell;

	spin_lock_irqsave(lock, flags);
	while (left) {
		cell = vcache_index_find(&p->ix, v->slot, block, left);
		if (cell == VC_CELL_NONE)
			break;
		left &= ~vcache_cell_mask(&p->ix, cell);
		if (vcache_cell_chunk(p, cell) == c &&
		    test_and_clear_bit(cell, p->cell_clean))
			vc_cell_dirtied(v, c);
	}
	spin_unlock_irqrestore(lock, flags);
}

/**
 * vcache_lookup_make_dirty - the origin has refused blocks of a write-through
 * @c: the chunk with their record, which is not sealed yet
 * @first: first block
 * @last: last block
 *
 * They stay in the cache until destage has copied them. Cells of the chunk that are filled
 * later, or newer ones of the same blocks, may be marked as well; that does no harm.
 */
void vcache_lookup_make_dirty(struct vcache_chunk *c, u64 first, u64 last)
{
	struct vcache_log *log = c->log;
	unsigned long flags;

	spin_lock_irqsave(&log->lock, flags);
	if (c->clean) {
		c->clean = false;
		vcache_log_gets_dirty(log, c);
	}
	spin_unlock_irqrestore(&log->lock, flags);
	for (; first <= last; first++)
		vc_block_make_dirty(log->vol, c, first);
}

/* Is any of these sectors not in @log: newer in another one, or not in the cache? */
static bool vc_lookup_lost(struct vcache_volume *v, u64 block, u8 mask,
			   struct vcache_log *log)
{
	struct vcache_pool *p = v->pool;

	while (mask) {
		u32 cell = vcache_index_find(&p->ix, v->slot, block, mask);

		if (cell == VC_CELL_NONE || vcache_cell_chunk(p, cell)->log != log)
			return true;
		mask &= ~vcache_cell_mask(&p->ix, cell);
	}
	return false;
}

/**
 * vcache_lookup_move - a block has been relocated to another cell of the same log
 * @v: the volume
 * @from: the old cell
 * @to: the new cell, empty
 * @mask: the sectors that the record of @to names
 *
 * Sectors that @from has no more were superseded by something newer than the record. If
 * that is not in the same log, the new chunk is stale.
 */
void vcache_lookup_move(struct vcache_volume *v, u32 from, u32 to, u8 mask)
{
	struct vcache_pool *p = v->pool;
	u64 block = vcache_cell_block(&p->ix, from);
	spinlock_t *lock = vcache_cell_lock(p, v->slot, block);
	struct vcache_chunk *c = vcache_cell_chunk(p, to);
	unsigned long flags;
	bool clean;
	u8 got, heat;

	spin_lock_irqsave(lock, flags);
	got = vcache_cell_mask(&p->ix, from) & mask;
	if (got) {
		clean = test_bit(from, p->cell_clean);
		heat = vc_lookup_cut_locked(v, c->log, block, got);
		vc_lookup_put_locked(v, to, block, got, clean, heat);
	}
	if (got != mask)
		VCACHE_PROBE("block superseded while relocated");
	if (vc_lookup_lost(v, block, mask & ~got, c->log))
		WRITE_ONCE(c->stale, true);
	spin_unlock_irqrestore(lock, flags);
}

/**
 * vcache_lookup_change - count a change, so that promotions of a range are dropped
 * @v: the volume
 * @block: first block
 * @blocks: how many
 *
 * Called when a write can be found in the buffer, and when the origin has completed a
 * request that bypassed the buffer.
 */
void vcache_lookup_change(struct vcache_volume *v, u64 block, u64 blocks)
{
	struct vcache_pool *p = v->pool;
	u32 i;

	smp_mb(); /* the write comes first; pairs with vcache_promote_begin() */
	vcache_saved_forget(v, block, blocks);
	smp_mb(); /* pairs with vcache_promote_enter(); see "Order of fills" in fill.c */
	if (!atomic_read(&v->promoting))
		return;
	if (blocks > p->group_mask) {
		for (i = 0; i <= p->group_mask; i++)
			atomic_inc(&p->change[i]);
		return;
	}
	for (i = 0; i < blocks; i++)
		atomic_inc(&p->change[vcache_cell_group(p, v->slot, block + i)]);
}

/**
 * vcache_lookup_promote - a cell has the data of the origin from now on
 * @v: the volume
 * @cell: the cell, empty
 * @block: the block
 * @changes: vcache_lookup_changes() before the origin was read
 * @heat: its heat
 *
 * Return: false if there may be newer data. Then the cell stays empty.
 */
bool vcache_lookup_promote(struct vcache_volume *v, u32 cell, u64 block, int changes,
			   u8 heat)
{
	struct vcache_pool *p = v->pool;
	spinlock_t *lock = vcache_cell_lock(p, v->slot, block);
	unsigned long flags;
	bool good;

	spin_lock_irqsave(lock, flags);
	good = vcache_lookup_changes(v, block) == changes &&
	       !vcache_index_held(&p->ix, v->slot, block);
	if (good)
		vc_lookup_put_locked(v, cell, block, VC_MASK_ALL, true, heat);
	else
		VCACHE_PROBE("promotion lost against a write");
	spin_unlock_irqrestore(lock, flags);
	return good;
}

/**
 * vcache_lookup_keep - a whole clean block has been copied to another cell
 * @v: the volume
 * @from: the old cell, in a chunk that is dead on the device
 * @to: the new cell, empty, in a read chunk
 *
 * Return: false if the block has been superseded. Then @to stays empty.
 */
bool vcache_lookup_keep(struct vcache_volume *v, u32 from, u32 to)
{
	struct vcache_pool *p = v->pool;
	u64 block = vcache_cell_block(&p->ix, from);
	spinlock_t *lock = vcache_cell_lock(p, v->slot, block);
	unsigned long flags;
	bool good;
	u8 heat;

	spin_lock_irqsave(lock, flags);
	good = vcache_cell_mask(&p->ix, from) == VC_MASK_ALL &&
	       test_bit(from, p->cell_clean);
	if (good) {
		heat = READ_ONCE(p->heat[from]) / 2;
		vcache_index_drop(&p->ix, from);
		vc_cell_emptied(p, from);
		vc_lookup_put_locked(v, to, block, VC_MASK_ALL, true, heat);
	}
	spin_unlock_irqrestore(lock, flags);
	return good;
}
