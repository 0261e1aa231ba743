// SPDX-License-Identifier: Apache-2.0
/*
 * Programming pages where they come next, and reading them back.
 *
 * Paired pages (rule 2): a page is committed once it holds data that must be
 * durable. From then on the MSB page of its word line is never programmed. That
 * costs space but no time, unlike programming it with padding before each
 * flush. LSB pages alone are a legal order of programming MLC (FlexFS, USENIX
 * ATC '09, has it as "SLC programming").
 */
#include "internal.h"

#include "crc32c.h"
#include "pairing.h"

/**
 * vs_next_page - the page that a frontier programs next
 * @s: the device
 * @f: has a block
 *
 * Return: the number of pages if the block is full.
 */
uint32_t vs_next_page(const struct vs_ssd *s, const struct vs_frontier *f)
{
	uint32_t pages = s->c.geometry.pages, page = f->next;

	while (s->c.geometry.paired && page < pages) {
		uint32_t lsb = vs_pair_of_msb(pages, page);

		if (lsb == VS_NO_PAIR || lsb >= f->committed)
			break;
		page++;
	}
	return page;
}

/**
 * vs_has_page - can a frontier take a page without opening a block?
 * @s: the device
 * @f: any frontier
 */
bool vs_has_page(const struct vs_ssd *s, const struct vs_frontier *f)
{
	return f->block != VS_NONE &&
	       vs_next_page(s, f) < s->c.geometry.pages;
}

static bool commit_in(struct vs_frontier *f, uint32_t block, uint32_t page)
{
	if (f->block != block)
		return false;
	if (f->committed <= page)
		f->committed = page + 1;
	return true;
}

static void commit_page(struct vs_ssd *s, uint32_t address)
{
	uint32_t block = address / s->c.geometry.pages, i;
	uint32_t page = address % s->c.geometry.pages;

	/* What is closed is not programmed any more. */
	if (s->block[block].state != VS_BLOCK_OPEN)
		return;
	for (i = 0; i < s->hosts; i++) {
		if (commit_in(&s->host[i], block, page))
			return;
	}
	for (i = 0; i < s->banks; i++) {
		if (commit_in(&s->bank[i].to, block, page))
			return;
	}
	for (i = 0; i < s->c.lanes * s->stripe; i++) {
		if (commit_in(&s->meta[i], block, page))
			return;
	}
}

/**
 * vs_mark_page_committed - commit a page
 * @s: the device
 * @address: its page address
 */
void vs_mark_page_committed(struct vs_ssd *s, uint32_t address)
{
	if (s->c.geometry.paired)
		commit_page(s, address);
}

/**
 * vs_mark_log_committed - commit the pages that a log has just made durable
 * @s: the device
 * @log: the log, before vs_log_durable()
 * @address: of the two copies of its new page
 *
 * What other tags have programmed meanwhile is not durable yet, and so may be
 * lost: their word lines are filled up.
 */
void vs_mark_log_committed(struct vs_ssd *s, const struct vs_log *log,
			   const uint32_t *address)
{
	uint32_t i;

	if (!s->c.geometry.paired)
		return;
	commit_page(s, address[0]);
	commit_page(s, address[1]);
	for (i = log->durable; i < log->count; i++) {
		if (!(log->entry[i].slot & VS_TRIM))
			commit_page(s, log->entry[i].slot / s->slots);
	}
}

/**
 * vs_mark_committed - commit all pages that have been programmed
 * @s: the device
 *
 * Called when a checkpoint exists, which points to pages of all frontiers.
 */
void vs_mark_committed(struct vs_ssd *s)
{
	uint32_t i;

	for (i = 0; i < s->hosts; i++)
		s->host[i].committed = s->host[i].next;
	for (i = 0; i < s->banks; i++)
		s->bank[i].to.committed = s->bank[i].to.next;
	for (i = 0; i < s->c.lanes * s->stripe; i++)
		s->meta[i].committed = s->meta[i].next;
}

/**
 * vs_oob_crc - checksum of spare bytes
 * @s: the device
 * @oob: its own checksum counts as 0
 */
uint32_t vs_oob_crc(const struct vs_ssd *s, const struct vs_oob *oob)
{
	uint32_t zero = 0;
	uint32_t crc = vs_crc32c(0, &zero, sizeof(zero));

	return vs_crc32c(crc, (const uint8_t *)oob + sizeof(zero),
			 VS_OOB_SIZE(s->c.geometry.page_size) - sizeof(zero));
}

/**
 * vs_page_crc - checksum of a metadata page
 * @s: the device
 * @page: its own checksum counts as 0
 */
uint32_t vs_page_crc(const struct vs_ssd *s, const void *page)
{
	uint32_t zero = 0;
	uint32_t crc = vs_crc32c(0, &zero, sizeof(zero));

	return vs_crc32c(crc, (const uint8_t *)page + sizeof(zero),
			 s->c.geometry.page_size - sizeof(zero));
}

/* The page that a power cut cannot take tells of the one before it. */
static void describe(struct vs_ssd *s, const struct vs_frontier *f,
		     struct vs_oob *oob)
{
	uint32_t i;

	oob->magic = VS_MAGIC;
	oob->version = VS_FORMAT;
	oob->erases = s->block[f->block].erases;
	oob->before = f->before;
	oob->before_type = f->before_type;
	for (i = 0; i < s->slots; i++)
		oob->slot[i].before = f->before ? f->before_lpn[i] : VS_NONE;
	oob->crc = vs_oob_crc(s, oob);
}

static void programmed(const struct vs_ssd *s, struct vs_frontier *f,
		       uint32_t page, const struct vs_oob *oob)
{
	bool tell = oob->type != VS_PAGE_DATA || oob->flags & VS_OOB_SYNC;
	uint32_t i;

	f->next = page + 1;
	f->before = oob->seq;
	f->before_type = oob->type;
	for (i = 0; i < s->slots; i++)
		f->before_lpn[i] = tell ? oob->slot[i].lpn : VS_NONE;
}

/**
 * vs_put - program the next page of a frontier
 * @s: the device
 * @f: where; vs_has_page()
 * @meta: is it a frontier of metadata?
 * @now: time
 * @data: the page
 * @oob: its type, number and slots are filled in
 * @address: where it went, a page address
 * @done: when it is programmed
 *
 * A block that fails keeps what it has until garbage collection has emptied it;
 * the caller tries the next block, after it has programmed again what a failed
 * MSB page took along (vs_ssd.rescues).
 *
 * Return: VS_OK; VS_EMEDIA when the block has failed, which @f has let go of;
 * VS_EREADONLY when too many fail at once; VS_EPOWER.
 */
enum vs_status vs_put(struct vs_ssd *s, struct vs_frontier *f, bool meta,
		      vs_time now, const void *data, struct vs_oob *oob,
		      uint32_t *address, vs_time *done)
{
	uint32_t page = vs_next_page(s, f), pages = s->c.geometry.pages;
	struct vs_lane *l = &s->lane[vs_lane_of(s, f->block)];
	uint32_t bank = f->block / s->c.geometry.blocks;
	struct vs_block *b = &s->block[f->block];
	vs_time at = vs_later(now, b->not_before);
	enum vs_status status;

	describe(s, f, oob);
	*address = vs_page_address(s, f->block, page);
	status = s->ops->program(s->ctx, at, vs_place(s, *address), data, oob,
				 done);
	if (status == VS_EMEDIA) {
		b->retire = true;
		l->failed++;
		/* So that the sum over the causes stays the NAND's. */
		s->stats.programmed[VS_CAUSE_PADDING] += s->slots;
		status = vs_pair_lost(s, f, page);
		vs_close(s, f, meta);
		return status;
	}
	if (status != VS_OK)
		return status;
	vs_share_charge(s, bank, at, *done);
	s->stats.skipped += page - f->next;
	programmed(s, f, page, oob);
	if (!s->c.geometry.paired)
		return VS_OK;
	vs_pair_keep(s, f, page, data, oob);
	if (vs_pair_of_msb(pages, page) != VS_NO_PAIR)
		l->msb_done = vs_later(l->msb_done, *done);
	return VS_OK;
}

static void count_data(struct vs_ssd *s, const struct vs_oob *oob,
		       enum vs_cause cause)
{
	uint32_t i;

	for (i = 0; i < s->slots; i++)
		s->stats.programmed[oob->slot[i].lpn == VS_NONE ||
				    oob->flags & VS_OOB_COPY ?
				    VS_CAUSE_PADDING : cause]++;
}

/**
 * vs_copied - a page has two copies
 * @s: the device
 * @address: theirs, page addresses
 * @done: when both are programmed
 *
 * What is programmed next in their blocks tells that the page was there. So it
 * waits for both: after a power cut, a page that is told of and cannot be read
 * has another copy.
 */
void vs_copied(struct vs_ssd *s, const uint32_t *address, vs_time done)
{
	s->block[address[0] / s->c.geometry.pages].not_before = done;
	s->block[address[1] / s->c.geometry.pages].not_before = done;
}

/**
 * vs_append - program the next page of data
 * @s: the device
 * @f: where; vs_has_page()
 * @cause: what for
 * @now: time
 * @data: the page
 * @oob: its slots are filled in
 * @address: where it went, a page address
 * @done: when it is programmed
 *
 * Return: VS_OK; VS_EMEDIA when the block has failed, which @f has let go of;
 * VS_EPOWER.
 */
enum vs_status vs_append(struct vs_ssd *s, struct vs_frontier *f,
			 enum vs_cause cause, vs_time now, const void *data,
			 struct vs_oob *oob, uint32_t *address, vs_time *done)
{
	uint32_t bank = f->block / s->c.geometry.blocks;
	enum vs_status status, again = VS_OK;

	oob->type = VS_PAGE_DATA;
	if (!(oob->flags & VS_OOB_COPY))
		oob->seq = ++s->seq;
	status = vs_put(s, f, false, now, data, oob, address, done);
	if (status == VS_EMEDIA)
		again = vs_pair_rescue(s, bank, now);
	if (status != VS_OK)
		return again == VS_OK ? status : again;
	s->data_done = vs_later(s->data_done, *done);
	count_data(s, oob, cause);
	return VS_OK;
}

/**
 * vs_read_page - read a page and check its spare bytes
 * @s: the device
 * @now: time
 * @address: a page address on the device
 * @data: the page, or NULL for the spare bytes only
 * @oob: the spare bytes
 * @done: when it is read
 *
 * Return: VS_OK; VS_EMEDIA when it cannot be read or is none of ours.
 */
enum vs_status vs_read_page(struct vs_ssd *s, vs_time now, uint32_t address,
			    void *data, struct vs_oob *oob, vs_time *done)
{
	enum vs_status status = s->ops->read(s->ctx, now, vs_place(s, address),
					     data, oob, done);

	/* Whatever the spare bytes are now, they are not an erased page's. */
	if (status != VS_OK) {
		oob->magic = 0;
		return status;
	}
	if (oob->magic != VS_MAGIC || oob->version != VS_FORMAT ||
	    oob->crc != vs_oob_crc(s, oob))
		return VS_EMEDIA;
	return VS_OK;
}
