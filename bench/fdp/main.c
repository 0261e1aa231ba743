// SPDX-License-Identifier: Apache-2.0
/*
 * Four tenants on one SSD, in virtual time: bench-fdp HANDLES SEED. HANDLES is 1 (all
 * writes have the first placement handle) or 4 (each tenant has its own). The
 * drive is the same in both cases. Prints counters, one a line.
 */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "../../firmware/host/drive.h"
#include "../../firmware/nand/nand.h"

#define TENANTS 4u
#define BLOCKS_OF_A_BANK 192u
/* Blocks of VS_BLOCK that a chunk of the pool has. */
#define CHUNK 256u
/* Written before and while it is measured, in capacities of the drive. */
#define WARM_UP 2u
#define MEASURED 2u

static const char *const causes[VS_CAUSES] = {
	"host", "gc", "log", "map", "padding", "merge",
};

/**
 * struct tenant - who writes what
 * @name: printed
 * @permille: of the drive's blocks
 * @burst: blocks written in a row, one after the other or at random
 * @random: each block anywhere in the tenant's range; else in order, cyclically
 * @fua: each write is durable when it completes
 * @first: its range
 * @blocks: the same
 * @next: of a tenant that writes in order
 */
struct tenant {
	const char *name;
	uint32_t permille;
	uint32_t burst;
	bool random;
	bool fua;
	uint64_t first, blocks, next;
};

/* A round: a chunk of data in three parts, and its record. */
static struct tenant tenants[TENANTS] = {
	{ .name = "sequential", .permille = 978, .burst = CHUNK / 2 },
	{ .name = "random-1", .permille = 10, .burst = CHUNK / 4, .random = true },
	{ .name = "random-2", .permille = 10, .burst = CHUNK / 4, .random = true },
	{ .name = "records", .permille = 2, .burst = 1, .fua = true },
};

struct run {
	struct vs_ssd *ssd;
	struct nand *nand;
	vs_time now;
	uint64_t seed;
	uint32_t handles;
};

static void fail(const char *what)
{
	fprintf(stderr, "bench-fdp: %s\n", what);
	exit(1);
}

/* xorshift64* */
static uint64_t next_random(struct run *r)
{
	r->seed ^= r->seed >> 12;
	r->seed ^= r->seed << 25;
	r->seed ^= r->seed >> 27;
	return r->seed * 0x2545f4914f6cdd1dull;
}

static void write_block(struct run *r, uint32_t tenant, uint64_t block,
			bool fua)
{
	static const uint8_t data[VS_BLOCK];
	struct vs_result done;

	done = vs_write_placed(r->ssd, r->now, tenant + 1,
			       r->handles > 1 ? tenant : 0, block, 1, data, fua);
	if (done.status != VS_OK)
		fail("a write failed");
	r->now = done.done;
}

static uint64_t burst(struct run *r, uint32_t i)
{
	struct tenant *t = &tenants[i];
	uint32_t n;

	for (n = 0; n < t->burst; n++) {
		uint64_t at = t->random ? next_random(r) % t->blocks :
					  t->next++ % t->blocks;

		write_block(r, i, t->first + at, t->fua);
	}
	return n;
}

static void write_for(struct run *r, uint64_t blocks)
{
	while (blocks) {
		uint64_t n = 0;
		uint32_t i;

		for (i = 0; i < TENANTS; i++)
			n += burst(r, i);
		blocks -= n < blocks ? n : blocks;
	}
}

/* Each tenant's range is written once, in order. */
static void fill(struct run *r)
{
	uint64_t first = 0, i;
	uint32_t t;

	for (t = 0; t < TENANTS; t++) {
		tenants[t].first = first;
		tenants[t].blocks = vs_blocks(r->ssd) * tenants[t].permille / 1000;
		first += tenants[t].blocks;
		for (i = 0; i < tenants[t].blocks; i++)
			write_block(r, t, tenants[t].first + i, false);
	}
}

static void report(const struct run *r, const struct vs_stats *a,
		   const struct vs_stats *b)
{
	uint32_t i;

	printf("capacity %" PRIu64 "\n", vs_blocks(r->ssd));
	printf("unit %" PRIu64 "\n", vs_unit_blocks(r->ssd));
	printf("written %" PRIu64 "\n", b->written - a->written);
	printf("absorbed %" PRIu64 "\n", b->absorbed - a->absorbed);
	printf("erases %" PRIu64 "\n", b->erases - a->erases);
	for (i = 0; i < VS_CAUSES; i++)
		printf("%s %" PRIu64 "\n", causes[i],
		       b->programmed[i] - a->programmed[i]);
	for (i = 0; i < TENANTS; i++)
		printf("blocks.%s %" PRIu64 "\n", tenants[i].name,
		       tenants[i].blocks);
}

int main(int argc, char **argv)
{
	struct vs_config c = drive_tlc.config;
	struct nand_config n = { .timing = *drive_tlc.timing, .no_data = true };
	struct vs_stats before, after;
	struct run r = { 0 };

	if (argc != 3)
		fail("usage: bench-fdp HANDLES SEED");
	r.handles = (uint32_t)atoi(argv[1]);
	r.seed = strtoull(argv[2], NULL, 0) * 2 + 1;
	c.geometry.blocks = BLOCKS_OF_A_BANK;
	c.handles = TENANTS;
	n.geometry = c.geometry;
	r.nand = nand_open(&n);
	if (!r.nand || vs_format(&r.ssd, malloc(vs_size_needed(&c)), &c,
				 &nand_ops, r.nand, 0).status != VS_OK)
		fail("the drive cannot be formatted");
	fill(&r);
	write_for(&r, WARM_UP * vs_blocks(r.ssd));
	vs_get_stats(r.ssd, &before);
	write_for(&r, MEASURED * vs_blocks(r.ssd));
	vs_get_stats(r.ssd, &after);
	report(&r, &before, &after);
	nand_close(r.nand);
	return 0;
}
