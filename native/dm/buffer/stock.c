// SPDX-License-Identifier: GPL-2.0-only
/*
 * dm-vcache: blocks that are free, with their pages, for the next writes.
 *
 * A write needs a page for each block. Many kernels clear a page when it is allocated
 * (init_on_alloc), which takes as long as copying the data into it. So a block that becomes
 * free stays with its page in the stock of the processor, up to VC_STOCK_MAX of them. The
 * kernel can have them back when it is short of memory. The page has data of another tag:
 * only valid sectors of a block are read or written.
 *
 * Under KASAN there is no stock, because KASAN cannot find a use of a block in it.
 */
#include <linux/percpu.h>
#include <linux/slab.h>

#include "../base/compat.h"
#include "internal.h"

/* Most free blocks of a processor: 4 MiB of pages. */
#ifdef CONFIG_KASAN
#define VC_STOCK_MAX 0U
#else
#define VC_STOCK_MAX 1024U
#endif

struct vc_stock {
	spinlock_t lock; /* taken in any context */
	struct list_head blocks;
	unsigned int nr;
};

static DEFINE_PER_CPU(struct vc_stock, vc_stocks);
static struct shrinker *vc_stock_shrinker;

/**
 * vcache_stock_get - take a free block
 *
 * Return: the block, of which only the page is valid; NULL if there is none.
 */
struct vcache_block *vcache_stock_get(void)
{
	struct vc_stock *s = raw_cpu_ptr(&vc_stocks);
	struct vcache_block *b;
	unsigned long flags;

	spin_lock_irqsave(&s->lock, flags);
	b = list_first_entry_or_null(&s->blocks, struct vcache_block, node);
	if (b) {
		list_del(&b->node);
		s->nr--;
	}
	spin_unlock_irqrestore(&s->lock, flags);
	return b;
}

/**
 * vcache_stock_put - keep a free block for a later write
 * @b: the block; nobody uses it
 *
 * Called in any context. Return: false if there are enough.
 */
bool vcache_stock_put(struct vcache_block *b)
{
	struct vc_stock *s = raw_cpu_ptr(&vc_stocks);
	unsigned long flags;
	bool kept;

	spin_lock_irqsave(&s->lock, flags);
	kept = s->nr < VC_STOCK_MAX;
	if (kept) {
		list_add(&b->node, &s->blocks);
		s->nr++;
	}
	spin_unlock_irqrestore(&s->lock, flags);
	return kept;
}

/* Free up to @most blocks of a stock. Return: how many. */
static unsigned long vc_stock_free(struct vc_stock *s, unsigned long most)
{
	struct vcache_block *b, *next;
	unsigned long n = 0, flags;
	LIST_HEAD(list);

	spin_lock_irqsave(&s->lock, flags);
	list_for_each_entry_safe(b, next, &s->blocks, node) {
		if (n == most)
			break;
		list_move(&b->node, &list);
		s->nr--;
		n++;
	}
	spin_unlock_irqrestore(&s->lock, flags);
	list_for_each_entry_safe(b, next, &list, node)
		vcache_block_free(b);
	return n;
}

static unsigned long vc_stock_count(struct shrinker *shrinker, struct shrink_control *sc)
{
	unsigned long n = 0;
	int cpu;

	for_each_possible_cpu(cpu)
		n += READ_ONCE(per_cpu_ptr(&vc_stocks, cpu)->nr);
	return n;
}

static unsigned long vc_stock_scan(struct shrinker *shrinker, struct shrink_control *sc)
{
	unsigned long n = 0;
	int cpu;

	for_each_possible_cpu(cpu)
		n += vc_stock_free(per_cpu_ptr(&vc_stocks, cpu), sc->nr_to_scan - n);
	return n ?: SHRINK_STOP;
}

int __init vcache_stock_init(void)
{
	int cpu;

	for_each_possible_cpu(cpu) {
		struct vc_stock *s = per_cpu_ptr(&vc_stocks, cpu);

		spin_lock_init(&s->lock);
		INIT_LIST_HEAD(&s->blocks);
	}
	vc_stock_shrinker = vcache_shrinker_make(vc_stock_count, vc_stock_scan);
	return vc_stock_shrinker ? 0 : -ENOMEM;
}

void vcache_stock_exit(void)
{
	int cpu;

	vcache_shrinker_drop(vc_stock_shrinker);
	for_each_possible_cpu(cpu)
		vc_stock_free(per_cpu_ptr(&vc_stocks, cpu), ULONG_MAX);
}
