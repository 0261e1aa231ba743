/* SPDX-License-Identifier: GPL-2.0 */
/*
 * Where in the cache does a block of a tag go that has lanes of its own?
 *
 * What is hot goes to its own lanes, what is warm to the shared ones: so those are
 * not read much, and tags meet there as little as can be. What has become hot there
 * changes places with what has become cold in its own lanes, when it is more than a
 * watermark. After Du et al., OC-Cache: an open-channel SSD based cache for
 * multi-tenant systems, IPCCC 2018, section IV.
 */
#ifndef VCACHE_CORE_PLACE_H
#define VCACHE_CORE_PLACE_H

#include "replace.h"
#include "types.h"

/* Lanes that are all tags', and those that are one's own. */
enum vc_domain {
	VC_SHARED,
	VC_OWN,
	VC_DOMAINS
};

/* A block in shared lanes is hot that was read so often since it came there. */
#define VC_HEAT_SHARED		VC_HEAT_NEW

/*
 * So much of what a tag has in shared lanes may be hot, if nothing else is said:
 * OC-Cache's watermark W_hot, section V.
 */
#define VC_HOT_PERCENT		20U

/**
 * struct vc_keep_policy - what becomes of the blocks of a chunk that goes
 * @hot: those that are at least so hot are kept; in the tag's own lanes if it has any
 * @most: blocks that are kept at most, the hot ones first
 * @rest_most: so many of those that are not hot; in shared lanes
 */
struct vc_keep_policy {
	u32 hot;
	u32 most;
	u32 rest_most;
};

/**
 * vc_hot_passes - is too much of it hot?
 * @hot: blocks that are hot
 * @cells: of so many
 * @percent: the watermark; at 100 nothing is
 */
static inline bool vc_hot_passes(u32 hot, u64 cells, u32 percent)
{
	return (u64)hot * 100 > cells * percent;
}

/**
 * vc_keep_reclaim - a chunk goes because there has to be room
 * @hot: blocks that are so hot are kept
 * @fits: and there is room for those that are not
 * @most: blocks that are kept at most
 * @lanes: the tag has lanes of its own
 */
static inline struct vc_keep_policy vc_keep_reclaim(u32 hot, bool fits, u32 most,
						    bool lanes)
{
	struct vc_keep_policy f = { .hot = hot, .most = most };

	if (fits && lanes)
		f.rest_most = most;
	else if (fits)
		f.hot = 0;
	return f;
}

/**
 * vc_keep_swap - a chunk goes because its blocks are in the wrong lanes
 * @hot: blocks that are so hot are kept in the tag's own lanes
 * @credit: what the log may spend on blocks that are not
 * @capacity: blocks of a chunk
 *
 * There need be no room: where it is, another gives way.
 */
static inline struct vc_keep_policy vc_keep_swap(u32 hot, u32 credit, u32 capacity)
{
	u32 paid = credit / VC_CREDIT_KEEP;
	struct vc_keep_policy f = {
		.hot = hot,
		.most = capacity,
		.rest_most = paid < capacity ? paid : capacity,
	};

	return f;
}

/**
 * vc_keep_rest - how many blocks are kept that are not hot, at most?
 * @f: what becomes of the chunk
 * @kept: blocks of it that are, because they are hot
 */
static inline u32 vc_keep_rest(const struct vc_keep_policy *f, u32 kept)
{
	u32 left = f->most - kept;

	return f->rest_most < left ? f->rest_most : left;
}

/**
 * vc_swap_pays - is a chunk of the tag's own lanes so much colder than one in shared
 *	lanes that their blocks should change places?
 * @own: the heat of all blocks of the one
 * @shared: and of the other
 * @capacity: blocks of a chunk
 *
 * Where all is as hot nothing is gained, whatever the watermark says; and what has
 * just been read once more than the other is as hot.
 */
static inline bool vc_swap_pays(u32 own, u32 shared, u32 capacity)
{
	return 2 * own + capacity / 2 <= shared;
}

/**
 * vc_swap_heat - how hot are blocks in the tag's own lanes that stay there?
 * @shared: the heat of all blocks of the chunk for which there is to be room
 * @capacity: blocks of it
 *
 * As hot as what comes. So when it pays at least half of a chunk goes.
 */
static inline u32 vc_swap_heat(u32 shared, u32 capacity)
{
	u32 heat = (shared + capacity - 1) / capacity;

	return heat ? heat : 1;
}

/**
 * vc_heat_cooled - what is left of the heat of a block that cools down
 * @heat: of the block
 *
 * Three quarters, rounded down. Chunks cool one after the other. With half, a chunk
 * that cools first would become so much colder than an equally hot one that the two
 * would change places.
 */
static inline u32 vc_heat_cooled(u32 heat)
{
	return heat - (heat + 3) / 4;
}

/* Chunks that cool down at a time, at most. */
#define VC_COOL_MAX		16U

/**
 * vc_cool_chunks - how many chunks of a tag cool down now?
 * @hits: blocks that it has read in the cache since some did
 * @capacity: blocks of a chunk
 *
 * All have once it has read as many blocks as it has: so heat is of what was read of
 * late, in either kind of lanes, and lasts while all is read evenly.
 */
static inline u32 vc_cool_chunks(u64 hits, u32 capacity)
{
	return hits < (u64)VC_COOL_MAX * capacity ? (u32)hits / capacity : VC_COOL_MAX;
}

#endif /* VCACHE_CORE_PLACE_H */
