// SPDX-License-Identifier: Apache-2.0
/*
 * Garbage collection and wear levelling.
 *
 * Along with each page of the host some of a victim is moved, within the bank
 * that the page of the host goes to, and as little as will do: a flush waits
 * for it. When only the reserve is left, whole victims are collected at once:
 * their moves become durable all together or not at all, so that a power cut
 * never finds the reserve gone and two half-filled blocks in its place. The
 * capacity is chosen such that the best victim always gains something
 * (geometry.c).
 */
#include "internal.h"

/* Blocks that the host opens in a bank between two looks at wear. */
#define WEAR_INTERVAL 8u
/* Pages of a victim begun that are moved with one of the host, in 1/256. */
#define BEGUN 64u

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

static uint32_t best_victim(const struct vs_ssd *s, uint32_t bank,
			    uint32_t banks)
{
	uint32_t first = bank * s->c.geometry.blocks, i;
	uint32_t best = VS_NONE;
	uint64_t best_score = 0;

	for (i = first; i < first + banks * s->c.geometry.blocks; i++) {
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
 * @bank: the first of those looked at
 * @banks: how many
 *
 * Return: the least worn block with data, of FAST only a data block, if it
 * lags too far behind; VS_NONE if not.
 */
uint32_t vs_least_worn(const struct vs_ssd *s, uint32_t bank, uint32_t banks)
{
	uint32_t first = bank * s->c.geometry.blocks, i;
	uint32_t best = VS_NONE, most = 0;

	for (i = first; i < first + banks * s->c.geometry.blocks; i++) {
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
static enum vs_status unstage(struct vs_ssd *s, uint32_t bank, vs_time now)
{
	uint32_t address, i;
	enum vs_status status;
	vs_time done;

	if (!s->staged)
		return VS_OK;
	for (i = s->staged; i < s->slots; i++)
		s->stage_oob->slot[i] = (struct vs_oob_slot){ .lpn = VS_NONE };
	status = vs_page_move(s, bank, now, s->stage, s->stage_oob, &address,
			      &done);
	if (status != VS_OK)
		return status;
	for (i = 0; i < s->staged; i++)
		vs_map_set(s, s->gc_log, s->stage_oob->slot[i].lpn,
			   address * s->slots + i, done);
	s->staged = 0;
	return VS_OK;
}

/*
 * Stage valid blocks of one page, as many as fit. What cannot be read stays
 * where it is, and @lost is set. The checksum goes along as it is: what is
 * damaged stays recognisable.
 */
static enum vs_status stage(struct vs_ssd *s, uint32_t address, bool *lost,
			    vs_time *now)
{
	struct vs_oob_slot *slot = s->read_oob->slot;
	enum vs_status status;
	uint32_t i;

	status = vs_read_page(s, *now, address, s->read_page, s->read_oob, now);
	*lost = status == VS_EMEDIA;
	if (*lost)
		s->stats.lost_reads++;
	if (status != VS_OK)
		return *lost ? VS_OK : status;
	for (i = 0; i < s->slots && s->staged < s->slots; i++) {
		if (slot[i].lpn >= s->blocks ||
		    s->map[slot[i].lpn] != address * s->slots + i)
			continue;
		__builtin_memcpy(s->stage + s->staged * VS_BLOCK,
				 s->read_page + i * VS_BLOCK, VS_BLOCK);
		s->stage_oob->slot[s->staged++] = slot[i];
	}
	return VS_OK;
}

/*
 * Move a page full of a victim's valid blocks, from @*cursor on; less when
 * there are no more. A page of which only some fitted is read again next time:
 * what has been moved is no longer valid there.
 */
static enum vs_status move(struct vs_ssd *s, uint32_t victim, uint32_t *cursor,
			   vs_time *now)
{
	enum vs_status status = VS_OK;

	for (; *cursor < s->c.geometry.pages; (*cursor)++) {
		uint32_t address = vs_page_address(s, victim, *cursor);
		uint32_t before = s->staged;
		bool lost;

		if (!s->live[address])
			continue;
		status = stage(s, address, &lost, now);
		if (status != VS_OK)
			return status;
		if (s->staged == s->slots) {
			*cursor += lost || s->live[address] ==
					   s->staged - before;
			break;
		}
	}
	return unstage(s, victim / s->c.geometry.blocks, *now);
}

/* A victim of which something can't be read is none any more. */
static void end_of(struct vs_ssd *s, uint32_t victim, uint32_t cursor)
{
	struct vs_block *b = &s->block[victim];

	if (cursor == s->c.geometry.pages && b->valid)
		b->state = VS_BLOCK_STUCK;
}

/* A bank's part of what its lane keeps for metadata, failures and the reserve. */
static uint32_t kept(const struct vs_ssd *s, uint32_t lane)
{
	uint32_t banks = s->lane[lane].banks;

	return (vs_claim(s, lane) + vs_reserve(s, lane) + banks - 1) / banks;
}

/*
 * Pages to be moved along with one of the host, in 1/256: the more the fewer
 * blocks the bank has left, so that where there is little to move little is
 * moved at a time. What has been emptied counts, durable or not. A victim that
 * was begun is moved on, slowly: perhaps it was chosen for its wear.
 */
static uint32_t pace(const struct vs_ssd *s, uint32_t lane, uint32_t bank)
{
	uint32_t have = s->bank[bank].free + s->bank[bank].pending;
	uint32_t want = kept(s, lane) + VS_GC_FREE, missing;

	if (have >= want)
		return s->bank[bank].victim == VS_NONE ? 0 : BEGUN;
	missing = want - have < VS_GC_FREE ? want - have : VS_GC_FREE;
	return 256 * s->c.gc_pages * missing * missing /
	       (VS_GC_FREE * VS_GC_FREE);
}

/* Some pages of a bank's victim, as long as there is no need to hurry. */
static enum vs_status step(struct vs_ssd *s, uint32_t lane, uint32_t bank,
			   vs_time now)
{
	struct vs_bank *b = &s->bank[bank];
	enum vs_status status = VS_OK;

	if (s->c.wear_gap && b->victim == VS_NONE && b->opened >= WEAR_INTERVAL) {
		b->victim = vs_least_worn(s, bank, 1);
		b->cursor = 0;
		b->opened = 0;
	}
	for (; b->gc_debt >= 256 && status == VS_OK; b->gc_debt -= 256) {
		uint32_t victim;

		if (b->victim == VS_NONE) {
			b->victim = best_victim(s, bank, 1);
			b->cursor = 0;
		}
		victim = b->victim;
		if (victim == VS_NONE ||
		    (!vs_has_page(s, vs_page_to(s, lane, bank)) &&
		     vs_room(s, lane) <= vs_reserve(s, lane)))
			break;
		vs_log_room(s, s->gc_log, s->slots);
		status = move(s, victim, &b->cursor, &now);
		if (status == VS_OK)
			end_of(s, victim, b->cursor);
		if (b->cursor == s->c.geometry.pages || !s->block[victim].valid)
			b->victim = VS_NONE;
	}
	b->gc_debt %= 256;
	return status;
}

/* Collect the best victim whole, down into the reserve. */
static enum vs_status collect_whole(struct vs_ssd *s, uint32_t lane, vs_time now)
{
	uint32_t victim = best_victim(s, s->lane[lane].first_bank,
				      s->lane[lane].banks);
	enum vs_status status = VS_OK;
	uint32_t cursor = 0;

	if (victim == VS_NONE)
		return VS_EREADONLY;
	vs_log_room(s, s->gc_log, s->block[victim].valid);
	while (status == VS_OK && s->block[victim].valid &&
	       cursor < s->c.geometry.pages)
		status = move(s, victim, &cursor, &now);
	if (status == VS_OK)
		end_of(s, victim, cursor);
	return status;
}

/* What can be done before there is a need to hurry. */
static enum vs_status ahead(struct vs_ssd *s, uint32_t lane, uint32_t bank,
			    vs_time now)
{
	enum vs_status status = VS_OK;

	/* If it takes no checkpoint. */
	if (s->c.personality == VS_TAGGED && !s->full_logs &&
	    s->bank[bank].pending && !vs_has_copied(s, lane) &&
	    s->bank[bank].free <= kept(s, lane))
		status = vs_commit_pending(s, lane, now);
	if (status == VS_OK && vs_room(s, lane) > vs_reserve(s, lane))
		status = step(s, lane, bank, now);
	return status;
}

/**
 * vs_gc_owed - collect what pages of a flush have not waited for
 * @s: the device
 * @now: time
 */
enum vs_status vs_gc_owed(struct vs_ssd *s, vs_time now)
{
	enum vs_status status = VS_OK;
	uint32_t bank, payer = s->payer;

	if (s->c.mapping != VS_MAP_PAGE)
		return VS_OK;
	for (bank = 0; status == VS_OK && bank < s->banks; bank++) {
		s->payer = s->bank[bank].gc_payer;
		if (s->bank[bank].gc_debt >= 256)
			status = ahead(s, vs_lane_of(s, bank * s->c.geometry.blocks),
				       bank, now);
	}
	s->payer = payer;
	return status;
}

/**
 * vs_gc - garbage collection before a page of the host is programmed
 * @s: the device
 * @lane: where it will be
 * @bank: of that lane
 * @now: time
 *
 * Afterwards a block beyond the reserve is free, or the frontiers have room.
 *
 * Return: VS_OK; VS_EREADONLY when nothing is left to be gained, which takes
 * more bad blocks than were set aside; VS_EPOWER.
 */
enum vs_status vs_gc(struct vs_ssd *s, uint32_t lane, uint32_t bank,
		     vs_time now)
{
	struct vs_lane *l = &s->lane[lane];
	uint32_t tries = 4 * l->banks * s->c.geometry.blocks;
	enum vs_status status = VS_OK;

	if (vs_room(s, lane) > vs_reserve(s, lane))
		s->bank[bank].gc_debt += pace(s, lane, bank);
	s->bank[bank].gc_payer = s->payer;
	if (!s->urgent)
		status = ahead(s, lane, bank, now);
	while (status == VS_OK && vs_room(s, lane) <= vs_reserve(s, lane)) {
		if (!tries--)
			return VS_EREADONLY;
		if (vs_has_pending(s, lane))
			status = vs_commit_pending(s, lane, now);
		else
			status = collect_whole(s, lane, now);
	}
	return status;
}
