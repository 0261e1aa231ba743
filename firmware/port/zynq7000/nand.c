// SPDX-License-Identifier: Apache-2.0
/* The memory of the NAND model: one array at a time, in DDR. */
#include <string.h>

#include "../../nand/array.h"
#include "../selftest/selftest.h"
#include "zynq.h"

#define ARENA __attribute__((section(".arena"), aligned(16)))
#define ARRAY_SIZE (64u << 20)
/* Memory for power cuts: erased blocks and operations in progress. */
#define SLOT_SIZE (1u << 20)
#define SLOTS 32u
#define MAX_BANKS 2048u			/* see geometry.c */
#define MAX_CHANNELS 32u

static uint8_t array[ARRAY_SIZE] ARENA;
static uint8_t slot[SLOTS][SLOT_SIZE] ARENA;
static bool slot_used[SLOTS];

static struct nand the_nand;
static vs_time bank_free[MAX_BANKS];
static vs_time channel_free[MAX_CHANNELS];

/* Image files and factory marks are not supported here. */
struct nand *nand_open(const struct nand_config *c)
{
	struct nand *n = &the_nand;

	*n = (struct nand){
		.c = *c,
		.random = c->seed * 2 + 1,
		.oob_size = VS_OOB_SIZE(c->geometry.page_size),
		.bank_free = bank_free,
		.channel_free = channel_free,
	};
	if (c->path || c->factory_bad || nand_banks(n) > MAX_BANKS ||
	    c->geometry.channels > MAX_CHANNELS ||
	    nand_array_size(n) > ARRAY_SIZE)
		return NULL;
	memset(array, 0, nand_array_size(n));
	memset(bank_free, 0, sizeof(bank_free));
	memset(channel_free, 0, sizeof(channel_free));
	nand_lay_out(n, array);
	return n;
}

void nand_close(struct nand *n)
{
	nand_forget(n, UINT64_MAX);
	nand_free(n->op);
}

void *nand_alloc(size_t size)
{
	uint32_t i;

	for (i = 0; i < SLOTS && size <= SLOT_SIZE; i++) {
		if (!slot_used[i]) {
			slot_used[i] = true;
			return slot[i];
		}
	}
	zynq_panic("nand: out of memory for power cuts");
}

void nand_free(void *p)
{
	if (p)
		slot_used[((uint8_t *)p - slot[0]) / SLOT_SIZE] = false;
}

void nand_broken(const char *rule, struct vs_page at)
{
	st_print("\nnand: broken rule:");
	st_print_number("bank", at.bank);
	st_print_number("block", at.block);
	st_print_number("page", at.page);
	zynq_panic(rule);
}
