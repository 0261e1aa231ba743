// SPDX-License-Identifier: GPL-2.0-only
/*
 * dm-vcache: where in the cache a sector is; the index under its locks.
 */
#include "reads.h"

/* Which of the block's sectors from @from on follow one another in @mask? */
static unsigned int vc_run_in(u8 mask, unsigned int from)
{
	unsigned int n = 0;

	while (from + n < VC_BLOCK_SECTORS && (mask & BIT(from + n)))
		n++;
	return n;
}

/*
 * Look at one block from sector @from of it on. Return: the sectors that are
 * where the first one is: in @cell, or not in the cache at all.
 */
static unsigned int vc_lookup_block(struct vc_volume *v, u64 block,
				    unsigned int from, u32 *cell, bool use)
{
	struct vc_pool *p = v->pool;
	spinlock_t *lock = vc_cell_lock(p, v->slot, block);
	unsigned long flags;
	unsigned int n;

	spin_lock_irqsave(lock, flags);
	*cell = vc_index_find(&p->ix, v->slot, block, BIT(from));
	if (*cell != VC_CELL_NONE) {
		n = vc_run_in(vc_cell_mask(&p->ix, *cell), from);
		if (use)
			atomic_inc(&vc_cell_chunk(p, *cell)->users);
	} else {
		n = vc_run_in(~vc_index_held(&p->ix, v->slot, block), from);
	}
	spin_unlock_irqrestore(lock, flags);
	return n;
}

/*
 * Whether a cell holds what is hot in a shared lane has changed, maybe. Called with
 * the lock of the group. A lane may change hands just now, so what was counted is
 * noted: it is taken back once, whatever the chunk is by then.
 *
 * Return: it is hot now, and was not.
 */
static bool vc_cell_count(struct vc_pool *p, u32 cell)
{
	struct vc_chunk *c = vc_cell_chunk(p, cell);
	bool hot = vc_cell_mask(&p->ix, cell) && !READ_ONCE(c->own) &&
		   READ_ONCE(p->heat[cell]) >= VC_HEAT_SHARED;

	if (hot == test_bit(cell, p->cell_hot))
		return false;
	change_bit(cell, p->cell_hot);
	atomic_add(hot ? 1 : -1, &c->log->hot);
	return hot;
}

/* A block in a shared lane that is not hot there is read. */
static void vc_heat_shared(struct vc_pool *p, struct vc_log *log, u32 cell)
{
	spinlock_t *lock = vc_cell_lock(p, vc_cell_slot(&p->ix, cell),
					vc_cell_block(&p->ix, cell));
	unsigned long flags;
	bool hot = false;
	u8 heat;

	spin_lock_irqsave(lock, flags);
	heat = READ_ONCE(p->heat[cell]);
	if (vc_cell_mask(&p->ix, cell) && heat < VC_HEAT_SHARED) {
		WRITE_ONCE(p->heat[cell], heat + 1);
		hot = vc_cell_count(p, cell);
	}
	spin_unlock_irqrestore(lock, flags);
	if (hot && READ_ONCE(log->lanes))
		vc_migrate_soon(log);
}

/*
 * A block is read from here, so its chunk stays. Some are not counted when many
 * read at once.
 */
static void vc_heat_up(struct vc_pool *p, u32 cell)
{
	struct vc_chunk *c;
	u8 heat;

	if (cell == VC_CELL_NONE)
		return;
	c = vc_cell_chunk(p, cell);
	heat = READ_ONCE(p->heat[cell]);
	if (!heat && c->reads == &c->log->reads[VC_READS_SMALL])
		vc_level_hit(&c->log->level);
	if (heat < VC_HEAT_SHARED && !READ_ONCE(c->own))
		vc_heat_shared(p, c->log, cell);
	else if (heat < VC_HEAT_MAX)
		WRITE_ONCE(p->heat[cell], heat + 1);
	vc_log_paid(c->log, VC_CREDIT_READ);
}

/* Is @next the place right behind @cell, in the same chunk? */
static bool vc_cell_follows(struct vc_pool *p, u32 cell, u32 next)
{
	if (cell == VC_CELL_NONE || next == VC_CELL_NONE)
		return cell == next;
	return next == cell + 1 &&
	       vc_cell_chunk(p, cell) == vc_cell_chunk(p, next);
}

/**
 * vc_lookup - find out where a range is
 * @v: the volume
 * @sector: the first sector
 * @len: how many
 * @cell: where the first one is, or VC_CELL_NONE when that is the origin; in
 *	the first case vc_lookup_done() must be called when it has been read
 *
 * Return: how many sectors are there in one piece, 1 ... @len.
 */
unsigned int vc_lookup(struct vc_volume *v, sector_t sector, unsigned int len,
		       u32 *cell)
{
	u64 block = sector / VC_BLOCK_SECTORS;
	unsigned int from = sector % VC_BLOCK_SECTORS;
	unsigned int n = vc_lookup_block(v, block, from, cell, true);
	u32 at = *cell, next;

	vc_heat_up(v->pool, at);
	/* A piece may go on only where a block is used up to its end. */
	while (n < len && !((from + n) % VC_BLOCK_SECTORS)) {
		unsigned int more = vc_lookup_block(v, ++block, 0, &next,
						    false);

		if (!vc_cell_follows(v->pool, at, next))
			break;
		vc_heat_up(v->pool, next);
		at = next;
		n += more;
	}
	return min(n, len);
}

/**
 * vc_lookup_done - what was found in the cache has been read
 * @p: the pool
 * @cell: what vc_lookup() gave
 */
void vc_lookup_done(struct vc_pool *p, u32 cell)
{
	struct vc_chunk *c = vc_cell_chunk(p, cell);

	if (atomic_dec_and_test(&c->users) && READ_ONCE(c->wanted)) {
		WRITE_ONCE(c->wanted, false);
		vc_space_kick(p);
	}
}

/* A cell is empty now. Called with the lock of the group. */
static void vc_cell_emptied(struct vc_pool *p, u32 cell)
{
	struct vc_chunk *c = vc_cell_chunk(p, cell);

	atomic_dec(&c->log->live);
	vc_cell_count(p, cell);
	if (atomic_dec_and_test(&c->live) && READ_ONCE(p->short_of_space))
		vc_space_kick(p);
}

/* A cell is no longer dirty. Without dirty cells its chunk may be reclaimable. */
static void vc_cell_cleaned(struct vc_pool *p, u32 cell)
{
	if (atomic_dec_and_test(&vc_cell_chunk(p, cell)->dirty) &&
	    READ_ONCE(p->short_of_space))
		vc_space_kick(p);
}

/* Called with the lock of the group. Return: how hot the block was. */
static u8 vc_lookup_cut_locked(struct vc_volume *v, struct vc_log *by,
			       u64 block, u8 mask)
{
	u32 touched[VC_CELLS_PER_BLOCK];
	struct vc_pool *p = v->pool;
	unsigned int i, n;
	u8 heat = 0;

	n = vc_index_cut(&p->ix, v->slot, block, mask, touched);
	for (i = 0; i < n; i++) {
		struct vc_chunk *c = vc_cell_chunk(p, touched[i]);

		heat = max(heat, READ_ONCE(p->heat[touched[i]]));
		if (by && c->log != by)
			WRITE_ONCE(c->stale, true);
		if (vc_cell_mask(&p->ix, touched[i]))
			continue;
		vc_cell_emptied(p, touched[i]);
		if (!test_bit(touched[i], p->cell_clean))
			vc_cell_cleaned(p, touched[i]);
	}
	return heat;
}

/**
 * vc_lookup_cut - some sectors of a block are not in the cache any more
 * @v: the volume
 * @by: the log whose record says so; NULL in write-through mode: none does
 * @block: the block
 * @mask: the sectors
 */
void vc_lookup_cut(struct vc_volume *v, struct vc_log *by, u64 block, u8 mask)
{
	spinlock_t *lock = vc_cell_lock(v->pool, v->slot, block);
	unsigned long flags;

	spin_lock_irqsave(lock, flags);
	vc_lookup_cut_locked(v, by, block, mask);
	spin_unlock_irqrestore(lock, flags);
}

/* Called with the lock of the group. */
static void vc_lookup_put_locked(struct vc_volume *v, u32 cell, u64 block,
				 u8 mask, bool clean, u8 heat)
{
	struct vc_pool *p = v->pool;
	struct vc_chunk *c = vc_cell_chunk(p, cell);

	WRITE_ONCE(p->heat[cell], heat);
	atomic_inc(&c->live);
	atomic_inc(&c->log->live);
	vc_index_put(&p->ix, cell, v->slot, block, mask);
	vc_cell_count(p, cell);
	if (clean) {
		set_bit(cell, p->cell_clean);
	} else {
		clear_bit(cell, p->cell_clean);
		if (atomic_inc_return(&c->dirty) == 1)
			vc_destage_soon(v);
	}
}

/**
 * vc_lookup_put - some sectors of a block are in a cell now, and nowhere else
 * @v: the volume
 * @by: the log whose record says so
 * @cell: the cell
 * @block: the block
 * @mask: the sectors
 */
void vc_lookup_put(struct vc_volume *v, struct vc_log *by, u32 cell, u64 block,
		   u8 mask)
{
	spinlock_t *lock = vc_cell_lock(v->pool, v->slot, block);
	unsigned long flags;
	u8 heat;

	spin_lock_irqsave(lock, flags);
	heat = vc_lookup_cut_locked(v, by, block, mask);
	vc_lookup_put_locked(v, cell, block, mask,
			     vc_cell_chunk(v->pool, cell)->clean, heat);
	spin_unlock_irqrestore(lock, flags);
}

/**
 * vc_lookup_drop - empty a cell, whatever it holds
 * @p: the pool
 * @cell: the cell, of a chunk that is not written any more
 *
 * Behind it nobody comes to the chunk by this cell. So the lock is taken of one
 * that is empty, too: who has just emptied it still needs the chunk, and its log.
 */
void vc_lookup_drop(struct vc_pool *p, u32 cell)
{
	u16 slot = vc_cell_slot(&p->ix, cell);
	u64 block = vc_cell_block(&p->ix, cell);
	spinlock_t *lock = vc_cell_lock(p, slot, block);
	unsigned long flags;

	/*
	 * What a cell is about does not change while its chunk lives, also when it
	 * holds nothing any more.
	 */
	spin_lock_irqsave(lock, flags);
	if (vc_cell_mask(&p->ix, cell)) {
		vc_index_drop(&p->ix, cell);
		vc_cell_emptied(p, cell);
		if (!test_bit(cell, p->cell_clean))
			vc_cell_cleaned(p, cell);
	}
	spin_unlock_irqrestore(lock, flags);
}

/**
 * vc_lookup_sort - the chunk of a cell is in one of its log's own lanes now, or in
 *	none any more
 * @p: the pool, locked: that keeps the chunk
 * @cell: the cell
 *
 * One that is filled or read right now may be counted as it was before.
 */
void vc_lookup_sort(struct vc_pool *p, u32 cell)
{
	u16 slot = vc_cell_slot(&p->ix, cell);
	u64 block = vc_cell_block(&p->ix, cell);
	spinlock_t *lock = vc_cell_lock(p, slot, block);
	unsigned long flags;

	if (!vc_cell_mask(&p->ix, cell))
		return;
	spin_lock_irqsave(lock, flags);
	/* It may have been filled just now, and then the lock is another one's. */
	if (vc_cell_mask(&p->ix, cell) && vc_cell_slot(&p->ix, cell) == slot &&
	    vc_cell_block(&p->ix, cell) == block)
		vc_cell_count(p, cell);
	spin_unlock_irqrestore(lock, flags);
}

/**
 * vc_lookup_dirty - is a block as a whole in one cell, and not on the origin?
 * @v: the volume
 * @block: the block
 * @cell: which; its chunk stays until vc_lookup_done()
 */
bool vc_lookup_dirty(struct vc_volume *v, u64 block, u32 *cell)
{
	struct vc_pool *p = v->pool;
	spinlock_t *lock = vc_cell_lock(p, v->slot, block);
	unsigned long flags;
	bool found;

	spin_lock_irqsave(lock, flags);
	*cell = vc_index_find(&p->ix, v->slot, block, VC_MASK_ALL);
	found = *cell != VC_CELL_NONE &&
		vc_cell_mask(&p->ix, *cell) == VC_MASK_ALL &&
		!test_bit(*cell, p->cell_clean);
	if (found)
		atomic_inc(&vc_cell_chunk(p, *cell)->users);
	spin_unlock_irqrestore(lock, flags);
	return found;
}

/**
 * vc_lookup_pin - is a cell still what it was noted as, and dirty?
 * @v: the volume
 * @cell: the cell
 * @block: the block it was noted with
 *
 * Return: the sectors that it holds; then its chunk stays until
 * vc_lookup_done(). Else 0.
 */
u8 vc_lookup_pin(struct vc_volume *v, u32 cell, u64 block)
{
	struct vc_pool *p = v->pool;
	spinlock_t *lock = vc_cell_lock(p, v->slot, block);
	unsigned long flags;
	u8 mask = 0;

	spin_lock_irqsave(lock, flags);
	if (vc_cell_slot(&p->ix, cell) == v->slot &&
	    vc_cell_block(&p->ix, cell) == block &&
	    !test_bit(cell, p->cell_clean))
		mask = vc_cell_mask(&p->ix, cell);
	if (mask)
		atomic_inc(&vc_cell_chunk(p, cell)->users);
	spin_unlock_irqrestore(lock, flags);
	return mask;
}

/**
 * vc_lookup_clean - what a cell held is on the origin as well, durably
 * @v: the volume
 * @cell: the cell
 * @block: the block it was noted with
 * @reuse: vc_chunk.reuse, read while the chunk was referenced; if it differs the cell is
 *	about something else, be it the same block
 */
void vc_lookup_clean(struct vc_volume *v, u32 cell, u64 block, u32 reuse)
{
	struct vc_pool *p = v->pool;
	spinlock_t *lock = vc_cell_lock(p, v->slot, block);
	unsigned long flags;
	u8 mask;

	spin_lock_irqsave(lock, flags);
	mask = vc_cell_mask(&p->ix, cell);
	smp_rmb(); /* a cell of the next life is filled after that began */
	if (mask && READ_ONCE(vc_cell_chunk(p, cell)->reuse) == reuse &&
	    !test_and_set_bit(cell, p->cell_clean))
		vc_cell_cleaned(p, cell);
	spin_unlock_irqrestore(lock, flags);
}

/* Has another log something newer of these sectors, or none at all? */
static bool vc_lookup_lost(struct vc_volume *v, u64 block, u8 mask,
			   struct vc_log *log)
{
	struct vc_pool *p = v->pool;

	while (mask) {
		u32 cell = vc_index_find(&p->ix, v->slot, block, mask);

		if (cell == VC_CELL_NONE || vc_cell_chunk(p, cell)->log != log)
			return true;
		mask &= ~vc_cell_mask(&p->ix, cell);
	}
	return false;
}

/**
 * vc_lookup_move - what a cell holds is in another one of the same log now
 * @v: the volume
 * @from: where it was
 * @to: where it is, an empty cell
 * @mask: the sectors that the record of @to names
 *
 * Those that @from does not hold any more are superseded by something newer
 * than the record. Where that is not of the same log, the chunk is stale.
 */
void vc_lookup_move(struct vc_volume *v, u32 from, u32 to, u8 mask)
{
	struct vc_pool *p = v->pool;
	u64 block = vc_cell_block(&p->ix, from);
	spinlock_t *lock = vc_cell_lock(p, v->slot, block);
	struct vc_chunk *c = vc_cell_chunk(p, to);
	unsigned long flags;
	bool clean;
	u8 got, heat;

	spin_lock_irqsave(lock, flags);
	got = vc_cell_mask(&p->ix, from) & mask;
	if (got) {
		clean = test_bit(from, p->cell_clean);
		heat = vc_lookup_cut_locked(v, c->log, block, got);
		vc_lookup_put_locked(v, to, block, got, clean, heat);
	}
	if (vc_lookup_lost(v, block, mask & ~got, c->log))
		WRITE_ONCE(c->stale, true);
	spin_unlock_irqrestore(lock, flags);
}

/**
 * vc_lookup_any - is any part of a range in the cache?
 * @v: the volume
 * @block: first block
 * @blocks: how many
 *
 * A range larger than the cache is said to be.
 */
bool vc_lookup_any(struct vc_volume *v, u64 block, u64 blocks)
{
	u32 cell;
	u64 i;

	if (blocks > v->pool->ix.cells)
		return true;
	for (i = 0; i < blocks; i++) {
		struct vc_pool *p = v->pool;
		spinlock_t *lock = vc_cell_lock(p, v->slot, block + i);
		unsigned long flags;

		spin_lock_irqsave(lock, flags);
		cell = vc_index_find(&p->ix, v->slot, block + i, VC_MASK_ALL);
		spin_unlock_irqrestore(lock, flags);
		if (cell != VC_CELL_NONE)
			return true;
	}
	return false;
}

/**
 * vc_lookup_changes - how often was something near a block written while
 *	something was promoted?
 * @v: the volume
 * @block: the block
 */
int vc_lookup_changes(struct vc_volume *v, u64 block)
{
	return atomic_read(&v->pool->change[vc_cell_group(v->pool, v->slot,
							  block)]);
}

/**
 * vc_lookup_change - what is being promoted of a range may be old now
 * @v: the volume
 * @block: first block
 * @blocks: how many
 *
 * Called when a write can be found in the buffer, and when a request that goes
 * past it has been answered by the origin.
 */
void vc_lookup_change(struct vc_volume *v, u64 block, u64 blocks)
{
	struct vc_pool *p = v->pool;
	u32 i;

	smp_mb(); /* the write first; pairs with vc_promote_begin() */
	if (!atomic_read(&v->promoting))
		return;
	if (blocks > p->group_mask) {
		for (i = 0; i <= p->group_mask; i++)
			atomic_inc(&p->change[i]);
		return;
	}
	for (i = 0; i < blocks; i++)
		atomic_inc(&p->change[vc_cell_group(p, v->slot, block + i)]);
}

/**
 * vc_lookup_promote - a cell has what the origin has of a block
 * @v: the volume
 * @cell: the cell, empty
 * @block: the block
 * @changes: what vc_lookup_changes() said before the origin was read
 * @heat: how hot it is
 *
 * Return: false when there may be something newer: then the cell stays empty.
 */
bool vc_lookup_promote(struct vc_volume *v, u32 cell, u64 block, int changes,
		       u8 heat)
{
	struct vc_pool *p = v->pool;
	spinlock_t *lock = vc_cell_lock(p, v->slot, block);
	unsigned long flags;
	bool good;

	spin_lock_irqsave(lock, flags);
	good = vc_lookup_changes(v, block) == changes &&
	       !vc_index_held(&p->ix, v->slot, block);
	if (good)
		vc_lookup_put_locked(v, cell, block, VC_MASK_ALL, true, heat);
	spin_unlock_irqrestore(lock, flags);
	return good;
}

/**
 * vc_lookup_whole - does a cell hold a whole block of a volume?
 * @v: the volume; its pool is locked
 * @cell: the cell
 * @block: set to the block
 * @heat: set to how often it was read
 */
bool vc_lookup_whole(struct vc_volume *v, u32 cell, u64 *block, u8 *heat)
{
	struct vc_pool *p = v->pool;
	u64 at = vc_cell_block(&p->ix, cell);
	spinlock_t *lock = vc_cell_lock(p, v->slot, at);
	unsigned long flags;
	bool whole;

	if (!vc_cell_mask(&p->ix, cell))
		return false;
	spin_lock_irqsave(lock, flags);
	/* It may have been filled just now, and then with another block. */
	whole = vc_cell_mask(&p->ix, cell) == VC_MASK_ALL &&
		vc_cell_slot(&p->ix, cell) == v->slot &&
		vc_cell_block(&p->ix, cell) == at;
	*block = at;
	*heat = READ_ONCE(p->heat[cell]);
	spin_unlock_irqrestore(lock, flags);
	return whole;
}

/**
 * vc_lookup_keep - a whole clean block is in another cell now
 * @v: the volume
 * @from: where it was, in a chunk that is dead on the device: nothing there
 *	brings the block back
 * @to: where it is, an empty cell of a chunk of reads
 *
 * Return: false when the block has been superseded: then @to stays empty.
 */
bool vc_lookup_keep(struct vc_volume *v, u32 from, u32 to)
{
	struct vc_pool *p = v->pool;
	u64 block = vc_cell_block(&p->ix, from);
	spinlock_t *lock = vc_cell_lock(p, v->slot, block);
	unsigned long flags;
	bool good;
	u8 heat;

	spin_lock_irqsave(lock, flags);
	good = vc_cell_mask(&p->ix, from) == VC_MASK_ALL &&
	       test_bit(from, p->cell_clean);
	if (good) {
		heat = READ_ONCE(p->heat[from]) / 2;
		vc_index_drop(&p->ix, from);
		vc_cell_emptied(p, from);
		vc_lookup_put_locked(v, to, block, VC_MASK_ALL, true, heat);
	}
	spin_unlock_irqrestore(lock, flags);
	return good;
}
