// SPDX-License-Identifier: GPL-2.0-only
/*
 * dm-vcache: the chunks of an elastic SSD that have no block: getting them, zeroing them ahead of
 * their use, and returning what is above the quota.
 */
#include <linux/blkdev.h>
#include <linux/mm.h>

#include "internal.h"

/* When no chunk is free, or zeroing has failed, try again after so long, jiffies. */
#define VC_FILL_RETRY	(HZ / 50 + 1)
#define VC_FILL_ERROR	HZ

/**
 * vc_vssd_fill_soon - look after the chunks without a block
 * @s: the elastic SSD
 *
 * Any context.
 */
void vc_vssd_fill_soon(struct vcache_vssd *s)
{
	if (!READ_ONCE(s->suspended))
		mod_delayed_work(s->wq, &s->fill, 0);
}

/* Take a chunk above the quota that has no block. Return: false if there is none. */
static bool vc_fill_surplus(struct vcache_vssd *s, u32 *chunk)
{
	struct vc_vssd_stack *from = NULL;

	spin_lock_irq(&s->lock);
	if (!s->keep && vc_vssd_owned(s) > s->quota)
		from = s->raw.nr ? &s->raw : s->ready.nr ? &s->ready : NULL;
	if (from)
		*chunk = from->chunk[--from->nr];
	spin_unlock_irq(&s->lock);
	return from;
}

/* Return chunks above the quota to the pool. */
static void vc_fill_return(struct vcache_vssd *s)
{
	u32 chunk;

	while (vc_fill_surplus(s, &chunk)) {
		mutex_lock(&s->pool->lock);
		vcache_direct_return(s->pool, chunk);
		mutex_unlock(&s->pool->lock);
		cond_resched();
	}
}

/* Get a chunk from the pool, and note how many are missing. Return: whether there was one. */
static bool vc_fill_take(struct vcache_vssd *s)
{
	struct vcache_pool *p = s->pool;
	u32 chunk, want;
	bool got = false;

	mutex_lock(&p->lock);
	spin_lock_irq(&s->lock);
	want = s->quota - min(s->quota, vc_vssd_owned(s));
	spin_unlock_irq(&s->lock);
	want = min(want, vcache_direct_left(p));
	if (want && p->state == VC_POOL_OK)
		got = vcache_direct_take(p, &chunk);
	if (got) {
		want--;
		spin_lock_irq(&s->lock);
		s->raw.chunk[s->raw.nr++] = chunk;
		spin_unlock_irq(&s->lock);
	}
	vcache_direct_want(p, s->wanted, want);
	s->wanted = want;
	mutex_unlock(&p->lock);
	return got;
}

/*
 * Write zeroes with FUA: a chunk table that names the chunk must not become durable before them.
 * Without a volatile cache, or if the chunk is forgotten after a power cut, the device may have a
 * faster way. Without FUA the table is written behind a FLUSH.
 */
static int vc_zero_durably(struct vcache_pool *p, sector_t sector, u32 sectors)
{
	int r = 0;

	while (sectors && !r) {
		u32 n = min_t(u32, sectors / VC_BLOCK_SECTORS, BIO_MAX_VECS), i;
		struct bio *bio = bio_alloc_bioset(p->bdev, n, REQ_OP_WRITE | REQ_SYNC | REQ_FUA,
						   GFP_NOIO, &p->bs);

		bio->bi_iter.bi_sector = sector;
		for (i = 0; i < n; i++)
			__bio_add_page(bio, ZERO_PAGE(0), VC_BLOCK_SIZE, 0);
		r = submit_bio_wait(bio);
		bio_put(bio);
		sector += n * VC_BLOCK_SECTORS;
		sectors -= n * VC_BLOCK_SECTORS;
	}
	return r;
}

static int vc_fill_zero(struct vcache_vssd *s, u32 chunk)
{
	struct block_device *bdev = s->pool->bdev;
	sector_t sector = (sector_t)chunk << s->shift;

	if (s->persist && vcache_durable_flags(bdev))
		return vc_zero_durably(s->pool, sector, 1U << s->shift);
	return blkdev_issue_zeroout(bdev, sector, 1U << s->shift, GFP_NOIO, 0);
}

/* Let the writes that wait for a zeroed chunk look again, or fail them. */
static void vc_fill_wake(struct vcache_vssd *s, bool failed)
{
	struct bio_list starved;
	struct bio *bio;

	spin_lock_irq(&s->lock);
	starved = s->starved;
	bio_list_init(&s->starved);
	if (!failed) {
		bio_list_merge(&s->deferred, &starved);
		bio_list_init(&starved);
	}
	spin_unlock_irq(&s->lock);
	while ((bio = bio_list_pop(&starved)))
		bio_io_error(bio);
	queue_work(s->wq, &s->work);
}

/* Zero one raw chunk. Return: 1; 0 if there is none; or a negative errno: then it stays raw. */
static int vc_fill_prepare(struct vcache_vssd *s)
{
	u32 chunk = 0;
	int r;

	spin_lock_irq(&s->lock);
	if (s->raw.nr) {
		chunk = s->raw.chunk[--s->raw.nr];
		s->zeroing++;
	}
	spin_unlock_irq(&s->lock);
	if (!chunk) {
		/* What they waited for may have gone back to the pool. */
		vc_fill_wake(s, false);
		return 0;
	}
	r = vc_fill_zero(s, chunk);
	spin_lock_irq(&s->lock);
	s->zeroing--;
	if (r)
		s->raw.chunk[s->raw.nr++] = chunk;
	else
		s->ready.chunk[s->ready.nr++] = chunk;
	spin_unlock_irq(&s->lock);
	/* After an error they fail, instead of waiting for a device that may be dead. */
	vc_fill_wake(s, r);
	return r ?: 1;
}

/**
 * vc_vssd_fill_work - get, zero and return chunks
 * @work: vcache_vssd.fill
 */
void vc_vssd_fill_work(struct work_struct *work)
{
	struct vcache_vssd *s = container_of(to_delayed_work(work), struct vcache_vssd, fill);
	int r = 1;

	while (r > 0 && !READ_ONCE(s->suspended)) {
		vc_fill_return(s);
		r = vc_fill_prepare(s);
		/* What is raw comes first: writes may wait for it. */
		if (!r)
			r = vc_fill_take(s);
		cond_resched();
	}
	if (READ_ONCE(s->suspended))
		return;
	if (r < 0)
		DMERR_LIMIT("%s: cannot zero a chunk: error %d", dm_device_name(s->md), r);
	if (r < 0 || READ_ONCE(s->wanted))
		queue_delayed_work(s->wq, &s->fill, r < 0 ? VC_FILL_ERROR : VC_FILL_RETRY);
}
