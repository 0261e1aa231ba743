// SPDX-License-Identifier: GPL-2.0-only
/*
 * dm-vcache: chunks that have to go because of where they are: behind the new end of
 * a pool, or in a lane that is another tag's.
 */
#include "reads.h"

/* Chunks that go in a tick because the pool shrinks. */
#define VC_VACATE_BATCH 4U

/* The log of a chunk that is to leave has to let go of its oldest first. */
static struct vc_chunk *vc_leaving_first(struct vc_chunk *c)
{
	struct vc_log *log = c->log;
	struct vc_chunk *first;

	if (READ_ONCE(c->state) == VC_CHUNK_OPEN && c->reads)
		vc_reads_close(log);
	else if (READ_ONCE(c->state) == VC_CHUNK_OPEN)
		vc_log_close_idle(log);
	spin_lock_irq(&log->lock);
	if (c->reads || c->warm)
		first = vc_chunk_reclaimable(c) ? c : NULL;
	else
		first = vc_log_oldest(log);
	spin_unlock_irq(&log->lock);
	return first;
}

/**
 * vc_pool_clear - let go of chunks, but for those of one log
 * @p: the pool, locked
 * @from: the first chunk
 * @end: the one behind the last
 * @keeper: the log whose chunks stay, or NULL
 * @by: how many may go; counts those that did
 *
 * What has still to be destaged kicks us when it is.
 */
void vc_pool_clear(struct vc_pool *p, u32 from, u32 end,
		   const struct vc_log *keeper, struct vc_clearing *by)
{
	struct vc_chunk *first;
	u32 i;

	for (i = from; i < end; i++) {
		struct vc_chunk *c = &p->chunk[i];
		struct vc_log *log = READ_ONCE(c->log);

		if (by->left && vc_chunk_used(c) && log && log != keeper) {
			first = vc_leaving_first(c);
			/* What is in the way is so of others, too. */
			if (first)
				by->left = vc_pool_reclaim(p, first) ?
					   by->left - 1 : 0;
		}
		by->further |= vc_chunk_used(c) && !log;
		cond_resched();
	}
}

/**
 * vc_pool_clear_again - some chunks have still to go
 * @p: the pool, locked
 * @by: what vc_pool_clear() said
 */
void vc_pool_clear_again(struct vc_pool *p, const struct vc_clearing *by)
{
	if (!by->left || (by->further && vc_pool_look_further(p)))
		mod_delayed_work(p->wq, &p->space_work, VC_SPACE_RETRY);
}

/**
 * vc_pool_vacate - let go of what is behind the new end of the pool
 * @p: the pool, locked
 */
void vc_pool_vacate(struct vc_pool *p)
{
	struct vc_clearing by = { .left = VC_VACATE_BATCH };

	vc_pool_clear(p, p->limit, p->g.chunks, NULL, &by);
	/* The oldest chunk of a log may be one that we had passed. */
	vc_pool_count_leaving(p);
	if (!p->leaving)
		vc_pool_shrunk(p);
	else
		vc_pool_clear_again(p, &by);
}
