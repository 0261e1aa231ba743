// SPDX-License-Identifier: Apache-2.0
/*
 * The map from logical blocks to places on the NAND, held in memory whole,
 * and the one way to change it.
 */
#include "internal.h"

static void note(struct vs_ssd *s, struct vs_log *log, uint32_t lpn,
		 uint32_t slot, uint32_t old, vs_time done)
{
	if (log->full) {
		log->unlogged++;
		return;
	}
	log->entry[log->count] = (struct vs_log_entry){
		.lpn = lpn,
		.slot = slot,
		.order = (uint32_t)(++s->seq - s->since),
	};
	log->old[log->count++] = old;
	log->data_done = vs_later(log->data_done, done);
	if (!(slot & VS_TRIM))
		log->lanes |= 1u << vs_lane_of(s, vs_block_of(s, slot));
}

/* Nothing points to the block's place any more; it is kept. */
static uint32_t leave(struct vs_ssd *s, uint32_t lpn)
{
	uint32_t old = s->map[lpn], block = vs_block_of(s, old);

	s->dirty[lpn / s->map_per_page] = 1;
	if (!vs_mapped(old))
		return VS_NONE;
	s->block[block].valid--;
	s->live[old / s->slots]--;
	s->lane[vs_lane_of(s, block)].valid--;
	return block;
}

/**
 * vs_map_set - point a logical block to another place
 * @s: the device
 * @log: index of the log that gets to know, which has room (vs_log_room());
 *	VS_NONE: a checkpoint follows
 * @lpn: the block
 * @slot: the place
 * @done: when the data there is programmed
 *
 * What the block pointed to before is kept until this change is durable: the
 * NAND still says so.
 */
void vs_map_set(struct vs_ssd *s, uint32_t log, uint32_t lpn, uint32_t slot,
		vs_time done)
{
	uint32_t old = s->map[lpn], block = leave(s, lpn);

	if (block != VS_NONE) {
		s->block[block].unsafe++;
		vs_block_pending(s, block);
	}
	block = vs_block_of(s, slot);
	s->block[block].valid++;
	s->live[slot / s->slots]++;
	s->lane[vs_lane_of(s, block)].valid++;
	s->map[lpn] = slot;
	if (log != VS_NONE && s->c.personality == VS_TAGGED)
		note(s, &s->log[log], lpn, slot, old, done);
}

/**
 * vs_map_trim - point a range of logical blocks nowhere
 * @s: the device, of which @trims is the number of this TRIM
 * @log: index of the log that gets to know, which has room for one entry
 * @lpn: the first block
 * @count: how many, at least one
 * @now: time
 */
void vs_map_trim(struct vs_ssd *s, uint32_t log, uint32_t lpn, uint32_t count,
		 vs_time now)
{
	uint32_t i;

	for (i = lpn; i < lpn + count; i++) {
		uint32_t block;

		if (s->map[i] == VS_NONE)
			continue;
		block = leave(s, i);
		s->map[i] = VS_NONE;
		if (block == VS_NONE)
			continue;
		s->block[block].trim = s->trims;
		vs_block_pending(s, block);
	}
	if (s->c.personality == VS_TAGGED)
		note(s, &s->log[log], lpn, VS_TRIM | count, VS_NONE, now);
}
