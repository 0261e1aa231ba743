// SPDX-License-Identifier: Apache-2.0
/*
 * Garbage collection and wear levelling.
 *
 * Along with each page of the host a few pages of a victim are moved. When
 * only the reserve is left, whole victims are collected at once: their moves
 * become durable all together or not at all, so that a power cut never finds
 * the reserve gone and two half-filled blocks in its place. The capacity is
 * chosen such that the best victim always gains something (geometry.c).
 */
#include "internal.h"

/* Erases per lane between two victims chosen for wear alone. */
#define WEAR_TURN 8u

/* Higher is better; 0: not at all. */
static uint64_t score(const struct vs_ssd *s, const struct vs_block *b)
{
	uint64_t all = (uint64_t)s->c.geometry.pages * s->slots;

	if (b->state != VS_BLOCK_DATA || !b->valid)
		return 0;
	if (b->retire)
		return UINT64_MAX;
	if (b->valid >= all)
		return 0;
	if (s->c.gc == VS_GC_GREEDY)
		return all - b->valid;
	/* Rosenblum and Ousterhout, SOSP '91: age * free / (2 * used). */
	return (uint64_t)(s->opens - b->opened + 1) * 1024 * (all - b->valid) /
	       (2 * (uint64_t)b->valid) + 1;
}

static uint32_t best_victim(const struct vs_ssd *s, uint32_t lane)
{
	const struct vs_lane *l = &s->lane[lane];
	uint32_t first = l->first_bank * s->c.geometry.blocks, i;
	uint32_t best = VS_NONE;
	uint64_t best_score = 0;

	for (i = first; i < first + l->banks * s->c.geometry.blocks; i++) {
		uint64_t sc = score(s, &s->block[i]);

		if (sc > best_score) {
			best = i;
			best_score = sc;
		}
	}
	return best;
}

/**
 * vs_least_worn - whose data is moved for the sake of wear
 * @s: the device
 * @lane: index
 *
 * Return: the least worn block with data, of FAST only a data block, if it
 * lags too far behind; VS_NONE if not.
 */
uint32_t vs_least_worn(const struct vs_ssd *s, uint32_t lane)
{
	const struct vs_lane *l = &s->lane[lane];
	uint32_t first = l->first_bank * s->c.geometry.blocks, i;
	uint32_t best = VS_NONE, most = 0;

	for (i = first; i < first + l->banks * s->c.geometry.blocks; i++) {
		const struct vs_block *b = &s->block[i];

		if (b->state != VS_BLOCK_BAD && b->erases > most)
			most = b->erases;
		if (b->state == VS_BLOCK_DATA && b->valid && !b->log &&
		    (best == VS_NONE || b->erases < s->block[best].erases))
			best = i;
	}
	if (best == VS_NONE || most - s->block[best].erases <= s->c.wear_gap)
		return VS_NONE;
	return best;
}

/* Program what has been staged; a page may be filled up with padding. */
static enum vs_status unstage(struct vs_ssd *s, uint32_t lane, vs_time now)
{
	uint32_t address, i;
	enum vs_status status;
	vs_time done;

	if (!s->staged)
		return VS_OK;
	for (i = s->staged; i < s->slots; i++)
		s->stage_oob->slot[i] = (struct vs_oob_slot){ VS_NONE, 0 };
	status = vs_page_program(s, lane, true, now, s->stage, s->stage_oob,
				 &address, &done);
	if (status != VS_OK)
		return status;
	for (i = 0; i < s->staged; i++)
		vs_map_set(s, s->gc_log, s->stage_oob->slot[i].lpn,
			   address * s->slots + i, done);
	s->staged = 0;
	return VS_OK;
}

/*
 * Stage the valid blocks of one page. What cannot be read stays where it is.
 * The checksum goes along as it is: what is damaged stays recognisable.
 */
static enum vs_status move_page(struct vs_ssd *s, uint32_t lane,
				uint32_t address, vs_time *now)
{
	uint8_t *to = s->stage, *from = s->read_page;
	struct vs_oob_slot *slot = s->read_oob->slot;
	enum vs_status status;
	uint32_t i, k;

	status = vs_read_page(s, *now, address, from, s->read_oob, now);
	if (status == VS_EMEDIA) {
		s->stats.lost_reads++;
		return VS_OK;
	}
	for (i = 0; status == VS_OK && i < s->slots; i++) {
		if (slot[i].lpn >= s->blocks ||
		    s->map[slot[i].lpn] != address * s->slots + i)
			continue;
		for (k = 0; k < VS_BLOCK; k++)
			to[s->staged * VS_BLOCK + k] = from[i * VS_BLOCK + k];
		s->stage_oob->slot[s->staged++] = slot[i];
		if (s->staged == s->slots)
			status = unstage(s, lane, *now);
	}
	return status;
}

/*
 * Collect a victim from @*cursor on, at most @pages pages. @whole: the caller
 * has made room in the log for all of it, and it may take the reserve.
 */
static enum vs_status collect(struct vs_ssd *s, uint32_t lane, uint32_t victim,
			      uint32_t *cursor, uint32_t pages, bool whole,
			      vs_time now)
{
	struct vs_block *b = &s->block[victim];
	enum vs_status status = VS_OK;

	while (status == VS_OK && *cursor < s->c.geometry.pages &&
	       b->valid > s->staged && pages--) {
		if (!s->live[vs_page_address(s, victim, *cursor)]) {
			(*cursor)++;
			continue;
		}
		if (!whole) {
			if (!vs_has_page(s, &s->lane[lane].gc) &&
			    vs_room(s, lane) <= vs_reserve(s, lane))
				break;
			status = vs_log_room(s, s->gc_log,
					     s->staged + s->slots, now);
			if (status != VS_OK)
				break;
		}
		status = move_page(s, lane, vs_page_address(s, victim,
							    (*cursor)++), &now);
	}
	if (status == VS_OK)
		status = unstage(s, lane, now);
	if (status == VS_OK && *cursor == s->c.geometry.pages && b->valid)
		b->state = VS_BLOCK_STUCK;
	return status;
}

/* Some pages of a victim, as long as there is no need to hurry. */
static enum vs_status step(struct vs_ssd *s, uint32_t lane, vs_time now)
{
	struct vs_lane *l = &s->lane[lane];
	enum vs_status status;

	if (l->victim == VS_NONE) {
		if (s->c.wear_gap && ++l->picks % WEAR_TURN == 0)
			l->victim = vs_least_worn(s, lane);
		if (l->victim == VS_NONE)
			l->victim = best_victim(s, lane);
		l->cursor = 0;
	}
	if (l->victim == VS_NONE)
		return VS_OK;
	status = collect(s, lane, l->victim, &l->cursor, s->c.gc_pages, false,
			 now);
	if (l->victim != VS_NONE && (l->cursor == s->c.geometry.pages ||
				     !s->block[l->victim].valid))
		l->victim = VS_NONE;
	return status;
}

/* Collect the best victim whole, down into the reserve. */
static enum vs_status collect_whole(struct vs_ssd *s, uint32_t lane, vs_time now)
{
	uint32_t victim = best_victim(s, lane), cursor = 0;
	enum vs_status status;

	if (victim == VS_NONE)
		return VS_EREADONLY;
	status = vs_log_room(s, s->gc_log, s->block[victim].valid, now);
	if (status == VS_OK)
		status = collect(s, lane, victim, &cursor, UINT32_MAX, true,
				 now);
	return status;
}

/**
 * vs_gc - garbage collection before a page of the host is programmed
 * @s: the device
 * @lane: where it will be
 * @now: time
 *
 * Afterwards a block beyond the reserve is free, or the frontiers have room.
 *
 * Return: VS_OK; VS_EREADONLY when nothing is left to be gained, which takes
 * more bad blocks than were set aside; VS_EPOWER.
 */
enum vs_status vs_gc(struct vs_ssd *s, uint32_t lane, vs_time now)
{
	struct vs_lane *l = &s->lane[lane];
	uint32_t tries = 4 * l->banks * s->c.geometry.blocks;
	enum vs_status status = VS_OK;

	if (vs_room(s, lane) == vs_reserve(s, lane) + 1)
		status = step(s, lane, now);
	while (status == VS_OK && vs_room(s, lane) <= vs_reserve(s, lane)) {
		if (!tries--)
			return VS_EREADONLY;
		if (vs_one_waits(s, lane))
			status = vs_settle(s, lane, now);
		else
			status = collect_whole(s, lane, now);
	}
	return status;
}
