/* SPDX-License-Identifier: GPL-2.0 */
/*
 * A clean shutdown, for writer.h: all chunks are sealed, and promoted blocks become a
 * chunk of a log.
 */
#ifndef VCACHE_TESTS_WARM_H
#define VCACHE_TESTS_WARM_H

#include "writer.h"

/* Everything arrives, and all chunks are sealed. Return: there was power. */
static bool quiet(struct writer *w)
{
	u32 i;

	for (i = 0; i < w->tags; i++) {
		while (w->log[i].pending)
			progress(w, &w->log[i]);
	}
	for (i = w->g.first_chunk; i < w->g.chunks && !w->d.dead; i++) {
		if (w->chunk[i].state == OPEN)
			w->chunk[i].state = CLOSED;
		seal(w, i);
	}
	return !w->d.dead;
}

/* The sectors of a block that are on the origin only. */
static u8 missing(struct writer *w, u64 block)
{
	u8 mask = 0;
	u32 i;

	for (i = 0; i < VC_BLOCK_SECTORS; i++) {
		if (vcache_index_find(&w->ix, SLOT, block, 1 << i) == VC_CELL_NONE)
			mask |= 1 << i;
	}
	return mask;
}

/* Fill a chunk with blocks that are not in the cache. Return: their number. */
static u32 promote(struct writer *w, u32 c)
{
	u32 room = vcache_chunk_capacity(&w->g), want = 1 + below(w, room), n = 0, i;

	for (i = 0; i < ORIGIN && n < want; i++) {
		u64 block = below(w, ORIGIN);
		u8 mask = missing(w, block) & (below(w, 3) ? VC_MASK_ALL :
					       below(w, VC_MASK_ALL + 1));
		u32 cell = c * w->g.chunk_blocks + n;

		if (!mask)
			continue;
		memcpy(disk_at(&w->d, cell),
		       w->origin + block * VC_BLOCK_SIZE, VC_BLOCK_SIZE);
		vcache_index_put(&w->ix, cell, SLOT, block, mask);
		n++;
	}
	return n;
}

/* Check that chunk @c is found completely, and as a read chunk. */
static void check_warm(struct writer *w, u32 c, u64 gen)
{
	u64 dead = le64_to_cpu(table_entry(w, c)->dead);
	u8 block[VC_BLOCK_SIZE];
	struct vcache_found found;
	struct vcache_seal s;

	CHECK(!vcache_chunk_scan(&w->st, &w->g, c, dead, block, &found));
	CHECK(found.gen == gen && found.reads && !found.damaged);
	CHECK(vcache_seal_load(&w->st, &w->g, c, gen, w->work, &s));
	CHECK(!s.bad && s.info.flags == VC_SEAL_READS);
}

/* Make a read chunk a chunk of the log of @tag. Return: whether there was one. */
static bool warm(struct writer *w, u16 tag)
{
	struct vcache_log_info info = { .volume = VOLUME, .tag = tag };
	u32 c = w->g.first_chunk;
	u8 *image;
	u32 i;

	if (!quiet(w))
		return false;
	while (c < w->g.chunks && w->chunk[c].state != FREE)
		c++;
	if (c == w->g.chunks || !promote(w, c))
		return false;
	info.chunk = c;
	info.gen = w->next_seq++;
	info.seq = info.gen;
	image = malloc(VC_SEAL_COPIES * vcache_seal_bytes(&w->g));
	CHECK(vcache_seal_reads(&w->g, &w->ix, image, &info));
	if (!w->st.write(&w->d, (u64)c * w->g.chunk_blocks +
			 vcache_chunk_capacity(&w->g), VC_SEAL_COPIES *
			 w->g.seal_blocks, image)) {
		memset(&w->found[c], 0, sizeof(w->found[c]));
		w->found[c].gen = info.gen;
		w->found[c].last = info.gen;
		w->found[c].tag = tag;
		w->found[c].reads = true;
		w->chunk[c].state = SEALED;
		w->warmed++;
		check_warm(w, c, info.gen);
	} else {
		for (i = 0; i < w->g.chunk_blocks; i++)
			vcache_index_drop(&w->ix, c * w->g.chunk_blocks + i);
	}
	free(image);
	return !w->d.dead;
}

/* Read chunks are reclaimed before older chunks, without a write to the origin. */
static void reclaim_warm(struct writer *w, u32 c)
{
	if (w->chunk[c].state == SEALED && w->found[c].reads &&
	    reseal_others(w, w->found[c].tag) && mark_dead(w, c))
		w->early++;
}

#endif /* VCACHE_TESTS_WARM_H */
