// SPDX-License-Identifier: Apache-2.0
/*
 * Recovery rolls forward: pages that are durable by themselves (sync.c) and
 * have been programmed since the checkpoint.
 *
 * They can only be in blocks that were open then, which the root lists, or have
 * been opened since.
 */
#include "internal.h"

#include "crc32c.h"

/* Keep the pages in their order; of two copies one that can be read is last. */
static bool is_before(const struct vs_found *a, const struct vs_found *b)
{
	if (a->seq != b->seq)
		return a->seq < b->seq;
	if (a->lost != b->lost)
		return a->lost;
	return a->address < b->address;
}

static enum vs_status add(struct vs_ssd *s, struct vs_found f)
{
	uint32_t i;

	/* More than there can be. */
	if (s->founds == s->sync_max)
		return VS_EMEDIA;
	for (i = s->founds++; i && is_before(&f, &s->found[i - 1]); i--)
		s->found[i] = s->found[i - 1];
	s->found[i] = f;
	/* Until there is a checkpoint its block must stay. */
	s->block[f.address / s->c.geometry.pages].copies++;
	return VS_OK;
}

/* Is the page in s->read_page complete? Its spare bytes may be without it. */
static bool is_whole(const struct vs_ssd *s)
{
	uint32_t i;

	for (i = 0; i < s->slots; i++) {
		const struct vs_oob_slot *slot = &s->read_oob->slot[i];

		if (slot->lpn != VS_NONE &&
		    (slot->lpn >= s->blocks ||
		     slot->crc != vs_crc32c(0, s->read_page + i * VS_BLOCK,
					    VS_BLOCK)))
			return false;
	}
	return true;
}

static bool is_sync(const struct vs_ssd *s)
{
	return s->read_oob->type == VS_PAGE_DATA &&
	       s->read_oob->flags & VS_OOB_SYNC &&
	       s->read_oob->seq > s->since;
}

/* Does the page tell of one that was durable by itself and is missing? */
static bool tells_lost(const struct vs_ssd *s, uint64_t last)
{
	const struct vs_oob *oob = s->read_oob;
	uint32_t i;

	if (oob->before == last || oob->before <= s->since ||
	    oob->before_type != VS_PAGE_DATA)
		return false;
	for (i = 0; i < s->slots; i++) {
		if (oob->slot[i].before != VS_NONE)
			return true;
	}
	return false;
}

/* A page of which the spare bytes have been read; @last: number of the one before. */
static enum vs_status look_at(struct vs_ssd *s, uint32_t address,
			      uint64_t *last, vs_time now, vs_time *all)
{
	struct vs_found f = { .address = address };
	enum vs_status status = VS_OK;
	bool sync = is_sync(s);

	if (s->read_oob->seq > s->seq)
		s->seq = s->read_oob->seq;
	if (tells_lost(s, *last)) {
		f.seq = s->read_oob->before;
		f.lost = true;
		status = add(s, f);
	}
	f.seq = s->read_oob->seq;
	f.lost = false;
	if (status == VS_OK && sync) {
		status = vs_load(s, address, true, now, all);
		if (status == VS_EMEDIA || (status == VS_OK && !is_whole(s)))
			return VS_OK;
		if (status == VS_OK)
			status = add(s, f);
	}
	*last = f.seq;
	return status;
}

static enum vs_status find_in_block(struct vs_ssd *s, uint32_t block,
				    vs_time now, vs_time *all)
{
	uint64_t last = 0;
	uint32_t page;

	for (page = 0; page < s->c.geometry.pages; page++) {
		uint32_t address = vs_page_address(s, block, page);
		enum vs_status status = vs_load(s, address, false, now, all);

		if (status == VS_OK)
			status = look_at(s, address, &last, now, all);
		else if (status == VS_EMEDIA)
			continue;
		if (status != VS_OK)
			return status;
	}
	return VS_OK;
}

/**
 * vs_forward_find - find the pages that are durable by themselves
 * @s: the device, of which the root is known
 * @now: time
 * @all: of all reads
 *
 * Return: VS_OK; VS_EMEDIA when there are more than there can be; VS_EPOWER.
 */
enum vs_status vs_forward_find(struct vs_ssd *s, vs_time now, vs_time *all)
{
	enum vs_status status = VS_OK;
	uint32_t i;

	/* Those that the root lists count as opened since. */
	for (i = 0; i < s->hosts + s->banks; i++) {
		if (s->open_found[i] < s->blocks_all)
			s->block[s->open_found[i]].not_before = UINT64_MAX;
	}
	for (i = 0; i < s->blocks_all; i++) {
		struct vs_block *b = &s->block[i];

		if (status == VS_OK && s->sync_max &&
		    b->state == VS_BLOCK_FREE && b->not_before > s->since)
			status = find_in_block(s, i, now, all);
		b->not_before = 0;
	}
	return status;
}

/**
 * vs_forward_apply - the changes of the map that a page stands for
 * @s: the device
 * @f: the page
 * @now: time
 * @all: of all reads
 */
enum vs_status vs_forward_apply(struct vs_ssd *s, const struct vs_found *f,
				vs_time now, vs_time *all)
{
	enum vs_status status = vs_load(s, f->address, false, now, all);
	uint32_t i;

	for (i = 0; status == VS_OK && i < s->slots; i++) {
		const struct vs_oob_slot *slot = &s->read_oob->slot[i];
		uint32_t lpn = f->lost ? slot->before : slot->lpn;

		if (lpn >= s->blocks)
			continue;
		s->map[lpn] = f->lost ? VS_LOST : f->address * s->slots + i;
		s->dirty[lpn / s->map_per_page] = 1;
		s->stats.replayed++;
	}
	return status;
}
