// SPDX-License-Identifier: GPL-2.0
/*
 * The depth of destage, in a model: an origin has a round trip, and a bandwidth that its requests
 * share. So many windows are in flight as the depth allows.
 */
#include "check.h"
#include "../../native/core/flow.h"

#define US 1000ULL
#define MS 1000000ULL
#define BLOCKS 128U

struct model {
	struct vcache_flow flow;
	u64 now;
	u64 trip;	/* time of a window apart from its transfer */
	u64 transfer;	/* time in which nothing else is transferred */
	u64 free;	/* when the next transfer can begin */
	u64 end[VC_FLOW_DEPTH_MAX];	/* windows in flight, the earliest first */
	u64 sent[VC_FLOW_DEPTH_MAX];
	u32 n;
	u64 windows;
	u64 longest;
	u32 deepest;
	uint64_t noise;	/* transfers take half to one and a half of it; 0: always the same */
};

static void send_window(struct model *m)
{
	u64 transfer = m->transfer;

	if (m->noise)
		transfer = transfer / 2 + check_next(&m->noise) % transfer;
	if (!m->n)
		vcache_flow_begin(&m->flow, m->now);
	m->free = (m->free > m->now ? m->free : m->now) + transfer;
	m->sent[m->n] = m->now;
	m->end[m->n++] = m->free + m->trip;
}

static void complete_window(struct model *m)
{
	u64 took = m->end[0] - m->sent[0];
	u32 i;

	m->now = m->end[0] > m->now ? m->end[0] : m->now;
	for (i = 1; i < m->n; i++) {
		m->end[i - 1] = m->end[i];
		m->sent[i - 1] = m->sent[i];
	}
	m->n--;
	m->windows++;
	if (took > m->longest)
		m->longest = took;
	vcache_flow_done(&m->flow, m->now, BLOCKS, took);
	if (!m->n)
		vcache_flow_end(&m->flow, m->now);
}

static void run(struct model *m, u64 time)
{
	u64 end = m->now + time;

	m->windows = 0;
	m->longest = 0;
	m->deepest = 0;
	while (m->now < end) {
		CHECK(m->flow.depth.value >= 1 && m->flow.depth.value <= VC_FLOW_DEPTH_MAX);
		if (m->flow.depth.value > m->deepest)
			m->deepest = m->flow.depth.value;
		if (m->n < m->flow.depth.value)
			send_window(m);
		else
			complete_window(m);
	}
}

/* All windows in flight complete, and nothing is sent for a time. */
static void rest(struct model *m, u64 time)
{
	while (m->n)
		complete_window(m);
	m->now += time;
}

static struct model model(u64 trip, u64 transfer)
{
	struct model m = { .now = 1, .trip = trip, .transfer = transfer };

	vcache_flow_init(&m.flow);
	return m;
}

static void test_a_long_round_trip_is_filled_soon(void)
{
	u64 trips[] = { 500 * US, 2 * MS, 5 * MS, 7 * MS }, i;

	for (i = 0; i < 4; i++) {
		struct model m = model(trips[i], 500 * US);

		run(&m, 200 * MS);
		run(&m, 1000 * MS);
		CHECK(m.windows >= 2000 * 80 / 100);
	}
}

static void test_also_if_transfers_vary(void)
{
	struct model m = model(3 * MS, 500 * US);

	m.noise = 7;
	run(&m, 1000 * MS);
	run(&m, 3000 * MS);
	CHECK(m.windows >= 6000 * 75 / 100);
}

static void test_the_depth_has_a_bound(void)
{
	struct model m = model(40 * MS, 10 * US);

	run(&m, 3000 * MS);
	CHECK(m.deepest == VC_FLOW_DEPTH_MAX);
}

static void test_one_window_is_enough_without_a_round_trip(void)
{
	u64 tried = 0, i;
	struct model m = model(100 * US, 8 * MS);

	run(&m, 1000 * MS);
	CHECK(m.deepest == 2);
	for (i = 0; i < 100; i++) {
		run(&m, 100 * MS);
		tried += m.deepest > 1;
	}
	CHECK(tried && tried < 20);
	CHECK(m.flow.depth.value <= 2);
}

static void test_a_slow_disk_gets_one_window_at_a_time(void)
{
	struct model m = model(100 * US, 60 * MS);

	u64 i, tried = 0;

	for (i = 0; i < 100; i++) {
		run(&m, 1000 * MS);
		CHECK(m.deepest <= 2);
		tried += m.deepest > 1;
	}
	CHECK(tried < 34);
}

static void test_windows_do_not_stay_in_a_queue(void)
{
	struct model m = model(8 * MS, 500 * US);
	u64 i, deep = 0;

	run(&m, 2000 * MS);
	CHECK(m.deepest == VC_FLOW_DEPTH_MAX);
	/* The round trip becomes shorter: 3 windows fill it. */
	m.trip = MS;
	run(&m, 20000 * MS);
	for (i = 0; i < 100; i++) {
		run(&m, 50 * MS);
		CHECK(m.windows >= 100 * 75 / 100);
		deep += m.flow.depth.value > 5;
	}
	CHECK(deep < 10);
}

static void test_a_depth_that_brings_more_is_found_later(void)
{
	struct model m = model(100 * US, 500 * US);

	run(&m, 1000 * MS);
	CHECK(m.flow.depth.value <= 2);
	m.trip = 4 * MS;
	run(&m, 20000 * MS);
	run(&m, 1000 * MS);
	CHECK(m.windows >= 2000 * 75 / 100);
}

static void test_it_gives_way_when_others_use_the_origin(void)
{
	struct model m = model(4 * MS, 500 * US);
	u32 depth;

	run(&m, 2000 * MS);
	depth = m.flow.depth.value;
	CHECK(depth >= 6);
	m.transfer = 4 * MS;
	run(&m, 400 * MS);
	CHECK(m.flow.depth.value <= depth / 2);
}

static void test_no_window_waits_longer_than_the_bound_for_long(void)
{
	struct model m = model(4 * MS, 500 * US);

	run(&m, 2000 * MS);
	m.transfer = 25 * MS;
	run(&m, 3000 * MS);
	run(&m, 3000 * MS);
	CHECK(m.longest <= VC_DEPTH_LATENCY_MAX + 2 * m.transfer);
	CHECK(m.flow.depth.value <= 3);
}

static void test_a_failure_starts_again_with_one(void)
{
	struct model m = model(4 * MS, 500 * US);

	run(&m, 2000 * MS);
	vcache_flow_failed(&m.flow, m.now);
	CHECK(m.flow.depth.value == 1);
	rest(&m, 0);
	run(&m, 100 * MS);
	CHECK(m.deepest == 1);
	run(&m, 10000 * MS);
	run(&m, 1000 * MS);
	CHECK(m.windows >= 2000 * 75 / 100);
}

static void test_a_pause_does_not_count(void)
{
	struct model m = model(4 * MS, 500 * US);
	u64 i;

	run(&m, 2000 * MS);
	for (i = 0; i < 100; i++) {
		rest(&m, 5000 * MS);
		run(&m, 200 * MS);
		CHECK(m.windows >= 400 * 70 / 100);
	}
}

static void test_nor_does_it_make_a_try_look_good(void)
{
	struct model m = model(100 * US, 8 * MS);
	u64 i;

	for (i = 0; i < 100; i++) {
		run(&m, 100 * MS);
		CHECK(m.deepest <= 2);
		rest(&m, 5000 * MS);
	}
}

int main(void)
{
	test_a_long_round_trip_is_filled_soon();
	test_also_if_transfers_vary();
	test_the_depth_has_a_bound();
	test_one_window_is_enough_without_a_round_trip();
	test_a_slow_disk_gets_one_window_at_a_time();
	test_windows_do_not_stay_in_a_queue();
	test_a_depth_that_brings_more_is_found_later();
	test_it_gives_way_when_others_use_the_origin();
	test_no_window_waits_longer_than_the_bound_for_long();
	test_a_failure_starts_again_with_one();
	test_a_pause_does_not_count();
	test_nor_does_it_make_a_try_look_good();
	return 0;
}
