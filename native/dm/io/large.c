// SPDX-License-Identifier: GPL-2.0-only
/*
 * dm-vcache: large writes, which go to the log of their tag without a copy.
 *
 * The copy of a large write and its checksums take longer than the SSD does. So the data goes
 * from the pages of the guest to the open chunk at once. The guest may change these pages
 * meanwhile, so the data has no checksum that a replay could rely on. Instead, its record is
 * written when the data is durable; see VC_RECORD_UNCHECKED in ../../core/format.h. The write is
 * complete when the record is. So no flush has to wait for it.
 *
 * DOC: Order of large writes
 *
 * vcache_volume.large has the blocks of a large write from before it gets its sequence number
 * until the index has them, or it has failed. All who make versions of a block known in another
 * way look there:
 *
 *  - A large write begins only if the buffer has nothing of its blocks. What gets there later is
 *    written out when the large write is complete, see vcache_large_delays(). So of two versions of
 *    a block, the one in the buffer is the newer one for reads, for the index, and after a
 *    crash. The writer adds a block to the buffer, and then looks for large writes; a large write
 *    is noted, and then looks at the buffer. So one of them sees the other.
 *  - Of two large writes of the same blocks, the second one is copied.
 *  - A relocated copy could get a higher number, so relocation leaves these blocks alone.
 *  - A discard waits as for blocks in the buffer, see park.c.
 *  - A promotion of these blocks is dropped, see vcache_lookup_change().
 *
 * Destage may copy an older version of the block meanwhile. That is as if it had done so before.
 */
#include <linux/module.h>
#include <linux/sizes.h>

#include "internal.h"

static unsigned int large_write_kib = 128;
module_param(large_write_kib, uint, 0644);
MODULE_PARM_DESC(large_write_kib,
		 "Writes of this size or more go to the cache device without a copy, KiB; 0: none");

/**
 * vcache_large_covers - is any part of a range in a large write?
 * @dev: the device
 * @first: first block
 * @last: last block
 */
bool vcache_large_covers(struct vcache_dev *dev, pgoff_t first, pgoff_t last)
{
	return dev->vol && vcache_range_held(&dev->vol->large, first, last);
}

/**
 * vcache_large_delays - must a block stay in the buffer until a large write is complete?
 * @dev: the device
 * @b: the block, dirty
 *
 * A full barrier is between the addition of the block to the buffer and the call; it pairs with
 * vc_large_hold().
 *
 * If so, the workers of all tags are woken then.
 */
bool vcache_large_delays(struct vcache_dev *dev, const struct vcache_block *b)
{
	if (!vcache_large_covers(dev, b->index, b->index))
		return false;
	WRITE_ONCE(dev->large_held, true);
	smp_mb(); /* pairs with vc_large_release() */
	if (!vcache_large_covers(dev, b->index, b->index))
		return false;
	VCACHE_PROBE("block waits for a large write");
	return true;
}

/* Hold the blocks of a write, if nobody has another version of them on the way. */
static bool vc_large_hold(struct vcache_dev *dev, struct vcache_range *r, u64 first, u64 last)
{
	if (!vcache_range_try(&dev->vol->large, r, first, last))
		return false;
	smp_mb(); /* pairs with vc_batch_fill() */
	if (!vcache_buffer_covers(dev, first, last))
		return true;
	vcache_range_put(&dev->vol->large, r);
	return false;
}

/* Release the blocks, and wake those that have waited for that. */
static void vc_large_release(struct vcache_dev *dev, struct vcache_range *r)
{
	struct vcache_tag *tag;

	vcache_range_put(&dev->vol->large, r);
	smp_mb(); /* pairs with vcache_large_delays(), and with whoever parks */
	if (atomic_read(&dev->nparked))
		queue_work(dev->wq, &dev->park_work);
	if (!READ_ONCE(dev->large_held))
		return;
	WRITE_ONCE(dev->large_held, false);
	rcu_read_lock();
	list_for_each_entry_rcu(tag, &dev->tags, node)
		vcache_tag_kick(tag);
	rcu_read_unlock();
}

/**
 * vcache_large_wanted - shall a write go to the log without a copy?
 * @tag: its tag
 * @bio: the write
 * @io: our data of it
 *
 * Not if others have to be served before it, and not if the log may not be used or the device
 * cannot make a single write durable.
 */
bool vcache_large_wanted(const struct vcache_tag *tag, struct bio *bio,
			 const struct vcache_io *io)
{
	unsigned int least = READ_ONCE(large_write_kib) * (SZ_1K >> SECTOR_SHIFT);
	const struct vcache_dev *dev = tag->dev;
	const struct vcache_pool *p;

	if (!least || bio_sectors(bio) < least || !READ_ONCE(dev->writeback) ||
	    READ_ONCE(tag->mode) != VCACHE_MODE_WRITEBACK || io->nowait || io->copied ||
	    io->taken || ((bio->bi_iter.bi_sector | bio_sectors(bio)) % VC_BLOCK_SECTORS))
		return false;
	p = dev->vol->pool;
	return !atomic_read(&dev->nparked) && bio_list_empty(&tag->waiting) &&
	       READ_ONCE(p->state) == VC_POOL_OK && READ_ONCE(tag->log->state) == VC_LOG_OK &&
	       vcache_isolation_of(p->bdev) != VCACHE_ISOLATION_DEGRADED;
}

/* The record is durable and in the index, or it has failed. */
static void vc_large_finish(struct vcache_record *rec)
{
	struct vcache_io *io = rec->owner;
	struct bio *bio = vcache_io_bio(io);
	struct vcache_tag *tag = rec->tag;
	blk_status_t status = rec->status;

	vcache_lookup_change(rec->log->vol, io->large.range.first, rec->info.data);
	vc_large_release(tag->dev, &io->large.range);
	vcache_writeout_complete(tag, rec->info.data * VC_BLOCK_SECTORS);
	if (status)
		vcache_write_copied(tag, bio, io);
	else
		bio_endio(bio);
	vcache_write_unkeep(tag);
}

static void vc_large_work(struct work_struct *work)
{
	struct vcache_large *l = container_of(work, struct vcache_large, work);
	const struct vcache_io *io = l->rec->owner;

	/* Before the index has the data: it could leave the cache before the request ends. */
	vcache_saved_forget(l->rec->log->vol, io->large.range.first, l->rec->info.data);
	l->rec->sent = ktime_get_ns();
	submit_bio_noacct(l->rec->bio);
}

/* The data is durable, or the cache device has failed it: then there is no record. */
static void vc_large_end(struct bio *data)
{
	struct vcache_record *rec = data->bi_private;
	struct vcache_io *io = rec->owner;
	blk_status_t status = data->bi_status;

	vcache_lane_end(rec->log->vol->pool, rec->chunk->lane, true, ktime_get_ns() - rec->sent);
	bio_put(data);
	if (status) {
		VCACHE_PROBE("data of a large write fails");
		rec->bio->bi_status = status;
		bio_endio(rec->bio);
		return;
	}
	INIT_WORK(&io->large.work, vc_large_work);
	queue_work(rec->tag->dev->large_wq, &io->large.work);
}

/* Fill in the record of @n blocks. */
static void vc_large_fill(struct vcache_record *rec, struct vcache_io *io, u64 first, u32 n)
{
	struct vcache_entry e = { .mask = VC_MASK_ALL };
	u32 i;

	rec->info.flags = VC_RECORD_UNCHECKED;
	rec->info.data = n;
	rec->finish = vc_large_finish;
	rec->owner = io;
	__bio_add_page(rec->bio, rec->head, VC_BLOCK_SIZE, 0);
	for (i = 0; i < n; i++) {
		e.block = first + i;
		e.place = rec->info.at + 1 + i;
		vcache_record_add(rec, &e);
	}
}

/* Make the request for the data of a record. Return: NULL without memory. */
static struct bio *vc_large_data(struct vcache_record *rec, struct bio *bio)
{
	struct vcache_pool *p = rec->log->vol->pool;
	struct bio *data = bio_alloc_clone(p->bdev, bio, GFP_NOWAIT, &rec->tag->dev->bs);

	if (!data)
		return NULL;
	data->bi_opf = vcache_append_flags(p);
	data->bi_private = rec;
	data->bi_end_io = vc_large_end;
	return data;
}

/*
 * How many blocks of a write can the next record of a log have? 0 if that is too few to do without
 * the copy.
 */
static u32 vc_large_space(struct vcache_log *log, u32 blocks)
{
	u32 least = READ_ONCE(large_write_kib) / (VC_BLOCK_SIZE / SZ_1K);
	u32 n;

	lockdep_assert_held(&log->append);
	if (vcache_log_is_paced(log))
		return 0;
	n = min3(vcache_log_space(log, VC_APPEND_LOG), vcache_log_paced_blocks(log), blocks);
	return n >= min(least, blocks) ? n : 0;
}

/* Make the record and the request for its data. Return: the latter; NULL without memory. */
static struct bio *vc_large_make(struct vcache_tag *tag, struct bio *bio, struct vcache_io *io,
				 u32 n)
{
	struct vcache_pool *p = tag->log->vol->pool;
	struct vcache_record *rec = vcache_record_make(tag->log, tag, GFP_NOWAIT);
	struct bio *data = NULL;

	if (!rec)
		return NULL;
	rec->bio = bio_alloc_bioset(p->bdev, 1, vcache_append_flags(p), GFP_NOWAIT, &p->bs);
	if (rec->bio)
		data = vc_large_data(rec, bio);
	if (!data) {
		if (rec->bio)
			bio_put(rec->bio);
		vcache_record_free(p, rec);
		return NULL;
	}
	io->large.rec = rec;
	vc_large_fill(rec, io, bio->bi_iter.bi_sector / VC_BLOCK_SECTORS, n);
	vcache_record_place(rec);
	data->bi_iter.bi_size = n * VC_BLOCK_SIZE;
	data->bi_iter.bi_sector = rec->bio->bi_iter.bi_sector + VC_BLOCK_SECTORS;
	return data;
}

/* Write as much as fits into the open chunk. Return: the request, not sent; or NULL. */
static struct bio *vc_large_begin(struct vcache_tag *tag, struct bio *bio, struct vcache_io *io)
{
	u64 first = bio->bi_iter.bi_sector / VC_BLOCK_SECTORS;
	struct bio *data;
	u32 n;

	lockdep_assert_held(&tag->log->append);
	n = vc_large_space(tag->log, bio_sectors(bio) / VC_BLOCK_SECTORS);
	if (!n || !vc_large_hold(tag->dev, &io->large.range, first, first + n - 1))
		return NULL;
	data = vc_large_make(tag, bio, io, n);
	if (!data) {
		vc_large_release(tag->dev, &io->large.range);
		return NULL;
	}
	vcache_log_wrote(tag->log, 1 + n);
	return data;
}

/**
 * vcache_large_write - write to the log without a copy
 * @tag: the tag, kept by a reserved page
 * @bio: the write; vcache_large_wanted()
 * @io: our data of it
 *
 * It waits for nothing: a lock that somebody else has, a lack of space or of memory is a reason to
 * copy the data.
 *
 * Return: false if the write has to take another path.
 */
bool vcache_large_write(struct vcache_tag *tag, struct bio *bio, struct vcache_io *io)
{
	unsigned int sectors = bio_sectors(bio);
	struct vcache_log *log = tag->log;
	struct bio *data;

	if (!mutex_trylock(&log->append))
		return false;
	data = vc_large_begin(tag, bio, io);
	mutex_unlock(&log->append);
	if (!data)
		return false;
	VCACHE_PROBE("large write goes to the log");
	/* The rest comes as another request. */
	if (bio_sectors(data) < sectors)
		dm_accept_partial_bio(bio, bio_sectors(data));
	io->taken = true;
	vcache_write_count(tag, bio);
	submit_bio_noacct(data);
	return true;
}
