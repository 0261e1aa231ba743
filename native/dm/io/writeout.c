// SPDX-License-Identifier: GPL-2.0-only
/*
 * dm-vcache: writing dirty blocks out.
 *
 * Each tag has its own worker. A flush that finds little to write does it itself, see
 * vcache_writeout_small(). The worker takes blocks from the dirty list of its tag, in the
 * order in which they became dirty, as many as were asked for (&vcache_tag.goal). It sorts
 * them and sends consecutive blocks as one request. A request holds blocks of one tag
 * only, except for blocks shared with it. The data of a request is durable when it
 * completes, so a flush only has to wait.
 *
 * Blocks that have become durable stay in the index, CLEAN, until vcache_reap_work() takes
 * them out.
 */
#include <linux/list_sort.h>

#include "internal.h"

/* Blocks sorted together before they are written out: 4 MiB of pages. */
#define VC_BATCH_MAX 1024U

/* Most dirty blocks that a flush writes out itself. */
#define VC_SMALL_MAX 32U

static void vc_writeout_send(struct vcache_tag *tag, struct bio *bio)
{
	bool tagged = bio->bi_end_io == vcache_tagged_end;

	if (bio->bi_status) { /* its record has failed */
		if (tagged)
			vcache_nvme_leave(tag->dev);
		vcache_writeout_end(bio);
	} else if (tagged) {
		atomic_inc(&tag->tagging);
		vcache_nvme_write(tag, bio);
	} else {
		submit_bio_noacct(bio);
	}
}

/**
 * vcache_granted_work - send write-outs that waited for their ranges or records
 * @work: vcache_dev.granted_work
 */
void vcache_granted_work(struct work_struct *work)
{
	struct vcache_dev *dev = container_of(work, struct vcache_dev, granted_work);
	struct llist_node *list = llist_del_all(&dev->granted);
	struct vcache_writeout *w, *next;

	list = llist_reverse_order(list);
	llist_for_each_entry_safe(w, next, list, granted)
		vc_writeout_send(w->bio.bi_private, &w->bio);
}

static void vc_writeout_granted(struct vcache_range *r)
{
	vcache_writeout_ready(container_of(r, struct vcache_writeout, range));
}

/**
 * vcache_writeout_submit - send a write-out to the origin, when nobody else writes its blocks
 * @tag: the tag
 * @bio: the request
 */
void vcache_writeout_submit(struct vcache_tag *tag, struct bio *bio)
{
	struct vcache_writeout *w = vcache_writeout(bio);

	vcache_writeout_sent(tag, bio_sectors(bio));
	w->range.first = vcache_first_page(bio);
	w->range.last = vcache_last_page(bio);
	w->range.granted = vc_writeout_granted;
	atomic_set(&w->waits, 1 + w->ordered);
	if (w->ranges && !vcache_range_get(w->ranges, &w->range))
		return;
	if (atomic_dec_and_test(&w->waits))
		vc_writeout_send(tag, bio);
}

/* Count the consecutive blocks at the head of the batch, from @b on. */
static unsigned int vc_batch_run(struct vcache_tag *tag, const struct vcache_block *b)
{
	const struct vcache_block *next;
	unsigned int n = 1;

	list_for_each_entry(next, &tag->batch, node) {
		if (n == BIO_MAX_VECS || next->index != b->index + n)
			break;
		n++;
	}
	return n;
}

static void vc_writeout_init(struct vcache_writeout *w, struct vcache_tag *tag,
			     struct vcache_record *rec)
{
	w->ranges = READ_ONCE(tag->dev->writeback) ? &tag->dev->vol->ranges :
						     NULL;
	w->ordered = false;
	w->release = NULL;
	w->failed = false;
	atomic_set(&w->users, 1);
	if (rec && !rec->copy)
		vcache_record_write_through(rec, w);
}

static struct bio *vc_writeout_alloc(struct vcache_tag *tag,
				     const struct vcache_block *b, sector_t sector,
				     struct vcache_record *rec)
{
	struct block_device *bdev = tag->dev->origin;
	bool tagged = vcache_nvme_enter(tag->dev);
	struct bio *bio;
	blk_opf_t opf;

	opf = tagged ? REQ_OP_DRV_OUT : REQ_OP_WRITE | vcache_durable_flags(bdev);
	/* The origin may throttle the request as writeback only if no flush waits for it. */
	if (READ_ONCE(tag->epoch.draining))
		opf |= REQ_SYNC | REQ_IDLE;
	bio = bio_alloc_bioset(bdev, vc_batch_run(tag, b), opf, GFP_NOIO,
			       &tag->dev->bs);
	vcache_payer_charge(tag, bio);
	bio->bi_iter.bi_sector = sector;
	bio->bi_private = tag;
	bio->bi_end_io = tagged ? vcache_tagged_end : vcache_writeout_end;
	vc_writeout_init(vcache_writeout(bio), tag, rec);
	return bio;
}

/* The block layer splits a write that is too large, but not a tagged one. */
static bool vc_writeout_full(const struct bio *bio, unsigned int len)
{
	return bio->bi_end_io == vcache_tagged_end &&
	       bio->bi_iter.bi_size + len > vcache_nvme_max_bytes(bio->bi_bdev);
}

/* May the cache device have any part of a block? */
static bool vc_cache_may_have(struct vcache_volume *v, u64 block)
{
	return vcache_lookup_any(v, block, 1) || vcache_doubts(v, block, 1);
}

/**
 * vcache_writeout_add - add a block to a write-out to the origin
 * @tag: the tag whose write-out it is
 * @bio: open request, or NULL
 * @b: the block, started
 * @rec: its record, if it is a write-through; else NULL
 *
 * Runs of sectors that continue @bio are added to it. Others get a new request.
 *
 * If the cache has an older version of the block, its chunk may be noted as clean. After a
 * crash that leaves the new version on the origin only, reads would find the older one in the
 * cache, and the new one when that is evicted. So the record has to be durable first.
 *
 * Return: the request that is open now.
 */
struct bio *vcache_writeout_add(struct vcache_tag *tag, struct bio *bio,
				struct vcache_block *b, struct vcache_record *rec)
{
	sector_t base = b->index << VC_PAGE_SECTORS_SHIFT;
	unsigned int s, e = 0, runs = vcache_block_runs(b);
	bool ordered = rec && !rec->copy &&
		       vc_cache_may_have(tag->dev->vol, b->index);

	/* When its last part has been sent the block may be freed. */
	while (runs--) {
		unsigned int len;

		s = find_next_bit(b->valid, VC_PAGE_SECTORS, e);
		e = find_next_zero_bit(b->valid, VC_PAGE_SECTORS, s);
		len = (e - s) << SECTOR_SHIFT;
		if (bio && (bio_end_sector(bio) != base + s ||
			    vc_writeout_full(bio, len) ||
			    !bio_add_page(bio, b->page, len,
					  s << SECTOR_SHIFT))) {
			vcache_writeout_submit(tag, bio);
			bio = NULL;
		} else if (bio) {
			vcache_writeout(bio)->ordered |= ordered;
			continue;
		}
		bio = vc_writeout_alloc(tag, b, base + s, rec);
		vcache_writeout(bio)->ordered = ordered;
		__bio_add_page(bio, b->page, len, s << SECTOR_SHIFT);
	}
	return bio;
}

static int vc_block_cmp(void *priv, const struct list_head *a,
			const struct list_head *b)
{
	pgoff_t x = list_entry(a, struct vcache_block, node)->index;
	pgoff_t y = list_entry(b, struct vcache_block, node)->index;

	return x < y ? -1 : x > y;
}

/* Take the next blocks off the lists. Return: false if there are none. */
static bool vc_batch_fill(struct vcache_tag *tag)
{
	struct vcache_block *b;
	unsigned int n = 0;

	spin_lock_irq(&tag->lock);
	smp_mb(); /* pairs with vc_large_hold(): the blocks were added before */
	list_splice_tail_init(&tag->ready, &tag->batch);
	while (tag->goal && n++ < VC_BATCH_MAX) {
		WRITE_ONCE(tag->goal, tag->goal - 1);
		b = list_first_entry_or_null(&tag->dirty, struct vcache_block,
					     node);
		if (!b)
			break;
		if (vcache_large_delays(tag->dev, b)) {
			WRITE_ONCE(tag->goal, tag->goal + 1);
			break;
		}
		list_move_tail(&b->node, &tag->batch);
		b->queued = false;
		WRITE_ONCE(tag->ndirty, tag->ndirty - 1);
		if (b->retry) {
			b->retry = false;
			atomic_long_inc(&tag->dev->pending);
		}
	}
	if (list_empty(&tag->dirty))
		WRITE_ONCE(tag->goal, 0);
	spin_unlock_irq(&tag->lock);
	list_sort(NULL, &tag->batch, vc_block_cmp);
	return !list_empty(&tag->batch);
}

static bool vc_tag_sent_below(struct vcache_tag *tag, unsigned int max)
{
	return atomic_read(&tag->sending) < max &&
	       atomic_read(&tag->inflight) < max * VC_GROUPS_MAX;
}

/* May the worker send one more request? If not, completions wake it. */
static bool vc_tag_may_send(struct vcache_tag *tag)
{
	WRITE_ONCE(tag->stalled, false);
	if (vc_tag_sent_below(tag, VC_INFLIGHT_MAX))
		return true;
	WRITE_ONCE(tag->stalled, true);
	smp_mb(); /* pairs with the atomic operations before reads of @stalled */
	return vc_tag_sent_below(tag, VC_INFLIGHT_MAX / 2);
}

/* Does a tag do without the cache, because that has failed? */
static bool vc_tag_is_bypassed(const struct vcache_tag *tag)
{
	return READ_ONCE(tag->log->state) == VC_LOG_BYPASSED;
}

/*
 * Add a block of the batch to a write-out to the origin, if it can be written now.
 * Return: the request that is open.
 */
static struct bio *vc_block_to_origin(struct vcache_tag *tag, struct bio *bio,
				      struct vcache_block *b)
{
	list_del_init(&b->node);
	if (!vcache_block_start(b, true, false))
		return bio;
	/* Reads find the block in the buffer until it has arrived. */
	if (tag->dev->vol && (!READ_ONCE(tag->dev->writeback) ||
			      vc_tag_is_bypassed(tag)))
		vcache_lookup_cut(tag->dev->vol, tag->log, b->index, *b->valid);
	return vcache_writeout_add(tag, bio, b, NULL);
}

/* Write blocks to the origin until the goal is reached. */
static void vc_tag_to_origin(struct vcache_tag *tag)
{
	struct bio *bio = NULL;
	struct vcache_block *b;

	while (!READ_ONCE(tag->dev->suspended) && vc_tag_may_send(tag)) {
		if (list_empty(&tag->batch) && !vc_batch_fill(tag))
			break;
		if (tag->dev->vol && vcache_append_copy(tag))
			continue;
		b = list_first_entry(&tag->batch, struct vcache_block, node);
		bio = vc_block_to_origin(tag, bio, b);
	}
	if (bio)
		vcache_writeout_submit(tag, bio);
}

/*
 * May the block be written to the origin, past the log? Only if its tag has no cache, and
 * if the cache has nothing of the block. If the cache has failed, it may have a copy; but
 * what another tag has lost stays lost.
 */
static bool vc_block_is_past_log(struct vcache_tag *tag, const struct vcache_block *b)
{
	if (vc_tag_is_bypassed(tag))
		return !vcache_lookup_is_lost(tag->dev->vol, b->index);
	return READ_ONCE(tag->mode) == VCACHE_MODE_FLUSH_ONLY &&
	       !vc_cache_may_have(tag->dev->vol, b->index);
}

/* Write blocks to the log of the tag until the goal is reached. */
static void vc_tag_to_log(struct vcache_tag *tag)
{
	struct bio *bio = NULL;
	struct vcache_block *b;

	while (!READ_ONCE(tag->dev->suspended) && vc_tag_may_send(tag)) {
		if (list_empty(&tag->batch) && !vc_batch_fill(tag))
			break;
		b = list_first_entry(&tag->batch, struct vcache_block, node);
		if (vc_block_is_past_log(tag, b)) {
			bio = vc_block_to_origin(tag, bio, b);
		} else if (!vcache_append(tag) && !vcache_append_refuse(tag)) {
			vcache_writeout_short(tag);
			break;
		}
	}
	if (bio)
		vcache_writeout_submit(tag, bio);
}

/*
 * May a flush write out what the tag has? If it is one record, and there is nothing that
 * others have begun.
 */
static bool vc_tag_is_small(struct vcache_tag *tag)
{
	return !READ_ONCE(tag->dev->suspended) && READ_ONCE(tag->dev->writeback) &&
	       READ_ONCE(tag->mode) == VCACHE_MODE_WRITEBACK &&
	       !vc_tag_is_bypassed(tag) && READ_ONCE(tag->ndirty) <= VC_SMALL_MAX &&
	       list_empty(&tag->batch) && bio_list_empty(&tag->waiting);
}

/**
 * vcache_writeout_small - write out a tag in the context of a flush, without its worker
 * @tag: the tag, kept by the caller; its goal is set
 *
 * The flush need not wait until the worker runs. It writes at most one record, because memory
 * for a second one may be that of the first, which is sent only when the flush returns to
 * the block layer.
 *
 * Return: false if anything is left to do, for the worker.
 */
bool vcache_writeout_small(struct vcache_tag *tag)
{
	bool done = false;

	if (!mutex_trylock(&tag->writer))
		return false;
	if (vc_tag_is_small(tag) && vc_tag_may_send(tag)) {
		if (vc_batch_fill(tag))
			vcache_append_one(tag);
		done = list_empty(&tag->batch) && !READ_ONCE(tag->goal);
	}
	mutex_unlock(&tag->writer);
	return done;
}

/**
 * vcache_tag_work - the worker of a tag
 * @work: vcache_tag.work
 *
 * It waits for I/O only when the block layer allocates a request, and for memory only if
 * that is freed by requests of its own that complete.
 */
void vcache_tag_work(struct work_struct *work)
{
	struct vcache_tag *tag = container_of(work, struct vcache_tag, work);
	struct blk_plug plug;

	mutex_lock(&tag->writer);
	vcache_tag_admit(tag);
	blk_start_plug(&plug);
	if (READ_ONCE(tag->dev->writeback))
		vc_tag_to_log(tag);
	else
		vc_tag_to_origin(tag);
	blk_finish_plug(&plug);
	mutex_unlock(&tag->writer);
	/* A suspend waits to learn if the goal was dropped without I/O. */
	if (wq_has_sleeper(&tag->dev->idle))
		wake_up(&tag->dev->idle);
}
