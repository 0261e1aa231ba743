/* SPDX-License-Identifier: Apache-2.0 */
/* Devices to test: a NAND array with the firmware on it. */
#ifndef VCACHE_TESTS_DEVICE_H
#define VCACHE_TESTS_DEVICE_H

#include <stdlib.h>

#include "../core/check.h"
#include "../../firmware/core/ssd.h"
#include "../../firmware/nand/nand.h"

struct device {
	struct vs_config c;
	struct nand *nand;
	void *mem;
	struct vs_ssd *ssd;
	vs_time now;
};

/* Small devices, each with a special property. */
#define SHAPES 15

static inline struct vs_config shape(unsigned int i,
				     enum vs_personality personality)
{
	static const struct vs_config all[SHAPES] = {
		/* Minimum size, one block per page, logs that fill up. */
		{ { 1, 1, 34, 8, 4096, false }, 6, 3, 1, 1, 0, 0,
		  .gc_pages = 2, .wear_gap = 4, .log_entries = 12 },
		/* MLC, two blocks per page, banks that write back. */
		{ { 1, 2, 27, 8, 8192, true }, 8, 4, 1, 1, 0, 0,
		  .idle_percent = 38, .gc_pages = 2 },
		/* Two lanes of MLC, more tags than logs, which fill up. */
		{ { 2, 2, 31, 8, 8192, true }, 16, 3, 2, 1, 5, 2,
		  .gc = VS_GC_COST_BENEFIT, .gc_pages = 4, .wear_gap = 8,
		  .log_entries = 30 },
		/* Striped metadata, four blocks per page, banks that write back. */
		{ { 4, 1, 21, 8, 16384, false }, 24, 5, 2, 2, 5, 1,
		  .idle_percent = 34, .gc_pages = 4 },
		/* Only the host tag. */
		{ { 2, 1, 23, 16, 8192, true }, 8, 1, 1, 2, 10, 0,
		  .gc = VS_GC_COST_BENEFIT, .gc_pages = 1 },
		/* FAST, one block per page, log blocks down to the last block. */
		{ { 1, 1, 34, 8, 4096, false }, 6, 3, 1, 1, 0, 0,
		  .gc_pages = 1, .wear_gap = 4, .mapping = VS_MAP_FAST },
		/* FAST on MLC, few log blocks, logs that fill up, a tail. */
		{ { 1, 2, 27, 8, 8192, true }, 8, 4, 1, 1, 0, 0,
		  .gc_pages = 1, .mapping = VS_MAP_FAST, .log_entries = 40,
		  .log_blocks = 3 },
		/* FAST, four blocks per page, the minimum of log blocks. */
		{ { 4, 1, 16, 8, 16384, false }, 24, 5, 1, 2, 5, 1,
		  .gc_pages = 1, .wear_gap = 8, .mapping = VS_MAP_FAST,
		  .log_blocks = 2 },
		/* FAST on MLC with a single tag. */
		{ { 2, 1, 23, 16, 8192, true }, 8, 1, 1, 2, 10, 0,
		  .gc_pages = 1, .mapping = VS_MAP_FAST, .log_blocks = 4 },
		/* Flushes without log pages: one bank. */
		{ { 1, 1, 34, 8, 4096, false }, 6, 3, 1, 1, 0, 0,
		  .gc_pages = 2, .wear_gap = 4, .log_entries = 12,
		  .sync_pages = 2, .sync_copies = 2 },
		/* MLC, banks that write back. */
		{ { 1, 2, 27, 8, 8192, true }, 8, 4, 1, 1, 0, 0,
		  .idle_percent = 38, .gc_pages = 2,
		  .sync_pages = 4, .sync_copies = 2 },
		/* Two lanes of MLC, more tags than logs. */
		{ { 2, 2, 31, 8, 8192, true }, 16, 3, 2, 1, 5, 2,
		  .gc = VS_GC_COST_BENEFIT, .gc_pages = 4, .wear_gap = 8,
		  .log_entries = 30, .sync_pages = 8, .sync_copies = 2 },
		/* Four blocks per page, four banks. */
		{ { 4, 1, 21, 8, 16384, false }, 24, 5, 2, 2, 5, 1,
		  .gc_pages = 4, .sync_pages = 2, .sync_copies = 2 },
		/* One program for each. */
		{ { 2, 2, 31, 8, 8192, true }, 16, 3, 1, 1, 5, 2,
		  .gc_pages = 4, .log_entries = 30,
		  .sync_pages = 4, .sync_copies = 1 },
		/* Three placement handles on two banks of MLC. */
		{ { 1, 2, 29, 8, 8192, true }, 16, 4, 1, 1, 0, 0,
		  .idle_percent = 38, .gc_pages = 2, .handles = 3,
		  .sync_pages = 2, .sync_copies = 2 },
	};
	struct vs_config c = all[i];

	c.personality = personality;
	return c;
}

/*
 * Real timings, and two with long operations during which others start and complete:
 * they detect operations that fail to wait.
 */
static inline struct nand_timing timing(uint64_t seed)
{
	static const struct nand_timing slow_msb = {
		20000, 200000, 6000000, 400000, 100,
	}, slow_program = {
		20000, 4000000, 4000000, 150000, 100,
	};

	switch (seed % 4) {
	case 0:
		return nand_tlc;
	case 1:
		return slow_msb;
	case 2:
		return slow_program;
	default:
		return nand_jasmine;
	}
}

/* Blocks of it fail: at once, and @fail_ppm of all programs and erases. */
static inline struct device device_new_bad(struct vs_config c, uint64_t seed,
					   uint32_t factory_bad,
					   uint32_t fail_ppm)
{
	struct device d = { .c = c };
	struct nand_config n = {
		.geometry = c.geometry,
		.timing = timing(seed),
		.seed = seed,
		.factory_bad = factory_bad,
		.fail_ppm = fail_ppm,
	};

	d.nand = nand_open(&n);
	CHECK(d.nand);
	CHECK(vs_size_needed(&c));
	d.mem = malloc(vs_size_needed(&c));
	CHECK(d.mem);
	return d;
}

static inline struct device device_new(struct vs_config c, uint64_t seed)
{
	return device_new_bad(c, seed, 0, 0);
}

static inline void device_format(struct device *d)
{
	struct vs_result r = vs_format(&d->ssd, d->mem, &d->c, &nand_ops,
				       d->nand, d->now);

	CHECK(r.status == VS_OK);
	d->now = r.done;
}

static inline enum vs_status device_mount(struct device *d)
{
	struct vs_result r = vs_mount(&d->ssd, d->mem, &d->c, &nand_ops,
				      d->nand, d->now);

	if (r.status == VS_OK)
		d->now = r.done;
	return r.status;
}

/* Another device in the same state, just after a power cut. */
static inline struct device device_copy(const struct device *d)
{
	struct device copy = *d;

	copy.nand = nand_copy(d->nand);
	copy.mem = malloc(vs_size_needed(&d->c));
	copy.ssd = NULL;
	CHECK(copy.nand && copy.mem);
	return copy;
}

static inline void device_free(struct device *d)
{
	nand_close(d->nand);
	free(d->mem);
}

#endif /* VCACHE_TESTS_DEVICE_H */
