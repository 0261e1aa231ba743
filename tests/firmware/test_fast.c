// SPDX-License-Identifier: Apache-2.0
/*
 * FAST's counters after a trace: test_fast BLOCKS PAGES SLOTS LOG_BLOCKS.
 *
 * The trace is read from standard input: "w FIRST COUNT" writes blocks and
 * flushes, "t FIRST COUNT" trims. Counters since the format go to standard output, one
 * per line: name, value. The data is also read back and checked.
 */
#include <string.h>

#include "oracle.h"

#define MOST 16		/* blocks of a command */

static void run(struct device *d, struct oracle *o, char what, uint64_t first,
		uint32_t count)
{
	static uint8_t data[MOST * VS_BLOCK];
	struct vs_result r;
	uint32_t i;

	CHECK(count <= MOST || what == 't');
	for (i = 0; i < count; i++) {
		if (what == 'w')
			oracle_write(o, first + i, 1, data + i * VS_BLOCK);
		else
			oracle_trim(o, first + i, 1);
	}
	if (what == 't') {
		r = vs_trim(d->ssd, d->now, 1, first, count);
	} else {
		r = vs_write(d->ssd, d->now, 1, first, count, data, false);
		CHECK(r.status == VS_OK);
		r = vs_flush_tag(d->ssd, r.done, 1);
	}
	CHECK(r.status == VS_OK);
	d->now = r.done;
}

static void show(const char *name, uint64_t value)
{
	printf("%s %llu\n", name, (unsigned long long)value);
}

static void report(struct device *d, uint64_t formatted)
{
	struct nand_counters c = nand_count(d->nand);
	uint64_t slots = d->c.geometry.page_size / VS_BLOCK, sum = 0;
	struct vs_stats s;
	int i;

	vs_get_stats(d->ssd, &s);
	for (i = 0; i < VS_CAUSES; i++)
		sum += s.programmed[i];
	CHECK(sum == c.programs * slots);
	CHECK(s.erases == c.erases);
	CHECK(s.programmed[VS_CAUSE_GC] == 0);
	show("blocks", vs_blocks(d->ssd));
	show("switch", s.merges[VS_MERGE_SWITCH]);
	show("partial", s.merges[VS_MERGE_PARTIAL]);
	show("full", s.merges[VS_MERGE_FULL]);
	show("switch_copied", s.merged[VS_MERGE_SWITCH]);
	show("partial_copied", s.merged[VS_MERGE_PARTIAL]);
	show("full_copied", s.merged[VS_MERGE_FULL]);
	show("host", s.programmed[VS_CAUSE_HOST]);
	show("merge", s.programmed[VS_CAUSE_MERGE]);
	show("meta_pages", (s.programmed[VS_CAUSE_LOG] +
			    s.programmed[VS_CAUSE_MAP]) / slots);
	show("erases", c.erases - formatted);
}

int main(int argc, char **argv)
{
	struct vs_config c = {
		.geometry = { .channels = 1, .ways = 1 },
		.buffer_blocks = 4 * MOST, .max_tags = 2, .lanes = 1,
		.meta_stripe = 1, .gc_pages = 1, .mapping = VS_MAP_FAST,
	};
	unsigned long long first;
	unsigned int count;
	struct oracle *o;
	struct device d;
	uint64_t formatted;
	char what;

	CHECK(argc == 5);
	c.geometry.blocks = (uint32_t)atoi(argv[1]);
	c.geometry.pages = (uint32_t)atoi(argv[2]);
	c.geometry.page_size = (uint32_t)atoi(argv[3]) * VS_BLOCK;
	c.log_blocks = (uint32_t)atoi(argv[4]);
	d = device_new(c, 1);
	/* The first checkpoint's metadata block is erased when it is opened. */
	device_format(&d);
	formatted = c.geometry.blocks;
	o = oracle_new(vs_blocks(d.ssd));
	while (scanf(" %c %llu %u", &what, &first, &count) == 3)
		run(&d, o, what, first, count);
	oracle_check_all(o, &d);
	report(&d, formatted);
	oracle_free(o);
	device_free(&d);
	return 0;
}
