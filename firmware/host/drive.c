// SPDX-License-Identifier: Apache-2.0
#include "drive.h"

/*
 * 8 dies on 4 channels, one-shot programming of 16 KiB pages, 8 MiB of write
 * buffer, 7 % spare. Flushes of up to four pages need no log page. The other
 * drives have the log pages of the papers' firmware.
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
	.sync_pages = 4,						\
	.sync_copies = 2,						\
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
 * 8 banks on 2 channels of MLC. A page is the unit of one program operation,
 * with 8 KiB in each of two planes. The board has 64 MB of DRAM. The paper does
 * not publish how much of it is the write buffer; here it is half. The other
 * half is for the map, log areas and buffers for reads and moves. Map pages are
 * written to all banks in parallel, as in the board's own firmware.
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
 * The SVD paper counts erases in a simulator with 4 KiB pages, 512 KiB blocks
 * and no paired pages. It does not describe times or parallelism, so the times
 * and the four chips on two channels are assumptions.
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
