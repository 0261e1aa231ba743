// SPDX-License-Identifier: GPL-2.0-only
/*
 * dm-vcache: lanes: ranges of the cache device that do not disturb each other.
 *
 * A lane is a device of a concatenation, an NVMe namespace, a group of channels:
 * the table says where one ends. What is in it is in chunks, as everywhere; nothing
 * on the device knows of lanes, so they may be others after a restart.
 *
 * A tag may have lanes for itself. Only its log takes chunks there; those of others
 * leave. A lane that is nobody's is shared, and so is one whose tag goes. One lane
 * always is: who has none of its own has its chunks there. See own.c for how a log
 * uses its own lanes, space.c and share.c for what is shared.
 *
 * The free chunks of each lane have a list. In shared lanes, and in several of one's
 * own, the next chunk is one of the lane that has most that are free: so all of them
 * are used alike.
 */
#include "pool.h"

/* Chunks for data that a lane has at least. */
#define VC_LANE_CHUNKS_MIN 4U

/* Chunks for data in a lane now. */
static u32 vc_lane_size(const struct vc_pool *p, const struct vc_lane *l)
{
	u32 first = max(l->first, p->g.first_chunk);
	u32 end = min(l->end, READ_ONCE(p->limit));

	return end > first ? end - first : 0;
}

/**
 * vc_lanes_init - a pool has one lane, and no chunks yet
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
 * vc_lanes_count - how many chunks are shared, and how many are whose own?
 * @p: the pool, locked
 *
 * To be called when lanes change hands, and when the pool grows or shrinks.
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
 * vc_lane_add - a chunk is free
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
 * @log: of lanes of this log, or NULL: of shared ones
 *
 * Return: NULL when none is free.
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
 * vc_lane_cut - what is free behind the new end of the pool is not any more
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
 * vc_lanes_fit - have all lanes room in a pool of so many chunks?
 * @p: the pool
 * @chunks: so many
 */
bool vc_lanes_fit(const struct vc_pool *p, u32 chunks)
{
	u32 first = p->lane[p->nlanes - 1].first;

	return p->nlanes == 1 || chunks >= first + VC_LANE_CHUNKS_MIN;
}

/**
 * vc_lanes_free - how many chunks are free in some lanes?
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
 * vc_pool_free_chunks - how many chunks of a pool are free?
 * @p: the pool
 */
u32 vc_pool_free_chunks(const struct vc_pool *p)
{
	return vc_lanes_free(p, U64_MAX >> (VC_LANES_MAX - p->nlanes));
}

/*
 * Where do lanes of so many sectors end? Return: how many lanes there are; 0: they
 * do not fit, and @error says why.
 */
static u32 vc_lanes_bounds(const struct vc_pool *p, const u64 *sectors, u32 n,
			   u32 *end, const char **error)
{
	u32 shift = ilog2(p->g.chunk_blocks * VC_BLOCK_SECTORS), first = 0, i;

	*error = "a lane has to have four chunks for data at least";
	for (i = 0; i < n; i++) {
		u64 to = min_t(u64, first + (sectors[i] >> shift),
			       p->g.chunks);

		if (to < max(first, p->g.first_chunk) + VC_LANE_CHUNKS_MIN)
			return 0;
		end[i] = to;
		first = to;
	}
	/* What is left is a lane, too; a few chunks are the last one's. */
	if (!n || p->g.chunks - first >= VC_LANE_CHUNKS_MIN)
		n++;
	end[n - 1] = U32_MAX;
	return n;
}

/* Are these lanes those that the table in force names? */
static bool vc_lanes_are(const struct vc_pool *p, const u64 *sectors, u32 n)
{
	u32 i;

	for (i = 0; i < n && n == p->given; i++) {
		if (p->lane[i].sectors != sectors[i])
			return false;
	}
	return n == p->given;
}

/* Free chunks go to the lists of their lanes. */
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
 * vc_lanes_set - the table says what lanes there are
 * @p: the pool, locked, loaded
 * @sectors: sizes, from the start of the device
 * @n: how many are given; what is left is one more
 * @error: says what was wrong
 *
 * Return: 0; -EBUSY when volumes are in use and the lanes are others; -EINVAL.
 */
int vc_lanes_set(struct vc_pool *p, const u64 *sectors, u32 n,
		 const char **error)
{
	u32 end[VC_LANES_MAX], given = n, i;

	/* A pool that has grown since has what is left in its last lane. */
	if (vc_lanes_are(p, sectors, n))
		return 0;
	*error = "lanes change only while no volume is in use";
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

/* Why can a log, or one that is still to be made, not have these lanes? NULL: it can. */
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
			return "a lane of cache-lanes is another tag's";
		shared |= !wanted && (!owner || owner == log);
	}
	return shared ? NULL : "one lane at least has to be left to all tags";
}

/*
 * A chunk of a log, which is locked, is in a lane of its own now, or is not. Return:
 * that is new.
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

/* The chunks of a lane that has changed hands. */
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
			/* It does not go: the pool is locked. */
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
 * vc_log_set_lanes - a log has these lanes for itself from now on
 * @log: the log; its pool is locked
 * @lanes: the lanes, bits, nobody else's
 *
 * What others have there leaves, see own.c; so does what this log has in shared
 * lanes and may not have there any more.
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
	/* What is ready for somebody may be in the wrong lanes. */
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
 * vc_tag_lanes_refuse - can a tag have these lanes for itself?
 * @dev: its device, locked
 * @tag: the tag; NULL: one that is still to be made
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
 * vc_tag_set_lanes - a tag has these lanes for itself from now on
 * @tag: the tag; its device is locked
 * @lanes: the lanes, bits
 *
 * Return: 0; -EBUSY when a tag has come since they were found to be free.
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
 * vc_tag_keep_lanes - a tag uses a log, be it again
 * @tag: the tag; the pool of its log is locked
 *
 * The lanes that it had for itself it has still, if they are nobody else's now.
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
