// SPDX-License-Identifier: GPL-2.0-only
/*
 * dm-vcache: relocating what still counts in the oldest chunk of a log forward,
 * to its end.
 *
 * Then the chunk can go, without having to wait for the origin. That costs a
 * copy inside the cache, so it is worth it only while enough of what the log
 * has is superseded or on the origin: see vc_relocate_candidate().
 *
 * DOC: Order
 *
 * A record with old data gets a new number. It must not come after one with
 * newer data of the same block, nor after a discard of it. So it gets its
 * number first, and then a block is left out if something newer may have a
 * lower number: the index has it already, or it is on its way in the buffer
 * (see vc_block_start(), which comes before the number of its record). While
 * discards are being noted nothing is relocated.
 *
 * Whatever gets a higher number may complete first. Then the index has it, and
 * vc_lookup_move() leaves that alone. Until then the chunk that the record is
 * in stays open or closed: it could become clean, or be sealed again, as if it
 * had nothing. No chunk is reclaimed meanwhile, because the lock of the pool is held.
 */
#include <linux/sort.h>

#include "round.h"

/* Is something newer of the block on its way to the log? */
static bool vc_relocate_is_stale(struct vc_volume *v, u64 block)
{
	struct vc_block *b;
	bool busy = false;
	unsigned long flags;

	rcu_read_lock();
	b = xa_load(&v->dev->blocks, block);
	if (b) {
		spin_lock_irqsave(&b->lock, flags);
		busy = b->state == VC_WRITEOUT || b->older;
		spin_unlock_irqrestore(&b->lock, flags);
	}
	rcu_read_unlock();
	return busy;
}

/* Add a cell to the record, if it still has to last. */
static void vc_relocate_add(struct vc_record *rec, struct vc_round_cell *c,
			    struct page *page, u32 sum)
{
	struct vc_volume *v = rec->log->vol;
	struct vc_entry e = { .block = c->block, .arg = sum };

	/* The buffer first: what leaves it is in the index already. */
	if (vc_relocate_is_stale(v, c->block)) {
		c->mask = 0;
		return;
	}
	c->mask = vc_lookup_pin(v, c->cell, c->block);
	if (!c->mask)
		return;
	/* The lock of the pool keeps it as well. */
	vc_lookup_done(v->pool, c->cell);
	e.mask = c->mask;
	e.place = rec->info.at + 1 + rec->info.data++;
	vc_record_add(rec, &e);
	__bio_add_page(rec->bio, page, VC_BLOCK_SIZE, 0);
}

/*
 * Make and send a record with @n cells that have been read. NULL: not now, or
 * none of them has to last any more; then the next try does not find them.
 */
static struct vc_record *vc_relocate_send(struct vc_log *log, struct vc_round *r,
					  u32 from, u32 n, const u32 *sum,
					  struct completion *done)
{
	struct vc_pool *p = log->vol->pool;
	struct vc_record *rec = vc_record_make(log, NULL);
	u32 i;

	rec->relocate = true;
	rec->done = done;
	rec->bio = bio_alloc_bioset(p->bdev, n + 1, vc_append_flags(p),
				    GFP_NOIO, &p->bs);
	__bio_add_page(rec->bio, rec->head, VC_BLOCK_SIZE, 0);
	rec->info.seq = atomic64_inc_return(&p->seq);
	if (!atomic_read(&log->vol->discards)) {
		for (i = 0; i < n; i++)
			vc_relocate_add(rec, &r->cell[from + i], r->page[i],
					sum[i]);
	}
	if (!rec->info.data) {
		bio_put(rec->bio);
		vc_record_free(p, rec);
		return NULL;
	}
	vc_record_send(rec);
	return rec;
}

/* The record is durable: its blocks are where it says. */
static void vc_relocate_apply(const struct vc_record *rec,
			      const struct vc_round_cell *c, u32 n)
{
	struct vc_volume *v = rec->log->vol;
	u32 to = rec->info.chunk * v->pool->g.chunk_blocks + rec->info.at;

	for (; n; n--, c++) {
		if (c->mask)
			vc_lookup_move(v, c->cell, ++to, c->mask);
	}
}

/*
 * Carry a record full, from the @from-th cell on. Return: cells dealt with;
 * 0: it cannot be done now.
 */
static u32 vc_relocate_window(struct vc_log *log, struct vc_round *r, u32 from)
{
	struct vc_pool *p = log->vol->pool;
	u32 i, n = min(r->nr - from, VC_WINDOW), sum[VC_WINDOW];
	DECLARE_COMPLETION_ONSTACK(done);
	struct vc_record *rec = NULL;

	if (vc_round_read(r, p, &r->cell[from], n))
		return 0;
	for (i = 0; i < n; i++) {
		sum[i] = vc_crc32c(page_address(r->page[i]), VC_BLOCK_SIZE);
		cond_resched();
	}
	mutex_lock(&log->append);
	n = min(n, vc_log_space(log, VC_APPEND_RELOCATE));
	if (n)
		rec = vc_relocate_send(log, r, from, n, sum, &done);
	mutex_unlock(&log->append);
	if (!rec)
		return 0;
	wait_for_completion_io(&done);
	if (rec->status) {
		n = 0;
	} else {
		vc_relocate_apply(rec, &r->cell[from], n);
		atomic64_add(rec->info.data, &p->relocated);
	}
	vc_chunk_put_pending(log, rec->chunk);
	vc_record_free(p, rec);
	return n;
}

/**
 * vc_relocate_chunk - relocate what counts in a chunk to the end of its log
 * @log: the log, of a volume in use; its pool is locked
 * @c: its oldest chunk, sealed
 *
 * Return: nothing counts in it any more; else it may be tried again.
 */
bool vc_relocate_chunk(struct vc_log *log, struct vc_chunk *c)
{
	struct vc_pool *p = log->vol->pool;
	struct vc_round *r = p->relocate_round;
	u32 from, n = 1;

	r->nr = 0;
	vc_round_note(r, p, c);
	sort(r->cell, r->nr, sizeof(r->cell[0]), vc_round_cmp, NULL);
	for (from = 0; from < r->nr && n; from += n)
		n = vc_relocate_window(log, r, from);
	return !atomic_read(&c->dirty);
}

/**
 * vc_relocate_candidate - the oldest chunk of a log, if relocation pays
 * @log: the log
 * @domain: where there has to be room
 *
 * Where three quarters of what the log has are dirty, a chunk that is gained costs
 * three that are copied.
 *
 * Return: NULL when it does not.
 */
struct vc_chunk *vc_relocate_candidate(struct vc_log *log, enum vc_domain domain)
{
	struct vc_volume *v = log->vol;
	struct vc_chunk *c, *first;
	u64 dirty = 0;

	if (READ_ONCE(v->stopped) || READ_ONCE(v->drain) ||
	    v->pool->state != VC_POOL_OK || !vc_log_written_in(log, domain))
		return NULL;
	spin_lock_irq(&log->lock);
	list_for_each_entry(c, &log->chunks, node)
		dirty += atomic_read(&c->dirty);
	first = list_first_entry_or_null(&log->chunks, struct vc_chunk, node);
	if (first && (first->state != VC_CHUNK_SEALED ||
		      !vc_log_frees_space(log, first, domain) ||
		      !atomic_read(&first->dirty) ||
		      dirty * 4 > (u64)log->nr * 3 *
				 vc_chunk_capacity(&v->pool->g)))
		first = NULL;
	spin_unlock_irq(&log->lock);
	return first;
}
