// SPDX-License-Identifier: GPL-2.0-only
/*
 * dm-vcache: the index of buffered blocks, and writes into it.
 *
 * The index is changed under the lock of the block that goes in or out, so a
 * block that is locked and not DEAD is where the index says it is, or was
 * replaced by its newer version.
 */
#include <linux/highmem.h>
#include <linux/slab.h>

#include "pool.h"

static struct kmem_cache *vc_block_cache;

/* Writes do not wait for memory: without any they go past the buffer. */
#define VC_BLOCK_GFP (GFP_NOWAIT | __GFP_NOWARN)

static struct vc_block *vc_block_alloc(struct vc_tag *tag, pgoff_t index)
{
	struct vc_block *b = kmem_cache_zalloc(vc_block_cache, VC_BLOCK_GFP);

	if (!b)
		return NULL;
	b->page = alloc_page(VC_BLOCK_GFP);
	if (!b->page) {
		kmem_cache_free(vc_block_cache, b);
		return NULL;
	}
	set_page_private(b->page, (unsigned long)b);
	spin_lock_init(&b->lock);
	refcount_set(&b->ref, 1);
	INIT_LIST_HEAD(&b->node);
	b->state = VC_DIRTY;
	b->index = index;
	b->tag = tag;
	return b;
}

static void vc_block_free_rcu(struct rcu_head *head)
{
	kmem_cache_free(vc_block_cache, container_of(head, struct vc_block, rcu));
}

/**
 * vc_block_put - drop a reference
 * @b: the block
 */
void vc_block_put(struct vc_block *b)
{
	if (!refcount_dec_and_test(&b->ref))
		return;
	set_page_private(b->page, 0);
	__free_page(b->page);
	call_rcu(&b->rcu, vc_block_free_rcu);
}

/**
 * vc_buffer_covers - is any part of a range of pages in the buffer?
 * @dev: the device
 * @first: first page number
 * @last: last page number
 */
bool vc_buffer_covers(struct vc_dev *dev, pgoff_t first, pgoff_t last)
{
	unsigned long index = first;

	if (!atomic_long_read(&dev->nblocks))
		return false;
	return xa_find(&dev->blocks, &index, last, XA_PRESENT);
}

/* Copy @sectors of the bio at @iter into the block from sector @off on. */
static void vc_block_fill(struct vc_block *b, unsigned int off,
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

/* Put a new dirty block on its tag's list. Called with b->lock held. */
static void vc_block_enter(struct vc_block *b)
{
	struct vc_tag *tag = b->tag;

	b->since = jiffies;
	atomic_long_inc(&tag->dev->pending);
	spin_lock(&tag->lock);
	b->slot = vc_epoch_enter(&tag->epoch);
	list_add_tail(&b->node, &tag->dirty);
	b->queued = true;
	tag->ndirty++;
	spin_unlock(&tag->lock);
}

/*
 * Another tag than the block's own writes to it: let hTag, and so every
 * flush, cover it from now on. Called with b->lock held, DIRTY. A block that
 * the worker of its tag has taken already stays with the worker.
 *
 * What somebody asks the worker of a list for are the first blocks of it, so
 * what goes in front of them asks for one more. What was asked for in its old
 * list is in the new one as well. Both locks are held, as a flush that looks
 * at one list after the other has to find the block in one of them.
 */
static void vc_block_share(struct vc_block *b)
{
	struct vc_tag *tag = b->tag, *host = tag->dev->host;
	bool asked;

	spin_lock(&tag->lock);
	spin_lock_nested(&host->lock, SINGLE_DEPTH_NESTING);
	b->shared = true;
	b->host_slot = vc_epoch_enter(&host->epoch);
	asked = b->queued && (tag->goal || tag->epoch.draining);
	if (b->queued) {
		tag->ndirty--;
		/* In front: it is older than it looks there. */
		list_move(&b->node, &host->dirty);
		host->ndirty++;
		if (asked || host->goal)
			host->goal++;
	}
	spin_unlock(&host->lock);
	spin_unlock(&tag->lock);
	if (asked)
		queue_work(host->dev->wq, &host->work);
}

/* Return: how many of the written sectors were not in the block before. */
static unsigned int vc_block_mark(struct vc_block *b, unsigned int off,
				  unsigned int sectors)
{
	unsigned int had = bitmap_weight(b->valid, VC_PAGE_SECTORS);
	unsigned int added;

	bitmap_set(b->valid, off, sectors);
	added = bitmap_weight(b->valid, VC_PAGE_SECTORS) - had;
	atomic64_add(added, &b->tag->dirty_sectors);
	return added;
}

/* One page of a write. */
struct vc_piece {
	struct vc_tag *tag;
	struct bio *bio;
	struct bvec_iter *iter;
	pgoff_t index;
	unsigned int off;
	unsigned int sectors;
};

static unsigned int vc_piece_fill(struct vc_piece *p, struct vc_block *b)
{
	vc_block_fill(b, p->off, p->sectors, p->bio, p->iter);
	return vc_block_mark(b, p->off, p->sectors);
}

/*
 * Write into the block that the index holds, if that is allowed.
 * Return: true when done.
 */
static bool vc_piece_overwrite(struct vc_piece *p, struct vc_block *b)
{
	struct vc_tag *host = p->tag->dev->host;
	unsigned long flags;
	bool dirty;

	spin_lock_irqsave(&b->lock, flags);
	dirty = b->state == VC_DIRTY;
	if (dirty) {
		unsigned int added = vc_piece_fill(p, b);

		atomic64_add(p->sectors - added,
			     &p->tag->stats.absorbed_sectors);
		if (b->tag != p->tag && b->tag != host && !b->shared)
			vc_block_share(b);
	}
	spin_unlock_irqrestore(&b->lock, flags);
	return dirty;
}

/*
 * Put the filled block @n in the place of @old (NULL: of nothing). Called
 * with the locks of both held. Return: 0, -EAGAIN when the place was taken,
 * -ENOMEM.
 */
static int vc_piece_publish(struct vc_piece *p, struct vc_block *n,
			    struct vc_block *old)
{
	struct vc_dev *dev = p->tag->dev;
	void *was = xa_cmpxchg(&dev->blocks, p->index, old, n, VC_BLOCK_GFP);

	if (xa_is_err(was))
		return -ENOMEM;
	if (was != old)
		return -EAGAIN;
	if (!old)
		atomic_long_inc(&dev->nblocks);
	/* While it is locked it cannot get as far as the origin. */
	if (dev->vol)
		vc_lookup_change(dev->vol, p->index, 1);
	vc_piece_fill(p, n);
	vc_block_enter(n);
	return 0;
}

/*
 * Put the new block @n in the place of @old, which is on its way to the
 * origin or has arrived there. In the first case the new one inherits what is
 * on the way: should that fail, nothing is lost.
 */
static int vc_piece_replace(struct vc_piece *p, struct vc_block *n,
			    struct vc_block *old)
{
	struct vc_tag *host = p->tag->dev->host;
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
 * Place a new block. The block is locked before others can find it, so that
 * nobody sees it empty.
 */
static int vc_piece_insert(struct vc_piece *p, struct vc_block *n,
			   struct vc_block *old)
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
 * Return: 1 when a new block was needed, 0 when not, or -ENOMEM. What has been
 * found may have changed while the new one was made: it is looked at again,
 * with its lock held, before that takes its place.
 */
static int vc_piece_write(struct vc_piece *p)
{
	struct vc_block *n = NULL, *b;
	int r;

	rcu_read_lock();
	do {
		b = xa_load(&p->tag->dev->blocks, p->index);
		if (b && vc_piece_overwrite(p, b)) {
			r = 0;
			break;
		}
		if (!n)
			n = vc_block_alloc(p->tag, p->index);
		r = n ? vc_piece_insert(p, n, b) ?: 1 : -ENOMEM;
	} while (r == -EAGAIN);
	rcu_read_unlock();
	if (n && r != 1)
		vc_block_put(n);
	return r;
}

/**
 * vc_buffer_write - take a write into the buffer
 * @tag: whose data it is
 * @bio: the write
 * @taken: the number of new pages that it took
 *
 * Return: 0, or -ENOMEM: then a part of it may be in the buffer, as with any
 * write that has not completed.
 */
int vc_buffer_write(struct vc_tag *tag, struct bio *bio, unsigned int *taken)
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
		if (r < 0)
			return r;
		*taken += r;
	}
	return 0;
}

/* Take a CLEAN block out of the index, unless a newer one is there. */
static void vc_block_reap(struct vc_dev *dev, struct vc_block *b)
{
	unsigned long flags;

	spin_lock_irqsave(&b->lock, flags);
	b->state = VC_DEAD;
	if (xa_cmpxchg(&dev->blocks, b->index, b, NULL, GFP_NOWAIT) == b)
		atomic_long_dec(&dev->nblocks);
	spin_unlock_irqrestore(&b->lock, flags);
}

/**
 * vc_reap_work - free blocks that are durable
 * @work: vc_dev.reap_work
 *
 * Kept out of the completion of write-outs, so that no flush ever takes the
 * lock of the index.
 */
void vc_reap_work(struct work_struct *work)
{
	struct vc_dev *dev = container_of(work, struct vc_dev, reap_work);
	struct llist_node *list = llist_del_all(&dev->reap);
	struct vc_block *b, *next;

	llist_for_each_entry_safe(b, next, list, reap) {
		struct vc_tag *tag = b->tag;

		vc_block_reap(dev, b);
		vc_block_put(b);
		atomic_dec(&tag->used);
		if (!bio_list_empty(&tag->waiting))
			queue_work(dev->wq, &tag->work);
		cond_resched();
	}
	if (atomic_read(&dev->nparked))
		queue_work(dev->wq, &dev->park_work);
	wake_up(&dev->idle);
}

int __init vc_buffer_init(void)
{
	vc_block_cache = KMEM_CACHE(vc_block, SLAB_RECLAIM_ACCOUNT);
	return vc_block_cache ? 0 : -ENOMEM;
}

void vc_buffer_exit(void)
{
	rcu_barrier();
	kmem_cache_destroy(vc_block_cache);
}
