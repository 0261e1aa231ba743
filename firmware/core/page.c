// SPDX-License-Identifier: Apache-2.0
/*
 * Page mapping: the host's pages go to one frontier for each bank, in turn,
 * and garbage collection makes room.
 */
#include "internal.h"

static bool size(struct vs_ssd *s)
{
	s->hosts = s->banks;
	return true;
}

/* Any place will do. */
static uint32_t whole(const struct vs_ssd *s, uint32_t entry, uint32_t *mates)
{
	(void)s;
	(void)entry;
	(void)mates;
	return 0;
}

/**
 * vs_page_program - program a page of data
 * @s: the device
 * @lane: where
 * @gc: to the frontier of garbage collection, which may use the reserve
 * @now: time
 * @data: the page
 * @oob: its slots are filled in
 * @address: where it went, a page address
 * @done: when it is programmed
 *
 * For the host, room is made first. Return: VS_OK, VS_EREADONLY, VS_EPOWER.
 */
enum vs_status vs_page_program(struct vs_ssd *s, uint32_t lane, bool gc,
			       vs_time now, const void *data,
			       struct vs_oob *oob, uint32_t *address,
			       vs_time *done)
{
	struct vs_lane *l = &s->lane[lane];
	uint32_t bank = l->first_bank + l->turn;
	struct vs_frontier *f = gc ? &l->gc : &s->host[bank];
	enum vs_status status = VS_OK;

	if (!gc)
		l->turn = (l->turn + 1) % l->banks;
	do {
		if (!gc)
			status = vs_gc(s, lane, now);
		if (status != VS_OK && status != VS_EMEDIA)
			return status;
		if (!vs_has_page(s, f)) {
			if (f->block != VS_NONE)
				vs_close(s, f, false);
			if (vs_room(s, lane) <= (gc ? 0 : vs_reserve(s, lane)))
				return VS_EREADONLY;
			status = vs_open(s, lane, bank, gc, now, f);
			if (status != VS_OK)
				return status;
		}
		status = vs_append(s, f, gc ? VS_CAUSE_GC : VS_CAUSE_HOST, now,
				   data, oob, address, done);
	} while (status == VS_EMEDIA);
	return status;
}

static enum vs_status program(struct vs_ssd *s, uint32_t lane, vs_time now,
			      const void *data, struct vs_oob *oob,
			      uint32_t *address, vs_time *done)
{
	return vs_page_program(s, lane, false, now, data, oob, address, done);
}

static void found(struct vs_ssd *s)
{
	(void)s;
}

const struct vs_placement vs_page_mapping = {
	.size = size,
	.whole = whole,
	.program = program,
	.found = found,
};
