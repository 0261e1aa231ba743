/* SPDX-License-Identifier: GPL-2.0 */
/*
 * What goes when the cache is full, and what of it is kept.
 *
 * Whole chunks go, the oldest of their kind first. What was hot in one is kept:
 * copied on, the hottest three quarters of it at most, so that room is made; half of
 * it while its log has more than its maximum. While a
 * quarter of what its log has holds nothing any more, a block need not be hot to be
 * kept, and the chunk goes of which least has to be: then room is made without losing
 * anything. And as long as there is so much room, what is missed gets a place at once.
 *
 * The kinds are what was written, what was missed once, and what was missed twice
 * or kept. What was missed once has little room, as in Yang et al., FIFO queues are
 * all you need for cache eviction, SOSP 2023, section 4. Of the other two the one
 * goes in whose oldest chunk less was read. What was read may go in any order.
 */
#ifndef VCACHE_CORE_REPLACE_H
#define VCACHE_CORE_REPLACE_H

#include "types.h"

/* A block that was read so often is as hot as can be. */
#define VC_HEAT_MAX		15U

/*
 * A block is hot that was read so often since it was written, or missed once; and
 * since it was missed twice, or kept: that one was read before.
 */
#define VC_HEAT_NEW		2U
#define VC_HEAT_MAIN		1U

/* Of the chunks of a log, those of reads go first when they are more; a default. */
#define VC_READS_PERCENT	75U

/* And before all others those of what was missed once, when they are more. */
#define VC_SMALL_PERCENT	10U

/*
 * To keep a block that is not hot costs so much; a block that is read pays for two,
 * eight that are written for one. What is paid lasts for so long, and so much a log
 * has from the start: who writes often reads, later. Where he never does, each is a
 * block that the SSD has written for nothing.
 */
#define VC_CREDIT_KEEP		8U
#define VC_CREDIT_READ		16U
#define VC_CREDIT_WRITE		1U
#define VC_CREDIT_MAX		(16384U * VC_CREDIT_KEEP)
#define VC_CREDIT_FIRST		(4096U * VC_CREDIT_KEEP)

/**
 * struct vc_keep - what is kept of a chunk
 * @level: what is hotter than that
 * @rest: and of what is as hot, so many
 */
struct vc_keep {
	u32 level;
	u32 rest;
};

/**
 * vc_fits - is a quarter of what a log can have empty?
 * @live: blocks of it that hold something
 * @cells: blocks that it can have
 */
static inline bool vc_fits(u32 live, u64 cells)
{
	return (u64)live * 4 <= cells * 3;
}

/**
 * vc_keep_most - how much of a chunk is kept at most
 * @capacity: blocks of it
 * @over: its log has more chunks than its maximum, which has become smaller
 *
 * Then much of what is hot has to go as well, and soon: to keep half makes twice the
 * room of each chunk that goes, and copies a third as much until all of it is made.
 */
static inline u32 vc_keep_most(u32 capacity, bool over)
{
	return capacity - capacity / (over ? 2 : 4);
}

/* Chunks of what was read of which the one with the least in it is found. */
#define VC_VICTIMS		64U

/**
 * vc_written_goes - of what a log has written and what it has read, which goes?
 * @written: what is lost, or has to be copied, with the chunk of what was written
 * @read: and with that of what was read
 */
static inline bool vc_written_goes(u32 written, u32 read)
{
	return written <= read;
}

/**
 * vc_keep_any - is a block of a chunk kept though it is not hot?
 * @live: blocks of its log that hold something
 * @cells: blocks that the log has
 * @credit: what the log may spend on blocks that are not hot
 * @capacity: blocks of a chunk
 */
static inline bool vc_keep_any(u32 live, u64 cells, u32 credit, u32 capacity)
{
	return credit >= capacity * VC_CREDIT_KEEP && vc_fits(live, cells);
}

/**
 * vc_keep_choose - decide what is kept of a chunk
 * @count: its blocks by heat, up to VC_HEAT_MAX
 * @hot: the least heat that is kept
 * @most: blocks that are kept at most
 */
static inline struct vc_keep vc_keep_choose(const u32 *count, u32 hot, u32 most)
{
	struct vc_keep k = { .level = VC_HEAT_MAX, .rest = most };

	while (k.level > hot && count[k.level] <= k.rest)
		k.rest -= count[k.level--];
	return k;
}

/**
 * vc_keep_wants - is a block kept?
 * @k: what is; asked once for each block of the chunk
 * @heat: of the block
 */
static inline bool vc_keep_wants(struct vc_keep *k, u32 heat)
{
	if (heat != k->level)
		return heat > k->level;
	if (!k->rest)
		return false;
	k->rest--;
	return true;
}

#endif /* VCACHE_CORE_REPLACE_H */
