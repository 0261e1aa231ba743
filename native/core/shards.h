/* SPDX-License-Identifier: GPL-2.0 */
/*
 * The miss-ratio curve of a stream of block accesses under LRU: how many of
 * them a cache of any size would have missed, from a sample of the blocks.
 *
 * Waldspurger, Park, Garthwaite, Ahmad: Efficient MRC Construction with
 * SHARDS, FAST '15. A block is sampled when its hash is under a threshold T:
 * its rate is R = T / 2^64 ("fixed-rate"). The distance of an access, the
 * number of other sampled blocks since the last one to the same block, counts
 * as distance / R, the access itself as 1 / R. With a fixed size the sampled
 * block of the largest hash is dropped when there is one too many, and T
 * becomes that hash ("fixed-size"): exact while all blocks fit. What Σ 1/R
 * has more or less than the accesses that there were is put right at distance
 * 0 ("SHARDS_adj"). With R = 1 all of it is Mattson's stack algorithm.
 *
 * Other than in the paper the hash is stratified: groups of 4096 blocks begin
 * at random, and the blocks in a group follow in steps of the golden ratio. A
 * run of n blocks has nR sampled ones but for about one, whatever its stride,
 * where independent hashes deviate by √(nR).
 *
 * The caller gives memory and locks. No call sleeps; one that has to number
 * the sample anew takes time in proportion to its size.
 */
#ifndef VCACHE_CORE_SHARDS_H
#define VCACHE_CORE_SHARDS_H

#include "types.h"

/* Weights are 1/R in units of 2^-16. */
#define VC_SHARDS_ONE_SHIFT 16
#define VC_SHARDS_MIN 16
#define VC_SHARDS_MAX 0x10000000U
/* T - 1 where each block is sampled. */
#define VC_SHARDS_ALL (~0ULL)
/* 2^30 places, 64 to a word, 16 words or nodes to a node; one more for its end. */
#define VC_SHARDS_LEVELS 8
/* Reads and writes, say. */
#define VC_SHARDS_KINDS 2

/**
 * struct vc_shards_setup - what to estimate, and how
 * @samples: how many blocks at most, VC_SHARDS_MIN ... VC_SHARDS_MAX
 * @kinds: of accesses that are counted apart, 1 ... VC_SHARDS_KINDS; an access
 *	of either finds what the other has touched
 * @buckets: of a histogram, 2 ... 2^30. As many as @samples and @grain_shift
 *	0 make it exact while T has not changed.
 * @grain_shift: a bucket has 2^this distances in blocks, 0 ... 32. It grows,
 *	and pairs of buckets become one, when a distance is behind the last.
 * @fixed_rate: T does not change; vc_shards_touch() ends when there is
 *	one block too many
 * @limit: T - 1, the largest hash that is sampled at first: VC_SHARDS_ALL is
 *	R = 1; not less than for R = 2^-35
 * @salt: any number. Another one is another sample.
 */
struct vc_shards_setup {
	u32 samples;
	u32 kinds;
	u32 buckets;
	u32 grain_shift;
	bool fixed_rate;
	u64 limit;
	u64 salt;
};

/**
 * struct vc_shards_kind - what was counted of one kind
 * @accesses: how many blocks were accessed, sampled or not
 * @weighed: Σ 1/R of the sampled ones, in units of 2^-16
 * @hist: Σ 1/R by distance, in units of 2^-16
 */
struct vc_shards_kind {
	u64 accesses;
	u64 weighed;
	u64 *hist;
};

/**
 * struct vc_shards - an estimate; its fields are private but for reading
 * @setup: as given to vc_shards_init(); @setup.limit and @setup.grain_shift
 *	are what they are now
 * @kind: what was counted
 * @weight: 1/R, in units of 2^-16
 * @salt: @setup.salt, mixed
 * @used: blocks in the sample
 * @next: the place of the next access; the first is 0
 * @places: how many there are
 * @slot_shift: the table has 2^(64 - this) lines of eight slots
 * @heaped: @heap is in use
 * @key: hash of the block in a slot
 * @place: 1 + the last access to the block in a slot, 0: the slot is free
 * @live: one bit a place: the last access to a block in the sample
 * @tree: Fenwick tree of the bits in each word of @live but the one of @next
 * @heap: the hashes in the sample, the largest first, once it was full
 */
struct vc_shards {
	struct vc_shards_setup setup;
	struct vc_shards_kind kind[VC_SHARDS_KINDS];
	u64 weight;
	u64 salt;
	u32 used;
	u32 next;
	u32 places;
	u32 slot_shift;
	bool heaped;
	u64 *key;
	u32 *place;
	u64 *live;
	u32 levels;
	u32 *tree[VC_SHARDS_LEVELS];
	u64 *heap;
};

size_t vc_shards_size(const struct vc_shards_setup *setup);
int vc_shards_init(struct vc_shards *s, const struct vc_shards_setup *setup,
		   void *memory);
size_t vc_shards_touch(struct vc_shards *s, u32 kind, const u64 *blocks,
		       size_t n);
void vc_shards_move(struct vc_shards *to, const struct vc_shards *from);
u64 vc_shards_footprint(const struct vc_shards *s);
void vc_shards_curve(const struct vc_shards *s, u32 kind, const u64 *sizes,
		     size_t n, u64 *misses);

#endif /* VCACHE_CORE_SHARDS_H */
