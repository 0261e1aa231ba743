// SPDX-License-Identifier: GPL-2.0-only
/*
 * dm-vcache: chunks that are reclaimed because of where they are: behind the new end of
 * a pool, or in a lane that is dedicated to another tag.
 */
#include "internal.h"

/**
 * vcache_pool_count_leaving - count the chunks behind the new end that are in use
 * @p: the pool, locked
 *
 * Destage is urgent while there are any, and the status shows the number.
 */
void vcache_pool_count_leaving(struct vcache_pool *p)
{
	u32 i, leaving = 0;

	lockdep_assert_held(&p->lock);
	for (i = p->limit; i < p->g.chunks; i++)
		leaving += vcache_chunk_leaves(&p->chunk[i]);
	WRITE_ONCE(p->leaving, leaving);
}

/**
 * vc_pool_shrunk - complete a shrink, when the last chunk behind the new end is free
 * @p: the pool, locked
 */
static void vc_pool_shrunk(struct vcache_pool *p)
{
	struct vcache_geometry g = p->g;

	lockdep_assert_held(&p->lock);
	if (p->state == VC_POOL_OK && !vcache_geometry_resize(&g, p->limit) &&
	    !vcache_pool_save_geometry(p, &g))
		DMINFO("%s: the pool uses %u chunks now",
		       dm_device_name(p->md), p->limit - g.first_chunk);
}

/* Chunks reclaimed in one run because the pool shrinks. */
#define VC_VACATE_BATCH 4U

/* Find the chunk to reclaim first, so that @c can be: the oldest of its log. Or NULL. */
static struct vcache_chunk *vc_leaving_first(struct vcache_chunk *c)
{
	struct vcache_log *log = c->log;
	struct vcache_chunk *first;

	if (READ_ONCE(c->state) == VC_CHUNK_OPEN && c->reads)
		vcache_reads_close(log);
	else if (READ_ONCE(c->state) == VC_CHUNK_OPEN)
		vcache_log_close_idle(log);
	spin_lock_irq(&log->lock);
	if (c->reads || c->warm)
		first = vcache_chunk_reclaimable(c) ? c : NULL;
	else
		first = vcache_log_oldest(log);
	spin_unlock_irq(&log->lock);
	return first;
}

/**
 * vcache_pool_clear - reclaim a range of chunks, except those of one log
 * @p: the pool, locked
 * @from: the first chunk
 * @end: the chunk behind the last one
 * @keeper: the log whose chunks stay, or NULL
 * @by: how many may be reclaimed; is counted down
 *
 * Chunks that have to be destaged first wake us up when they are clean.
 */
void vcache_pool_clear(struct vcache_pool *p, u32 from, u32 end,
		       const struct vcache_log *keeper, struct vcache_clearing *by)
{
	struct vcache_chunk *first;
	u32 i;

	lockdep_assert_held(&p->lock);
	for (i = from; i < end; i++) {
		struct vcache_chunk *c = &p->chunk[i];
		struct vcache_log *log = READ_ONCE(c->log);

		if (by->left && vcache_chunk_used(c) && log && log != keeper) {
			first = vc_leaving_first(c);
			/* If it cannot be reclaimed now, it blocks others as well: stop. */
			if (first)
				by->left = vcache_pool_reclaim(p, first) ?
					   by->left - 1 : 0;
		}
		by->further |= vcache_chunk_used(c) && !log;
		cond_resched();
	}
}

/**
 * vcache_pool_clear_again - run again if some chunks have still to be reclaimed
 * @p: the pool, locked
 * @by: the result of vcache_pool_clear()
 */
void vcache_pool_clear_again(struct vcache_pool *p, const struct vcache_clearing *by)
{
	lockdep_assert_held(&p->lock);
	if (!by->left || (by->further && vcache_pool_look_further(p)))
		vcache_space_retry(p);
}

/**
 * vcache_pool_vacate - reclaim the chunks behind the new end of the pool
 * @p: the pool, locked
 */
void vcache_pool_vacate(struct vcache_pool *p)
{
	struct vcache_clearing by = { .left = VC_VACATE_BATCH };

	lockdep_assert_held(&p->lock);
	vcache_pool_clear(p, p->limit, p->g.chunks, NULL, &by);
	/* The oldest chunk of a log may have been one that was counted before. */
	vcache_pool_count_leaving(p);
	if (!p->leaving)
		vc_pool_shrunk(p);
	else
		vcache_pool_clear_again(p, &by);
}
