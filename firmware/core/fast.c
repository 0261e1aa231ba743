// SPDX-License-Identifier: Apache-2.0
/*
 * FAST (Lee et al., ACM TECS 6(3), 2007): hybrid mapping with log blocks that
 * belong to no one block.
 *
 * A logical block is as many blocks of the host as an erase block holds. Its
 * data block has each of them at a fixed place. What the host writes goes to a
 * log block: the sequential one, which belongs to a single logical block and
 * has everything at its place too, begun by a write of page 0; or a random one,
 * for all else, in the order in which it comes. A log block becomes a data
 * block again, or empty, by a merge (fast_merge.c), the oldest random one when
 * no further may be opened (fast_room.c).
 *
 * The page-granular map stays what it is, so what points where, whatever a
 * power cut leaves, needs no rule of its own: a data block is one that has
 * nothing but a logical block's data at its place.
 */
#include "internal.h"

/* Blocks left free by default, so that several merges become durable at once. */
#define FREE_BLOCKS 3u

static uint32_t per_block(const struct vs_ssd *s)
{
	return s->c.geometry.pages * s->slots;
}

/*
 * The capacity is page mapping's. What is spare beyond a data block for each
 * logical block are log blocks, and one that merges go to.
 */
static bool size(struct vs_ssd *s)
{
	uint32_t good = s->blocks_all - s->meta_blocks - s->c.bad_blocks, spare;

	s->lbns = (s->blocks + per_block(s) - 1) / per_block(s);
	if (s->c.lanes != 1 || good < s->lbns + 3)
		return false;
	spare = good - s->lbns;
	if (!s->c.log_blocks)
		s->c.log_blocks = spare > FREE_BLOCKS + 2 ?
				  spare - FREE_BLOCKS : 2;
	return s->c.log_blocks >= 2 && s->c.log_blocks < spare;
}

/* The last page may be cut off by the end of the device. */
static uint32_t blocks_of_page(const struct vs_ssd *s, uint32_t first)
{
	return s->blocks - first < s->slots ? s->blocks - first : s->slots;
}

/* Those of one tag only: a flush takes no other's along. */
static uint32_t whole(const struct vs_ssd *s, uint32_t entry, uint32_t *peers)
{
	uint32_t lpn = s->entry[entry].lpn, first = lpn - lpn % s->slots;
	uint32_t n = blocks_of_page(s, first), i;

	for (i = 0; i < n; i++) {
		peers[i] = vs_buffer_find(s, first + i);
		if (peers[i] == VS_NONE ||
		    s->entry[peers[i]].log != s->entry[entry].log)
			return 0;
	}
	return n;
}

/* The page of the device that a page has everything of, at its place. */
static uint32_t page_of(const struct vs_ssd *s, const struct vs_oob *oob)
{
	uint32_t first = oob->slot[0].lpn, i;

	if (first % s->slots)
		return VS_NONE;
	for (i = 0; i < blocks_of_page(s, first); i++) {
		if (oob->slot[i].lpn != first + i)
			return VS_NONE;
	}
	return first / s->slots;
}

static bool has_of(const struct vs_ssd *s, const struct vs_oob *oob,
		   uint32_t lbn)
{
	uint32_t i;

	for (i = 0; i < s->slots; i++) {
		if (oob->slot[i].lpn != VS_NONE &&
		    vs_lbn_of(s, oob->slot[i].lpn) == lbn)
			return true;
	}
	return false;
}

/* Has the sequential log block got all that its logical block can have? */
static bool is_full(const struct vs_ssd *s, const struct vs_frontier *f)
{
	uint32_t lbn = s->block[f->block].lbn, left;

	left = s->blocks - lbn * per_block(s);
	return f->next >= s->c.geometry.pages || f->next * s->slots >= left;
}

/*
 * Does the page leave the sequential log block behind? It does when it begins
 * another one, and when it is of the same logical block but not the next.
 */
static bool ends(const struct vs_ssd *s, const struct vs_frontier *f,
		 const struct vs_oob *oob, uint32_t page)
{
	uint32_t lbn = s->block[f->block].lbn;

	if (is_full(s, f))
		return true;
	if (page != VS_NONE && page % s->c.geometry.pages == 0)
		return true;
	return has_of(s, oob, lbn) &&
	       page != lbn * s->c.geometry.pages + vs_next_page(s, f);
}

static enum vs_status open_sequential(struct vs_ssd *s, uint32_t lbn,
				      vs_time now, struct vs_frontier *f)
{
	enum vs_status status = vs_fast_room(s, s->c.log_blocks - 1, now);

	if (status == VS_OK)
		status = vs_open(s, 0, vs_fast_bank(s), false, now, f);
	if (status != VS_OK)
		return status;
	s->block[f->block].log = true;
	s->block[f->block].lbn = lbn;
	return VS_OK;
}

static enum vs_status open_random(struct vs_ssd *s, vs_time now,
				  struct vs_frontier *f)
{
	enum vs_status status;

	if (f->block != VS_NONE)
		vs_close(s, f, false);
	status = vs_fast_room(s, s->c.log_blocks - 2, now);
	/* A merge had to program a lost page again, and has opened it. */
	if (vs_has_page(s, f))
		return status == VS_EREADONLY ? VS_OK : status;
	if (status == VS_OK)
		status = vs_open(s, 0, vs_fast_bank(s), false, now, f);
	if (status != VS_OK)
		return status;
	s->block[f->block].log = true;
	return VS_OK;
}

/* The log block that takes the page. */
static enum vs_status choose(struct vs_ssd *s, const struct vs_oob *oob,
			     vs_time now, struct vs_frontier **to)
{
	struct vs_frontier *sequential = &s->host[VS_FAST_SEQUENTIAL];
	struct vs_frontier *random = &s->host[VS_FAST_RANDOM];
	uint32_t page = page_of(s, oob), pages = s->c.geometry.pages;
	enum vs_status status = VS_OK;

	if (sequential->block != VS_NONE && ends(s, sequential, oob, page))
		status = vs_fast_end(s, now);
	if (status != VS_OK)
		return status;
	*to = sequential;
	if (page != VS_NONE && page % pages == 0)
		return open_sequential(s, page / pages, now, sequential);
	if (page != VS_NONE && sequential->block != VS_NONE &&
	    s->block[sequential->block].lbn == page / pages)
		return VS_OK;
	*to = random;
	return vs_has_page(s, random) ? VS_OK : open_random(s, now, random);
}

static enum vs_status program(struct vs_ssd *s, uint32_t lane, uint32_t handle,
			      vs_time now, const void *data,
			      struct vs_oob *oob, uint32_t *address,
			      vs_time *done)
{
	enum vs_status status;

	(void)lane;
	(void)handle;
	do {
		struct vs_frontier *f;

		status = choose(s, oob, now, &f);
		if (status != VS_OK)
			return status;
		status = vs_append(s, f, VS_CAUSE_HOST, now, data, oob, address,
				   done);
	} while (status == VS_EMEDIA);
	return status;
}

/* To a random log block; if one has to be opened, a spare block is used. */
static enum vs_status again(struct vs_ssd *s, uint32_t bank, vs_time now,
			    const struct vs_rescue *lost)
{
	struct vs_frontier *f = &s->host[VS_FAST_RANDOM];
	enum vs_status status = VS_OK;
	uint32_t address;
	vs_time done;

	(void)bank;
	if (!vs_has_page(s, f)) {
		if (f->block != VS_NONE)
			vs_close(s, f, false);
		status = vs_open(s, 0, vs_fast_bank(s), false, now, f);
		if (status != VS_OK)
			return status;
		s->block[f->block].log = true;
	}
	status = vs_append(s, f, VS_CAUSE_GC, now, lost->page, lost->oob,
			   &address, &done);
	if (status == VS_OK)
		vs_pair_moved(s, lost, address, done);
	return status;
}

/* A block with anything that has not its place in it was a log block. */
static void find_logs(struct vs_ssd *s)
{
	uint32_t i;

	for (i = 0; i < s->blocks; i++) {
		uint32_t lbn = vs_lbn_of(s, i);
		struct vs_block *b;

		if (!vs_mapped(s->map[i]))
			continue;
		b = &s->block[vs_block_of(s, s->map[i])];
		if (s->map[i] % per_block(s) != i % per_block(s) ||
		    (b->lbn != VS_NONE && b->lbn != lbn))
			b->log = true;
		b->lbn = lbn;
	}
}

/* And of several with everything at its place, all but one. */
static void find_data_blocks(struct vs_ssd *s)
{
	uint32_t i, data = VS_NONE;

	for (i = 0; i < s->blocks; i++) {
		uint32_t block = vs_block_of(s, s->map[i]);

		if (i % per_block(s) == 0)
			data = VS_NONE;
		if (!vs_mapped(s->map[i]) || s->block[block].log)
			continue;
		if (data == VS_NONE)
			data = block;
		s->block[block].log = block != data;
	}
}

static void found(struct vs_ssd *s)
{
	uint32_t i;

	for (i = 0; i < s->blocks_all; i++)
		s->block[i].lbn = VS_NONE;
	find_logs(s);
	find_data_blocks(s);
}

const struct vs_placement vs_fast_mapping = {
	.size = size,
	.whole = whole,
	.program = program,
	.again = again,
	.found = found,
};
