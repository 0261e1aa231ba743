// SPDX-License-Identifier: GPL-2.0
/*
 * Maps of runs, compared with an array of the owner of each sector. All memory has
 * exactly the size that the interface requires, so that the address sanitizer
 * detects one run too many.
 */
#include <string.h>

#include "check.h"
#include "../../native/core/runs.h"

#define SIZE 96		/* sectors of the model */
#define OWNERS 4

static char owner_names[OWNERS];

struct map {
	struct vcache_run *run;
	size_t n;
	int owner[SIZE];	/* the model: -1 none */
};

static void check_map(const struct map *m)
{
	int seen[SIZE];
	u64 end = 0, s;
	size_t i;

	memset(seen, -1, sizeof(seen));
	for (i = 0; i < m->n; i++) {
		const struct vcache_run *r = &m->run[i];

		CHECK(r->len);
		CHECK(r->start >= end);
		end = r->start + r->len;
		CHECK(end <= SIZE);
		for (s = r->start; s < end; s++)
			seen[s] = (char *)r->owner - owner_names;
	}
	CHECK(!memcmp(seen, m->owner, sizeof(seen)));
}

static void check_owner(const struct map *m, u64 start, u64 len)
{
	int owner = m->owner[start];
	u64 s;

	for (s = start; s < start + len; s++) {
		if (m->owner[s] != owner)
			owner = -1;
	}
	CHECK(vcache_runs_owner(m->run, m->n, start, len) ==
	      (owner < 0 ? NULL : &owner_names[owner]));
}

/* Give @m a new list of runs, shrunk to what is used. */
static void adopt(struct map *m, struct vcache_run *out, size_t n)
{
	free(m->run);
	m->run = realloc(out, n ? n * sizeof(*out) : 1);
	CHECK(m->run);
	m->n = n;
}

static void *room(size_t n, size_t size)
{
	void *p = malloc(n ? n * size : 1);

	CHECK(p);
	return p;
}

/* Sorted, disjoint runs, sometimes touching. */
static struct vcache_sectors *random_sectors(uint64_t *state, size_t *n)
{
	struct vcache_sectors list[SIZE], *exact;
	u64 at = check_below(state, 12);

	*n = 0;
	while (at < SIZE && check_below(state, 8)) {
		u64 len = 1 + check_below(state, 10);

		if (len > SIZE - at)
			len = SIZE - at;
		list[(*n)++] = (struct vcache_sectors){ at, len };
		at += len + (check_below(state, 3) ?
			     check_below(state, 16) : 0);
	}
	exact = room(*n, sizeof(*exact));
	memcpy(exact, list, *n * sizeof(*exact));
	return exact;
}

static void do_replace(struct map *m, uint64_t *state)
{
	int who = check_below(state, OWNERS), want[SIZE], i;
	size_t n, out_n = 12345, j;
	struct vcache_sectors *s = random_sectors(state, &n);
	struct vcache_run *out = room(m->n + n, sizeof(*out));
	bool clash = false;
	u64 x;
	int r;

	CHECK(!vcache_sectors_check(s, n, 0, SIZE));
	memcpy(want, m->owner, sizeof(want));
	for (i = 0; i < SIZE; i++) {
		if (want[i] == who)
			want[i] = -1;
	}
	for (j = 0; j < n; j++) {
		for (x = s[j].start; x < s[j].start + s[j].len; x++) {
			clash |= want[x] >= 0;
			want[x] = who;
		}
	}
	r = vcache_runs_replace(m->run, m->n, &owner_names[who], s, n, out,
				&out_n);
	CHECK(r == (clash ? -EEXIST : 0));
	free(s);
	if (r) {
		free(out);
		return;
	}
	memcpy(m->owner, want, sizeof(want));
	adopt(m, out, out_n);
}

static void do_subtract(struct map *m, uint64_t *state)
{
	u64 start = check_below(state, SIZE), s;
	u64 len = 1 + check_below(state, SIZE - start);
	struct vcache_run *out = room(m->n + 1, sizeof(*out));

	for (s = start; s < start + len; s++)
		m->owner[s] = -1;
	adopt(m, out, vcache_runs_subtract(m->run, m->n, start, len, out));
	CHECK(!vcache_runs_owner(m->run, m->n, start, 1));
}

static void a_random_map(uint64_t seed)
{
	uint64_t state = seed * 0x9e3779b97f4a7c15ULL;
	struct map m = { .run = NULL };
	unsigned int i, j;

	memset(m.owner, -1, sizeof(m.owner));
	for (i = 0; i < 200; i++) {
		if (check_below(&state, 3))
			do_replace(&m, &state);
		else
			do_subtract(&m, &state);
		check_map(&m);
		for (j = 0; j < 20; j++) {
			u64 start = check_below(&state, SIZE);

			check_owner(&m, start,
				    1 + check_below(&state, SIZE - start));
		}
	}
	free(m.run);
}

static void lists_of_user_space_are_checked(void)
{
	const struct vcache_sectors good[] = { { 8, 8 }, { 16, 1 }, { 99, 1 } };
	const struct vcache_sectors empty[] = { { 8, 0 } };
	const struct vcache_sectors overlap[] = { { 8, 8 }, { 15, 1 } };
	const struct vcache_sectors unsorted[] = { { 8, 8 }, { 0, 8 } };
	const struct vcache_sectors outside[] = { { 100, 1 } };
	const struct vcache_sectors behind[] = { { 101, 1 } };
	const struct vcache_sectors across[] = { { 99, 2 } };
	const struct vcache_sectors wraps[] = { { 8, UINT64_MAX } };
	const struct vcache_sectors wraps_to_0[] = { { 8, UINT64_MAX - 7 } };
	const struct vcache_sectors largest[] = { { 0, UINT64_MAX } };

	CHECK(!vcache_sectors_check(good, 3, 0, 100));
	CHECK(!vcache_sectors_check(good, 3, 8, 100));
	CHECK(!vcache_sectors_check(good, 0, 0, 0));
	CHECK(vcache_sectors_check(good, 3, 9, 100) == -EINVAL);
	CHECK(vcache_sectors_check(good, 3, 0, 99) == -EINVAL);
	CHECK(vcache_sectors_check(empty, 1, 0, 100) == -EINVAL);
	CHECK(vcache_sectors_check(overlap, 2, 0, 100) == -EINVAL);
	CHECK(vcache_sectors_check(unsorted, 2, 0, 100) == -EINVAL);
	CHECK(vcache_sectors_check(outside, 1, 0, 100) == -EINVAL);
	CHECK(vcache_sectors_check(behind, 1, 0, 100) == -EINVAL);
	CHECK(vcache_sectors_check(across, 1, 0, 100) == -EINVAL);
	CHECK(vcache_sectors_check(wraps, 1, 0, 100) == -EINVAL);
	CHECK(vcache_sectors_check(wraps_to_0, 1, 0, 100) == -EINVAL);
	CHECK(!vcache_sectors_check(largest, 1, 0, UINT64_MAX));
}

/* The last sectors of the 64-bit range. */
static void the_end_of_the_range_works(void)
{
	const u64 last = UINT64_MAX - 1;
	const struct vcache_sectors s[] = { { 0, 1 }, { last - 9, 10 } };
	struct vcache_run out[3], cut[4];
	size_t n;

	CHECK(!vcache_sectors_check(s, 2, 0, UINT64_MAX));
	CHECK(!vcache_runs_replace(NULL, 0, owner_names, s, 2, out, &n));
	CHECK(n == 2);
	CHECK(vcache_runs_owner(out, n, last, 1) == owner_names);
	CHECK(vcache_runs_owner(out, n, last - 9, 10) == owner_names);
	CHECK(!vcache_runs_owner(out, n, last - 10, 2));
	CHECK(vcache_runs_subtract(out, n, last - 5, 2, cut) == 3);
	CHECK(cut[1].start == last - 9 && cut[1].len == 4);
	CHECK(cut[2].start == last - 3 && cut[2].len == 4);
}

static void an_empty_map_owns_nothing(void)
{
	struct vcache_run out[1];
	size_t n = 9;

	CHECK(!vcache_runs_owner(NULL, 0, 0, 1));
	CHECK(!vcache_runs_subtract(NULL, 0, 0, 8, out));
	CHECK(!vcache_runs_replace(NULL, 0, owner_names, NULL, 0, out, &n));
	CHECK(n == 0);
}

int main(int argc, char **argv)
{
	lists_of_user_space_are_checked();
	the_end_of_the_range_works();
	an_empty_map_owns_nothing();
	check_seeds(argc, argv, 300, a_random_map);
	return 0;
}
