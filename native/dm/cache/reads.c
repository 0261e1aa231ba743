// SPDX-License-Identifier: GPL-2.0-only
/*
 * dm-vcache: read chunks: chunks of blocks that are cached because they are read.
 *
 * They are filled one after the other, like written chunks, but have no records: only the
 * index knows what is in them. The end of a chunk, where a seal would be, is not used.
 *
 * A log has up to three sets of them. Blocks that were missed once go to a small set, if
 * they are promoted at all (../core/level.h), which is reclaimed first. Blocks that were
 * missed twice go to the main set. With dedicated lanes the third set is in shared lanes,
 * for blocks that are kept though they are not hot: see ../core/place.h.
 *
 * When a chunk is reclaimed, its hot blocks are kept (../core/replace.h): they are copied
 * to the open chunk of the main set. Their heat is halved, so a block that is not read
 * again is dropped the next time. Blocks that are not hot may be kept, too. As each costs
 * a copy, they are limited by a credit: reads of the tag earn much, its writes a little,
 * and some is given at first. A tag that never reads has no use for copies.
 */
#include "../log/round.h"
#include "internal.h"
#include "promote.h"

/**
 * vcache_reads_init - initialise the read chunks of a log
 * @log: a new log
 */
void vcache_reads_init(struct vcache_log *log)
{
	u32 i, k;

	mutex_init(&log->fill);
	for (i = 0; i < VC_READS_KINDS; i++) {
		for (k = 0; k < VC_DOMAINS; k++)
			INIT_LIST_HEAD(&log->reads[i].chunks[k]);
	}
	INIT_LIST_HEAD(&log->promotions);
	INIT_WORK(&log->promote_work, vcache_promote_work);
	vcache_prefetch_init(log);
}

/**
 * vcache_reads_exit - stop promotions and prefetches of a log
 * @log: a log of a volume that nobody uses
 */
void vcache_reads_exit(struct vcache_log *log)
{
	cancel_work_sync(&log->promote_work);
	vcache_prefetch_drop(log);
}

/**
 * vcache_reads_put_pending - drop a reference in vcache_chunk.pending of a read chunk
 * @log: its log
 * @c: the chunk
 *
 * Called when a write to the chunk is complete, and when the chunk is closed. From the
 * last one on the chunk can be reclaimed.
 */
void vcache_reads_put_pending(struct vcache_log *log, struct vcache_chunk *c)
{
	unsigned long flags;

	if (!atomic_dec_and_test(&c->pending))
		return;
	spin_lock_irqsave(&log->lock, flags);
	c->state = VC_CHUNK_SEALED;
	spin_unlock_irqrestore(&log->lock, flags);
	if (READ_ONCE(log->vol->pool->short_of_space))
		vcache_space_kick(log->vol->pool);
}

/* Called with @log->fill held. Return: whether there was an open chunk. */
static bool vc_reads_shut(struct vcache_log *log, struct vcache_reads *of)
{
	struct vcache_chunk *c = of->open;

	lockdep_assert_held(&log->fill);
	of->open = NULL;
	if (c)
		vcache_reads_put_pending(log, c);
	return c;
}

/**
 * vcache_reads_close - close the open read chunks
 * @log: the log
 *
 * Return: whether there was one.
 */
bool vcache_reads_close(struct vcache_log *log)
{
	bool closed = false;
	u32 i;

	mutex_lock(&log->fill);
	for (i = 0; i < VC_READS_KINDS; i++)
		closed |= vc_reads_shut(log, &log->reads[i]);
	mutex_unlock(&log->fill);
	return closed;
}

/**
 * vcache_reads_leave - close an open read chunk that is in the wrong lanes
 * @log: the log
 * @kind: which set of read chunks
 * @domain: the wrong lanes
 */
void vcache_reads_leave(struct vcache_log *log, enum vcache_reads_kind kind,
			enum vcache_domain domain)
{
	struct vcache_reads *of = &log->reads[kind];

	mutex_lock(&log->fill);
	if (of->open && vcache_chunk_domain(of->open) == domain)
		vc_reads_shut(log, of);
	mutex_unlock(&log->fill);
}

/* Hot blocks go to dedicated lanes, if the tag has any. */
static enum vcache_domain vc_reads_domain(const struct vcache_log *log,
					  const struct vcache_reads *of)
{
	return of == &log->reads[VC_READS_MAIN] ? VC_OWN : VC_SHARED;
}

static void vc_reads_open(struct vcache_log *log, struct vcache_reads *of,
			  enum vcache_take take)
{
	struct vcache_pool *p = log->vol->pool;
	struct vcache_chunk *c;

	spin_lock_irq(&log->lock);
	c = vcache_log_upper->take_chunk(p, log, take, vc_reads_domain(log, of));
	if (c) {
		c->clean = true;
		c->reads = of;
		vcache_chunk_open(log, c);
		list_add_tail(&c->node, &of->chunks[c->own]);
		of->nr[c->own]++;
	}
	spin_unlock_irq(&log->lock);
	of->open = c;
	of->filled = 0;
	vcache_space_kick(p);
}

/**
 * vcache_reads_space - how many blocks does the open read chunk have space for?
 * @log: the log, its fill lock is held
 * @kind: which set of read chunks
 * @least: with less space than that it is closed, and another one opened
 * @take: what for
 *
 * Return: 0 if there is no chunk.
 */
u32 vcache_reads_space(struct vcache_log *log, enum vcache_reads_kind kind, u32 least,
		       enum vcache_take take)
{
	u32 capacity = vcache_chunk_capacity(&log->vol->pool->g);
	struct vcache_reads *of = &log->reads[kind];

	lockdep_assert_held(&log->fill);
	if (of->open && of->filled + least > capacity)
		vc_reads_shut(log, of);
	if (!of->open)
		vc_reads_open(log, of, take);
	return of->open ? capacity - of->filled : 0;
}

/**
 * vcache_reads_take - use cells of the open read chunk
 * @log: the log, its fill lock is held; vcache_reads_space() has found enough space
 * @kind: which set of read chunks
 * @n: how many
 *
 * Return: the first one. Call vcache_reads_put_pending() when all are written.
 */
u32 vcache_reads_take(struct vcache_log *log, enum vcache_reads_kind kind, u32 n)
{
	struct vcache_reads *of = &log->reads[kind];
	struct vcache_pool *p = log->vol->pool;
	u32 cell = vcache_chunk_nr(p, of->open) * p->g.chunk_blocks + of->filled;

	lockdep_assert_held(&log->fill);
	of->filled += n;
	atomic_inc(&of->open->pending);
	return cell;
}

/**
 * vcache_log_cells - how many blocks do the chunks of a log have space for?
 * @log: the log
 */
u64 vcache_log_cells(const struct vcache_log *log)
{
	return (u64)vcache_log_chunks(log) * vcache_chunk_capacity(&log->vol->pool->g);
}

/**
 * vcache_reads_fit - have the chunks of a log so much free space, and the log so much credit,
 *	that no block need be lost when a chunk is reclaimed?
 * @log: the log
 */
bool vcache_reads_fit(struct vcache_log *log)
{
	return vcache_keep_any(atomic_read(&log->live), vcache_log_cells(log),
			       READ_ONCE(log->credit),
			       vcache_chunk_capacity(&log->vol->pool->g));
}

/* Has a cell a whole block that can be read? */
static bool vc_reads_whole(struct vcache_pool *p, u32 cell)
{
	return vcache_cell_mask(&p->ix, cell) == VC_MASK_ALL &&
	       !test_bit(cell, p->cell_bad);
}

/* Count the whole blocks of a chunk by their heat; only those below @end. */
static void vc_reads_count(struct vcache_pool *p, u32 cell, u32 end, u32 *count)
{
	u32 i, heat;

	for (i = 0; i < vcache_chunk_capacity(&p->g); i++) {
		heat = READ_ONCE(p->heat[cell + i]);
		if (vc_reads_whole(p, cell + i) && heat < end)
			count[heat]++;
	}
}

/*
 * Note the hottest @limit cells of a chunk, in order, of those with a heat of at least
 * @hot and below @end.
 */
static void vc_reads_note(struct vcache_round *r, struct vcache_pool *p, u32 cell,
			  u32 hot, u32 end, u32 limit)
{
	u32 count[VC_HEAT_MAX + 1] = {}, i, heat;
	struct vcache_keep keep;

	vc_reads_count(p, cell, end, count);
	keep = vcache_keep_choose(count, hot, limit);
	r->nr = 0;
	for (i = 0; i < vcache_chunk_capacity(&p->g); i++) {
		heat = READ_ONCE(p->heat[cell + i]);
		if (vc_reads_whole(p, cell + i) && heat < end &&
		    vcache_keep_wants(&keep, heat))
			r->cell[r->nr++].cell = cell + i;
	}
}

/*
 * Read noted cells, and write them to other ones. One that cannot be read costs the others
 * their copies, too. Return: 0 or an error.
 */
static int vc_reads_move(struct vcache_pool *p, struct vcache_round *r, u32 from,
			 u32 n, u32 to)
{
	struct bio *bio;
	u32 i;
	int error = vcache_window_read(&r->own, p, &r->cell[from], n);

	if (error)
		return error;
	vcache_window_begin(&r->own);
	bio = vcache_window_bio(&r->own, p, p->bdev, REQ_OP_WRITE, n,
				(u64)to * VC_BLOCK_SECTORS);
	vcache_window_mark(&r->own, p, 0, to);
	for (i = 0; i < n; i++)
		__bio_add_page(bio, r->own.page[i], VC_BLOCK_SIZE, 0);
	submit_bio_noacct(bio);
	vcache_window_sent(&r->own);
	return vcache_window_wait(&r->own);
}

/* Count blocks that have changed lanes for their tag. */
static void vc_reads_migrated(struct vcache_log *log, u32 blocks)
{
	struct vcache_tag *tag;

	rcu_read_lock();
	tag = rcu_dereference(log->user);
	if (tag)
		atomic64_add(blocks, &vcache_stats(tag)->migrated);
	rcu_read_unlock();
}

/*
 * Copy noted cells of a chunk, from the @from-th one on, as many as fit into a window.
 * If some cannot be copied, the origin has them. Return: how many are dealt with; 0 if that
 * cannot be done now.
 */
static u32 vc_reads_copy(struct vcache_chunk *of, struct vcache_round *r, u32 from,
			 enum vcache_reads_kind kind)
{
	enum vcache_take take = of->own ? VC_TAKE_KEEP_OWN : VC_TAKE_KEEP;
	u32 n = min(r->nr - from, VC_WINDOW), to = 0, kept = 0, i;
	struct vcache_log *log = of->log;
	struct vcache_pool *p = log->vol->pool;
	struct vcache_chunk *c;
	int error;

	mutex_lock(&log->fill);
	n = min(n, vcache_reads_space(log, kind, 1, take));
	c = log->reads[kind].open;
	if (n)
		to = vcache_reads_take(log, kind, n);
	mutex_unlock(&log->fill);
	if (!n)
		return 0;
	error = vc_reads_move(p, r, from, n, to);
	atomic64_add(n, &log->counts.relocated);
	for (i = 0; i < n && !error; i++) {
		if (vcache_lookup_keep(log->vol, r->cell[from + i].cell, to + i))
			kept++;
	}
	atomic64_add(kept, &p->kept);
	WRITE_ONCE(log->credit, log->credit -
		   min(log->credit, kept * VC_CREDIT_KEEP));
	if (c->own != of->own)
		vc_reads_migrated(log, kept);
	vcache_reads_put_pending(log, c);
	return error && READ_ONCE(p->state) != VC_POOL_OK ? 0 : n;
}

static void vc_reads_copy_all(struct vcache_chunk *of, struct vcache_round *r,
			      enum vcache_reads_kind kind)
{
	u32 from, n = 1;

	for (from = 0; from < r->nr && n; from += n)
		n = vc_reads_copy(of, r, from, kind);
}

/*
 * Has the log of a chunk in shared lanes more than its maximum? One chunk more than
 * vcache_log.most is allowed, for kept blocks.
 */
static bool vc_reads_over(const struct vcache_chunk *c)
{
	const struct vcache_log *log = c->log;

	return !c->own && vcache_log_has(log, VC_SHARED) > log->most + 1;
}

/* Note how hot the blocks of a chunk are that is reclaimed for its space. */
static void vc_reads_level(struct vcache_chunk *c)
{
	struct vcache_log *log = c->log;
	struct vcache_pool *p = log->vol->pool;
	u32 count[VC_HEAT_MAX + 1] = {};

	vc_reads_count(p, vcache_chunk_nr(p, c) * p->g.chunk_blocks, VC_HEAT_MAX + 1,
		       count);
	vcache_hot_note(&log->hot_level, count,
			max(vcache_log_part(log), 1U) * p->g.chunk_blocks);
}

/* Decide which blocks of a chunk are kept. */
static struct vcache_keep_policy vc_reads_policy(struct vcache_chunk *c, enum vcache_reclaim how)
{
	struct vcache_log *log = c->log;
	u32 capacity = vcache_chunk_capacity(&log->vol->pool->g);
	u32 hot = vcache_hot_level(&log->hot_level,
				   c->reads == &log->reads[VC_READS_MAIN] ?
				   VC_HEAT_MAIN : VC_HEAT_NEW);

	if (how == VC_RECLAIM_SWAP)
		return vcache_keep_swap(c->own ? log->stays : VC_HEAT_SHARED,
					READ_ONCE(log->credit), capacity);
	return vcache_keep_reclaim(hot, vcache_reads_fit(log),
				   vcache_keep_most(capacity, vc_reads_over(c)), log->lanes);
}

/**
 * vcache_reads_keep - copy the hot blocks of a chunk that is reclaimed
 * @c: the chunk, clean and dead on the device, but not trimmed yet; its pool is
 *	locked
 * @how: how it is reclaimed
 *
 * Blocks that cannot be copied will be read from the origin the next time.
 */
void vcache_reads_keep(struct vcache_chunk *c, enum vcache_reclaim how)
{
	struct vcache_log *log = c->log;
	struct vcache_pool *p = log->vol->pool;
	u32 cell = vcache_chunk_nr(p, c) * p->g.chunk_blocks;
	struct vcache_keep_policy policy = vc_reads_policy(c, how);
	struct vcache_round *r = p->relocate_round;
	u32 rest;

	lockdep_assert_held(&c->log->vol->pool->lock);
	if (READ_ONCE(log->vol->stopped) || p->state != VC_POOL_OK)
		return;
	if (how == VC_RECLAIM_KEEP)
		vc_reads_level(c);
	vc_reads_note(r, p, cell, policy.hot, VC_HEAT_MAX + 1, policy.most);
	rest = vcache_keep_rest(&policy, r->nr);
	vc_reads_copy_all(c, r, VC_READS_MAIN);
	if (!rest)
		return;
	vc_reads_note(r, p, cell, 0, policy.hot, rest);
	vc_reads_copy_all(c, r, VC_READS_WARM);
}
