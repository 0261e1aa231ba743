// SPDX-License-Identifier: Apache-2.0
/* The devices of the self-test. */
#include "selftest.h"

/* A small MLC device like the Jasmine board, with two lanes. */
static const struct vs_config mlc = {
	.geometry = { 2, 2, 28, 16, 8192, true },
	.buffer_blocks = 32,
	.max_tags = 4,
	.lanes = 2,
	.meta_stripe = 1,
	.spare_percent = 5,
	.bad_blocks = 2,
	.gc_pages = 4,
	.wear_gap = 8,
};

/* Four channels of TLC with one-shot programming. */
static const struct vs_config tlc = {
	.geometry = { 4, 1, 24, 16, 16384, false },
	.buffer_blocks = 64,
	.max_tags = 8,
	.lanes = 1,
	.meta_stripe = 2,
	.spare_percent = 7,
	.bad_blocks = 3,
	.idle_percent = 25,
	.gc_pages = 4,
};

const struct st_config st_configs[] = {
	{ "tagged-mlc", &mlc, VS_TAGGED, VS_GC_COST_BENEFIT, &nand_jasmine, 0,
	  VS_MAP_PAGE },
	{ "baseline-mlc", &mlc, VS_BASELINE, VS_GC_GREEDY, &nand_jasmine, 0,
	  VS_MAP_PAGE },
	{ "tagged-tlc", &tlc, VS_TAGGED, VS_GC_GREEDY, &nand_tlc, 100,
	  VS_MAP_PAGE },
	{ "baseline-tlc", &tlc, VS_BASELINE, VS_GC_GREEDY, &nand_tlc, 0,
	  VS_MAP_PAGE },
	{ "fast-mlc", &mlc, VS_TAGGED, VS_GC_GREEDY, &nand_jasmine, 0,
	  VS_MAP_FAST },
	{ "fast-tlc", &tlc, VS_BASELINE, VS_GC_GREEDY, &nand_tlc, 0,
	  VS_MAP_FAST },
};

const uint32_t st_config_count = sizeof(st_configs) / sizeof(st_configs[0]);
