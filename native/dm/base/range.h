/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * dm-vcache: exclusion between requests that write the same blocks of the origin.
 *
 * DOC: Ranges
 *
 * While two writes of one block to the origin are in flight, either may arrive last. So a
 * request that writes blocks of the origin holds their range, in one interval tree of the
 * volume. It holds the range until later writers can see the result:
 *
 *  - Destage holds the blocks of a window from before it checks that they are still valid
 *    until they are clean in the index. It never waits: it leaves a block that somebody
 *    else holds dirty for a later round, because a newer version of it is being written.
 *  - A write-through holds its blocks from before the write to the origin until the origin
 *    has the data and the index has the record. So destage finds the older versions of the
 *    blocks superseded.
 *    If the cache has an older version of a block, the origin gets the new one when the
 *    record is durable: otherwise a crash could leave the new version on the origin, and the
 *    older one, clean, in the cache.
 *  - A write past the log, and a discard, holds its blocks while it is at the origin.
 *
 * A request waits for the holders and for the earlier waiters that it overlaps. Holders do
 * not wait for anything but their device. So there is no deadlock.
 *
 * The buffer sends one version of a block at a time, see "Block states" in buffer.h. Only
 * volumes in writeback mode are destaged. So these rules give the order of versions of a
 * block at the origin; contract points 1 and 2 in durability.rst depend on it.
 */
#ifndef DM_VCACHE_RANGE_H
#define DM_VCACHE_RANGE_H

#include <linux/list.h>
#include <linux/rbtree.h>
#include <linux/spinlock.h>
#include <linux/types.h>

/**
 * struct vcache_range - a range that a request holds, or waits for
 * @rb: the tree of holders
 * @node: the list of waiters
 * @first: first block
 * @last: last block
 * @subtree_last: of the interval tree
 * @granted: called when a range that was waited for is held; in any context, without locks
 */
struct vcache_range {
	struct rb_node rb;
	struct list_head node;
	u64 first;
	u64 last;
	u64 subtree_last;
	void (*granted)(struct vcache_range *r);
};

/**
 * struct vcache_ranges - the ranges of a volume
 * @lock: guards the fields below; taken in interrupts, innermost
 * @held: held ranges, none of which overlap
 * @waiting: waiters, the earliest first
 */
struct vcache_ranges {
	spinlock_t lock; /* held, waiting */
	struct rb_root_cached held;
	struct list_head waiting;
};

void vcache_ranges_init(struct vcache_ranges *rs);
bool vcache_range_try(struct vcache_ranges *rs, struct vcache_range *r, u64 first,
		      u64 last);
bool vcache_range_get(struct vcache_ranges *rs, struct vcache_range *r);
void vcache_range_put(struct vcache_ranges *rs, struct vcache_range *r);

#endif /* DM_VCACHE_RANGE_H */
