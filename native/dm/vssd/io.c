// SPDX-License-Identifier: GPL-2.0-only
/*
 * dm-vcache: requests to an elastic SSD. dm splits them at the ends of blocks, except discards.
 *
 * A request to a block that has a chunk goes to the cache device at once. With persist, writes
 * have FUA, so a flush has nothing to do: it must not send a FLUSH that would make the data of
 * others durable. Without persist nothing is left after a power cut, so nothing has to be durable.
 */
#include <linux/blkdev.h>

#include "internal.h"

static struct vc_vssd_io *vc_vssd_io(struct bio *bio)
{
	return dm_per_bio_data(bio, sizeof(struct vc_vssd_io));
}

/* Leave a request to the worker. */
static int vc_vssd_defer(struct vcache_vssd *s, struct bio *bio)
{
	unsigned long flags;

	spin_lock_irqsave(&s->lock, flags);
	bio_list_add(&s->deferred, bio);
	spin_unlock_irqrestore(&s->lock, flags);
	queue_work(s->wq, &s->work);
	return DM_MAPIO_SUBMITTED;
}

/* Complete a request without the cache device. */
static int vc_vssd_end(struct bio *bio, blk_status_t status)
{
	bio->bi_status = status;
	bio_endio(bio);
	return DM_MAPIO_SUBMITTED;
}

/* Direct a request to the chunk of its block, which it holds. */
static void vc_vssd_aim(struct vcache_vssd *s, struct bio *bio, u32 chunk,
			struct vc_vssd_block *b)
{
	sector_t inside = bio->bi_iter.bi_sector & ((1U << s->shift) - 1);

	vc_vssd_io(bio)->block = b;
	bio_set_dev(bio, s->pool->bdev);
	bio->bi_iter.bi_sector = ((sector_t)chunk << s->shift) + inside;
	if (bio_op(bio) != REQ_OP_WRITE)
		return;
	if (s->persist)
		bio->bi_opf |= vcache_durable_flags(s->pool->bdev);
	else
		bio->bi_opf &= ~REQ_FUA;
}

static int vc_vssd_refuse(struct vcache_vssd *s, struct bio *bio)
{
	atomic64_inc(&s->refused);
	return vc_vssd_end(bio, BLK_STS_NOSPC);
}

/* Let a write wait for a chunk that is being zeroed. */
static void vc_vssd_starve(struct vcache_vssd *s, struct bio *bio)
{
	bool soon;

	spin_lock_irq(&s->lock);
	/* If all have been zeroed meanwhile nobody would look at the list. */
	soon = s->ready.nr || !(s->raw.nr || s->zeroing);
	bio_list_add(soon ? &s->deferred : &s->starved, bio);
	spin_unlock_irq(&s->lock);
	if (soon)
		queue_work(s->wq, &s->work);
	else
		vc_vssd_fill_soon(s);
}

/* Map the block of a write. Return: as vc_vssd_map(). */
static int vc_vssd_map_for(struct vcache_vssd *s, u32 block, bool worker)
{
	if (!s->persist)
		return vc_vssd_map(s, block);
	return worker ? vc_vssd_map_durably(s, block) : -EAGAIN;
}

/* Handle a read or a write. @worker: vcache_vssd.mutex is held. Return: as a map function. */
static int vc_vssd_data(struct vcache_vssd *s, struct bio *bio, bool worker)
{
	u32 block = bio->bi_iter.bi_sector >> s->shift;
	struct vc_vssd_block *b = &s->map[block];
	u32 chunk = vc_vssd_hold(s, b);
	int r = 0;

	if (chunk == VC_VSSD_NONE && bio_op(bio) == REQ_OP_WRITE) {
		r = vc_vssd_map_for(s, block, worker);
		if (r == -ENOSPC)
			return vc_vssd_refuse(s, bio);
		if (r && r != -EAGAIN)
			return vc_vssd_end(bio, errno_to_blk_status(r));
		chunk = r ? VC_VSSD_BUSY : vc_vssd_hold(s, b);
	}
	if (vc_vssd_is_chunk(chunk)) {
		vc_vssd_aim(s, bio, chunk, b);
		return DM_MAPIO_REMAPPED;
	}
	if (chunk == VC_VSSD_TAKEN) {
		atomic64_inc(&s->errors);
		return vc_vssd_end(bio, BLK_STS_IOERR);
	}
	if (chunk == VC_VSSD_NONE && bio_op(bio) == REQ_OP_READ) {
		zero_fill_bio(bio);
		return vc_vssd_end(bio, BLK_STS_OK);
	}
	if (!worker)
		return vc_vssd_defer(s, bio);
	vc_vssd_starve(s, bio);
	return DM_MAPIO_SUBMITTED;
}

/* With persist and a cache that has no FUA, only a FLUSH of the device makes data durable. */
static int vc_vssd_flush(struct vcache_vssd *s, struct bio *bio)
{
	if (!s->persist || vcache_isolation_of(s->pool->bdev) != VCACHE_ISOLATION_DEGRADED)
		return vc_vssd_end(bio, BLK_STS_OK);
	bio_set_dev(bio, s->pool->bdev);
	return DM_MAPIO_REMAPPED;
}

/**
 * vc_vssd_request - map a request
 * @s: the elastic SSD
 * @bio: the request
 *
 * Return: what the map function of a target returns.
 */
int vc_vssd_request(struct vcache_vssd *s, struct bio *bio)
{
	vc_vssd_io(bio)->block = NULL;
	if (bio->bi_opf & REQ_PREFLUSH)
		return vc_vssd_flush(s, bio);
	switch (bio_op(bio)) {
	case REQ_OP_READ:
	case REQ_OP_WRITE:
		return vc_vssd_data(s, bio, false);
	case REQ_OP_DISCARD:
		return vc_vssd_defer(s, bio);
	default:
		return DM_MAPIO_KILL;
	}
}

/**
 * vc_vssd_request_done - a request has completed
 * @s: the elastic SSD
 * @bio: the request
 * @status: its status
 */
void vc_vssd_request_done(struct vcache_vssd *s, struct bio *bio, blk_status_t status)
{
	struct vc_vssd_io *io = vc_vssd_io(bio);

	if (!io->block)
		return;
	if (status && status != BLK_STS_DM_REQUEUE && status != BLK_STS_AGAIN)
		atomic64_inc(&s->errors);
	vc_vssd_release(s, io->block);
}

/* Discard the blocks that a request covers as a whole. Parts of blocks stay as they are. */
static void vc_vssd_discard(struct vcache_vssd *s, struct bio *bio)
{
	u64 first = DIV_ROUND_UP_ULL(bio->bi_iter.bi_sector, 1U << s->shift);
	u64 end = bio_end_sector(bio) >> s->shift;
	int r = 0;

	if (first < end)
		r = vc_vssd_free_range(s, first, end - first);
	vc_vssd_end(bio, errno_to_blk_status(r));
}

/* Go on with a request that was left to the worker. */
static void vc_vssd_deferred(struct vcache_vssd *s, struct bio *bio)
{
	int r;

	if (bio_op(bio) == REQ_OP_DISCARD) {
		vc_vssd_discard(s, bio);
		return;
	}
	mutex_lock(&s->mutex);
	r = vc_vssd_data(s, bio, true);
	mutex_unlock(&s->mutex);
	if (r == DM_MAPIO_REMAPPED)
		submit_bio_noacct(bio);
}

/**
 * vc_vssd_work - handle requests that could not be sent at once
 * @work: vcache_vssd.work
 */
void vc_vssd_work(struct work_struct *work)
{
	struct vcache_vssd *s = container_of(work, struct vcache_vssd, work);
	struct bio_list list;
	struct bio *bio;

	spin_lock_irq(&s->lock);
	list = s->deferred;
	bio_list_init(&s->deferred);
	spin_unlock_irq(&s->lock);
	while ((bio = bio_list_pop(&list))) {
		vc_vssd_deferred(s, bio);
		cond_resched();
	}
}
