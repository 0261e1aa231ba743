// SPDX-License-Identifier: GPL-2.0-only
/*
 * dm-vcache: lanes: ranges of the cache device that do not disturb each other.
 *
 * A lane is a device of a concatenation, an NVMe namespace, or a group of channels. The
 * table says where one ends. Lanes consist of chunks. Nothing on the device describes
 * them, so they may be different after a restart.
 *
 * Each lane has a list of its free chunks. The next chunk is taken from the lane with the
 * most free chunks, of the shared lanes or of the dedicated lanes of a log. So lanes are
 * used evenly.
 */
#include "internal.h"

/* Least chunks for data in a lane. */
#define VC_LANE_CHUNKS_MIN 4U

/* Chunks in a lane that logs can have now. */
static u32 vc_lane_size(const struct vcache_pool *p, const struct vcache_lane *l)
{
	u32 first = max(l->first, p->g.first_chunk);
	u32 end = min(l->end, READ_ONCE(p->limit));

	return end > first ? end - first - min(end - first, l->direct) : 0;
}

/**
 * vcache_lanes_init - give a pool one lane, without chunks
 * @p: the pool
 */
void vcache_lanes_init(struct vcache_pool *p)
{
	u32 i;

	for (i = 0; i < VC_LANES_MAX; i++) {
		INIT_LIST_HEAD(&p->lane[i].free);
		p->lane[i].nfree = 0;
		p->lane[i].direct = 0;
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
 * vcache_lanes_count - count the chunks of shared and of dedicated lanes
 * @p: the pool, locked
 *
 * Called when a lane becomes dedicated or shared, when the pool grows or shrinks, and when an
 * elastic SSD has got or returned chunks.
 */
void vcache_lanes_count(struct vcache_pool *p)
{
	struct vcache_volume *v;
	struct vcache_log *log;
	u32 i, shared = 0;

	lockdep_assert_held(&p->lock);
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
 * vcache_lane_add - put a chunk on the free list of its lane
 * @p: the pool; its free lists are locked
 * @c: the chunk
 */
void vcache_lane_add(struct vcache_pool *p, struct vcache_chunk *c)
{
	struct vcache_lane *l = &p->lane[c->lane];

	lockdep_assert_held(&p->free_lock);
	c->state = VC_CHUNK_FREE;
	list_add_tail(&c->node, &l->free);
	WRITE_ONCE(l->nfree, l->nfree + 1);
	if (!l->owner)
		WRITE_ONCE(p->nfree, p->nfree + 1);
}

/**
 * vcache_lane_get - take a free chunk
 * @p: the pool; its free lists are locked
 * @log: of the dedicated lanes of this log; NULL: of the shared lanes
 *
 * Return: the chunk, or NULL if none is free.
 */
struct vcache_chunk *vcache_lane_get(struct vcache_pool *p, const struct vcache_log *log)
{
	struct vcache_lane *best = NULL;
	struct vcache_chunk *c;
	u32 i;

	lockdep_assert_held(&p->free_lock);
	for (i = 0; i < p->nlanes; i++) {
		struct vcache_lane *l = &p->lane[i];

		if (l->owner == log && l->nfree && (!best ||
						    l->nfree > best->nfree))
			best = l;
	}
	if (!best)
		return NULL;
	c = list_first_entry(&best->free, struct vcache_chunk, node);
	list_del_init(&c->node);
	c->state = VC_CHUNK_SPARE;
	WRITE_ONCE(best->nfree, best->nfree - 1);
	if (!log)
		WRITE_ONCE(p->nfree, p->nfree - 1);
	return c;
}

/**
 * vcache_lane_cut - remove chunks behind the new end of the pool from the free lists
 * @p: the pool; its free lists are locked
 */
void vcache_lane_cut(struct vcache_pool *p)
{
	struct vcache_lane *l = &p->lane[p->nlanes - 1];
	struct vcache_chunk *c, *next;

	lockdep_assert_held(&p->free_lock);
	list_for_each_entry_safe(c, next, &l->free, node) {
		if (vcache_chunk_nr(p, c) < p->limit)
			continue;
		list_del_init(&c->node);
		c->state = VC_CHUNK_OUTSIDE;
		WRITE_ONCE(l->nfree, l->nfree - 1);
		if (!l->owner)
			WRITE_ONCE(p->nfree, p->nfree - 1);
	}
}

/**
 * vcache_lanes_fit - do all lanes fit into a pool of so many chunks?
 * @p: the pool
 * @chunks: so many
 */
bool vcache_lanes_fit(const struct vcache_pool *p, u32 chunks)
{
	u32 first = p->lane[p->nlanes - 1].first;

	return p->nlanes == 1 || chunks >= first + VC_LANE_CHUNKS_MIN;
}

/**
 * vcache_lanes_free - count the free chunks of some lanes
 * @p: the pool
 * @lanes: the lanes, bits
 */
u32 vcache_lanes_free(const struct vcache_pool *p, u64 lanes)
{
	u32 i, n = 0;

	for (i = 0; lanes; i++, lanes >>= 1) {
		if (lanes & 1)
			n += READ_ONCE(p->lane[i].nfree);
	}
	return n;
}

/**
 * vcache_pool_free_chunks - count the free chunks of a pool
 * @p: the pool
 */
u32 vcache_pool_free_chunks(const struct vcache_pool *p)
{
	return vcache_lanes_free(p, U64_MAX >> (VC_LANES_MAX - p->nlanes));
}

/*
 * Find the ends of lanes of these sizes. Return: how many lanes there are; 0 if they do
 * not fit, then @error says why.
 */
static u32 vc_lanes_bounds(const struct vcache_pool *p, const u64 *sectors, u32 n,
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
static bool vc_lanes_are(const struct vcache_pool *p, const u64 *sectors, u32 n)
{
	u32 i;

	for (i = 0; i < n && n == p->given; i++) {
		if (p->lane[i].sectors != sectors[i])
			return false;
	}
	return n == p->given;
}

/* Sort the free chunks into the lists of their lanes. */
static void vc_lanes_sort(struct vcache_pool *p)
{
	struct vcache_chunk *c, *next;
	LIST_HEAD(all);
	u32 i, k = 0;

	for (i = 0; i < VC_LANES_MAX; i++) {
		list_splice_tail_init(&p->lane[i].free, &all);
		p->lane[i].nfree = 0;
		p->lane[i].direct = 0;
	}
	p->nfree = 0;
	for (i = 0; i < vcache_map_chunks(p); i++) {
		while (i >= p->lane[k].end)
			k++;
		p->chunk[i].lane = k;
		p->lane[k].direct += p->chunk[i].state == VC_CHUNK_DIRECT;
	}
	list_for_each_entry_safe(c, next, &all, node)
		vcache_lane_add(p, c);
}

/**
 * vcache_lanes_set - set the lanes that the table names
 * @p: the pool, locked, loaded
 * @sectors: sizes, from the start of the device
 * @n: how many are given; the rest of the device is one more
 * @error: set to what is wrong
 *
 * Return: 0; -EBUSY if the lanes change and volumes are in use; -EINVAL.
 */
int vcache_lanes_set(struct vcache_pool *p, const u64 *sectors, u32 n,
		     const char **error)
{
	u32 end[VC_LANES_MAX], given = n, i;

	lockdep_assert_held(&p->lock);
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
	vcache_lanes_count(p);
	return 0;
}

/* Forget which cells of a chunk could not be read. It will have other data. */
static void vc_chunk_forget_bad(struct vcache_pool *p, struct vcache_chunk *c)
{
	u32 cell = vcache_chunk_nr(p, c) * p->g.chunk_blocks, i;

	if (!c->bad)
		return;
	for (i = 0; i < p->g.chunk_blocks; i++)
		clear_bit(cell + i, p->cell_bad);
	c->bad = false;
}

/**
 * vcache_chunk_free - put a chunk on the free list of its lane
 * @p: the pool
 * @c: the chunk; it is dead on the device
 */
void vcache_chunk_free(struct vcache_pool *p, struct vcache_chunk *c)
{
	unsigned long flags;

	/* A live cell would be dropped later, from the counts of another log. */
	WARN_ON_ONCE(atomic_read(&c->live) || atomic_read(&c->dirty));
	vc_chunk_forget_bad(p, c);
	vcache_doubt_freed(c);
	spin_lock_irqsave(&p->free_lock, flags);
	p->found[vcache_chunk_nr(p, c)].gen = 0;
	c->log = NULL;
	c->gen = 0;
	c->reads = NULL;
	WRITE_ONCE(c->reuse, c->reuse + 1);
	c->own = false;
	c->state = VC_CHUNK_OUTSIDE;
	WRITE_ONCE(p->space_retry, 0);
	if (vcache_chunk_nr(p, c) < p->limit)
		vcache_lane_add(p, c);
	spin_unlock_irqrestore(&p->free_lock, flags);
}

/**
 * vcache_log_release_spare - free the chunk that is reserved for a log
 * @log: the log; its pool is locked
 *
 * Called when no tag writes to the log, or the pool shrinks: others may need the chunk.
 */
void vcache_log_release_spare(struct vcache_log *log)
{
	struct vcache_chunk *spare;

	lockdep_assert_held(&log->vol->pool->lock);
	spin_lock_irq(&log->lock);
	spare = log->spare;
	WRITE_ONCE(log->spare, NULL);
	spin_unlock_irq(&log->lock);
	if (spare)
		vcache_chunk_free(log->vol->pool, spare);
}
