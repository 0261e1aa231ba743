// SPDX-License-Identifier: GPL-2.0-only
/*
 * dm-vcache: discards, when nothing of their range is buffered any more; see park.c.
 *
 * A discard waits for writes that may not have seen it (see park.c), for the lock of the
 * device, for its range, for the origin and for space in the log. So each has a work item of
 * its own, in a workqueue of their own: none waits for another one, except at the origin, and
 * write-outs wait for none of them. While it waits for its range or for space, it occupies no
 * worker.
 *
 * In writeback mode a discard holds its range while it is at the origin, see range.h. It
 * does not hold it while it waits for space: only destage may bring that, and perhaps only
 * destage of the same blocks. A block that is destaged then may be on the origin after the
 * discard. Any content is as good after a discard, and later writes past the log wait for
 * the destage.
 */
#include <linux/blkdev.h>

#include "internal.h"

/* A discard that finds no space in the log tries again after so long, jiffies. */
#define VC_DISCARD_WAIT (HZ / 50 + 1)

enum vc_discard_step {
	VC_DISCARD_WRITERS,
	VC_DISCARD_RANGE,
	VC_DISCARD_ORIGIN,
	VC_DISCARD_RECORD,
};

static void vc_discard_queue(struct vcache_io *io, unsigned long delay)
{
	queue_delayed_work(io->dev->discard_wq, &io->parked.work, delay);
}

static void vc_discard_granted(struct vcache_range *r)
{
	VCACHE_PROBE("discard waits for its range");
	vc_discard_queue(container_of(r, struct vcache_io, parked.range), 0);
}

static void vc_discard_end(struct bio *bio, int error)
{
	/* A discard is a hint: it may be done in part. */
	if (error && error != -EAGAIN)
		bio->bi_status = errno_to_blk_status(error);
	bio_endio(bio);
}

/*
 * Discard whole blocks. Parts of blocks are left alone: they are not worth a record. If they
 * were discarded on the origin only, they would change when the cache drops its copy.
 *
 * Return: whether to go on with the next step now.
 */
static bool vc_discard_range(struct vcache_io *io, struct bio *bio)
{
	struct vcache_range *r = &io->parked.range;
	struct vcache_dev *dev = io->dev;
	u64 end = bio_end_sector(bio) / VC_BLOCK_SECTORS;

	vcache_extents_punch(dev, bio->bi_iter.bi_sector, bio_sectors(bio));
	if (!READ_ONCE(dev->writeback)) {
		vcache_write_uncache(dev, bio);
		submit_bio_noacct(bio);
		return false;
	}
	r->first = DIV_ROUND_UP_ULL(bio->bi_iter.bi_sector, VC_BLOCK_SECTORS);
	if (r->first >= end) {
		bio_endio(bio);
		return false;
	}
	r->last = end - 1;
	r->granted = vc_discard_granted;
	io->parked.step = VC_DISCARD_ORIGIN;
	return vcache_range_get(&dev->vol->ranges, r);
}

/*
 * The origin may have older data than the cache. So the origin discards it before the cache
 * drops its newer data.
 */
static bool vc_discard_origin(struct vcache_io *io, struct bio *bio)
{
	struct vcache_range *r = &io->parked.range;
	u64 blocks = r->last - r->first + 1;
	struct vcache_volume *v = io->dev->vol;
	int error;

	error = blkdev_issue_discard(v->origin, r->first * VC_BLOCK_SECTORS,
				     blocks * VC_BLOCK_SECTORS, GFP_NOIO);
	/* Promotions of the range that are under way are dropped. */
	vcache_lookup_change(v, r->first, blocks);
	vcache_range_put(&v->ranges, r);
	/* What a failed cache has of the range stays lost, or is on the origin as well. */
	if (error || READ_ONCE(v->pool->state) == VC_POOL_FAILED) {
		vc_discard_end(bio, error);
		return false;
	}
	io->parked.step = VC_DISCARD_RECORD;
	return true;
}

/*
 * Wait for space as a write does. If the origin refuses dirty data, there will be no space,
 * and the discard does not wait.
 */
static void vc_discard_record(struct vcache_io *io, struct bio *bio)
{
	const struct vcache_range *r = &io->parked.range;
	struct vcache_dev *dev = io->dev;
	struct vcache_volume *v = dev->vol;
	struct vcache_tag *tag;
	int error;

	/* The device is not suspended while this request runs, so the tag stays. */
	tag = dev->volume ? dev->target->tag : dev->host;
	error = vcache_append_discard(tag->log, r->first, r->last - r->first + 1);
	if (error == -EAGAIN && !vcache_volume_stuck(v) &&
	    READ_ONCE(v->pool->state) == VC_POOL_OK)
		vc_discard_queue(io, VC_DISCARD_WAIT);
	else
		vc_discard_end(bio, error);
}

static void vc_discard_work(struct work_struct *work)
{
	struct vcache_io *io = container_of(to_delayed_work(work), struct vcache_io,
					    parked.work);
	struct bio *bio = vcache_io_bio(io);

	if (io->parked.step == VC_DISCARD_WRITERS) {
		if (!vcache_parked_wait_writers(io))
			return;
		io->parked.step = VC_DISCARD_RANGE;
	}
	if (io->parked.step == VC_DISCARD_RANGE && !vc_discard_range(io, bio))
		return;
	if (io->parked.step == VC_DISCARD_ORIGIN && !vc_discard_origin(io, bio))
		return;
	vc_discard_record(io, bio);
}

/**
 * vcache_discard_begin - go on with a discard, whose range is not buffered any more
 * @io: our data of it; it is parked, so nobody else writes to the range
 */
void vcache_discard_begin(struct vcache_io *io)
{
	INIT_DELAYED_WORK(&io->parked.work, vc_discard_work);
	io->parked.step = VC_DISCARD_WRITERS;
	vc_discard_queue(io, 0);
}
