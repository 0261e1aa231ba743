// SPDX-License-Identifier: GPL-2.0
/*
 * Blocks are promoted at the first miss only while enough blocks are read again.
 */
#include "check.h"
#include "../../native/core/level.h"

#define CELLS 16000U
#define PERIOD (CELLS / VC_LEVEL_PERIODS)

/* Miss blocks, one in @part of which is read again; 0: none. */
static void miss(struct vcache_level *l, u32 n, u32 part)
{
	u32 i;

	for (i = 1; i <= n; i++)
		vcache_level_miss(l, 1, part && i % part == 0, CELLS);
}

static void test_begins_with_twice_and_is_not_hasty(void)
{
	struct vcache_level l = { 0 };

	CHECK(!l.once);
	miss(&l, PERIOD, 1);
	CHECK(!l.once);
	miss(&l, 1, 0);
	CHECK(l.once);
}

static void test_a_scan_stays_at_twice(void)
{
	struct vcache_level l = { 0 };

	miss(&l, 20 * PERIOD, 0);
	CHECK(!l.once);
	/* Some blocks are always read again. */
	miss(&l, 20 * PERIOD, 30);
	CHECK(!l.once);
	miss(&l, 20 * PERIOD, 15);
	CHECK(l.once);
}

static void test_it_ends_later_than_it_began(void)
{
	struct vcache_level l = { 0 };

	miss(&l, 4 * PERIOD, 10);
	CHECK(l.once);
	miss(&l, 20 * PERIOD, 30);
	CHECK(l.once);
	miss(&l, 20 * PERIOD, 60);
	CHECK(!l.once);
}

/* The past has no effect after a few periods. */
static void test_the_past_is_forgotten(void)
{
	struct vcache_level l = { 0 };
	u32 i;

	miss(&l, 40 * PERIOD, 1);
	CHECK(l.once);
	for (i = 0; l.once && i < 100; i++)
		miss(&l, PERIOD / 2, 0);
	CHECK(i > 2 && i < 10);
}

/* When the first miss promotes, blocks that are read again are hits. */
static void test_hits_count(void)
{
	struct vcache_level l = { 0 };
	u32 i;

	miss(&l, PERIOD + 1, 1);
	CHECK(l.once);
	for (i = 0; i < 20 * PERIOD; i++) {
		vcache_level_miss(&l, 1, 0, CELLS);
		if (i % 10 == 0)
			vcache_level_hit(&l);
	}
	CHECK(l.once);
	miss(&l, 20 * PERIOD, 0);
	CHECK(!l.once);
}

/* The smallest caches decide at each miss, without a division by zero. */
static void test_small(void)
{
	struct vcache_level l = { 0 };

	vcache_level_miss(&l, 1, 1, 1);
	CHECK(l.once);
	vcache_level_miss(&l, 32, 0, 0);
	vcache_level_miss(&l, 32, 0, 0);
	CHECK(!l.once);
}

int main(void)
{
	test_begins_with_twice_and_is_not_hasty();
	test_a_scan_stays_at_twice();
	test_it_ends_later_than_it_began();
	test_the_past_is_forgotten();
	test_hits_count();
	test_small();
	return 0;
}
