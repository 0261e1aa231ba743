/* SPDX-License-Identifier: GPL-2.0 */
/*
 * The miss-ratio curve of a stream of block accesses under LRU: how many accesses would a
 * cache of each size have missed? It is estimated from a sample of the blocks.
 *
 * Waldspurger, Park, Garthwaite, Ahmad: Efficient MRC Construction with SHARDS, FAST '15.
 * A block is sampled if its hash is under a threshold T: the rate is R = T / 2^64
 * ("fixed-rate"). The distance of an access is the number of other sampled blocks since
 * the last access to the same block. It counts as distance / R, and the access as 1 / R.
 *
 * With a fixed size, when there is one sampled block too many, the one with the largest
 * hash is dropped, and T becomes that hash ("fixed-size"). This is exact while all blocks
 * fit. The difference between Σ 1/R and the real number of accesses is corrected at
 * distance 0 ("SHARDS_adj"). With R = 1 it is Mattson's stack algorithm.
 *
 * Unlike in the paper the hash is stratified: groups of 4096 blocks begin at random, and the
 * blocks in a group follow in steps of the golden ratio. Of a run of n blocks nR are
 * sampled, give or take about one, whatever its stride. With independent hashes the
 * deviation would be √(nR).
 *
 * The caller provides memory and locks. No call sleeps. A call that has to renumber the
 * sample takes time in proportion to its size.
 */
#ifndef VCACHE_CORE_SHARDS_H
#define VCACHE_CORE_SHARDS_H

#include "types.h"

/* Weights are 1/R in units of 2^-16. */
#define VC_SHARDS_ONE_SHIFT 16
#define VC_SHARDS_MIN 16
#define VC_SHARDS_MAX 0x10000000U
/* T - 1 if every block is sampled. */
#define VC_SHARDS_ALL (~0ULL)
/* 2^30 places, 64 in a word, 16 words or nodes in a node; one more level for the end. */
#define VC_SHARDS_LEVELS 8
/* For example reads and writes. */
#define VC_SHARDS_KINDS 2

/**
 * struct vcache_shards_setup - what to estimate, and how
 * @samples: most sampled blocks, VC_SHARDS_MIN to VC_SHARDS_MAX
 * @kinds: kinds of accesses that are counted separately, 1 to VC_SHARDS_KINDS; an access
 *	of one kind finds blocks that another kind has touched
 * @buckets: buckets of a histogram, 2 to 2^30. With as many as @samples, and
 *	@grain_shift 0, it is exact while T has not changed.
 * @grain_shift: a bucket has 2^@grain_shift distances in blocks, 0 to 32. It is
 *	incremented, and pairs of buckets are merged, if a distance is behind the last one.
 * @fixed_rate: T does not change; vcache_shards_touch() stops if there is one block too many
 * @limit: T - 1, the largest hash that is sampled at first; VC_SHARDS_ALL is R = 1; at
 *	least R = 2^-35
 * @salt: any number; another one gives another sample
 */
struct vcache_shards_setup {
	u32 samples;
	u32 kinds;
	u32 buckets;
	u32 grain_shift;
	bool fixed_rate;
	u64 limit;
	u64 salt;
};

/**
 * struct vcache_shards_kind - counts of one kind of accesses
 * @accesses: all accesses, sampled or not
 * @weighed: Σ 1/R of the sampled ones, in units of 2^-16
 * @hist: Σ 1/R by distance, in units of 2^-16
 */
struct vcache_shards_kind {
	u64 accesses;
	u64 weighed;
	u64 *hist;
};

/**
 * struct vcache_shards - an estimate; its fields may be read only
 * @setup: as given to vcache_shards_init(), with the current @limit and @grain_shift
 * @kind: the counts
 * @weight: 1/R, in units of 2^-16
 * @salt: @setup.salt, mixed
 * @used: blocks in the sample
 * @next: place of the next access; the first is 0
 * @places: number of places
 * @slot_shift: the table has 2^(64 - @slot_shift) lines of eight slots
 * @heaped: @heap is in use
 * @key: hash of the block in a slot
 * @place: 1 + the place of the last access to the block in a slot; 0: the slot is free
 * @live: a bit for each place: it is the last access to a block in the sample
 * @tree: Fenwick tree of the bits in each word of @live except that of @next
 * @heap: hashes in the sample, the largest first; used when the sample has been full
 */
struct vcache_shards {
	struct vcache_shards_setup setup;
	struct vcache_shards_kind kind[VC_SHARDS_KINDS];
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

size_t vcache_shards_size(const struct vcache_shards_setup *setup);
int vcache_shards_init(struct vcache_shards *s, const struct vcache_shards_setup *setup,
		       void *memory);
size_t vcache_shards_touch(struct vcache_shards *s, u32 kind, const u64 *blocks,
			   size_t n);
void vcache_shards_move(struct vcache_shards *to, const struct vcache_shards *from);
u64 vcache_shards_footprint(const struct vcache_shards *s);
void vcache_shards_curve(const struct vcache_shards *s, u32 kind, const u64 *sizes,
			 size_t n, u64 *misses);

#endif /* VCACHE_CORE_SHARDS_H */
