// SPDX-License-Identifier: Apache-2.0
/*
 * Memory of a device: in total, for each tag, for each block of the write buffer,
 * for each GiB of capacity. It depends on the size of pointers, so the lines begin
 * with "port".
 */
#include "selftest.h"

#define GIB (1u << 30)

static const struct {
	const char *name;
	struct vs_config c;
} drives[] = {
	{ "jasmine-64g", {
		.geometry = { 2, 4, 4096, 256, 8192, true },
		.buffer_blocks = 2048, .max_tags = 16, .lanes = 2,
		.meta_stripe = 1, .spare_percent = 7, .bad_blocks = 64,
		.gc_pages = 4 } },
	{ "tlc-128g", {
		.geometry = { 4, 4, 2048, 256, 16384, false },
		.buffer_blocks = 4096, .max_tags = 64, .lanes = 4,
		.meta_stripe = 2, .spare_percent = 7, .bad_blocks = 32,
		.gc_pages = 4 } },
	{ "tlc-1t", {
		.geometry = { 8, 8, 4096, 256, 16384, false },
		.buffer_blocks = 16384, .max_tags = 256, .lanes = 8,
		.meta_stripe = 2, .spare_percent = 7, .bad_blocks = 64,
		.gc_pages = 4 } },
	/* The size of its map alone does not fit in 32 bits. */
	{ "tlc-8t", {
		.geometry = { 16, 8, 16384, 256, 16384, false },
		.buffer_blocks = 16384, .max_tags = 256, .lanes = 8,
		.meta_stripe = 2, .spare_percent = 7, .bad_blocks = 64,
		.gc_pages = 4 } },
};

static void report(const char *name, const struct vs_config *c)
{
	uint64_t bytes = vs_size_needed(c), blocks = vs_capacity(c);
	struct vs_config one_less = *c, half = *c;

	one_less.max_tags--;
	st_print("port dram ");
	st_print(name);
	st_print_number("bytes", bytes);
	st_print_number("capacity", blocks * VS_BLOCK);
	st_print_number("bytes_per_tag", bytes - vs_size_needed(&one_less));
	one_less = *c;
	one_less.buffer_blocks--;
	st_print_number("bytes_per_buffered_block",
			bytes - vs_size_needed(&one_less));
	half.geometry.blocks /= 2;
	blocks -= vs_capacity(&half);
	if (blocks)
		st_print_number("bytes_per_gib",
				(bytes - vs_size_needed(&half)) *
				(GIB / VS_BLOCK) / blocks);
	st_print("\n");
}

/* False if the size of a device is too small for its map. */
bool st_dram(void)
{
	uint32_t i, wrong = 0;

	for (i = 0; i < sizeof(drives) / sizeof(drives[0]); i++) {
		uint64_t blocks = vs_capacity(&drives[i].c);

		report(drives[i].name, &drives[i].c);
		if (vs_size_needed(&drives[i].c) < blocks * sizeof(uint32_t))
			wrong++;
	}
	if (wrong)
		st_print("fail dram sizes are too small for the map\n");
	return !wrong;
}
