// SPDX-License-Identifier: GPL-2.0-only
/*
 * dm-vcache: what a cache of any size would do for a tag: its miss-ratio curve,
 * from a sample of the blocks that it reads and writes (../core/shards.h).
 *
 * Every request of a tag that has a log is shown to its sample, also what the
 * buffer answers and what is too sequential to be cached: the curve says what
 * the tag asks for, not what we make of it. What is discarded stays in the
 * sample until others push it out.
 */
#include <linux/mm.h>
#include <linux/random.h>

#include "../core/shards.h"
#include "pool.h"

/* Blocks in a sample: 0.3 MiB a tag. Waldspurger et al. §5.4. */
#define VC_CURVE_SAMPLES	8192U

/* At first a point of the curve is 1 MiB larger than the one before. */
#define VC_CURVE_GRAIN_SHIFT	8U

/* Blocks shown to the sample at a time, on the stack. */
#define VC_CURVE_BATCH		8U

/**
 * struct vc_curve - the sample of a tag
 * @lock: guards @shards; not taken in interrupts
 * @shards: the sample
 * @memory: and its memory
 */
struct vc_curve {
	spinlock_t lock; /* shards */
	struct vc_shards shards;
	u64 memory[];
};

/**
 * vc_curve_make - begin to look at what a tag does
 *
 * Return: its sample, or NULL without memory: it is nothing one needs.
 */
struct vc_curve *vc_curve_make(void)
{
	struct vc_shards_setup setup = {
		.samples = VC_CURVE_SAMPLES, .kinds = VC_CURVE_KINDS,
		.buckets = VCACHE_CURVE_POINTS - 1,
		.grain_shift = VC_CURVE_GRAIN_SHIFT, .limit = VC_SHARDS_ALL,
		.salt = get_random_u64(),
	};
	size_t words = DIV_ROUND_UP(vc_shards_size(&setup), sizeof(u64));
	struct vc_curve *c;

	c = kvmalloc(struct_size(c, memory, words),
		     GFP_KERNEL | __GFP_NOWARN | __GFP_NORETRY);
	if (!c)
		return NULL;
	spin_lock_init(&c->lock);
	vc_shards_init(&c->shards, &setup, c->memory);
	return c;
}

/**
 * vc_curve_free - the tag is gone
 * @c: its sample, may be NULL
 */
void vc_curve_free(struct vc_curve *c)
{
	kvfree(c);
}

/**
 * vc_curve_touch - a tag reads or writes
 * @tag: the tag
 * @kind: what it does
 * @sector: where
 * @sectors: how many
 *
 * Not called in interrupts.
 */
void vc_curve_touch(struct vc_tag *tag, enum vc_curve_kind kind,
		    sector_t sector, unsigned int sectors)
{
	struct vc_curve *c = READ_ONCE(tag->curve);
	u64 end = DIV_ROUND_UP_ULL(sector + sectors, VC_BLOCK_SECTORS);
	u64 block = sector / VC_BLOCK_SECTORS, blocks[VC_CURVE_BATCH];
	u32 n;

	if (!c)
		return;
	spin_lock(&c->lock);
	while (block < end) {
		for (n = 0; n < VC_CURVE_BATCH && block < end; n++)
			blocks[n] = block++;
		vc_shards_touch(&c->shards, kind, blocks, n);
	}
	spin_unlock(&c->lock);
}

/**
 * vc_curve_read - what a tag's sample says
 * @tag: the tag
 * @said: filled in
 *
 * Return: 0, or -ENODATA when it has no sample.
 */
int vc_curve_read(struct vc_tag *tag, struct vc_curve_said *said)
{
	struct vc_curve *c = tag->curve;
	u32 i, kind;

	if (!c)
		return -ENODATA;
	spin_lock(&c->lock);
	for (i = 0; i < VCACHE_CURVE_POINTS; i++)
		said->sizes[i] = (u64)i << c->shards.setup.grain_shift;
	said->footprint = vc_shards_footprint(&c->shards);
	for (kind = 0; kind < VC_CURVE_KINDS; kind++) {
		said->accesses[kind] = c->shards.kind[kind].accesses;
		vc_shards_curve(&c->shards, kind, said->sizes,
				VCACHE_CURVE_POINTS, said->misses[kind]);
	}
	spin_unlock(&c->lock);
	return 0;
}
