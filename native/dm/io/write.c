// SPDX-License-Identifier: GPL-2.0-only
/*
 * dm-vcache: writes.
 *
 * A write completes when it is in the buffer. A write that has FUA, or is larger than the
 * share of its tag, bypasses the buffer and is sent to the origin with FUA. Pages are
 * reserved before the data is copied. A write for which there are none waits on the list
 * of its own tag, so no other tag waits.
 */
#include <linux/ktime.h>

#include "internal.h"

/* A write that has found no memory tries again after so long, jiffies. */
#define VC_MEMORY_RETRY		1UL

/* Dirty data is written out when the device would need so long for it, ms. */
#define VC_BEHIND_MS		2U

/* The least that is written out then, blocks: the head of its record is a block more. */
#define VC_BEHIND_MIN		32U

/* A tag has no more unwritten data than the device writes in so long, ms. */
#define VC_UNWRITTEN_MS		20U

/* A device with a lower rate is slow, sectors per ms: 25 MB/s. */
#define VC_BEHIND_RATE		50U

/* Largest write that is taken at once: this part of what a tag can buffer. */
#define VC_WRITE_MAX_SHARE	4U

/* Does a tag write to a log, or to an origin that is fast though each write has FUA? */
static bool vc_tag_is_fast(const struct vcache_tag *tag)
{
	return (READ_ONCE(tag->dev->writeback) &&
		READ_ONCE(tag->mode) == VCACHE_MODE_WRITEBACK) ||
	       READ_ONCE(tag->rate) >= VC_BEHIND_RATE;
}

/*
 * How much may a tag have in the buffer, blocks? At most its share. A flush has to wait until
 * all of it is written, so that is less if the device takes longer than VC_UNWRITTEN_MS. But
 * slow origins get more: there the buffer is to absorb what is overwritten. What cannot be
 * written does not count.
 */
static unsigned int vc_tag_limit(const struct vcache_tag *tag)
{
	u64 rate = READ_ONCE(tag->rate), most = READ_ONCE(tag->limit);

	if (rate && vc_tag_is_fast(tag))
		most = min(most, atomic_read(&tag->bad) +
				 max_t(u64, rate * VC_UNWRITTEN_MS / VC_PAGE_SECTORS,
				       VC_BEHIND_MIN));
	return most;
}

static bool vc_tag_reserve(struct vcache_tag *tag, unsigned int pages)
{
	if (atomic_add_return(pages, &tag->used) <= vc_tag_limit(tag))
		return true;
	atomic_sub(pages, &tag->used);
	return false;
}

/*
 * How much may be dirty before it is written out, blocks? What the device writes in
 * VC_BEHIND_MS: a flush that comes then has to wait about that long. If the device is slow, as
 * many origins are when each write has FUA, dirty data stays in the buffer, where overwrites
 * are absorbed.
 */
static unsigned int vc_tag_behind(const struct vcache_tag *tag)
{
	u64 rate = READ_ONCE(tag->rate);

	if (rate < VC_BEHIND_RATE)
		return UINT_MAX;
	return max_t(u64, rate * VC_BEHIND_MS / VC_PAGE_SECTORS, VC_BEHIND_MIN);
}

/*
 * Start to write out before the buffer is full. At half, down to three eighths: so a burst
 * finds space, and overwrites are still absorbed. And before there is so much that a flush
 * would have to wait for it.
 */
static void vc_tag_check_fill(struct vcache_tag *tag)
{
	unsigned int used = atomic_read(&tag->used);
	unsigned int limit = vc_tag_limit(tag);

	if (used > limit / 2)
		vcache_tag_write_out(tag, used - limit / 8 * 3);
	else if (READ_ONCE(tag->ndirty) >= vc_tag_behind(tag))
		vcache_tag_write_out(tag, UINT_MAX);
	if (!delayed_work_pending(&tag->dev->age_work))
		queue_delayed_work(tag->dev->wq, &tag->dev->age_work,
				   vcache_age_tick(tag->dev));
}

/*
 * Take a write into the buffer. Called under RCU. If @commit is not NULL and the write has FUA, it
 * is set, and a page keeps the tag for vc_write_commit(). Return: 0 if the write is complete, or
 * has become a flush; -ENOMEM if it has to take another path.
 */
static int vc_write_buffered(struct vcache_tag *tag, struct bio *bio,
			     struct vcache_io *io, bool *commit)
{
	unsigned int pages = vcache_bio_pages(bio), taken;
	int r = vcache_buffer_write(tag, bio, &taken);

	atomic_sub(pages - taken, &tag->used);
	if (r)
		return r;
	vc_tag_check_fill(tag);
	if (bio->bi_opf & REQ_FUA) {
		vcache_bind(tag->dev, bio);
		if (commit) {
			atomic_inc(&tag->used);
			*commit = true;
		}
		vcache_flush_write(tag, bio, io, commit);
	} else {
		bio_endio(bio);
	}
	return 0;
}

/**
 * vcache_write_uncache - drop a range from the cache, because a write makes it outdated
 * @dev: the device, not in writeback mode
 * @bio: the write
 */
void vcache_write_uncache(struct vcache_dev *dev, struct bio *bio)
{
	sector_t at = bio->bi_iter.bi_sector, end = bio_end_sector(bio);

	while (dev->vol && at < end) {
		unsigned int from = at % VC_BLOCK_SECTORS;
		unsigned int n = min_t(sector_t, end - at,
				       VC_BLOCK_SECTORS - from);

		vcache_lookup_cut(dev->vol, NULL, at / VC_BLOCK_SECTORS,
				  GENMASK(from + n - 1, from));
		at += n;
	}
}

/*
 * Let a write wait for its range. Then it is buffered in writeback mode; else it is
 * written to the origin durably.
 */
static int vc_write_park(struct vcache_dev *dev, struct bio *bio,
			 struct vcache_io *io)
{
	vcache_bind(dev, bio);
	if (!READ_ONCE(dev->writeback))
		bio->bi_opf |= vcache_durable_flags(bio->bi_bdev);
	return vcache_park(dev, bio, io);
}

/* Make a write durable by itself, on the origin. Not in writeback mode. */
static int vc_write_direct(struct vcache_dev *dev, struct bio *bio,
			   struct vcache_io *io)
{
	vcache_write_uncache(dev, bio);
	vcache_bind(dev, bio);
	bio->bi_opf |= vcache_durable_flags(bio->bi_bdev);
	if (vcache_buffer_covers(dev, vcache_first_page(bio), vcache_last_page(bio)))
		return vcache_park(dev, bio, io);
	io->kind = VC_IO_DIRECT;
	io->parked.first = vcache_first_page(bio);
	io->parked.last = vcache_last_page(bio);
	return DM_MAPIO_REMAPPED;
}

/* Let a write wait for space in the buffer. Return: what a map function returns. */
static int vc_write_wait(struct vcache_tag *tag, struct bio *bio,
			 struct vcache_io *io)
{
	unsigned int pages = vcache_bio_pages(bio);
	unsigned long flags;
	bool noflush;

	io->start = ktime_get_ns();
	vcache_bind(tag->dev, bio);
	spin_lock_irqsave(&tag->lock, flags);
	noflush = tag->dev->noflush;
	if (!noflush)
		bio_list_add(&tag->waiting, bio);
	spin_unlock_irqrestore(&tag->lock, flags);
	if (noflush)
		return DM_MAPIO_REQUEUE;
	VCACHE_PROBE("write waits for space");
	atomic64_inc(&vcache_stats(tag)->waits);
	queue_work(tag->dev->wq, &tag->work);
	/* The worker may have completed the request by now. */
	if (atomic_read(&tag->used) + pages > READ_ONCE(tag->limit))
		vcache_tag_event(tag, VCACHE_EVENT_KIND_PRESSURE);
	return DM_MAPIO_SUBMITTED;
}

static void vc_write_cut(struct vcache_tag *tag, struct bio *bio)
{
	unsigned int most = READ_ONCE(tag->limit) / VC_WRITE_MAX_SHARE;

	if (vcache_bio_pages(bio) > most)
		dm_accept_partial_bio(bio, (most - 1) << VC_PAGE_SECTORS_SHIFT);
}

/**
 * vcache_write_count - count a write
 * @tag: its tag
 * @bio: the write, in its final size
 */
void vcache_write_count(struct vcache_tag *tag, struct bio *bio)
{
	vcache_curve_touch(tag, VC_CURVE_WRITE, bio->bi_iter.bi_sector,
			   bio_sectors(bio));
	atomic64_inc(&vcache_stats(tag)->writes);
	atomic64_add(bio_sectors(bio), &vcache_stats(tag)->write_sectors);
	if (bio->bi_opf & REQ_FUA)
		atomic64_inc(&vcache_stats(tag)->fua_writes);
}

/* Begin to measure how long a write takes. Called under rcu_read_lock(), which keeps the tag. */
static void vc_write_time(struct vcache_tag *tag, struct vcache_io *io)
{
	if (io->writer)
		return;
	io->began = ktime_get_ns();
	io->writer = tag;
	atomic_inc(&tag->timed);
}

/**
 * vcache_write_done - count how long a write took; after that its tag may be freed
 * @io: our data of the write
 * @status: its status
 */
void vcache_write_done(struct vcache_io *io, blk_status_t status)
{
	struct vcache_tag *tag = io->writer;
	struct vcache_stats *st = vcache_stats(tag);
	u64 ns = ktime_get_ns() - io->began;

	io->writer = NULL;
	if (status != BLK_STS_DM_REQUEUE) {
		atomic64_add(ns, &st->write_ns);
		atomic64_inc(&st->write_hist[vcache_hist_bucket(ns)]);
	}
	atomic_dec(&tag->timed);
}

/* Split a write to size, and count it. Not again if it comes again after it was parked. */
static void vc_write_take(struct vcache_tag *tag, struct bio *bio,
			  struct vcache_io *io)
{
	if (io->taken)
		return;
	io->taken = true;
	if (READ_ONCE(tag->dev->writeback))
		vc_write_cut(tag, bio);
	vcache_write_count(tag, bio);
}

/*
 * In writeback mode no write bypasses the buffer, because the log would not know of it. A
 * write that is too large is split, and one for which there is no memory waits.
 */
static int vc_write_log(struct vcache_tag *tag, struct bio *bio, struct vcache_io *io,
			bool *commit)
{
	if (!bio_list_empty(&tag->waiting) ||
	    !vc_tag_reserve(tag, vcache_bio_pages(bio)) ||
	    vc_write_buffered(tag, bio, io, commit))
		return vc_write_wait(tag, bio, io);
	return DM_MAPIO_SUBMITTED;
}

/**
 * vcache_write_unkeep - release the page that has kept a tag
 * @tag: the tag; it may be freed after this
 */
void vcache_write_unkeep(struct vcache_tag *tag)
{
	rcu_read_lock();
	atomic_dec(&tag->used);
	/* A write that waits may have found this page in its way. */
	if (!bio_list_empty(&tag->waiting))
		vcache_tag_kick(tag);
	rcu_read_unlock();
}

/*
 * A write with FUA is in the buffer: write it out at once, as a flush would, instead of waking the
 * worker. The request may be complete already. Not under RCU.
 */
static void vc_write_commit(struct vcache_tag *tag, bool nowait)
{
	if (nowait || !vcache_writeout_small(tag))
		vcache_tag_kick(tag);
	vcache_write_unkeep(tag);
}

/*
 * Write to the log without a copy, if the write is large and nothing prevents that. Records
 * complete in their order, so a flush of other data of the tag has to wait for what is under
 * way. That is limited as buffered data is. Called under RCU, which is left meanwhile: the tag is
 * kept by a reserved page. Return: false if the write has to take another path.
 */
static bool vc_write_large(struct vcache_tag *tag, struct bio *bio, struct vcache_io *io)
{
	bool sent;

	if (!vcache_large_wanted(tag, bio, io) ||
	    atomic_read(&tag->inflight_sectors) / VC_PAGE_SECTORS >= vc_tag_limit(tag))
		return false;
	atomic_inc(&tag->used);
	rcu_read_unlock();
	sent = vcache_large_write(tag, bio, io);
	rcu_read_lock();
	if (!sent)
		atomic_dec(&tag->used);
	return sent;
}

/**
 * vcache_write_copied - take another path with a large write that the cache device has failed
 * @tag: its tag, with a page reserved
 * @bio: the write
 * @io: our data of it
 */
void vcache_write_copied(struct vcache_tag *tag, struct bio *bio, struct vcache_io *io)
{
	io->copied = true;
	if (vc_write_wait(tag, bio, io) == DM_MAPIO_REQUEUE) {
		bio->bi_status = BLK_STS_DM_REQUEUE;
		bio_endio(bio);
	}
}

/**
 * vcache_write_bio - map a write
 * @vt: the target
 * @bio: the write
 * @io: our data of it
 *
 * Return: what the map function of a target returns.
 */
int vcache_write_bio(struct vcache_target *vt, struct bio *bio, struct vcache_io *io)
{
	struct vcache_dev *dev = vt->dev;
	int section = srcu_read_lock(&dev->writers), r;
	bool commit = false, nowait = io->nowait;
	struct vcache_tag *tag;

	/* The tag is not freed in this section, nor while it has pages reserved. */
	rcu_read_lock();
	tag = vcache_tag_of_write(vt, bio);
	if (vt->scope == VCACHE_SCOPE_VOLUME)
		vcache_payer_note(tag);
	vc_write_time(tag, io);
	if (vc_write_large(tag, bio, io)) {
		rcu_read_unlock();
		srcu_read_unlock(&dev->writers, section);
		return DM_MAPIO_SUBMITTED;
	}
	vc_write_take(tag, bio, io);
	if (!io->unparked && atomic_read(&dev->nparked) &&
	    vcache_parked_overlap(dev, bio)) {
		VCACHE_PROBE("write parks behind another request");
		r = vc_write_park(dev, bio, io);
	} else if (READ_ONCE(dev->writeback)) {
		r = vc_write_log(tag, bio, io, &commit);
	} else if (bio->bi_opf & REQ_FUA) {
		r = vc_write_direct(dev, bio, io);
	} else if (vcache_bio_pages(bio) > READ_ONCE(tag->limit)) {
		r = vc_write_direct(dev, bio, io);
	} else if (!bio_list_empty(&tag->waiting) ||
		   !vc_tag_reserve(tag, vcache_bio_pages(bio))) {
		r = vc_write_wait(tag, bio, io);
	} else if (vc_write_buffered(tag, bio, io, NULL)) {
		r = vc_write_park(dev, bio, io);
	} else {
		r = DM_MAPIO_SUBMITTED;
	}
	/* dm does not complete it. */
	if (r == DM_MAPIO_REQUEUE)
		vcache_write_done(io, BLK_STS_DM_REQUEUE);
	rcu_read_unlock();
	if (commit)
		vc_write_commit(tag, nowait);
	srcu_read_unlock(&dev->writers, section);
	return r;
}

/*
 * Raise the goal by what a write lacks. Called with tag->lock held, by the worker, which
 * then writes it out. Return: false, as there is no space yet.
 */
static bool vc_tag_make_space(struct vcache_tag *tag, unsigned int pages)
{
	unsigned int want = atomic_read(&tag->used) + pages;
	unsigned int limit = vc_tag_limit(tag);

	lockdep_assert_held(&tag->lock);
	if (want > limit)
		WRITE_ONCE(tag->goal, max(tag->goal, min(want - limit, tag->ndirty)));
	return false;
}

/* Admit a write above the limit, if the tag has nothing else in the buffer that can be written. */
static bool vc_tag_force(struct vcache_tag *tag, unsigned int pages)
{
	int bad = atomic_read(&tag->bad);

	return atomic_cmpxchg(&tag->used, bad, bad + pages) == bad;
}

/* What happens to a write that has waited. */
enum vc_admission {
	VC_ADMIT_BUFFER,
	VC_ADMIT_DIRECT,
	VC_ADMIT_ERROR,
};

/*
 * Decide about a write. Called with tag->lock held. Return: false if
 * the write has to wait on.
 */
static bool vc_tag_try_admit(struct vcache_tag *tag, struct bio *bio,
			     enum vc_admission *how)
{
	unsigned int limit = READ_ONCE(tag->limit), pages = vcache_bio_pages(bio);
	bool log = READ_ONCE(tag->dev->writeback) || vcache_io(bio)->partial;

	lockdep_assert_held(&tag->lock);
	if (pages > limit && !log)
		*how = VC_ADMIT_DIRECT;
	else if (vc_tag_reserve(tag, pages) ||
		 (pages > vc_tag_limit(tag) && vc_tag_force(tag, pages)))
		*how = VC_ADMIT_BUFFER;
	else if (atomic_read(&tag->bad) + min(pages, limit) > limit)
		*how = VC_ADMIT_ERROR;
	else
		return vc_tag_make_space(tag, pages);
	return true;
}

static struct bio *vc_tag_next_waiting(struct vcache_tag *tag,
				       enum vc_admission *how)
{
	struct bio *bio;

	spin_lock_irq(&tag->lock);
	bio = bio_list_peek(&tag->waiting);
	if (bio && vc_tag_try_admit(tag, bio, how))
		bio_list_pop(&tag->waiting);
	else
		bio = NULL;
	spin_unlock_irq(&tag->lock);
	return bio;
}

/*
 * A write that was admitted has found no memory, or the share has become smaller than the
 * write. Return: true if it has to wait on.
 */
static bool vc_tag_refuse(struct vcache_tag *tag, struct bio *bio,
			  struct vcache_io *io)
{
	/* A write with FUA has to be durable with the part that is in the buffer. */
	if (!READ_ONCE(tag->dev->writeback) && !io->partial) {
		vc_write_park(tag->dev, bio, io);
		return false;
	}
	io->start = ktime_get_ns();
	spin_lock_irq(&tag->lock);
	bio_list_add_head(&tag->waiting, bio);
	spin_unlock_irq(&tag->lock);
	VCACHE_PROBE("write waits for memory");
	/* Other tags may have what is left of the memory. */
	vcache_tag_write_out_all(tag);
	mod_delayed_work(tag->dev->wq, &tag->dev->age_work, VC_MEMORY_RETRY);
	return true;
}

/*
 * Take a write that has waited into the buffer, or park it behind a request that was parked
 * meanwhile. Outside mode writeback, a write of which a part is in the buffer is not parked:
 * a parked write goes to the origin, and its first part would follow later. Return: true if
 * it is in the buffer or parked.
 */
static bool vc_tag_take(struct vcache_tag *tag, struct bio *bio, struct vcache_io *io)
{
	struct vcache_dev *dev = tag->dev;
	int section = srcu_read_lock(&dev->writers);
	bool taken;

	rcu_read_lock();
	if (atomic_read(&dev->nparked) && vcache_parked_overlap(dev, bio) &&
	    (READ_ONCE(dev->writeback) || !io->partial)) {
		VCACHE_PROBE("write that waited parks behind another request");
		atomic_sub(vcache_bio_pages(bio), &tag->used);
		vc_write_park(dev, bio, io);
		taken = true;
	} else {
		taken = !vc_write_buffered(tag, bio, io, NULL);
	}
	rcu_read_unlock();
	srcu_read_unlock(&dev->writers, section);
	return taken;
}

/**
 * vcache_tag_admit - admit writes for which there is space now
 * @tag: the tag; called by its worker
 *
 * If the origin refuses so much of the buffered data that there will never be space for a
 * write, the write gets the error instead of waiting for ever. A write that is larger than
 * the share has become bypasses the buffer, and so does one for which there is no memory:
 * the worker must not wait for memory, because it is what frees memory.
 */
void vcache_tag_admit(struct vcache_tag *tag)
{
	enum vc_admission how;
	struct bio *bio;

	while ((bio = vc_tag_next_waiting(tag, &how))) {
		struct vcache_io *io = vcache_io(bio);

		atomic64_add(ktime_get_ns() - io->start, &vcache_stats(tag)->wait_ns);
		if (how == VC_ADMIT_ERROR)
			bio_io_error(bio);
		else if (how == VC_ADMIT_BUFFER && vc_tag_take(tag, bio, io))
			continue;
		else if (vc_tag_refuse(tag, bio, io))
			break;
	}
}

/**
 * vcache_tag_requeue - give waiting writes back to dm
 * @tag: a tag of a device that is being suspended without a flush
 */
void vcache_tag_requeue(struct vcache_tag *tag)
{
	struct bio_list list;
	struct bio *bio;

	spin_lock_irq(&tag->lock);
	list = tag->waiting;
	bio_list_init(&tag->waiting);
	spin_unlock_irq(&tag->lock);

	while ((bio = bio_list_pop(&list))) {
		bio->bi_status = BLK_STS_DM_REQUEUE;
		bio_endio(bio);
	}
}
