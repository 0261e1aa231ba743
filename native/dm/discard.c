// SPDX-License-Identifier: GPL-2.0-only
/*
 * dm-vcache: discards, when nothing of their range is buffered any more; see park.c.
 *
 * A discard waits for the lock of the device, for the origin and for space in the log. So
 * each has a work item of its own: none waits for another one, except at the origin.
 *
 * In writeback mode a discard holds its range while it is at the origin, see range.h. It
 * does not hold it while it waits for space: only destage may bring that, and perhaps only
 * destage of the same blocks. A block that is destaged then may be on the origin after the
 * discard. Any content is as good after a discard, and later writes past the log wait for
 * the destage.
 */
#include <linux/blkdev.h>

#include "pool.h"

/* The whole blocks in the range of a discard: from the first one to before @end. */
static u64 vc_discard_blocks(struct bio *bio, u64 *end)
{
	*end = bio_end_sector(bio) / VC_BLOCK_SECTORS;
	return DIV_ROUND_UP_ULL(bio->bi_iter.bi_sector, VC_BLOCK_SECTORS);
}

/*
 * Discard whole blocks on the origin and in the cache. Parts of blocks are left alone: they
 * are not worth a record. If they were discarded on the origin only, they would change when
 * the cache drops its copy.
 *
 * The origin may have older data than the cache. So the origin discards it before the cache
 * drops its newer data.
 *
 * Return: 0; -EAGAIN if the log has no space for the record; another errno.
 */
static int vc_discard_cached(struct vc_io *io, struct bio *bio)
{
	struct vc_dev *dev = io->dev;
	struct vc_volume *v = dev->vol;
	struct vc_tag *tag;
	u64 first, end;
	int r;

	first = vc_discard_blocks(bio, &end);
	if (first >= end)
		return 0;
	r = blkdev_issue_discard(v->origin, first * VC_BLOCK_SECTORS,
				 (end - first) * VC_BLOCK_SECTORS, GFP_NOIO);
	/* Promotions of the range that are under way are dropped. */
	vc_lookup_change(v, first, end - first);
	vc_range_put(&v->ranges, &io->parked.range);
	/* What a failed cache has of the range stays lost, or is on the origin as well. */
	if (READ_ONCE(v->pool->state) == VC_POOL_FAILED)
		return r;
	/* The device is not suspended while this request runs, so the tag stays. */
	tag = dev->volume ? dev->target->tag : dev->host;
	return r ?: vc_append_discard(tag->log, first, end - first);
}

static void vc_discard_work(struct work_struct *work)
{
	struct vc_io *io = container_of(work, struct vc_io, parked.work);
	struct bio *bio = vc_io_bio(io);
	struct vc_dev *dev = io->dev;
	int r;

	vc_map_punch(dev, bio->bi_iter.bi_sector, bio_sectors(bio));
	if (!io->parked.cached) {
		vc_write_uncache(dev, bio);
		submit_bio_noacct(bio);
		return;
	}
	r = vc_discard_cached(io, bio);
	/* A discard is a hint: it may be done in part. */
	if (r && r != -EAGAIN)
		bio->bi_status = errno_to_blk_status(r);
	bio_endio(bio);
}

static void vc_discard_queue(struct vc_io *io)
{
	queue_work(io->dev->wq, &io->parked.work);
}

static void vc_discard_granted(struct vc_range *r)
{
	vc_discard_queue(container_of(r, struct vc_io, parked.range));
}

/**
 * vc_discard_begin - go on with a discard, whose range is not buffered any more
 * @io: our data of it; it is parked, so nobody else writes to the range
 */
void vc_discard_begin(struct vc_io *io)
{
	struct bio *bio = vc_io_bio(io);
	struct vc_dev *dev = io->dev;
	struct vc_range *r = &io->parked.range;
	u64 end;

	INIT_WORK(&io->parked.work, vc_discard_work);
	io->parked.cached = READ_ONCE(dev->writeback);
	r->first = vc_discard_blocks(bio, &end);
	r->last = end - 1;
	r->granted = vc_discard_granted;
	/* The range of a discard without a whole block would be empty. */
	if (!io->parked.cached || r->first >= end ||
	    vc_range_get(&dev->vol->ranges, r))
		vc_discard_queue(io);
}
