// SPDX-License-Identifier: GPL-2.0-only
/*
 * dm-vcache: lanes: ranges of the cache device that do not disturb each other.
 *
 * A lane is a device of a concatenation, an NVMe namespace, or a group of channels. The
 * table says where one ends. Lanes consist of chunks. Nothing on the device describes
 * them, so they may be different after a restart.
 *
 * A lane may be dedicated to a tag. Then only the log of the tag takes chunks there, and
 * chunks of other logs are reclaimed. Other lanes are shared. When the tag is removed its
 * lanes are shared again. At least one lane is always shared, for tags without dedicated
 * lanes. See own.c for how a log uses its dedicated lanes, and space.c and share.c for the
 * shared ones.
 *
 * Each lane has a list of its free chunks. The next chunk is taken from the lane with the
 * most free chunks, of the shared lanes or of the dedicated lanes of a log. So lanes are
 * used evenly.
 */
#include "pool.h"

/* Least chunks for data in a lane. */
#define VC_LANE_CHUNKS_MIN 4U

/* Chunks for data in a lane now. */
static u32 vc_lane_size(const struct vc_pool *p, const struct vc_lane *l)
{
	u32 first = max(l->first, p->g.first_chunk);
	u32 end = min(l->end, READ_ONCE(p->limit));

	return end > first ? end - first : 0;
}

/**
 * vc_lanes_init - give a pool one lane, without chunks
 * @p: the pool
 */
void vc_lanes_init(struct vc_pool *p)
{
	u32 i;

	for (i = 0; i < VC_LANES_MAX; i++) {
		INIT_LIST_HEAD(&p->lane[i].free);
		p->lane[i].nfree = 0;
		p->lane[i].owner = NULL;
	}
	p->lane[0].first = 0;
	p->lane[0].end = U32_MAX;
	p->nlanes = 1;
	p->given = 0;
	p->nfree = 0;
	p->foreign = 0;
}

/**
 * vc_lanes_count - count the chunks of shared and of dedicated lanes
 * @p: the pool, locked
 *
 * Called when a lane becomes dedicated or shared, and when the pool grows or shrinks.
 */
void vc_lanes_count(struct vc_pool *p)
{
	struct vc_volume *v;
	struct vc_log *log;
	u32 i, shared = 0;

	for (i = 0; i < p->nlanes; i++) {
		if (!p->lane[i].owner)
			shared += vc_lane_size(p, &p->lane[i]);
	}
	WRITE_ONCE(p->shared, shared);
	list_for_each_entry(v, &p->volumes, node) {
		list_for_each_entry(log, &v->logs, node) {
			u32 own = 0;

			for (i = 0; i < p->nlanes; i++) {
				if (p->lane[i].owner == log)
					own += vc_lane_size(p, &p->lane[i]);
			}
			WRITE_ONCE(log->own_size, own);
		}
	}
}

/**
 * vc_lane_add - put a chunk on the free list of its lane
 * @p: the pool; its free lists are locked
 * @c: the chunk
 */
void vc_lane_add(struct vc_pool *p, struct vc_chunk *c)
{
	struct vc_lane *l = &p->lane[c->lane];

	c->state = VC_CHUNK_FREE;
	list_add_tail(&c->node, &l->free);
	WRITE_ONCE(l->nfree, l->nfree + 1);
	if (!l->owner)
		WRITE_ONCE(p->nfree, p->nfree + 1);
}

/**
 * vc_lane_get - take a free chunk
 * @p: the pool; its free lists are locked
 * @log: of the dedicated lanes of this log; NULL: of the shared lanes
 *
 * Return: the chunk, or NULL if none is free.
 */
struct vc_chunk *vc_lane_get(struct vc_pool *p, const struct vc_log *log)
{
	struct vc_lane *best = NULL;
	struct vc_chunk *c;
	u32 i;

	for (i = 0; i < p->nlanes; i++) {
		struct vc_lane *l = &p->lane[i];

		if (l->owner == log && l->nfree && (!best ||
						    l->nfree > best->nfree))
			best = l;
	}
	if (!best)
		return NULL;
	c = list_first_entry(&best->free, struct vc_chunk, node);
	list_del_init(&c->node);
	c->state = VC_CHUNK_SPARE;
	WRITE_ONCE(best->nfree, best->nfree - 1);
	if (!log)
		WRITE_ONCE(p->nfree, p->nfree - 1);
	return c;
}

/**
 * vc_lane_cut - remove chunks behind the new end of the pool from the free lists
 * @p: the pool; its free lists are locked
 */
void vc_lane_cut(struct vc_pool *p)
{
	struct vc_lane *l = &p->lane[p->nlanes - 1];
	struct vc_chunk *c, *next;

	list_for_each_entry_safe(c, next, &l->free, node) {
		if (vc_chunk_nr(p, c) < p->limit)
			continue;
		list_del_init(&c->node);
		c->state = VC_CHUNK_OUTSIDE;
		WRITE_ONCE(l->nfree, l->nfree - 1);
		if (!l->owner)
			WRITE_ONCE(p->nfree, p->nfree - 1);
	}
}

/**
 * vc_lanes_fit - do all lanes fit into a pool of so many chunks?
 * @p: the pool
 * @chunks: so many
 */
bool vc_lanes_fit(const struct vc_pool *p, u32 chunks)
{
	u32 first = p->lane[p->nlanes - 1].first;

	return p->nlanes == 1 || chunks >= first + VC_LANE_CHUNKS_MIN;
}

/**
 * vc_lanes_free - count the free chunks of some lanes
 * @p: the pool
 * @lanes: the lanes, bits
 */
u32 vc_lanes_free(const struct vc_pool *p, u64 lanes)
{
	u32 i, n = 0;

	for (i = 0; lanes; i++, lanes >>= 1) {
		if (lanes & 1)
			n += READ_ONCE(p->lane[i].nfree);
	}
	return n;
}

/**
 * vc_pool_free_chunks - count the free chunks of a pool
 * @p: the pool
 */
u32 vc_pool_free_chunks(const struct vc_pool *p)
{
	return vc_lanes_free(p, U64_MAX >> (VC_LANES_MAX - p->nlanes));
}

/*
 * Find the ends of lanes of these sizes. Return: how many lanes there are; 0 if they do
 * not fit, then @error says why.
 */
static u32 vc_lanes_bounds(const struct vc_pool *p, const u64 *sectors, u32 n,
			   u32 *end, const char **error)
{
	u32 shift = ilog2(p->g.chunk_blocks * VC_BLOCK_SECTORS), first = 0, i;

	*error = "a lane must have at least four chunks for data";
	for (i = 0; i < n; i++) {
		u64 to = min_t(u64, first + (sectors[i] >> shift),
			       p->g.chunks);

		if (to < max(first, p->g.first_chunk) + VC_LANE_CHUNKS_MIN)
			return 0;
		end[i] = to;
		first = to;
	}
	/* The rest is one more lane, unless it is very small: then the last lane gets it. */
	if (!n || p->g.chunks - first >= VC_LANE_CHUNKS_MIN)
		n++;
	end[n - 1] = U32_MAX;
	return n;
}

/* Are these the lanes of the active table? */
static bool vc_lanes_are(const struct vc_pool *p, const u64 *sectors, u32 n)
{
	u32 i;

	for (i = 0; i < n && n == p->given; i++) {
		if (p->lane[i].sectors != sectors[i])
			return false;
	}
	return n == p->given;
}

/* Sort the free chunks into the lists of their lanes. */
static void vc_lanes_sort(struct vc_pool *p)
{
	struct vc_chunk *c, *next;
	LIST_HEAD(all);
	u32 i, k = 0;

	for (i = 0; i < VC_LANES_MAX; i++) {
		list_splice_tail_init(&p->lane[i].free, &all);
		p->lane[i].nfree = 0;
	}
	p->nfree = 0;
	for (i = 0; i < vc_map_chunks(p); i++) {
		while (i >= p->lane[k].end)
			k++;
		p->chunk[i].lane = k;
	}
	list_for_each_entry_safe(c, next, &all, node)
		vc_lane_add(p, c);
}

/**
 * vc_lanes_set - set the lanes that the table names
 * @p: the pool, locked, loaded
 * @sectors: sizes, from the start of the device
 * @n: how many are given; the rest of the device is one more
 * @error: set to what is wrong
 *
 * Return: 0; -EBUSY if the lanes change and volumes are in use; -EINVAL.
 */
int vc_lanes_set(struct vc_pool *p, const u64 *sectors, u32 n,
		 const char **error)
{
	u32 end[VC_LANES_MAX], given = n, i;

	/* If the pool has grown since, the last lane has the new chunks. */
	if (vc_lanes_are(p, sectors, n))
		return 0;
	*error = "lanes can change only while no volume is in use";
	if (p->attached)
		return -EBUSY;
	n = vc_lanes_bounds(p, sectors, n, end, error);
	if (!n)
		return -EINVAL;
	spin_lock_irq(&p->free_lock);
	for (i = 0; i < n; i++) {
		p->lane[i].first = i ? end[i - 1] : 0;
		p->lane[i].end = end[i];
		p->lane[i].sectors = i < given ? sectors[i] : 0;
	}
	p->nlanes = n;
	p->given = given;
	vc_lanes_sort(p);
	spin_unlock_irq(&p->free_lock);
	vc_lanes_count(p);
	return 0;
}

/* Why can a log, or a new one, not have these lanes? NULL: it can. */
static const char *vc_lanes_refuse(const struct vc_pool *p,
				   const struct vc_log *log, u64 lanes)
{
	bool shared = false;
	u32 i;

	if (!lanes)
		return NULL;
	if (p->nlanes < VC_LANES_MAX && lanes >> p->nlanes)
		return "cache-lanes names a lane that the pool does not have";
	for (i = 0; i < p->nlanes; i++) {
		const struct vc_log *owner = p->lane[i].owner;
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
static bool vc_chunk_sort(struct vc_pool *p, struct vc_log *log,
			  struct vc_chunk *c)
{
	bool own = p->lane[c->lane].owner == log;

	if (c->own == own)
		return false;
	WRITE_ONCE(c->own, own);
	if (c->reads) {
		c->reads->nr[!own]--;
		c->reads->nr[own]++;
		list_move_tail(&c->node, &c->reads->chunks[own]);
	} else if (own) {
		log->nr_own++;
	} else {
		log->nr_own--;
	}
	return true;
}

/* Do that for all chunks of a lane that has become dedicated or shared. */
static void vc_lane_sort(struct vc_pool *p, const struct vc_lane *l)
{
	u32 i, k, n;

	for (i = max(l->first, p->g.first_chunk);
	     i < min(l->end, p->g.chunks); i++) {
		struct vc_chunk *c = &p->chunk[i];
		struct vc_log *log = READ_ONCE(c->log);

		n = 0;
		if (log) {
			spin_lock_irq(&log->lock);
			/* It is not reclaimed meanwhile, because the pool is locked. */
			if (vc_chunk_sort(p, log, c))
				n = vc_chunk_capacity(&p->g);
			spin_unlock_irq(&log->lock);
		}
		for (k = 0; k < n; k++)
			vc_lookup_sort(p, i * p->g.chunk_blocks + k);
		cond_resched();
	}
}

static void vc_lane_give(struct vc_pool *p, struct vc_lane *l,
			 struct vc_log *log)
{
	if (l->owner && !log)
		p->nfree += l->nfree;
	else if (!l->owner && log)
		p->nfree -= l->nfree;
	l->owner = log;
}

/**
 * vc_log_set_lanes - dedicate lanes to a log
 * @log: the log; its pool is locked
 * @lanes: the lanes, bits; not dedicated to another log
 *
 * Chunks of other logs in these lanes are reclaimed, see own.c. So are chunks of this log
 * in shared lanes, if it may not have them any more.
 */
void vc_log_set_lanes(struct vc_log *log, u64 lanes)
{
	struct vc_pool *p = log->vol->pool;
	u64 other = log->lanes ^ lanes;
	struct vc_volume *v;
	struct vc_log *l;
	u32 i;

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
	vc_lanes_count(p);
	/* A spare chunk may be in a wrong lane now. */
	list_for_each_entry(v, &p->volumes, node) {
		list_for_each_entry(l, &v->logs, node)
			vc_log_release_spare(l);
	}
	for (i = 0; i < p->nlanes; i++) {
		if (other & BIT_ULL(i))
			vc_lane_sort(p, &p->lane[i]);
	}
	WRITE_ONCE(p->foreign, 1); /* to be counted */
	vc_space_kick(p);
}

/**
 * vc_tag_lanes_refuse - can these lanes be dedicated to a tag?
 * @dev: its device, locked
 * @tag: the tag; NULL: a new one
 * @lanes: the lanes, bits
 *
 * Return: NULL, or why not.
 */
const char *vc_tag_lanes_refuse(struct vc_dev *dev, const struct vc_tag *tag,
				u64 lanes)
{
	const char *error;

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
 * vc_tag_set_lanes - dedicate lanes to a tag
 * @tag: the tag; its device is locked
 * @lanes: the lanes, bits
 *
 * Return: 0; -EBUSY if another tag has got them since vc_tag_lanes_refuse().
 */
int vc_tag_set_lanes(struct vc_tag *tag, u64 lanes)
{
	struct vc_log *log = tag->log;
	int r = 0;

	if (!log)
		return 0;
	mutex_lock(&log->vol->pool->lock);
	if (vc_lanes_refuse(log->vol->pool, log, lanes)) {
		r = -EBUSY;
	} else {
		tag->lanes = lanes;
		vc_log_set_lanes(log, lanes);
	}
	mutex_unlock(&log->vol->pool->lock);
	return r;
}

/**
 * vc_tag_keep_lanes - dedicate its lanes to a tag again, when it gets a log
 * @tag: the tag; the pool of its log is locked
 *
 * Only lanes that are not dedicated to another log meanwhile.
 */
void vc_tag_keep_lanes(struct vc_tag *tag)
{
	struct vc_pool *p = tag->log->vol->pool;
	const char *error = vc_lanes_refuse(p, tag->log, tag->lanes);

	if (error) {
		DMWARN("%s: tag %u of volume %u: %s", dm_device_name(p->md),
		       tag->id, tag->log->vol->id, error);
		tag->lanes = 0;
	}
	vc_log_set_lanes(tag->log, tag->lanes);
}
