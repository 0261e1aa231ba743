// SPDX-License-Identifier: Apache-2.0
/*
 * Blocks without valid data that changes of the map not yet durable keep from
 * being free (rule 3), and how they get free.
 */
#include "internal.h"

/**
 * vs_one_waits - is there a block that only waits?
 * @s: the device
 * @lane: where
 */
bool vs_one_waits(const struct vs_ssd *s, uint32_t lane)
{
	const struct vs_lane *l = &s->lane[lane];
	uint32_t i;

	for (i = l->first_bank; i < l->first_bank + l->banks; i++) {
		if (s->bank[i].waiting)
			return true;
	}
	return false;
}

/**
 * vs_settle - make those changes durable, of whatever tag, that blocks wait for
 * @s: the device
 * @lane: where the blocks are, which are free then
 * @now: time
 */
enum vs_status vs_settle(struct vs_ssd *s, uint32_t lane, vs_time now)
{
	vs_time done;
	uint32_t i, k;

	if (s->c.personality == VS_BASELINE)
		return vs_checkpoint(s, now, &done);
	for (i = 0; i < s->logs; i++) {
		struct vs_log *l = &s->log[i];
		enum vs_status status;

		for (k = l->durable; k < l->count; k++) {
			uint32_t old = l->old[k];

			if (old != VS_NONE &&
			    s->block[vs_block_of(s, old)].waiting &&
			    vs_lane_of(s, vs_block_of(s, old)) == lane)
				break;
		}
		if (k >= l->count && !l->full)
			continue;
		status = vs_log_commit(s, i, now, &done);
		if (status != VS_OK)
			return status;
	}
	return VS_OK;
}
