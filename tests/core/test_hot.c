// SPDX-License-Identifier: GPL-2.0
/*
 * At most about half of the reclaimed blocks are hot.
 */
#include "check.h"
#include "../../native/core/hot.h"

#define CELLS 16000U
#define PERIOD (CELLS / VC_HOT_PERIODS)

/* Reclaim chunks of 100 blocks, @warm of which were read @heat times, the others never. */
static void reclaim(struct vcache_hot *h, u32 chunks, u32 warm, u32 heat)
{
	u32 count[VC_HEAT_MAX + 1] = { 0 };

	count[0] = 100 - warm;
	count[heat] += warm;
	while (chunks--)
		vcache_hot_note(h, count, CELLS);
}

static void test_it_begins_with_the_lowest_level(void)
{
	struct vcache_hot h = { .raised = 0 };

	CHECK(vcache_hot_level(&h, VC_HEAT_MAIN) == VC_HEAT_MAIN);
	CHECK(vcache_hot_level(&h, VC_HEAT_NEW) == VC_HEAT_NEW);
	/* Not before enough blocks were seen. */
	reclaim(&h, PERIOD / 100, 100, 5);
	CHECK(!h.raised);
	reclaim(&h, 1, 100, 5);
	CHECK(h.raised);
}

static void test_few_hot_blocks_stay_hot(void)
{
	struct vcache_hot h = { .raised = 0 };

	reclaim(&h, 50, 50, 1);
	CHECK(!h.raised);
	reclaim(&h, 50, 10, 9);
	CHECK(!h.raised);
}

static void test_it_rises_above_what_most_blocks_have(void)
{
	struct vcache_hot h = { .raised = 0 };

	reclaim(&h, 50, 80, 1);
	CHECK(vcache_hot_level(&h, VC_HEAT_MAIN) == 2);
	CHECK(vcache_hot_level(&h, VC_HEAT_NEW) == 3);
	reclaim(&h, 50, 80, 6);
	CHECK(vcache_hot_level(&h, VC_HEAT_MAIN) == 7);
	/* It falls again. */
	reclaim(&h, 50, 20, 6);
	CHECK(vcache_hot_level(&h, VC_HEAT_MAIN) == 1);
}

static void test_there_is_always_a_level(void)
{
	struct vcache_hot h = { .raised = 0 };

	reclaim(&h, 50, 100, VC_HEAT_MAX);
	CHECK(vcache_hot_level(&h, VC_HEAT_MAIN) == VC_HEAT_MAX);
	CHECK(vcache_hot_level(&h, VC_HEAT_NEW) == VC_HEAT_MAX);
	/* A tiny cache. */
	vcache_hot_note(&h, (u32[VC_HEAT_MAX + 1]){ 1 }, 1);
	vcache_hot_note(&h, (u32[VC_HEAT_MAX + 1]){ 0 }, 0);
	CHECK(h.raised <= VC_HEAT_MAX);
}

int main(void)
{
	test_it_begins_with_the_lowest_level();
	test_few_hot_blocks_stay_hot();
	test_it_rises_above_what_most_blocks_have();
	test_there_is_always_a_level();
	return 0;
}
