// SPDX-License-Identifier: Apache-2.0
#include "drive.h"

/*
 * 8 dies on 4 channels, 16 KiB pages programmed in one shot, 8 MiB of write
 * buffer, 7 % spare.
 */
#define TLC_CONFIG {							\
	.geometry = {							\
		.channels = 4,						\
		.ways = 2,						\
		.pages = 128,						\
		.page_size = 16384,					\
	},								\
	.buffer_blocks = 2048,						\
	.max_tags = 64,							\
	.lanes = 1,							\
	.meta_stripe = 2,						\
	.spare_percent = 7,						\
	.bad_blocks = 4,						\
	.idle_percent = 3,						\
	.gc = VS_GC_GREEDY,						\
	.gc_pages = 8,							\
	.wear_gap = 64,							\
}
#define TLC_ENDURANCE 3000

const struct drive drive_tlc = {
	.config = TLC_CONFIG,
	.timing = &nand_tlc,
	.endurance = TLC_ENDURANCE,
};

static const struct nand_timing no_time;

const struct drive drive_no_time = {
	.config = TLC_CONFIG,
	.timing = &no_time,
	.endurance = TLC_ENDURANCE,
};

/*
 * 8 banks on 2 channels of MLC; a page is what is programmed at once, 8 KiB in
 * each of two planes. The board has 64 MB of DRAM. How much of it the paper's
 * firmware took for its write buffer is not published; here it is half, so
 * that the map, log areas and buffers of reads and moves have the other half.
 * Map pages go to all banks at once, as those of the board's own firmware do.
 */
const struct drive drive_jasmine = {
	.config = {
		.geometry = {
			.channels = 2,
			.ways = 4,
			.pages = 128,
			.page_size = 16384,
			.paired = true,
		},
		.buffer_blocks = 8192,
		.max_tags = 64,
		.lanes = 1,
		.meta_stripe = 8,
		.spare_percent = 7,
		.bad_blocks = 4,
		.idle_percent = 3,
		.gc = VS_GC_GREEDY,
		.gc_pages = 8,
		.wear_gap = 64,
	},
	.timing = &nand_jasmine,
	.endurance = 5000,
};

/*
 * Erases in the SVD paper are counted by a simulator of 4 KiB pages and 512 KiB
 * blocks, which knows of no paired pages; so there are none here. It says
 * nothing of time and of parallelism: the times are assumed, as are four chips
 * on two channels.
 */
const struct drive drive_svd = {
	.config = {
		.geometry = {
			.channels = 2,
			.ways = 2,
			.pages = 128,
			.page_size = 4096,
		},
		.buffer_blocks = 2048,
		.max_tags = 64,
		.lanes = 1,
		.meta_stripe = 2,
		.spare_percent = 7,
		.bad_blocks = 4,
		.idle_percent = 3,
		.gc = VS_GC_GREEDY,
		.gc_pages = 8,
		.wear_gap = 64,
	},
	.timing = &nand_mlc,
	.endurance = 5000,
};
