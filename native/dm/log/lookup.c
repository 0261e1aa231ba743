// SPDX-License-Identifier: GPL-2.0-only
/*
 * dm-vcache: look-ups in the index of the cache, under its locks. See update.c for its changes.
 */
#include "internal.h"

/* Count the sectors in @mask that follow one another from @from on. */
static unsigned int vc_run_in(u8 mask, unsigned int from)
{
	unsigned int n = 0;

	while (from + n < VC_BLOCK_SECTORS && (mask & BIT(from + n)))
		n++;
	return n;
}

/*
 * Must data in a cell be read from the origin, though the cell is valid? Only clean data
 * can be. Called with the lock of the group.
 */
static bool vc_cell_unread(struct vcache_pool *p, u32 cell, bool only_copy)
{
	return (only_copy ||
		READ_ONCE(p->state) == VC_POOL_FAILED ||
		(READ_ONCE(vcache_cell_chunk(p, cell)->bad) &&
		 test_bit(cell, p->cell_bad))) &&
	       test_bit(cell, p->cell_clean);
}

/*
 * Look up a block, from its sector @from on. Return: how many sectors are in the same
 * place as the first one: in @cell, or to be read from the origin.
 */
static unsigned int vc_lookup_block(struct vcache_volume *v, u64 block,
				    unsigned int from, u32 *cell,
				    bool only_copy, bool use)
{
	struct vcache_pool *p = v->pool;
	spinlock_t *lock = vcache_cell_lock(p, v->slot, block);
	unsigned long flags;
	unsigned int n;

	spin_lock_irqsave(lock, flags);
	*cell = vcache_index_find(&p->ix, v->slot, block, BIT(from));
	if (*cell != VC_CELL_NONE) {
		n = vc_run_in(vcache_cell_mask(&p->ix, *cell), from);
		if (vc_cell_unread(p, *cell, only_copy))
			*cell = VC_CELL_NONE;
		else if (use)
			atomic_inc(&vcache_cell_chunk(p, *cell)->users);
	} else {
		n = vc_run_in(~vcache_index_held(&p->ix, v->slot, block), from);
	}
	spin_unlock_irqrestore(lock, flags);
	return n;
}

/* Increase the heat of a block in a shared lane that is not hot there yet. */
static void vc_heat_shared(struct vcache_pool *p, struct vcache_log *log, u32 cell)
{
	spinlock_t *lock = vcache_cell_lock(p, vcache_cell_slot(&p->ix, cell),
					    vcache_cell_block(&p->ix, cell));
	unsigned long flags;
	bool hot = false;
	u8 heat;

	spin_lock_irqsave(lock, flags);
	heat = READ_ONCE(p->heat[cell]);
	if (vcache_cell_mask(&p->ix, cell) && heat < VC_HEAT_SHARED) {
		WRITE_ONCE(p->heat[cell], heat + 1);
		hot = vcache_cell_count(p, cell);
	}
	spin_unlock_irqrestore(lock, flags);
	if (hot && READ_ONCE(log->lanes))
		vcache_log_upper->hot(log);
}

/*
 * Increase the heat of a block that is being read, so its chunk stays. Some of many
 * concurrent reads are not counted.
 */
static void vc_heat_up(struct vcache_pool *p, u32 cell)
{
	struct vcache_chunk *c;
	u8 heat;

	if (cell == VC_CELL_NONE)
		return;
	c = vcache_cell_chunk(p, cell);
	heat = READ_ONCE(p->heat[cell]);
	if (!heat && c->reads == &c->log->reads[VC_READS_SMALL])
		vcache_level_hit(&c->log->level);
	if (heat < VC_HEAT_SHARED && !READ_ONCE(c->own))
		vc_heat_shared(p, c->log, cell);
	else if (heat < VC_HEAT_MAX)
		WRITE_ONCE(p->heat[cell], heat + 1);
	vcache_log_paid(c->log, VC_CREDIT_READ);
}

/* Is @next the cell behind @cell, in the same chunk? */
static bool vc_cell_follows(struct vcache_pool *p, u32 cell, u32 next)
{
	if (cell == VC_CELL_NONE || next == VC_CELL_NONE)
		return cell == next;
	return next == cell + 1 &&
	       vcache_cell_chunk(p, cell) == vcache_cell_chunk(p, next);
}

/**
 * vcache_lookup - find out where to read a range
 * @v: the volume
 * @sector: the first sector
 * @len: how many
 * @only_copy: clean data is to be read from the origin
 * @cell: the cell of the first sector, or VC_CELL_NONE to read the origin; the chunk of a
 *	cell stays until vcache_lookup_done()
 *
 * When the cache device has failed, clean data is read from the origin, too.
 *
 * Return: how many sectors are there in one piece, 1 to @len.
 */
unsigned int vcache_lookup(struct vcache_volume *v, sector_t sector, unsigned int len,
			   bool only_copy, u32 *cell)
{
	u64 block = sector / VC_BLOCK_SECTORS;
	unsigned int from = sector % VC_BLOCK_SECTORS;
	unsigned int n = vc_lookup_block(v, block, from, cell, only_copy,
					 true);
	u32 at = *cell, next;

	vc_heat_up(v->pool, at);
	/* A piece may continue only behind a block that is used to its end. */
	while (n < len && !((from + n) % VC_BLOCK_SECTORS)) {
		unsigned int more = vc_lookup_block(v, ++block, 0, &next,
						    only_copy, false);

		if (!vc_cell_follows(v->pool, at, next))
			break;
		vc_heat_up(v->pool, next);
		at = next;
		n += more;
	}
	return min(n, len);
}

/**
 * vcache_lookup_done - drop the reference to a chunk that vcache_lookup() has taken
 * @p: the pool
 * @cell: what vcache_lookup() has found
 */
void vcache_lookup_done(struct vcache_pool *p, u32 cell)
{
	struct vcache_chunk *c = vcache_cell_chunk(p, cell);

	if (atomic_dec_and_test(&c->users) && READ_ONCE(c->wanted)) {
		WRITE_ONCE(c->wanted, false);
		vcache_space_kick(p);
	}
}

/**
 * vcache_lookup_dirty - find the cell of a block, if that is dirty and as a whole in one cell
 * @v: the volume
 * @block: the block
 * @cell: the cell; its chunk stays until vcache_lookup_done()
 */
bool vcache_lookup_dirty(struct vcache_volume *v, u64 block, u32 *cell)
{
	struct vcache_pool *p = v->pool;
	spinlock_t *lock = vcache_cell_lock(p, v->slot, block);
	unsigned long flags;
	bool found;

	spin_lock_irqsave(lock, flags);
	*cell = vcache_index_find(&p->ix, v->slot, block, VC_MASK_ALL);
	found = *cell != VC_CELL_NONE &&
		vcache_cell_mask(&p->ix, *cell) == VC_MASK_ALL &&
		!test_bit(*cell, p->cell_clean);
	if (found)
		atomic_inc(&vcache_cell_chunk(p, *cell)->users);
	spin_unlock_irqrestore(lock, flags);
	return found;
}

/**
 * vcache_lookup_pin - reference the chunk of a cell, if the cell still has a block
 * @v: the volume
 * @cell: the cell
 * @block: the block that was found in it
 * @clean: also if the block is clean
 *
 * Return: its valid sectors; then the chunk stays until vcache_lookup_done(). Else 0.
 */
u8 vcache_lookup_pin(struct vcache_volume *v, u32 cell, u64 block, bool clean)
{
	struct vcache_pool *p = v->pool;
	spinlock_t *lock = vcache_cell_lock(p, v->slot, block);
	unsigned long flags;
	u8 mask = 0;

	spin_lock_irqsave(lock, flags);
	if (vcache_cell_slot(&p->ix, cell) == v->slot &&
	    vcache_cell_block(&p->ix, cell) == block &&
	    (clean || !test_bit(cell, p->cell_clean)))
		mask = vcache_cell_mask(&p->ix, cell);
	if (mask)
		atomic_inc(&vcache_cell_chunk(p, cell)->users);
	spin_unlock_irqrestore(lock, flags);
	return mask;
}

/**
 * vcache_lookup_is_lost - has a tag that has lost data with the cache any sector of a block there?
 * @v: the volume, whose pool has failed
 * @block: the block
 *
 * Also if the sector is clean: when the cache device comes back, nothing on it tells that.
 */
bool vcache_lookup_is_lost(struct vcache_volume *v, u64 block)
{
	struct vcache_pool *p = v->pool;
	spinlock_t *lock = vcache_cell_lock(p, v->slot, block);
	u8 left = VC_MASK_ALL;
	unsigned long flags;
	bool lost = false;
	u32 cell;

	spin_lock_irqsave(lock, flags);
	while (left && !lost) {
		cell = vcache_index_find(&p->ix, v->slot, block, left);
		if (cell == VC_CELL_NONE)
			break;
		left &= ~vcache_cell_mask(&p->ix, cell);
		lost = READ_ONCE(vcache_cell_chunk(p, cell)->log->state) == VC_LOG_LOST;
	}
	spin_unlock_irqrestore(lock, flags);
	return lost;
}

/**
 * vcache_lookup_any - is any part of a range in the cache?
 * @v: the volume
 * @block: first block
 * @blocks: how many
 *
 * Return: true also for a range that is larger than the cache.
 */
bool vcache_lookup_any(struct vcache_volume *v, u64 block, u64 blocks)
{
	u32 cell;
	u64 i;

	if (blocks > v->pool->ix.cells)
		return true;
	for (i = 0; i < blocks; i++) {
		struct vcache_pool *p = v->pool;
		spinlock_t *lock = vcache_cell_lock(p, v->slot, block + i);
		unsigned long flags;

		spin_lock_irqsave(lock, flags);
		cell = vcache_index_find(&p->ix, v->slot, block + i, VC_MASK_ALL);
		spin_unlock_irqrestore(lock, flags);
		if (cell != VC_CELL_NONE)
			return true;
	}
	return false;
}

/**
 * vcache_lookup_changes - read the change count of the group of a block
 * @v: the volume
 * @block: the block
 */
int vcache_lookup_changes(struct vcache_volume *v, u64 block)
{
	return atomic_read(&v->pool->change[vcache_cell_group(v->pool, v->slot,
							      block)]);
}

/**
 * vcache_lookup_whole - does a cell have all sectors of a block of a volume?
 * @v: the volume; its pool is locked
 * @cell: the cell
 * @block: set to the block
 * @heat: set to its heat
 */
bool vcache_lookup_whole(struct vcache_volume *v, u32 cell, u64 *block, u8 *heat)
{
	struct vcache_pool *p = v->pool;
	u64 at = vcache_cell_block(&p->ix, cell);
	spinlock_t *lock = vcache_cell_lock(p, v->slot, at);
	unsigned long flags;
	bool whole;

	if (!vcache_cell_mask(&p->ix, cell))
		return false;
	spin_lock_irqsave(lock, flags);
	/* It may have been filled with another block just now. */
	whole = vcache_cell_mask(&p->ix, cell) == VC_MASK_ALL &&
		vcache_cell_slot(&p->ix, cell) == v->slot &&
		vcache_cell_block(&p->ix, cell) == at;
	*block = at;
	*heat = READ_ONCE(p->heat[cell]);
	spin_unlock_irqrestore(lock, flags);
	return whole;
}
