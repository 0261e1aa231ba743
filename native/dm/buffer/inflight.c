// SPDX-License-Identifier: GPL-2.0-only
/*
 * dm-vcache: write-outs under way: their counts, and their completion.
 *
 * A request holds blocks of one tag only, except for blocks shared with it. The data of a
 * request is durable when it completes, so a flush only has to wait.
 */
#include "internal.h"

/* The rate of a tag is measured over at most this time, ns. */
#define VC_RATE_SPAN	(10 * NSEC_PER_MSEC)

/* Highest rate, sectors per ms: 2 TB/s. */
#define VC_RATE_MAX	(U32_MAX / 1024)

/* The rate is the mean of about this time, ns, of which a measurement replaces a part. */
#define VC_RATE_TIME	(100 * NSEC_PER_MSEC)

/*
 * Measure the rate of a tag, while it has write-outs under way, or none because the log has no
 * space. It is an estimate: races between completions may lose some of what they count. What
 * completes just after a measurement tells nothing: it was under way before.
 */
static void vc_rate_note(struct vcache_tag *tag, unsigned int sectors, bool last)
{
	u64 took = ktime_get_ns() - READ_ONCE(tag->busy_since);
	u64 rate = READ_ONCE(tag->rate), past = rate ? VC_RATE_TIME : 0;

	sectors = atomic_add_return(sectors, &tag->busy_sectors);
	if (took < VC_RATE_SPAN && (!last || READ_ONCE(tag->busy_measured)))
		return;
	rate = div64_u64(rate * past + (u64)sectors * NSEC_PER_MSEC, max(past + took, 1ULL));
	WRITE_ONCE(tag->rate, min_t(u64, max(rate, 1ULL), VC_RATE_MAX));
	atomic_set(&tag->busy_sectors, 0);
	WRITE_ONCE(tag->busy_since, ktime_get_ns());
	WRITE_ONCE(tag->busy_measured, true);
	WRITE_ONCE(tag->short_of_space, false);
}

/* Begin to measure the rate of a tag. */
static void vc_rate_begin(struct vcache_tag *tag)
{
	atomic_set(&tag->busy_sectors, 0);
	WRITE_ONCE(tag->busy_measured, false);
	WRITE_ONCE(tag->busy_since, ktime_get_ns());
}

/**
 * vcache_writeout_short - write-outs of a tag wait for space: that is a part of its rate
 * @tag: the tag; called by its worker
 */
void vcache_writeout_short(struct vcache_tag *tag)
{
	if (READ_ONCE(tag->short_of_space))
		return;
	if (!atomic_read(&tag->inflight))
		vc_rate_begin(tag);
	WRITE_ONCE(tag->busy_measured, false);
	WRITE_ONCE(tag->short_of_space, true);
}

/**
 * vcache_writeout_sent - count a write-out that is about to be sent
 * @tag: the tag
 * @sectors: its size
 */
void vcache_writeout_sent(struct vcache_tag *tag, unsigned int sectors)
{
	atomic64_inc(&vcache_stats(tag)->writeouts);
	atomic64_add(sectors, &vcache_stats(tag)->writeout_sectors);
	atomic_add(sectors, &tag->inflight_sectors);
	atomic_inc(&tag->sending);
	if (atomic_inc_return(&tag->inflight) == 1 && !READ_ONCE(tag->short_of_space))
		vc_rate_begin(tag);
	atomic_inc(&tag->dev->inflight);
}

/**
 * vcache_writeout_arrived - the origin has completed a request of a tag
 * @tag: the tag; the caller keeps it by something else than this request
 */
void vcache_writeout_arrived(struct vcache_tag *tag)
{
	if (atomic_dec_return(&tag->sending) <= VC_INFLIGHT_MAX / 2 &&
	    READ_ONCE(tag->stalled))
		vcache_tag_kick(tag);
}

/**
 * vcache_writeout_complete - a write-out is durable or has failed: drop its counts
 * @tag: the tag; it may be freed after this
 * @sectors: size of the write-out
 */
void vcache_writeout_complete(struct vcache_tag *tag, unsigned int sectors)
{
	struct vcache_dev *dev = tag->dev;
	int left;

	/* Before the tag is freed, whoever finds the counters 0 waits for this section. */
	rcu_read_lock();
	atomic_sub(sectors, &tag->inflight_sectors);
	left = atomic_dec_return(&tag->inflight);
	vc_rate_note(tag, sectors, !left);
	if (left <= VC_INFLIGHT_MAX * VC_GROUPS_MAX / 2 && READ_ONCE(tag->stalled))
		vcache_tag_kick(tag);
	if (atomic_dec_and_test(&dev->inflight))
		wake_up(&dev->idle);
	rcu_read_unlock();
}

/**
 * vcache_writeout_ready - a write-out waits for one thing less; after the last one it is sent
 * @w: the write-out; it may be complete after this
 *
 * Called in any context, without locks.
 */
void vcache_writeout_ready(struct vcache_writeout *w)
{
	struct vcache_dev *dev = ((struct vcache_tag *)w->bio.bi_private)->dev;

	if (atomic_dec_and_test(&w->waits) && llist_add(&w->granted, &dev->granted))
		queue_work(dev->wq, &dev->granted_work);
}

/**
 * vcache_writeout_put - drop a reference to a write-out; the last one releases its blocks
 * @w: the write-out
 */
void vcache_writeout_put(struct vcache_writeout *w)
{
	if (!atomic_dec_and_test(&w->users))
		return;
	if (w->release)
		w->release(w);
	if (w->ranges)
		vcache_range_put(w->ranges, &w->range);
	bio_put(&w->bio);
}

/**
 * vcache_writeout_done - a write-out is durable or has failed
 * @bio: its request, which is freed
 */
void vcache_writeout_done(struct bio *bio)
{
	struct vcache_tag *tag = bio->bi_private;
	unsigned int sectors = 0;
	struct bvec_iter_all all;
	struct bio_vec *bv;

	bio_for_each_segment_all(bv, bio, all) {
		sectors += bv->bv_len >> SECTOR_SHIFT;
		vcache_block_part_done((struct vcache_block *)page_private(bv->bv_page),
				       bio->bi_status);
	}
	vcache_writeout(bio)->failed = bio->bi_status;
	/* Before this is counted: then the volume may be detached. */
	vcache_writeout_put(vcache_writeout(bio));
	vcache_writeout_complete(tag, sectors);
}

/**
 * vcache_writeout_end - completion of a request that makes its data durable by itself
 * @bio: the request
 */
void vcache_writeout_end(struct bio *bio)
{
	struct vcache_tag *tag = bio->bi_private;

	vcache_origin_note_write(tag->dev, bio);
	vcache_writeout_arrived(tag);
	vcache_writeout_done(bio);
}
