/* SPDX-License-Identifier: GPL-2.0 */
/*
 * Replacement: which chunks are reclaimed when the cache is full, and which of their
 * blocks are kept.
 *
 * Whole chunks are reclaimed, the oldest of their kind first. The kinds are written
 * chunks, chunks of blocks that were missed once, and chunks of blocks that were missed
 * twice or kept. Those missed once have little space, as in Yang et al., FIFO queues are
 * all you need for cache eviction, SOSP 2023, section 4. Of the other two kinds, that one
 * is taken whose oldest chunk has fewer blocks that were read. Read chunks may be reclaimed
 * in any order.
 *
 * Hot blocks of a chunk are kept: they are copied to another chunk. At most the hottest
 * three quarters of a chunk are kept, so that space is gained; only half while its log has
 * more than its maximum.
 *
 * While a quarter of what a log has is empty, blocks need not be hot to be kept. Then the
 * chunk with the fewest live blocks is reclaimed, and space is gained without a loss. With
 * so much space a block is also promoted when it is missed once.
 */
#ifndef VCACHE_CORE_REPLACE_H
#define VCACHE_CORE_REPLACE_H

#include "types.h"

/* Highest heat: how often a block was read, if it was read so often or more. */
#define VC_HEAT_MAX		15U

/*
 * A block is hot if it was read so often since it was written, or missed once. The second
 * number is for blocks that were missed twice, or kept: they were read before.
 */
#define VC_HEAT_NEW		2U
#define VC_HEAT_MAIN		1U

/* Read chunks of a log go first above this percentage of its chunks; a default. */
#define VC_READS_PERCENT	75U

/* Chunks of blocks that were missed once go before all others above this percentage. */
#define VC_SMALL_PERCENT	10U

/*
 * Credit for keeping blocks that are not hot: the price of keeping one, and what is earned
 * by a block that is read, and by one that is written. So a read pays for two blocks, and
 * 32 writes pay for one. The maximum limits how long credit lasts, and each log starts
 * with some, because a tag that writes now may read later. For a tag that never reads,
 * each block that is kept is a useless write to the SSD.
 */
#define VC_CREDIT_KEEP		32U
#define VC_CREDIT_READ		64U
#define VC_CREDIT_WRITE		1U
#define VC_CREDIT_MAX		(16384U * VC_CREDIT_KEEP)
#define VC_CREDIT_FIRST		(4096U * VC_CREDIT_KEEP)

/**
 * struct vcache_keep - which blocks of a chunk are kept
 * @level: all that are hotter than this
 * @rest: so many of this heat
 */
struct vcache_keep {
	u32 level;
	u32 rest;
};

/**
 * vcache_fits - is a quarter of what a log can have empty?
 * @live: its live blocks
 * @cells: blocks that it can have
 */
static inline bool vcache_fits(u32 live, u64 cells)
{
	return (u64)live * 4 <= cells * 3;
}

/**
 * vcache_keep_most - how many blocks of a chunk are kept at most?
 * @capacity: blocks of a chunk
 * @over: its log has more chunks than its maximum, which has been reduced
 *
 * In the second case many hot blocks have to be dropped, and soon. To keep half gains twice
 * the space of each chunk, and copies a third as much until all space is gained.
 */
static inline u32 vcache_keep_most(u32 capacity, bool over)
{
	return capacity - capacity / (over ? 2 : 4);
}

/* Read chunks among which the one with the fewest live blocks is looked for. */
#define VC_VICTIMS		64U

/**
 * vcache_written_goes - is the written chunk reclaimed, or the read chunk?
 * @written: blocks that are lost, or have to be copied, with the written chunk
 * @read: the same for the read chunk
 */
static inline bool vcache_written_goes(u32 written, u32 read)
{
	return written <= read;
}

/**
 * vcache_keep_any - are blocks kept that are not hot?
 * @live: live blocks of the log
 * @cells: blocks that its chunks have space for
 * @credit: what the log may spend on blocks that are not hot
 * @capacity: blocks of a chunk
 */
static inline bool vcache_keep_any(u32 live, u64 cells, u32 credit, u32 capacity)
{
	return credit >= capacity * VC_CREDIT_KEEP && vcache_fits(live, cells);
}

/**
 * vcache_keep_choose - decide which blocks of a chunk are kept
 * @count: its blocks by heat, up to VC_HEAT_MAX
 * @hot: the least heat that is kept
 * @most: most blocks that are kept
 */
static inline struct vcache_keep vcache_keep_choose(const u32 *count, u32 hot, u32 most)
{
	struct vcache_keep k = { .level = VC_HEAT_MAX, .rest = most };

	while (k.level > hot && count[k.level] <= k.rest)
		k.rest -= count[k.level--];
	return k;
}

/**
 * vcache_keep_wants - is a block kept?
 * @k: the decision; call this once for each block of the chunk
 * @heat: heat of the block
 */
static inline bool vcache_keep_wants(struct vcache_keep *k, u32 heat)
{
	if (heat != k->level)
		return heat > k->level;
	if (!k->rest)
		return false;
	k->rest--;
	return true;
}

#endif /* VCACHE_CORE_REPLACE_H */
