// SPDX-License-Identifier: GPL-2.0-only
/*
 * dm-vcache: growing and shrinking a pool in use.
 *
 * A pool uses the first chunks of its device. The metadata in front of them has space for
 * four times as many chunks as the pool was made with, so nothing moves on the device. New
 * chunks are marked dead in the chunk table before the superblock counts them. So data that
 * was written to them when the pool was as large before does not become valid again.
 *
 * To shrink, chunks from the new end on (vcache_pool.limit) are not used any more. Those that
 * hold data are reclaimed: read chunks at once, with their hot blocks kept; written ones
 * from the oldest chunk of each log on, when they are clean. The superblock has the new
 * size when the last one is free. A crash before that cancels the shrink.
 *
 * A larger map replaces the old one while nobody uses that: all volumes are suspended, as
 * dm-thin does with the devices of a pool. Their I/O waits while the map is copied.
 *
 * A volume whose origin hangs cannot be suspended in time: dm waits for its reads, and our
 * work for its writes. So all are suspended at once, each by a work item, and after a while
 * those that are suspended go on. A work item that is late resumes its volume itself.
 */
#include <linux/blkdev.h>
#include <linux/sched/mm.h>
#include <linux/slab.h>

#include "../base/compat.h"
#include "internal.h"

/* A volume may be attached while the others are suspended: try so often. */
#define VC_FREEZE_TRIES 8U

/* Suspending the volumes may take so long. */
#define VC_FREEZE_TIME (8 * HZ)

struct vc_freezing;

/**
 * struct vc_freeze - a volume being suspended
 * @work: suspends it
 * @all: what it belongs to
 * @md: its mapped device, which is held; its table may still change
 * @done: it is suspended
 */
struct vc_freeze {
	struct work_struct work;
	struct vc_freezing *all;
	struct mapped_device *md;
	bool done;
};

/**
 * struct vc_freezing - all volumes of a pool being suspended
 * @ref: one is held by each work item, and one by the resize
 * @lock: guards @left, @over and vc_freeze.done
 * @left: how many are not suspended yet
 * @over: the resize does not wait any more
 * @ended: completed when all are suspended
 * @hung: the origin of one of them did not answer
 * @gone: one is being removed
 * @nr: how many there are
 * @vol: the volumes
 */
struct vc_freezing {
	refcount_t ref;
	spinlock_t lock; /* left, over, done */
	u32 left;
	bool over;
	struct completion ended;
	bool hung;
	bool gone;
	u32 nr;
	struct vc_freeze vol[];
};

static struct workqueue_struct *vc_freeze_wq;

static u32 vc_pool_slots(const struct vcache_pool *p)
{
	return p->g.slot_blocks * VC_SLOTS_PER_BLOCK;
}

static void vc_freezing_put(struct vc_freezing *all)
{
	if (refcount_dec_and_test(&all->ref))
		kvfree(all);
}

static void vc_freeze_undo(struct vc_freeze *f)
{
	dm_internal_resume(f->md);
	dm_put(f->md);
}

static void vc_freeze_work(struct work_struct *work)
{
	struct vc_freeze *f = container_of(work, struct vc_freeze, work);
	unsigned int noio = memalloc_noio_save();
	struct vc_freezing *all = f->all;
	bool over;

	vcache_dev_freeze(f->md, true);
	dm_internal_suspend_noflush(f->md);
	if (!vcache_dev_freeze(f->md, false))
		WRITE_ONCE(all->hung, true);
	spin_lock(&all->lock);
	over = all->over;
	f->done = !over;
	if (!--all->left)
		complete(&all->ended);
	spin_unlock(&all->lock);
	if (over)
		vc_freeze_undo(f);
	vc_freezing_put(all);
	memalloc_noio_restore(noio);
}

/* Note all volumes in use. Return: NULL without memory. */
static struct vc_freezing *vc_freezing_make(struct vcache_pool *p)
{
	struct vc_freezing *all;
	struct vcache_volume *v;

	all = kvzalloc(struct_size(all, vol, vc_pool_slots(p)), GFP_KERNEL);
	if (!all)
		return NULL;
	refcount_set(&all->ref, 1);
	spin_lock_init(&all->lock);
	init_completion(&all->ended);
	mutex_lock(&p->lock);
	list_for_each_entry(v, &p->volumes, node) {
		struct vc_freeze *f = &all->vol[all->nr];

		if (!v->dev)
			continue;
		if (dm_hold(v->dev->md)) {
			all->gone = true;
			continue;
		}
		INIT_WORK(&f->work, vc_freeze_work);
		f->all = all;
		f->md = v->dev->md;
		all->nr++;
	}
	mutex_unlock(&p->lock);
	return all;
}

/* Suspend all volumes in use. Return: 0; or -EBUSY: not now; or -ETIMEDOUT: one hangs. */
static int vc_pool_freeze(struct vc_freezing *all)
{
	u32 i;

	all->left = all->nr;
	refcount_add(all->nr, &all->ref);
	for (i = 0; i < all->nr; i++)
		queue_work(vc_freeze_wq, &all->vol[i].work);
	if (all->nr &&
	    !wait_for_completion_timeout(&all->ended, VC_FREEZE_TIME))
		return -ETIMEDOUT;
	if (READ_ONCE(all->hung))
		return -ETIMEDOUT;
	return all->gone ? -EBUSY : 0;
}

static void vc_pool_thaw(struct vc_freezing *all)
{
	u32 i;

	spin_lock(&all->lock);
	all->over = true;
	spin_unlock(&all->lock);
	for (i = 0; i < all->nr; i++) {
		/* This does not change any more. */
		if (all->vol[i].done)
			vc_freeze_undo(&all->vol[i]);
	}
	vc_freezing_put(all);
}

/* Are all volumes suspended? The lock of the pool keeps others from being attached. */
static bool vc_pool_frozen(struct vcache_pool *p)
{
	struct vcache_volume *v;

	lockdep_assert_held(&p->lock);
	list_for_each_entry(v, &p->volumes, node) {
		if (!READ_ONCE(v->stopped) || vcache_volume_is_busy(v))
			return false;
	}
	return true;
}

/* Move to a larger map. Return: 0; -EBUSY: not now; -ETIMEDOUT: an origin hangs. */
static int vc_resize_move(struct vcache_pool *p, struct vcache_pool *larger)
{
	struct vc_freezing *all = vc_freezing_make(p);
	int r;

	if (!all)
		return -ENOMEM;
	r = vc_pool_freeze(all);
	mutex_lock(&p->lock);
	if (!r && vc_pool_frozen(p) && p->state == VC_POOL_OK)
		vcache_map_move(p, larger);
	else
		r = r ?: -EBUSY;
	mutex_unlock(&p->lock);
	vc_pool_thaw(all);
	return r;
}

/* Make the map large enough for so many chunks. Return: 0 or a negative errno. */
static int vc_resize_map(struct vcache_pool *p, u32 chunks, const char **error)
{
	struct vcache_pool *larger = kzalloc(sizeof(*larger), GFP_KERNEL);
	int r = -ENOMEM, tries = VC_FREEZE_TRIES;

	*error = "not enough memory for the map";
	if (larger) {
		larger->g = p->g;
		r = vcache_map_alloc(larger, chunks);
	}
	if (!r) {
		do {
			r = vc_resize_move(p, larger);
		} while (r == -EBUSY && --tries);
		if (r == -EBUSY)
			*error = "volumes were attached meanwhile, try again";
		if (r == -ETIMEDOUT)
			*error = "the origin of a volume does not answer, try again later";
	}
	if (larger)
		vcache_map_free(larger);
	kfree(larger);
	return r;
}

static int vc_pool_grow(struct vcache_pool *p, const struct vcache_geometry *g)
{
	u32 i, from = p->limit;
	int r = 0;

	if (g->chunks > p->g.chunks)
		r = vcache_pool_save_geometry(p, g);
	if (r)
		return r;
	spin_lock_irq(&p->free_lock);
	WRITE_ONCE(p->limit, g->chunks);
	for (i = from; i < g->chunks; i++) {
		struct vcache_chunk *c = &p->chunk[i];

		if (c->state != VC_CHUNK_OUTSIDE)
			continue;
		vcache_lane_add(p, c);
	}
	spin_unlock_irq(&p->free_lock);
	vcache_lanes_count(p);
	vcache_pool_count_leaving(p);
	return 0;
}

/* From here on no chunk behind the new end is used. */
static void vc_pool_shrink(struct vcache_pool *p, u32 chunks)
{
	struct vcache_volume *v;
	struct vcache_log *log;

	spin_lock_irq(&p->free_lock);
	WRITE_ONCE(p->limit, chunks);
	vcache_lane_cut(p);
	spin_unlock_irq(&p->free_lock);
	vcache_lanes_count(p);
	list_for_each_entry(v, &p->volumes, node) {
		list_for_each_entry(log, &v->logs, node)
			vcache_log_release_spare(log);
	}
	vcache_pool_count_leaving(p);
}

/* Has an elastic SSD a chunk behind so many? Nothing could move it. The pool is locked. */
static bool vc_pool_keeps_end(const struct vcache_pool *p, u32 chunks)
{
	u32 i;

	for (i = chunks; i < p->limit; i++) {
		if (p->chunk[i].state == VC_CHUNK_DIRECT)
			return true;
	}
	return false;
}

/* Compute the geometry for so many sectors. Return: 0 or a negative errno. */
static int vc_resize_chunks(struct vcache_pool *p, u64 sectors,
			    struct vcache_geometry *g, const char **error)
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
	r = vcache_geometry_resize(g, min_t(u64, chunks, U32_MAX));
	*error = r == -EFBIG ?
		 "a pool can grow to four times its first size" :
		 "a pool can shrink to a quarter of its first size, and to two chunks";
	if (!r && !vcache_lanes_fit(p, g->chunks)) {
		*error = "only the last lane can shrink, to four chunks at least";
		r = -EINVAL;
	}
	if (!r && vc_pool_keeps_end(p, g->chunks)) {
		*error = "an elastic SSD has chunks behind the new end";
		r = -EBUSY;
	}
	return r;
}

/**
 * vcache_pool_resize - use more or less of the cache device
 * @p: the pool, not locked
 * @sectors: the new size, rounded down to whole chunks; 0: the whole device
 * @error: set to what is wrong
 *
 * A shrink only begins here: vcache_pool.leaving chunks have to be reclaimed.
 *
 * Return: 0 or a negative errno; then the size has not changed.
 */
int vcache_pool_resize(struct vcache_pool *p, u64 sectors, const char **error)
{
	/* Freeing memory may need I/O to the volumes that are suspended here. */
	unsigned int noio = memalloc_noio_save();
	struct vcache_geometry g;
	int r;

	mutex_lock(&p->lock);
	r = vc_resize_chunks(p, sectors, &g, error);
	if (r)
		goto out;
	p->resizing = true;
	if (g.chunks > vcache_map_chunks(p)) {
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
	vcache_space_kick(p);
out:
	mutex_unlock(&p->lock);
	memalloc_noio_restore(noio);
	return r;
}

int __init vcache_resize_init(void)
{
	vc_freeze_wq = alloc_workqueue("vcache-freeze",
				       WQ_UNBOUND | WQ_MEM_RECLAIM, 0);
	return vc_freeze_wq ? 0 : -ENOMEM;
}

void vcache_resize_exit(void)
{
	destroy_workqueue(vc_freeze_wq);
}
