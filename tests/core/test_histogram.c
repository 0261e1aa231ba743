// SPDX-License-Identifier: GPL-2.0
#include "check.h"
#include "../../native/core/histogram.h"

static void each_bucket_begins_where_it_says(void)
{
	unsigned int b;

	CHECK(vcache_hist_bucket(0) == 0);
	for (b = 0; b < VC_HIST_BUCKETS; b++) {
		u64 lower = vcache_hist_lower(b), upper = vcache_hist_lower(b + 1);

		CHECK(lower < upper);
		CHECK(vcache_hist_bucket(lower) == b);
		CHECK(vcache_hist_bucket(upper - 1) == b);
		/* A quantile is at most 25 % too high. */
		if (b >= 4)
			CHECK((upper - lower) * 4 <= lower);
	}
}

static void the_last_bucket_takes_the_rest(void)
{
	u64 end = vcache_hist_lower(VC_HIST_BUCKETS);

	/* Every latency up to 8.5 seconds has its own bucket. */
	CHECK(end > 8500ULL * 1000 * 1000);
	CHECK(vcache_hist_bucket(end) == VC_HIST_BUCKETS - 1);
	CHECK(vcache_hist_bucket(UINT64_MAX) == VC_HIST_BUCKETS - 1);
}

static void random_values_lie_in_their_bucket(uint64_t seed)
{
	uint64_t state = seed * 0x9e3779b97f4a7c15ULL;
	unsigned int i;

	for (i = 0; i < 1000; i++) {
		u64 value = check_next(&state) >> check_below(&state, 64);
		unsigned int b = vcache_hist_bucket(value);

		CHECK(b < VC_HIST_BUCKETS);
		CHECK(vcache_hist_lower(b) <= value);
		if (b < VC_HIST_BUCKETS - 1)
			CHECK(value < vcache_hist_lower(b + 1));
	}
}

int main(int argc, char **argv)
{
	each_bucket_begins_where_it_says();
	the_last_bucket_takes_the_rest();
	check_seeds(argc, argv, 200, random_values_lie_in_their_bucket);
	return 0;
}
