// SPDX-License-Identifier: GPL-2.0
/*
 * Miss-ratio curves, compared with Mattson's stack, searched from the top: equal
 * while all blocks are in the sample, otherwise close. All memory has exactly the
 * size that the interface requires, so that the address sanitizer detects accesses
 * behind it.
 */
#include "check.h"
#include "../../native/core/shards.h"

#define LENGTH 4000		/* accesses of a history with a model */
#define BLOCKS 700
#define SIZES (BLOCKS + 2)

static struct vcache_shards make(const struct vcache_shards_setup *setup)
{
	size_t size = vcache_shards_size(setup);
	struct vcache_shards s;
	void *memory;

	CHECK(size);
	memory = malloc(size);
	CHECK(memory);
	memset(memory, 0xa5, size);
	CHECK(!vcache_shards_init(&s, setup, memory));
	return s;
}

/* The table is at the start of the memory. */
static void drop(struct vcache_shards *s)
{
	free(s->key);
}

/* Twice the space, as for a fixed rate that is exact. */
static void grow(struct vcache_shards *s)
{
	struct vcache_shards_setup setup = s->setup;
	struct vcache_shards to;

	setup.samples *= 2;
	setup.buckets *= 2;
	to = make(&setup);
	vcache_shards_move(&to, s);
	drop(s);
	*s = to;
}

static void touch_as(struct vcache_shards *s, u32 kind, const u64 *blocks, size_t n)
{
	size_t done = 0;

	for (;;) {
		done += vcache_shards_touch(s, kind, blocks + done, n - done);
		if (done == n)
			return;
		CHECK(s->setup.fixed_rate && s->used == s->setup.samples);
		grow(s);
	}
}

static void touch(struct vcache_shards *s, const u64 *blocks, size_t n)
{
	touch_as(s, 0, blocks, n);
}

/*
 * The misses of caches of 0 ... SIZES - 1 blocks, of accesses of a kind; the number of
 * blocks. @kinds may be NULL: all are of one.
 */
static size_t mattson(const u64 *blocks, const u8 *kinds, u8 kind, size_t n, u64 *misses)
{
	static u64 stack[LENGTH];
	size_t depth = 0, i, at, size;

	memset(misses, 0, SIZES * sizeof(*misses));
	for (i = 0; i < n; i++) {
		for (at = 0; at < depth && stack[at] != blocks[i]; at++)
			;
		for (size = 0; size < SIZES && (size <= at || at == depth); size++)
			misses[size] += !kinds || kinds[i] == kind;
		depth += at == depth;
		memmove(stack + 1, stack, at * sizeof(*stack));
		stack[0] = blocks[i];
	}
	return depth;
}

/* Histories of all kinds: hot blocks, scans, loops, strides, and their mix. */
static void history(uint64_t *state, u64 *blocks, size_t n)
{
	u64 base = check_below(state, 2) ? 0 : check_next(state);
	unsigned int span = 1 + check_below(state, BLOCKS);
	u64 stride = 1 + check_below(state, 3) * check_below(state, 4096);
	size_t i = 0;

	while (i < n) {
		unsigned int kind = check_below(state, 4);
		unsigned int len = 1 + check_below(state, 2 * span);
		unsigned int at = check_below(state, span);

		for (; len && i < n; len--) {
			if (kind == 0)
				at = check_below(state, span);
			else if (kind == 1)
				at = check_below(state, 1 + check_below(state, span));
			else if (kind == 2)
				at = (at + 1) % span;
			blocks[i++] = base + at * stride;
		}
	}
}

static void check_exact(struct vcache_shards *s, u32 kind, const u64 *want, size_t blocks,
			size_t n)
{
	u64 sizes[SIZES], misses[SIZES];
	size_t i;

	for (i = 0; i < SIZES; i++)
		sizes[i] = i;
	CHECK(s->kind[kind].accesses == n);
	CHECK(vcache_shards_footprint(s) == blocks);
	vcache_shards_curve(s, kind, sizes, SIZES, misses);
	for (i = 0; i < SIZES; i++)
		CHECK(misses[i] == want[i]);
}

/* Also when reads hit written blocks, and vice versa. */
static void a_history_is_exact(uint64_t seed)
{
	uint64_t state = seed * 0x9e3779b97f4a7c15ULL;
	static u64 blocks[LENGTH], want[SIZES];
	static u8 kinds[LENGTH];
	size_t n = 1 + check_below(&state, LENGTH), at, found, of_kind[VC_SHARDS_KINDS] = {};
	u32 kind, nr_kinds = 1 + seed % 2;
	struct vcache_shards_setup fixed_size = {
		.samples = BLOCKS, .kinds = nr_kinds, .buckets = BLOCKS,
		.limit = VC_SHARDS_ALL, .salt = check_next(&state),
	};
	struct vcache_shards_setup growing = {
		.samples = VC_SHARDS_MIN, .kinds = nr_kinds, .buckets = VC_SHARDS_MIN,
		.limit = VC_SHARDS_ALL, .salt = seed, .fixed_rate = true,
	};
	struct vcache_shards a = make(&fixed_size), b = make(&growing);

	history(&state, blocks, n);
	/* In parts of any length: the division into calls has no effect. */
	for (at = 0; at < n; ) {
		size_t part = check_below(&state, 200);

		kind = check_below(&state, nr_kinds);
		part = part < n - at ? part : n - at;
		memset(kinds + at, kind, part);
		of_kind[kind] += part;
		touch_as(&a, kind, blocks + at, part);
		touch_as(&b, kind, blocks + at, part);
		at += part;
	}
	for (kind = 0; kind < nr_kinds; kind++) {
		found = mattson(blocks, kinds, kind, n, want);
		check_exact(&a, kind, want, found, of_kind[kind]);
		check_exact(&b, kind, want, found, of_kind[kind]);
	}
	CHECK(a.setup.limit == VC_SHARDS_ALL);
	drop(&a);
	drop(&b);
}

/* A coarse histogram is exact where buckets meet, and falls evenly between. */
static void buckets_of_many_blocks(uint64_t seed)
{
	uint64_t state = seed * 0x9e3779b97f4a7c15ULL;
	static u64 blocks[LENGTH], want[SIZES];
	static u8 kinds[LENGTH];
	struct vcache_shards_setup setup = {
		.samples = BLOCKS, .kinds = 2, .buckets = 3 + check_below(&state, 60),
		.grain_shift = check_below(&state, 5), .limit = VC_SHARDS_ALL,
		.salt = seed,
	};
	struct vcache_shards s = make(&setup);
	u64 grain, size;
	size_t i;

	history(&state, blocks, LENGTH);
	for (i = 0; i < LENGTH; i++) {
		kinds[i] = check_below(&state, 2);
		touch_as(&s, kinds[i], blocks + i, 1);
	}
	mattson(blocks, kinds, 1, LENGTH, want);
	grain = 1ULL << s.setup.grain_shift;
	for (size = 0; size < SIZES; size++) {
		u64 low = size / grain * grain, high = low + grain, at, misses;

		vcache_shards_curve(&s, 1, &size, 1, &misses);
		if (high >= SIZES)
			break;
		at = size - low;
		/* Rounded to the nearest. */
		CHECK(misses == (want[low] * (grain - at) + want[high] * at +
				 (grain - 1) / 2) / grain);
	}
	drop(&s);
}

/* Zipf's law with an exponent of about 1, over @blocks. */
static unsigned int zipf(uint64_t *state, unsigned int blocks)
{
	unsigned int bits = 32 - __builtin_clz(blocks);
	unsigned int width = 1U << (1 + check_below(state, bits));

	return check_below(state, width < blocks ? width : blocks);
}

#define LONG 200000
#define POINTS 50

enum shape { LOOP, ZIPF, RUNS, SCAN, MIXED, SHAPES };

static unsigned int shaped(u64 *blocks, enum shape shape, uint64_t *state)
{
	unsigned int i, j, at;

	for (i = 0; i < LONG; ) {
		if (shape == LOOP || (shape == MIXED && i % 2)) {
			blocks[i] = 1000000 + i % 30000;
			i++;
		} else if (shape == SCAN) {
			blocks[i] = i;
			i++;
		} else if (shape == RUNS) {
			at = zipf(state, 4000) * 16;
			for (j = 0; j < 16 && i < LONG; j++)
				blocks[i++] = at + j;
		} else {
			blocks[i++] = zipf(state, 40000) * 7919ULL;
		}
	}
	return i;
}

/* Mean of the absolute differences of two curves, in units of 1e-6. */
static u64 difference(const u64 *a, const u64 *b, u64 n)
{
	u64 sum = 0;
	int i;

	for (i = 0; i < POINTS; i++)
		sum += a[i] > b[i] ? a[i] - b[i] : b[i] - a[i];
	return sum * 1000000 / POINTS / n;
}

static int order(const void *a, const void *b)
{
	u64 x = *(const u64 *)a, y = *(const u64 *)b;

	return x < y ? -1 : x > y;
}

/* The sample is consistent: blocks under T, each once, each in one place. */
static void check_sample(const struct vcache_shards *s)
{
	u32 slots = 8U << (64 - s->slot_shift), i, n = 0, live = 0;
	u64 *keys = malloc(s->used * sizeof(*keys));

	CHECK(keys);
	for (i = 0; i < slots; i++) {
		u32 place = s->place[i] - 1;

		if (!s->place[i])
			continue;
		CHECK(n < s->used);
		keys[n++] = s->key[i];
		CHECK(place < s->next);
		CHECK(s->live[place / 64] >> place % 64 & 1);
	}
	CHECK(n == s->used && n <= s->setup.samples);
	for (i = 0; i < s->places / 64; i++)
		live += __builtin_popcountll(s->live[i]);
	CHECK(live == n);
	qsort(keys, n, sizeof(*keys), order);
	for (i = 1; i < n; i++)
		CHECK(keys[i - 1] < keys[i]);
	CHECK(keys[n - 1] <= s->setup.limit);
	if (s->heaped)
		CHECK(s->heap[0] == keys[n - 1]);
	free(keys);
}

/*
 * Two to four times the maximum over 40 seeds; a broken estimate has a larger
 * error.
 */
static void a_sample_is_near(uint64_t seed)
{
	static const u64 limit[SHAPES] = {
		[LOOP] = 25000, [ZIPF] = 20000, [RUNS] = 8000,
		[SCAN] = 15000, [MIXED] = 20000,
	};
	uint64_t state = seed * 0x9e3779b97f4a7c15ULL;
	static u64 blocks[LONG];
	enum shape shape = seed % SHAPES;
	u64 sizes[POINTS], want[POINTS], got[POINTS], footprint;
	struct vcache_shards_setup exact = {
		.samples = 1 << 19, .kinds = 1, .buckets = 1 << 19, .limit = VC_SHARDS_ALL,
	};
	int i, rate;

	struct vcache_shards s = make(&exact);

	touch(&s, blocks, shaped(blocks, shape, &state));
	footprint = vcache_shards_footprint(&s);
	for (i = 0; i < POINTS; i++)
		sizes[i] = footprint * (i + 1) / POINTS;
	vcache_shards_curve(&s, 0, sizes, POINTS, want);
	drop(&s);
	for (rate = 0; rate < 2; rate++) {
		struct vcache_shards_setup setup = {
			.samples = 2048, .kinds = 1, .buckets = 4096,
			.limit = VC_SHARDS_ALL, .salt = seed,
		};
		u64 off, about, t;

		if (rate) {
			setup.samples = 64;
			setup.limit = VC_SHARDS_ALL / 5 * 2;
			setup.fixed_rate = true;
		}
		s = make(&setup);
		for (i = 0; i < 20; i++) {
			t = s.setup.limit;
			touch(&s, blocks + LONG / 20 * i, LONG / 20);
			CHECK(s.setup.limit <= t);
			check_sample(&s);
		}
		vcache_shards_curve(&s, 0, sizes, POINTS, got);
		off = difference(want, got, LONG);
		about = vcache_shards_footprint(&s);
		CHECK(off <= limit[shape]);
		CHECK(about > footprint * 9 / 10 && about < footprint * 11 / 10);
		for (i = 1; i < POINTS; i++)
			CHECK(got[i] <= got[i - 1]);
		if (!rate) {
			CHECK(s.used == 2048);
			CHECK(s.setup.limit < VC_SHARDS_ALL);
		}
		drop(&s);
	}
}

/* 1/R is exact for powers of two, and rounded for others. */
static void weights(void)
{
	struct vcache_shards_setup setup = {
		.samples = VC_SHARDS_MIN, .kinds = 1, .buckets = 2, .limit = VC_SHARDS_ALL,
	};
	struct vcache_shards s = make(&setup);
	u64 third;
	int bits;

	CHECK(s.weight == 1 << 16);
	drop(&s);
	for (bits = 29; bits < 64; bits++) {
		setup.limit = (1ULL << bits) - 1;
		s = make(&setup);
		CHECK(s.weight == 1ULL << (80 - bits));
		drop(&s);
		if (bits < 31)
			continue;
		setup.limit = (3ULL << (bits - 2)) - 1;
		third = 1ULL << (82 - bits);
		s = make(&setup);
		CHECK(3 * s.weight <= third + 2);
		CHECK(3 * s.weight + 2 + (third >> 30) >= third);
		drop(&s);
	}
	setup.limit = VC_SHARDS_ALL / 5 * 2;
	s = make(&setup);
	CHECK(s.weight == 5 << 15);
	drop(&s);
}

static void what_is_not_allowed(void)
{
	static const struct vcache_shards_setup good = {
		.samples = 8192, .kinds = 1, .buckets = 2048, .grain_shift = 8,
		.limit = VC_SHARDS_ALL,
	};
	struct vcache_shards_setup bad[9] = {
		good, good, good, good, good, good, good, good, good,
	};
	struct vcache_shards s;
	int i;

	CHECK(vcache_shards_size(&good) < 300 << 10);
	bad[0].samples = VC_SHARDS_MIN - 1;
	bad[1].samples = VC_SHARDS_MAX + 1;
	bad[2].buckets = 1;
	bad[3].buckets = (1U << 30) + 1;
	bad[4].grain_shift = 33;
	bad[5].limit = 0;
	bad[6].limit = (1ULL << 29) - 2;
	bad[7].kinds = 0;
	bad[8].kinds = VC_SHARDS_KINDS + 1;
	for (i = 0; i < 9; i++) {
		CHECK(!vcache_shards_size(&bad[i]));
		CHECK(vcache_shards_init(&s, &bad[i], NULL) == -EINVAL);
	}
}

/* At R = 1/32 a run of 4096 blocks, or each n-th of one, has its 1/32. */
static void runs_are_sampled_evenly(uint64_t seed)
{
	uint64_t state = seed * 0x9e3779b97f4a7c15ULL;
	struct vcache_shards_setup setup = {
		.samples = 4096, .kinds = 1, .buckets = 2, .limit = VC_SHARDS_ALL / 32,
		.fixed_rate = true, .salt = seed,
	};
	static u64 blocks[4096];
	u64 stride, at = check_next(&state) & ~4095ULL;

	for (stride = 1; stride <= 16; stride *= 2) {
		struct vcache_shards s = make(&setup);
		u32 n = 4096 / stride, i;

		for (i = 0; i < n; i++)
			blocks[i] = at + i * stride;
		touch(&s, blocks, n);
		CHECK(s.used + 6 >= n / 32 && s.used <= n / 32 + 6);
		drop(&s);
	}
}

/* One block alone, sampled or not: all but the first access hit. */
static void a_hot_block_is_no_miss(uint64_t seed)
{
	struct vcache_shards_setup setup = {
		.samples = 16, .kinds = 1, .buckets = 16, .limit = VC_SHARDS_ALL / 2,
		.fixed_rate = true, .salt = seed,
	};
	struct vcache_shards s = make(&setup);
	const u64 sizes[] = { 0, 1, 16, UINT64_MAX };
	u64 misses[4];
	int i;

	for (i = 0; i < 1000; i++)
		touch(&s, &seed, 1);
	vcache_shards_curve(&s, 0, sizes, 4, misses);
	CHECK(misses[0] == 1000);
	CHECK(misses[1] <= 2 && misses[2] <= 2 && misses[3] <= 2);
	drop(&s);
}

static void another_salt_is_another_sample(void)
{
	u64 blocks[64], limit = 0, salt, i;

	for (i = 0; i < 64; i++)
		blocks[i] = i;
	for (salt = 0; salt < 4; salt++) {
		struct vcache_shards_setup setup = {
			.samples = 16, .kinds = 1, .buckets = 16, .limit = VC_SHARDS_ALL,
			.salt = salt,
		};
		struct vcache_shards s = make(&setup);

		touch(&s, blocks, 64);
		CHECK(s.setup.limit != limit);
		limit = s.setup.limit;
		drop(&s);
	}
}

/* One at a time or many: also when T falls between them. */
static void batches_are_no_matter(uint64_t seed)
{
	uint64_t state = seed * 0x9e3779b97f4a7c15ULL;
	static u64 blocks[LENGTH];
	struct vcache_shards_setup setup = {
		.samples = 16 + check_below(&state, 100), .kinds = 1, .buckets = 64,
		.limit = VC_SHARDS_ALL, .salt = seed,
	};
	struct vcache_shards a = make(&setup), b = make(&setup);
	size_t i;

	history(&state, blocks, LENGTH);
	touch(&a, blocks, LENGTH);
	for (i = 0; i < LENGTH; i++)
		touch(&b, blocks + i, 1);
	check_sample(&a);
	CHECK(a.setup.limit == b.setup.limit);
	CHECK(a.kind[0].weighed == b.kind[0].weighed);
	CHECK(a.kind[0].accesses == b.kind[0].accesses);
	CHECK(!memcmp(a.kind[0].hist, b.kind[0].hist, setup.buckets * sizeof(u64)));
	drop(&a);
	drop(&b);
}

int main(int argc, char **argv)
{
	weights();
	what_is_not_allowed();
	another_salt_is_another_sample();
	check_seeds(argc, argv, 40, runs_are_sampled_evenly);
	check_seeds(argc, argv, 20, a_hot_block_is_no_miss);
	check_seeds(argc, argv, 40, a_history_is_exact);
	check_seeds(argc, argv, 40, buckets_of_many_blocks);
	check_seeds(argc, argv, 40, batches_are_no_matter);
	check_seeds(argc, argv, 2 * SHAPES, a_sample_is_near);
	return 0;
}
