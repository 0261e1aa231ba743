// SPDX-License-Identifier: Apache-2.0
/* Tags share the write buffer and the time of the banks by weight. */
#include "commands.h"
#include "../../firmware/core/internal.h"

#define BUFFER 1024u
#define BURST 64u
#define LONG 256u
/* Room that is left to an active tag: a page for each bank. */
#define GUARANTEED 32u
#define HEAVY 1u
#define LIGHT 2u
#define OTHER 3u
#define PAUSE (2 * (vs_time)VS_LENT_AFTER)

static struct vs_config config(void)
{
	return (struct vs_config){
		.geometry = { 4, 2, 32, 64, 16384, false },
		.buffer_blocks = BUFFER,
		.max_tags = 4,
		.lanes = 1,
		.meta_stripe = 2,
		.spare_percent = 20,
		.bad_blocks = 1,
		.gc_pages = 4,
		.sync_pages = 4,
		.sync_copies = 2,
	};
}

static struct device new_device(void)
{
	struct device d = device_new(config(), 4);

	device_format(&d);
	return d;
}

static uint64_t heavy_next;

/* A command at a time; returns when it is complete. */
static vs_time write_some(struct device *d, uint32_t tag, uint64_t first,
			  uint32_t count, vs_time now)
{
	static const uint8_t data[LONG * VS_BLOCK];
	struct vs_result r;

	first += heavy_next++ * count % (vs_blocks(d->ssd) / 8);
	r = vs_write(d->ssd, now, tag, first, count, data, false);
	CHECK(r.status == VS_OK);
	return r.done;
}

static vs_time write_burst(struct device *d, uint32_t tag, uint64_t first,
			   vs_time now)
{
	return write_some(d, tag, first, BURST, now);
}

/* One tag writes as fast as it can, another one writes and flushes a block at times. */
static void run_beside(struct device *d, uint32_t requests, uint32_t count)
{
	uint64_t block = vs_blocks(d->ssd) / 2;
	vs_time heavy = d->now, light = d->now + 20000000;
	struct vs_result r;

	while (requests) {
		if (heavy <= light) {
			heavy = write_some(d, HEAVY, 0, count, heavy);
			continue;
		}
		r = vs_write(d->ssd, light, LIGHT, block + requests % 64, 1,
			     block_data, false);
		CHECK(r.status == VS_OK);
		r = vs_flush_tag(d->ssd, light, LIGHT);
		CHECK(r.status == VS_OK);
		light = r.done + 20000;
		requests--;
	}
	d->now = vs_later(heavy, light);
}

/* It waits neither for room nor for banks, but once: after it has been idle. */
static void test_light_beside_heavy(bool both, uint32_t count)
{
	struct device d = new_device();
	struct vs_tag_stats first, t;

	CHECK(vs_set_weight(d.ssd, LIGHT, 100) == VS_OK);
	if (both)
		CHECK(vs_set_weight(d.ssd, HEAVY, 100) == VS_OK);
	run_beside(&d, 4, count);
	first = tag_stats(&d, LIGHT);
	run_beside(&d, 200, count);
	t = tag_stats(&d, LIGHT);
	CHECK(t.flushes == 204);
	CHECK(t.buffer_wait_ns == first.buffer_wait_ns);
	CHECK(t.bank_wait_ns == first.bank_wait_ns);
	/* Two copies, of which one may wait for the transfer of the other; and some erases. */
	CHECK(t.bank_ns - first.bank_ns >= 200ull * 2 * 561000);
	CHECK(t.bank_ns - first.bank_ns < 200ull * 2 * 800000);
	CHECK(t.flush_ns - first.flush_ns < 200ull * 800000);
	CHECK(tag_stats(&d, HEAVY).buffer_wait_ns > 0);
	device_free(&d);
}

static uint32_t busy(const struct device *d)
{
	uint32_t i, n = 0;

	for (i = 0; i < d->ssd->banks; i++)
		n += d->ssd->bank[i].done > d->now;
	return n;
}

/* A tag that had all banks has its share of them soon, though it never pauses. */
static void test_gives_banks_back(void)
{
	struct device d = new_device();
	uint32_t i;

	CHECK(vs_set_weight(d.ssd, LIGHT, 100) == VS_OK);
	CHECK(vs_set_weight(d.ssd, HEAVY, 100) == VS_OK);
	for (i = 0; i < 2 * BUFFER / LONG; i++)
		write_some(&d, HEAVY, 0, LONG, d.now);
	CHECK(busy(&d) == d.ssd->banks);
	for (i = 0; i < 30; i++) {
		d.now += 5000000;
		write_some(&d, LIGHT, vs_blocks(d.ssd) / 2, 1, d.now);
		write_some(&d, HEAVY, 0, LONG, d.now);
	}
	CHECK(busy(&d) == d.ssd->banks / 2);
	device_free(&d);
}

/* A tag at its limit evicts its own blocks. */
static void test_evicts_its_own(void)
{
	struct device d = new_device();
	uint32_t i;

	for (i = 0; i < 16; i++) {
		write_one(&d, HEAVY, vs_blocks(d.ssd) / 4 + i);
		write_one(&d, LIGHT, vs_blocks(d.ssd) / 2 + i);
	}
	for (i = 0; i < 4 * BUFFER / BURST; i++) {
		d.now = write_burst(&d, HEAVY, 0, d.now);
		if (i % 4 == 0)
			write_one(&d, LIGHT, vs_blocks(d.ssd) / 2);
	}
	CHECK(tag_stats(&d, LIGHT).buffered == 16);
	CHECK(tag_stats(&d, LIGHT).share == BUFFER / 2);
	/* More than its share: the other tag uses little of its own. */
	CHECK(tag_stats(&d, HEAVY).buffered > BUFFER / 2);
	/* The share of an idle tag is lent, and what it has buffered is evicted first. */
	d.now += PAUSE;
	d.now = write_burst(&d, HEAVY, 0, d.now);
	CHECK(tag_stats(&d, LIGHT).share == 0);
	CHECK(tag_stats(&d, HEAVY).share == BUFFER);
	for (i = 0; i < BUFFER / BURST; i++)
		d.now = write_burst(&d, HEAVY, 0, d.now);
	CHECK(tag_stats(&d, LIGHT).buffered == 0);
	device_free(&d);
}

/* Room for a flush of usual size waits for every active tag. */
static void test_guaranteed(void)
{
	struct device d = new_device();
	vs_time now;
	uint32_t i;

	write_one(&d, LIGHT, 1);
	write_one(&d, OTHER, 2);
	for (i = 0; i < 4 * BUFFER / BURST; i++)
		d.now = write_burst(&d, HEAVY, 100, d.now);
	now = d.now;
	CHECK(write_some(&d, LIGHT, vs_blocks(d.ssd) / 2, GUARANTEED, now) == now);
	CHECK(write_some(&d, OTHER, vs_blocks(d.ssd) / 4, GUARANTEED, now) == now);
	/* The one that has more than its share makes room again. */
	for (i = 0; i < 4; i++)
		d.now = write_burst(&d, HEAVY, 100, d.now);
	now = d.now;
	CHECK(write_some(&d, LIGHT, vs_blocks(d.ssd) / 2, GUARANTEED, now) == now);
	device_free(&d);
}

/* Who needs room within its share gets it from who has more than that. */
static void test_takes_back(void)
{
	struct device d = new_device();
	uint32_t i;

	for (i = 0; i < 16; i++)
		write_one(&d, LIGHT, vs_blocks(d.ssd) / 4 + i);
	for (i = 0; i < 2 * BUFFER / BURST; i++)
		d.now = write_burst(&d, HEAVY, 0, d.now);
	CHECK(tag_stats(&d, HEAVY).buffered > BUFFER * 3 / 4);
	for (i = 0; i < 5; i++)
		d.now = write_burst(&d, OTHER, vs_blocks(d.ssd) / 2, d.now);
	CHECK(tag_stats(&d, OTHER).buffered == 5 * BURST);
	CHECK(tag_stats(&d, HEAVY).buffered <= BUFFER - 5 * BURST);
	CHECK(tag_stats(&d, LIGHT).buffered == 16);
	/* The banks did it for the one whose blocks they wrote. */
	CHECK(tag_stats(&d, OTHER).bank_ns == 0);
	device_free(&d);
}

/* Two that write as fast as they can. */
static void test_weights(void)
{
	struct device d = new_device();
	struct vs_tag_stats a, b;
	vs_time at[2];
	uint32_t i;

	CHECK(vs_set_weight(d.ssd, HEAVY, 300) == VS_OK);
	CHECK(vs_set_weight(d.ssd, LIGHT, 100) == VS_OK);
	at[0] = at[1] = d.now;
	for (i = 0; i < 200; i++) {
		uint32_t next = at[1] < at[0];

		at[next] = write_burst(&d, HEAVY + next,
				       vs_blocks(d.ssd) / 2 * next, at[next]);
	}
	a = tag_stats(&d, HEAVY);
	b = tag_stats(&d, LIGHT);
	CHECK(a.share == BUFFER * 3 / 4 && b.share == BUFFER / 4);
	CHECK(a.buffered <= BUFFER * 3 / 4 && b.buffered <= BUFFER / 4);
	CHECK(a.bank_ns > 2 * b.bank_ns && a.bank_ns < 4 * b.bank_ns);
	CHECK(a.written > 2 * b.written);
	device_free(&d);
}

static void test_set_weight(void)
{
	struct device d = new_device();
	struct vs_tag_stats t;
	uint32_t tag;

	CHECK(vs_set_weight(d.ssd, 1, VS_WEIGHT_MAX + 1) == VS_EINVAL);
	CHECK(vs_get_weight(d.ssd, 1) == 0);
	CHECK(vs_set_weight(d.ssd, VS_TAG_HOST, 1) == VS_OK);
	CHECK(vs_get_weight(d.ssd, VS_TAG_HOST) == 1);
	/* A tag with a weight keeps its area. */
	for (tag = 1; tag < d.c.max_tags; tag++)
		CHECK(vs_set_weight(d.ssd, tag, VS_WEIGHT_MAX) == VS_OK);
	CHECK(vs_set_weight(d.ssd, tag, 1) == VS_EINVAL);
	write_one(&d, tag, 1);
	CHECK(!vs_get_tag_stats(d.ssd, tag, &t));
	CHECK(vs_get_weight(d.ssd, tag) == 0);
	CHECK(vs_set_weight(d.ssd, 1, 0) == VS_OK);
	CHECK(vs_set_weight(d.ssd, tag, 1) == VS_OK);
	CHECK(vs_get_weight(d.ssd, tag) == 1);
	CHECK(device_mount(&d) == VS_OK);
	CHECK(vs_get_weight(d.ssd, tag) == 0);
	device_free(&d);
}

/* An area goes to a new tag only when those of idle tags are gone. */
static void test_area_of_an_active_tag(void)
{
	struct device d = new_device();
	struct vs_tag_stats t;
	uint32_t tag;

	for (tag = 1; tag < d.c.max_tags; tag++) {
		write_one(&d, tag, tag);
		flush_tag(&d, tag);
	}
	d.now += PAUSE;
	write_one(&d, 1, 1);
	flush_tag(&d, 1);
	for (tag = 4; tag < 6; tag++) {
		write_one(&d, tag, tag);
		flush_tag(&d, tag);
	}
	CHECK(vs_get_tag_stats(d.ssd, 1, &t) && t.written == 2);
	CHECK(!vs_get_tag_stats(d.ssd, 2, &t) && !vs_get_tag_stats(d.ssd, 3, &t));
	device_free(&d);
}

/* In Baseline, every flush covers all tags, which have everything in common. */
static void test_baseline_does_not_share(void)
{
	struct device d = device_new(config(), 4);
	uint32_t i;

	d.c.personality = VS_BASELINE;
	device_format(&d);
	write_one(&d, LIGHT, vs_blocks(d.ssd) / 2);
	for (i = 0; i < 2 * BUFFER / BURST; i++)
		d.now = write_burst(&d, HEAVY, 0, d.now);
	CHECK(tag_stats(&d, LIGHT).buffered == 0);
	CHECK(tag_stats(&d, HEAVY).share == BUFFER);
	device_free(&d);
}

int main(void)
{
	test_light_beside_heavy(true, BURST);
	test_light_beside_heavy(true, LONG);
	test_light_beside_heavy(false, BURST);
	test_light_beside_heavy(false, LONG);
	test_gives_banks_back();
	test_evicts_its_own();
	test_guaranteed();
	test_takes_back();
	test_weights();
	test_set_weight();
	test_area_of_an_active_tag();
	test_baseline_does_not_share();
	return 0;
}
