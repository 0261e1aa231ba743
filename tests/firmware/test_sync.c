// SPDX-License-Identifier: Apache-2.0
/*
 * The cost of a synced write of 4 KiB: test_sync SYNC_PAGES SYNC_COPIES LOAD
 *
 * One tag writes a block at random and flushes, again and again. If LOAD is not 0,
 * another tag writes so many blocks for each of them and never flushes. Prints the
 * programs, those of the first tag's log, data and copies, and the mean and the
 * longest flush in microseconds.
 */
#include <string.h>

#include "commands.h"

#define FLUSHES 4000u
#define WARM_UP 2000u

/* 8 dies on 4 channels, 16 KiB pages: the drive "tlc" of vcache-ssd. */
static const struct vs_config drive = {
	.geometry = { 4, 2, 40, 128, 16384, false },
	.buffer_blocks = 512, .max_tags = 16, .lanes = 1, .meta_stripe = 2,
	.spare_percent = 7, .bad_blocks = 2, .gc_pages = 8, .wear_gap = 64,
};

static uint64_t seed = 7;
static struct device d;

static void load(unsigned int blocks)
{
	uint64_t half = vs_blocks(d.ssd) / 2;

	while (blocks--) {
		uint64_t at = half + check_below(&seed, (unsigned int)half);
		struct vs_result r = vs_write(d.ssd, d.now, 2, at, 1, block_data,
					      false);

		CHECK(r.status == VS_OK);
		d.now = r.done;
	}
}

static void synced_write(void)
{
	write_one(&d, 1, check_below(&seed, (unsigned int)vs_blocks(d.ssd) / 2));
	flush_tag(&d, 1);
}

int main(int argc, char **argv)
{
	struct nand_config n = { .no_data = true };
	struct vs_tag_stats a, b;
	struct vs_stats s, t;
	unsigned int i, blocks;

	CHECK(argc == 4);
	d.c = drive;
	d.c.sync_pages = (uint32_t)atoi(argv[1]);
	d.c.sync_copies = (uint32_t)atoi(argv[2]);
	blocks = (unsigned int)atoi(argv[3]);
	n.geometry = d.c.geometry;
	n.timing = nand_tlc;
	d.nand = nand_open(&n);
	d.mem = malloc(vs_size_needed(&d.c));
	CHECK(d.nand && d.mem);
	device_format(&d);
	for (i = 0; i < vs_blocks(d.ssd); i++)
		write_one(&d, 3, i);
	flush_tag(&d, 3);
	for (i = 0; i < WARM_UP; i++) {
		load(blocks);
		synced_write();
	}
	vs_get_stats(d.ssd, &s);
	a = tag_stats(&d, 1);
	for (i = 0; i < FLUSHES; i++) {
		load(blocks);
		synced_write();
	}
	vs_get_stats(d.ssd, &t);
	b = tag_stats(&d, 1);
	printf("log %.3f sync %.3f map %.3f gc %.3f mean %.0f longest %.0f\n",
	       (double)(t.programmed[VS_CAUSE_LOG] -
			s.programmed[VS_CAUSE_LOG]) / 4 / FLUSHES,
	       (double)(t.sync_pages - s.sync_pages) / FLUSHES,
	       (double)(t.programmed[VS_CAUSE_MAP] -
			s.programmed[VS_CAUSE_MAP]) / 4 / FLUSHES,
	       (double)(t.programmed[VS_CAUSE_GC] -
			s.programmed[VS_CAUSE_GC]) / 4 / FLUSHES,
	       (double)(b.flush_ns - a.flush_ns) / FLUSHES / 1000,
	       (double)b.flush_max_ns / 1000);
	device_free(&d);
	return 0;
}
