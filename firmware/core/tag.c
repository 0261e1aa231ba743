// SPDX-License-Identifier: Apache-2.0
/*
 * Tags and the log areas they have.
 *
 * A tag only labels what is not durable yet, so it needs an area from its
 * first write until a checkpoint that finds nothing of it in the buffer. A tag
 * with a lane or a weight keeps its area, which has them. A tag that finds no area is
 * treated as hTag, whose blocks every flush covers.
 */
#include "internal.h"

/**
 * vs_tag_find - the log area of a tag
 * @s: the device
 * @tag: any
 *
 * Return: its index; hTag's for a tag without an area.
 */
uint32_t vs_tag_find(const struct vs_ssd *s, uint32_t tag)
{
	uint32_t i;

	for (i = 1; i < s->c.max_tags; i++) {
		if (s->log[i].used && s->log[i].tag == tag)
			return i;
	}
	return VS_HTAG_LOG;
}

static bool is_needed(const struct vs_log *l)
{
	return l->used && (l->head != VS_NONE || l->count || l->full ||
			   l->lane != VS_LANE_ANY ||
			   l->weight);
}

/**
 * vs_tag_get - the log area of a tag, which gets one if it has none
 * @s: the device
 * @tag: any
 *
 * Of those that are not needed any more, it gets the one of the tag that has been idle for
 * longest: a tag that is active has a share.
 *
 * Return: its index; hTag's when all areas are in use.
 */
uint32_t vs_tag_get(struct vs_ssd *s, uint32_t tag)
{
	uint32_t i = vs_tag_find(s, tag), best = VS_HTAG_LOG;
	struct vs_log *l;

	if (i != VS_HTAG_LOG || tag == VS_TAG_HOST)
		return i;
	for (i = 1; i < s->c.max_tags; i++) {
		l = &s->log[i];
		if (!is_needed(l) &&
		    (best == VS_HTAG_LOG ||
		     l->active_until < s->log[best].active_until))
			best = i;
	}
	if (best == VS_HTAG_LOG)
		return best;
	l = &s->log[best];
	l->used = true;
	l->tag = tag;
	l->lane = VS_LANE_ANY;
	l->active_until = 0;
	l->stats = (struct vs_tag_stats){ 0 };
	return best;
}

static bool has_quota(const struct vs_lane *l)
{
	return l->valid < l->quota;
}

/**
 * vs_tag_lane - the lane that the next page of a tag goes to
 * @s: the device
 * @log: index of its log area
 *
 * Return: the tag's own while that is below its quota; else in turn one that
 * is nobody's own; else the one with most room. The quotas add up to the
 * device's size, so the last is never full.
 */
uint32_t vs_tag_lane(struct vs_ssd *s, uint32_t log)
{
	uint32_t lane = s->log[log].lane, i, best = 0;

	if (lane != VS_LANE_ANY && has_quota(&s->lane[lane]))
		return lane;
	for (i = 0; i < s->c.lanes; i++) {
		s->lane_cursor = (s->lane_cursor + 1) % s->c.lanes;
		if (!s->lane[s->lane_cursor].dedicated &&
		    has_quota(&s->lane[s->lane_cursor]))
			break;
	}
	if (i < s->c.lanes) {
		s->stats.spilled += lane != VS_LANE_ANY;
		return s->lane_cursor;
	}
	for (i = 1; i < s->c.lanes; i++) {
		if ((int64_t)s->lane[i].quota - s->lane[i].valid >
		    (int64_t)s->lane[best].quota - s->lane[best].valid)
			best = i;
	}
	s->stats.spilled++;
	return best;
}

enum vs_status vs_set_lane(struct vs_ssd *s, uint32_t tag, uint32_t lane,
			   bool dedicated)
{
	uint32_t log;

	if (lane >= s->c.lanes && lane != VS_LANE_ANY)
		return VS_EINVAL;
	log = vs_tag_get(s, tag);
	if (log == VS_HTAG_LOG && tag != VS_TAG_HOST)
		return VS_EINVAL;
	s->log[log].lane = lane;
	if (lane != VS_LANE_ANY)
		s->lane[lane].dedicated = dedicated;
	return VS_OK;
}
