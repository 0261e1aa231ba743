// SPDX-License-Identifier: Apache-2.0
/*
 * Checkpoints of the map.
 *
 * All map pages that have changed go to new places, then the root, which lists
 * the places of all map pages. The checkpoint exists when each page of the
 * root is there; until then the one before does, with its logs, and nothing of
 * it has been erased. Afterwards all logs are void.
 */
#include "internal.h"

#include "crc32c.h"

/**
 * vs_shape - checksum of what the NAND's content depends on
 * @s: the device
 */
uint32_t vs_shape(const struct vs_ssd *s)
{
	const struct vs_geometry *g = &s->c.geometry;
	uint32_t shape[] = {
		g->channels, g->ways, g->blocks, g->pages, g->page_size,
		g->paired | (uint32_t)s->c.mapping << 1, s->c.lanes,
		s->c.max_tags, s->log_entries, s->sync_max, s->c.handles,
	};

	return vs_crc32c(0, shape, sizeof(shape));
}

/**
 * vs_meta_tight - is it time for a checkpoint, to get blocks back?
 * @s: the device
 *
 * Return: true when a whole one would just fit.
 */
bool vs_meta_tight(const struct vs_ssd *s)
{
	return vs_meta_room(s) < s->meta_need + 1;
}

/* The metadata block opened first that has live map pages not yet dirty. */
static uint32_t oldest_live(const struct vs_ssd *s)
{
	uint32_t i, best = VS_NONE;

	for (i = 0; i < s->map_pages; i++) {
		uint32_t block = s->map_at[i] / s->c.geometry.pages;

		if (s->map_at[i] == VS_NONE || s->dirty[i])
			continue;
		if (best == VS_NONE ||
		    s->block[block].opened < s->block[best].opened)
			best = block;
	}
	return best;
}

/* Blocks that a checkpoint of all dirty pages would set free. */
static uint32_t reclaimable(struct vs_ssd *s)
{
	uint32_t i, n = 0;

	for (i = 0; i < s->blocks_all; i++)
		s->block[i].keep = false;
	for (i = 0; i < s->map_pages; i++) {
		if (s->map_at[i] != VS_NONE && !s->dirty[i])
			s->block[s->map_at[i] / s->c.geometry.pages].keep = true;
	}
	for (i = 0; i < s->blocks_all; i++)
		n += s->block[i].state == VS_BLOCK_META && !s->block[i].keep;
	return n;
}

/*
 * When room is short, rewrite map pages that have not changed, those of the
 * oldest blocks first, until enough blocks get free. The map is in memory, so
 * nothing has to be read.
 */
static void move_together(struct vs_ssd *s)
{
	uint32_t room = vs_meta_room(s), i;

	while (room + reclaimable(s) < 2 * s->meta_need + 1) {
		uint32_t block = oldest_live(s);

		if (block == VS_NONE)
			return;
		for (i = 0; i < s->map_pages; i++) {
			if (s->map_at[i] != VS_NONE &&
			    s->map_at[i] / s->c.geometry.pages == block)
				s->dirty[i] = 1;
		}
	}
}

static void fill_map_page(struct vs_ssd *s, uint32_t index)
{
	struct vs_meta *meta = (struct vs_meta *)s->meta_page;
	uint32_t *entry = (uint32_t *)(meta + 1), i;

	*meta = (struct vs_meta){
		.type = VS_PAGE_MAP,
		.checkpoint = s->checkpoint_max,
		.index = index,
		.count = s->map_per_page,
	};
	for (i = 0; i < s->map_per_page; i++) {
		uint64_t lpn = (uint64_t)index * s->map_per_page + i;

		entry[i] = lpn < s->blocks ? s->map[lpn] : VS_NONE;
	}
}

/* Places of the map pages, then the blocks that data goes to. */
static uint32_t root_entry(const struct vs_ssd *s, uint32_t i)
{
	if (i < s->map_pages)
		return s->map_new[i];
	i -= s->map_pages;
	if (i < s->hosts)
		return s->host[i].block;
	return i - s->hosts < s->banks ? s->bank[i - s->hosts].to.block : VS_NONE;
}

static void fill_root(struct vs_ssd *s, uint32_t index)
{
	struct vs_meta *meta = (struct vs_meta *)s->meta_page;
	uint32_t *entry = (uint32_t *)(meta + 1), i;

	*meta = (struct vs_meta){
		.type = VS_PAGE_ROOT,
		.checkpoint = s->checkpoint_max,
		.index = index,
		.count = s->root_pages,
		.blocks = s->blocks,
		.shape = vs_shape(s),
	};
	for (i = 0; i < s->roots_per_page; i++)
		entry[i] = root_entry(s, index * s->roots_per_page + i);
}

/* The checkpoint exists: what only the one before needed is free. */
static void adopt(struct vs_ssd *s)
{
	uint32_t i;

	for (i = 0; i < s->map_pages; i++) {
		if (s->map_at[i] != VS_NONE)
			s->block[s->map_at[i] / s->c.geometry.pages].valid--;
		s->block[s->map_new[i] / s->c.geometry.pages].valid++;
		s->map_at[i] = s->map_new[i];
		s->dirty[i] = 0;
	}
	for (i = 0; i < s->logs; i++) {
		s->log[i].count = 0;
		s->log[i].durable = 0;
		s->log[i].unlogged = 0;
		s->log[i].sync = 0;
		s->log[i].full = false;
		s->log[i].lanes = 0;
		s->log[i].commit_done = s->commit_done;
	}
	s->full_logs = 0;
	s->syncs = 0;
	vs_trim_forget(s);
	for (i = 0; i < s->banks; i++)
		s->bank[i].copied = 0;
	s->checkpoint = s->checkpoint_max;
	for (i = 0; i < s->blocks_all; i++) {
		struct vs_block *b = &s->block[i];

		b->unsafe = 0;
		b->copies = 0;
		if (b->state == VS_BLOCK_META && !b->valid && !b->root) {
			s->lane[vs_lane_of(s, i)].meta--;
			b->state = VS_BLOCK_DATA;
		}
		vs_release(s, i);
	}
}

static enum vs_status write_map(struct vs_ssd *s, vs_time now, vs_time *all)
{
	uint32_t i;

	for (i = 0; i < s->map_pages; i++) {
		enum vs_status status;
		vs_time done;

		s->map_new[i] = s->map_at[i];
		if (!s->dirty[i] && s->map_at[i] != VS_NONE)
			continue;
		fill_map_page(s, i);
		status = vs_program_meta(s, i % s->c.lanes, now, s->meta_page,
					 &s->map_new[i], &done);
		if (status != VS_OK)
			return status;
		*all = vs_later(*all, done);
	}
	return VS_OK;
}

/**
 * vs_checkpoint - make the whole map durable
 * @s: the device
 * @now: time
 * @done: when it is
 *
 * Return: VS_OK, VS_EREADONLY when metadata has no room left, VS_EPOWER.
 */
enum vs_status vs_checkpoint(struct vs_ssd *s, vs_time now, vs_time *done)
{
	vs_time all = vs_later(now, s->data_done), root_done = 0;
	enum vs_status status;
	uint32_t i;

	if (vs_meta_tight(s))
		move_together(s);
	s->checkpoint_max++;
	status = write_map(s, now, &all);
	if (status != VS_OK)
		return status;
	/*
	 * One copy of the root may be there while the other is being programmed,
	 * which must not be on a word line with a map page.
	 */
	vs_mark_committed(s);
	for (i = 0; i < s->blocks_all; i++)
		s->block[i].root = false;
	for (i = 0; i < s->root_pages; i++) {
		uint32_t address[2];

		fill_root(s, i);
		status = vs_program_twice(s, i % s->c.lanes, all, s->meta_page,
					  address, done);
		if (status != VS_OK)
			return status;
		s->block[address[0] / s->c.geometry.pages].root = true;
		s->block[address[1] / s->c.geometry.pages].root = true;
		root_done = vs_later(root_done, *done);
	}
	*done = root_done;
	s->since = s->seq;
	s->root_done = root_done;
	s->commit_done = vs_later(s->commit_done, root_done);
	/* The root itself. */
	vs_mark_committed(s);
	s->stats.checkpoints++;
	adopt(s);
	return VS_OK;
}
