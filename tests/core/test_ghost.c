// SPDX-License-Identifier: GPL-2.0
/*
 * A missed block is known for a limited time, and false matches are rare. The table has exactly
 * the size that it reports, so that the address sanitizer detects accesses behind it.
 */
#include "check.h"
#include "../../native/core/ghost.h"

#define ENTRIES 4096U

static struct vcache_ghosts make(u32 entries)
{
	struct vcache_ghosts g = { .entries = entries };

	g.entry = calloc(entries, sizeof(*g.entry));
	CHECK(g.entry);
	return g;
}

static bool met(const struct vcache_ghosts *g, u16 slot, u64 block, u32 hour)
{
	return vcache_ghost_meet(g, slot, block, hour) < VC_GHOST_WINDOW;
}

/* The clock begins at 1, advances with each eighth of the cache, and wraps around. */
static void test_clock(void)
{
	u32 i;

	CHECK(vcache_ghost_hour(0, 800) == 1);
	CHECK(vcache_ghost_hour(99, 800) == 1);
	CHECK(vcache_ghost_hour(100, 800) == 2);
	CHECK(vcache_ghost_hour(100 * VC_GHOST_HOURS - 1, 800) == VC_GHOST_HOURS);
	CHECK(vcache_ghost_hour(100 * VC_GHOST_HOURS, 800) == 1);
	for (i = 0; i < 100; i++) {
		CHECK(vcache_ghost_hour(i, 0) >= 1);
		CHECK(vcache_ghost_hour(i, 1) <= VC_GHOST_HOURS);
	}
}

/* The second miss returns the age of the first, if it is within the window. */
static void test_window(void)
{
	u32 from, later;

	for (from = 1; from <= VC_GHOST_HOURS; from++) {
		for (later = 0; later < VC_GHOST_HOURS; later++) {
			struct vcache_ghosts g = make(VC_GHOST_WAYS);
			u32 then = (from - 1 + later) % VC_GHOST_HOURS + 1;
			u32 last = (then + VC_GHOST_WINDOW - 2) % VC_GHOST_HOURS + 1;

			CHECK(!met(&g, 3, 77, from));
			CHECK(vcache_ghost_meet(&g, 3, 77, then) ==
			      (later < VC_GHOST_WINDOW ? later : VC_GHOST_WINDOW));
			/* This was a miss as well. */
			CHECK(met(&g, 3, 77, last));
			free(g.entry);
		}
	}
}

/* Neither another block nor another volume. */
static void test_identity(void)
{
	struct vcache_ghosts g = make(ENTRIES);

	CHECK(!met(&g, 1, 5, 1));
	CHECK(!met(&g, 2, 5, 1));
	CHECK(!met(&g, 1, 6, 1));
	CHECK(!met(&g, 0, VC_GHOST_WAYS + 5, 1));
	CHECK(met(&g, 1, 5, 1));
	free(g.entry);
}

/* The latest entry stays: the oldest of four is replaced. */
static void test_oldest_goes(void)
{
	struct vcache_ghosts g = make(VC_GHOST_WAYS);
	u32 i;

	for (i = 0; i < VC_GHOST_WAYS; i++)
		CHECK(!met(&g, 1, i, i + 1));
	CHECK(!met(&g, 1, 100, VC_GHOST_WAYS + 1));
	for (i = 1; i < VC_GHOST_WAYS; i++)
		CHECK(met(&g, 1, i, VC_GHOST_WAYS + 1));
	CHECK(met(&g, 1, 100, VC_GHOST_WAYS + 1));
	CHECK(!met(&g, 1, 0, VC_GHOST_WAYS + 1));
	free(g.entry);
}

/* In a half-full table, nearly all entries are found, and at most 1 % of others. */
static void test_rates(void)
{
	struct vcache_ghosts g = make(ENTRIES);
	u32 i, known = 0, wrong = 0;

	for (i = 0; i < ENTRIES / 2; i++)
		vcache_ghost_meet(&g, 1, i, 1);
	for (i = 0; i < ENTRIES / 2; i++)
		known += met(&g, 1, i, 1);
	CHECK(known > ENTRIES / 2 * 9 / 10);
	for (i = 0; i < ENTRIES; i++)
		wrong += met(&g, 1, 1000000 + i, 1);
	CHECK(wrong < ENTRIES / 100);
	free(g.entry);
}

int main(void)
{
	test_clock();
	test_window();
	test_identity();
	test_oldest_goes();
	test_rates();
	return 0;
}
