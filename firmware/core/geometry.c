// SPDX-License-Identifier: Apache-2.0
/*
 * How large everything is, and where it lies in the caller's memory.
 *
 * The capacity shown is what can be kept with every block of it written: of
 * each lane, what metadata, bad blocks and frontiers do not take, less what
 * garbage collection needs to gain at least a page with each victim.
 */
#include "internal.h"

#define ALIGN 16u
/* Pages without log pages between two checkpoints; 16 bytes each. */
#define SYNC_MAX 2048u

/* One allocator for measuring (@mem NULL) and for doing. */
struct arena {
	uint8_t *mem;
	uint64_t used;		/* may be more than there are addresses */
};

static void *carve(struct arena *a, uint64_t n, size_t size)
{
	void *p = a->mem ? a->mem + a->used : NULL;

	a->used += (n * size + ALIGN - 1) / ALIGN * ALIGN;
	return p;
}

static bool within(uint32_t value, uint32_t low, uint32_t high)
{
	return value >= low && value <= high;
}

static bool check(const struct vs_config *c)
{
	const struct vs_geometry *g = &c->geometry;
	uint64_t slots;

	if (!within(g->channels, 1, 32) || !within(g->ways, 1, 64) ||
	    !within(g->blocks, 4, 1u << 20) || !within(g->pages, 4, 4096) ||
	    g->pages % 2 || g->page_size % VS_BLOCK ||
	    !within(g->page_size / VS_BLOCK, 1, 32))
		return false;
	slots = (uint64_t)g->channels * g->ways * g->blocks * g->pages *
		(g->page_size / VS_BLOCK);
	return slots <= VS_TRIM && within(c->lanes, 1, g->channels) &&
	       within(c->max_tags, 1, VS_MAX_TAGS) &&
	       within(c->meta_stripe, 1, g->channels / c->lanes * g->ways) &&
	       within(c->spare_percent, 0, 90) &&
	       within(c->idle_percent, 0, 99) && c->gc_pages &&
	       within(c->mapping, VS_MAP_PAGE, VS_MAP_FAST) &&
	       within(c->sync_pages, 0, 32) &&
	       within(c->handles, 0,
		      c->mapping == VS_MAP_FAST ? 1 : VS_HANDLES) &&
	       within(c->sync_copies, c->sync_pages ? 1 : 0, 2) &&
	       c->buffer_blocks >= 2 * (g->page_size / VS_BLOCK) &&
	       within(c->buffer_blocks, 2, 1u << 24);
}

/*
 * Room for metadata. A checkpoint can always be written next to all that is
 * still needed: meta_need blocks for one, twice that to be able to move map
 * pages together, and the blocks that are open.
 */
static void size_metadata(struct vs_ssd *s)
{
	const struct vs_geometry *g = &s->c.geometry;
	uint32_t payload = g->page_size - sizeof(struct vs_meta);
	/* Log pages use LSB pages only, as their data must not be lost. */
	uint32_t usable = g->paired ? g->pages / 2 : g->pages;
	uint32_t open = s->c.lanes * s->stripe;
	uint32_t all = s->blocks_all * g->pages * s->slots;

	s->map_per_page = payload / sizeof(uint32_t);
	s->map_pages = (all + s->map_per_page - 1) / s->map_per_page;
	s->roots_per_page = payload / sizeof(uint32_t);
	/* It also lists the blocks that are open. */
	s->root_pages = (s->map_pages + s->hosts + s->banks +
			 s->roots_per_page - 1) / s->roots_per_page;
	s->log_entries = payload / sizeof(struct vs_log_entry);
	if (s->c.log_entries && s->c.log_entries < s->log_entries)
		s->log_entries = s->c.log_entries;
	s->logs = s->c.max_tags + 1;
	s->gc_log = s->c.max_tags;
	s->meta_need = (s->map_pages + 2 * s->root_pages + usable - 1) / usable +
		       open + 2;
	s->meta_blocks = 3 * s->meta_need + open;
}

/* Pages since the checkpoint that recovery can sort in its memory. */
static void size_sync(struct vs_ssd *s)
{
	uint32_t pages = s->blocks_all * s->c.geometry.pages;

	if (s->c.personality != VS_TAGGED || s->c.mapping != VS_MAP_PAGE)
		s->c.sync_pages = 0;
	if (s->c.sync_pages)
		s->sync_max = pages / 4 < SYNC_MAX ? pages / 4 : SYNC_MAX;
}

static bool size_lane(struct vs_ssd *s, uint32_t i)
{
	const struct vs_geometry *g = &s->c.geometry;
	struct vs_lane lane = { 0 };
	uint32_t channel, blocks, reserved, margin = g->paired ? 5 : 1;

	for (channel = 0; channel < g->channels; channel++) {
		if (channel * s->c.lanes / g->channels != i)
			continue;
		if (!lane.banks)
			lane.first_bank = channel * g->ways;
		lane.banks += g->ways;
	}
	blocks = lane.banks * g->blocks;
	lane.meta_share = ((uint64_t)s->meta_blocks * blocks +
			   s->blocks_all - 1) / s->blocks_all;
	/* Frontiers of the host and of collection, reserve, blocks kept free. */
	reserved = lane.meta_share + s->c.bad_blocks +
		(s->c.handles + 1) * lane.banks +
		VS_GC_RESERVE + 1 + VS_GC_FREE * lane.banks;
	if (blocks < reserved + 2 || g->pages <= margin)
		return false;
	lane.quota = (uint64_t)(blocks - reserved) * (g->pages - margin) *
		     s->slots * (100 - s->c.spare_percent) / 100;
	if (s->lane)
		s->lane[i] = lane;
	s->blocks += lane.quota;
	return lane.quota;
}

static void carve_logs(struct vs_ssd *s, struct arena *a)
{
	uint32_t i;

	s->log = carve(a, s->logs, sizeof(*s->log));
	for (i = 0; i < s->logs; i++) {
		uint8_t *page = carve(a, 1, s->c.geometry.page_size);
		uint32_t *old = carve(a, s->log_entries, sizeof(*old));

		if (!a->mem)
			continue;
		s->log[i].page = page;
		s->log[i].entry = (void *)(page + sizeof(struct vs_meta));
		s->log[i].old = old;
		s->log[i].lane = VS_LANE_ANY;
		s->log[i].head = VS_NONE;
		s->log[i].tail = VS_NONE;
	}
}

static void carve_buffers(struct vs_ssd *s, struct arena *a)
{
	size_t page = s->c.geometry.page_size, oob = VS_OOB_SIZE(page);
	uint32_t hash = 1;

	while (hash < s->c.buffer_blocks)
		hash *= 2;
	s->hash_mask = hash - 1;
	s->hash = carve(a, hash, sizeof(*s->hash));
	s->entry = carve(a, s->c.buffer_blocks, sizeof(*s->entry));
	s->data = carve(a, s->c.buffer_blocks, VS_BLOCK);
	s->page = carve(a, 1, page);
	s->read_page = carve(a, 1, page);
	s->stage = carve(a, 1, page);
	s->meta_page = carve(a, 1, page);
	s->oob = carve(a, 1, oob);
	s->read_oob = carve(a, 1, oob);
	s->stage_oob = carve(a, 1, oob);
	s->meta_oob = carve(a, 1, oob);
}

static void carve_kept(struct vs_ssd *s, struct arena *a,
		       struct vs_frontier *first, uint32_t n)
{
	size_t size = s->c.geometry.page_size + VS_OOB_SIZE(s->c.geometry.page_size);
	uint32_t i;

	for (i = 0; i < 2 * n; i++) {
		uint8_t *page = carve(a, 1, size);

		if (a->mem)
			first[i / 2].kept[i % 2] = page;
	}
}

/* Copies of pages of which the other half of the word line is to come. */
static void carve_pairs(struct vs_ssd *s, struct arena *a)
{
	uint32_t i;

	carve_kept(s, a, s->host, s->hosts);
	carve_kept(s, a, s->meta, s->c.lanes * s->stripe);
	for (i = 0; i < s->banks; i++)
		carve_kept(s, a, a->mem ? &s->bank[i].to : NULL, 1);
	for (i = 0; i < VS_RESCUES; i++) {
		s->rescue[i].page = carve(a, 1, s->c.geometry.page_size);
		s->rescue[i].oob = carve(a, 1, VS_OOB_SIZE(s->c.geometry.page_size));
	}
}

/**
 * vs_lay_out - check a configuration, compute sizes, point into the memory
 * @s: zeroed; its sizes are set, its pointers only if @mem is given
 * @c: the configuration
 * @mem: zeroed memory, aligned to 16; NULL: measure only
 * @size: bytes needed
 *
 * Return: false when no device can be made of @c.
 */
bool vs_lay_out(struct vs_ssd *s, const struct vs_config *c, uint8_t *mem,
		size_t *size)
{
	struct arena a = { .mem = mem };
	uint32_t i;

	if (!check(c))
		return false;
	s->c = *c;
	s->c.handles = c->handles ? c->handles : 1;
	s->banks = c->geometry.channels * c->geometry.ways;
	s->slots = c->geometry.page_size / VS_BLOCK;
	s->blocks_all = s->banks * c->geometry.blocks;
	/* Two, for the two copies of a page. */
	s->stripe = c->meta_stripe > 1 ? c->meta_stripe : 2;
	s->hosts = c->mapping == VS_MAP_FAST ? VS_FAST_FRONTIERS :
					       s->c.handles * s->banks;
	size_metadata(s);
	size_sync(s);
	s->lane = carve(&a, c->lanes, sizeof(*s->lane));
	for (i = 0; i < c->lanes; i++) {
		if (!size_lane(s, i))
			return false;
	}
	s->placement = c->mapping == VS_MAP_FAST ? &vs_fast_mapping :
						   &vs_page_mapping;
	if (!s->placement->size(s))
		return false;
	s->block = carve(&a, s->blocks_all, sizeof(*s->block));
	s->host = carve(&a, s->hosts, sizeof(*s->host));
	s->meta = carve(&a, c->lanes * s->stripe, sizeof(*s->meta));
	s->bank = carve(&a, s->banks, sizeof(*s->bank));
	s->map = carve(&a, s->blocks, sizeof(*s->map));
	s->map_at = carve(&a, s->map_pages, sizeof(*s->map_at));
	s->map_new = carve(&a, s->map_pages, sizeof(*s->map_new));
	s->dirty = carve(&a, s->map_pages, 1);
	s->root_found = carve(&a, s->root_pages, 1);
	s->open_found = carve(&a, s->hosts + s->banks, sizeof(*s->open_found));
	s->found = carve(&a, s->sync_max, sizeof(*s->found));
	s->live = carve(&a, (size_t)s->blocks_all * c->geometry.pages, 1);
	carve_logs(s, &a);
	carve_buffers(s, &a);
	if (c->geometry.paired)
		carve_pairs(s, &a);
	*size = (size_t)a.used;
	/* No object may be larger. */
	return a.used <= PTRDIFF_MAX;
}
