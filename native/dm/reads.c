// SPDX-License-Identifier: GPL-2.0-only
/*
 * dm-vcache: chunks of reads.
 *
 * They are filled one after the other, as those of the log are, but have no
 * records: the index alone knows what is in them. The end of a chunk, where a
 * seal would be, is left free.
 *
 * A log has two kinds of them: for what it has missed once, where that is worth it
 * (../core/level.h), and for what it has missed twice. Those of the first kind are
 * few, and go first.
 *
 * When a chunk goes, what was hot in it is kept (../core/replace.h): copied to the
 * open chunk of the second kind. It is only half as hot from then on: what is not
 * read again goes the next time. What is kept though it was not hot costs copies
 * all the same, and so only as many blocks are as reads of the tag pay for, its
 * writes a little, and some at first: who never reads has no use for them.
 */
#include "reads.h"
#include "round.h"

/**
 * vc_reads_settled - something on its way to a chunk has arrived, or the chunk
 *	was closed
 * @log: its log
 * @c: the chunk
 */
void vc_reads_settled(struct vc_log *log, struct vc_chunk *c)
{
	unsigned long flags;

	if (!atomic_dec_and_test(&c->pending))
		return;
	spin_lock_irqsave(&log->lock, flags);
	c->state = VC_CHUNK_SEALED;
	spin_unlock_irqrestore(&log->lock, flags);
	if (READ_ONCE(log->vol->pool->short_of_space))
		vc_space_kick(log->vol->pool);
}

/* Called with @log->fill held. */
static void vc_reads_shut(struct vc_log *log, struct vc_reads *of)
{
	struct vc_chunk *c = of->open;

	of->open = NULL;
	if (c)
		vc_reads_settled(log, c);
}

/**
 * vc_reads_close - fill the open chunks no more
 * @log: the log
 */
void vc_reads_close(struct vc_log *log)
{
	u32 i;

	mutex_lock(&log->fill);
	for (i = 0; i < VC_READS_KINDS; i++)
		vc_reads_shut(log, &log->reads[i]);
	mutex_unlock(&log->fill);
}

static void vc_reads_open(struct vc_log *log, struct vc_reads *of,
			  enum vc_take take)
{
	struct vc_pool *p = log->vol->pool;
	struct vc_chunk *c;

	spin_lock_irq(&log->lock);
	c = vc_chunk_take(p, log, take);
	if (c) {
		c->clean = true;
		c->reads = of;
		vc_chunk_open(log, c);
		list_add_tail(&c->node, &of->chunks);
		of->nr++;
	}
	spin_unlock_irq(&log->lock);
	of->open = c;
	of->filled = 0;
	vc_space_kick(p);
}

/**
 * vc_reads_space - how many blocks has an open chunk of reads left?
 * @log: the log, its fill lock is held
 * @kind: which of its two
 * @least: when it has fewer it is closed, and another one opened
 * @take: what for
 *
 * Return: 0 when there is none.
 */
u32 vc_reads_space(struct vc_log *log, enum vc_reads_kind kind, u32 least,
		   enum vc_take take)
{
	u32 room = vc_log_room(&log->vol->pool->g);
	struct vc_reads *of = &log->reads[kind];

	if (of->open && of->filled + least > room)
		vc_reads_shut(log, of);
	if (!of->open)
		vc_reads_open(log, of, take);
	return of->open ? room - of->filled : 0;
}

/**
 * vc_reads_take - use cells of an open chunk of reads
 * @log: the log, its fill lock is held; vc_reads_space() said that there are
 * @kind: which of its two
 * @n: how many
 *
 * Return: the first one; vc_reads_settled() is due when all are written.
 */
u32 vc_reads_take(struct vc_log *log, enum vc_reads_kind kind, u32 n)
{
	struct vc_reads *of = &log->reads[kind];
	struct vc_pool *p = log->vol->pool;
	u32 cell = vc_chunk_nr(p, of->open) * p->g.chunk_blocks + of->filled;

	of->filled += n;
	atomic_inc(&of->open->pending);
	return cell;
}

/**
 * vc_reads_fit - is there so much room in what a log has that nothing need be lost
 *	with a chunk that goes?
 * @log: the log
 */
bool vc_reads_fit(struct vc_log *log)
{
	u32 room = vc_log_room(&log->vol->pool->g);

	return vc_keep_any(atomic_read(&log->live),
			   (u64)vc_log_chunks(log) * room,
			   READ_ONCE(log->credit), room);
}

/* Count the whole blocks of a chunk by their heat. */
static void vc_reads_count(struct vc_pool *p, u32 cell, u32 *count)
{
	u32 i;

	for (i = 0; i < vc_log_room(&p->g); i++) {
		if (vc_cell_mask(&p->ix, cell + i) == VC_MASK_ALL)
			count[READ_ONCE(p->heat[cell + i])]++;
	}
}

/* Note the hottest @limit cells of a chunk, of those that are hot, in order. */
static void vc_reads_note(struct vc_round *r, struct vc_pool *p, u32 cell,
			  u32 hot, u32 limit)
{
	u32 count[VC_HEAT_MAX + 1] = {}, i;
	struct vc_keep keep;

	vc_reads_count(p, cell, count);
	keep = vc_keep_choose(count, hot, limit);
	r->nr = 0;
	for (i = 0; i < vc_log_room(&p->g); i++) {
		if (vc_cell_mask(&p->ix, cell + i) == VC_MASK_ALL &&
		    vc_keep_wants(&keep, READ_ONCE(p->heat[cell + i])))
			r->cell[r->nr++].cell = cell + i;
	}
}

/* Read noted cells, and write them to others. Return: 0 or an error. */
static int vc_reads_move(struct vc_pool *p, struct vc_round *r, u32 from,
			 u32 n, u32 to)
{
	struct bio *bio;
	u32 i;
	int error = vc_round_read(r, p, &r->cell[from], n);

	if (error)
		return error;
	vc_round_begin(r);
	bio = vc_round_bio(r, p, p->bdev, REQ_OP_WRITE, n,
			   (u64)to * VC_BLOCK_SECTORS);
	for (i = 0; i < n; i++)
		__bio_add_page(bio, r->page[i], VC_BLOCK_SIZE, 0);
	submit_bio_noacct(bio);
	return vc_round_wait(r);
}

/*
 * Copy noted cells from the one at @from on, as many as go at a time. Return: how
 * many; 0 when that cannot be done now.
 */
static u32 vc_reads_copy(struct vc_log *log, struct vc_round *r, u32 from)
{
	struct vc_pool *p = log->vol->pool;
	u32 n = min(r->nr - from, VC_WINDOW), to = 0, kept = 0, i;
	struct vc_chunk *c;
	int error;

	mutex_lock(&log->fill);
	n = min(n, vc_reads_space(log, VC_READS_MAIN, 1, VC_TAKE_KEEP));
	c = log->reads[VC_READS_MAIN].open;
	if (n)
		to = vc_reads_take(log, VC_READS_MAIN, n);
	mutex_unlock(&log->fill);
	if (!n)
		return 0;
	error = vc_reads_move(p, r, from, n, to);
	for (i = 0; i < n && !error; i++) {
		if (vc_lookup_keep(log->vol, r->cell[from + i].cell, to + i))
			kept++;
	}
	atomic64_add(kept, &p->kept);
	WRITE_ONCE(log->credit, log->credit -
		   min(log->credit, kept * VC_CREDIT_KEEP));
	vc_reads_settled(log, c);
	return error ? 0 : n;
}

/**
 * vc_reads_keep - copy what is hot in a chunk that is to go
 * @c: the chunk, clean and dead on the device, but not trimmed yet; its pool is
 *	locked
 *
 * Whatever cannot be copied is read from the origin the next time.
 */
void vc_reads_keep(struct vc_chunk *c)
{
	struct vc_log *log = c->log;
	struct vc_pool *p = log->vol->pool;
	u32 cell = vc_chunk_nr(p, c) * p->g.chunk_blocks, from, n = 1;
	struct vc_round *r = p->carrying;
	u32 hot = c->reads == &log->reads[VC_READS_MAIN] ? VC_HEAT_MAIN :
							   VC_HEAT_NEW;

	if (READ_ONCE(log->vol->stopped) || p->state != VC_POOL_OK)
		return;
	vc_reads_note(r, p, cell, vc_reads_fit(log) ? 0 : hot,
		      vc_keep_most(vc_log_room(&p->g)));
	for (from = 0; from < r->nr && n; from += n)
		n = vc_reads_copy(log, r, from);
}
