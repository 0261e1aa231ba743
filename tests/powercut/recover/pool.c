// SPDX-License-Identifier: Apache-2.0
/*
 * Does the work of native/dm between the load of a pool's table and the first request to
 * a volume: vcache_pool_load() in store.c, vcache_volume_start() in volume.c.
 */
#include <stdlib.h>

#include "recover.h"

struct pool {
	struct vcache_store st;
	struct vcache_geometry g;
	struct vcache_super sb;
	u8 super[VC_BLOCK_SIZE];
	u8 spare[VC_BLOCK_SIZE];
	u8 *slots;
	u8 *table;
	struct vcache_found *found;
	struct vcache_index ix;
};

static void *room_for(size_t n, size_t size)
{
	void *p = calloc(n, size);

	if (!p)
		abort();
	return p;
}

static int load_meta(struct pool *p, enum vcache_meta_type type, u32 n, u8 *to)
{
	u32 i;

	for (i = 0; i < n; i++) {
		u8 *block = to + (size_t)i * VC_BLOCK_SIZE;
		int r = vcache_meta_load(&p->st, &p->g, type, i, block, p->spare);

		if (r > 0)
			r = vcache_meta_repair(&p->st, &p->g, type, i, block, r);
		if (r)
			return r;
	}
	return 0;
}

static const struct vcache_slot_disk *slot_of(const struct pool *p, u32 slot)
{
	const u8 *block = p->slots +
			  (size_t)(slot / VC_SLOTS_PER_BLOCK) * VC_BLOCK_SIZE;

	return (const struct vcache_slot_disk *)
		       (block + sizeof(struct vcache_meta_head)) +
	       slot % VC_SLOTS_PER_BLOCK;
}

/* Return: the slot of a volume, or -ENOENT. */
static int find_volume(const struct pool *p, u32 volume)
{
	u32 i;

	for (i = 0; i < p->g.slot_blocks * VC_SLOTS_PER_BLOCK; i++) {
		if (le32_to_cpu(slot_of(p, i)->volume) == volume)
			return i;
	}
	return -ENOENT;
}

static struct vcache_chunk_disk *chunk_of(const struct pool *p, u32 chunk)
{
	u8 *block = p->table +
		    (size_t)(chunk / VC_CHUNKS_PER_BLOCK) * VC_BLOCK_SIZE;

	return (struct vcache_chunk_disk *)(block + sizeof(struct vcache_meta_head)) +
	       chunk % VC_CHUNKS_PER_BLOCK;
}

/* Return: how many chunks the volume has; -EIO. */
static int scan(struct pool *p, u32 volume, u64 floor, u32 *list)
{
	int n = 0;
	u32 i;

	for (i = p->g.first_chunk; i < p->g.chunks; i++) {
		struct vcache_found *f = &p->found[i];

		if (vcache_chunk_scan(&p->st, &p->g, i, le64_to_cpu(chunk_of(p, i)->dead),
				      p->spare, f))
			return -EIO;
		if (f->gen && (f->volume != volume || f->gen < floor))
			f->gen = 0;
		if (f->gen)
			list[n++] = i;
	}
	return n;
}

static int load(struct pool *p, u64 blocks)
{
	int r = vcache_super_load(&p->st, blocks, &p->g, &p->sb, p->super,
				  p->spare);

	if (r > 0)
		r = vcache_meta_repair(&p->st, &p->g, VC_META_SUPER, 0, p->super,
				       r);
	if (r)
		return r;
	p->slots = room_for(p->g.slot_blocks, VC_BLOCK_SIZE);
	p->table = room_for(p->g.table_blocks, VC_BLOCK_SIZE);
	p->found = room_for(p->g.chunks, sizeof(*p->found));
	p->ix.cells = p->g.chunks * p->g.chunk_blocks;
	p->ix.buckets = vcache_index_buckets(p->ix.cells);
	p->ix.where = room_for(p->ix.cells, sizeof(u64));
	p->ix.next = room_for(p->ix.cells, sizeof(u16));
	p->ix.slot = room_for(p->g.chunks, sizeof(u16));
	p->ix.chunk_cells = p->g.chunk_blocks;
	p->ix.head = room_for(p->ix.buckets, sizeof(u32));
	vcache_index_init(&p->ix);
	r = load_meta(p, VC_META_SLOTS, p->g.slot_blocks, p->slots);
	return r ? r : load_meta(p, VC_META_TABLE, p->g.table_blocks, p->table);
}

static int replay(struct pool *p, u32 volume, int slot, struct outcome *out)
{
	const struct vcache_slot_disk *d = slot_of(p, slot);
	u32 *list = room_for(p->g.chunks, sizeof(*list));
	int i, n = scan(p, volume, le64_to_cpu(d->floor), list);
	struct vcache_replay rp = {
		.st = &p->st, .g = &p->g, .ix = &p->ix, .chunk = p->found,
		.slot = slot,
		.limit = (le64_to_cpu(d->sectors) + VC_BLOCK_SECTORS - 1) /
			 VC_BLOCK_SECTORS,
	};

	if (n >= 0) {
		/* Writes only the superblock before the volume is used. */
		p->sb.flags &= ~VC_SUPER_CLEAN;
		n = vcache_super_save(&p->st, &p->g, &p->sb, p->super) ?: n;
	}
	if (n >= 0) {
		rp.work = room_for(1, vcache_replay_work_size(&p->g));
		vcache_chunks_sort(list, n, p->found);
		for (i = 0; i < n; i++)
			vcache_replay_chunk(&rp, list[i]);
		vcache_replay_finish(&rp, list, n);
		free(rp.work);
		out->chunks = n;
		out->errors = rp.errors;
		out->bad_blocks = rp.bad_blocks;
	}
	free(list);
	return n < 0 ? n : 0;
}

/*
 * The first changes of a pool in use. A cut in the middle of them must not destroy the
 * metadata that an earlier cut has left.
 */
static int change_metadata(struct pool *p)
{
	int r = vcache_super_save(&p->st, &p->g, &p->sb, p->super);
	u32 i;

	/* Chunks become clean: that says nothing of where data is. */
	for (i = 0; i < p->g.chunks; i++)
		chunk_of(p, i)->clean = cpu_to_le64(p->sb.next_seq);
	for (i = 0; i < p->g.table_blocks && !r; i++)
		r = vcache_meta_save(&p->st, &p->g, VC_META_TABLE, i,
				     p->table + (size_t)i * VC_BLOCK_SIZE);
	return r ? r : vcache_meta_save(&p->st, &p->g, VC_META_SLOTS, 0, p->slots);
}

/* A write-through volume has only copies in the cache. */
static bool is_copy(const struct pool *p, int slot)
{
	return le32_to_cpu(slot_of(p, slot)->mode) == VC_VOLUME_WRITETHROUGH;
}

static void fill_map(const struct pool *p, int64_t *map, u64 origin)
{
	u32 cell;

	for (cell = 0; cell < p->ix.cells; cell++) {
		u8 mask = vcache_cell_mask(&p->ix, cell);
		u64 at = vcache_cell_block(&p->ix, cell) * VC_BLOCK_SECTORS, s;

		for (s = 0; s < VC_BLOCK_SECTORS; s++) {
			if (mask & (1U << s) && at + s < origin)
				map[at + s] = (int64_t)cell * VC_BLOCK_SECTORS + s;
		}
	}
}

/**
 * recover - recover the map of a volume
 * @d: the cache device
 * @volume: number of the volume
 * @map: by sector of the origin: the sector of the cache, or -1
 * @origin: how many
 * @out: is filled in
 *
 * Return: 0; a negative errno when the pool or the volume is not usable.
 */
int recover(struct device *d, u32 volume, int64_t *map, u64 origin,
	    struct outcome *out)
{
	struct pool *p = room_for(1, sizeof(*p));
	int r, slot = 0;
	u64 i;

	memset(out, 0, sizeof(*out));
	for (i = 0; i < origin; i++)
		map[i] = -1;
	device_store(d, &p->st);
	r = load(p, d->sectors / VC_BLOCK_SECTORS);
	if (!r) {
		slot = find_volume(p, volume);
		r = slot < 0 ? slot : replay(p, volume, slot, out);
	}
	if (!r)
		r = change_metadata(p);
	if (!r && !is_copy(p, slot))
		fill_map(p, map, origin);
	free(p->slots);
	free(p->table);
	free(p->found);
	free(p->ix.where);
	free(p->ix.next);
	free(p->ix.head);
	free(p->ix.slot);
	free(p);
	return r;
}
