// SPDX-License-Identifier: GPL-2.0-only
/*
 * dm-vcache: reads that the cache device has failed.
 *
 * Such a read is taken up by a worker, piece by piece: clean data is read from the origin.
 * Dirty data is read from the cache once more; if that fails, too, the read fails, because
 * only the cache has the data. Then the buffered sectors are copied over the result, as
 * after any other read. A piece that the buffer covers is not read at all.
 *
 * DOC: Order
 *
 * The pieces are looked up again, because a cell may have been destaged or superseded since
 * the read came. What the index says now, and the origin, are never older than what it
 * said then. The buffer is not looked up again: a write that came later than the read may
 * be missed by it, and what was in the buffer before is referenced by the read.
 *
 * The chunk that was read is referenced until its cells are marked as unreadable. A read of
 * the origin references no chunk, because a reclaim waits for the references. Memory: each
 * device has requests of its own for this, and each is sent before the next is allocated.
 */
#include "internal.h"

/**
 * struct vc_retry - a piece of a read that is read again
 * @read: the read
 * @iter: the piece: its place on the device, and where its data goes
 * @cell: its first cell; VC_CELL_NONE: it is read from the origin
 * @bio: the request
 */
struct vc_retry {
	struct bio *read;
	struct bvec_iter iter;
	u32 cell;
	struct bio bio;
};

/* Reserved requests, for when memory is short. */
#define VC_RETRIES_MIN 4

/* The last sector of a piece. */
static u64 vc_iter_last(const struct bvec_iter *iter)
{
	return iter->bi_sector + (iter->bi_size >> SECTOR_SHIFT) - 1;
}

/**
 * vcache_fallback_lost - report that a piece of a read cannot be read
 * @io: our data of the read
 * @iter: the piece
 */
void vcache_fallback_lost(struct vcache_io *io, const struct bvec_iter *iter)
{
	struct vcache_volume *v = io->dev->vol;

	DMERR_LIMIT("%s: volume %u tag %u: cannot read the only copy of sectors %llu to %llu",
		    dm_device_name(v->pool->md), v->id, io->read.tag->id,
		    (u64)iter->bi_sector, vc_iter_last(iter));
}

/* Count a failed read of the cache device. */
static void vc_fallback_count(struct vcache_io *io, u32 cell)
{
	struct vcache_volume *v = io->dev->vol;

	atomic_inc(&v->cache_errors);
	vcache_pool_read_failed(v->pool, cell);
	vcache_tag_event(io->read.tag, VCACHE_EVENT_KIND_CACHE_ERROR);
}

static void vc_retry_end(struct bio *bio)
{
	struct vc_retry *retry = container_of(bio, struct vc_retry, bio);
	struct vcache_io *io = vcache_io(retry->read);
	struct bio *read = retry->read;

	if (bio->bi_status)
		read->bi_status = bio->bi_status;
	if (retry->cell != VC_CELL_NONE) {
		if (bio->bi_status) {
			vc_fallback_count(io, retry->cell);
			vcache_fallback_lost(io, &retry->iter);
		} else {
			vcache_pool_read_ok(io->dev->vol->pool);
		}
		vcache_lookup_done(io->dev->vol->pool, retry->cell);
	}
	bio_put(bio);
	bio_endio(read);
}

/* Read a piece again. */
static void vc_retry_send(struct bio *read, const struct bvec_iter *iter, u32 cell)
{
	struct vcache_dev *dev = vcache_io(read)->dev;
	struct vcache_volume *v = dev->vol;
	struct block_device *bdev = cell == VC_CELL_NONE ? v->origin :
				    v->pool->bdev;
	struct vc_retry *retry;
	struct bio *bio;

	bio = bio_alloc_clone(bdev, read, GFP_NOIO, &dev->retries);
	/* The clone of a request to a partition says that it has been sent already. */
	bio_set_dev(bio, bdev);
	bio->bi_opf = REQ_OP_READ | (read->bi_opf & VC_READ_FLAGS);
	bio->bi_iter = *iter;
	if (cell != VC_CELL_NONE) {
		bio->bi_iter.bi_sector = vcache_cell_sector(cell, iter->bi_sector);
	} else {
		vcache_io(read)->read.origin = true;
		vcache_readers_note(v);
	}
	bio->bi_end_io = vc_retry_end;
	retry = container_of(bio, struct vc_retry, bio);
	retry->read = read;
	retry->iter = *iter;
	retry->cell = cell;
	bio_inc_remaining(read);
	submit_bio_noacct(bio);
}

/*
 * Go on with the next piece of a read. Dirty blocks are read one by one, so that one that
 * is lost does not take others with it. Return: the sectors of the piece.
 */
static unsigned int vc_fallback_piece(struct bio *read, struct bvec_iter iter)
{
	unsigned int most = iter.bi_size >> SECTOR_SHIFT, n;
	struct vcache_io *io = vcache_io(read);
	struct vcache_volume *v = io->dev->vol;
	u32 cell;

	n = vcache_lookup(v, iter.bi_sector, most, true, &cell);
	if (cell != VC_CELL_NONE)
		n = min_t(unsigned int, n, VC_BLOCK_SECTORS -
			  iter.bi_sector % VC_BLOCK_SECTORS);
	iter.bi_size = n << SECTOR_SHIFT;
	if (vcache_read_hits(&iter, &io->read) == n) {
		if (cell != VC_CELL_NONE)
			vcache_lookup_done(v->pool, cell);
	} else if (cell != VC_CELL_NONE &&
		   READ_ONCE(v->pool->state) == VC_POOL_FAILED) {
		vcache_fallback_lost(io, &iter);
		read->bi_status = BLK_STS_IOERR;
		vcache_lookup_done(v->pool, cell);
	} else {
		vc_retry_send(read, &iter, cell);
	}
	return n;
}

/* Note what the cache device could not read, and drop the reference to its chunk. */
static void vc_fallback_note(struct vcache_io *io)
{
	const struct bvec_iter *iter = &io->read.iter;
	struct vcache_volume *v = io->dev->vol;

	vc_fallback_count(io, io->cell);
	DMWARN_LIMIT("%s: volume %u tag %u: the cache cannot read sectors %llu to %llu",
		     dm_device_name(v->pool->md), v->id, io->read.tag->id,
		     (u64)iter->bi_sector, vc_iter_last(iter));
	vcache_lookup_failed(v, io->cell, iter->bi_sector,
			     iter->bi_size >> SECTOR_SHIFT);
	vcache_lookup_done(v->pool, io->cell);
	io->cell = VC_IO_NO_CELL;
}

/* Complete a read that the cache device has failed. */
static void vc_fallback_read(struct bio *read)
{
	struct vcache_io *io = vcache_io(read);
	struct bvec_iter iter = io->read.iter;

	VCACHE_PROBE("failed read of the cache goes to the origin");
	vc_fallback_note(io);
	read->bi_status = BLK_STS_OK;
	/* It has been completed once: it must not count as throttled or split any more. */
	bio_clear_flag(read, BIO_QOS_THROTTLED);
	bio_clear_flag(read, BIO_QOS_MERGED);
	bio_clear_flag(read, BIO_CHAIN);
	atomic_set(&read->__bi_remaining, 1);
	while (iter.bi_size)
		bio_advance_iter(read, &iter, vc_fallback_piece(read, iter)
				 << SECTOR_SHIFT);
	/* The last piece completes it; then vcache_read_done() is called. */
	bio_endio(read);
}

/*
 * Take up reads that the cache device has failed. It waits only when the block layer
 * allocates a request. dm counts the reads, so a suspend waits for them, and the table
 * stays.
 */
static void vc_fallback_work(struct work_struct *work)
{
	struct vcache_dev *dev = container_of(work, struct vcache_dev, fallback_work);
	struct bio_list list;
	struct bio *bio;

	spin_lock_irq(&dev->fallback_lock);
	list = dev->fallback;
	bio_list_init(&dev->fallback);
	spin_unlock_irq(&dev->fallback_lock);

	while ((bio = bio_list_pop(&list)))
		vc_fallback_read(bio);
}

/**
 * vcache_fallback - the cache device has completed a read
 * @bio: the read
 * @io: our data of it
 * @status: the answer of the cache device
 *
 * Return: true if the read is not complete yet. It will be completed once more.
 */
bool vcache_fallback(struct bio *bio, struct vcache_io *io, blk_status_t status)
{
	struct vcache_dev *dev = io->dev;
	unsigned long flags;

	/* These are no failures: dm sends the read again. */
	if (status == BLK_STS_DM_REQUEUE || status == BLK_STS_AGAIN)
		return false;
	if (likely(!status)) {
		vcache_pool_read_ok(dev->vol->pool);
		return false;
	}
	spin_lock_irqsave(&dev->fallback_lock, flags);
	bio_list_add(&dev->fallback, bio);
	spin_unlock_irqrestore(&dev->fallback_lock, flags);
	queue_work(dev->wq, &dev->fallback_work);
	return true;
}

/**
 * vcache_fallback_init - prepare a device for failed reads of its cache
 * @dev: the device, being made
 *
 * Return: 0 or -ENOMEM.
 */
int vcache_fallback_init(struct vcache_dev *dev)
{
	spin_lock_init(&dev->fallback_lock);
	bio_list_init(&dev->fallback);
	INIT_WORK(&dev->fallback_work, vc_fallback_work);
	return bioset_init(&dev->retries, VC_RETRIES_MIN,
			   offsetof(struct vc_retry, bio), 0);
}
