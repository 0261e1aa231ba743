// SPDX-License-Identifier: GPL-2.0-only
/*
 * dm-vcache: relocation: copying blocks of a written chunk to the end of its log.
 *
 * Then the chunk can be reclaimed without waiting for the origin. The price is a copy
 * inside the cache. So it is done only while that gains enough: see
 * vcache_relocate_candidate().
 *
 * DOC: Which chunk
 *
 * Blocks that are overwritten often, as those of a database's log, leave almost empty chunks
 * between chunks that stay full. So the chunk is the one with the best ratio of benefit and
 * cost (Rosenblum and Ousterhout, The design and implementation of a log-structured file system,
 * SOSP 1991, section 3.6): the space that is gained, multiplied by the age, divided by the cost.
 * The age is the number of newer chunks: blocks of a new chunk may soon be superseded by
 * themselves.
 *
 * Only dirty blocks of the oldest chunk are copied, because the origin has the clean ones. All
 * blocks of another one are, because older chunks may have older versions of them. They must
 * not become valid again, see rule 1 in ../core/format.h.
 *
 * DOC: Order
 *
 * A record with relocated data gets a new sequence number. That must not be higher than
 * the number of a record with newer data of the same block, nor of a discard of it. So
 * the record gets its number first. Then a block is left out if something newer of it may
 * have a lower number: if the index has something newer, if the buffer is writing
 * something newer out (see vcache_block_start(), which comes before that record gets its
 * number), or if a large write holds it (see large.c). While a discard is being recorded
 * nothing is relocated.
 *
 * A write with a higher number may complete first. Then the index has it, and
 * vcache_lookup_move() leaves the block alone.
 *
 * Until the relocated blocks are in the index, their new chunk is kept open or closed by
 * a reference in vcache_chunk.pending. Otherwise it could become clean, or be sealed again,
 * as if it were empty. No chunk is reclaimed meanwhile, because vcache_pool.lock is held.
 */
#include <linux/sort.h>

#include "internal.h"

/* A chunk that could not be read is not relocated for so long, jiffies. */
#define VC_UNREAD_DELAY (10 * HZ)

/* Is something newer of the block being written to the log, from the buffer or without a copy? */
static bool vc_relocate_is_stale(struct vcache_volume *v, u64 block)
{
	struct vcache_block *b;
	bool busy = false;
	unsigned long flags;

	rcu_read_lock();
	b = vcache_blocks_load(v->dev, block);
	if (b) {
		spin_lock_irqsave(&b->lock, flags);
		busy = b->state == VC_WRITEOUT || b->older;
		spin_unlock_irqrestore(&b->lock, flags);
	}
	rcu_read_unlock();
	return busy || vcache_range_held(&v->large, block, block);
}

/* Add a block to the record, if it is still valid, and dirty unless @clean. */
static void vc_relocate_add(struct vcache_record *rec, struct vcache_round_cell *c,
			    bool clean, struct page *page, u32 sum)
{
	struct vcache_volume *v = rec->log->vol;
	struct vcache_entry e = { .block = c->block, .arg = sum };

	/* Look in the buffer first: what has left it is in the index already. */
	if (vc_relocate_is_stale(v, c->block)) {
		VCACHE_PROBE("newer version of a relocated block in flight");
		c->mask = 0;
		return;
	}
	c->mask = vcache_lookup_pin(v, c->cell, c->block, clean);
	if (!c->mask)
		return;
	/* The lock of the pool keeps the chunk from being reclaimed. */
	vcache_lookup_done(v->pool, c->cell);
	e.mask = c->mask;
	e.place = rec->info.at + 1 + rec->info.data++;
	vcache_record_add(rec, &e);
	__bio_add_page(rec->bio, page, VC_BLOCK_SIZE, 0);
}

/*
 * Make and send a record with @n cells that have been read. Return: NULL if it cannot be
 * done now, or if none of them is to be relocated any more. In the second case the next
 * try does not find them.
 */
static struct vcache_record *vc_relocate_send(struct vcache_log *log, struct vcache_round *r,
					      u32 from, u32 n, const u32 *sum,
					      struct completion *done)
{
	struct vcache_pool *p = log->vol->pool;
	struct vcache_record *rec = vcache_record_make(log, NULL, GFP_NOIO);
	u32 i;

	rec->relocate = true;
	rec->done = done;
	rec->bio = bio_alloc_bioset(p->bdev, n + 1, vcache_append_flags(p),
				    GFP_NOIO, &p->bs);
	__bio_add_page(rec->bio, rec->head, VC_BLOCK_SIZE, 0);
	rec->info.seq = atomic64_inc_return(&p->seq);
	if (!atomic_read(&log->vol->discards)) {
		for (i = 0; i < n; i++)
			vc_relocate_add(rec, &r->cell[from + i], r->clean,
					r->own.page[i], sum[i]);
	}
	if (!rec->info.data) {
		bio_put(rec->bio);
		vcache_record_free(p, rec);
		return NULL;
	}
	vcache_record_send(rec);
	return rec;
}

/* The record is durable: the index gets the new places of its blocks. */
static void vc_relocate_apply(const struct vcache_record *rec,
			      const struct vcache_round_cell *c, u32 n)
{
	struct vcache_volume *v = rec->log->vol;
	u32 to = rec->info.chunk * v->pool->g.chunk_blocks + rec->info.at;

	for (; n; n--, c++) {
		if (c->mask)
			vcache_lookup_move(v, c->cell, ++to, c->mask);
	}
}

/* The cache device has failed a request: do not try the same again at once. */
static u32 vc_relocate_failed(struct vcache_log *log)
{
	WRITE_ONCE(log->blocked_until, jiffies + VC_BLOCKED_DELAY);
	return 0;
}

/* The cache device could not read a chunk: do not try to relocate it for a while. */
static u32 vc_relocate_unread(struct vcache_log *log, struct vcache_chunk *c)
{
	VCACHE_PROBE("chunk to relocate cannot be read");
	spin_lock_irq(&log->lock);
	c->unread_until = (jiffies + VC_UNREAD_DELAY) ?: 1;
	spin_unlock_irq(&log->lock);
	return 0;
}

/* Count the cells that the next record can have: 0 without a chunk, see vcache_log_space(). */
static u32 vc_relocate_space(struct vcache_log *log)
{
	u32 n;

	mutex_lock(&log->append);
	n = vcache_log_space(log, VC_APPEND_RELOCATE);
	mutex_unlock(&log->append);
	return n;
}

/*
 * Relocate one record of cells, from the @from-th one on. Return: how many cells were
 * dealt with; 0 if it cannot be done now.
 */
static u32 vc_relocate_window(struct vcache_log *log, struct vcache_round *r, u32 from)
{
	struct vcache_pool *p = log->vol->pool;
	u32 i, n = min(r->nr - from, VC_WINDOW), sum[VC_WINDOW];
	DECLARE_COMPLETION_ONSTACK(done);
	struct vcache_record *rec = NULL;

	/* Do not read what cannot be written. */
	n = min(n, vc_relocate_space(log));
	if (!n)
		return 0;
	if (vcache_window_read(&r->own, p, &r->cell[from], n))
		return vc_relocate_unread(log, vcache_cell_chunk(p, r->cell[from].cell));
	for (i = 0; i < n; i++) {
		sum[i] = vcache_crc32c(page_address(r->own.page[i]), VC_BLOCK_SIZE);
		cond_resched();
	}
	mutex_lock(&log->append);
	n = min(n, vcache_log_space(log, VC_APPEND_RELOCATE));
	if (n)
		rec = vc_relocate_send(log, r, from, n, sum, &done);
	mutex_unlock(&log->append);
	if (!rec)
		return 0;
	wait_for_completion_io(&done);
	if (READ_ONCE(log->open) != rec->chunk)
		VCACHE_PROBE("log wrapped while relocating");
	if (rec->status) {
		n = vc_relocate_failed(log);
	} else {
		vc_relocate_apply(rec, &r->cell[from], n);
		atomic64_add(rec->info.data, &p->relocated);
	}
	vcache_chunk_put_pending(log, rec->chunk);
	vcache_record_free(p, rec);
	return n;
}

/* Is a chunk the oldest written chunk of its log? The pool is locked, so it stays so. */
static bool vc_chunk_is_oldest(struct vcache_log *log, const struct vcache_chunk *c)
{
	bool oldest;

	lockdep_assert_held(&log->vol->pool->lock);
	spin_lock_irq(&log->lock);
	oldest = list_first_entry(&log->chunks, struct vcache_chunk, node) == c;
	spin_unlock_irq(&log->lock);
	return oldest;
}

/**
 * vcache_relocate_chunk - relocate blocks of a chunk to the end of its log
 * @log: the log, of a volume in use; its pool is locked
 * @c: a written chunk of it, sealed
 *
 * Return: true if nothing is left to relocate; else try again later.
 */
bool vcache_relocate_chunk(struct vcache_log *log, struct vcache_chunk *c)
{
	struct vcache_pool *p = log->vol->pool;
	struct vcache_round *r = p->relocate_round;
	u32 from, n = 1;

	lockdep_assert_held(&log->vol->pool->lock);
	r->clean = !vc_chunk_is_oldest(log, c);
	if (r->clean)
		VCACHE_PROBE("chunk relocated before an older one");
	r->nr = 0;
	vcache_round_note(r, p, c);
	sort(r->cell, r->nr, sizeof(r->cell[0]), vcache_round_cmp, NULL);
	for (from = 0; from < r->nr && n; from += n)
		n = vc_relocate_window(log, r, from);
	return !atomic_read(r->clean ? &c->live : &c->dirty);
}

/* Must another log of the volume give up chunks before the chunks of this one can be freed? */
static bool vc_volume_is_blocked(const struct vcache_log *log)
{
	const struct vcache_log *other;

	list_for_each_entry(other, &log->vol->logs, node) {
		if (other != log && other->unsealed)
			return true;
	}
	return false;
}

/* What relocation of @blocks blocks writes: their records have heads, too. */
static u64 vc_relocate_cost(u64 blocks)
{
	return blocks + DIV_ROUND_UP_ULL(blocks, VC_WINDOW);
}

/*
 * At most how many eighths of what is relocated may be blocks to copy? Six: three chunks are
 * written for each chunk gained. Seven, if a writer waits for a chunk: the SSD can write much
 * more than a slow origin.
 */
static u32 vc_log_most_eighths(const struct vcache_log *log)
{
	return READ_ONCE(log->starved) ? 7 : 6;
}

/*
 * Would relocation of the oldest chunks, one after the other, gain a chunk? It does if few
 * enough cells in written chunks are dirty. A log with few chunks must also have one chunk less
 * afterwards, with the heads of its records, and two blocks more for each chunk, where records
 * are cut. Otherwise its blocks would be copied to and fro for ever.
 */
static bool vc_log_gains(const struct vcache_log *log, u64 dirty)
{
	u64 capacity = vcache_chunk_capacity(&log->vol->pool->g);

	lockdep_assert_held(&log->lock);
	return dirty * 8 <= log->nr * capacity * vc_log_most_eighths(log) &&
	       vc_relocate_cost(dirty) + 2 * log->nr <= (log->nr - 1) * capacity;
}

/*
 * May a chunk be relocated before older ones, and would that gain enough? Records
 * of discards cannot be relocated. Nor can a chunk with failed records, since they may be on
 * the device. An empty chunk needs no relocation, see vcache_log_empty_chunk().
 */
static bool vc_chunk_gains(const struct vcache_chunk *c, u32 live)
{
	u32 capacity = vcache_chunk_capacity(&c->log->vol->pool->g);

	return c->state == VC_CHUNK_SEALED && !c->clean && !c->failed && !c->bad &&
	       !c->discards && live &&
	       live * 8 <= capacity * vc_log_most_eighths(c->log) &&
	       vc_relocate_cost(live) + 2 < capacity;
}

/* Benefit by cost of a chunk with @cost blocks to copy, which is older than @age others. */
static u64 vc_relocate_score(const struct vcache_pool *p, u32 cost, u32 age)
{
	u32 capacity = vcache_chunk_capacity(&p->g);

	return div_u64((u64)(capacity - cost) * age * 1024, capacity + cost);
}

/* May the oldest chunk be relocated? */
static bool vc_oldest_gains(const struct vcache_log *log, const struct vcache_chunk *c,
			    enum vcache_domain domain, u64 dirty)
{
	return c->state == VC_CHUNK_SEALED && vcache_log_frees_space(log, c, domain) &&
	       atomic_read(&c->dirty) && vc_log_gains(log, dirty);
}

/*
 * Find the chunk with the best score. @dirty blocks of the log are dirty. There is none while an
 * empty chunk has not been reclaimed, because a reader or a seal delays that: otherwise the
 * chunks reserved for relocation would be used up, and none would be free for a long time.
 */
static struct vcache_chunk *vc_relocate_best(struct vcache_log *log, enum vcache_domain domain,
					     u64 dirty)
{
	struct vcache_chunk *c, *best = NULL, *first;
	struct vcache_pool *p = log->vol->pool;
	u64 score, most = 0;
	u32 age = log->nr;

	lockdep_assert_held(&log->lock);
	first = list_first_entry_or_null(&log->chunks, struct vcache_chunk, node);
	list_for_each_entry(c, &log->chunks, node) {
		u32 live = atomic_read(&c->live);

		age--;
		if (vcache_chunk_droppable(c))
			return NULL;
		if (vcache_chunk_is_unread(c))
			continue;
		if (c == first ? !vc_oldest_gains(log, c, domain, dirty) :
		    vcache_chunk_domain(c) != domain || !vc_chunk_gains(c, live))
			continue;
		score = vc_relocate_score(p, c == first ? atomic_read(&c->dirty) : live,
					  age);
		if (!best || score > most) {
			best = c;
			most = score;
		}
	}
	return best;
}

/*
 * Is there a chunk to copy to? Whatever changes that wakes up vcache_space_work(): a chunk
 * becomes free, or is sealed. An open chunk that is full is closed by the first try.
 */
static bool vc_log_has_room(const struct vcache_log *log)
{
	const struct vcache_pool *p = log->vol->pool;

	lockdep_assert_held(&log->lock);
	if (READ_ONCE(log->open))
		return true;
	if (list_empty(&log->seals))
		return false;
	return log->spare || (log->lanes && vcache_lanes_free(p, log->lanes)) ||
	       (READ_ONCE(p->nfree) && READ_ONCE(log->most));
}

/**
 * vcache_relocate_candidate - find the chunk of a log that is relocated next
 * @log: the log
 * @domain: the lanes that need space
 *
 * There is none if relocation would not gain a chunk, for a while after the cache device has
 * failed a relocation, and while there is no chunk to copy to.
 *
 * Return: the chunk, or NULL.
 */
struct vcache_chunk *vcache_relocate_candidate(struct vcache_log *log, enum vcache_domain domain)
{
	struct vcache_volume *v = log->vol;
	struct vcache_chunk *best = NULL;

	if (READ_ONCE(v->stopped) || READ_ONCE(v->drain) ||
	    vc_volume_is_blocked(log) || vcache_log_is_blocked(log) ||
	    v->pool->state != VC_POOL_OK || !vcache_log_written_in(log, domain))
		return NULL;
	spin_lock_irq(&log->lock);
	if (vc_log_has_room(log))
		best = vc_relocate_best(log, domain, atomic_read(&log->dirty_cells));
	spin_unlock_irq(&log->lock);
	return best;
}
