// SPDX-License-Identifier: GPL-2.0
/*
 * The pace of a writer, in a model: a chunk becomes free every so often, and one of them is kept
 * for the writer, who writes records as fast as the pace allows.
 */
#include "check.h"
#include "../../native/core/pace.h"

#define MS 1000000ULL
#define CAPACITY 256U
#define BLOCKS 2U

struct model {
	struct vcache_pace pace;
	u64 now;
	u64 record;	/* duration of a record without delays */
	u64 supply;	/* a chunk takes so long to become free */
	u64 spare;	/* when the next chunk is free */
	u64 records;
	u64 longest;	/* duration of a record with its delays */
	u32 at;
	uint64_t noise;	/* supply takes half to one and a half of it; 0: always the same */
};

static u64 supply(struct model *m)
{
	return m->noise ? m->supply / 2 + check_next(&m->noise) % m->supply : m->supply;
}

static void next_chunk(struct model *m)
{
	u64 early = m->now > m->spare ? m->now - m->spare : 0;

	if (m->now < m->spare) {
		vcache_pace_stop(&m->pace, m->now);
		m->now = m->spare;
		vcache_pace_go(&m->pace, m->now);
	}
	vcache_pace_open(&m->pace, m->now, early);
	m->spare = m->now + supply(m);
	m->at = 0;
}

static void write_for(struct model *m, u64 time)
{
	u64 end = m->now + time, before;

	m->records = 0;
	m->longest = 0;
	while (m->now < end) {
		before = m->now;
		if (m->at + BLOCKS > CAPACITY)
			next_chunk(m);
		/* As the caller does: it asks again after each wait. */
		m->now += vcache_pace_wait(&m->pace, m->now);
		vcache_pace_write(&m->pace, m->now, BLOCKS, CAPACITY);
		m->now += m->record;
		m->at += BLOCKS;
		m->records++;
		if (m->now - before > m->longest)
			m->longest = m->now - before;
	}
}

static struct model model(u64 supply)
{
	return (struct model) { .now = 1, .record = MS / 10, .supply = supply };
}

/* Records that the supply allows in a time. */
static u64 possible(const struct model *m, u64 time)
{
	return time / m->supply * (CAPACITY / BLOCKS);
}

static void test_a_short_supply_is_used_evenly(void)
{
	u64 supplies[] = { 20 * MS, 100 * MS, 1000 * MS }, i;

	for (i = 0; i < 3; i++) {
		struct model m = model(supplies[i]);

		write_for(&m, 30 * m.supply);
		write_for(&m, 100 * m.supply);
		CHECK(m.records >= possible(&m, 100 * m.supply) * 98 / 100);
		CHECK(m.longest <= m.supply / 20);
	}
}

static void test_also_if_the_supply_varies(void)
{
	struct model m = model(100 * MS);

	m.noise = 7;
	write_for(&m, 30 * m.supply);
	write_for(&m, 200 * m.supply);
	CHECK(m.records >= possible(&m, 200 * m.supply) * 90 / 100);
	/* Without a pace, a writer stands still for up to 137 ms. */
	CHECK(m.longest <= 90 * MS);
}

static void test_there_is_no_delay_without_want(void)
{
	struct model m = model(5 * MS);

	write_for(&m, 1000 * MS);
	CHECK(!m.pace.delay);
	CHECK(m.records == 10000);
}

static void test_want_is_forgotten_soon(void)
{
	struct model m = model(1000 * MS);

	write_for(&m, 30 * m.supply);
	CHECK(m.pace.delay > 900 * MS);
	m.supply = MS;
	write_for(&m, 3000 * MS);
	write_for(&m, 1000 * MS);
	CHECK(m.records >= 9900);
}

static void test_a_pause_is_no_want(void)
{
	struct model m = model(5 * MS);

	write_for(&m, 100 * MS);
	m.now += 10000 * MS;
	write_for(&m, 1000 * MS);
	CHECK(m.records == 10000);
}

static void test_a_device_that_hung_is_forgotten_soon(void)
{
	struct model m = model(5 * MS);

	write_for(&m, 100 * MS);
	m.spare += 100000 * MS;
	write_for(&m, 100000 * MS);
	write_for(&m, 1000 * MS);
	CHECK(m.records >= 5000);
	write_for(&m, 1000 * MS);
	CHECK(m.records >= 9900);
}

static void test_no_wait_is_longer_than_the_bound(void)
{
	struct vcache_pace p = { 0 };
	u64 i;

	for (i = 1; i <= 50; i++) {
		vcache_pace_stop(&p, i * 2000 * MS);
		vcache_pace_open(&p, i * 2000 * MS + 1000 * MS, 0);
	}
	CHECK(p.delay == VC_PACE_DELAY_MAX);
	for (i = 0; i < 3; i++) {
		vcache_pace_write(&p, 1000000 * MS, CAPACITY, CAPACITY);
		vcache_pace_grow(&p, 1000000 * MS, 1, 100, 100);
		CHECK(vcache_pace_wait(&p, 1000000 * MS) == VC_PACE_WAIT_MAX);
	}
	CHECK(!vcache_pace_wait(&p, 1000000 * MS + VC_PACE_WAIT_MAX));
}

static void test_records_are_split_to_stay_within_the_bound(void)
{
	struct vcache_pace p = { 0 };

	CHECK(vcache_pace_blocks(&p, CAPACITY, 0, 100) == CAPACITY);
	p.delay = 4 * VC_PACE_WAIT_MAX;
	CHECK(vcache_pace_blocks(&p, CAPACITY, 0, 100) == CAPACITY / 4);
	p.delay = VC_PACE_DELAY_MAX;
	CHECK(vcache_pace_blocks(&p, CAPACITY, 0, 100) == VC_PACE_BLOCKS_MIN);
	p.delay = 0;
	CHECK(vcache_pace_blocks(&p, CAPACITY, 1000, 2280) == CAPACITY);
	CHECK(vcache_pace_blocks(&p, CAPACITY, 1000, 1640) == CAPACITY / 4);
	CHECK(vcache_pace_blocks(&p, CAPACITY, 1000, 1000) == VC_PACE_BLOCKS_MIN);
}

/* Destage takes a block every 4 ms. Return: the longest wait. */
static u64 fill(u32 records, u32 blocks, u32 limit, u32 *dirty)
{
	struct vcache_pace p = { 0 };
	u64 now = 1, wait, longest = 0, cleaned = 0;
	u32 before = 0, i;

	for (i = 0; i < records; i++) {
		wait = vcache_pace_wait(&p, now);
		if (wait > longest)
			longest = wait;
		now += wait + MS / 10;
		while (cleaned + 4 * MS <= now && *dirty) {
			cleaned += 4 * MS;
			--*dirty;
		}
		if (*dirty > before)
			vcache_pace_grow(&p, now, *dirty - before, *dirty, limit);
		before = *dirty;
		*dirty += blocks;
	}
	return longest;
}

static void test_a_log_does_not_pass_its_limit(void)
{
	u32 dirty = 0;

	/* While there is much space, nothing waits. */
	CHECK(!fill(500, 2, 2000, &dirty));
	CHECK(dirty > 900);
	dirty = 0;
	CHECK(fill(20000, 2, 2000, &dirty) < 20 * MS);
	CHECK(dirty > 1500 && dirty < 2000);
	dirty = 0;
	CHECK(fill(20000, 16, 2000, &dirty) <= VC_PACE_WAIT_MAX);
	CHECK(dirty > 1500);
}

static void test_the_time_without_space_is_learned_once(void)
{
	struct vcache_pace p = { 0 };

	vcache_pace_stop(&p, 1);
	vcache_pace_stop(&p, 1 + 4 * MS);
	vcache_pace_go(&p, 1 + 8 * MS);
	vcache_pace_go(&p, 1 + 9 * MS);
	vcache_pace_open(&p, 1 + 10 * MS, 0);
	CHECK(p.delay == 2 * MS);
	vcache_pace_open(&p, 1 + 20 * MS, 0);
	CHECK(p.delay == 2 * MS);
}

int main(void)
{
	test_a_short_supply_is_used_evenly();
	test_also_if_the_supply_varies();
	test_there_is_no_delay_without_want();
	test_want_is_forgotten_soon();
	test_a_pause_is_no_want();
	test_a_device_that_hung_is_forgotten_soon();
	test_no_wait_is_longer_than_the_bound();
	test_the_time_without_space_is_learned_once();
	test_records_are_split_to_stay_within_the_bound();
	test_a_log_does_not_pass_its_limit();
	return 0;
}
