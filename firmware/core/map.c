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
	if (slot != VS_NONE)
		log->lanes |= 1u << vs_lane_of(s, vs_block_of(s, slot));
}

/**
 * vs_map_set - point a logical block to another place
 * @s: the device
 * @log: index of the log that gets to know, which has room (vs_log_room());
 *	VS_NONE: a checkpoint follows
 * @lpn: the block
 * @slot: the place, or VS_NONE: unmapped
 * @done: when the data there is programmed
 *
 * What the block pointed to before is kept until this change is durable: the
 * NAND still says so.
 */
void vs_map_set(struct vs_ssd *s, uint32_t log, uint32_t lpn, uint32_t slot,
		vs_time done)
{
	uint32_t old = s->map[lpn], block;

	if (vs_mapped(old)) {
		block = vs_block_of(s, old);
		s->block[block].valid--;
		s->block[block].unsafe++;
		s->live[old / s->slots]--;
		s->lane[vs_lane_of(s, block)].valid--;
		vs_block_pending(s, block);
	}
	if (slot != VS_NONE) {
		block = vs_block_of(s, slot);
		s->block[block].valid++;
		s->live[slot / s->slots]++;
		s->lane[vs_lane_of(s, block)].valid++;
	}
	s->map[lpn] = slot;
	s->dirty[lpn / s->map_per_page] = 1;
	if (log != VS_NONE && s->c.personality == VS_TAGGED)
		note(s, &s->log[log], lpn, slot, old, done);
}
