/* SPDX-License-Identifier: GPL-2.0 */
/*
 * Placement: in which lanes are the blocks of a tag that has dedicated lanes?
 *
 * Hot blocks are in its dedicated lanes, warm ones in the shared lanes. So shared lanes are
 * read little, and tags rarely meet there. If more than a watermark of the blocks in
 * shared lanes has become hot, these change places with blocks in the dedicated lanes that
 * have become cold. After Du et al., OC-Cache: an open-channel SSD based cache for
 * multi-tenant systems, IPCCC 2018, section IV.
 */
#ifndef VCACHE_CORE_PLACE_H
#define VCACHE_CORE_PLACE_H

#include "replace.h"
#include "types.h"

/* The shared lanes, and the lanes dedicated to a tag. */
enum vcache_domain {
	VC_SHARED,
	VC_OWN,
	VC_DOMAINS
};

/* A block in shared lanes is hot if it was read so often since it came there. */
#define VC_HEAT_SHARED		VC_HEAT_NEW

/*
 * Default of the watermark: how much of what a tag has in shared lanes may be hot. It is
 * OC-Cache's W_hot, section V.
 */
#define VC_HOT_PERCENT		20U

/**
 * struct vcache_keep_policy - which blocks of a reclaimed chunk are kept
 * @hot: blocks of at least this heat; in dedicated lanes if the tag has any
 * @most: most blocks that are kept; hot ones first
 * @rest_most: most colder blocks that are kept; in shared lanes
 */
struct vcache_keep_policy {
	u32 hot;
	u32 most;
	u32 rest_most;
};

/**
 * vcache_hot_passes - is the hot part above the watermark?
 * @hot: number of hot blocks
 * @cells: number of all blocks
 * @percent: the watermark; nothing is above 100
 */
static inline bool vcache_hot_passes(u32 hot, u64 cells, u32 percent)
{
	return (u64)hot * 100 > cells * percent;
}

/**
 * vcache_keep_reclaim - policy for a chunk that is reclaimed for its space
 * @hot: blocks of at least this heat are kept
 * @fits: there is space for colder ones, too
 * @most: most blocks that are kept
 * @lanes: the tag has dedicated lanes
 */
static inline struct vcache_keep_policy vcache_keep_reclaim(u32 hot, bool fits, u32 most,
							    bool lanes)
{
	struct vcache_keep_policy f = { .hot = hot, .most = most };

	if (fits && lanes)
		f.rest_most = most;
	else if (fits)
		f.hot = 0;
	return f;
}

/**
 * vcache_keep_swap - policy for a chunk that is reclaimed to migrate its blocks
 * @hot: blocks of at least this heat are kept in dedicated lanes
 * @credit: what the log may spend on colder blocks
 * @capacity: blocks of a chunk
 *
 * All blocks may be kept: space is not the purpose.
 */
static inline struct vcache_keep_policy vcache_keep_swap(u32 hot, u32 credit, u32 capacity)
{
	u32 paid = credit / VC_CREDIT_KEEP;
	struct vcache_keep_policy f = {
		.hot = hot,
		.most = capacity,
		.rest_most = paid < capacity ? paid : capacity,
	};

	return f;
}

/**
 * vcache_keep_rest - how many colder blocks are kept at most?
 * @f: the policy
 * @kept: hot blocks of the chunk that are kept
 */
static inline u32 vcache_keep_rest(const struct vcache_keep_policy *f, u32 kept)
{
	u32 left = f->most - kept;

	return f->rest_most < left ? f->rest_most : left;
}

/**
 * vcache_swap_pays - is a chunk in dedicated lanes so much colder than one in shared lanes
 *	that their blocks should change places?
 * @own: total heat of the first one
 * @shared: total heat of the second one
 * @capacity: blocks of a chunk
 *
 * If both are about as hot nothing is gained, whatever the watermark says. A chunk of which
 * each block was read once more than the other's counts as equally hot.
 */
static inline bool vcache_swap_pays(u32 own, u32 shared, u32 capacity)
{
	return 2 * own + capacity / 2 <= shared;
}

/**
 * vcache_swap_heat - least heat of blocks that stay in dedicated lanes
 * @shared: total heat of the chunk that needs the space
 * @capacity: blocks of a chunk
 *
 * It is the average heat of the blocks that come. If vcache_swap_pays(), at least half of the
 * blocks are colder than that.
 */
static inline u32 vcache_swap_heat(u32 shared, u32 capacity)
{
	u32 heat = (shared + capacity - 1) / capacity;

	return heat ? heat : 1;
}

/**
 * vcache_heat_cooled - reduce the heat of a block
 * @heat: its heat
 *
 * Three quarters, rounded down. Chunks cool one after the other. With half, a chunk
 * that cools first would become so much colder than an equally hot one that the two
 * would change places.
 */
static inline u32 vcache_heat_cooled(u32 heat)
{
	return heat - (heat + 3) / 4;
}

/* Most chunks that are cooled at a time. */
#define VC_COOL_MAX		16U

/**
 * vcache_cool_chunks - how many chunks of a tag are cooled now?
 * @hits: blocks that it has read from the cache since chunks were last cooled
 * @capacity: blocks of a chunk
 *
 * All have been cooled once when the tag has read as many blocks as it has. So heat counts
 * recent reads, in all lanes, and does not change while all blocks are read evenly.
 */
static inline u32 vcache_cool_chunks(u64 hits, u32 capacity)
{
	return hits < (u64)VC_COOL_MAX * capacity ? (u32)hits / capacity : VC_COOL_MAX;
}

#endif /* VCACHE_CORE_PLACE_H */
