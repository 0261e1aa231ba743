// SPDX-License-Identifier: Apache-2.0
/*
 * Merges of FAST: a logical block gets all its data into one data block.
 *
 * A switch merge makes the sequential log block the data block. A partial merge
 * copies what is missing to it first. A full merge copies everything to a new
 * block. Whatever becomes empty by that is free, and erased when it is opened,
 * as soon as the changes of the map are durable.
 *
 * From the first page of a merge to its last no change of the map is made
 * durable, so no page of its block is committed meanwhile, and each has its
 * place on paired pages too.
 */
#include "internal.h"

static uint32_t per_block(const struct vs_ssd *s)
{
	return s->c.geometry.pages * s->slots;
}

static uint32_t end_of(const struct vs_ssd *s, uint32_t lbn)
{
	uint32_t first = lbn * per_block(s);

	return s->blocks - first < per_block(s) ? s->blocks :
						  first + per_block(s);
}

/* The page that the last block still in use has its place in, and one more. */
static uint32_t pages_used(const struct vs_ssd *s, uint32_t lbn)
{
	uint32_t first = lbn * per_block(s), lpn = end_of(s, lbn);

	while (lpn > first && !vs_mapped(s->map[lpn - 1]))
		lpn--;
	return (lpn - first + s->slots - 1) / s->slots;
}

/*
 * Copy a block to its place in the staged page. What cannot be read stays
 * where it is. The checksum goes along as it is.
 */
static enum vs_status stage_block(struct vs_ssd *s, uint32_t lpn,
				  uint32_t *loaded, vs_time *now)
{
	uint32_t slot = s->map[lpn], from = slot % s->slots;
	uint32_t to = lpn % s->slots, i;
	enum vs_status status = VS_OK;

	if (*loaded != slot / s->slots) {
		*loaded = VS_NONE;
		status = vs_read_page(s, *now, slot / s->slots, s->read_page,
				      s->read_oob, now);
		if (status == VS_OK)
			*loaded = slot / s->slots;
	}
	if (status == VS_EPOWER)
		return status;
	if (status != VS_OK || s->read_oob->slot[from].lpn != lpn) {
		s->stats.lost_reads++;
		return VS_OK;
	}
	for (i = 0; i < VS_BLOCK; i++)
		s->stage[to * VS_BLOCK + i] = s->read_page[from * VS_BLOCK + i];
	s->stage_oob->slot[to] = s->read_oob->slot[from];
	return VS_OK;
}

/* Stage a page of a logical block; @count blocks were to be had. */
static enum vs_status stage_page(struct vs_ssd *s, uint32_t lbn, uint32_t page,
				 uint32_t *count, vs_time *now)
{
	uint32_t first = lbn * per_block(s) + page * s->slots;
	uint32_t loaded = VS_NONE, i;
	enum vs_status status = VS_OK;

	*count = 0;
	for (i = 0; i < s->slots; i++)
		s->stage_oob->slot[i] = (struct vs_oob_slot){ .lpn = VS_NONE };
	for (i = 0; status == VS_OK && i < s->slots; i++) {
		if (first + i >= s->blocks || !vs_mapped(s->map[first + i]))
			continue;
		status = stage_block(s, first + i, &loaded, now);
		*count += s->stage_oob->slot[i].lpn != VS_NONE;
	}
	return status;
}

static enum vs_status copy_page(struct vs_ssd *s, struct vs_frontier *f,
				uint32_t lbn, uint32_t page,
				enum vs_merge kind, vs_time *now)
{
	enum vs_status status;
	uint32_t count, address, i;
	vs_time done;

	status = stage_page(s, lbn, page, &count, now);
	if (status != VS_OK)
		return status;
	/*
	 * Recovery looks at the first page of a block, and an MSB page must
	 * not be programmed without its LSB page.
	 */
	if (!count && page && !s->c.geometry.paired)
		return VS_OK;
	f->next = page;
	status = vs_append(s, f, VS_CAUSE_MERGE, *now, s->stage, s->stage_oob,
			   &address, &done);
	for (i = 0; status == VS_OK && i < s->slots; i++) {
		if (s->stage_oob->slot[i].lpn != VS_NONE)
			vs_map_set(s, s->gc_log, s->stage_oob->slot[i].lpn,
				   address * s->slots + i, done);
	}
	if (status == VS_OK)
		s->stats.merged[kind] += count;
	return status;
}

/* Copy a logical block's pages from @from on; the log has room for them. */
static enum vs_status copy_pages(struct vs_ssd *s, struct vs_frontier *f,
				 uint32_t lbn, uint32_t from,
				 enum vs_merge kind, vs_time now)
{
	uint32_t page, pages = pages_used(s, lbn);
	enum vs_status status = VS_OK;

	for (page = from; status == VS_OK && page < pages; page++)
		status = copy_page(s, f, lbn, page, kind, &now);
	return status;
}

/* Data that cannot be read is all that a data block replaced can have left. */
static void mark_stuck(struct vs_ssd *s, uint32_t lbn, uint32_t data)
{
	uint32_t lpn;

	for (lpn = lbn * per_block(s); lpn < end_of(s, lbn); lpn++) {
		uint32_t i = vs_block_of(s, s->map[lpn]);

		if (vs_mapped(s->map[lpn]) && i != data && !s->block[i].log &&
		    s->block[i].state == VS_BLOCK_DATA)
			s->block[i].state = VS_BLOCK_STUCK;
	}
}

/**
 * vs_fast_merge - full merge: everything to a new block
 * @s: the device
 * @lbn: the logical block; the sequential log block is not its own
 * @worn: take the most worn block
 * @now: time
 *
 * A block that fails meanwhile has part of the data, and is emptied in turn.
 */
enum vs_status vs_fast_merge(struct vs_ssd *s, uint32_t lbn, bool worn,
			     vs_time now)
{
	struct vs_frontier *f = &s->bank->to;
	enum vs_status status;

	do {
		vs_log_room(s, s->gc_log, per_block(s));
		status = vs_fast_reserve(s, now);
		if (status == VS_OK)
			status = vs_open(s, 0, vs_fast_bank(s), worn, now, f);
		if (status != VS_OK)
			return status;
		/* A log block, should it fail. */
		s->block[f->block].log = true;
		status = copy_pages(s, f, lbn, 0, VS_MERGE_FULL, now);
	} while (status == VS_EMEDIA);
	if (status != VS_OK)
		return status;
	s->block[f->block].log = false;
	s->block[f->block].lbn = lbn;
	mark_stuck(s, lbn, f->block);
	vs_close(s, f, false);
	s->stats.merges[VS_MERGE_FULL]++;
	s->lane[0].picks++;
	return VS_OK;
}

/*
 * Can the rest be copied to the sequential log block, or has a page of it to be
 * left out for the sake of its pair (rule 2)? What is written already is the
 * newest: any other write of the logical block has ended it before.
 */
static bool can_complete(const struct vs_ssd *s, const struct vs_frontier *f,
			 uint32_t lbn)
{
	struct vs_frontier at = *f;

	for (; at.next < pages_used(s, lbn); at.next++) {
		if (vs_next_page(s, &at) != at.next)
			return false;
	}
	return true;
}

/* Switch or partial merge; VS_EMEDIA: it has come to nothing. */
static enum vs_status complete(struct vs_ssd *s, struct vs_frontier *f,
			       uint32_t lbn, vs_time now)
{
	uint64_t before = s->stats.merged[VS_MERGE_PARTIAL];
	enum vs_status status;

	status = copy_pages(s, f, lbn, f->next, VS_MERGE_PARTIAL, now);
	if (status != VS_OK)
		return status;
	s->block[f->block].log = false;
	mark_stuck(s, lbn, f->block);
	vs_close(s, f, false);
	s->stats.merges[s->stats.merged[VS_MERGE_PARTIAL] == before ?
			VS_MERGE_SWITCH : VS_MERGE_PARTIAL]++;
	return VS_OK;
}

/**
 * vs_fast_end - the sequential log block becomes a data block, or empty
 * @s: the device, which has one
 * @now: time
 */
enum vs_status vs_fast_end(struct vs_ssd *s, vs_time now)
{
	struct vs_frontier *f = &s->host[VS_FAST_SEQUENTIAL];
	uint32_t lbn = s->block[f->block].lbn;
	enum vs_status status;

	vs_log_room(s, s->gc_log, per_block(s));
	/* Trimmed meanwhile: nothing to be merged. */
	if (!s->block[f->block].valid) {
		vs_close(s, f, false);
		return VS_OK;
	}
	if (can_complete(s, f, lbn)) {
		status = complete(s, f, lbn, now);
		if (status != VS_EMEDIA)
			return status;
	} else {
		vs_close(s, f, false);
	}
	return vs_fast_merge(s, lbn, false, now);
}
