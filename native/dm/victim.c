// SPDX-License-Identifier: GPL-2.0-only
/*
 * dm-vcache: which chunk of a log goes first, see ../core/replace.h.
 *
 * Free chunks may be needed in the shared lanes, or in the dedicated lanes of a log.
 * Read chunks can be reclaimed in any order, so a log has a list of them for each kind
 * of lanes. Written chunks must be reclaimed in the order of their generations. So the
 * oldest written chunk is reclaimed wherever it is if it is empty, or if it has to go
 * before a chunk in the lanes that need space and nothing else can be reclaimed there.
 */
#include "reads.h"

/**
 * vc_chunk_heat - how many blocks of a chunk are at least so hot?
 * @p: the pool, locked: that keeps the chunk
 * @c: the chunk
 * @hot: so hot
 */
u32 vc_chunk_heat(const struct vc_pool *p, const struct vc_chunk *c, u32 hot)
{
	u32 cell = vc_chunk_nr(p, c) * p->g.chunk_blocks, n = 0, i;

	for (i = cell; i < cell + vc_chunk_capacity(&p->g); i++)
		n += READ_ONCE(p->heat[i]) >= hot && vc_cell_mask(&p->ix, i);
	return n;
}

/* Are so many chunks more than so many percent of what a log has there? */
static bool vc_log_exceeds(struct vc_log *log, enum vc_domain domain, u32 nr,
			   u32 percent)
{
	return (u64)nr * 100 > (u64)vc_log_has(log, domain) * percent;
}

/**
 * vc_reads_oldest - the oldest chunk of reads of a log, if it may go
 * @log: the log, locked
 * @kind: of which kind
 * @domain: and where
 *
 * Return: NULL: it may not.
 */
struct vc_chunk *vc_reads_oldest(struct vc_log *log, enum vc_reads_kind kind,
				 enum vc_domain domain)
{
	struct vc_chunk *c;

	list_for_each_entry(c, &log->reads[kind].chunks[domain], node) {
		/* vc_log_rotate_own() may have moved others behind the open chunk. */
		if (c->state != VC_CHUNK_OPEN)
			return vc_chunk_reclaimable(c) ? c : NULL;
	}
	return NULL;
}

/**
 * vc_log_oldest - the oldest chunk of what a log has written, if it may go
 * @log: the log, locked
 *
 * Return: NULL: it may not.
 */
struct vc_chunk *vc_log_oldest(struct vc_log *log)
{
	struct vc_chunk *c = list_first_entry_or_null(&log->chunks,
						      struct vc_chunk, node);

	return c && vc_chunk_reclaimable(c) ? c : NULL;
}

/* The same, if it is there. */
static struct vc_chunk *vc_log_oldest_in(struct vc_log *log,
					 enum vc_domain domain)
{
	struct vc_chunk *c = vc_log_oldest(log);

	return c && vc_chunk_domain(c) == domain ? c : NULL;
}

/*
 * A chunk of a log that was read before a restart, and may go, or NULL: it need
 * not wait for what was written before it.
 */
static struct vc_chunk *vc_log_warm(struct vc_log *log, enum vc_domain domain)
{
	struct vc_chunk *c;

	if (!log->warm)
		return NULL;
	list_for_each_entry(c, &log->chunks, node) {
		if (c->warm && vc_chunk_domain(c) == domain &&
		    vc_chunk_reclaimable(c))
			return c;
	}
	return NULL;
}

/* Is a log's oldest chunk, once all in it is on the origin, one that makes room there? */
static bool vc_log_oldest_frees(struct vc_log *log, enum vc_domain domain)
{
	struct vc_chunk *c = list_first_entry_or_null(&log->chunks,
						      struct vc_chunk, node);

	return c && log->dirty && !READ_ONCE(log->vol->failing) &&
	       vc_log_frees_space(log, c, domain);
}

/* Has a chunk to go there, be it with a loss? For nothing else does, or there is no time. */
static bool vc_log_must_reclaim(struct vc_log *log, enum vc_domain domain)
{
	struct vc_pool *p = log->vol->pool;

	if (!vc_log_oldest_frees(log, domain))
		return true;
	return domain == VC_OWN ? vc_own_is_urgent(log) :
	       READ_ONCE(p->nfree) < vc_pool_reserve(p) / 2;
}

/*
 * The chunk with the least in it, of the oldest of a list that may go; @live says
 * what it has to have less than, and then what it has. NULL when there is none.
 */
static struct vc_chunk *vc_reads_emptiest(struct list_head *list, int *live)
{
	struct vc_chunk *c, *least = NULL;
	u32 look = VC_VICTIMS;

	list_for_each_entry(c, list, node) {
		if (!look--)
			break;
		if (atomic_read(&c->live) < *live && vc_chunk_reclaimable(c)) {
			*live = atomic_read(&c->live);
			least = c;
		}
	}
	return least;
}

/*
 * Such a chunk of what a log has kept, or missed twice; or NULL. One that is full
 * gives nothing without a loss, so that what is dirty had better go to the origin, and
 * its chunks then; unless there is nothing that would make room here, or the origin
 * takes nothing, or there is no time. Called with the lock of the log.
 */
static struct vc_chunk *vc_log_emptiest(struct vc_log *log,
					enum vc_domain domain)
{
	u32 capacity = vc_chunk_capacity(&log->vol->pool->g);
	struct vc_chunk *c;
	int live = vc_keep_most(capacity, false) + 1;

	if (vc_log_must_reclaim(log, domain))
		live = capacity + 1;
	c = vc_reads_emptiest(&log->reads[VC_READS_WARM].chunks[domain], &live);
	return vc_reads_emptiest(&log->reads[VC_READS_MAIN].chunks[domain],
				 &live) ?: c;
}

/*
 * Which goes of a chunk of what a log has written, and one of what it has read?
 * Where it fits, that of which less has to be copied. Either may be NULL, then it
 * is the other one.
 */
static struct vc_chunk *vc_log_choose(struct vc_pool *p, bool fits,
				      struct vc_chunk *written,
				      struct vc_chunk *read)
{
	if (!written || !read)
		return written ?: read;
	if (fits)
		return vc_written_goes(atomic_read(&written->live),
				       atomic_read(&read->live)) ?
		       written : read;
	return vc_written_goes(vc_chunk_heat(p, written, 1),
			       vc_chunk_heat(p, read, 1)) ? written : read;
}

/**
 * vc_log_frees_space - does a log let go of its oldest chunk so that there is room?
 * @log: the log
 * @c: the chunk, of what it has written
 * @domain: where the room is needed
 *
 * It may be somewhere else, and in the way. In its own lanes it need not go for others
 * while the log has no more than its share in shared ones.
 */
bool vc_log_frees_space(const struct vc_log *log, const struct vc_chunk *c,
			enum vc_domain domain)
{
	if (vc_chunk_domain(c) == domain)
		return true;
	return vc_log_written_in(log, domain) &&
	       (domain == VC_OWN ||
		vc_log_has(log, VC_SHARED) > READ_ONCE(log->share));
}

/* When neither of these can go: what was missed once, or what is in the way. */
static struct vc_chunk *vc_log_last(struct vc_log *log, enum vc_domain domain)
{
	struct vc_chunk *c = vc_log_oldest(log);

	return vc_reads_oldest(log, VC_READS_SMALL, domain) ?:
	       vc_log_warm(log, domain) ?:
	       (c && vc_log_frees_space(log, c, domain) ? c : NULL);
}

/* Is there so much room in what a log has that relocating what is dirty makes some? */
static bool vc_log_can_relocate(struct vc_log *log, enum vc_domain domain)
{
	return vc_fits(atomic_read(&log->live), vc_log_cells(log)) &&
	       vc_relocate_candidate(log, domain);
}

/**
 * vc_log_victim - the chunk of a log that goes first, so that there is room
 * @log: the log; its pool is locked
 * @domain: where the room is needed
 *
 * What was missed once has little space; of the others that goes with which less is
 * lost, until most of what there is was read. Where nothing need be lost, but there is
 * no credit to copy what was read, that stays, and what was written is relocated: else
 * who writes much would lose all that it has read to what it has superseded.
 *
 * Return: NULL when none may go.
 */
struct vc_chunk *vc_log_victim(struct vc_log *log, enum vc_domain domain)
{
	struct vc_chunk *c = NULL, *written, *read;
	struct vc_pool *p = log->vol->pool;
	bool fits = vc_reads_fit(log);
	bool relocates = !fits && vc_log_can_relocate(log, domain);

	spin_lock_irq(&log->lock);
	if (vc_log_exceeds(log, domain, log->reads[VC_READS_SMALL].nr[domain],
			   VC_SMALL_PERCENT))
		c = vc_reads_oldest(log, VC_READS_SMALL, domain);
	written = vc_log_oldest_in(log, domain);
	read = fits ? vc_log_emptiest(log, domain) :
	       vc_reads_oldest(log, VC_READS_WARM, domain) ?:
	       vc_reads_oldest(log, VC_READS_MAIN, domain);
	if (read && !fits &&
	    vc_log_exceeds(log, domain, vc_log_reads_in(log, domain),
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
 * vc_log_any - any chunk of a log that may go, wherever it is
 * @log: the log; its pool is locked
 *
 * Return: NULL when none may.
 */
struct vc_chunk *vc_log_any(struct vc_log *log)
{
	struct vc_chunk *c;
	u32 kind;

	spin_lock_irq(&log->lock);
	c = vc_log_oldest(log);
	for (kind = 0; kind < VC_READS_KINDS && !c; kind++)
		c = vc_reads_oldest(log, kind, VC_SHARED) ?:
		    vc_reads_oldest(log, kind, VC_OWN);
	c = c ?: vc_log_warm(log, VC_SHARED) ?: vc_log_warm(log, VC_OWN);
	spin_unlock_irq(&log->lock);
	return c;
}

/**
 * vc_log_empty_chunk - find a reclaimable chunk of a log without live blocks
 * @log: the log; its pool is locked
 * @domain: the lanes that need space: of the chunk, or of a later chunk of the log
 *
 * Return: the chunk, or NULL if there is none.
 */
struct vc_chunk *vc_log_empty_chunk(struct vc_log *log, enum vc_domain domain)
{
	struct vc_chunk *c;
	u32 kind;

	spin_lock_irq(&log->lock);
	c = vc_log_written_in(log, domain) ? vc_log_oldest(log) : NULL;
	for (kind = 0; kind < VC_READS_KINDS; kind++) {
		if (c && !atomic_read(&c->live))
			break;
		c = vc_reads_oldest(log, kind, domain);
	}
	if (c && atomic_read(&c->live))
		c = NULL;
	spin_unlock_irq(&log->lock);
	return c;
}
