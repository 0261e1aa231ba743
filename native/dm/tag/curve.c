// SPDX-License-Identifier: GPL-2.0-only
/*
 * dm-vcache: the miss-ratio curve of a tag, from a sample of the blocks that it reads and
 * writes (../core/shards.h). It says how many misses a cache of any size would have.
 *
 * Every request of a tag with a log goes through its sample, also if the buffer serves it
 * or if it is too sequential to be cached: the curve shows what the tag asks for, not how
 * we serve it. Discarded blocks stay in the sample until others replace them.
 */
#include <linux/mm.h>
#include <linux/random.h>

#include "../../core/format.h"
#include "../../core/shards.h"
#include "internal.h"

/* Blocks in a sample: 0.3 MiB for each tag. Waldspurger et al. §5.4. */
#define VC_CURVE_SAMPLES	8192U

/* At first the points of the curve are 1 MiB apart. */
#define VC_CURVE_GRAIN_SHIFT	8U

/* Blocks added to the sample at a time, on the stack. */
#define VC_CURVE_BATCH		8U

/**
 * struct vcache_curve - the sample of a tag
 * @lock: guards @shards; not taken in interrupts
 * @shards: the sample
 * @memory: its memory
 */
struct vcache_curve {
	spinlock_t lock; /* shards */
	struct vcache_shards shards;
	u64 memory[];
};

/**
 * vcache_curve_make - allocate a sample
 *
 * Return: the sample, or NULL without memory; a tag works without it.
 */
struct vcache_curve *vcache_curve_make(void)
{
	struct vcache_shards_setup setup = {
		.samples = VC_CURVE_SAMPLES, .kinds = VC_CURVE_KINDS,
		.buckets = VCACHE_CURVE_POINTS - 1,
		.grain_shift = VC_CURVE_GRAIN_SHIFT, .limit = VC_SHARDS_ALL,
		.salt = get_random_u64(),
	};
	size_t words = DIV_ROUND_UP(vcache_shards_size(&setup), sizeof(u64));
	struct vcache_curve *c;

	c = kvmalloc(struct_size(c, memory, words),
		     GFP_KERNEL | __GFP_NOWARN | __GFP_NORETRY);
	if (!c)
		return NULL;
	spin_lock_init(&c->lock);
	vcache_shards_init(&c->shards, &setup, c->memory);
	return c;
}

/**
 * vcache_curve_free - free the sample of a tag
 * @c: the sample, may be NULL
 */
void vcache_curve_free(struct vcache_curve *c)
{
	kvfree(c);
}

/**
 * vcache_curve_touch - add a request of a tag to its sample
 * @tag: the tag
 * @kind: what it does
 * @sector: first sector
 * @sectors: how many
 *
 * Not called in interrupts.
 */
void vcache_curve_touch(struct vcache_tag *tag, enum vcache_curve_kind kind,
			sector_t sector, unsigned int sectors)
{
	struct vcache_curve *c = READ_ONCE(tag->curve);
	u64 end = DIV_ROUND_UP_ULL(sector + sectors, VC_BLOCK_SECTORS);
	u64 block = sector / VC_BLOCK_SECTORS, blocks[VC_CURVE_BATCH];
	u32 n;

	if (!c)
		return;
	spin_lock(&c->lock);
	while (block < end) {
		for (n = 0; n < VC_CURVE_BATCH && block < end; n++)
			blocks[n] = block++;
		vcache_shards_touch(&c->shards, kind, blocks, n);
	}
	spin_unlock(&c->lock);
}

/**
 * vcache_curve_read - compute the miss-ratio curve of a tag
 * @tag: the tag
 * @said: filled in
 *
 * Return: 0, or -ENODATA if it has no sample.
 */
int vcache_curve_read(struct vcache_tag *tag, struct vcache_curve_said *said)
{
	struct vcache_curve *c = tag->curve;
	u32 i, kind;

	if (!c)
		return -ENODATA;
	spin_lock(&c->lock);
	for (i = 0; i < VCACHE_CURVE_POINTS; i++)
		said->sizes[i] = (u64)i << c->shards.setup.grain_shift;
	said->footprint = vcache_shards_footprint(&c->shards);
	for (kind = 0; kind < VC_CURVE_KINDS; kind++) {
		said->accesses[kind] = c->shards.kind[kind].accesses;
		vcache_shards_curve(&c->shards, kind, said->sizes,
				    VCACHE_CURVE_POINTS, said->misses[kind]);
	}
	spin_unlock(&c->lock);
	return 0;
}
