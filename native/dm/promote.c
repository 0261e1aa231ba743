// SPDX-License-Identifier: GPL-2.0-only
/*
 * dm-vcache: promotion: what was read from the origin, and is read again, goes
 * to the cache.
 *
 * The origin is read once, into memory of our own: the pages of the request may
 * change while it is on its way, and what somebody scribbles into his own
 * buffer must not be what others read later. When the data is there the request
 * gets its copy and is complete; then the data is written to a chunk of reads,
 * and when it is there the index says so. Nothing waits for a promotion, and
 * whatever is in its way ends it: no memory, no chunk, a write.
 *
 * While the tag has room once is enough. Then whether it has to be missed twice is
 * found out by what comes back, see ../core/ghost.h and ../core/level.h. What is
 * part of a long sequential read is not promoted: an origin is good at that.
 *
 * DOC: Order
 *
 * A promoted block must be what the origin has, and what the origin has must
 * be the newest there is but for the buffer. The buffer may have something
 * newer at any time: it is looked at before the index, and what leaves it for
 * the log supersedes what was promoted. But a write that came after the origin
 * was read may have left the buffer, the log and the cache when the promotion
 * comes to its end. So
 *
 * - a promotion is counted in vc_volume.promoting, then notes how many changes
 *   there were to its blocks, then sees that neither buffer nor index has
 *   anything of them, then reads the origin;
 * - a write that has entered the buffer, and a request past the buffer that the
 *   origin has answered, count a change if anything is being promoted; the
 *   latter then takes what was promoted before that out of the cache.
 *
 * Then a promotion whose changes are what they were has missed none.
 */
#include <linux/slab.h>

#include "promote.h"

/* Promotions of a volume on their way: 8 MiB at most. */
#define VC_PROMOTIONS_MAX	64

/* A sequential read of so many sectors is not promoted any more: 1 MiB. */
#define VC_STREAM_LONG		2048U

/* What the origin is told of a read, beside that it is one. */
#define VC_READ_FLAGS (REQ_SYNC | REQ_META | REQ_PRIO | REQ_IDLE | REQ_RAHEAD)

/**
 * vc_promote_enter - count a promotion, so that the volume stays as it is
 * @v: the volume
 *
 * Return: false when it is stopped: then there is none, and neither its origin nor
 * who uses it may be looked at.
 */
bool vc_promote_enter(struct vc_volume *v)
{
	atomic_inc(&v->promoting);
	smp_mb__after_atomic(); /* pairs with vc_volume_stop(), vc_lookup_change() */
	if (!READ_ONCE(v->stopped))
		return true;
	vc_promote_leave(v);
	return false;
}

/**
 * vc_promote_leave - one promotion less
 * @v: the volume
 */
void vc_promote_leave(struct vc_volume *v)
{
	rcu_read_lock(); /* vc_volume_stop() waits for who is in here */
	if (atomic_dec_and_test(&v->promoting) && READ_ONCE(v->stopped))
		wake_up(&v->idle);
	rcu_read_unlock();
}

/**
 * vc_promotion_free - a promotion has come to its end, whatever that is
 * @pr: the promotion
 */
void vc_promotion_free(struct vc_promotion *pr)
{
	struct vc_log *log = pr->log;
	struct vc_volume *v = log->vol;
	u32 i;

	if (pr->cell != VC_CELL_NONE)
		vc_reads_put_pending(log, vc_cell_chunk(v->pool, pr->cell));
	if (pr->bio)
		bio_put(pr->bio);
	for (i = 0; i < pr->n && pr->part[i].page; i++)
		__free_page(pr->part[i].page);
	if (pr->ahead)
		vc_prefetch_ended(log, pr->n);
	kfree(pr);
	vc_promote_leave(v);
}

/* Is the read part of a long sequential one? */
static bool vc_promote_streams(struct vc_log *log, const struct bio *bio)
{
	struct vc_stream *s = NULL;
	unsigned int i;
	bool is_long;

	spin_lock(&log->stream_lock);
	for (i = 0; i < VC_STREAMS; i++) {
		if (log->stream[i].next == bio->bi_iter.bi_sector)
			s = &log->stream[i];
	}
	if (!s) {
		s = &log->stream[log->stream_next++ % VC_STREAMS];
		s->run = 0;
	}
	s->run += bio_sectors(bio);
	s->next = bio_end_sector((struct bio *)bio);
	is_long = s->run > VC_STREAM_LONG;
	spin_unlock(&log->stream_lock);
	return is_long;
}

/* Is there room in what a log can have, so that what is missed goes there at once? */
static bool vc_promote_fits(struct vc_log *log)
{
	u32 chunks = max(vc_log_chunks(log), vc_log_part(log));

	return vc_fits(atomic_read(&log->live),
		       min_t(u64, chunks, vc_log_most(log)) *
		       vc_chunk_capacity(&log->vol->pool->g));
}

/*
 * Where does a read go that was missed? To what was missed twice, if at least half
 * of it was, not long ago, or there is room. VC_READS_KINDS: nowhere.
 */
static enum vc_reads_kind vc_promote_kind(struct vc_log *log, u64 block, u32 n)
{
	struct vc_pool *p = log->vol->pool;
	u32 cells = max(vc_log_part(log), 1U) * p->g.chunk_blocks;
	u32 hour = vc_ghost_hour(READ_ONCE(log->misses), cells);
	u32 seen = 0, soon = 0, age, i;

	for (i = 0; i < n; i++) {
		age = vc_ghost_meet(&p->ghosts, log->vol->slot, block + i,
				    hour);
		seen += age < VC_GHOST_WINDOW;
		soon += !age;
	}
	/* Time passes with what it has to remember. */
	WRITE_ONCE(log->misses, READ_ONCE(log->misses) + n - seen);
	vc_level_miss(&log->level, n - seen, soon, cells);
	if (seen * 2 >= n || vc_promote_fits(log))
		return VC_READS_MAIN;
	return READ_ONCE(log->level.once) ? VC_READS_SMALL : VC_READS_KINDS;
}

/**
 * vc_promote_begin - note what there was of changes, and see that only the origin
 *	has the blocks
 * @pr: the promotion, counted before
 *
 * In this order: see "Order".
 *
 * Return: false when somebody else has something of them.
 */
bool vc_promote_begin(struct vc_promotion *pr)
{
	struct vc_volume *v = pr->log->vol;
	unsigned long index = pr->block;
	u32 i;

	for (i = 0; i < pr->n; i++)
		pr->part[i].changes = vc_lookup_changes(v, pr->block + i);
	smp_mb(); /* a write that is not found from here on, comes later */
	if (xa_find(&v->dev->blocks, &index, pr->block + pr->n - 1, XA_PRESENT))
		return false;
	return !vc_lookup_any(v, pr->block, pr->n);
}

/* The request gets its data. */
static void vc_promote_copy(struct vc_promotion *pr)
{
	struct bvec_iter from = {
		.bi_size = pr->n * VC_BLOCK_SIZE,
	}, to = pr->iter;
	sector_t skip = pr->iter.bi_sector - pr->block * VC_BLOCK_SECTORS;

	bio_advance_iter(pr->bio, &from, skip << SECTOR_SHIFT);
	while (to.bi_size) {
		struct bio_vec f = bio_iter_iovec(pr->bio, from);
		struct bio_vec t = bio_iter_iovec(pr->user, to);
		unsigned int len = min(f.bv_len, t.bv_len);

		t.bv_len = len;
		memcpy_to_bvec(&t, page_address(f.bv_page) + f.bv_offset);
		bio_advance_iter_single(pr->bio, &from, len);
		bio_advance_iter_single(pr->user, &to, len);
	}
}

/* The origin has answered. */
static void vc_promote_read_end(struct bio *bio)
{
	struct vc_promotion *pr = bio->bi_private;
	struct vc_log *log = pr->log;
	blk_status_t status = bio->bi_status;
	unsigned long flags;

	if (pr->user) {
		if (!status)
			vc_promote_copy(pr);
		pr->user->bi_status = status;
		bio_endio(pr->user);
		pr->user = NULL;
	}
	if (status) {
		vc_promotion_free(pr);
		return;
	}
	spin_lock_irqsave(&log->lock, flags);
	list_add_tail(&pr->node, &log->promotions);
	spin_unlock_irqrestore(&log->lock, flags);
	queue_work(log->vol->pool->wq, &log->promote_work);
}

/* Pages and a request to read them with. Return: false without memory. */
static bool vc_promotion_fill(struct vc_promotion *pr, blk_opf_t flags)
{
	struct vc_volume *v = pr->log->vol;
	u32 i;

	pr->bio = bio_alloc_bioset(v->origin, pr->n, REQ_OP_READ | flags,
				   GFP_NOWAIT | __GFP_NOWARN, &v->pool->bs);
	if (!pr->bio)
		return false;
	pr->bio->bi_iter.bi_sector = pr->block * VC_BLOCK_SECTORS;
	pr->bio->bi_private = pr;
	pr->bio->bi_end_io = vc_promote_read_end;
	for (i = 0; i < pr->n; i++) {
		struct page *page = alloc_page(GFP_NOWAIT | __GFP_NOWARN);

		if (!page)
			return false;
		pr->part[i].page = page;
		__bio_add_page(pr->bio, page, VC_BLOCK_SIZE, 0);
	}
	return true;
}

/**
 * vc_promotion_make - have memory for a promotion
 * @log: the log
 * @block: the first block
 * @n: how many
 * @flags: what the origin is told of the read
 *
 * Return: a promotion of nobody's request; NULL without memory, or when the volume
 * is stopped.
 */
struct vc_promotion *vc_promotion_make(struct vc_log *log, u64 block, u32 n,
				       blk_opf_t flags)
{
	struct vc_promotion *pr;

	pr = kzalloc(struct_size(pr, part, n), GFP_NOWAIT | __GFP_NOWARN);
	if (!pr)
		return NULL;
	pr->log = log;
	pr->block = block;
	pr->n = n;
	pr->cell = VC_CELL_NONE;
	if (!vc_promote_enter(log->vol)) {
		kfree(pr);
		return NULL;
	}
	if (vc_promotion_fill(pr, flags))
		return pr;
	vc_promotion_free(pr);
	return NULL;
}

/**
 * vc_promote_may - may reads of a tag be cached now?
 * @tag: the tag, under rcu_read_lock()
 */
bool vc_promote_may(struct vc_tag *tag)
{
	enum vcache_mode mode = READ_ONCE(tag->mode);
	struct vc_log *log = READ_ONCE(tag->log);

	return log && (mode == VCACHE_MODE_WRITEBACK ||
		       mode == VCACHE_MODE_WRITETHROUGH) &&
	       !READ_ONCE(log->vol->stopped) &&
	       READ_ONCE(log->vol->pool->state) == VC_POOL_OK;
}

/**
 * vc_promote_read - read from the origin, with a copy for the cache
 * @tag: whose data it is, under rcu_read_lock()
 * @bio: the read; neither buffer nor cache had any of it
 *
 * Return: the request to send instead, which completes @bio; NULL when it is not
 * worth it, or cannot be done: then nothing was.
 */
struct bio *vc_promote_read(struct vc_tag *tag, struct bio *bio)
{
	u64 block = bio->bi_iter.bi_sector / VC_BLOCK_SECTORS;
	u64 end = DIV_ROUND_UP_ULL(bio_end_sector(bio), VC_BLOCK_SECTORS);
	struct vc_log *log = READ_ONCE(tag->log);
	struct vc_promotion *pr;
	enum vc_reads_kind kind;

	if (!vc_promote_may(tag) ||
	    atomic_read(&log->vol->promoting) >= VC_PROMOTIONS_MAX ||
	    vc_promote_streams(log, bio) ||
	    end - block > VC_PROMOTION_MAX ||
	    end * VC_BLOCK_SECTORS > log->vol->sectors)
		return NULL;
	vc_log_paid(log, (end - block) * VC_CREDIT_READ);
	kind = vc_promote_kind(log, block, end - block);
	if (kind == VC_READS_KINDS)
		return NULL;
	pr = vc_promotion_make(log, block, end - block,
			       bio->bi_opf & VC_READ_FLAGS);
	if (!pr)
		return NULL;
	pr->kind = kind;
	if (!vc_promote_begin(pr)) {
		vc_promotion_free(pr);
		return NULL;
	}
	pr->user = bio;
	pr->iter = bio->bi_iter;
	bio_clone_blkg_association(pr->bio, bio);
	pr->bio->bi_ioprio = bio->bi_ioprio;
	return pr->bio;
}

/* The cache device has answered. */
static void vc_promote_write_end(struct bio *bio)
{
	struct vc_promotion *pr = bio->bi_private;
	struct vc_volume *v = pr->log->vol;
	u32 i, there = 0;

	vc_pool_record_done(v->pool, bio->bi_status);
	for (i = 0; i < pr->n && !bio->bi_status; i++)
		there += vc_lookup_promote(v, pr->cell + i, pr->block + i,
					   pr->part[i].changes, pr->heat);
	atomic64_add(there, &v->promoted);
	if (pr->ahead)
		atomic64_add(there, &pr->log->prefetch.done);
	vc_promotion_free(pr);
}

/* Send it to its place. */
static void vc_promote_write(struct vc_promotion *pr)
{
	struct vc_pool *p = pr->log->vol->pool;
	u32 i;

	bio_reset(pr->bio, p->bdev, REQ_OP_WRITE | REQ_BACKGROUND);
	for (i = 0; i < pr->n; i++)
		__bio_add_page(pr->bio, pr->part[i].page, VC_BLOCK_SIZE, 0);
	pr->bio->bi_iter.bi_sector = (u64)pr->cell * VC_BLOCK_SECTORS;
	pr->bio->bi_private = pr;
	pr->bio->bi_end_io = vc_promote_write_end;
	submit_bio_noacct(pr->bio);
}

static struct vc_promotion *vc_promote_next(struct vc_log *log)
{
	struct vc_promotion *pr;

	spin_lock_irq(&log->lock);
	pr = list_first_entry_or_null(&log->promotions, struct vc_promotion,
				      node);
	if (pr)
		list_del_init(&pr->node);
	spin_unlock_irq(&log->lock);
	return pr;
}

/**
 * vc_promote_work - give what has been read a place in the cache
 * @work: vc_log.promote_work
 */
void vc_promote_work(struct work_struct *work)
{
	struct vc_log *log = container_of(work, struct vc_log, promote_work);
	struct vc_promotion *pr;
	struct blk_plug plug;

	mutex_lock(&log->fill);
	blk_start_plug(&plug);
	while ((pr = vc_promote_next(log))) {
		if (pr->cell != VC_CELL_NONE) {
			vc_promote_write(pr);
			continue;
		}
		/* A promotion is one request: the rest of a chunk may go. */
		if (vc_reads_space(log, pr->kind, pr->n, VC_TAKE_READ) >=
		    pr->n) {
			pr->cell = vc_reads_take(log, pr->kind, pr->n);
			vc_promote_write(pr);
		} else {
			vc_promotion_free(pr);
		}
	}
	blk_finish_plug(&plug);
	mutex_unlock(&log->fill);
}
