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
 * Large writes, which go to the log without a copy, hold their ranges in a tree of their own,
 * see large.c.
 *
 * A request waits for the holders and for the earlier waiters that it overlaps. Holders do
 * not wait for anything but their device. So there is no deadlock.
 *
 * DOC: What holds no range
 *
 * The rules above are about writers of the origin. The others are ordered elsewhere, because
 * a range that they held would make a guest's write wait for a slow disk:
 *
 *  - A buffered write and a read hit touch no range. The buffer has at most one version of a
 *    block in flight, see "Block states" in buffer.h.
 *  - A promotion reads the origin, and is dropped if a write has changed a block meanwhile,
 *    see "Order" in promote.c. So a write never waits for a read of the origin.
 *  - A relocation copies a block within the cache. The index takes the copy only if it still
 *    has the original, see vcache_lookup_move().
 *  - Reclaim drops a chunk whose blocks are superseded in the index or clean in it. Both become
 *    true only while a range is held, or in the record of a newer version.
 *  - A request that bypasses the buffer is parked until its blocks have left it, and later
 *    writes park behind it, see park.c. That order is among pages of the buffer, not among
 *    writers of the origin: also a device without a cache needs it.
 *
 * DOC: Contract points that follow
 *
 *  - Points 1 and 2 of durability.rst, "durable when a flush completes": a flush waits for the
 *    record of each version. Destage copies the version that the index has while it holds
 *    the range. Whoever wants to write a newer version past the log waits for the range. So the
 *    origin never goes back to an older version, and the index never calls an older one clean.
 *  - Point 3: ranges do not know tags. Attribution cannot change the order.
 *  - Point 4, "its last durable content or a later write, whole": two writes of a block are
 *    never in flight to the origin at the same time. A write-through whose block the cache has
 *    goes to the origin after its record. So replay never finds an older record than what the
 *    origin has.
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
bool vcache_range_held(struct vcache_ranges *rs, u64 first, u64 last);

#endif /* DM_VCACHE_RANGE_H */
