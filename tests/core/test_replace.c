// SPDX-License-Identifier: GPL-2.0
/* The hottest blocks are kept, others are not, and never more than the maximum. */
#include "check.h"
#include "../../native/core/replace.h"

#define ROOM 64U

static uint64_t seed = 1;

static u32 dice(u32 sides)
{
	return check_next(&seed) % sides;
}

/* Random chunks, compared with sorting. */
static void test_the_hottest_are_kept(void)
{
	u32 run, i, j;

	for (run = 0; run < 2000; run++) {
		u32 count[VC_HEAT_MAX + 1] = { 0 }, heat[ROOM], kept = 0, coldest = VC_HEAT_MAX;
		u32 hot = dice(4), most = dice(ROOM + 1), hottest_left = 0, wanted = 0;
		struct vcache_keep k;
		bool left = false;

		for (i = 0; i < ROOM; i++) {
			heat[i] = dice(2) ? dice(3) : dice(VC_HEAT_MAX + 1);
			count[heat[i]]++;
		}
		for (j = hot; j <= VC_HEAT_MAX; j++)
			wanted += count[j];
		k = vcache_keep_choose(count, hot, most);
		for (i = 0; i < ROOM; i++) {
			if (vcache_keep_wants(&k, heat[i])) {
				kept++;
				if (heat[i] < coldest)
					coldest = heat[i];
			} else {
				left = true;
				if (heat[i] > hottest_left)
					hottest_left = heat[i];
			}
		}
		CHECK(kept == (wanted < most ? wanted : most));
		CHECK(!kept || coldest >= hot);
		CHECK(!kept || !left || hottest_left <= coldest);
	}
}

/* While a quarter is empty and there is credit. */
static void test_when_any_is_kept(void)
{
	u32 price = ROOM * VC_CREDIT_KEEP;

	CHECK(vcache_keep_any(750, 1000, price, ROOM));
	CHECK(!vcache_keep_any(751, 1000, price, ROOM));
	CHECK(!vcache_keep_any(750, 1000, price - 1, ROOM));
	CHECK(!vcache_keep_any(3000000001U, 4000000000ULL, price, ROOM));
	CHECK(vcache_keep_any(3000000000U, 4000000000ULL, price, ROOM));
}

/* The hottest three quarters, so that even the smallest chunk frees space. */
static void test_a_chunk_that_goes_gives_room(void)
{
	u32 room, kept;

	CHECK(vcache_keep_most(256, false) == 192);
	CHECK(vcache_keep_most(256, true) == 128);
	for (room = 4; room <= 4096; room++) {
		kept = vcache_keep_most(room, false);
		CHECK(kept < room && kept * 4 >= room * 3);
		CHECK(vcache_keep_most(room, true) == (room + 1) / 2);
	}
}

/* A written chunk is reclaimed before a read chunk, unless more of it was read. */
static void test_which_goes(void)
{
	CHECK(vcache_written_goes(0, 0));
	CHECK(vcache_written_goes(7, 7));
	CHECK(vcache_written_goes(6, 7));
	CHECK(!vcache_written_goes(8, 7));
}

int main(void)
{
	test_the_hottest_are_kept();
	test_a_chunk_that_goes_gives_room();
	test_which_goes();
	test_when_any_is_kept();
	return 0;
}
