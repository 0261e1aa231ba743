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

/* Has a pending block of a lane waited for a change in a log? */
static bool holds_pending(const struct vs_ssd *s, const struct vs_log *l,
			  uint32_t lane, uint32_t trim)
{
	uint32_t k;

	if (l->full || (l->trim && l->trim <= trim))
		return true;
	for (k = l->durable; k < l->count; k++) {
		uint32_t old = l->old[k];

		if (vs_mapped(old) && s->block[vs_block_of(s, old)].pending &&
		    vs_lane_of(s, vs_block_of(s, old)) == lane)
			return true;
	}
	return false;
}

/* The newest TRIM that a pending block of a lane waits for, or 0. */
static uint32_t newest_trim(const struct vs_ssd *s, uint32_t lane)
{
	const struct vs_lane *l = &s->lane[lane];
	uint32_t first = l->first_bank * s->c.geometry.blocks, newest = 0, i;

	for (i = first; i < first + l->banks * s->c.geometry.blocks; i++) {
		if (s->block[i].pending && s->block[i].trim > newest)
			newest = s->block[i].trim;
	}
	return newest;
}

/**
 * vs_commit_pending - make the map changes durable that pending blocks of a lane wait for
 * @s: the device
 * @lane: the lane; its pending blocks are free afterwards
 * @now: time
 */
enum vs_status vs_commit_pending(struct vs_ssd *s, uint32_t lane, vs_time now)
{
	uint32_t i, trim = newest_trim(s, lane);
	vs_time done;

	if (s->c.personality == VS_BASELINE || vs_has_copied(s, lane))
		return vs_checkpoint(s, now, &done);
	for (i = 0; i < s->logs; i++) {
		enum vs_status status;

		if (!holds_pending(s, &s->log[i], lane, trim))
			continue;
		status = vs_log_commit(s, i, now, &done);
		if (status != VS_OK)
			return status;
	}
	return VS_OK;
}
