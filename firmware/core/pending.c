// SPDX-License-Identifier: Apache-2.0
/*
 * Pending blocks: they have no valid data, but may not be erased until changes of
 * the map are durable (rule 3).
 */
#include "internal.h"

/**
 * vs_has_pending - is there a pending block in a lane?
 * @s: the device
 * @lane: where
 */
bool vs_has_pending(const struct vs_ssd *s, uint32_t lane)
{
	const struct vs_lane *l = &s->lane[lane];
	uint32_t i;

	for (i = l->first_bank; i < l->first_bank + l->banks; i++) {
		if (s->bank[i].pending)
			return true;
	}
	return false;
}

/**
 * vs_has_copied - is there a pending block in a lane that takes a checkpoint?
 * @s: the device
 * @lane: where
 */
bool vs_has_copied(const struct vs_ssd *s, uint32_t lane)
{
	const struct vs_lane *l = &s->lane[lane];
	uint32_t i;

	for (i = l->first_bank; i < l->first_bank + l->banks; i++) {
		if (s->bank[i].copied)
			return true;
	}
	return false;
}

/**
 * vs_commit_pending - make the map changes durable that pending blocks of a lane wait for
 * @s: the device
 * @lane: the lane; its pending blocks are free afterwards
 * @now: time
 */
enum vs_status vs_commit_pending(struct vs_ssd *s, uint32_t lane, vs_time now)
{
	vs_time done;
	uint32_t i, k;

	if (s->c.personality == VS_BASELINE || vs_has_copied(s, lane))
		return vs_checkpoint(s, now, &done);
	for (i = 0; i < s->logs; i++) {
		struct vs_log *l = &s->log[i];
		enum vs_status status;

		for (k = l->durable; k < l->count; k++) {
			uint32_t old = l->old[k];

			if (vs_mapped(old) &&
			    s->block[vs_block_of(s, old)].pending &&
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
