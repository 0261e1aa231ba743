// SPDX-License-Identifier: Apache-2.0
/*
 * How FAST comes by free blocks: the oldest log block is merged out.
 *
 * Let L be the logical blocks, H the data blocks with anything valid in them,
 * and slack = free - (L - H), without what is kept for blocks that fail. A full
 * merge takes a free block. It gives back the data block that it replaces, once
 * it is durable; if there was none, L - H gets smaller instead. So with
 * slack >= 1 any merge can be made, and after it and vs_commit_pending() slack is what
 * it was. As data blocks, log blocks and free ones are all there is, it is then
 * also the good blocks less L less the log blocks: at least 1 with as many log
 * blocks as there may be (fast.c, size()).
 *
 * A power cut takes back what is not durable. Each merge undone gives its block
 * back as it takes a data block back, and opened log blocks get free, so
 * recovery finds slack >= 1 too, and more log blocks than wanted at most.
 */
#include "internal.h"

/* Blocks opened between two merges for wear alone. */
#define WEAR_INTERVAL 8u

/**
 * vs_fast_bank - where the next block is opened
 * @s: the device
 *
 * Return: each bank in turn.
 */
uint32_t vs_fast_bank(struct vs_ssd *s)
{
	s->lane[0].bank_cursor = (s->lane[0].bank_cursor + 1) % s->banks;
	return s->lane[0].bank_cursor;
}

static int64_t slack(const struct vs_ssd *s)
{
	uint32_t i, data = 0;

	for (i = 0; i < s->blocks_all; i++) {
		const struct vs_block *b = &s->block[i];

		data += b->state == VS_BLOCK_DATA && !b->log && b->valid;
	}
	return (int64_t)vs_room(s, 0) - vs_spare(s, 0) - s->lbns + data;
}

/* Random log blocks, with the one that is open. */
static uint32_t random_logs(const struct vs_ssd *s)
{
	uint32_t i, n = 0;

	for (i = 0; i < s->blocks_all; i++) {
		const struct vs_block *b = &s->block[i];

		if (b->log && i != s->host[VS_FAST_SEQUENTIAL].block)
			n += b->state == VS_BLOCK_OPEN ||
			     (b->state == VS_BLOCK_DATA && b->valid);
	}
	return n;
}

/* One that has failed, or the oldest. */
static uint32_t pick(const struct vs_ssd *s)
{
	uint32_t i, best = VS_NONE;

	for (i = 0; i < s->blocks_all; i++) {
		const struct vs_block *b = &s->block[i];

		if (!b->log || b->state != VS_BLOCK_DATA || !b->valid)
			continue;
		if (b->retire)
			return i;
		if (best == VS_NONE || b->opened < s->block[best].opened)
			best = i;
	}
	return best;
}

/* What is in the sequential log block already need not be copied. */
static enum vs_status merge(struct vs_ssd *s, uint32_t lbn, bool worn,
			    vs_time now)
{
	const struct vs_frontier *f = &s->host[VS_FAST_SEQUENTIAL];

	if (f->block != VS_NONE && s->block[f->block].lbn == lbn)
		return vs_fast_end(s, now);
	return vs_fast_merge(s, lbn, worn, now);
}

/* Merge each logical block that the page has valid data of. */
static enum vs_status merge_page(struct vs_ssd *s, uint32_t address, vs_time now)
{
	enum vs_status status;
	uint32_t lpn[32], i;

	status = vs_read_page(s, now, address, NULL, s->read_oob, &now);
	if (status == VS_EMEDIA) {
		s->stats.lost_reads++;
		return VS_OK;
	}
	if (status != VS_OK)
		return status;
	for (i = 0; i < s->slots; i++)
		lpn[i] = s->read_oob->slot[i].lpn;
	for (i = 0; status == VS_OK && i < s->slots; i++) {
		if (lpn[i] < s->blocks &&
		    s->map[lpn[i]] == address * s->slots + i)
			status = merge(s, vs_lbn_of(s, lpn[i]), false, now);
	}
	return status;
}

static enum vs_status merge_out(struct vs_ssd *s, uint32_t victim, vs_time now)
{
	struct vs_block *b = &s->block[victim];
	enum vs_status status = VS_OK;
	uint32_t page;

	for (page = 0; status == VS_OK && b->valid &&
	     page < s->c.geometry.pages; page++)
		status = merge_page(s, vs_page_address(s, victim, page), now);
	if (status == VS_OK && b->valid)
		b->state = VS_BLOCK_STUCK;
	return status;
}

/* Now and then, put what lies on the least worn block to the most worn one. */
static enum vs_status level(struct vs_ssd *s, vs_time now)
{
	uint32_t least;

	if (!s->c.wear_gap || s->lane[0].picks < WEAR_INTERVAL)
		return VS_OK;
	s->lane[0].picks = 0;
	least = vs_least_worn(s, 0, s->banks);
	if (least == VS_NONE)
		return VS_OK;
	return merge(s, s->block[least].lbn, true, now);
}

/**
 * vs_fast_reserve - see to it that a merge can be made
 * @s: the device
 * @now: time
 *
 * Return: VS_OK; VS_EREADONLY when there are too many bad blocks; VS_EPOWER.
 */
enum vs_status vs_fast_reserve(struct vs_ssd *s, vs_time now)
{
	enum vs_status status = VS_OK;

	if (slack(s) < 1 && vs_has_pending(s, 0))
		status = vs_commit_pending(s, 0, now);
	if (status == VS_OK && slack(s) < 1)
		status = VS_EREADONLY;
	return status;
}

/**
 * vs_fast_room - see to it that a log block can be opened
 * @s: the device
 * @most: random log blocks that there may be
 * @now: time
 *
 * Return: VS_OK; VS_EREADONLY when there are too many bad blocks; VS_EPOWER.
 */
enum vs_status vs_fast_room(struct vs_ssd *s, uint32_t most, vs_time now)
{
	uint32_t tries = 4 * s->blocks_all;
	enum vs_status status = level(s, now);

	s->lane[0].picks++;
	while (status == VS_OK && tries--) {
		bool full = random_logs(s) > most;
		uint32_t victim;

		if (!full && slack(s) >= 2)
			return VS_OK;
		if (!full && vs_has_pending(s, 0)) {
			status = vs_commit_pending(s, 0, now);
			continue;
		}
		victim = pick(s);
		if (victim == VS_NONE)
			return VS_EREADONLY;
		status = merge_out(s, victim, now);
	}
	return status == VS_OK ? VS_EREADONLY : status;
}
