// SPDX-License-Identifier: Apache-2.0
/*
 * Erase blocks: which are free, which is opened next, which are bad.
 *
 * A free block is erased when it is opened. So nothing on the NAND has to tell
 * an erased block from one whose erasing was cut short, and recovery may call
 * everything free that nobody points to.
 */
#include "internal.h"

/**
 * vs_claim - free blocks of a lane that metadata has a claim to
 * @s: the device
 * @lane: index
 */
uint32_t vs_claim(const struct vs_ssd *s, uint32_t lane)
{
	const struct vs_lane *l = &s->lane[lane];

	return l->meta < l->meta_share ? l->meta_share - l->meta : 0;
}

/**
 * vs_room - blocks of a lane that data may take
 * @s: the device
 * @lane: index
 *
 * Return: free ones, less those that metadata has a claim to.
 */
uint32_t vs_room(const struct vs_ssd *s, uint32_t lane)
{
	uint32_t free = s->lane[lane].free, claim = vs_claim(s, lane);

	return free > claim ? free - claim : 0;
}

/**
 * vs_spare - blocks of a lane kept free for others that fail
 * @s: the device
 * @lane: index
 *
 * A block may fail when there is no time to make room: while a victim is being
 * collected. So what was set aside for bad blocks, and is not used up, stays
 * free. Return: how many.
 */
uint32_t vs_spare(const struct vs_ssd *s, uint32_t lane)
{
	uint32_t failed = s->lane[lane].failed;

	return failed < s->c.bad_blocks ? s->c.bad_blocks - failed : 0;
}

/**
 * vs_meta_room - blocks that metadata can still open
 * @s: the device
 */
uint32_t vs_meta_room(const struct vs_ssd *s)
{
	uint32_t i, room = 0;

	for (i = 0; i < s->c.lanes; i++) {
		uint32_t free = s->lane[i].free, claim = vs_claim(s, i);

		room += claim < free ? claim : free;
	}
	return room;
}

/**
 * vs_block_pending - count a data block as pending if it only waits for map changes to be durable
 * @s: the device
 * @block: index; any, in any state
 */
void vs_block_pending(struct vs_ssd *s, uint32_t block)
{
	struct vs_block *b = &s->block[block];

	if (b->state != VS_BLOCK_DATA || b->valid || b->pending ||
	    (!b->unsafe && !b->copies && !vs_trim_holds(s, block)))
		return;
	b->pending = true;
	s->bank[block / s->c.geometry.blocks].copied += b->copies > 0;
	s->bank[block / s->c.geometry.blocks].pending++;
}

/**
 * vs_release - a data block is free once nothing needs it (rule 3)
 * @s: the device
 * @block: index; any, in any state
 */
void vs_release(struct vs_ssd *s, uint32_t block)
{
	struct vs_block *b = &s->block[block];
	struct vs_lane *l = &s->lane[vs_lane_of(s, block)];
	struct vs_bank *c = &s->bank[block / s->c.geometry.blocks];

	if (b->state != VS_BLOCK_DATA || b->valid || b->unsafe || b->copies ||
	    vs_trim_holds(s, block))
		return;
	c->pending -= b->pending;
	b->pending = false;
	if (c->victim == block)
		c->victim = VS_NONE;
	b->not_before = s->commit_done;
	if (b->retire) {
		b->state = VS_BLOCK_RETIRED;
		s->retired++;
	} else {
		b->state = VS_BLOCK_FREE;
		c->free++;
		l->free++;
	}
}

/* Mark what has failed and is empty now. */
static enum vs_status mark_retired(struct vs_ssd *s, vs_time now)
{
	uint32_t i;

	for (i = 0; s->retired && i < s->blocks_all; i++) {
		enum vs_status status;
		vs_time done;

		if (s->block[i].state != VS_BLOCK_RETIRED)
			continue;
		s->retired--;
		s->block[i].state = VS_BLOCK_BAD;
		s->stats.bad_blocks++;
		status = s->ops->mark_bad(s->ctx, now,
					  vs_place(s, vs_page_address(s, i, 0)),
					  &done);
		if (status != VS_OK)
			return status;
	}
	return VS_OK;
}

/* The least worn free block, or the most worn; of one bank if that has any. */
static uint32_t pick(const struct vs_ssd *s, uint32_t lane, uint32_t bank,
		     bool worn)
{
	const struct vs_lane *l = &s->lane[lane];
	uint32_t i, best = VS_NONE, first = l->first_bank * s->c.geometry.blocks;
	bool best_here = false;

	for (i = first; i < first + l->banks * s->c.geometry.blocks; i++) {
		bool here = i / s->c.geometry.blocks == bank;
		bool better = best == VS_NONE || here > best_here;

		if (s->block[i].state != VS_BLOCK_FREE || here < best_here)
			continue;
		if (!better)
			better = worn ?
				 s->block[i].erases > s->block[best].erases :
				 s->block[i].erases < s->block[best].erases;
		if (better) {
			best = i;
			best_here = here;
		}
	}
	return best;
}

/**
 * vs_open - erase a free block and make it a frontier's
 * @s: the device
 * @lane: where
 * @bank: preferred
 * @worn: take the most worn block, for data that will hardly change
 * @now: time; erasing waits for what made the block free (rule 4)
 * @f: the frontier, which has no block
 *
 * Return: VS_OK; VS_EREADONLY when the lane has no free block.
 */
enum vs_status vs_open(struct vs_ssd *s, uint32_t lane, uint32_t bank,
		       bool worn, vs_time now, struct vs_frontier *f)
{
	enum vs_status status;
	vs_time at, done;

	status = mark_retired(s, now);
	while (status == VS_OK) {
		uint32_t i = pick(s, lane, bank, worn);
		struct vs_block *b = &s->block[i];

		if (i == VS_NONE)
			return VS_EREADONLY;
		s->lane[lane].free--;
		s->bank[i / s->c.geometry.blocks].free--;
		at = vs_later(now, b->not_before);
		status = s->ops->erase(s->ctx, at,
				       vs_place(s, vs_page_address(s, i, 0)),
				       &done);
		s->stats.erases++;
		b->erases++;
		if (status == VS_OK) {
			vs_share_charge(s, i / s->c.geometry.blocks, at, done);
			b->state = VS_BLOCK_OPEN;
			b->retire = false;
			b->root = false;
			b->log = false;
			b->lbn = VS_NONE;
			b->opened = ++s->opens;
			f->block = i;
			f->next = 0;
			f->committed = 0;
			f->before = 0;
			f->kept_page[0] = VS_NONE;
			f->kept_page[1] = VS_NONE;
			return VS_OK;
		}
		if (status != VS_EMEDIA)
			break;
		b->state = VS_BLOCK_RETIRED;
		s->retired++;
		s->lane[lane].failed++;
		status = mark_retired(s, now);
	}
	return status;
}

/**
 * vs_close - a frontier lets go of its block
 * @s: the device
 * @f: has a block; has none afterwards
 * @meta: of metadata
 */
void vs_close(struct vs_ssd *s, struct vs_frontier *f, bool meta)
{
	uint32_t block = f->block;

	s->block[block].state = meta ? VS_BLOCK_META : VS_BLOCK_DATA;
	f->block = VS_NONE;
	vs_block_pending(s, block);
	vs_release(s, block);
}
