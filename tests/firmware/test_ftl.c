// SPDX-License-Identifier: Apache-2.0
/*
 * The device without power cuts: counters, scope of flushes, full devices, failing
 * blocks, lanes.
 */
#include <string.h>
#include <unistd.h>

#include "commands.h"
#include "places.h"
#include "workload.h"

/* Every page programmed by the NAND has a known cause. */
static void check_sums(struct device *d, struct nand_counters since)
{
	uint64_t sum = 0, slots = d->c.geometry.page_size / VS_BLOCK;
	struct nand_counters c = nand_count(d->nand);
	struct vs_stats s;
	int i;

	vs_get_stats(d->ssd, &s);
	for (i = 0; i < VS_CAUSES; i++)
		sum += s.programmed[i];
	CHECK(sum == (c.programs - since.programs) * slots);
	CHECK(s.erases == c.erases - since.erases);
}

static void check_erase_histogram(struct device *d)
{
	const struct vs_geometry *g = &d->c.geometry;
	uint32_t out[512], expected[512] = { 0 }, i, k;

	for (i = 0; i < g->channels * g->ways; i++) {
		for (k = 0; k < g->blocks; k++)
			expected[nand_erase_count(d->nand, i, k)]++;
	}
	vs_erase_histogram(d->ssd, 1, out, 512);
	CHECK(!memcmp(out, expected, sizeof(out)));
}

/* Long random runs on a full device, read back against the oracle. */
static void test_model(unsigned int i, enum vs_personality personality)
{
	struct device d = device_new(shape(i, personality), check_seed);
	struct nand_counters start = nand_count(d.nand);
	uint64_t seed = check_seed * 2 + 1;
	struct oracle *o;

	device_format(&d);
	o = oracle_new(vs_blocks(d.ssd));
	CHECK(workload_fill(&d, o) == VS_OK);
	CHECK(workload_run(&d, o, &seed, 800) == VS_OK);
	check_sums(&d, start);
	check_erase_histogram(&d);
	CHECK(workload_fill(&d, o) == VS_OK);
	oracle_check_all(o, &d);
	check_banks(d.ssd);
	if (d.c.mapping == VS_MAP_FAST) {
		check_data_blocks(d.ssd);
		check_log_blocks(d.ssd);
	}
	oracle_free(o);
	device_free(&d);
}

/* Recovery finds out how often blocks have been erased. */
static void test_known_erases(unsigned int i)
{
	struct device d = device_new(shape(i, VS_TAGGED), 1);
	uint64_t seed = 3;
	struct oracle *o;

	device_format(&d);
	o = oracle_new(vs_blocks(d.ssd));
	CHECK(workload_run(&d, o, &seed, 3000) == VS_OK);
	CHECK(device_mount(&d) == VS_OK);
	check_erase_histogram(&d);
	oracle_free(o);
	device_free(&d);
}

/* The same seed gives the same operations at the same times. */
static void test_determinism(void)
{
	uint64_t trace[2], i;
	uint32_t hash[2];

	for (i = 0; i < 2; i++) {
		struct device d = device_new(shape(2, VS_TAGGED), 7);
		uint64_t seed = 7;
		struct oracle *o;

		device_format(&d);
		o = oracle_new(vs_blocks(d.ssd));
		CHECK(workload_run(&d, o, &seed, 1000) == VS_OK);
		trace[i] = nand_count(d.nand).trace;
		hash[i] = vs_map_hash(d.ssd);
		oracle_free(o);
		device_free(&d);
	}
	CHECK(trace[0] == trace[1]);
	CHECK(hash[0] == hash[1]);
}

/* A flush writes the blocks of its tag and of the host tag, and only their logs. */
static void test_isolation(void)
{
	struct device d = device_new(shape(3, VS_TAGGED), 1);
	struct vs_stats before, after;

	device_format(&d);
	write_one(&d, 1, 1);
	write_one(&d, 2, 2);
	write_one(&d, VS_TAG_HOST, 3);
	vs_get_stats(d.ssd, &before);
	flush_tag(&d, 1);
	vs_get_stats(d.ssd, &after);
	CHECK(tag_stats(&d, 1).buffered == 0);
	CHECK(tag_stats(&d, 1).unlogged == 0);
	CHECK(tag_stats(&d, 1).flushes == 1);
	CHECK(tag_stats(&d, 1).log_pages == 1);
	CHECK(tag_stats(&d, 1).flush_ns == tag_stats(&d, 1).flush_max_ns);
	CHECK(tag_stats(&d, 2).buffered == 1);
	CHECK(tag_stats(&d, 2).log_pages == 0);
	CHECK(tag_stats(&d, VS_TAG_HOST).buffered == 0);
	CHECK(tag_stats(&d, VS_TAG_HOST).log_pages == 1);
	CHECK(after.checkpoints == before.checkpoints);
	/* Two log pages of four blocks, twice; two blocks of data in one page. */
	CHECK(after.programmed[VS_CAUSE_LOG] == 16);
	CHECK(after.programmed[VS_CAUSE_HOST] == 2);
	CHECK(after.programmed[VS_CAUSE_PADDING] == 2);
	/* Again: nothing to do, no time. */
	vs_get_stats(d.ssd, &before);
	flush_tag(&d, 1);
	vs_get_stats(d.ssd, &after);
	CHECK(!memcmp(&before, &after, sizeof(before)));
	device_free(&d);
}

/* A write with FUA fills its pages, and has one log page, twice, for any length. */
static void test_fua(void)
{
	static const uint8_t data[10 * VS_BLOCK];
	struct device d = device_new(shape(3, VS_TAGGED), 1);
	struct vs_stats before, after;
	struct vs_result r;

	device_format(&d);
	write_one(&d, 2, 20);
	vs_get_stats(d.ssd, &before);
	r = vs_write(d.ssd, d.now, 1, 0, 10, data, true);
	CHECK(r.status == VS_OK);
	vs_get_stats(d.ssd, &after);
	CHECK(after.programmed[VS_CAUSE_HOST] == 10);
	CHECK(after.programmed[VS_CAUSE_PADDING] == 2);
	CHECK(after.programmed[VS_CAUSE_LOG] == 8);
	CHECK(after.checkpoints == before.checkpoints);
	CHECK(tag_stats(&d, 1).buffered == 0);
	CHECK(tag_stats(&d, 1).unlogged == 0);
	CHECK(tag_stats(&d, 2).buffered == 1);
	/* Blocks of another tag in the buffer are in the log of the host tag. */
	r = vs_write(d.ssd, r.done, 1, 20, 1, data, true);
	CHECK(r.status == VS_OK);
	CHECK(tag_stats(&d, VS_TAG_HOST).log_pages == 1);
	CHECK(tag_stats(&d, VS_TAG_HOST).unlogged == 0);
	device_free(&d);
}

/* Baseline writes the data of all tags, and the map, at each flush. */
static void test_baseline(void)
{
	struct device d = device_new(shape(3, VS_BASELINE), 1);
	struct vs_stats before, after;

	device_format(&d);
	write_one(&d, 1, 1);
	write_one(&d, 2, 2);
	vs_get_stats(d.ssd, &before);
	flush_tag(&d, 1);
	vs_get_stats(d.ssd, &after);
	CHECK(tag_stats(&d, 2).buffered == 0);
	CHECK(after.checkpoints == before.checkpoints + 1);
	CHECK(after.programmed[VS_CAUSE_LOG] == 0);
	device_free(&d);
}

/* Blocks go only to the lane of their tag, until it is full. */
static void test_lanes(void)
{
	struct device d = device_new(shape(3, VS_TAGGED), 1);
	struct vs_stats s;
	uint64_t i;

	device_format(&d);
	CHECK(vs_set_lane(d.ssd, 1, 2, false) == VS_EINVAL);
	CHECK(vs_set_lane(d.ssd, 1, 1, true) == VS_OK);
	for (i = 0; i < vs_blocks(d.ssd) / 2; i++)
		write_one(&d, 1, i);
	vs_get_stats(d.ssd, &s);
	CHECK(s.spilled == 0);
	for (; i < vs_blocks(d.ssd); i++)
		write_one(&d, 1, i);
	flush_tag(&d, 1);
	vs_get_stats(d.ssd, &s);
	CHECK(s.spilled > 0);
	device_free(&d);
}

/* A tag keeps its lane while it has no data. */
static void test_lanes_of_idle_tags(void)
{
	struct device d = device_new(shape(2, VS_TAGGED), 1);
	struct vs_stats s;
	uint32_t tag, i;

	device_format(&d);
	for (tag = 1; tag <= 2; tag++)
		CHECK(vs_set_lane(d.ssd, tag, tag - 1, true) == VS_OK);
	CHECK(vs_set_lane(d.ssd, 3, 0, false) == VS_EINVAL);
	for (i = 0; i < 64; i++)
		write_one(&d, 1 + i % 2, i);
	flush_tag(&d, 1);
	flush_tag(&d, 2);
	vs_get_stats(d.ssd, &s);
	CHECK(s.programmed[VS_CAUSE_HOST] == 64 && s.spilled == 0);
	/* Without a lane, the area is free for another tag. */
	CHECK(vs_set_lane(d.ssd, 1, VS_LANE_ANY, false) == VS_OK);
	CHECK(vs_flush(d.ssd, d.now, 0, vs_blocks(d.ssd)).status == VS_OK);
	device_free(&d);
}

/* A log area is free again once its tag has no data left. */
static void test_tag_reuse(void)
{
	struct device d = device_new(shape(1, VS_TAGGED), 1);
	struct vs_tag_stats t;
	uint32_t tag;

	device_format(&d);
	for (tag = 1; tag <= 5; tag++)
		write_one(&d, tag, tag);
	CHECK(vs_get_tag_stats(d.ssd, 3, &t));
	CHECK(!vs_get_tag_stats(d.ssd, 4, &t));
	CHECK(tag_stats(&d, VS_TAG_HOST).written == 2);
	CHECK(vs_set_lane(d.ssd, 4, 0, false) == VS_EINVAL);
	/* Tags that share the area of the host tag are flushed with every tag. */
	flush_tag(&d, 4);
	CHECK(tag_stats(&d, VS_TAG_HOST).buffered == 0);
	CHECK(vs_trim(d.ssd, d.now, VS_TAG_HOST, 0, 8).status == VS_OK);
	for (tag = 0; tag < 400; tag++) {
		write_one(&d, VS_TAG_HOST, 9);
		flush_tag(&d, VS_TAG_HOST);
	}
	write_one(&d, 6, 1);
	CHECK(vs_get_tag_stats(d.ssd, 6, &t));
	device_free(&d);
}

static void test_range(void)
{
	struct device d = device_new(shape(1, VS_TAGGED), 1);
	uint64_t n;

	device_format(&d);
	n = vs_blocks(d.ssd);
	CHECK(vs_read(d.ssd, 0, n, 1, block_data).status == VS_EINVAL);
	CHECK(vs_read(d.ssd, 0, UINT64_MAX, 2, block_data).status == VS_EINVAL);
	CHECK(vs_write(d.ssd, 0, 0, n - 1, 2, block_data, false).status ==
	      VS_EINVAL);
	CHECK(vs_trim(d.ssd, 0, 0, 1, UINT64_MAX).status == VS_EINVAL);
	CHECK(vs_flush(d.ssd, 0, 0, n + 1).status == VS_EINVAL);
	CHECK(vs_flush(d.ssd, 0, n, 0).status == VS_OK);
	device_free(&d);
}

/* Factory and grown bad blocks; at the end, read-only with all data readable. */
static void test_bad_blocks(void)
{
	struct vs_config c = shape(2, VS_TAGGED);
	struct nand_config n = {
		.geometry = c.geometry,
		.timing = nand_tlc,
		.seed = check_seed,
		.factory_bad = 2,
		.fail_ppm = 600,
	};
	struct device d = { .c = c, .nand = nand_open(&n) };
	uint64_t seed = check_seed * 2 + 1;
	enum vs_status status = VS_OK;
	struct vs_stats s;
	struct vs_result r = { VS_OK, 0 };
	struct oracle *o;
	uint32_t i;

	c.bad_blocks = 3;
	d.c = c;
	d.mem = malloc(vs_size_needed(&c));
	device_format(&d);
	o = oracle_new(vs_blocks(d.ssd));
	CHECK(workload_fill(&d, o) == VS_OK);
	for (i = 0; i < 24; i++) {
		vs_get_stats(d.ssd, &s);
		if (s.bad_blocks > 3)
			break;
		CHECK(workload_run(&d, o, &seed, 100) == VS_OK);
	}
	vs_get_stats(d.ssd, &s);
	CHECK(s.bad_blocks > 2);
	oracle_check_all(o, &d);
	r = vs_flush(d.ssd, d.now, 0, vs_blocks(d.ssd));
	CHECK(r.status == VS_OK);
	d.now = r.done;
	CHECK(device_mount(&d) == VS_OK);
	oracle_check_all(o, &d);
	/* Until it is worn out. */
	for (i = 0; status == VS_OK && i < 200000; i++) {
		uint64_t block = check_below(&seed,
					     (unsigned int)vs_blocks(d.ssd));

		oracle_write(o, block, 1, block_data);
		r = vs_write(d.ssd, d.now, 1, block, 1, block_data, true);
		status = r.status;
		d.now = r.done;
	}
	CHECK(status == VS_EREADONLY);
	for (i = 0; i < vs_blocks(d.ssd); i++)
		CHECK(vs_read(d.ssd, d.now, i, 1, block_data).status == VS_OK);
	oracle_free(o);
	device_free(&d);
}

/* Blocks with cold data are worn evenly too. */
static void test_wear(unsigned int which)
{
	struct vs_config c = shape(which, VS_TAGGED);
	struct device d = device_new(c, 1);
	uint32_t out[4], i;

	device_format(&d);
	for (i = 0; i < vs_blocks(d.ssd); i++)
		write_one(&d, 1, i);
	for (i = 0; i < 6000; i++)
		write_one(&d, 1, i % 8);
	/* Erases of all blocks within 0.5 ... 1.5 of the mean. */
	i = (uint32_t)nand_count(d.nand).erases / c.geometry.blocks / 2;
	vs_erase_histogram(d.ssd, i, out, 4);
	CHECK(out[0] == 0);
	CHECK(out[3] == 0);
	device_free(&d);
}

/* A completely trimmed open block becomes pending when it is closed. */
static void test_trimmed_open_block(void)
{
	struct device d = device_new(shape(0, VS_TAGGED), 1);
	uint32_t i;

	device_format(&d);
	for (i = 0; i < d.c.geometry.pages; i++)
		write_one(&d, 1, i);
	flush_tag(&d, 1);
	CHECK(vs_trim(d.ssd, d.now, 1, 0, i).status == VS_OK);
	for (; i < 2 * d.c.geometry.pages; i++)
		write_one(&d, 1, i);
	CHECK(d.ssd->bank[0].pending == 1);
	check_banks(d.ssd);
	device_free(&d);
}

/* The freed blocks must not be erased before @freed_at. */
static vs_time freed_at;
static bool freed[64];
static uint32_t freed_erases;

static enum vs_status erase_freed(void *ctx, vs_time now, struct vs_page at,
				  vs_time *done)
{
	if (freed[at.block]) {
		CHECK(now >= freed_at);
		freed[at.block] = false;
		freed_erases++;
	}
	return nand_ops.erase(ctx, now, at, done);
}

/* A flush frees blocks when it completes, not when it begins. */
static void test_erase_waits(void)
{
	struct device d = device_new(shape(0, VS_TAGGED), 1);
	uint32_t i, pages = d.c.geometry.pages, blocks = d.c.geometry.blocks;
	struct vs_nand_ops ops = nand_ops;
	bool was_free[64];
	struct vs_result r;

	CHECK(blocks <= 64);
	ops.erase = erase_freed;
	device_format(&d);
	for (i = 0; i <= 2 * pages; i++)
		write_one(&d, 1, i);
	flush_tag(&d, 1);
	for (i = 0; i <= 2 * pages; i++)
		write_one(&d, 1, i);
	for (i = 0; i < blocks; i++)
		was_free[i] = d.ssd->block[i].state == VS_BLOCK_FREE;
	r = vs_flush_tag(d.ssd, d.now, 1);
	CHECK(r.status == VS_OK && r.done > d.now);
	for (i = 0; i < blocks; i++)
		freed[i] = d.ssd->block[i].state == VS_BLOCK_FREE && !was_free[i];
	freed_at = r.done;
	d.ssd->ops = &ops;
	/* At the time when the flush has begun. */
	for (i = 0; i < 40 * pages && !freed_erases; i++) {
		r = vs_write(d.ssd, d.now, 1, i % (4 * pages), 1, block_data,
			     false);
		CHECK(r.status == VS_OK);
	}
	CHECK(freed_erases);
	device_free(&d);
}

/* The word lines of pages of a checkpoint are not programmed further. */
static void test_checkpoint_is_committed(void)
{
	struct device d = device_new(shape(1, VS_TAGGED), 1);
	uint32_t i;

	device_format(&d);
	for (i = 0; i < d.c.lanes * d.ssd->stripe; i++)
		CHECK(d.ssd->meta[i].block == VS_NONE ||
		      d.ssd->meta[i].committed == d.ssd->meta[i].next);
	device_free(&d);
}

/* Idle banks write back blocks beyond a limit, one page each. */
static void test_idle(void)
{
	struct vs_config c = shape(1, VS_TAGGED);
	struct vs_stats s;
	struct device d;
	uint32_t i;

	c.buffer_blocks = 16;
	c.idle_percent = 25;
	d = device_new(c, 3);
	device_format(&d);
	for (i = 0; i < 12; i++)
		CHECK(vs_write(d.ssd, d.now, 1, i, 1, block_data,
			       false).status == VS_OK);
	vs_get_stats(d.ssd, &s);
	CHECK(s.programmed[VS_CAUSE_HOST] == 2 * 2);
	CHECK(tag_stats(&d, 1).buffered == 12 - 2 * 2);
	for (i = 0; i < 6; i++) {
		d.now += 1000000000;
		write_one(&d, 2, 20 + i);
	}
	CHECK(tag_stats(&d, 1).buffered + tag_stats(&d, 2).buffered == 4);
	/* The oldest first. */
	CHECK(tag_stats(&d, 1).buffered == 0);
	/* Blocks that were written back are not durable yet. */
	CHECK(tag_stats(&d, 1).unlogged == 12);
	device_free(&d);
}

/*
 * A flush skips pages of the word lines with its own data, but not of those with data
 * of other tags that is written at the same time.
 */
static void test_others_fill_their_word_lines(void)
{
	struct vs_config c = shape(1, VS_TAGGED);
	struct vs_stats a, b;
	struct device d;
	uint32_t i, k;

	c.geometry.channels = 2;
	c.geometry.ways = 4;
	c.idle_percent = 13;
	d = device_new(c, 3);
	device_format(&d);
	vs_get_stats(d.ssd, &a);
	for (i = 0; i < 100; i++) {
		for (k = 0; k < 16; k++) {
			d.now += 100000000;
			write_one(&d, 1, 100 + (16 * i + k) % 400);
		}
		write_one(&d, 2, i % 8);
		flush_tag(&d, 2);
	}
	vs_get_stats(d.ssd, &b);
	/* Of a page of data and one of the log: two, and checkpoints. */
	CHECK(b.skipped - a.skipped <= 100 * 3);
	device_free(&d);
}

/* A tag with a full log flushes by a checkpoint, the host tag at once its log. */
static void flush_both(struct device *d, unsigned int round)
{
	uint64_t blocks = vs_blocks(d->ssd);
	struct vs_result first, second;
	struct vs_stats a, b;
	unsigned int i;

	for (i = 0; i < 40; i++)
		write_one(d, 1, (round * 40 + i) % (blocks - 1));
	vs_get_stats(d->ssd, &a);
	first = vs_flush_tag(d->ssd, d->now, 1);
	write_one(d, VS_TAG_HOST, blocks - 1);
	second = vs_flush_tag(d->ssd, d->now, VS_TAG_HOST);
	vs_get_stats(d->ssd, &b);
	CHECK(first.status == VS_OK && second.status == VS_OK);
	CHECK(b.checkpoints > a.checkpoints);
	/* The log of the host tag names the checkpoint of the first. */
	CHECK(second.done >= first.done);
	d->now = vs_later(first.done, second.done);
}

/* Damage all pages of the map and of the root of a checkpoint. */
static void damage_checkpoint(struct device *d, uint64_t id)
{
	uint32_t i;

	for (i = 0; i < d->ssd->blocks_all * d->c.geometry.pages; i++) {
		struct vs_page at = vs_place(d->ssd, i);
		const struct vs_oob *oob = (void *)nand_oob(d->nand, at);
		const struct vs_meta *meta = (void *)nand_data(d->nand, at);

		if (oob->magic == VS_MAGIC && meta->checkpoint == id &&
		    (oob->type == VS_PAGE_MAP || oob->type == VS_PAGE_ROOT))
			nand_damage(d->nand, at);
	}
}

/* A log page exists only with its checkpoint, so it shows that this is lost. */
static void test_logs_and_their_checkpoint(void)
{
	struct device d = device_new(shape(2, VS_TAGGED), 1);
	unsigned int i;
	uint64_t id;

	device_format(&d);
	for (i = 0; i < 50; i++)
		flush_both(&d, i);
	id = d.ssd->checkpoint;
	damage_checkpoint(&d, id);
	CHECK(device_mount(&d) == VS_EMEDIA);
	device_free(&d);
	/* Without logs, it is as if the power had been cut during its root. */
	d = device_new(shape(2, VS_BASELINE), 1);
	device_format(&d);
	write_one(&d, 1, 1);
	flush_tag(&d, 1);
	id = d.ssd->checkpoint;
	damage_checkpoint(&d, id);
	CHECK(device_mount(&d) == VS_OK);
	CHECK(d.ssd->map[1] == VS_NONE);
	device_free(&d);
}

/* An image file outlives its process; one of another geometry is refused. */
static void test_image(void)
{
	char path[] = "/tmp/nand-XXXXXX";
	struct vs_config c = shape(1, VS_TAGGED);
	struct nand_config n = {
		.geometry = c.geometry, .timing = nand_tlc, .path = path,
	};
	struct device d = { .c = c };
	uint8_t data[VS_BLOCK];

	CHECK(mkstemp(path) >= 0);
	d.mem = malloc(vs_size_needed(&c));
	d.nand = nand_open(&n);
	CHECK(d.nand);
	CHECK(device_mount(&d) == VS_EMEDIA);
	device_format(&d);
	write_one(&d, 1, 5);
	flush_tag(&d, 1);
	nand_close(d.nand);
	d.nand = nand_open(&n);
	CHECK(device_mount(&d) == VS_OK);
	CHECK(vs_read(d.ssd, d.now, 5, 1, data).status == VS_OK);
	CHECK(!memcmp(data, block_data, sizeof(data)));
	device_free(&d);
	n.geometry.blocks++;
	CHECK(!nand_open(&n));
	unlink(path);
}

int main(int argc, char **argv)
{
	unsigned int i;

	check_seed = argc > 1 ? strtoull(argv[1], NULL, 0) : 1;
	test_range();
	test_isolation();
	test_fua();
	test_baseline();
	test_lanes();
	test_lanes_of_idle_tags();
	test_tag_reuse();
	test_determinism();
	test_image();
	test_logs_and_their_checkpoint();
	test_trimmed_open_block();
	test_erase_waits();
	test_checkpoint_is_committed();
	test_idle();
	test_others_fill_their_word_lines();
	test_wear(0);
	test_wear(5);
	test_known_erases(0);
	test_known_erases(5);
	test_bad_blocks();
	for (i = 0; i < SHAPES; i++) {
		test_model(i, VS_TAGGED);
		test_model(i, VS_BASELINE);
	}
	return 0;
}
