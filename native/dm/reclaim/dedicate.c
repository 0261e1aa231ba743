// SPDX-License-Identifier: GPL-2.0-only
/*
 * dm-vcache: lanes that are dedicated to a tag.
 *
 * Only the log of the tag takes chunks in such a lane, and chunks of other logs there are
 * reclaimed. Other lanes are shared. When the tag is removed its lanes are shared again. At
 * least one lane is always shared, for tags without dedicated lanes. See own.c for how a log
 * uses its dedicated lanes, and space.c and share.c for the shared ones.
 */
#include "internal.h"

/* Why can a log, or a new one, not have these lanes? NULL: it can. */
static const char *vc_lanes_refuse(const struct vcache_pool *p,
				   const struct vcache_log *log, u64 lanes)
{
	bool shared = false;
	u32 i;

	if (!lanes)
		return NULL;
	if (p->nlanes < VC_LANES_MAX && lanes >> p->nlanes)
		return "cache-lanes names a lane that the pool does not have";
	for (i = 0; i < p->nlanes; i++) {
		const struct vcache_log *owner = p->lane[i].owner;
		bool wanted = lanes & BIT_ULL(i);

		if (wanted && owner && owner != log)
			return "a lane of cache-lanes is dedicated to another tag";
		shared |= !wanted && (!owner || owner == log);
	}
	return shared ? NULL : "at least one lane must stay shared";
}

/*
 * Set whether the lane of a chunk is dedicated to its log, which is locked. Return: true
 * if that has changed.
 */
static bool vc_chunk_sort(struct vcache_pool *p, struct vcache_log *log,
			  struct vcache_chunk *c)
{
	bool own = p->lane[c->lane].owner == log;

	lockdep_assert_held(&log->lock);
	if (c->own == own)
		return false;
	WRITE_ONCE(c->own, own);
	if (c->reads) {
		c->reads->nr[!own]--;
		c->reads->nr[own]++;
		list_move_tail(&c->node, &c->reads->chunks[own]);
	} else if (own) {
		WRITE_ONCE(log->nr_own, log->nr_own + 1);
	} else {
		WRITE_ONCE(log->nr_own, log->nr_own - 1);
	}
	return true;
}

/* Do that for all chunks of a lane that has become dedicated or shared. */
static void vc_lane_sort(struct vcache_pool *p, const struct vcache_lane *l)
{
	u32 i, k, n;

	for (i = max(l->first, p->g.first_chunk);
	     i < min(l->end, p->g.chunks); i++) {
		struct vcache_chunk *c = &p->chunk[i];
		struct vcache_log *log = READ_ONCE(c->log);

		n = 0;
		if (log) {
			spin_lock_irq(&log->lock);
			/* It is not reclaimed meanwhile, because the pool is locked. */
			if (vc_chunk_sort(p, log, c))
				n = vcache_chunk_capacity(&p->g);
			spin_unlock_irq(&log->lock);
		}
		for (k = 0; k < n; k++)
			vcache_lookup_sort(p, i * p->g.chunk_blocks + k);
		cond_resched();
	}
}

static void vc_lane_give(struct vcache_pool *p, struct vcache_lane *l,
			 struct vcache_log *log)
{
	if (l->owner && !log)
		WRITE_ONCE(p->nfree, p->nfree + l->nfree);
	else if (!l->owner && log)
		WRITE_ONCE(p->nfree, p->nfree - l->nfree);
	l->owner = log;
}

/**
 * vcache_log_set_lanes - dedicate lanes to a log
 * @log: the log; its pool is locked
 * @lanes: the lanes, bits; not dedicated to another log
 *
 * Chunks of other logs in these lanes are reclaimed, see own.c. So are chunks of this log
 * in shared lanes, if it may not have them any more.
 */
void vcache_log_set_lanes(struct vcache_log *log, u64 lanes)
{
	struct vcache_pool *p = log->vol->pool;
	u64 other = log->lanes ^ lanes;
	struct vcache_volume *v;
	struct vcache_log *l;
	u32 i;

	lockdep_assert_held(&log->vol->pool->lock);
	if (!other)
		return;
	spin_lock_irq(&p->free_lock);
	for (i = 0; i < p->nlanes; i++) {
		if (other & BIT_ULL(i))
			vc_lane_give(p, &p->lane[i],
				     lanes & BIT_ULL(i) ? log : NULL);
	}
	WRITE_ONCE(log->lanes, lanes);
	WRITE_ONCE(log->own_foreign, 0);
	spin_unlock_irq(&p->free_lock);
	vcache_lanes_count(p);
	/* A spare chunk may be in a wrong lane now. */
	list_for_each_entry(v, &p->volumes, node) {
		list_for_each_entry(l, &v->logs, node)
			vcache_log_release_spare(l);
	}
	for (i = 0; i < p->nlanes; i++) {
		if (other & BIT_ULL(i))
			vc_lane_sort(p, &p->lane[i]);
	}
	WRITE_ONCE(p->foreign, 1); /* to be counted */
	vcache_space_kick(p);
}

/**
 * vcache_tag_lanes_refuse - can these lanes be dedicated to a tag?
 * @dev: its device, locked
 * @tag: the tag; NULL: a new one
 * @lanes: the lanes, bits
 *
 * Return: NULL, or why not.
 */
const char *vcache_tag_lanes_refuse(struct vcache_dev *dev, const struct vcache_tag *tag,
				    u64 lanes)
{
	const char *error;

	lockdep_assert_held(&dev->lock);
	if (!lanes)
		return NULL;
	if (!dev->vol)
		return "a device without a pool has no lanes";
	mutex_lock(&dev->vol->pool->lock);
	error = vc_lanes_refuse(dev->vol->pool, tag ? tag->log : NULL, lanes);
	mutex_unlock(&dev->vol->pool->lock);
	return error;
}

/**
 * vcache_tag_set_lanes - dedicate lanes to a tag
 * @tag: the tag; its device is locked
 * @lanes: the lanes, bits
 *
 * Return: 0; -EBUSY if another tag has got them since vcache_tag_lanes_refuse().
 */
int vcache_tag_set_lanes(struct vcache_tag *tag, u64 lanes)
{
	struct vcache_log *log = tag->log;
	int r = 0;

	lockdep_assert_held(&tag->dev->lock);
	if (!log)
		return 0;
	mutex_lock(&log->vol->pool->lock);
	if (vc_lanes_refuse(log->vol->pool, log, lanes)) {
		r = -EBUSY;
	} else {
		tag->lanes = lanes;
		vcache_log_set_lanes(log, lanes);
	}
	mutex_unlock(&log->vol->pool->lock);
	return r;
}

/**
 * vcache_tag_keep_lanes - dedicate its lanes to a tag again, when it gets a log
 * @tag: the tag; the pool of its log is locked
 *
 * Only lanes that are not dedicated to another log meanwhile.
 */
void vcache_tag_keep_lanes(struct vcache_tag *tag)
{
	struct vcache_pool *p = tag->log->vol->pool;
	const char *error = vc_lanes_refuse(p, tag->log, tag->lanes);

	lockdep_assert_held(&tag->log->vol->pool->lock);
	if (error) {
		DMWARN("%s: tag %u of volume %u: %s", dm_device_name(p->md),
		       tag->id, tag->log->vol->id, error);
		tag->lanes = 0;
	}
	vcache_log_set_lanes(tag->log, tag->lanes);
}
