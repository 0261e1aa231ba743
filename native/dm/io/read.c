// SPDX-License-Identifier: GPL-2.0-only
/*
 * dm-vcache: reads.
 *
 * The buffer has newer data than the origin. A read that the buffer covers is served from
 * it. A read that it covers in part reads the origin as a whole, and then the buffered
 * sectors are copied over the result. So no read is split into pages. The blocks are
 * referenced *before* the origin is read. So if a block becomes durable and leaves the
 * buffer meanwhile, its data is in the origin's answer, or is copied over that.
 */
#include <linux/highmem.h>
#include <linux/ktime.h>
#include <linux/slab.h>

#include "internal.h"

static void vc_read_unpin(struct vcache_read *rd)
{
	unsigned int i;

	for (i = 0; i < rd->nr; i++)
		vcache_block_put(rd->pin[i]);
	if (rd->pin != rd->few)
		kfree(rd->pin);
	rd->nr = 0;
}

/* Get space to reference one more block. Return: false without memory. */
static bool vc_read_grow(struct vcache_read *rd, unsigned int most)
{
	struct vcache_block **more;

	if (rd->pin != rd->few || rd->nr < VC_READ_PINS)
		return true;
	more = kmalloc_array(most, sizeof(*more), GFP_NOWAIT | __GFP_NOWARN);
	if (!more)
		return false;
	memcpy(more, rd->few, sizeof(rd->few));
	rd->pin = more;
	return true;
}

/*
 * Reference the buffered blocks of the range. Without memory for all of them the read is
 * cut behind the last referenced block. dm sends the rest again.
 *
 * A block without a reference has just left the index. Its write-out may have failed: then a
 * newer block has its place and its data. So the place is looked up again.
 */
static void vc_read_pin(struct vcache_dev *dev, struct bio *bio,
			struct vcache_read *rd)
{
	pgoff_t at = vcache_first_page(bio), last = vcache_last_page(bio);
	struct vcache_block *b;

	rcu_read_lock();
	while (at <= last && (b = vcache_blocks_next(dev, at, last))) {
		at = b->index;
		if (!refcount_inc_not_zero(&b->ref)) {
			VCACHE_PROBE("read meets a block that leaves the buffer");
			continue;
		}
		at++;
		if (!vc_read_grow(rd, vcache_bio_pages(bio))) {
			sector_t end = b->index << VC_PAGE_SECTORS_SHIFT;

			vcache_block_put(b);
			dm_accept_partial_bio(bio,
					      end - bio->bi_iter.bi_sector);
			break;
		}
		rd->pin[rd->nr++] = b;
	}
	rcu_read_unlock();
}

/**
 * vcache_read_hits - count the sectors of a read, or of a piece of it, that the buffer has
 * @iter: the piece
 * @rd: the read
 */
unsigned int vcache_read_hits(const struct bvec_iter *iter, struct vcache_read *rd)
{
	sector_t start = iter->bi_sector;
	sector_t end = start + (iter->bi_size >> SECTOR_SHIFT);
	unsigned int i, s, hits = 0;

	for (i = 0; i < rd->nr; i++) {
		struct vcache_block *b = rd->pin[i];
		sector_t base = b->index << VC_PAGE_SECTORS_SHIFT;

		for_each_set_bit(s, b->valid, VC_PAGE_SECTORS)
			hits += base + s >= start && base + s < end;
	}
	return hits;
}

static void vc_bio_put_data(struct bio *bio, struct bvec_iter *iter,
			    const void *from, unsigned int len)
{
	while (len) {
		struct bio_vec bv = bio_iter_iovec(bio, *iter);

		bv.bv_len = min(bv.bv_len, len);
		memcpy_to_bvec(&bv, from);
		bio_advance_iter_single(bio, iter, bv.bv_len);
		from += bv.bv_len;
		len -= bv.bv_len;
	}
}

/* Copy the data of the referenced blocks into the read. */
static void vc_read_overlay(struct bio *bio, struct bvec_iter iter,
			    struct vcache_read *rd)
{
	sector_t end = iter.bi_sector + (iter.bi_size >> SECTOR_SHIFT);
	unsigned int i;

	for (i = 0; i < rd->nr; i++) {
		struct vcache_block *b = rd->pin[i];
		sector_t base = b->index << VC_PAGE_SECTORS_SHIFT;
		unsigned int s, e, from = 0, upto;
		unsigned long flags;

		if (base < iter.bi_sector)
			from = iter.bi_sector - base;
		upto = min_t(sector_t, end - base, VC_PAGE_SECTORS);
		spin_lock_irqsave(&b->lock, flags);
		for (s = find_next_bit(b->valid, upto, from); s < upto;
		     s = find_next_bit(b->valid, upto, e)) {
			e = find_next_zero_bit(b->valid, upto, s);
			bio_advance_iter(bio, &iter,
					 (base + s - iter.bi_sector)
					 << SECTOR_SHIFT);
			vc_bio_put_data(bio, &iter, page_address(b->page) +
					(s << SECTOR_SHIFT),
					(e - s) << SECTOR_SHIFT);
		}
		spin_unlock_irqrestore(&b->lock, flags);
	}
}

/* Drop the references to blocks behind the end of a read that was cut. */
static void vc_read_trim(struct vcache_read *rd)
{
	sector_t end = rd->iter.bi_sector + (rd->iter.bi_size >> SECTOR_SHIFT);
	pgoff_t last = (end - 1) >> VC_PAGE_SECTORS_SHIFT;

	while (rd->nr && rd->pin[rd->nr - 1]->index > last)
		vcache_block_put(rd->pin[--rd->nr]);
	if (!rd->nr && rd->pin != rd->few) {
		kfree(rd->pin);
		rd->pin = rd->few;
	}
}

/*
 * Send a read to where its first sector is: to the cache or to the origin. It is cut to
 * what is there in one piece; dm sends the rest again. The buffer was looked up before, so
 * a block that leaves it meanwhile is in the index already.
 *
 * Return: false if only a cache device that has failed has the data.
 */
static bool vc_read_aim(struct vcache_dev *dev, struct bio *bio, struct vcache_io *io)
{
	struct vcache_volume *v = dev->vol;
	unsigned int n;

	n = vcache_lookup(v, bio->bi_iter.bi_sector, bio_sectors(bio), false,
			  &io->cell);
	if (n < bio_sectors(bio))
		dm_accept_partial_bio(bio, n);
	if (io->cell == VC_IO_NO_CELL) {
		vcache_readers_note(v);
		return true;
	}
	if (READ_ONCE(v->pool->state) == VC_POOL_FAILED) {
		vcache_lookup_done(v->pool, io->cell);
		io->cell = VC_IO_NO_CELL;
		return false;
	}
	vcache_lane_begin(v->pool, vcache_cell_chunk(v->pool, io->cell)->lane);
	bio_set_dev(bio, v->pool->bdev);
	bio->bi_iter.bi_sector = vcache_cell_sector(io->cell,
						    bio->bi_iter.bi_sector);
	return true;
}

static void vc_read_count(struct vcache_tag *tag, const struct bvec_iter *iter,
			  unsigned int hits)
{
	unsigned int sectors = iter->bi_size >> SECTOR_SHIFT;

	vcache_curve_touch(tag, VC_CURVE_READ, iter->bi_sector, sectors);
	atomic64_inc(&vcache_stats(tag)->reads);
	atomic64_add(sectors, &vcache_stats(tag)->read_sectors);
	atomic64_add(hits, &vcache_stats(tag)->read_hit_sectors);
}

/* Complete a read of data that is lost with the cache, unless the buffer has it. */
static int vc_read_lost(struct bio *bio, struct vcache_io *io)
{
	struct vcache_read *rd = &io->read;
	unsigned int hits = vcache_read_hits(&rd->iter, rd);

	vc_read_count(rd->tag, &rd->iter, hits);
	if (hits < bio_sectors(bio)) {
		vcache_fallback_lost(io, &rd->iter);
		bio->bi_status = BLK_STS_IOERR;
	}
	bio_endio(bio);
	return DM_MAPIO_SUBMITTED;
}

/**
 * vcache_read_bio - map a read
 * @tag: the tag whose statistics count it
 * @bio: the read
 * @io: our data of it
 * @send: set to a request that has to be sent instead; after rcu_read_unlock(), because
 *	that may sleep
 *
 * Called under rcu_read_lock(), which keeps @tag.
 *
 * Return: what the map function of a target returns.
 */
int vcache_read_bio(struct vcache_tag *tag, struct bio *bio, struct vcache_io *io,
		    struct bio **send)
{
	struct vcache_read *rd = &io->read;
	struct vcache_dev *dev = tag->dev;
	unsigned int hits;
	bool there = true;

	io->kind = VC_IO_READ;
	rd->tag = tag;
	rd->start = ktime_get_ns();
	rd->origin = false;
	atomic_inc(&tag->timed);
	rd->nr = 0;
	rd->pin = rd->few;
	if (atomic_long_read(&dev->nblocks))
		vc_read_pin(dev, bio, rd);
	hits = vcache_read_hits(&bio->bi_iter, rd);
	if (rd->nr && hits == bio_sectors(bio)) {
		vc_read_count(tag, &bio->bi_iter, hits);
		vc_read_overlay(bio, bio->bi_iter, rd);
		vc_read_unpin(rd);
		bio_endio(bio);
		return DM_MAPIO_SUBMITTED;
	}
	rd->iter = bio->bi_iter;
	if (dev->vol && !dev->vol->bypass) {
		there = vc_read_aim(dev, bio, io);
		rd->iter.bi_size = bio->bi_iter.bi_size;
		vc_read_trim(rd);
	}
	if (!there)
		return vc_read_lost(bio, io);
	rd->origin = io->cell == VC_IO_NO_CELL;
	if (rd->origin)
		vcache_bind(dev, bio);
	else /* Count what is sent: the rest comes again. */
		atomic64_add(bio_sectors(bio), &vcache_stats(tag)->cache_hit_sectors);
	if (io->nowait && !bdev_nowait(bio->bi_bdev))
		bio->bi_opf &= ~REQ_NOWAIT; /* the device would refuse it */
	vc_read_count(tag, &rd->iter, vcache_read_hits(&rd->iter, rd));
	if (!rd->nr && io->cell == VC_IO_NO_CELL)
		*send = vcache_promote_read(tag, bio);
	return *send ? DM_MAPIO_SUBMITTED : DM_MAPIO_REMAPPED;
}

/* Count a read of the cache device. */
static void vc_read_lane(const struct vcache_io *io, u64 ns)
{
	struct vcache_pool *p = io->dev->vol->pool;

	vcache_lane_end(p, vcache_cell_chunk(p, io->cell)->lane, false, ns);
}

/* Count how long a read took. After that the tag may be freed. */
static void vc_read_time(struct vcache_io *io, blk_status_t status)
{
	struct vcache_read *rd = &io->read;
	struct vcache_stats *st = vcache_stats(rd->tag);
	u64 ns = ktime_get_ns() - rd->start;

	if (status != BLK_STS_DM_REQUEUE) {
		atomic64_add(ns, &st->read_ns);
		atomic64_inc(&st->read_hist[vcache_hist_bucket(ns)]);
		if (io->cell != VC_IO_NO_CELL)
			vc_read_lane(io, ns);
		if (rd->origin) {
			atomic64_inc(&st->origin_reads);
			atomic64_add(ns, &st->origin_read_ns);
		}
	}
	atomic_dec(&rd->tag->timed);
}

/**
 * vcache_read_done - complete a read that was sent
 * @bio: the read
 * @io: our data of it
 * @status: the answer of the origin, or of the cache device
 */
void vcache_read_done(struct bio *bio, struct vcache_io *io, blk_status_t status)
{
	struct vcache_read *rd = &io->read;

	if (rd->nr) {
		if (!status)
			vc_read_overlay(bio, rd->iter, rd);
		vc_read_unpin(rd);
	}
	vc_read_time(io, status);
}
