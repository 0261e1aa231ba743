// SPDX-License-Identifier: GPL-2.0-only
/*
 * dm-vcache: the index of the buffered blocks of a device, and their memory.
 *
 * DOC: Without memory
 *
 * A write must complete even if no memory can be allocated: the kernel may be able to free
 * memory only by writes to this device. So each device has a reserve of VC_RESERVE blocks
 * with their pages, which is filled before the stock (stock.c). The index must also take a
 * block without an allocation. If the xarray has no memory for a node, the block is put on a
 * short list, vcache_dev.spilled. Every look-up searches that list after the xarray.
 *
 * A write that is larger than the reserve is buffered piece by piece, see
 * vcache_buffer_write(). If there is no memory for a piece, all buffered data of the device is
 * written out, and the write tries again. Each block that has become durable returns to the
 * reserve. A write-out allocates memory only from its own reserves.
 *
 * DOC: Look-ups
 *
 * They are done under RCU, without a lock. A block changes its place only by leaving the
 * index. So a look-up that goes on while a block leaves and another one enters may find
 * neither; then the first one was durable, and the write of the second one is not complete.
 */
#include <linux/slab.h>

#include "internal.h"

/* Blocks that a device has in reserve, and most blocks on the list without a node: 64 KiB. */
#define VC_RESERVE 16

/* Writes do not wait for memory, see above. */
#define VC_BLOCK_GFP (GFP_NOWAIT | __GFP_NOWARN)

static struct kmem_cache *vc_block_cache;

const struct vcache_buffer_ops *vcache_buffer_upper __ro_after_init;

static void *vc_reserve_alloc(gfp_t gfp, void *data)
{
	struct vcache_block *b = vcache_stock_get();

	if (b)
		return b;
	b = kmem_cache_alloc(vc_block_cache, gfp);
	if (!b)
		return NULL;
	b->page = alloc_page(gfp);
	if (!b->page) {
		kmem_cache_free(vc_block_cache, b);
		return NULL;
	}
	return b;
}

/**
 * vcache_block_free - free a block and its page
 * @b: the block; nobody uses it
 */
void vcache_block_free(struct vcache_block *b)
{
	__free_page(b->page);
	kmem_cache_free(vc_block_cache, b);
}

static void vc_reserve_free(void *element, void *data)
{
	struct vcache_block *b = element;

	if (!vcache_stock_put(b))
		vcache_block_free(b);
}

/**
 * vcache_block_alloc - make a block
 * @tag: its tag
 * @index: page number on the device
 *
 * Return: the block, dirty, with anything in its page, and not in the index; NULL without
 * memory.
 */
struct vcache_block *vcache_block_alloc(struct vcache_tag *tag, pgoff_t index)
{
	struct vcache_block *b = mempool_alloc(&tag->dev->reserve, VC_BLOCK_GFP);
	struct page *page;

	if (!b)
		return NULL;
	page = b->page;
	memset(b, 0, sizeof(*b));
	b->page = page;
	set_page_private(page, (unsigned long)b);
	spin_lock_init(&b->lock);
	refcount_set(&b->ref, 1);
	INIT_LIST_HEAD(&b->node);
	INIT_HLIST_NODE(&b->spill);
	b->state = VC_DIRTY;
	b->index = index;
	b->tag = tag;
	b->dev = tag->dev;
	return b;
}

static void vc_block_free_rcu(struct rcu_head *head)
{
	struct vcache_block *b = container_of(head, struct vcache_block, rcu);

	mempool_free(b, &b->dev->reserve);
}

/**
 * vcache_block_put - drop a reference
 * @b: the block
 */
void vcache_block_put(struct vcache_block *b)
{
	if (!refcount_dec_and_test(&b->ref))
		return;
	set_page_private(b->page, 0);
	call_rcu(&b->rcu, vc_block_free_rcu);
}

/* Find a spilled block in a range: the first one. Called under RCU or the lock of the index. */
static struct vcache_block *vc_spilled_first(struct vcache_dev *dev, pgoff_t first,
					     pgoff_t last)
{
	struct vcache_block *b, *found = NULL;

	hlist_for_each_entry_rcu(b, &dev->spilled, spill,
				 lockdep_is_held(&dev->blocks.xa_lock)) {
		if (b->index < first || b->index > last ||
		    (found && found->index <= b->index))
			continue;
		found = b;
	}
	return found;
}

/**
 * vcache_blocks_load - find the buffered block of a page
 * @dev: the device
 * @index: page number
 *
 * Called under RCU. Return: the block, or NULL.
 */
struct vcache_block *vcache_blocks_load(struct vcache_dev *dev, pgoff_t index)
{
	struct vcache_block *b = xa_load(&dev->blocks, index);

	if (unlikely(!b && READ_ONCE(dev->nspilled)))
		b = vc_spilled_first(dev, index, index);
	return b;
}

/**
 * vcache_blocks_next - find the first buffered block of a range
 * @dev: the device
 * @first: first page number
 * @last: last page number
 *
 * Called under RCU. Return: the block, or NULL.
 */
struct vcache_block *vcache_blocks_next(struct vcache_dev *dev, pgoff_t first, pgoff_t last)
{
	unsigned long at = first;
	struct vcache_block *b, *spilled;

	b = xa_find(&dev->blocks, &at, last, XA_PRESENT);
	if (likely(!READ_ONCE(dev->nspilled)))
		return b;
	spilled = vc_spilled_first(dev, first, b ? at : last);
	return spilled ?: b;
}

/**
 * vcache_buffer_covers - is any part of a range of pages in the buffer?
 * @dev: the device
 * @first: first page number
 * @last: last page number
 */
bool vcache_buffer_covers(struct vcache_dev *dev, pgoff_t first, pgoff_t last)
{
	bool covers;

	if (!atomic_long_read(&dev->nblocks))
		return false;
	rcu_read_lock();
	covers = vcache_blocks_next(dev, first, last);
	rcu_read_unlock();
	return covers;
}

/* The place of a block is in the list. Called with the lock of the index. */
static int vc_spilled_swap(struct vcache_dev *dev, struct vcache_block *was,
			   struct vcache_block *old, struct vcache_block *new)
{
	lockdep_assert_held(&dev->blocks.xa_lock);
	if (was != old)
		return -EAGAIN;
	if (new) {
		hlist_replace_rcu(&old->spill, &new->spill);
	} else {
		hlist_del_rcu(&old->spill);
		WRITE_ONCE(dev->nspilled, dev->nspilled - 1);
	}
	return 0;
}

/* The xarray has no memory for the place of a block. Called with the lock of the index. */
static int vc_spilled_add(struct vcache_dev *dev, struct vcache_block *new)
{
	lockdep_assert_held(&dev->blocks.xa_lock);
	if (dev->nspilled == VC_RESERVE)
		return -ENOMEM;
	VCACHE_PROBE("index takes a block without memory");
	hlist_add_head_rcu(&new->spill, &dev->spilled);
	WRITE_ONCE(dev->nspilled, dev->nspilled + 1);
	return 0;
}

/**
 * vcache_blocks_swap - put a block in the place of another one
 * @dev: the device
 * @index: page number
 * @old: the block that is there, locked; NULL: none
 * @new: the block to put there, locked; NULL: none
 *
 * Return: 0; -EAGAIN if another block than @old is there; -ENOMEM.
 */
int vcache_blocks_swap(struct vcache_dev *dev, pgoff_t index, struct vcache_block *old,
		       struct vcache_block *new)
{
	struct vcache_block *spilled;
	unsigned long flags;
	void *was;
	int r = 0;

	xa_lock_irqsave(&dev->blocks, flags);
	spilled = dev->nspilled ? vc_spilled_first(dev, index, index) : NULL;
	if (spilled) {
		r = vc_spilled_swap(dev, spilled, old, new);
	} else {
		was = __xa_cmpxchg(&dev->blocks, index, old, new, VC_BLOCK_GFP);
		if (xa_is_err(was))
			r = vc_spilled_add(dev, new);
		else if (was != old)
			r = -EAGAIN;
	}
	if (!r && !old != !new)
		atomic_long_add(new ? 1 : -1, &dev->nblocks);
	xa_unlock_irqrestore(&dev->blocks, flags);
	return r;
}

/**
 * vcache_blocks_init - begin with an empty index, and a full reserve
 * @dev: the device, being made
 *
 * Return: 0 or -ENOMEM.
 */
int vcache_blocks_init(struct vcache_dev *dev)
{
	xa_init_flags(&dev->blocks, XA_FLAGS_LOCK_IRQ);
	INIT_HLIST_HEAD(&dev->spilled);
	return mempool_init(&dev->reserve, VC_RESERVE, vc_reserve_alloc,
			    vc_reserve_free, NULL);
}

/**
 * vcache_blocks_exit - free the index and the reserve
 * @dev: the device, of which no block is left
 */
void vcache_blocks_exit(struct vcache_dev *dev)
{
	/* Blocks return to the reserve after a grace period. */
	rcu_barrier();
	mempool_exit(&dev->reserve);
	xa_destroy(&dev->blocks);
}

int __init vcache_blocks_module_init(const struct vcache_buffer_ops *ops)
{
	int r;

	vcache_buffer_upper = ops;
	vc_block_cache = KMEM_CACHE(vcache_block, SLAB_RECLAIM_ACCOUNT);
	if (!vc_block_cache)
		return -ENOMEM;
	r = vcache_stock_init();
	if (r)
		kmem_cache_destroy(vc_block_cache);
	return r;
}

void vcache_blocks_module_exit(void)
{
	rcu_barrier();
	vcache_stock_exit();
	kmem_cache_destroy(vc_block_cache);
}
