/* SPDX-License-Identifier: Apache-2.0 */
/* Invariants, checked in the state of the firmware. */
#ifndef VCACHE_TESTS_PLACES_H
#define VCACHE_TESTS_PLACES_H

#include "../core/check.h"
#include "../../firmware/core/internal.h"

/* Data that is not in log blocks is in its place, in one block. */
static inline void check_data_blocks(const struct vs_ssd *s)
{
	uint32_t per = s->c.geometry.pages * s->slots, data = VS_NONE, i;

	for (i = 0; i < s->blocks; i++) {
		uint32_t block = vs_block_of(s, s->map[i]);

		if (i % per == 0)
			data = VS_NONE;
		if (s->map[i] == VS_NONE || s->block[block].log ||
		    s->block[block].state == VS_BLOCK_STUCK)
			continue;
		if (data == VS_NONE)
			data = block;
		CHECK(block == data);
		CHECK(s->map[i] % per == i % per);
		CHECK(s->block[block].lbn == i / per);
	}
}

/* Log blocks with data, at most the allowed number. */
static inline void check_log_blocks(const struct vs_ssd *s)
{
	uint32_t i, n = 0;

	for (i = 0; i < s->blocks_all; i++)
		n += s->block[i].log && s->block[i].valid;
	CHECK(n <= s->c.log_blocks);
}

/* The counters of blocks are correct. */
static inline void check_banks(const struct vs_ssd *s)
{
	uint32_t bank, i, all = 0;

	for (bank = 0; bank < s->banks; bank++) {
		uint32_t first = bank * s->c.geometry.blocks;
		uint32_t free = 0, pending = 0;

		for (i = first; i < first + s->c.geometry.blocks; i++) {
			const struct vs_block *b = &s->block[i];

			free += b->state == VS_BLOCK_FREE;
			pending += b->state == VS_BLOCK_DATA && !b->valid;
			CHECK(b->state != VS_BLOCK_DATA || b->valid ||
			      b->unsafe || b->copies ||
			      vs_trim_holds(s, i));
		}
		CHECK(s->bank[bank].free == free);
		CHECK(s->bank[bank].pending == pending);
		all += free;
	}
	for (i = 0; i < s->c.lanes; i++)
		all -= s->lane[i].free;
	CHECK(!all);
}

#endif /* VCACHE_TESTS_PLACES_H */
