// SPDX-License-Identifier: GPL-2.0-only
/*
 * dm-vcache: growing and shrinking a pool in use.
 *
 * A pool uses the first chunks of its device. The metadata in front of them has space for
 * four times as many chunks as the pool was made with, so nothing moves on the device. New
 * chunks are marked dead in the chunk table before the superblock counts them. So data that
 * was written to them when the pool was as large before does not become valid again.
 *
 * To shrink, chunks from the new end on (vc_pool.limit) are not used any more. Those that
 * hold data are reclaimed: read chunks at once, with their hot blocks kept; written ones
 * from the oldest chunk of each log on, when they are clean. The superblock has the new
 * size when the last one is free. A crash before that cancels the shrink.
 *
 * A larger map replaces the old one while nobody uses that: all volumes are suspended, as
 * dm-thin does with the devices of a pool. Their I/O waits while the map is copied.
 */
#include <linux/blkdev.h>
#include <linux/sched/mm.h>
#include <linux/slab.h>

#include "compat.h"
#include "pool.h"

/* A volume may be attached while the others are suspended: try so often. */
#define VC_FREEZE_TRIES 8U

static u32 vc_pool_slots(const struct vc_pool *p)
{
	return p->g.slot_blocks * VC_SLOTS_PER_BLOCK;
}

/* Suspend all volumes in use. Return: how many, in @md. */
static u32 vc_pool_freeze(struct vc_pool *p, struct mapped_device **md)
{
	struct vc_volume *v;
	u32 i, n = 0;

	mutex_lock(&p->lock);
	list_for_each_entry(v, &p->volumes, node) {
		if (v->dev && !READ_ONCE(v->stopped) && !dm_hold(v->dev->md))
			md[n++] = v->dev->md;
	}
	mutex_unlock(&p->lock);
	for (i = 0; i < n; i++)
		dm_internal_suspend_noflush(md[i]);
	return n;
}

static void vc_pool_thaw(struct mapped_device **md, u32 n)
{
	u32 i;

	for (i = 0; i < n; i++) {
		dm_internal_resume(md[i]);
		dm_put(md[i]);
	}
}

/* Are all volumes suspended? The lock of the pool keeps others from being attached. */
static bool vc_pool_frozen(struct vc_pool *p)
{
	struct vc_volume *v;

	list_for_each_entry(v, &p->volumes, node) {
		if (!READ_ONCE(v->stopped))
			return false;
	}
	return true;
}

/* Move to a larger map. Return: 0; -EBUSY: not now. */
static int vc_resize_move(struct vc_pool *p, struct vc_pool *larger,
			  struct mapped_device **md)
{
	u32 n = vc_pool_freeze(p, md);
	int r = -EBUSY;

	mutex_lock(&p->lock);
	if (vc_pool_frozen(p) && p->state == VC_POOL_OK) {
		vc_map_move(p, larger);
		r = 0;
	}
	mutex_unlock(&p->lock);
	vc_pool_thaw(md, n);
	return r;
}

/* Make the map large enough for so many chunks. Return: 0 or a negative errno. */
static int vc_resize_map(struct vc_pool *p, u32 chunks, const char **error)
{
	struct vc_pool *larger = kzalloc(sizeof(*larger), GFP_KERNEL);
	struct mapped_device **md = kvcalloc(vc_pool_slots(p), sizeof(*md),
					     GFP_KERNEL);
	int r = -ENOMEM, tries = VC_FREEZE_TRIES;

	*error = "not enough memory for the map";
	if (larger && md) {
		larger->g = p->g;
		r = vc_map_alloc(larger, chunks);
	}
	if (!r) {
		*error = "volumes were attached meanwhile, try again";
		do {
			r = vc_resize_move(p, larger, md);
		} while (r && --tries);
	}
	if (larger)
		vc_map_free(larger);
	kfree(larger);
	kvfree(md);
	return r;
}

/* Write the new size to the chunk table and to the superblock. */
static int vc_resize_save(struct vc_pool *p, const struct vc_geometry *g)
{
	u64 seq = atomic64_read(&p->seq);
	struct vc_geometry was = p->g;
	int r = 0;
	u32 i;

	mutex_lock(&p->table_lock);
	for (i = was.chunks; i < g->chunks; i++) {
		vc_table_entry(p, i)->dead = cpu_to_le64(seq);
		vc_table_entry(p, i)->clean = 0;
	}
	for (i = was.chunks; i < g->chunks && !r;
	     i = rounddown(i, VC_CHUNKS_PER_BLOCK) + VC_CHUNKS_PER_BLOCK)
		r = vc_table_save(p, i);
	mutex_unlock(&p->table_lock);
	if (r)
		return r;
	p->g = *g;
	r = vc_pool_set_flags(p, p->sb.flags);
	if (r)
		p->g = was;
	return r;
}

/**
 * vc_pool_count_leaving - count the chunks behind the new end that are in use
 * @p: the pool, locked
 *
 * Destage is urgent while there are any, and the status shows the number.
 */
void vc_pool_count_leaving(struct vc_pool *p)
{
	u32 i, leaving = 0;

	for (i = p->limit; i < p->g.chunks; i++)
		leaving += vc_chunk_leaves(&p->chunk[i]);
	WRITE_ONCE(p->leaving, leaving);
}

static int vc_pool_grow(struct vc_pool *p, const struct vc_geometry *g)
{
	u32 i, from = p->limit;
	int r = 0;

	if (g->chunks > p->g.chunks)
		r = vc_resize_save(p, g);
	if (r)
		return r;
	spin_lock_irq(&p->free_lock);
	WRITE_ONCE(p->limit, g->chunks);
	for (i = from; i < g->chunks; i++) {
		struct vc_chunk *c = &p->chunk[i];

		if (c->state != VC_CHUNK_OUTSIDE)
			continue;
		vc_lane_add(p, c);
	}
	spin_unlock_irq(&p->free_lock);
	vc_lanes_count(p);
	vc_pool_count_leaving(p);
	return 0;
}

/* From here on no chunk behind the new end is used. */
static void vc_pool_shrink(struct vc_pool *p, u32 chunks)
{
	struct vc_volume *v;
	struct vc_log *log;

	spin_lock_irq(&p->free_lock);
	WRITE_ONCE(p->limit, chunks);
	vc_lane_cut(p);
	spin_unlock_irq(&p->free_lock);
	vc_lanes_count(p);
	list_for_each_entry(v, &p->volumes, node) {
		list_for_each_entry(log, &v->logs, node)
			vc_log_release_spare(log);
	}
	vc_pool_count_leaving(p);
}

/* Compute the geometry for so many sectors. Return: 0 or a negative errno. */
static int vc_resize_chunks(struct vc_pool *p, u64 sectors,
			    struct vc_geometry *g, const char **error)
{
	u64 has = bdev_nr_sectors(p->bdev), chunks;
	int r;

	*error = "the pool is not usable";
	if (!p->loaded || p->state != VC_POOL_OK)
		return -EROFS;
	*error = "the pool is being resized";
	if (p->resizing)
		return -EBUSY;
	*error = "the cache device is smaller than the new size";
	if (sectors > has)
		return -ENOSPC;
	*g = p->g;
	chunks = (sectors ?: has) >>
		 ilog2(p->g.chunk_blocks * VC_BLOCK_SECTORS);
	r = vc_geometry_resize(g, min_t(u64, chunks, U32_MAX));
	*error = r == -EFBIG ?
		 "a pool can grow to four times its first size" :
		 "a pool can shrink to a quarter of its first size, and to two chunks";
	if (!r && !vc_lanes_fit(p, g->chunks)) {
		*error = "only the last lane can shrink, to four chunks at least";
		r = -EINVAL;
	}
	return r;
}

/**
 * vc_pool_resize - use more or less of the cache device
 * @p: the pool, not locked
 * @sectors: the new size, rounded down to whole chunks; 0: the whole device
 * @error: set to what is wrong
 *
 * A shrink only begins here: vc_pool.leaving chunks have to be reclaimed.
 *
 * Return: 0 or a negative errno; then the size has not changed.
 */
int vc_pool_resize(struct vc_pool *p, u64 sectors, const char **error)
{
	/* Freeing memory may need I/O to the volumes that are suspended here. */
	unsigned int noio = memalloc_noio_save();
	struct vc_geometry g;
	int r;

	mutex_lock(&p->lock);
	r = vc_resize_chunks(p, sectors, &g, error);
	if (r)
		goto out;
	p->resizing = true;
	if (g.chunks > vc_map_chunks(p)) {
		mutex_unlock(&p->lock);
		r = vc_resize_map(p, g.chunks, error);
		mutex_lock(&p->lock);
	}
	if (!r && g.chunks < p->limit) {
		vc_pool_shrink(p, g.chunks);
	} else if (!r) {
		*error = "cannot write the metadata";
		r = vc_pool_grow(p, &g);
	}
	p->resizing = false;
	vc_space_kick(p);
out:
	mutex_unlock(&p->lock);
	memalloc_noio_restore(noio);
	return r;
}

/**
 * vc_pool_shrunk - complete a shrink, when the last chunk behind the new end is free
 * @p: the pool, locked
 */
void vc_pool_shrunk(struct vc_pool *p)
{
	struct vc_geometry g = p->g;

	if (p->state == VC_POOL_OK && !vc_geometry_resize(&g, p->limit) &&
	    !vc_resize_save(p, &g))
		DMINFO("%s: the pool uses %u chunks now",
		       dm_device_name(p->md), p->limit - g.first_chunk);
}
