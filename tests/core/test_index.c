// SPDX-License-Identifier: GPL-2.0
/*
 * The index, compared with an array of the cell of each sector. The arrays have the
 * minimum size. Few buckets, and block numbers far apart, make chains with blocks
 * that do not belong together. Each cell is a chunk, so that it can have any volume.
 */
#include "check.h"
#include "../../native/core/index.h"

#define SLOTS 3
#define BLOCKS 20
#define CELLS 40

static const u16 slot_names[SLOTS] = { 0, 1, 0xffff };

struct model {
	struct vcache_index ix;
	u32 has[SLOTS][BLOCKS][VC_BLOCK_SECTORS];
	u64 names[BLOCKS];
	uint64_t rng;
};

static void model_init(struct model *m, uint64_t seed)
{
	unsigned int i, k, s;

	m->rng = seed;
	m->ix.cells = CELLS;
	m->ix.buckets = vcache_index_buckets(CELLS);
	m->ix.where = calloc(CELLS, sizeof(u64));
	m->ix.next = calloc(CELLS, sizeof(u16));
	m->ix.slot = calloc(CELLS, sizeof(u16));
	m->ix.chunk_cells = 1;
	m->ix.head = calloc(m->ix.buckets, sizeof(u32));
	vcache_index_init(&m->ix);
	for (i = 0; i < BLOCKS; i++) {
		m->names[i] = i < BLOCKS / 2 ? i : VC_WHERE_BLOCK_MAX - 16 * i;
		for (k = 0; k < SLOTS; k++) {
			for (s = 0; s < VC_BLOCK_SECTORS; s++)
				m->has[k][i][s] = VC_CELL_NONE;
		}
	}
}

static void model_free(struct model *m)
{
	free(m->ix.where);
	free(m->ix.next);
	free(m->ix.head);
	free(m->ix.slot);
}

static void model_forget(struct model *m, u32 cell)
{
	u32 *has = &m->has[0][0][0];
	unsigned int i;

	for (i = 0; i < SLOTS * BLOCKS * VC_BLOCK_SECTORS; i++) {
		if (has[i] == cell)
			has[i] = VC_CELL_NONE;
	}
}

/* The sectors of a block that a cell has, by the model. */
static u8 model_mask(const u32 *has, u32 cell)
{
	u8 mask = 0;
	int s;

	for (s = 0; s < (int)VC_BLOCK_SECTORS; s++)
		mask |= (has[s] == cell) << s;
	return mask;
}

static void check_block(struct model *m, unsigned int k, unsigned int i)
{
	const u32 *has = m->has[k][i];
	int s;

	for (s = 0; s < (int)VC_BLOCK_SECTORS; s++) {
		u32 cell = vcache_index_find(&m->ix, slot_names[k], m->names[i],
					     1 << s);

		CHECK(cell == has[s]);
		if (cell == VC_CELL_NONE)
			continue;
		CHECK(vcache_cell_slot(&m->ix, cell) == slot_names[k]);
		CHECK(vcache_cell_block(&m->ix, cell) == m->names[i]);
		CHECK(vcache_cell_mask(&m->ix, cell) == model_mask(has, cell));
	}
	/* Sectors in the index and those not in it are all sectors. */
	CHECK(vcache_index_held(&m->ix, slot_names[k], m->names[i]) +
	      model_mask(has, VC_CELL_NONE) == VC_MASK_ALL);
}

static void check_model(struct model *m)
{
	bool used[CELLS] = { 0 };
	unsigned int k, i, s;
	u32 c;

	for (k = 0; k < SLOTS; k++) {
		for (i = 0; i < BLOCKS; i++) {
			check_block(m, k, i);
			for (s = 0; s < VC_BLOCK_SECTORS; s++) {
				if (m->has[k][i][s] != VC_CELL_NONE)
					used[m->has[k][i][s]] = true;
			}
		}
	}
	for (c = 0; c < CELLS; c++)
		CHECK(used[c] == !!vcache_cell_mask(&m->ix, c));
}

static void do_cut(struct model *m, unsigned int k, unsigned int i, u8 mask)
{
	u32 touched[VC_CELLS_PER_BLOCK];
	u32 *has = m->has[k][i];
	unsigned int n, t, s, expected = 0;

	for (s = 0; s < VC_BLOCK_SECTORS; s++) {
		if (!(mask >> s & 1) || has[s] == VC_CELL_NONE)
			continue;
		/* Count each cell at its first sector that is cut. */
		if (!(model_mask(has, has[s]) & mask & ((1 << s) - 1)))
			expected++;
	}
	n = vcache_index_cut(&m->ix, slot_names[k], m->names[i], mask, touched);
	CHECK(n == expected);
	for (t = 0; t < n; t++)
		CHECK(model_mask(has, touched[t]) & mask);
	for (s = 0; s < VC_BLOCK_SECTORS; s++) {
		if (mask >> s & 1)
			has[s] = VC_CELL_NONE;
	}
}

static void do_put(struct model *m, unsigned int k, unsigned int i, u8 mask)
{
	u32 cell = check_below(&m->rng, CELLS);
	unsigned int s;

	vcache_index_drop(&m->ix, cell);
	model_forget(m, cell);
	do_cut(m, k, i, mask);
	vcache_index_put(&m->ix, cell, slot_names[k], m->names[i], mask);
	for (s = 0; s < VC_BLOCK_SECTORS; s++) {
		if (mask >> s & 1)
			m->has[k][i][s] = cell;
	}
}

static void check_find(struct model *m, unsigned int k, unsigned int i,
		       u8 mask)
{
	u32 cell = vcache_index_find(&m->ix, slot_names[k], m->names[i], mask);
	const u32 *has = m->has[k][i];
	unsigned int s;

	if (cell != VC_CELL_NONE) {
		CHECK(model_mask(has, cell) & mask);
		return;
	}
	for (s = 0; s < VC_BLOCK_SECTORS; s++)
		CHECK(!(mask >> s & 1) || has[s] == VC_CELL_NONE);
}

static void test_random(uint64_t seed)
{
	struct model m;
	int step;

	model_init(&m, seed);
	for (step = 0; step < 400; step++) {
		unsigned int k = check_below(&m.rng, SLOTS);
		unsigned int i = check_below(&m.rng, BLOCKS);
		u8 mask = 1 + check_below(&m.rng, VC_MASK_ALL);
		u32 cell;

		switch (check_below(&m.rng, 6)) {
		case 0:
			do_cut(&m, k, i, mask);
			break;
		case 1:
			cell = check_below(&m.rng, CELLS);
			vcache_index_drop(&m.ix, cell);
			model_forget(&m, cell);
			break;
		case 2:
			check_find(&m, k, i, mask);
			break;
		default:
			do_put(&m, k, i, mask);
		}
		if (step % 16 == 0)
			check_model(&m);
	}
	check_model(&m);
	model_free(&m);
}

/* One sector each: the most cells that a block can have. */
static void test_most_cells(void)
{
	u32 touched[VC_CELLS_PER_BLOCK], s;
	struct model m;

	model_init(&m, 1);
	for (s = 0; s < VC_BLOCK_SECTORS; s++)
		vcache_index_put(&m.ix, s, 7, 5, 1 << s);
	CHECK(vcache_index_cut(&m.ix, 7, 5, VC_MASK_ALL, touched) ==
	      VC_CELLS_PER_BLOCK);
	CHECK(vcache_index_find(&m.ix, 7, 5, VC_MASK_ALL) == VC_CELL_NONE);
	check_model(&m);
	model_free(&m);
}

static void test_sizes(void)
{
	u32 groups = vcache_index_buckets(3000) >> VC_GROUP_SHIFT;
	struct vcache_index ix = { .buckets = groups << VC_GROUP_SHIFT };
	u32 *found = calloc(groups, sizeof(u32)), i;
	u64 block;

	CHECK(vcache_index_buckets(0) == 16);
	CHECK(vcache_index_buckets(63) == 16);
	CHECK(vcache_index_buckets(64) == 32);
	CHECK(vcache_index_buckets(95) == 32);
	CHECK(vcache_index_buckets(96) == 48);
	CHECK(vcache_index_buckets(~0U) == (1U << 31) - 16);
	for (block = 0; block < 50000; block++) {
		u32 group = vcache_index_group(&ix, 3, block);

		CHECK(group < groups);
		CHECK(group == vcache_index_group(&ix, 3, block & ~15ULL));
		found[group]++;
	}
	for (i = 0; i < groups; i++)
		CHECK(found[i]);
	free(found);
}

#define FAR_CHUNKS 4
#define FAR_CHUNK (3U << 16)

/* Numbers of cells have 32 bits, also in a chain. The volume is that of the chunk. */
static void test_far_cells(void)
{
	u32 cells = FAR_CHUNKS * FAR_CHUNK, touched[VC_CELLS_PER_BLOCK], i;
	struct vcache_index ix = { .cells = cells, .buckets = 1U << VC_GROUP_SHIFT,
				   .chunk_cells = FAR_CHUNK };

	ix.where = calloc(cells, sizeof(u64));
	ix.next = calloc(cells, sizeof(u16));
	ix.head = calloc(ix.buckets, sizeof(u32));
	ix.slot = calloc(FAR_CHUNKS, sizeof(u16));
	vcache_index_init(&ix);
	for (i = 0; i < FAR_CHUNKS; i++) {
		vcache_index_put(&ix, i * FAR_CHUNK + 7, i, 16 * i, VC_MASK_ALL);
		vcache_index_put(&ix, (i + 1) * FAR_CHUNK - 1, i, 16 * i + 16, 1);
		CHECK(vcache_cell_slot(&ix, i * FAR_CHUNK + 9) == i);
	}
	for (i = 0; i < FAR_CHUNKS; i++) {
		CHECK(vcache_index_find(&ix, i, 16 * i, 2) == i * FAR_CHUNK + 7);
		CHECK(vcache_index_find(&ix, i, 16 * i + 16, 1) == (i + 1) * FAR_CHUNK - 1);
		CHECK(vcache_index_find(&ix, i + 1, 16 * i, 1) == VC_CELL_NONE);
	}
	vcache_index_drop(&ix, 2 * FAR_CHUNK + 7);
	CHECK(vcache_index_cut(&ix, 1, 16, VC_MASK_ALL, touched) == 1);
	CHECK(touched[0] == FAR_CHUNK + 7);
	CHECK(vcache_index_held(&ix, 2, 32) == 0);
	CHECK(vcache_index_find(&ix, 0, 0, 1) == 7);
	CHECK(vcache_index_find(&ix, 3, 48, 1) == 3 * FAR_CHUNK + 7);
	free(ix.where);
	free(ix.next);
	free(ix.head);
	free(ix.slot);
}

int main(int argc, char **argv)
{
	test_sizes();
	test_most_cells();
	test_far_cells();
	check_seeds(argc, argv, 300, test_random);
	return 0;
}
