// SPDX-License-Identifier: GPL-2.0-only
/*
 * dm-vcache: which chunk of a log is reclaimed next, see ../core/replace.h.
 *
 * A caller needs free chunks in the shared lanes, or in the dedicated lanes of a log: that
 * is the @domain of the functions below. Read chunks (blocks promoted by reads) can be
 * reclaimed in any order, so a log has a list of them for each domain. Written chunks are
 * reclaimed in the order of their generations, but for those that cannot be read. So a written
 * chunk in @domain may have to wait for the log's oldest written chunk in the other domain. That
 * one is reclaimed too, if it is empty, or if nothing in @domain can be reclaimed before it.
 */
#include "internal.h"

/**
 * vcache_chunk_heat - count the hot blocks of a chunk
 * @p: the pool, locked, so that the chunk is not reclaimed
 * @c: the chunk
 * @hot: the least heat that counts
 */
u32 vcache_chunk_heat(const struct vcache_pool *p, const struct vcache_chunk *c, u32 hot)
{
	u32 cell = vcache_chunk_nr(p, c) * p->g.chunk_blocks, n = 0, i;

	lockdep_assert_held(&p->lock);
	for (i = cell; i < cell + vcache_chunk_capacity(&p->g); i++)
		n += READ_ONCE(p->heat[i]) >= hot && vcache_cell_mask(&p->ix, i);
	return n;
}

/* Are @nr chunks more than @percent percent of what a log has in these lanes? */
static bool vc_log_exceeds(struct vcache_log *log, enum vcache_domain domain, u32 nr,
			   u32 percent)
{
	return (u64)nr * 100 > (u64)vcache_log_has(log, domain) * percent;
}

/**
 * vcache_reads_oldest - find the oldest read chunk of a log, if it is reclaimable
 * @log: the log, locked
 * @kind: which of its read chunks
 * @domain: in which lanes
 *
 * Return: the chunk, or NULL.
 */
struct vcache_chunk *vcache_reads_oldest(struct vcache_log *log, enum vcache_reads_kind kind,
					 enum vcache_domain domain)
{
	struct vcache_chunk *c;

	lockdep_assert_held(&log->lock);
	list_for_each_entry(c, &log->reads[kind].chunks[domain], node) {
		/* vc_log_rotate_own() may have moved others behind the open chunk. */
		if (c->state != VC_CHUNK_OPEN)
			return vcache_chunk_reclaimable(c) ? c : NULL;
	}
	return NULL;
}

/**
 * vcache_chunk_is_unread - has a chunk dirty blocks that relocation could not read just now?
 * @c: the chunk; its log is locked
 *
 * It can be neither reclaimed nor relocated.
 */
bool vcache_chunk_is_unread(const struct vcache_chunk *c)
{
	lockdep_assert_held(&c->log->lock);
	return c->unread_until && time_before(jiffies, c->unread_until) &&
	       atomic_read(&c->dirty);
}

/**
 * vcache_log_oldest - find the oldest written chunk of a log, if it is reclaimable
 * @log: the log, locked
 *
 * Chunks that cannot be read stay, and do not keep those behind them, see
 * vcache_reseal_older().
 *
 * Return: the chunk, or NULL.
 */
struct vcache_chunk *vcache_log_oldest(struct vcache_log *log)
{
	struct vcache_chunk *c;

	lockdep_assert_held(&log->lock);
	list_for_each_entry(c, &log->chunks, node) {
		if (!vcache_chunk_is_unread(c))
			return vcache_chunk_reclaimable(c) ? c : NULL;
	}
	return NULL;
}

/* The same, if that chunk is in lanes of this kind. */
static struct vcache_chunk *vc_log_oldest_in(struct vcache_log *log,
					     enum vcache_domain domain)
{
	struct vcache_chunk *c = vcache_log_oldest(log);

	return c && vcache_chunk_domain(c) == domain ? c : NULL;
}

/*
 * Find a reclaimable chunk that held promoted blocks before a restart, or NULL. It need
 * not wait for chunks that were written before it.
 */
static struct vcache_chunk *vc_log_warm(struct vcache_log *log, enum vcache_domain domain)
{
	struct vcache_chunk *c;

	if (!log->warm)
		return NULL;
	list_for_each_entry(c, &log->chunks, node) {
		if (c->warm && vcache_chunk_domain(c) == domain &&
		    vcache_chunk_reclaimable(c))
			return c;
	}
	return NULL;
}

/*
 * Would destage help? It does if the log has dirty chunks, its origin takes data, and the
 * reclaim of the oldest written chunk brings space in @domain closer.
 */
static bool vc_log_oldest_frees(struct vcache_log *log, enum vcache_domain domain)
{
	struct vcache_chunk *c = list_first_entry_or_null(&log->chunks,
							  struct vcache_chunk, node);

	return c && READ_ONCE(log->dirty) && !READ_ONCE(log->vol->failing) &&
	       vcache_log_frees_space(log, c, domain);
}

/*
 * Must a chunk be reclaimed now, even if that drops cached blocks which are still of use?
 * Yes, if destage would not help, or if so few chunks are free that it would take too long.
 */
static bool vc_log_must_reclaim(struct vcache_log *log, enum vcache_domain domain)
{
	struct vcache_pool *p = log->vol->pool;

	if (!vc_log_oldest_frees(log, domain))
		return true;
	return domain == VC_OWN ? vcache_own_is_urgent(log) :
	       READ_ONCE(p->nfree) < vcache_pool_reserve(p) / 2;
}

/*
 * Of the first VC_VICTIMS reclaimable chunks of a list, find the one with the fewest live
 * blocks, if these are fewer than @live. Sets @live to their number. Return: the chunk, or
 * NULL.
 */
static struct vcache_chunk *vc_reads_emptiest(struct list_head *list, int *live)
{
	struct vcache_chunk *c, *least = NULL;
	u32 look = VC_VICTIMS;

	list_for_each_entry(c, list, node) {
		if (!look--)
			break;
		if (atomic_read(&c->live) < *live && vcache_chunk_reclaimable(c)) {
			*live = atomic_read(&c->live);
			least = c;
		}
	}
	return least;
}

/*
 * Find the emptiest read chunk whose blocks were missed twice, or kept. At most
 * vcache_keep_most() of its blocks may be live: all of these are kept, so nothing is lost. A
 * fuller chunk counts only if vc_log_must_reclaim(). Called with the lock of the log.
 * Return: the chunk, or NULL.
 */
static struct vcache_chunk *vc_log_emptiest(struct vcache_log *log,
					    enum vcache_domain domain)
{
	u32 capacity = vcache_chunk_capacity(&log->vol->pool->g);
	struct vcache_chunk *c;
	int live = vcache_keep_most(capacity, false) + 1;

	lockdep_assert_held(&log->lock);
	if (vc_log_must_reclaim(log, domain))
		live = capacity + 1;
	c = vc_reads_emptiest(&log->reads[VC_READS_WARM].chunks[domain], &live);
	return vc_reads_emptiest(&log->reads[VC_READS_MAIN].chunks[domain],
				 &live) ?: c;
}

/*
 * Choose between the oldest written chunk of a log and a read chunk. With @fits the live
 * blocks of the chunk are kept, so take the chunk with fewer of them. Otherwise take the
 * chunk with fewer blocks that were read. Either chunk may be NULL; then it is the other.
 */
static struct vcache_chunk *vc_log_choose(struct vcache_pool *p, bool fits,
					  struct vcache_chunk *written,
					  struct vcache_chunk *read)
{
	if (!written || !read)
		return written ?: read;
	if (fits)
		return vcache_written_goes(atomic_read(&written->live),
					   atomic_read(&read->live)) ?
		       written : read;
	return vcache_written_goes(vcache_chunk_heat(p, written, 1),
				   vcache_chunk_heat(p, read, 1)) ? written : read;
}

/**
 * vcache_log_frees_space - does reclaim of the oldest written chunk bring space closer?
 * @log: the log
 * @c: its oldest written chunk
 * @domain: the lanes that need space
 *
 * It does if the chunk is in @domain, or if written chunks in @domain have to wait for it.
 * But a log does not give up a chunk of its dedicated lanes to free shared chunks, unless it
 * has more shared chunks than its share.
 */
bool vcache_log_frees_space(const struct vcache_log *log, const struct vcache_chunk *c,
			    enum vcache_domain domain)
{
	if (vcache_chunk_domain(c) == domain)
		return true;
	return vcache_log_written_in(log, domain) &&
	       (domain == VC_OWN ||
		vcache_log_has(log, VC_SHARED) > READ_ONCE(log->share));
}

/*
 * The last choice: a chunk of blocks that were missed once, a read chunk of before a
 * restart, or an oldest written chunk in the other domain.
 */
static struct vcache_chunk *vc_log_last(struct vcache_log *log, enum vcache_domain domain)
{
	struct vcache_chunk *c = vcache_log_oldest(log);

	return vcache_reads_oldest(log, VC_READS_SMALL, domain) ?:
	       vc_log_warm(log, domain) ?:
	       (c && vcache_log_frees_space(log, c, domain) ? c : NULL);
}

/* Are a quarter of the log's cells free, and is there a chunk to relocate? */
static bool vc_log_can_relocate(struct vcache_log *log, enum vcache_domain domain)
{
	return vcache_fits(atomic_read(&log->live), vcache_log_cells(log)) &&
	       vcache_relocate_candidate(log, domain);
}

/**
 * vcache_log_victim - find the chunk of a log that is reclaimed next
 * @log: the log; its pool is locked
 * @domain: the lanes that need space
 *
 * Chunks of blocks that were missed once are reclaimed first, if they are more than
 * VC_SMALL_PERCENT of its chunks. Otherwise vc_log_choose() takes the oldest written chunk or a
 * read chunk; it is the read chunk while these are more than vcache_pool.reads_percent of the
 * log and blocks have to be lost.
 *
 * The log may have space to keep all blocks, but no credit to copy those of a read chunk.
 * Then no read chunk is reclaimed, and the oldest written chunk is relocated by the caller.
 * Otherwise a tag that writes much would lose its read blocks to its superseded writes.
 *
 * Return: the chunk, or NULL if none is reclaimable.
 */
struct vcache_chunk *vcache_log_victim(struct vcache_log *log, enum vcache_domain domain)
{
	struct vcache_chunk *c = NULL, *written, *read;
	struct vcache_pool *p = log->vol->pool;
	bool fits = vcache_reads_fit(log);
	bool relocates = !fits && vc_log_can_relocate(log, domain);

	lockdep_assert_held(&log->vol->pool->lock);
	spin_lock_irq(&log->lock);
	if (vc_log_exceeds(log, domain, log->reads[VC_READS_SMALL].nr[domain],
			   VC_SMALL_PERCENT))
		c = vcache_reads_oldest(log, VC_READS_SMALL, domain);
	written = vc_log_oldest_in(log, domain);
	read = fits ? vc_log_emptiest(log, domain) :
	       vcache_reads_oldest(log, VC_READS_WARM, domain) ?:
	       vcache_reads_oldest(log, VC_READS_MAIN, domain);
	if (read && !fits &&
	    vc_log_exceeds(log, domain, vcache_log_reads_in(log, domain),
			   READ_ONCE(p->reads_percent)))
		written = NULL;
	if (relocates && !written && !vc_log_must_reclaim(log, domain))
		read = NULL;
	if (!c && !written && !read)
		c = vc_log_last(log, domain);
	spin_unlock_irq(&log->lock);
	return c ?: vc_log_choose(p, fits, written, read);
}

/**
 * vcache_log_any - find any reclaimable chunk of a log, in any lane
 * @log: the log; its pool is locked
 *
 * Return: the chunk, or NULL if there is none.
 */
struct vcache_chunk *vcache_log_any(struct vcache_log *log)
{
	struct vcache_chunk *c;
	u32 kind;

	lockdep_assert_held(&log->vol->pool->lock);
	spin_lock_irq(&log->lock);
	c = vcache_log_oldest(log);
	for (kind = 0; kind < VC_READS_KINDS && !c; kind++)
		c = vcache_reads_oldest(log, kind, VC_SHARED) ?:
		    vcache_reads_oldest(log, kind, VC_OWN);
	c = c ?: vc_log_warm(log, VC_SHARED) ?: vc_log_warm(log, VC_OWN);
	spin_unlock_irq(&log->lock);
	return c;
}

/**
 * vcache_chunk_is_empty - has a chunk nothing that is valid, and nothing that has to stay?
 * @c: the chunk; see rule 1 in ../core/format.h
 */
bool vcache_chunk_is_empty(const struct vcache_chunk *c)
{
	return !atomic_read(&c->live) && !c->discards && !c->failed;
}

/**
 * vcache_chunk_droppable - may a written chunk be reclaimed before older ones?
 * @c: the chunk, its log is locked
 *
 * It may if it is empty: see rule 1 in ../core/format.h.
 */
bool vcache_chunk_droppable(const struct vcache_chunk *c)
{
	lockdep_assert_held(&c->log->lock);
	return c->state == VC_CHUNK_SEALED && vcache_chunk_is_empty(c);
}

/* Find a written chunk that may be reclaimed before older ones. */
static struct vcache_chunk *vc_log_empty_written(struct vcache_log *log,
						 enum vcache_domain domain)
{
	struct vcache_chunk *c;
	bool later = false;

	lockdep_assert_held(&log->lock);
	if (!READ_ONCE(log->emptied))
		return NULL;
	WRITE_ONCE(log->emptied, false);
	smp_mb(); /* a chunk that becomes empty after we looked at it sets the flag again */
	list_for_each_entry(c, &log->chunks, node) {
		if (!vcache_chunk_droppable(c))
			continue;
		later = true;
		if (vcache_chunk_domain(c) != domain || !vcache_chunk_reclaimable(c))
			continue;
		WRITE_ONCE(log->emptied, true);
		return c;
	}
	if (later)
		WRITE_ONCE(log->emptied, true);
	return NULL;
}

/**
 * vcache_log_empty_chunk - find a reclaimable chunk of a log without live blocks
 * @log: the log; its pool is locked
 * @domain: the lanes that need space: of the chunk, or of a later chunk of the log
 *
 * Return: the chunk, or NULL if there is none.
 */
struct vcache_chunk *vcache_log_empty_chunk(struct vcache_log *log, enum vcache_domain domain)
{
	struct vcache_chunk *c;
	u32 kind;

	lockdep_assert_held(&log->vol->pool->lock);
	spin_lock_irq(&log->lock);
	c = vcache_log_written_in(log, domain) ? vcache_log_oldest(log) : NULL;
	for (kind = 0; kind < VC_READS_KINDS; kind++) {
		if (c && !atomic_read(&c->live))
			break;
		c = vcache_reads_oldest(log, kind, domain);
	}
	if (c && atomic_read(&c->live))
		c = NULL;
	if (!c)
		c = vc_log_empty_written(log, domain);
	spin_unlock_irq(&log->lock);
	return c;
}
