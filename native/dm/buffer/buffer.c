// SPDX-License-Identifier: GPL-2.0-only
/*
 * dm-vcache: writes into the buffer. See blocks.c for the index of the blocks.
 *
 * The index changes under the lock of the block that is added or removed. So a locked
 * block that is not DEAD is at its place in the index, or its newer version is.
 */
#include <linux/highmem.h>

#include "internal.h"

/* Copy @sectors of the bio at @iter into the block, from its sector @off on. */
static void vc_block_fill(struct vcache_block *b, unsigned int off,
			  unsigned int sectors, struct bio *bio,
			  struct bvec_iter *iter)
{
	void *to = page_address(b->page) + (off << SECTOR_SHIFT);
	unsigned int len = sectors << SECTOR_SHIFT;

	while (len) {
		struct bio_vec bv = bio_iter_iovec(bio, *iter);

		bv.bv_len = min(bv.bv_len, len);
		memcpy_from_bvec(to, &bv);
		bio_advance_iter_single(bio, iter, bv.bv_len);
		to += bv.bv_len;
		len -= bv.bv_len;
	}
}

/* Put a new dirty block on the list of its tag. Called with b->lock held. */
static void vc_block_enter(struct vcache_block *b)
{
	struct vcache_tag *tag = b->tag;

	lockdep_assert_held(&b->lock);
	b->since = jiffies;
	atomic_long_inc(&tag->dev->pending);
	spin_lock(&tag->lock);
	b->slot = vcache_epoch_enter(&tag->epoch);
	list_add_tail(&b->node, &tag->dirty);
	b->queued = true;
	WRITE_ONCE(tag->ndirty, tag->ndirty + 1);
	spin_unlock(&tag->lock);
}

/*
 * A tag writes to a block of another tag: from now on hTag, and so every flush, covers
 * the block. Called with b->lock held; the block is DIRTY. A block that the worker of its
 * tag has taken already stays with that worker.
 *
 * The goal of a list counts its first blocks. So a block that is put in front of the new
 * list adds one to its goal, if it was part of the goal of the old list or if the new
 * list has a goal. Both locks are held, because a flush that looks at one list after the
 * other must find the block in one of them.
 */
static void vc_block_share(struct vcache_block *b)
{
	struct vcache_tag *tag = b->tag, *host = tag->dev->host;
	bool asked;

	lockdep_assert_held(&b->lock);
	spin_lock(&tag->lock);
	spin_lock_nested(&host->lock, SINGLE_DEPTH_NESTING);
	b->shared = true;
	b->host_slot = vcache_epoch_enter(&host->epoch);
	asked = b->queued && (tag->goal || tag->epoch.draining);
	if (b->queued) {
		VCACHE_PROBE("queued block becomes shared");
		WRITE_ONCE(tag->ndirty, tag->ndirty - 1);
		/* In front, because it may be older than the blocks there. */
		list_move(&b->node, &host->dirty);
		WRITE_ONCE(host->ndirty, host->ndirty + 1);
		if (asked || host->goal)
			WRITE_ONCE(host->goal, host->goal + 1);
	}
	spin_unlock(&host->lock);
	spin_unlock(&tag->lock);
	if (asked)
		queue_work(host->dev->wq, &host->work);
}

/* Mark sectors as valid. Return: how many were not before. */
static unsigned int vc_block_mark(struct vcache_block *b, unsigned int off,
				  unsigned int sectors)
{
	unsigned int had = bitmap_weight(b->valid, VC_PAGE_SECTORS);
	unsigned int added;

	bitmap_set(b->valid, off, sectors);
	added = bitmap_weight(b->valid, VC_PAGE_SECTORS) - had;
	atomic64_add(added, &b->tag->dirty_sectors);
	return added;
}

/* The part of a write in one page. */
struct vc_piece {
	struct vcache_tag *tag;
	struct bio *bio;
	struct bvec_iter *iter;
	pgoff_t index;
	unsigned int off;
	unsigned int sectors;
};

static unsigned int vc_piece_fill(struct vc_piece *p, struct vcache_block *b)
{
	vc_block_fill(b, p->off, p->sectors, p->bio, p->iter);
	return vc_block_mark(b, p->off, p->sectors);
}

/*
 * Write into the block that the index has, if that is allowed. Return: true if it was
 * done.
 */
static bool vc_piece_overwrite(struct vc_piece *p, struct vcache_block *b)
{
	struct vcache_tag *host = p->tag->dev->host;
	unsigned long flags;
	bool dirty;

	spin_lock_irqsave(&b->lock, flags);
	dirty = b->state == VC_DIRTY;
	if (dirty) {
		unsigned int added = vc_piece_fill(p, b);

		atomic64_add(p->sectors - added,
			     &vcache_stats(p->tag)->absorbed_sectors);
		if (b->tag != p->tag && b->tag != host && !b->shared)
			vc_block_share(b);
	}
	spin_unlock_irqrestore(&b->lock, flags);
	return dirty;
}

/*
 * Put the filled block @n in the place of @old (NULL: of nothing). Called with the locks
 * of both held. Return: 0; -EAGAIN if the place has been taken; -ENOMEM.
 */
static int vc_piece_publish(struct vc_piece *p, struct vcache_block *n,
			    struct vcache_block *old)
{
	struct vcache_dev *dev = p->tag->dev;
	int r = vcache_blocks_swap(dev, p->index, old, n);

	lockdep_assert_held(&n->lock);
	if (r)
		return r;
	/* While the block is locked it cannot be written out, so this comes first. */
	if (dev->vol)
		vcache_buffer_upper->written(dev->vol, p->index, 1);
	vc_piece_fill(p, n);
	vc_block_enter(n);
	return 0;
}

/*
 * Put the new block @n in the place of @old, which is being written out or is durable. In
 * the first case the new block inherits the content. So nothing is lost if the write-out
 * fails.
 */
static int vc_piece_replace(struct vc_piece *p, struct vcache_block *n,
			    struct vcache_block *old)
{
	struct vcache_tag *host = p->tag->dev->host;
	bool inherits;
	int r;

	if (old->state == VC_DIRTY || old->state == VC_DEAD || old->newer)
		return -EAGAIN;
	inherits = old->state == VC_WRITEOUT;
	if (inherits) {
		copy_page(page_address(n->page), page_address(old->page));
		bitmap_copy(n->valid, old->valid, VC_PAGE_SECTORS);
	}
	r = vc_piece_publish(p, n, old);
	if (r) {
		bitmap_zero(n->valid, VC_PAGE_SECTORS);
		return r;
	}
	if (inherits) {
		n->older = old;
		old->newer = n;
		atomic64_add(bitmap_weight(old->valid, VC_PAGE_SECTORS),
			     &n->tag->dirty_sectors);
		if ((old->tag != n->tag || old->shared) && n->tag != host)
			vc_block_share(n);
	}
	return 0;
}

/*
 * Insert a new block. It is locked before others can find it, so that nobody sees it
 * without its content.
 */
static int vc_piece_insert(struct vc_piece *p, struct vcache_block *n,
			   struct vcache_block *old)
{
	unsigned long flags;
	int r;

	if (old) {
		spin_lock_irqsave(&old->lock, flags);
		spin_lock_nested(&n->lock, SINGLE_DEPTH_NESTING);
		r = vc_piece_replace(p, n, old);
		spin_unlock(&n->lock);
		spin_unlock_irqrestore(&old->lock, flags);
	} else {
		spin_lock_irqsave(&n->lock, flags);
		r = vc_piece_publish(p, n, NULL);
		spin_unlock_irqrestore(&n->lock, flags);
	}
	return r;
}

/*
 * Write one page. Return: 1 if that needed a new block, 0 if not, or -ENOMEM. What was
 * found in the index may change while the new block is made. So it is checked again under
 * its lock before the new block takes its place.
 */
static int vc_piece_write(struct vc_piece *p)
{
	struct vcache_block *n = NULL, *b;
	int r;

	rcu_read_lock();
	do {
		b = vcache_blocks_load(p->tag->dev, p->index);
		if (b && vc_piece_overwrite(p, b)) {
			r = 0;
			break;
		}
		if (!n)
			n = vcache_block_alloc(p->tag, p->index);
		r = n ? vc_piece_insert(p, n, b) ?: 1 : -ENOMEM;
	} while (r == -EAGAIN);
	rcu_read_unlock();
	if (n && r != 1)
		vcache_block_put(n);
	return r;
}

/**
 * vcache_buffer_write - take a write into the buffer
 * @tag: the tag that writes
 * @bio: the write
 * @taken: the number of new pages that it used
 *
 * Return: 0, or -ENOMEM. Then a part of it may be in the buffer, as it may be of any write
 * that has not completed. If no write bypasses the buffer, it goes on behind that part
 * when it is tried again.
 */
int vcache_buffer_write(struct vcache_tag *tag, struct bio *bio, unsigned int *taken)
{
	struct bvec_iter iter = bio->bi_iter;
	struct vc_piece p = { .tag = tag, .bio = bio, .iter = &iter };

	*taken = 0;
	while (iter.bi_size) {
		int r;

		p.index = iter.bi_sector >> VC_PAGE_SECTORS_SHIFT;
		p.off = iter.bi_sector & (VC_PAGE_SECTORS - 1);
		p.sectors = min(VC_PAGE_SECTORS - p.off,
				iter.bi_size >> SECTOR_SHIFT);
		r = vc_piece_write(&p);
		if (r < 0) {
			if (READ_ONCE(tag->dev->writeback)) {
				bio->bi_iter = iter;
				vcache_io(bio)->partial = true;
			}
			return r;
		}
		*taken += r;
	}
	return 0;
}

/* Take a CLEAN block out of the index, unless a newer one has its place. */
static void vc_block_reap(struct vcache_dev *dev, struct vcache_block *b)
{
	unsigned long flags;

	spin_lock_irqsave(&b->lock, flags);
	b->state = VC_DEAD;
	vcache_blocks_swap(dev, b->index, b, NULL);
	spin_unlock_irqrestore(&b->lock, flags);
}

/**
 * vcache_reap_work - free blocks that are durable
 * @work: vcache_dev.reap_work
 *
 * This is not done when a write-out completes, so that no flush ever takes the lock of
 * the index.
 */
void vcache_reap_work(struct work_struct *work)
{
	struct vcache_dev *dev = container_of(work, struct vcache_dev, reap_work);
	struct llist_node *list = llist_del_all(&dev->reap);
	struct vcache_block *b, *next;

	llist_for_each_entry_safe(b, next, list, reap) {
		struct vcache_tag *tag = b->tag;

		vc_block_reap(dev, b);
		vcache_block_put(b);
		atomic_dec(&tag->used);
		if (!bio_list_empty(&tag->waiting))
			queue_work(dev->wq, &tag->work);
		cond_resched();
	}
	if (atomic_read(&dev->nparked))
		queue_work(dev->wq, &dev->park_work);
	wake_up(&dev->idle);
}
