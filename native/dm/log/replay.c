// SPDX-License-Identifier: GPL-2.0-only
/*
 * dm-vcache: replay: finding the cells and logs of a volume from its chunks, when it is
 * used for the first time since its pool was loaded.
 */
#include <linux/vmalloc.h>

#include "internal.h"

/* Lock or unlock the cells of a block for the replay; sparse cannot follow that. */
static void vc_replay_cells(void *ctx, u16 slot, u64 block, bool on)
{
	spinlock_t *lock = vcache_cell_lock(ctx, slot, block);

	if (on) {
		spin_lock_irq(lock);
		__release(lock);
	} else {
		__acquire(lock);
		spin_unlock_irq(lock);
	}
}

/* Make the logs that the chunks of a volume belong to. The pool is locked. */
static int vc_volume_make_logs(struct vcache_volume *v, const u32 *list, u32 n)
{
	u32 i;

	lockdep_assert_held(&v->pool->lock);
	for (i = 0; i < n; i++) {
		if (!vcache_log_get(v, v->pool->found[list[i]].tag))
			return -ENOMEM;
	}
	return 0;
}

/*
 * Give the chunks of a replayed volume to its logs, which exist already. The pool is
 * locked.
 */
static void vc_volume_hand_out(struct vcache_volume *v, const u32 *list, u32 n)
{
	struct vcache_pool *p = v->pool;
	u32 i, k;

	for (i = 0; i < n; i++) {
		u32 cell = list[i] * p->g.chunk_blocks;
		struct vcache_chunk *c = &p->chunk[list[i]];
		struct vcache_log *log = vcache_log_get(v, p->found[list[i]].tag);
		u32 live = 0;

		for (k = 0; k < vcache_chunk_capacity(&p->g); k++) {
			live += !!vcache_cell_mask(&p->ix, cell + k);
			if (c->clean)
				set_bit(cell + k, p->cell_clean);
		}
		atomic_set(&c->live, live);
		atomic_set(&c->dirty, c->clean ? 0 : live);
		atomic_add(c->clean ? 0 : live, &log->dirty_cells);
		atomic_add(live, &log->live);
		c->log = log;
		c->stale = p->found[list[i]].stale;
		c->discards = p->found[list[i]].discards;
		c->warm = p->found[list[i]].reads;
		spin_lock_irq(&log->lock);
		/* The log may be in use already, with dedicated lanes. */
		c->own = p->lane[c->lane].owner == log;
		list_add_tail(&c->node, &log->chunks);
		WRITE_ONCE(log->nr, log->nr + 1);
		WRITE_ONCE(log->nr_own, log->nr_own + c->own);
		c->since = jiffies;
		if (!c->clean)
			vcache_log_gets_dirty(log, c);
		log->warm += c->warm;
		log->emptied |= !live;
		spin_unlock_irq(&log->lock);
		cond_resched();
	}
}

/* Tell that durable data of a chunk is damaged. Older versions of it are valid again. */
static void vc_volume_lost(struct vcache_volume *v, u32 chunk, const struct vcache_replay *rp)
{
	const char *name = dm_device_name(v->pool->md);
	u16 tag = v->pool->found[chunk].tag;

	DMERR("%s: volume %u tag %u: chunk %u has lost %u blocks", name, v->id, tag, chunk,
	      rp->lost);
	if (rp->lost_first <= rp->lost_last)
		DMERR("%s: volume %u tag %u: some of them from sectors %llu to %llu", name, v->id,
		      tag, rp->lost_first * VC_BLOCK_SECTORS,
		      (rp->lost_last + 1) * VC_BLOCK_SECTORS - 1);
}

static int vc_volume_replay_chunks(struct vcache_volume *v, u32 *list, u32 n)
{
	struct vcache_pool *p = v->pool;
	struct vcache_replay rp = {
		.st = &p->store, .g = &p->g, .ix = &p->ix, .chunk = p->found,
		.slot = v->slot, .lock = vc_replay_cells, .ctx = p,
		.limit = DIV_ROUND_UP_ULL(v->sectors, VC_BLOCK_SECTORS),
	};
	u32 i, lost = 0;

	rp.work = vmalloc(vcache_replay_work_size(&p->g));
	if (!rp.work)
		return -ENOMEM;
	for (i = 0; i < n; i++) {
		if (vcache_replay_chunk(&rp, list[i]))
			DMERR("%s: chunk %u of volume %u tag %u cannot be replayed",
			      dm_device_name(p->md), list[i], v->id,
			      p->found[list[i]].tag);
		if (rp.lost) {
			vc_volume_lost(v, list[i], &rp);
			lost++;
		}
		cond_resched();
	}
	vcache_replay_finish(&rp, list, n);
	vfree(rp.work);
	v->damaged = rp.errors + lost;
	return 0;
}

/**
 * vcache_volume_replay - find out what a volume has in the cache
 * @v: the volume, its pool is locked; nothing uses it yet
 *
 * If a device is about to use it, no other device can claim it. Then the lock is dropped
 * while the chunks are read.
 *
 * Return: 0 or a negative errno; then it can be tried again.
 */
int vcache_volume_replay(struct vcache_volume *v)
{
	struct vcache_pool *p = v->pool;
	ktime_t start = ktime_get();
	u32 *list, i, n = 0;
	int r;

	lockdep_assert_held(&v->pool->lock);
	list = vmalloc(array_size(p->g.chunks, sizeof(*list)));
	if (!list)
		return -ENOMEM;
	for (i = p->g.first_chunk; i < p->g.chunks; i++) {
		if (p->found[i].gen && p->found[i].volume == v->id)
			list[n++] = i;
	}
	vcache_chunks_sort(list, n, p->found);
	r = vc_volume_make_logs(v, list, n);
	if (!r) {
		if (v->dev)
			mutex_unlock(&p->lock);
		r = vc_volume_replay_chunks(v, list, n);
		if (v->dev)
			mutex_lock(&p->lock);
	}
	if (!r) {
		vc_volume_hand_out(v, list, n);
		v->replayed = true;
	}
	vfree(list);
	if (n && !r)
		DMINFO("%s: volume %u: %u chunks replayed in %lld ms",
		       dm_device_name(p->md), v->id, n,
		       ktime_ms_delta(ktime_get(), start));
	return r;
}
