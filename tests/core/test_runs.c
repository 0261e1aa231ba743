// SPDX-License-Identifier: GPL-2.0
/*
 * Maps of runs, compared with an array that has the owner of each sector, and where each run
 * begins. All memory has exactly the size that the interface requires, so that the address
 * sanitizer detects one run too many.
 */
#include <string.h>

#include "check.h"
#include "map.h"

#define SIZE 2048	/* sectors of the model; several leaves */
#define OWNERS 4
#define MANY 5000	/* runs of a large map */

struct model {
	int owner[SIZE];	/* -1: none */
	bool begins[SIZE];	/* a run begins here */
};

struct state {
	struct vcache_runs *map;
	struct vcache_owner owner[OWNERS];
	struct model model;
};

static void model_remove(struct model *m, u64 start, u64 len, int who)
{
	u64 s;

	for (s = start; s < start + len; s++) {
		if (who >= 0 && m->owner[s] != who)
			continue;
		/* What is behind a hole in a run becomes a run of its own. */
		if (s + 1 < SIZE && m->owner[s] >= 0 && m->owner[s + 1] == m->owner[s])
			m->begins[s + 1] = true;
		m->owner[s] = -1;
		m->begins[s] = false;
	}
}

static u32 model_runs(const struct model *m, int who)
{
	u32 n = 0, s;

	for (s = 0; s < SIZE; s++)
		n += m->begins[s] && m->owner[s] == who;
	return n;
}

static u64 model_sectors(const struct model *m, int who)
{
	u64 n = 0, s;

	for (s = 0; s < SIZE; s++)
		n += m->owner[s] == who;
	return n;
}

/* Read a map as a model. */
static struct model read_map(const struct state *st, const struct vcache_runs *map)
{
	struct model m;
	size_t i;
	u64 s;
	u32 k;

	memset(&m, 0, sizeof(m));
	memset(m.owner, -1, sizeof(m.owner));
	CHECK(map_runs(map, SIZE) >= 0);
	for (i = 0; map && i < map->nr; i++) {
		for (k = 0; k < map->leaf[i]->nr; k++) {
			const struct vcache_run *r = &map->leaf[i]->run[k];

			m.begins[r->start] = true;
			for (s = r->start; s < r->start + r->len; s++)
				m.owner[s] = r->owner - st->owner;
		}
	}
	return m;
}

static void check_same(const struct state *st, const struct vcache_runs *map,
		       const struct model *want)
{
	struct model found = read_map(st, map);

	CHECK(!memcmp(found.owner, want->owner, sizeof(found.owner)));
	CHECK(!memcmp(found.begins, want->begins, sizeof(found.begins)));
}

static void check_state(const struct state *st)
{
	size_t i;
	int who;

	check_same(st, st->map, &st->model);
	/* Every leaf has a set of owners. */
	for (i = 0; st->map && i < st->map->nr; i++)
		CHECK(st->map->owners[i]);
	for (who = 0; who < OWNERS; who++) {
		CHECK(st->owner[who].runs == model_runs(&st->model, who));
		CHECK(st->owner[who].sectors == model_sectors(&st->model, who));
	}
}

static void check_lookup(const struct state *st, u64 start, u64 len)
{
	int owner = st->model.owner[start];
	u64 s;

	for (s = start; s < start + len; s++) {
		if (st->model.owner[s] != owner)
			owner = -1;
	}
	CHECK(vcache_runs_owner(st->map, start, len) ==
	      (owner < 0 ? NULL : &st->owner[owner]));
}

/* Sorted, disjoint runs, sometimes touching: few or many, in a part of the device or in all. */
static struct vcache_sectors *random_sectors(uint64_t *state, size_t *n)
{
	u64 from = check_below(state, 2) ? 0 : check_below(state, SIZE);
	u64 most = 1 + check_below(state, 3) * check_below(state, SIZE / 2);
	u64 gap = 1 + check_below(state, check_below(state, 2) ? 200 : 4);
	struct vcache_sectors list[SIZE], *exact;
	u64 at = from + check_below(state, gap);

	*n = 0;
	while (at < SIZE && *n < most) {
		u64 len = 1 + check_below(state, check_below(state, 8) ? 3 : 60);

		if (len > SIZE - at)
			len = SIZE - at;
		list[(*n)++] = (struct vcache_sectors){ at, len };
		at += len + (check_below(state, 3) ? check_below(state, gap) : 0);
	}
	exact = malloc(*n ? *n * sizeof(*exact) : 1);
	CHECK(exact);
	memcpy(exact, list, *n * sizeof(*exact));
	return exact;
}

/* What a change has to make of the model. Return the error. */
static int expect(const struct vcache_change *c, const struct state *st, int who,
		  struct model *want)
{
	u64 x;
	size_t j;
	bool clash = false;

	if (c->all)
		model_remove(want, 0, SIZE, who);
	for (j = 0; j < c->removes; j++)
		model_remove(want, c->remove[j].start, c->remove[j].len, who);
	for (j = 0; j < c->adds; j++)
		model_remove(want, c->add[j].start, c->add[j].len, who);
	for (j = 0; j < c->adds; j++) {
		for (x = c->add[j].start; x < c->add[j].start + c->add[j].len; x++) {
			clash |= st->model.owner[x] >= 0 && st->model.owner[x] != who;
			want->owner[x] = who;
			want->begins[x] = x == c->add[j].start;
		}
	}
	if (clash)
		return -EEXIST;
	return model_runs(want, who) > c->most ? -E2BIG : 0;
}

/* Do a change, which may lack memory, and compare it with the model. */
static int apply(struct state *st, struct vcache_change *c, int error,
		 const struct model *want, uint64_t *state)
{
	struct model before = st->model;
	int r;

	c->map = st->map;
	map_fails_after = check_below(state, 4) ? -1 : (int)check_below(state, 8);
	r = map_apply(c);
	/* It counts below 0 when one has failed. */
	if (r == -ENOMEM)
		CHECK(map_fails_after == -1);
	else
		CHECK(r == error);
	map_fails_after = -1;
	if (r) {
		CHECK(c->to == c->map && !c->gone);
		check_state(st);
		return r;
	}
	/* Who reads the map from before still finds everything. */
	if (c->to != c->map)
		check_same(st, c->map, &before);
	st->map = map_finish(c);
	st->model = *want;
	check_state(st);
	return 0;
}

static void do_change(struct state *st, uint64_t *state)
{
	int who = check_below(state, OWNERS), error;
	struct model want = st->model;
	struct vcache_sectors *remove, *add;
	struct vcache_change c = { .owner = &st->owner[who] };

	remove = random_sectors(state, &c.removes);
	add = random_sectors(state, &c.adds);
	c.remove = remove;
	c.add = add;
	c.all = !check_below(state, 4);
	if (c.all || !check_below(state, 3))
		c.removes = 0;
	else if (!check_below(state, 3))
		c.adds = 0;
	c.most = check_below(state, 4) ? SIZE : check_below(state, 2 * c.adds + 1);
	error = expect(&c, st, who, &want);
	error = apply(st, &c, error, &want, state);
	if (!error || error == -E2BIG)
		CHECK(c.runs == model_runs(&want, who));
	free(remove);
	free(add);
}

/* A hole that would give an owner a run too many takes the shorter part of the run as well. */
static void limit_hole(const struct state *st, struct model *want, u64 start, u64 len, u32 most)
{
	u64 first = start, end = start + len;
	int who = want->owner[start];

	if (who < 0 || st->owner[who].runs < most)
		return;
	while (!want->begins[first])
		first--;
	while (end < SIZE && want->owner[end] == who && !want->begins[end])
		end++;
	/* Only a hole in the middle of one run. */
	if (first == start || end == start + len)
		return;
	for (u64 s = start + 1; s < start + len; s++) {
		if (want->owner[s] != who || want->begins[s])
			return;
	}
	if (start - first >= end - (start + len))
		model_remove(want, start + len, end - (start + len), who);
	else
		model_remove(want, first, start - first, who);
}

static void do_punch(struct state *st, uint64_t *state)
{
	u64 start = check_below(state, SIZE);
	struct vcache_sectors s = { start, 1 + check_below(state, check_below(state, 3) ?
							    2 : SIZE - start) };
	u32 most = check_below(state, 2) ? SIZE : check_below(state, 40);
	struct vcache_change c = { .remove = &s, .removes = 1, .most = most };
	struct model want = st->model;

	if (s.len > SIZE - start)
		s.len = SIZE - start;
	limit_hole(st, &want, s.start, s.len, most);
	model_remove(&want, s.start, s.len, -1);
	apply(st, &c, 0, &want, state);
}

static void a_random_map(uint64_t seed)
{
	uint64_t state = seed * 0x9e3779b97f4a7c15ULL;
	struct state st = { .map = NULL };
	unsigned int i, j;

	memset(st.model.owner, -1, sizeof(st.model.owner));
	for (i = 0; i < 120; i++) {
		if (check_below(&state, 3))
			do_change(&st, &state);
		else
			do_punch(&st, &state);
		for (j = 0; j < 40; j++) {
			u64 start = check_below(&state, SIZE);
			u64 len = 1 + check_below(&state, check_below(&state, 2) ? 4 :
						  SIZE - start);

			check_lookup(&st, start, len > SIZE - start ? SIZE - start : len);
		}
	}
	map_free(st.map);
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
	const struct vcache_sectors cut = { last - 5, 2 };
	struct vcache_owner owner = { 0 };
	struct vcache_change c = { .owner = &owner, .add = s, .adds = 2, .most = 9 };
	struct vcache_change d = { .remove = &cut, .removes = 1, .most = 9 };

	CHECK(!vcache_sectors_check(s, 2, 0, UINT64_MAX));
	CHECK(!map_apply(&c));
	CHECK(owner.runs == 2 && owner.sectors == 11);
	d.map = map_finish(&c);
	CHECK(vcache_runs_owner(d.map, last, 1) == &owner);
	CHECK(vcache_runs_owner(d.map, last - 9, 10) == &owner);
	CHECK(!vcache_runs_owner(d.map, last - 10, 2));
	CHECK(!map_apply(&d));
	map_finish(&d);
	CHECK(owner.runs == 3 && owner.sectors == 9);
	CHECK(vcache_runs_owner(d.to, last - 9, 4) == &owner);
	CHECK(!vcache_runs_owner(d.to, last - 5, 1) && !vcache_runs_owner(d.to, last - 4, 1));
	CHECK(vcache_runs_owner(d.to, last - 3, 4) == &owner);
	map_free(d.to);
}

static void an_empty_map_owns_nothing(void)
{
	const struct vcache_sectors s = { 0, 8 };
	struct vcache_owner owner = { 0 };
	struct vcache_change all = { .owner = &owner, .all = true, .most = 9 };
	struct vcache_change punch = { .remove = &s, .removes = 1, .most = 9 };

	CHECK(!vcache_runs_owner(NULL, 0, 1));
	CHECK(!map_apply(&all) && !map_finish(&all) && !all.runs);
	CHECK(!map_apply(&punch) && !map_finish(&punch));
}

/* A list of @n runs of @len sectors, every 16 sectors. */
static struct vcache_sectors *every_16(size_t n, u64 at, u64 len)
{
	struct vcache_sectors *s = malloc(n * sizeof(*s));
	size_t i;

	CHECK(s);
	for (i = 0; i < n; i++)
		s[i] = (struct vcache_sectors){ at + 16 * i, len };
	return s;
}

static size_t length_of(const struct vcache_leaf *leaf)
{
	size_t n = 0;

	for (; leaf; leaf = leaf->next)
		n++;
	return n;
}

/* A change replaces the leaves that it touches, and mostly not even the directory. */
static void a_small_change_stays_small(void)
{
	struct vcache_owner one = { 0 }, two = { 0 };
	struct vcache_sectors *s = every_16(MANY, 0, 8), *t = every_16(20, 16 * 700 + 8, 4);
	const struct vcache_sectors free_sectors = { 16 * 80 + 8, 8 };
	const struct vcache_sectors run = { 16 * 80, 8 };
	struct vcache_change load = { .owner = &one, .all = true, .add = s, .adds = MANY,
				      .most = MANY };
	struct vcache_change c;
	struct vcache_runs *map;

	CHECK(!map_apply(&load));
	map = map_finish(&load);
	CHECK(one.runs == MANY && one.sectors == 8 * MANY);
	CHECK(map->nr <= MANY / VC_LEAF_HALF + 1);
	/* Nothing is there to be removed. */
	c = (struct vcache_change){ .map = map, .remove = &free_sectors, .removes = 1,
				    .most = MANY };
	CHECK(!map_apply(&c) && c.to == map && !c.gone);
	/* A run in the middle goes and comes back. */
	c = (struct vcache_change){ .map = map, .remove = &run, .removes = 1, .most = MANY };
	CHECK(!map_apply(&c) && c.to == map && length_of(c.gone) == 1);
	map_finish(&c);
	CHECK(!vcache_runs_owner(map, run.start, 1) && one.runs == MANY - 1);
	c = (struct vcache_change){ .map = map, .owner = &one, .add = &run, .adds = 1,
				    .most = MANY };
	CHECK(!map_apply(&c) && c.to == map && length_of(c.gone) == 1);
	map_finish(&c);
	CHECK(vcache_runs_owner(map, run.start, 8) == &one && c.runs == MANY);
	/* Another owner's runs between them come and go, and touch nothing else. */
	c = (struct vcache_change){ .map = map, .owner = &two, .all = true, .add = t, .adds = 20,
				    .most = 20 };
	CHECK(!map_apply(&c) && length_of(c.gone) <= 2);
	map = map_finish(&c);
	c = (struct vcache_change){ .map = map, .owner = &two, .all = true, .most = 20 };
	CHECK(!map_apply(&c) && length_of(c.gone) <= 3);
	map = map_finish(&c);
	CHECK(!two.runs && !two.sectors && one.runs == MANY);
	map_free(map);
	free(s);
	free(t);
}

/* Leaves that lose most of their runs are merged. */
static void small_leaves_are_merged(void)
{
	struct vcache_owner one = { 0 };
	struct vcache_sectors *s = every_16(MANY, 0, 8), cut;
	struct vcache_change c = { .owner = &one, .add = s, .adds = MANY, .most = MANY };
	size_t i;

	CHECK(!map_apply(&c));
	for (i = 0; i < MANY; i += 20) {
		/* All but the first of 20, from the back. */
		cut = (struct vcache_sectors){ 16 * (MANY - 20 - i) + 8, 16 * 19 + 8 };
		c = (struct vcache_change){ .map = map_finish(&c), .owner = &one,
					    .remove = &cut, .removes = 1, .most = MANY };
		CHECK(!map_apply(&c));
	}
	CHECK(one.runs == MANY / 20);
	CHECK(c.to->nr <= MANY / 20 / (VC_LEAF_MAX / 8));
	map_free(map_finish(&c));
	free(s);
}

/* Changes at the borders of leaves. */
static void borders_of_leaves_are_kept(void)
{
	struct vcache_owner one = { 0 };
	struct vcache_sectors *s = every_16(MANY, 0, 8), *t = every_16(60, 16 * 100 + 8, 4);
	/* Behind the last run of the first leaf; from there into the second one. */
	const struct vcache_sectors behind = { 16 * (VC_LEAF_HALF - 1) + 8, 4 };
	const struct vcache_sectors across = { 16 * (VC_LEAF_HALF - 1) + 12, 8 };
	const struct vcache_sectors most = { 0, 16 * 45 };
	struct vcache_change c = { .owner = &one, .add = s, .adds = MANY, .most = 2 * MANY };

	CHECK(!map_apply(&c) && c.to->leaf[0]->nr == VC_LEAF_HALF);
	c = (struct vcache_change){ .map = map_finish(&c), .owner = &one, .add = &behind,
				    .adds = 1, .most = 2 * MANY };
	CHECK(!map_apply(&c) && length_of(c.gone) == 1);
	c = (struct vcache_change){ .map = map_finish(&c), .owner = &one, .remove = &across,
				    .removes = 1, .most = 2 * MANY };
	CHECK(!map_apply(&c));
	CHECK(!vcache_runs_owner(c.to, 16 * VC_LEAF_HALF, 4));
	CHECK(vcache_runs_owner(c.to, 16 * VC_LEAF_HALF + 4, 4) == &one);
	/* A leaf with few runs is not merged with one that is nearly full. */
	c = (struct vcache_change){ .map = map_finish(&c), .owner = &one, .add = t, .adds = 60,
				    .most = 2 * MANY };
	CHECK(!map_apply(&c) && c.to->leaf[1]->nr == VC_LEAF_HALF + 60);
	c = (struct vcache_change){ .map = map_finish(&c), .owner = &one, .remove = &most,
				    .removes = 1, .most = 2 * MANY };
	CHECK(!map_apply(&c) && length_of(c.gone) == 1);
	map_free(map_finish(&c));
	free(s);
	free(t);
}

static void a_clash_is_named(void)
{
	struct vcache_owner one = { 0 }, two = { 0 };
	const struct vcache_sectors s[] = { { 100, 8 }, { 200, 8 } };
	const struct vcache_sectors before[] = { { 90, 11 } }, behind[] = { { 207, 9 } };
	struct vcache_change c = { .owner = &one, .add = s, .adds = 2, .most = 9 };

	CHECK(!map_apply(&c));
	c = (struct vcache_change){ .map = map_finish(&c), .owner = &two, .add = before,
				    .adds = 1, .most = 9 };
	CHECK(map_apply(&c) == -EEXIST && c.clash == 100 && c.other == &one);
	c.add = behind;
	CHECK(map_apply(&c) == -EEXIST && c.clash == 207 && c.other == &one);
	CHECK(!two.runs && one.runs == 2);
	map_free(c.to);
}

int main(int argc, char **argv)
{
	lists_of_user_space_are_checked();
	the_end_of_the_range_works();
	an_empty_map_owns_nothing();
	a_small_change_stays_small();
	small_leaves_are_merged();
	borders_of_leaves_are_kept();
	a_clash_is_named();
	check_seeds(argc, argv, 300, a_random_map);
	return 0;
}
