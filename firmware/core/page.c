// SPDX-License-Identifier: Apache-2.0
/*
 * Page mapping: the host's pages go to the banks in turn, where each placement
 * handle has a frontier, and garbage collection makes room.
 */
#include "internal.h"

static bool size(struct vs_ssd *s)
{
	(void)s;
	return true;
}

/* Any place will do. */
static uint32_t whole(const struct vs_ssd *s, uint32_t entry, uint32_t *peers)
{
	(void)s;
	(void)entry;
	(void)peers;
	return 0;
}

/* Program a page, in the next block if the one at hand is full. */
static enum vs_status append(struct vs_ssd *s, uint32_t lane, uint32_t bank,
			     bool gc, struct vs_frontier *f, vs_time now,
			     const void *data, struct vs_oob *oob,
			     uint32_t *address, vs_time *done)
{
	enum vs_status status;

	if (!vs_has_page(s, f)) {
		if (f->block != VS_NONE)
			vs_close(s, f, false);
		if (vs_room(s, lane) <= (gc ? 0 : vs_reserve(s, lane)))
			return VS_EREADONLY;
		s->bank[bank].opened += !gc;
		status = vs_open(s, lane, bank, gc, now, f);
		if (status != VS_OK)
			return status;
	}
	return vs_append(s, f, gc ? VS_CAUSE_GC : VS_CAUSE_HOST, now, data,
			 oob, address, done);
}

/*
 * Each in turn; for a small flush, the one that has least to do, so that it does not
 * wait for what was written back or collected before. While tags share the lane, see
 * share.c.
 */
static uint32_t next_bank(struct vs_ssd *s, uint32_t lane, vs_time now)
{
	struct vs_lane *l = &s->lane[lane];
	uint32_t next = l->first_bank + l->bank_cursor, i;
	uint32_t best = vs_share_bank(s, lane, s->payer, now);
	bool any = s->urgent && best == VS_NONE;

	for (i = 0; any && i < l->banks; i++) {
		uint32_t bank = l->first_bank + (l->bank_cursor + i) % l->banks;

		if (bank == s->avoid)
			continue;
		if (best == VS_NONE || s->bank[bank].done < s->bank[best].done)
			best = bank;
	}
	l->bank_cursor = (l->bank_cursor + 1) % l->banks;
	return best == VS_NONE ? next : best;
}

static struct vs_frontier *frontier(const struct vs_ssd *s, uint32_t handle,
				    uint32_t bank)
{
	return &s->host[handle * s->banks + bank];
}

static enum vs_status program(struct vs_ssd *s, uint32_t lane, uint32_t handle,
			      vs_time now, const void *data,
			      struct vs_oob *oob, uint32_t *address,
			      vs_time *done)
{
	uint32_t bank = next_bank(s, lane, now);
	enum vs_status status;

	do {
		status = vs_gc(s, lane, bank, now);
		if (status == VS_OK)
			status = append(s, lane, bank, false,
					frontier(s, handle, bank), now, data,
					oob, address, done);
	} while (status == VS_EMEDIA);
	return status;
}

/**
 * vs_page_to - where collection programs the next page that it moves
 * @s: the device
 * @lane: of @bank
 * @bank: of the victim
 *
 * Within the bank. But only one block is opened from the reserve, and only when
 * no bank of the lane has a page left.
 */
struct vs_frontier *vs_page_to(const struct vs_ssd *s, uint32_t lane,
			       uint32_t bank)
{
	const struct vs_lane *l = &s->lane[lane];
	struct vs_frontier *own = &s->bank[bank].to;
	uint32_t i;

	if (vs_has_page(s, own) || vs_room(s, lane) > vs_reserve(s, lane))
		return own;
	for (i = l->first_bank; i < l->first_bank + l->banks; i++) {
		if (vs_has_page(s, &s->bank[i].to))
			return &s->bank[i].to;
	}
	return own;
}

/**
 * vs_page_move - program a page of data that is collected
 * @s: the device
 * @bank: where it came from
 * @now: time
 * @data: the page
 * @oob: its slots are filled in
 * @address: where it went, a page address
 * @done: when it is programmed
 *
 * Return: VS_OK, VS_EREADONLY, VS_EPOWER.
 */
enum vs_status vs_page_move(struct vs_ssd *s, uint32_t bank, vs_time now,
			    const void *data, struct vs_oob *oob,
			    uint32_t *address, vs_time *done)
{
	uint32_t lane = vs_lane_of(s, bank * s->c.geometry.blocks);
	enum vs_status status;

	do {
		status = append(s, lane, bank, true, vs_page_to(s, lane, bank),
				now, data, oob, address, done);
	} while (status == VS_EMEDIA);
	return status;
}

static enum vs_status again(struct vs_ssd *s, uint32_t bank, vs_time now,
			    const struct vs_rescue *lost)
{
	uint32_t lane = vs_lane_of(s, bank * s->c.geometry.blocks), address;
	enum vs_status status;
	vs_time done;

	status = append(s, lane, bank, true, vs_page_to(s, lane, bank), now,
			lost->page, lost->oob, &address, &done);
	if (status == VS_OK)
		vs_pair_moved(s, lost, address, done);
	return status;
}

static void found(struct vs_ssd *s)
{
	(void)s;
}

const struct vs_placement vs_page_mapping = {
	.size = size,
	.whole = whole,
	.program = program,
	.again = again,
	.found = found,
};

uint64_t vs_unit_blocks(const struct vs_ssd *s)
{
	return (uint64_t)s->banks * s->c.geometry.pages * s->slots;
}

uint64_t vs_erase_blocks(const struct vs_ssd *s)
{
	return (uint64_t)s->c.geometry.pages * s->slots;
}

uint64_t vs_unit_left(const struct vs_ssd *s, uint32_t handle)
{
	uint64_t pages = 0;
	uint32_t bank;

	if (handle >= s->c.handles || s->c.mapping != VS_MAP_PAGE)
		return 0;
	for (bank = 0; bank < s->banks; bank++) {
		const struct vs_frontier *f = frontier(s, handle, bank);

		pages += s->c.geometry.pages;
		if (f->block != VS_NONE)
			pages -= vs_next_page(s, f);
	}
	return pages * s->slots;
}

enum vs_status vs_unit_next(struct vs_ssd *s, uint32_t handle)
{
	uint32_t bank;

	if (handle >= s->c.handles || s->c.mapping != VS_MAP_PAGE)
		return VS_EINVAL;
	/* The rest of the blocks is not used. Collection gains it. */
	for (bank = 0; bank < s->banks; bank++) {
		struct vs_frontier *f = frontier(s, handle, bank);

		if (f->block != VS_NONE && f->next)
			vs_close(s, f, false);
	}
	return VS_OK;
}
