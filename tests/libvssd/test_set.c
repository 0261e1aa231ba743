// SPDX-License-Identifier: Apache-2.0
/* Random changes of a set of blocks, compared with an array. */
#include <errno.h>
#include <string.h>

#include "../../native/libvssd/set.h"
#include "../core/check.h"

#define BLOCKS 48

static bool model[BLOCKS];

static bool all(struct vssd_range r, bool value)
{
	uint32_t b;

	for (b = r.first; b < r.first + r.blocks; b++)
		if (model[b] != value)
			return false;
	return true;
}

static void fill(bool *of, struct vssd_range r, bool value)
{
	memset(of + r.first, value, r.blocks);
}

/* The ranges are ascending, do not touch, and are what an array has. */
static void check(const struct vssd_set *s, const bool *of)
{
	uint32_t blocks = 0, end = 0, b;
	size_t i;

	for (i = 0; i < s->n; i++) {
		CHECK(s->range[i].blocks);
		CHECK(!i || s->range[i].first > end);
		end = s->range[i].first + s->range[i].blocks;
		CHECK(end <= BLOCKS);
		for (b = s->range[i].first; b < end; b++)
			CHECK(of[b]);
		blocks += s->range[i].blocks;
	}
	for (b = 0; b < BLOCKS; b++)
		blocks -= of[b];
	CHECK(!blocks);
}

static void common(const struct vssd_set *s, struct vssd_range r, struct vssd_range q)
{
	struct vssd_set to = { 0 }, copy = { 0 };
	bool wanted[BLOCKS] = { 0 };
	uint32_t b;

	for (b = 0; b < BLOCKS; b++)
		wanted[b] = model[b] && ((b >= r.first && b < r.first + r.blocks) ||
					 (b >= q.first && b < q.first + q.blocks));
	CHECK(!vssd_set_common(s, r, &to));
	CHECK(!vssd_set_common(s, q, &to));
	check(&to, wanted);
	CHECK(!vssd_set_copy(&to, &copy));
	check(&copy, wanted);
	CHECK(!vssd_set_copy(s, &copy));
	check(&copy, model);
	vssd_set_clear(&copy);
	vssd_set_clear(&to);
}

static struct vssd_range some(uint64_t *rng)
{
	struct vssd_range r = { .first = check_below(rng, BLOCKS) };

	r.blocks = 1 + check_below(rng, BLOCKS - r.first > 9 ? 9 : BLOCKS - r.first);
	return r;
}

static void test(uint64_t seed)
{
	struct vssd_set s = { 0 };
	uint64_t rng = seed;
	int turn;

	memset(model, 0, sizeof(model));
	for (turn = 0; turn < 400; turn++) {
		struct vssd_range r = some(&rng);

		CHECK(vssd_set_has(&s, r) == all(r, true));
		CHECK(vssd_set_meets(&s, r) == !all(r, false));
		common(&s, r, some(&rng));
		if (check_below(&rng, 2) && all(r, false)) {
			CHECK(!vssd_set_add(&s, r));
			fill(model, r, true);
		} else if (check_below(&rng, 2)) {
			CHECK(!vssd_set_remove(&s, r));
			fill(model, r, false);
		}
		check(&s, model);
	}
	vssd_set_clear(&s);
	CHECK(!s.range && !s.blocks);
}

/* The last block of the largest disk. */
static void limits(void)
{
	struct vssd_range last = { UINT32_MAX - 1, 1 }, most = { 0, UINT32_MAX };
	struct vssd_set s = { 0 };

	CHECK(!vssd_set_add(&s, last));
	CHECK(vssd_set_has(&s, last) && vssd_set_meets(&s, most));
	CHECK(!vssd_set_remove(&s, most) && !s.n && !s.blocks);
	CHECK(!vssd_set_add(&s, most) && s.blocks == UINT32_MAX);
	vssd_set_clear(&s);
}

int main(int argc, char **argv)
{
	limits();
	check_seeds(argc, argv, 50, test);
	return 0;
}
