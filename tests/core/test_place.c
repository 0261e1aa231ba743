// SPDX-License-Identifier: GPL-2.0
/* What is hot goes to a tag's own lanes, what is not to the shared ones; and when they change. */
#include "check.h"
#include "../../native/core/place.h"

#define ROOM 64U

static bool is(struct vcache_keep_policy f, u32 hot, u32 most, u32 rest_most)
{
	return f.hot == hot && f.most == most && f.rest_most == rest_most;
}

/* One fifth may be hot, no more; or what is said. */
static void test_the_watermark(void)
{
	CHECK(!vcache_hot_passes(0, 0, VC_HOT_PERCENT));
	CHECK(vcache_hot_passes(1, 0, VC_HOT_PERCENT));
	CHECK(!vcache_hot_passes(20, 100, VC_HOT_PERCENT));
	CHECK(vcache_hot_passes(21, 100, VC_HOT_PERCENT));
	CHECK(!vcache_hot_passes(800000000U, 4000000000ULL, VC_HOT_PERCENT));
	CHECK(vcache_hot_passes(800000001U, 4000000000ULL, VC_HOT_PERCENT));
	CHECK(!vcache_hot_passes(0, 100, 0));
	CHECK(vcache_hot_passes(1, 100, 0));
	CHECK(!vcache_hot_passes(100, 100, 100));
}

/* Without lanes of its own, a tag's blocks are kept in one place: any, or the hot ones. */
static void test_there_is_one_place_without_lanes(void)
{
	CHECK(is(vcache_keep_reclaim(2, true, 48, false), 0, 48, 0));
	CHECK(is(vcache_keep_reclaim(2, false, 48, false), 2, 48, 0));
}

/* With them the hot ones go there, and what else is kept does not. */
static void test_what_is_not_hot_goes_to_shared_lanes(void)
{
	CHECK(is(vcache_keep_reclaim(1, true, 48, true), 1, 48, 48));
	CHECK(is(vcache_keep_reclaim(1, false, 48, true), 1, 48, 0));
}

/* In both places together no more than in one. */
static void test_the_hot_ones_come_first(void)
{
	struct vcache_keep_policy f = vcache_keep_reclaim(1, true, 48, true);

	CHECK(vcache_keep_rest(&f, 0) == 48);
	CHECK(vcache_keep_rest(&f, 40) == 8);
	CHECK(vcache_keep_rest(&f, 48) == 0);
	f = vcache_keep_reclaim(1, false, 48, true);
	CHECK(vcache_keep_rest(&f, 0) == 0);
	f = vcache_keep_swap(true, 10 * VC_CREDIT_KEEP, ROOM);
	CHECK(vcache_keep_rest(&f, ROOM / 2) == 10);
	CHECK(vcache_keep_rest(&f, ROOM - 5) == 5);
}

/* When places are changed, what is not hot is kept as far as it is paid for. */
static void test_what_changes_places(void)
{
	const u32 all = ROOM * VC_CREDIT_KEEP;

	CHECK(is(vcache_keep_swap(3, VC_CREDIT_MAX, ROOM), 3, ROOM, ROOM));
	CHECK(is(vcache_keep_swap(VC_HEAT_SHARED, all, ROOM), VC_HEAT_SHARED, ROOM, ROOM));
	CHECK(is(vcache_keep_swap(VC_HEAT_SHARED, all - 1, ROOM), VC_HEAT_SHARED, ROOM, ROOM - 1));
	CHECK(is(vcache_keep_swap(1, 10 * VC_CREDIT_KEEP, ROOM), 1, ROOM, 10));
	CHECK(is(vcache_keep_swap(VC_HEAT_SHARED, 0, ROOM), VC_HEAT_SHARED, ROOM, 0));
}

/* A chunk gives way that is half as hot as the other, or less, and a little more. */
static void test_when_a_chunk_gives_way(void)
{
	u32 heat;

	CHECK(vcache_swap_pays(0, ROOM / 2, ROOM));
	CHECK(!vcache_swap_pays(0, ROOM / 2 - 1, ROOM));
	CHECK(vcache_swap_pays(ROOM, 5 * ROOM / 2, ROOM));
	CHECK(!vcache_swap_pays(ROOM, 5 * ROOM / 2 - 1, ROOM));
	for (heat = 2; heat <= VC_HEAT_MAX; heat++) {
		/* Not when it was only read once less, or has just cooled down. */
		CHECK(!vcache_swap_pays((heat - 1) * ROOM, heat * ROOM, ROOM));
		CHECK(!vcache_swap_pays(vcache_heat_cooled(heat) * ROOM, heat * ROOM, ROOM));
	}
}

/* What is not read any more gets cold. */
static void test_how_it_cools_down(void)
{
	u32 heat;

	CHECK(vcache_heat_cooled(0) == 0);
	CHECK(vcache_heat_cooled(VC_HEAT_MAX) == 11);
	for (heat = 1; heat <= VC_HEAT_MAX; heat++) {
		CHECK(vcache_heat_cooled(heat) < heat);
		CHECK(vcache_heat_cooled(heat) * 4 <= heat * 3);
	}
}

/* As hot as what comes, on the average; so no more than half of what gives way stays. */
static void test_how_hot_is_what_stays(void)
{
	u32 heat, shared;

	CHECK(vcache_swap_heat(0, ROOM) == 1);
	CHECK(vcache_swap_heat(ROOM, ROOM) == 1);
	CHECK(vcache_swap_heat(ROOM + 1, ROOM) == 2);
	CHECK(vcache_swap_heat(VC_HEAT_MAX * ROOM, ROOM) == VC_HEAT_MAX);
	for (shared = 1; shared <= VC_HEAT_MAX * ROOM; shared++) {
		heat = vcache_swap_heat(shared, ROOM);
		/* Blocks with that heat, in a chunk that still gives way. */
		CHECK(shared < ROOM / 2 || (shared - ROOM / 2) / 2 / heat <= ROOM / 2);
	}
}

/* One chunk for so many blocks that were read, but not too many at a time. */
static void test_how_much_cools_down(void)
{
	CHECK(vcache_cool_chunks(ROOM - 1, ROOM) == 0);
	CHECK(vcache_cool_chunks(ROOM, ROOM) == 1);
	CHECK(vcache_cool_chunks(VC_COOL_MAX * ROOM - 1, ROOM) == VC_COOL_MAX - 1);
	CHECK(vcache_cool_chunks((u64)VC_COOL_MAX << 40, ROOM) == VC_COOL_MAX);
}

int main(void)
{
	test_the_watermark();
	test_there_is_one_place_without_lanes();
	test_what_is_not_hot_goes_to_shared_lanes();
	test_the_hot_ones_come_first();
	test_what_changes_places();
	test_when_a_chunk_gives_way();
	test_how_it_cools_down();
	test_how_hot_is_what_stays();
	test_how_much_cools_down();
	return 0;
}
