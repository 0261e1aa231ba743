// SPDX-License-Identifier: Apache-2.0
/*
 * Programming metadata pages.
 *
 * A log page or a page of the root that could not be read would take flushed
 * data with it, and nobody could tell that it had been there. So each is
 * programmed twice, side by side on two banks if the lane has as many.
 */
#include "internal.h"

/* Open a metadata block, in @lane if that has a share left. */
static enum vs_status open_meta(struct vs_ssd *s, uint32_t lane, uint32_t bank,
				vs_time now, struct vs_frontier *f)
{
	uint32_t i;

	for (i = 0; i < s->c.lanes; i++) {
		uint32_t at = (lane + i) % s->c.lanes;
		enum vs_status status;

		if (s->lane[at].meta >= s->lane[at].meta_share)
			continue;
		status = vs_open(s, at, bank, false, now, f);
		if (status == VS_OK)
			s->lane[at].meta++;
		if (status != VS_EREADONLY)
			return status;
	}
	return VS_EREADONLY;
}

/* Program a page in the next of the lane's frontiers. */
static enum vs_status put_next(struct vs_ssd *s, uint32_t lane, vs_time now,
			       const void *page, uint32_t *address,
			       vs_time *done)
{
	struct vs_lane *l = &s->lane[lane];
	struct vs_frontier *f = &s->meta[lane * s->stripe + l->meta_cursor];
	const struct vs_meta *meta = page;
	enum vs_status status;
	uint32_t i;

	if (!vs_has_page(s, f)) {
		if (f->block != VS_NONE)
			vs_close(s, f, true);
		status = open_meta(s, lane, l->first_bank +
				   l->meta_cursor % l->banks, now, f);
		if (status != VS_OK)
			return status;
	}
	s->meta_oob->type = (uint8_t)meta->type;
	s->meta_oob->seq = meta->seq;
	for (i = 0; i < s->slots; i++)
		s->meta_oob->slot[i].lpn = VS_NONE;
	s->meta_oob->slot[0].lpn = meta->index;
	status = vs_put(s, f, true, now, page, s->meta_oob, address, done);
	if (status != VS_OK)
		return status;
	l->meta_cursor = (l->meta_cursor + 1) % s->stripe;
	s->stats.programmed[meta->type == VS_PAGE_LOG ? VS_CAUSE_LOG :
			    VS_CAUSE_MAP] += s->slots;
	return VS_OK;
}

/* A page of the checkpoint under way has another place. */
static void moved(struct vs_ssd *s, const struct vs_rescue *lost, uint32_t to)
{
	uint32_t i;

	if (lost->oob->type == VS_PAGE_ROOT)
		s->block[to / s->c.geometry.pages].root = true;
	for (i = 0; i < s->map_pages; i++) {
		if (s->map_new[i] == lost->from)
			s->map_new[i] = to;
	}
}

/* As it is, and first what the failed MSB pages of others took along. */
static enum vs_status program(struct vs_ssd *s, uint32_t lane, vs_time now,
			      const void *page, uint32_t *address, vs_time *done)
{
	vs_time again_done = now;

	for (;;) {
		const struct vs_rescue *lost = s->rescues ?
			&s->rescue[s->rescues - 1] : NULL;
		enum vs_status status;

		status = put_next(s, lane, now, lost ? lost->page : page,
				  address, done);
		if (status == VS_EMEDIA)
			continue;
		if (status == VS_OK && lost) {
			moved(s, lost, *address);
			again_done = vs_later(again_done, *done);
			s->rescues--;
			s->stats.rescued++;
			continue;
		}
		*done = vs_later(*done, again_done);
		return status;
	}
}

static void seal(struct vs_ssd *s, void *page)
{
	struct vs_meta *meta = page;

	meta->seq = ++s->seq;
	meta->crc = vs_page_crc(s, page);
}

/**
 * vs_program_meta - program a metadata page
 * @s: the device
 * @lane: preferred
 * @now: time
 * @page: begins with struct vs_meta, of which checksum and number are set here
 * @address: where it went, a page address
 * @done: when it is programmed
 *
 * Return: VS_OK, VS_EREADONLY when metadata has no room left, VS_EPOWER.
 */
enum vs_status vs_program_meta(struct vs_ssd *s, uint32_t lane, vs_time now,
			       void *page, uint32_t *address, vs_time *done)
{
	seal(s, page);
	return program(s, lane, now, page, address, done);
}

/**
 * vs_program_twice - program a metadata page that must not be lost
 * @s: the device
 * @lane: preferred
 * @now: time
 * @page: as for vs_program_meta()
 * @address: where its two copies went, page addresses in two erase blocks
 * @done: when both are programmed
 *
 * Return: as vs_program_meta().
 */
enum vs_status vs_program_twice(struct vs_ssd *s, uint32_t lane, vs_time now,
				void *page, uint32_t *address, vs_time *done)
{
	enum vs_status status;
	vs_time second = now;

	seal(s, page);
	status = program(s, lane, now, page, &address[0], done);
	if (status == VS_OK)
		status = program(s, lane, now, page, &address[1], &second);
	*done = vs_later(*done, second);
	if (status == VS_OK)
		vs_copied(s, address, *done);
	return status;
}
