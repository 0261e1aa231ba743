// SPDX-License-Identifier: GPL-2.0-only
/*
 * dm-vcache: the map of a pool: the memory for each chunk of the cache device, and for
 * each of its blocks.
 *
 * All of it is allocated at the start, so no write waits for memory. When the pool grows
 * beyond the map, everything moves to a larger one: see resize.c.
 */
#include <linux/mm.h>
#include <linux/slab.h>
#include <linux/vmalloc.h>

#include "internal.h"

/*
 * Memory for @n elements that are read at random. With pages of 2 MiB, a hit does not pay for a
 * miss of the TLB in each of these arrays. vcache_index_init() fills those of the index.
 */
static void *vc_map_room(u32 n, size_t size, gfp_t zero)
{
	return vmalloc_huge(array_size(n, size), GFP_KERNEL | zero);
}

/**
 * vcache_map_alloc - allocate an empty map
 * @p: the pool, or a stand-in for it while a larger map is made; its geometry is set
 * @chunks: for how many chunks
 *
 * Return: 0; -ENOMEM, then call vcache_map_free().
 */
int vcache_map_alloc(struct vcache_pool *p, u32 chunks)
{
	u32 blocks = DIV_ROUND_UP(chunks, VC_CHUNKS_PER_BLOCK);

	p->ix.cells = chunks * p->g.chunk_blocks;
	p->ix.chunk_cells = p->g.chunk_blocks;
	p->ix.buckets = vcache_index_buckets(p->ix.cells);
	p->ghosts.entries = vcache_ghost_entries(p->ix.cells);
	p->table = vzalloc(array_size(blocks, VC_BLOCK_SIZE));
	p->table_dirty = bitmap_zalloc(blocks, GFP_KERNEL);
	p->chunk = vzalloc(array_size(chunks, sizeof(*p->chunk)));
	p->found = vzalloc(array_size(chunks, sizeof(*p->found)));
	p->cell_clean = vzalloc(BITS_TO_LONGS(p->ix.cells) * sizeof(long));
	p->cell_hot = vzalloc(BITS_TO_LONGS(p->ix.cells) * sizeof(long));
	p->cell_bad = vzalloc(BITS_TO_LONGS(p->ix.cells) * sizeof(long));
	p->ix.where = vc_map_room(p->ix.cells, sizeof(u64), 0);
	p->ix.next = vc_map_room(p->ix.cells, sizeof(u16), 0);
	p->ix.head = vc_map_room(p->ix.buckets, sizeof(u32), 0);
	p->ix.slot = vzalloc(array_size(chunks, sizeof(u16)));
	p->heat = vc_map_room(p->ix.cells, 1, __GFP_ZERO);
	p->ghosts.entry = vc_map_room(p->ghosts.entries, sizeof(u16), __GFP_ZERO);
	if (!p->table || !p->table_dirty || !p->chunk || !p->found ||
	    !p->cell_clean || !p->cell_hot || !p->cell_bad || !p->ix.where ||
	    !p->ix.next || !p->ix.head || !p->ix.slot || !p->heat ||
	    !p->ghosts.entry)
		return -ENOMEM;
	vcache_index_init(&p->ix);
	return 0;
}

/**
 * vcache_map_free - free a map, or the parts of it that were allocated
 * @p: the pool
 */
void vcache_map_free(struct vcache_pool *p)
{
	vfree(p->table);
	bitmap_free(p->table_dirty);
	vfree(p->chunk);
	vfree(p->found);
	vfree(p->cell_clean);
	vfree(p->cell_hot);
	vfree(p->cell_bad);
	vfree(p->ix.where);
	vfree(p->ix.next);
	vfree(p->ix.head);
	vfree(p->ix.slot);
	vfree(p->heat);
	vfree(p->ghosts.entry);
	p->table = NULL;
	p->table_dirty = NULL;
	p->chunk = NULL;
	p->found = NULL;
	p->cell_clean = NULL;
	p->cell_hot = NULL;
	p->cell_bad = NULL;
	memset(&p->ix, 0, sizeof(p->ix));
	p->heat = NULL;
	p->ghosts.entry = NULL;
}

/* Copy the content of all cells. They belong to other buckets in a larger index. */
static void vc_map_copy_cells(const struct vcache_pool *p, struct vcache_pool *n)
{
	u32 cell;

	memcpy(n->heat, p->heat, p->ix.cells);
	memcpy(n->cell_clean, p->cell_clean,
	       BITS_TO_LONGS(p->ix.cells) * sizeof(long));
	memcpy(n->cell_hot, p->cell_hot,
	       BITS_TO_LONGS(p->ix.cells) * sizeof(long));
	memcpy(n->cell_bad, p->cell_bad,
	       BITS_TO_LONGS(p->ix.cells) * sizeof(long));
	for (cell = 0; cell < p->ix.cells; cell++) {
		if (vcache_cell_mask(&p->ix, cell))
			vcache_index_put(&n->ix, cell, vcache_cell_slot(&p->ix, cell),
					 vcache_cell_block(&p->ix, cell),
					 vcache_cell_mask(&p->ix, cell));
		if (!(cell % VC_BLOCK_SIZE))
			cond_resched();
	}
}

/* Make a list refer to the chunks of the new map. Readers of the list are kept out. */
static void vc_map_move_list(struct vcache_pool *p, struct vcache_pool *n,
			     struct list_head *list)
{
	struct vcache_chunk *c, *next;
	LIST_HEAD(old);

	list_splice_init(list, &old);
	list_for_each_entry_safe(c, next, &old, node)
		list_add_tail(&n->chunk[vcache_chunk_nr(p, c)].node, list);
}

static void vc_map_move_log(struct vcache_pool *p, struct vcache_pool *n,
			    struct vcache_log *log)
{
	unsigned int i, k;

	/* Relocation reads the list. */
	spin_lock_irq(&log->lock);
	vc_map_move_list(p, n, &log->chunks);
	for (i = 0; i < VC_READS_KINDS; i++) {
		for (k = 0; k < VC_DOMAINS; k++)
			vc_map_move_list(p, n, &log->reads[i].chunks[k]);
	}
	if (log->spare)
		WRITE_ONCE(log->spare, &n->chunk[vcache_chunk_nr(p, log->spare)]);
	spin_unlock_irq(&log->lock);
}

static void vc_map_move_chunks(struct vcache_pool *p, struct vcache_pool *n)
{
	u32 i, had = vcache_map_chunks(p), has = vcache_map_chunks(n);
	struct vcache_volume *v;
	struct vcache_log *log;

	memcpy(n->found, p->found, had * sizeof(*p->found));
	memcpy(n->chunk, p->chunk, had * sizeof(*p->chunk));
	for (i = 0; i < has; i++) {
		INIT_LIST_HEAD(&n->chunk[i].node);
		if (i < had)
			continue;
		n->chunk[i].state = VC_CHUNK_OUTSIDE;
		n->chunk[i].lane = p->nlanes - 1;
	}
	list_for_each_entry(v, &p->volumes, node) {
		list_for_each_entry(log, &v->logs, node)
			vc_map_move_log(p, n, log);
	}
	spin_lock_irq(&p->free_lock);
	for (i = 0; i < p->nlanes; i++)
		vc_map_move_list(p, n, &p->lane[i].free);
	spin_unlock_irq(&p->free_lock);
}

/**
 * vcache_map_move - move everything to a larger map
 * @p: the pool, locked; all its volumes are stopped, their chunks closed
 * @n: stand-in with the larger map; it gets the old one, to be freed
 *
 * The ghosts are not moved.
 */
void vcache_map_move(struct vcache_pool *p, struct vcache_pool *n)
{
	u32 blocks = DIV_ROUND_UP(vcache_map_chunks(p), VC_CHUNKS_PER_BLOCK);

	lockdep_assert_held(&p->lock);
	mutex_lock(&p->table_lock);
	memcpy(n->table, p->table, (size_t)blocks * VC_BLOCK_SIZE);
	bitmap_copy(n->table_dirty, p->table_dirty, blocks);
	vc_map_copy_cells(p, n);
	vc_map_move_chunks(p, n);
	swap(p->table, n->table);
	swap(p->table_dirty, n->table_dirty);
	swap(p->chunk, n->chunk);
	swap(p->found, n->found);
	swap(p->cell_clean, n->cell_clean);
	swap(p->cell_hot, n->cell_hot);
	swap(p->cell_bad, n->cell_bad);
	swap(p->ix, n->ix);
	swap(p->heat, n->heat);
	swap(p->ghosts, n->ghosts);
	mutex_unlock(&p->table_lock);
}
