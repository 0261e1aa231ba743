// SPDX-License-Identifier: Apache-2.0
/*
 * From the NAND's content to a device.
 *
 * Recovery takes the newest root that is complete, the map pages it names, and
 * of each log area the newest page that belongs to that root, and the pages
 * without a log (forward.c); all changes are applied in their order. Then a
 * checkpoint is written and the device is as after a checkpoint. Until that
 * exists nothing that was found has been erased, so recovery can be interrupted
 * anywhere and begun again.
 *
 * Of roots and log pages one copy is enough. Blocks of a map page that cannot
 * be read are lost (VS_LOST). If a later page shows that a root or the newest
 * page of a log is lost with both copies, the device is not mounted.
 */
#include "internal.h"

/* Pages that can be there and have not been seen, and there are 2^32 mounts. */
#define SEQ_MARGIN 0x100000000ull

/**
 * vs_load - read a page at mount time; counted, with its time added up
 * @s: the device
 * @address: a page address
 * @whole: into s->read_page and s->read_oob; else the spare bytes only
 * @now: time
 * @all: of all reads
 *
 * Return: as vs_read_page().
 */
enum vs_status vs_load(struct vs_ssd *s, uint32_t address, bool whole,
		       vs_time now, vs_time *all)
{
	enum vs_status status;
	vs_time done = now;

	status = vs_read_page(s, now, address, whole ? s->read_page : NULL,
			      s->read_oob, &done);
	s->stats.recovery_pages++;
	*all = vs_later(*all, done);
	return status;
}

/* A metadata page that is whole and what it is said to be. */
static enum vs_status load_meta(struct vs_ssd *s, uint32_t address,
				uint32_t type, vs_time now, vs_time *all)
{
	const struct vs_meta *meta = (const struct vs_meta *)s->read_page;
	enum vs_status status = vs_load(s, address, true, now, all);

	if (status != VS_OK)
		return status;
	if (meta->crc != vs_page_crc(s, s->read_page) || meta->type != type ||
	    s->read_oob->type != type)
		return VS_EMEDIA;
	return VS_OK;
}

static void note_seen(struct vs_ssd *s, uint64_t seq)
{
	if (seq > s->seq)
		s->seq = seq;
}

/* The spare bytes of the first page of a block that can be read, if any. */
static enum vs_status load_first(struct vs_ssd *s, uint32_t block, vs_time now,
				 vs_time *all)
{
	enum vs_status status = VS_EMEDIA;
	uint32_t page;

	for (page = 0; status == VS_EMEDIA && page < s->c.geometry.pages; page++) {
		status = vs_load(s, vs_page_address(s, block, page), false, now,
				 all);
		/* Nothing was programmed behind an erased page. */
		if (s->read_oob->magic == UINT16_MAX)
			break;
	}
	return status;
}

/* Find the metadata blocks and how often blocks have been erased. */
static enum vs_status scan_blocks(struct vs_ssd *s, vs_time now, vs_time *all)
{
	uint64_t erases = 0;
	uint32_t i, known = 0;

	for (i = 0; i < s->blocks_all; i++) {
		enum vs_status status;

		if (s->block[i].state == VS_BLOCK_BAD)
			continue;
		status = load_first(s, i, now, all);
		if (status == VS_EPOWER)
			return status;
		if (status != VS_OK)
			continue;
		note_seen(s, s->read_oob->seq);
		s->block[i].not_before = s->read_oob->seq;
		s->block[i].erases = s->read_oob->erases;
		erases += s->read_oob->erases;
		known++;
		if (s->read_oob->type != VS_PAGE_DATA)
			s->block[i].state = VS_BLOCK_META;
	}
	/* Of a block without a page: as many as the others have. */
	for (i = 0; known && i < s->blocks_all; i++) {
		if (!s->block[i].erases)
			s->block[i].erases = (uint32_t)(erases / known);
	}
	return VS_OK;
}

typedef void visitor(struct vs_ssd *s, uint32_t address, void *arg);

/* A log page is missing that a later page of the block tells of. */
static void note_missing(struct vs_ssd *s, uint64_t last)
{
	const struct vs_oob *oob = s->read_oob;
	struct vs_log *l;

	if (oob->before == last || oob->before_type != VS_PAGE_LOG ||
	    oob->slot[0].before >= s->logs)
		return;
	l = &s->log[oob->slot[0].before];
	if (oob->before > l->lost)
		l->lost = oob->before;
}

/* Show all whole metadata pages of one type in a block to @visit. */
static enum vs_status visit_block(struct vs_ssd *s, uint32_t block,
				  uint32_t type, vs_time now, vs_time *all,
				  visitor *visit, void *arg)
{
	uint64_t last = 0;
	uint32_t page;

	for (page = 0; page < s->c.geometry.pages; page++) {
		uint32_t address = vs_page_address(s, block, page);
		enum vs_status status = vs_load(s, address, false, now, all);
		bool wanted = status == VS_OK && s->read_oob->type == type;

		if (status == VS_OK) {
			note_seen(s, s->read_oob->seq);
			note_missing(s, last);
		}
		if (wanted)
			status = load_meta(s, address, type, now, all);
		if (status == VS_EPOWER)
			return status;
		if (status == VS_OK)
			last = s->read_oob->seq;
		if (status == VS_OK && wanted)
			visit(s, address, arg);
	}
	return VS_OK;
}

/* Show all whole metadata pages of one type to @visit, in s->read_page. */
static enum vs_status visit_meta(struct vs_ssd *s, uint32_t type, vs_time now,
				 vs_time *all, visitor *visit, void *arg)
{
	enum vs_status status = VS_OK;
	uint32_t i;

	for (i = 0; status == VS_OK && i < s->blocks_all; i++) {
		if (s->block[i].state == VS_BLOCK_META)
			status = visit_block(s, i, type, now, all, visit, arg);
	}
	return status;
}

static const struct vs_meta *seen(const struct vs_ssd *s)
{
	return (const struct vs_meta *)s->read_page;
}

/*
 * Ids of checkpoints begun but not finished must not be used again: pages that
 * name them are there, of logs as well.
 */
static void see_id(struct vs_ssd *s, uint32_t address, void *arg)
{
	(void)address;
	(void)arg;
	if (seen(s)->checkpoint > s->checkpoint_max)
		s->checkpoint_max = seen(s)->checkpoint;
}

struct newest {
	uint64_t below, best;
};

static void see_newest(struct vs_ssd *s, uint32_t address, void *arg)
{
	struct newest *n = arg;

	see_id(s, address, NULL);
	if (seen(s)->checkpoint < n->below && seen(s)->checkpoint > n->best &&
	    seen(s)->shape == vs_shape(s) && seen(s)->blocks == s->blocks &&
	    seen(s)->count == s->root_pages)
		n->best = seen(s)->checkpoint;
}

struct search {
	uint64_t root;		/* id of the root wanted */
	uint32_t pages;		/* of it found */
	uint64_t seq;		/* of the last of them */
};

static void take_entry(struct vs_ssd *s, uint32_t i, uint32_t entry)
{
	if (i < s->map_pages)
		s->map_at[i] = entry;
	else if (i - s->map_pages < s->hosts + s->banks)
		s->open_found[i - s->map_pages] = entry;
}

static void take_root(struct vs_ssd *s, uint32_t address, void *arg)
{
	struct search *search = arg;
	const uint32_t *entry = (const uint32_t *)(seen(s) + 1);
	uint32_t i, first;

	if (seen(s)->checkpoint != search->root ||
	    seen(s)->index >= s->root_pages)
		return;
	first = seen(s)->index * s->roots_per_page;
	for (i = 0; i < s->roots_per_page; i++)
		take_entry(s, first + i, entry[i]);
	s->block[address / s->c.geometry.pages].root = true;
	search->pages += !s->root_found[seen(s)->index];
	s->root_found[seen(s)->index] = 1;
	if (seen(s)->seq > search->seq)
		search->seq = seen(s)->seq;
}

/* The newest root of which all pages are there. */
static enum vs_status find_root(struct vs_ssd *s, vs_time now, vs_time *all)
{
	struct newest newest = { .below = UINT64_MAX };
	enum vs_status status;
	uint32_t i;

	status = visit_meta(s, VS_PAGE_MAP, now, all, see_id, NULL);
	while (status == VS_OK) {
		struct search search = { 0 };

		newest.best = 0;
		status = visit_meta(s, VS_PAGE_ROOT, now, all, see_newest,
				    &newest);
		if (status != VS_OK)
			return status;
		if (!newest.best)
			return VS_EMEDIA;
		search.root = newest.best;
		status = visit_meta(s, VS_PAGE_ROOT, now, all, take_root,
				    &search);
		s->since = search.seq;
		if (search.pages == s->root_pages)
			break;
		for (i = 0; i < s->blocks_all; i++)
			s->block[i].root = false;
		for (i = 0; i < s->root_pages; i++)
			s->root_found[i] = 0;
		newest.below = newest.best;
	}
	s->checkpoint = newest.best;
	return status;
}

static bool valid_slot(const struct vs_ssd *s, uint32_t slot)
{
	return !vs_mapped(slot) ||
	       slot < s->blocks_all * s->c.geometry.pages * s->slots;
}

/* A map page that the root names, as it should be. */
static enum vs_status load_map_page(struct vs_ssd *s, uint32_t index,
				    vs_time now, vs_time *all)
{
	uint32_t at = s->map_at[index], block = at / s->c.geometry.pages;
	enum vs_status status;

	if (s->block[block].state != VS_BLOCK_META)
		return VS_EMEDIA;
	status = load_meta(s, at, VS_PAGE_MAP, now, all);
	if (status == VS_OK && seen(s)->index != index)
		status = VS_EMEDIA;
	if (status == VS_OK)
		s->block[block].valid++;
	return status;
}

/* Blocks of a map page that is lost are, but for changes in logs. */
static enum vs_status load_map(struct vs_ssd *s, vs_time now, vs_time *all)
{
	const uint32_t *entry = (const uint32_t *)(seen(s) + 1);
	uint32_t i, k;

	for (i = 0; i < s->map_pages; i++) {
		enum vs_status status;

		if (s->map_at[i] / s->c.geometry.pages >= s->blocks_all)
			return VS_EMEDIA;
		status = load_map_page(s, i, now, all);
		if (status == VS_EPOWER)
			return status;
		if (status != VS_OK)
			s->map_at[i] = VS_NONE;
		for (k = 0; k < s->map_per_page; k++) {
			uint64_t lpn = (uint64_t)i * s->map_per_page + k;

			if (lpn >= s->blocks)
				break;
			s->map[lpn] = status == VS_OK ? entry[k] : VS_LOST;
			if (!valid_slot(s, s->map[lpn]))
				return VS_EMEDIA;
		}
	}
	return VS_OK;
}

/*
 * Keep the newest page of each log area that belongs to the root. All blocks
 * with pages of these logs stay, and so both copies.
 */
static void take_log(struct vs_ssd *s, uint32_t address, void *arg)
{
	const struct vs_meta *meta = seen(s);
	bool *root_lost = arg;
	struct vs_log *l;

	see_id(s, address, arg);
	if (meta->checkpoint > s->checkpoint)
		*root_lost = true;
	if (meta->checkpoint != s->checkpoint || meta->index >= s->logs ||
	    meta->count > s->log_entries)
		return;
	l = &s->log[meta->index];
	s->block[address / s->c.geometry.pages].root = true;
	if (l->count && l->seq >= meta->seq)
		return;
	l->seq = meta->seq;
	__builtin_memcpy(l->page, s->read_page, s->c.geometry.page_size);
	l->count = meta->count;
}

/* The logs of the root, or VS_EMEDIA: nobody knows what has been in them. */
static enum vs_status load_logs(struct vs_ssd *s, vs_time now, vs_time *all)
{
	enum vs_status status;
	bool root_lost = false;
	uint32_t i;

	status = visit_meta(s, VS_PAGE_LOG, now, all, take_log, &root_lost);
	for (i = 0; status == VS_OK && i < s->logs; i++) {
		if (s->log[i].lost > s->since &&
		    s->log[i].lost > s->log[i].seq)
			status = VS_EMEDIA;
	}
	return status == VS_OK && root_lost ? VS_EMEDIA : status;
}

/* The log area with the oldest change that is still to be applied, if any. */
static struct vs_log *next_log(struct vs_ssd *s)
{
	struct vs_log *next = NULL;
	uint32_t i;

	for (i = 0; i < s->logs; i++) {
		struct vs_log *l = &s->log[i];

		if (l->durable < l->count &&
		    (!next || l->entry[l->durable].order <
			      next->entry[next->durable].order))
			next = l;
	}
	return next;
}

/* False if the change is none of this device. */
static bool apply_entry(struct vs_ssd *s, const struct vs_log_entry *e)
{
	uint32_t blocks = vs_entry_blocks(e), i;

	if (e->lpn >= s->blocks || blocks > s->blocks - e->lpn)
		return false;
	if (!(e->slot & VS_TRIM) && !valid_slot(s, e->slot))
		return false;
	for (i = e->lpn; i < e->lpn + blocks; i++) {
		s->map[i] = e->slot & VS_TRIM ? VS_NONE : e->slot;
		s->dirty[i / s->map_per_page] = 1;
	}
	s->stats.replayed++;
	return true;
}

/* Merge the log areas and the pages without, each of which is in order already. */
static enum vs_status replay(struct vs_ssd *s, vs_time now, vs_time *all)
{
	uint32_t page = 0;

	for (;;) {
		struct vs_log *next = next_log(s);
		enum vs_status status = VS_OK;

		if (page < s->founds && (!next || s->found[page].seq - s->since <
					 next->entry[next->durable].order)) {
			status = vs_forward_apply(s, &s->found[page++], now,
						  all);
			if (status != VS_OK)
				return status;
			continue;
		}
		if (!next)
			return VS_OK;
		if (!apply_entry(s, &next->entry[next->durable++]))
			return VS_EMEDIA;
	}
}

/* Blocks that nothing found points to are free, the others closed. */
static enum vs_status sort_blocks(struct vs_ssd *s)
{
	uint32_t i;

	for (i = 0; i < s->blocks_all; i++) {
		struct vs_block *b = &s->block[i];

		if (b->state == VS_BLOCK_META && !b->valid && !b->root)
			b->state = VS_BLOCK_FREE;
	}
	for (i = 0; i < s->blocks; i++) {
		uint32_t block = vs_block_of(s, s->map[i]);
		struct vs_block *b = &s->block[block];

		s->stats.lost_blocks += s->map[i] == VS_LOST;
		if (!vs_mapped(s->map[i]))
			continue;
		if (b->state == VS_BLOCK_META)
			return VS_EMEDIA;
		if (b->state == VS_BLOCK_FREE)
			b->state = VS_BLOCK_DATA;
		b->valid++;
		s->live[s->map[i] / s->slots]++;
		s->lane[vs_lane_of(s, block)].valid++;
	}
	/* What has been rolled forward from stays until there is a checkpoint. */
	for (i = 0; i < s->blocks_all; i++) {
		if (s->block[i].state == VS_BLOCK_FREE && s->block[i].copies)
			s->block[i].state = VS_BLOCK_DATA;
		vs_block_pending(s, i);
	}
	vs_count_free(s);
	return VS_OK;
}

struct vs_result vs_mount(struct vs_ssd **out, void *mem,
			  const struct vs_config *c,
			  const struct vs_nand_ops *ops, void *ctx, vs_time now)
{
	struct vs_ssd *s = vs_prepare(mem, c, ops, ctx);
	vs_time all = now;
	enum vs_status status;

	*out = s;
	if (!s)
		return (struct vs_result){ VS_EINVAL, now };
	status = scan_blocks(s, now, &all);
	if (status == VS_OK)
		status = find_root(s, now, &all);
	if (status == VS_OK)
		status = load_map(s, now, &all);
	if (status == VS_OK)
		status = load_logs(s, now, &all);
	if (status == VS_OK)
		status = vs_forward_find(s, now, &all);
	if (status == VS_OK)
		status = replay(s, now, &all);
	if (status == VS_OK)
		status = sort_blocks(s);
	if (status != VS_OK)
		return (struct vs_result){ status, all };
	s->placement->found(s);
	/* No page that has not been seen goes beyond this. */
	s->seq += SEQ_MARGIN;
	return vs_begin(s, all);
}
