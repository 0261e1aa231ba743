// SPDX-License-Identifier: Apache-2.0
/* When garbage collection runs while a flush programs its pages. */
#include "commands.h"
#include "../../firmware/core/internal.h"

/* The most collection that any bank had put off when a page was programmed. */
static uint32_t put_off;
static const struct vs_ssd *watched;

static enum vs_status program_watched(void *ctx, vs_time now, struct vs_page at,
				      const void *data, const void *oob,
				      vs_time *done)
{
	uint32_t i;

	for (i = 0; i < watched->banks; i++) {
		if (watched->bank[i].gc_debt > put_off)
			put_off = watched->bank[i].gc_debt;
	}
	return nand_ops.program(ctx, now, at, data, oob, done);
}

/* A small flush does not wait for collection; a large one collects along the way. */
int main(void)
{
	struct vs_config c = shape(1, VS_TAGGED);
	struct vs_nand_ops ops = nand_ops;
	uint32_t i, round, debt[2];
	struct device d;
	uint64_t seed = 1;

	c.buffer_blocks = 128;
	c.geometry.blocks = 120;
	c.idle_percent = 0;
	for (round = 0; round < 2; round++) {
		uint32_t blocks = round ? 100 : 8;

		d = device_new(c, 1);
		ops.program = program_watched;
		device_format(&d);
		watched = d.ssd;
		for (i = 0; i < 6 * vs_blocks(d.ssd); i++)
			write_one(&d, 1, check_below(&seed, (unsigned int)
						     vs_blocks(d.ssd)));
		flush_tag(&d, 1);
		d.ssd->ops = &ops;
		put_off = 0;
		for (i = 0; i < 40 * blocks; i++) {
			write_one(&d, 1, check_below(&seed, (unsigned int)
						     vs_blocks(d.ssd)));
			if (i % blocks == blocks - 1)
				flush_tag(&d, 1);
		}
		debt[round] = put_off;
		device_free(&d);
	}
	/* 256 are one page. */
	CHECK(debt[1] < 1024);
	CHECK(debt[0] * 4 > debt[1] * 5);
	return 0;
}
