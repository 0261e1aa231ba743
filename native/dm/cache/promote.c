// SPDX-License-Identifier: GPL-2.0-only
/*
 * dm-vcache: promotion: data that is read from the origin is copied to the cache.
 *
 * The origin is read once, into pages of our own. The pages of the request may change
 * while the read is under way: what its owner writes to them must not become cached data.
 * When the data has been read, the request gets a copy and completes. Then the data is
 * written to a read chunk, and when that is done the index points to it. Nothing waits for
 * a promotion. If memory or a chunk is missing, or a write comes, it is dropped.
 *
 * While the log has space, a block is promoted when it is missed once. Otherwise hits
 * decide whether it has to be missed twice, see ../core/ghost.h and ../core/level.h. Long
 * sequential reads are not promoted: an origin serves these well.
 *
 * DOC: Order
 *
 * A promoted block must have the newest data, except for what is in the buffer. The buffer
 * may get newer data at any time: it is looked up before the index, and when the data
 * leaves it for the log, it supersedes the promoted block. But a write that came after the
 * origin was read may have left the buffer, the log and the cache before the promotion
 * ends. So
 *
 * - a promotion is counted in vcache_volume.promoting; then it notes the change counts of its
 *   blocks; then it checks that neither buffer nor index has any of them; then it reads the
 *   origin;
 * - a write that has entered the buffer, and a request past the buffer that the origin has
 *   completed, count a change if a promotion is under way. The request then drops what was
 *   promoted before from the cache.
 *
 * If the counts of a promotion have not changed at its end, it has missed no write.
 */
#include <linux/ktime.h>
#include <linux/slab.h>

#include "promote.h"
#include "internal.h"

/* Most promotions of a volume under way: 8 MiB. */
#define VC_PROMOTIONS_MAX	64

/* A sequential read is not promoted from so many sectors on: 1 MiB. */
#define VC_STREAM_LONG		2048U

/**
 * vcache_promote_enter - count a promotion, so that the volume is not stopped
 * @v: the volume
 *
 * Return: false if it is stopped. Then the origin and the device of the volume must not
 * be used.
 */
bool vcache_promote_enter(struct vcache_volume *v)
{
	atomic_inc(&v->promoting);
	smp_mb__after_atomic(); /* pairs with vcache_volume_stop(), vcache_lookup_change() */
	if (!READ_ONCE(v->stopped))
		return true;
	vcache_promote_leave(v);
	return false;
}

/**
 * vcache_promote_leave - undo vcache_promote_enter()
 * @v: the volume
 */
void vcache_promote_leave(struct vcache_volume *v)
{
	rcu_read_lock(); /* vcache_volume_stop() waits for the end of this section */
	if (atomic_dec_and_test(&v->promoting) && READ_ONCE(v->stopped))
		wake_up(&v->idle);
	rcu_read_unlock();
}

/**
 * vcache_promotion_free - end a promotion, successful or not
 * @pr: the promotion
 */
void vcache_promotion_free(struct vcache_promotion *pr)
{
	struct vcache_log *log = pr->log;
	struct vcache_volume *v = log->vol;
	u32 i;

	if (pr->cell != VC_CELL_NONE)
		vcache_reads_put_pending(log, vcache_cell_chunk(v->pool, pr->cell));
	if (pr->bio)
		bio_put(pr->bio);
	for (i = 0; i < pr->n && pr->part[i].page; i++)
		__free_page(pr->part[i].page);
	if (pr->ahead)
		vcache_prefetch_ended(log, pr->n);
	kfree(pr);
	vcache_promote_leave(v);
}

/* Is the read part of a long sequential stream? */
static bool vc_promote_streams(struct vcache_log *log, const struct bio *bio)
{
	struct vcache_stream *s = NULL;
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

/* Has the log so much free space that blocks missed once can be promoted? */
static bool vc_promote_fits(struct vcache_log *log)
{
	u32 chunks = max(vcache_log_chunks(log), vcache_log_part(log));

	return vcache_fits(atomic_read(&log->live),
			   min_t(u64, chunks, vcache_log_most(log)) *
			   vcache_chunk_capacity(&log->vol->pool->g));
}

/*
 * Choose the read chunks for a read that missed the cache. The main ones, if at least half
 * of it was missed before, not long ago, or if there is space. VC_READS_KINDS: none.
 */
static enum vcache_reads_kind vc_promote_kind(struct vcache_log *log, u64 block, u32 n)
{
	struct vcache_pool *p = log->vol->pool;
	u32 cells = max(vcache_log_part(log), 1U) * p->g.chunk_blocks;
	u32 hour = vcache_ghost_hour(READ_ONCE(log->misses), cells);
	u32 seen = 0, soon = 0, age, i;

	for (i = 0; i < n; i++) {
		age = vcache_ghost_meet(&p->ghosts, log->vol->slot, block + i,
					hour);
		seen += age < VC_GHOST_WINDOW;
		soon += !age;
	}
		/* The clock of the ghosts advances with blocks that are new to them. */
	WRITE_ONCE(log->misses, READ_ONCE(log->misses) + n - seen);
	vcache_level_miss(&log->level, n - seen, soon, cells);
	if (seen * 2 >= n || vc_promote_fits(log))
		return VC_READS_MAIN;
	return READ_ONCE(log->level.once) ? VC_READS_SMALL : VC_READS_KINDS;
}

/**
 * vcache_promote_begin - note the change counts, and check that only the origin has the blocks
 * @pr: the promotion, counted by vcache_promote_enter()
 *
 * The order of the two matters, see "Order".
 *
 * Return: false if the buffer or the cache has any of them.
 */
bool vcache_promote_begin(struct vcache_promotion *pr)
{
	struct vcache_volume *v = pr->log->vol;
	u32 i;

	for (i = 0; i < pr->n; i++)
		pr->part[i].changes = vcache_lookup_changes(v, pr->block + i);
	smp_mb(); /* a write that is not found below will count a change */
	if (vcache_buffer_covers(v->dev, pr->block, pr->block + pr->n - 1))
		return false;
	return !vcache_lookup_any(v, pr->block, pr->n);
}

/* Copy the data to the request. */
static void vc_promote_copy(struct vcache_promotion *pr)
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

/**
 * vcache_promote_store - write the data of a promotion to the cache, from a work
 * @pr: the promotion; it has its data
 */
void vcache_promote_store(struct vcache_promotion *pr)
{
	struct vcache_log *log = pr->log;
	unsigned long flags;

	spin_lock_irqsave(&log->lock, flags);
	list_add_tail(&pr->node, &log->promotions);
	spin_unlock_irqrestore(&log->lock, flags);
	queue_work(log->vol->pool->wq, &log->promote_work);
}

/* The origin has been read. */
static void vc_promote_read_end(struct bio *bio)
{
	struct vcache_promotion *pr = bio->bi_private;
	blk_status_t status = bio->bi_status;

	if (pr->user) {
		if (!status)
			vc_promote_copy(pr);
		pr->user->bi_status = status;
		bio_endio(pr->user);
		pr->user = NULL;
	}
	if (status)
		vcache_promotion_free(pr);
	else
		vcache_promote_store(pr);
}

/* Allocate pages, and a request to read them. Return: false without memory. */
static bool vc_promotion_fill(struct vcache_promotion *pr, blk_opf_t flags)
{
	struct vcache_volume *v = pr->log->vol;
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
 * vcache_promotion_make - allocate a promotion
 * @log: the log
 * @block: the first block
 * @n: how many
 * @flags: flags of the read from the origin
 *
 * Return: a promotion that no request belongs to; NULL without memory, or if the volume
 * is stopped.
 */
struct vcache_promotion *vcache_promotion_make(struct vcache_log *log, u64 block, u32 n,
					       blk_opf_t flags)
{
	struct vcache_promotion *pr;

	pr = kzalloc(struct_size(pr, part, n), GFP_NOWAIT | __GFP_NOWARN);
	if (!pr)
		return NULL;
	pr->log = log;
	pr->block = block;
	pr->n = n;
	pr->cell = VC_CELL_NONE;
	if (!vcache_promote_enter(log->vol)) {
		kfree(pr);
		return NULL;
	}
	if (vc_promotion_fill(pr, flags))
		return pr;
	vcache_promotion_free(pr);
	return NULL;
}

/**
 * vcache_promote_may - may data read by a tag be cached now?
 * @tag: the tag, under rcu_read_lock()
 */
bool vcache_promote_may(struct vcache_tag *tag)
{
	enum vcache_mode mode = READ_ONCE(tag->mode);
	struct vcache_log *log = READ_ONCE(tag->log);

	return log && (mode == VCACHE_MODE_WRITEBACK ||
		       mode == VCACHE_MODE_WRITETHROUGH) &&
	       !READ_ONCE(log->vol->stopped) &&
	       READ_ONCE(log->vol->pool->state) == VC_POOL_OK;
}

/* Count blocks that are not promoted. Return: NULL. */
static struct bio *vc_promote_refuse(struct vcache_log *log, enum vcache_refusal_cause cause,
				     u64 blocks)
{
	atomic64_add(blocks, &log->counts.refused[cause]);
	return NULL;
}

/**
 * vcache_promote_read - read from the origin, and promote what is read
 * @tag: the tag that reads, under rcu_read_lock()
 * @bio: the read; neither buffer nor cache has any of it
 *
 * Return: the request to send instead, which completes @bio; NULL if the data is not to
 * be promoted. Then nothing was done.
 */
struct bio *vcache_promote_read(struct vcache_tag *tag, struct bio *bio)
{
	u64 block = bio->bi_iter.bi_sector / VC_BLOCK_SECTORS;
	u64 end = DIV_ROUND_UP_ULL(bio_end_sector(bio), VC_BLOCK_SECTORS);
	struct vcache_log *log = READ_ONCE(tag->log);
	struct vcache_promotion *pr;
	enum vcache_reads_kind kind;

	if (!vcache_promote_may(tag) || end * VC_BLOCK_SECTORS > log->vol->sectors)
		return NULL;
	if (atomic_read(&log->vol->promoting) >= VC_PROMOTIONS_MAX)
		return vc_promote_refuse(log, VC_REFUSED_SPACE, end - block);
	if (vc_promote_streams(log, bio) || end - block > VC_PROMOTION_MAX)
		return vc_promote_refuse(log, VC_REFUSED_STREAM, end - block);
	vcache_log_paid(log, (end - block) * VC_CREDIT_READ);
	kind = vc_promote_kind(log, block, end - block);
	if (kind == VC_READS_KINDS)
		return vc_promote_refuse(log, VC_REFUSED_LEVEL, end - block);
	pr = vcache_promotion_make(log, block, end - block,
				   bio->bi_opf & (VC_READ_FLAGS | REQ_NOWAIT));
	if (!pr)
		return vc_promote_refuse(log, VC_REFUSED_SPACE, end - block);
	pr->kind = kind;
	if (!vcache_promote_begin(pr)) {
		vcache_promotion_free(pr);
		return NULL;
	}
	pr->user = bio;
	pr->iter = bio->bi_iter;
	bio_clone_blkg_association(pr->bio, bio);
	pr->bio->bi_ioprio = bio->bi_ioprio;
	return pr->bio;
}

/* The promoted blocks have been written to the cache device. */
static void vc_promote_write_end(struct bio *bio)
{
	struct vcache_promotion *pr = bio->bi_private;
	struct vcache_volume *v = pr->log->vol;
	u32 i, there = 0;

	vcache_lane_end(v->pool, vcache_cell_chunk(v->pool, pr->cell)->lane, true,
			ktime_get_ns() - pr->sent);
	vcache_pool_record_done(v->pool, bio->bi_status);
	for (i = 0; i < pr->n && !bio->bi_status; i++)
		there += vcache_lookup_promote(v, pr->cell + i, pr->block + i,
					       pr->part[i].changes, pr->heat);
	atomic64_add(there, &v->promoted);
	if (pr->ahead)
		atomic64_add(there, &pr->log->prefetch.done);
	vcache_promotion_free(pr);
}

/* Write the blocks to their place in the cache. */
static void vc_promote_write(struct vcache_promotion *pr)
{
	struct vcache_pool *p = pr->log->vol->pool;
	u32 i;

	bio_reset(pr->bio, p->bdev, REQ_OP_WRITE | REQ_BACKGROUND);
	for (i = 0; i < pr->n; i++)
		__bio_add_page(pr->bio, pr->part[i].page, VC_BLOCK_SIZE, 0);
	pr->bio->bi_iter.bi_sector = (u64)pr->cell * VC_BLOCK_SECTORS;
	pr->bio->bi_private = pr;
	pr->bio->bi_end_io = vc_promote_write_end;
	pr->sent = ktime_get_ns();
	vcache_lane_begin(p, vcache_cell_chunk(p, pr->cell)->lane);
	atomic64_add(pr->n, &pr->log->counts.promoted);
	submit_bio_noacct(pr->bio);
}

static struct vcache_promotion *vc_promote_next(struct vcache_log *log)
{
	struct vcache_promotion *pr;

	spin_lock_irq(&log->lock);
	pr = list_first_entry_or_null(&log->promotions, struct vcache_promotion,
				      node);
	if (pr)
		list_del_init(&pr->node);
	spin_unlock_irq(&log->lock);
	return pr;
}

/**
 * vcache_promote_work - give promotions a place in the cache
 * @work: vcache_log.promote_work
 */
void vcache_promote_work(struct work_struct *work)
{
	struct vcache_log *log = container_of(work, struct vcache_log, promote_work);
	struct vcache_promotion *pr;
	struct blk_plug plug;

	mutex_lock(&log->fill);
	blk_start_plug(&plug);
	while ((pr = vc_promote_next(log))) {
		if (pr->cell != VC_CELL_NONE) {
			vc_promote_write(pr);
			continue;
		}
		/* A promotion is one request: the end of a chunk may stay unused. */
		if (vcache_reads_space(log, pr->kind, pr->n, VC_TAKE_READ) >=
		    pr->n) {
			pr->cell = vcache_reads_take(log, pr->kind, pr->n);
			vc_promote_write(pr);
		} else {
			vc_promote_refuse(log, VC_REFUSED_SPACE, pr->n);
			vcache_promotion_free(pr);
		}
	}
	blk_finish_plug(&plug);
	mutex_unlock(&log->fill);
}
