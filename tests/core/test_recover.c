// SPDX-License-Identifier: GPL-2.0
/*
 * A cache that writes, destages, and loses power at any write, also during recovery.
 * An oracle checks that each sector holds the last completed write, or one that was
 * in flight, as a whole. See writer.h, and warm.h for promoted blocks.
 */
#include "warm.h"
#include "writer.h"

struct shape {
	u32 chunk_blocks;
	u32 chunks;	/* for data */
	u32 tags;
	u32 entries;
	u32 apart;
};

static unsigned long reclaims, reseals, warmed, early, recoveries;

static void pool_init(struct writer *w, const struct shape *shape,
		      uint64_t seed)
{
	u32 meta = 2 * ((66 + shape->chunk_blocks - 1) / shape->chunk_blocks);
	u64 blocks = (u64)(meta + shape->chunks) * shape->chunk_blocks;
	static const u8 uuid[16];
	u32 i;

	memset(w, 0, sizeof(*w));
	w->rng = seed * 0xd1342543de82ef95ULL + 1;
	disk_init(&w->d, blocks, seed);
	w->st = disk_store(&w->d);
	CHECK(!vcache_geometry_set(&w->g, KEY, shape->chunk_blocks, blocks));
	CHECK(w->g.chunks <= CHUNKS);
	w->tags = shape->tags;
	w->entries = shape->entries;
	w->apart = shape->apart;
	w->table = calloc(1, VC_BLOCK_SIZE);
	w->super = calloc(1, VC_BLOCK_SIZE);
	w->work = malloc(vcache_replay_work_size(&w->g));
	w->origin = calloc(ORIGIN, VC_BLOCK_SIZE);
	w->ix.cells = blocks;
	w->ix.buckets = vcache_index_buckets(blocks);
	w->ix.where = calloc(blocks, sizeof(u64));
	w->ix.next = calloc(blocks, sizeof(u16));
	w->ix.slot = calloc(w->g.chunks, sizeof(u16));
	w->ix.chunk_cells = shape->chunk_blocks;
	w->ix.head = calloc(w->ix.buckets, sizeof(u32));
	vcache_index_init(&w->ix);
	for (i = 0; i < CHUNKS; i++)
		w->chunk[i].e = calloc(vcache_seal_capacity(&w->g),
				       sizeof(struct vcache_entry));
	CHECK(!vcache_pool_format(&w->st, &w->g, uuid, w->super));
}

static void pool_free(struct writer *w)
{
	u32 i;

	w->d.dead = true;
	lose(w);
	for (i = 0; i < CHUNKS; i++)
		free(w->chunk[i].e);
	free(w->d.data);
	free(w->table);
	free(w->super);
	free(w->work);
	free(w->origin);
	free(w->ix.where);
	free(w->ix.next);
	free(w->ix.head);
	free(w->ix.slot);
	reclaims += w->reclaims;
	reseals += w->reseals;
	warmed += w->warmed;
	early += w->early;
}

/* Load the metadata. Return: false when the power has failed. */
static bool load_meta(struct writer *w, bool readonly)
{
	u8 spare[VC_BLOCK_SIZE];
	int bad;

	bad = vcache_super_load(&w->st, w->d.blocks, &w->g, &w->sb, w->super,
				spare);
	CHECK(bad >= 0);
	if (!readonly && vcache_meta_repair(&w->st, &w->g, VC_META_SUPER, 0,
					    w->super, bad))
		return false;
	bad = vcache_meta_load(&w->st, &w->g, VC_META_TABLE, 0, w->table, spare);
	CHECK(bad >= 0);
	return readonly || !vcache_meta_repair(&w->st, &w->g, VC_META_TABLE, 0,
					       w->table, bad);
}

static void see(struct writer *w, u64 seq)
{
	if (seq >= w->next_seq)
		w->next_seq = seq + 1;
}

/* Fill in found and the index. Return: false when the power has failed. */
static bool replay(struct writer *w, bool readonly)
{
	struct vcache_replay rp = { .st = &w->st, .g = &w->g, .ix = &w->ix,
				.chunk = w->found, .slot = SLOT,
				.work = w->work, .readonly = readonly,
				.limit = ORIGIN };
	u32 list[CHUNKS], n = 0, c, i;
	u8 block[VC_BLOCK_SIZE];

	vcache_index_init(&w->ix);
	for (c = w->g.first_chunk; c < w->g.chunks; c++) {
		u64 dead = le64_to_cpu(table_entry(w, c)->dead);

		see(w, dead);
		CHECK(!vcache_chunk_scan(&w->st, &w->g, c, dead, block,
					 &w->found[c]));
		if (!w->found[c].gen)
			continue;
		CHECK(w->found[c].volume == VOLUME);
		list[n++] = c;
	}
	vcache_chunks_sort(list, n, w->found);
	for (i = 0; i < n; i++) {
		CHECK(!i || w->found[list[i]].gen > w->found[list[i - 1]].gen);
		if (vcache_replay_chunk(&rp, list[i])) {
			CHECK(w->d.dead && !readonly);
			return false;
		}
		see(w, w->found[list[i]].last);
	}
	vcache_replay_finish(&rp, list, n);
	CHECK(!rp.errors);
	return true;
}

static bool recover(struct writer *w)
{
	u32 c;

	w->next_seq = VC_SEQ_FIRST;
	if (!load_meta(w, false) || !replay(w, false))
		return false;
	see(w, w->sb.next_seq);
	w->next_seq += 1ULL << 32;
	w->sb.next_seq = w->next_seq;
	if (vcache_super_save(&w->st, &w->g, &w->sb, w->super))
		return false;
	for (c = w->g.first_chunk; c < w->g.chunks; c++) {
		w->chunk[c].state = w->found[c].gen ? SEALED : FREE;
		w->chunk[c].outstanding = 0;
	}
	recoveries++;
	return true;
}

/* The content of all cells: slot (16 bits), block (40), sectors (8); 0: empty. */
static u64 *cells_of(const struct vcache_index *ix)
{
	u64 *cells = calloc(ix->cells, sizeof(u64));
	u32 i;

	for (i = 0; i < ix->cells; i++) {
		if (vcache_cell_mask(ix, i))
			cells[i] = (u64)vcache_cell_slot(ix, i) << 48 |
				   vcache_cell_block(ix, i) << 8 | vcache_cell_mask(ix, i);
	}
	return cells;
}

/* The index contains what these cells do. */
static bool has_cells(const struct vcache_index *ix, const u64 *cells)
{
	u64 *own = cells_of(ix);
	bool same = !memcmp(own, cells, ix->cells * sizeof(u64));

	free(own);
	return same;
}

/* The content that recovery finds; nothing of @w is changed. */
static u64 *what_recovers(struct writer *w, bool readonly)
{
	struct writer *copy = malloc(sizeof(*copy));
	unsigned long writes = w->d.writes;
	struct vcache_index *ix = &copy->ix;
	u64 *cells;

	memcpy(copy, w, sizeof(*copy));
	ix->where = malloc(ix->cells * sizeof(u64));
	ix->next = malloc(ix->cells * sizeof(u16));
	ix->head = malloc(ix->buckets * sizeof(u32));
	ix->slot = calloc(w->g.chunks, sizeof(u16));
	CHECK(load_meta(copy, readonly));
	CHECK(replay(copy, readonly));
	CHECK(!readonly || copy->d.writes == writes);
	w->d.writes = copy->d.writes;
	cells = cells_of(ix);
	free(ix->where);
	free(ix->next);
	free(ix->head);
	free(ix->slot);
	free(copy);
	return cells;
}

/* The power is back; it may fail again after @again writes. */
static void come_back(struct writer *w, unsigned long again)
{
	u64 *first, *second;

	lose(w);
	w->d.dead = false;
	w->d.crash_at = again ? w->d.writes + again : 0;
	while (!recover(w)) {
		CHECK(w->d.dead);
		w->d.dead = false;
		w->d.crash_at = again > 1 && check_below(&w->d.rng, 2) ?
				w->d.writes + 1 + check_below(&w->d.rng, 6) : 0;
	}
	w->d.crash_at = 0;
	check_recovered(w);
	first = what_recovers(w, true);
	CHECK(has_cells(&w->ix, first));
	second = what_recovers(w, false);
	CHECK(!memcmp(first, second, w->ix.cells * sizeof(u64)));
	free(first);
	free(second);
}

/* Read without changes, while records are in flight. */
static void check_readonly(struct writer *w)
{
	u8 *before = malloc(w->d.blocks * VC_BLOCK_SIZE);
	u64 *cells;

	memcpy(before, w->d.data, w->d.blocks * VC_BLOCK_SIZE);
	cells = what_recovers(w, true);
	CHECK(!memcmp(before, w->d.data, w->d.blocks * VC_BLOCK_SIZE));
	free(cells);
	free(before);
}

/* All is sealed: what recovers is what was there, with what was read. */
static void check_shut_down(struct writer *w)
{
	u64 *cells = what_recovers(w, true);

	CHECK(has_cells(&w->ix, cells));
	free(cells);
}

static void step(struct writer *w)
{
	u32 tag = below(w, w->tags);
	u32 c = w->g.first_chunk + below(w, w->g.chunks - w->g.first_chunk);

	switch (below(w, 16)) {
	case 0:
		if (w->chunk[c].state == OPEN && !below(w, 4))
			w->chunk[c].state = CLOSED;
		break;
	case 1:
	case 2:
		seal(w, c);
		break;
	case 3:
		/* The chunks of one log get old. */
		if (tag || !below(w, 16))
			reclaim_oldest(w, tag);
		break;
	case 4:
		if (w->chunk[c].state == SEALED && !below(w, 16))
			reseal(w, c);
		break;
	case 5:
	case 6:
	case 7:
	case 8:
	case 9:
		submit(w, tag);
		break;
	case 10:
		check_running(w, below(w, SECTORS));
		if (!below(w, 8) && warm(w, tag))
			check_shut_down(w);
		if (!below(w, 4))
			reclaim_warm(w, c);
		break;
	default:
		progress(w, &w->log[tag]);
	}
}

static void run(struct writer *w, unsigned int steps)
{
	while (steps-- && !w->d.dead)
		step(w);
}

static void garbage(struct writer *w, u64 block, u32 blocks)
{
	u8 *at = disk_at(&w->d, block);
	size_t i;

	for (i = 0; i < (size_t)blocks * VC_BLOCK_SIZE; i += 8) {
		u64 word = check_next(&w->rng);

		memcpy(at + i, &word, 8);
	}
}

/* A log is destroyed: the last writes of the others are still read. */
static void check_destroyed(struct writer *w)
{
	size_t bytes = w->d.blocks * VC_BLOCK_SIZE;
	u8 *saved = malloc(bytes);
	u16 tag = below(w, w->tags);
	u32 c, s;

	memcpy(saved, w->d.data, bytes);
	for (c = w->g.first_chunk; c < w->g.chunks; c++) {
		if (w->found[c].gen && w->found[c].tag == tag)
			garbage(w, (u64)c * w->g.chunk_blocks,
				w->g.chunk_blocks);
	}
	CHECK(replay(w, true));
	for (s = 0; s < SECTORS; s++) {
		if (w->sector[s].tag != tag)
			check_running(w, s);
	}
	memcpy(w->d.data, saved, bytes);
	free(saved);
	CHECK(replay(w, true));
}

/* One copy of each seal is damaged: nothing changes. */
static void check_seal_copies(struct writer *w)
{
	size_t bytes = w->d.blocks * VC_BLOCK_SIZE;
	u8 *saved = malloc(bytes);
	u64 *cells;
	u32 c;

	memcpy(saved, w->d.data, bytes);
	for (c = w->g.first_chunk; c < w->g.chunks; c++) {
		struct vcache_seal s;
		u32 copy = below(w, 2);

		if (!w->found[c].gen)
			continue;
		CHECK(vcache_seal_load(&w->st, &w->g, c, w->found[c].gen, w->work,
				       &s));
		/* The older one is already unusable. */
		if (s.bad)
			copy = s.bad >> 1;
		garbage(w, (u64)c * w->g.chunk_blocks +
			vcache_seal_place(&w->g, copy) +
			below(w, w->g.seal_blocks), 1);
	}
	cells = what_recovers(w, true);
	CHECK(has_cells(&w->ix, cells));
	free(cells);
	memcpy(w->d.data, saved, bytes);
	free(saved);
}

static struct writer *w;

static void rounds(const struct shape *shape, uint64_t seed, u32 n)
{
	u32 i;

	pool_init(w, shape, seed);
	come_back(w, 0);
	for (i = 0; i < n; i++) {
		if (check_below(&w->d.rng, 4))
			w->d.crash_at = w->d.writes + 1 +
					check_below(&w->d.rng, 60);
		run(w, 50 + below(w, 400));
		if (!below(w, 4))
			check_readonly(w);
		come_back(w, check_below(&w->d.rng, 2) *
			  (1 + check_below(&w->d.rng, 12)));
		if (i % 4 == 0)
			check_destroyed(w);
		if (i % 4 == 1)
			check_seal_copies(w);
	}
	pool_free(w);
}

static void test_random(uint64_t seed)
{
	const struct shape shape = {
		.chunk_blocks = 16, .chunks = 6 + seed % 9,
		.tags = 2 + seed % 3, .entries = 1 + seed % 5,
		.apart = 1 << seed % 6 };

	rounds(&shape, seed, 12);
}

/* Seals of two blocks. */
static void test_large(uint64_t seed)
{
	const struct shape shape = {
		.chunk_blocks = 512, .chunks = 5, .tags = 2, .entries = 40,
		.apart = 2 };

	rounds(&shape, seed, 5);
}

/* The same short run, with a crash at each of its writes. */
static void test_each_write(uint64_t seed)
{
	const struct shape shape = {
		.chunk_blocks = 16, .chunks = 7, .tags = 2, .entries = 3,
		.apart = 8 };
	unsigned long at;
	bool crashed;

	for (at = 1, crashed = true; crashed; at++) {
		pool_init(w, &shape, seed);
		come_back(w, 0);
		w->d.crash_at = w->d.writes + at;
		run(w, 600);
		crashed = w->d.dead;
		come_back(w, at % 3 ? 1 + at % 7 : 0);
		run(w, 100);
		come_back(w, 0);
		pool_free(w);
	}
	CHECK(at > 100);
}

int main(int argc, char **argv)
{
	w = malloc(sizeof(*w));
	check_seeds(argc, argv, 100, test_random);
	check_seeds(argc, argv, 3, test_each_write);
	check_seeds(argc, argv, 4, test_large);
	/* Otherwise nothing was tested. */
	CHECK(argc > 1 || (reclaims > 500 && reseals > 500 && warmed > 500 &&
			   early > 50));
	printf("%lu recoveries, %lu chunks reclaimed, %lu sealed again, %lu of reads, %lu early\n",
	       recoveries, reclaims, reseals, warmed, early);
	free(w);
	return 0;
}
