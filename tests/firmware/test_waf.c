// SPDX-License-Identifier: Apache-2.0
/*
 * Write amplification in steady state: test_waf SPARE [MAPPING [PATTERN]],
 * by default page mapping with greedy collection (0; FAST: 1) under uniform
 * random writes (0; in order: 1). Prints, in thousandths: measured WAF of data,
 * over-provisioning T/U, erases for each erase block that the host wrote, and
 * programs of map and logs for each block that it wrote.
 */
#include <string.h>

#include "device.h"

#define BUFFER 16

static void write_blocks(struct device *d, uint64_t *seed, uint64_t writes,
			 bool in_order)
{
	static uint8_t data[VS_BLOCK];
	uint64_t i;

	for (i = 0; i < writes; i++) {
		uint64_t blocks = vs_blocks(d->ssd);
		uint64_t block = in_order ? i % blocks :
				 check_below(seed, (unsigned int)blocks);
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
	uint64_t seed = 12345, moved, host, physical, meta, erases;
	bool in_order = argc > 3 && atoi(argv[3]);
	struct device d;

	CHECK(argc >= 2 && argc <= 4);
	c.spare_percent = (uint32_t)atoi(argv[1]);
	c.mapping = argc > 2 ? (enum vs_mapping)atoi(argv[2]) : VS_MAP_PAGE;
	d = device_new(c, 1);
	device_format(&d);
	/* Fill in order, then let the distribution over blocks settle. */
	write_blocks(&d, &seed, vs_blocks(d.ssd), true);
	write_blocks(&d, &seed, 4 * vs_blocks(d.ssd), in_order);
	vs_get_stats(d.ssd, &before);
	write_blocks(&d, &seed, 4 * vs_blocks(d.ssd), in_order);
	vs_get_stats(d.ssd, &after);
	host = data_blocks(&after) - data_blocks(&before);
	moved = after.programmed[VS_CAUSE_GC] - before.programmed[VS_CAUSE_GC] +
		after.programmed[VS_CAUSE_MERGE] -
		before.programmed[VS_CAUSE_MERGE];
	meta = after.programmed[VS_CAUSE_LOG] - before.programmed[VS_CAUSE_LOG] +
	       after.programmed[VS_CAUSE_MAP] - before.programmed[VS_CAUSE_MAP];
	erases = after.erases - before.erases;
	physical = vs_data_blocks(d.ssd) * c.geometry.pages;
	printf("%llu %llu %llu %llu\n",
	       (unsigned long long)((host + moved) * 1000 / host),
	       (unsigned long long)(physical * 1000 / vs_blocks(d.ssd)),
	       (unsigned long long)(erases * c.geometry.pages * 1000 / host),
	       (unsigned long long)(meta * 1000 / host));
	device_free(&d);
	return 0;
}
