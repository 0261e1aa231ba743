// SPDX-License-Identifier: Apache-2.0
/*
 * Write amplification of greedy collection under uniform random writes.
 * Prints, in thousandths: measured WAF, over-provisioning T/U.
 */
#include <string.h>

#include "device.h"

#define BUFFER 16

static void write_random(struct device *d, uint64_t *seed, uint64_t writes)
{
	static uint8_t data[VS_BLOCK];
	uint64_t i;

	for (i = 0; i < writes; i++) {
		uint64_t block = check_below(seed,
					     (unsigned int)vs_blocks(d->ssd));
		struct vs_result r;

		r = vs_write(d->ssd, d->now, 1, block, 1, data, false);
		CHECK(r.status == VS_OK);
		d->now = r.done;
	}
}

static uint64_t data_blocks(const struct vs_stats *s)
{
	return s->programmed[VS_CAUSE_HOST];
}

int main(int argc, char **argv)
{
	struct vs_config c = {
		.geometry = { 1, 1, 256, 32, 4096, false },
		.buffer_blocks = BUFFER, .max_tags = 2, .lanes = 1,
		.meta_stripe = 1, .gc = VS_GC_GREEDY, .gc_pages = 32,
	};
	struct vs_stats before, after;
	uint64_t seed = 12345, moved, host, physical;
	struct device d;

	CHECK(argc == 2);
	c.spare_percent = (uint32_t)atoi(argv[1]);
	d = device_new(c, 1);
	device_format(&d);
	/* Fill in order, then let the distribution over blocks settle. */
	for (uint64_t i = 0; i < vs_blocks(d.ssd); i++) {
		static uint8_t data[VS_BLOCK];
		struct vs_result r = vs_write(d.ssd, d.now, 1, i, 1, data,
					      false);

		CHECK(r.status == VS_OK);
		d.now = r.done;
	}
	write_random(&d, &seed, 4 * vs_blocks(d.ssd));
	vs_get_stats(d.ssd, &before);
	write_random(&d, &seed, 4 * vs_blocks(d.ssd));
	vs_get_stats(d.ssd, &after);
	host = data_blocks(&after) - data_blocks(&before);
	moved = after.programmed[VS_CAUSE_GC] - before.programmed[VS_CAUSE_GC];
	physical = vs_data_blocks(d.ssd) * c.geometry.pages;
	printf("%llu %llu\n",
	       (unsigned long long)((host + moved) * 1000 / host),
	       (unsigned long long)(physical * 1000 / vs_blocks(d.ssd)));
	device_free(&d);
	return 0;
}
