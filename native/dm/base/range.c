// SPDX-License-Identifier: GPL-2.0-only
/*
 * dm-vcache: exclusion between requests that write the same blocks; see range.h.
 */
#include <linux/interval_tree_generic.h>
#include <linux/lockdep.h>

#include "probe.h"
#include "range.h"

#define VC_RANGE_FIRST(r) ((r)->first)
#define VC_RANGE_LAST(r) ((r)->last)

INTERVAL_TREE_DEFINE(struct vcache_range, rb, u64, subtree_last, VC_RANGE_FIRST,
		     VC_RANGE_LAST, static __maybe_unused, vc_range_tree)

/**
 * vcache_ranges_init - begin without any ranges
 * @rs: the ranges
 */
void vcache_ranges_init(struct vcache_ranges *rs)
{
	spin_lock_init(&rs->lock);
	rs->held = RB_ROOT_CACHED;
	INIT_LIST_HEAD(&rs->waiting);
}

/* Does a range overlap a holder, or a waiter before @end? */
static bool vc_range_blocked(struct vcache_ranges *rs, const struct vcache_range *r,
			     const struct list_head *end)
{
	const struct vcache_range *other;

	lockdep_assert_held(&rs->lock);
	if (vc_range_tree_iter_first(&rs->held, r->first, r->last))
		return true;
	list_for_each_entry(other, &rs->waiting, node) {
		if (&other->node == end)
			break;
		if (other->first <= r->last && r->first <= other->last)
			return true;
	}
	return false;
}

/**
 * vcache_range_try - hold a range, if that is possible without waiting
 * @rs: the ranges of the volume
 * @r: the range
 * @first: first block
 * @last: last block
 *
 * Return: whether it is held.
 */
bool vcache_range_try(struct vcache_ranges *rs, struct vcache_range *r, u64 first,
		      u64 last)
{
	unsigned long flags;
	bool held;

	r->first = first;
	r->last = last;
	spin_lock_irqsave(&rs->lock, flags);
	held = !vc_range_blocked(rs, r, &rs->waiting);
	if (held)
		vc_range_tree_insert(r, &rs->held);
	spin_unlock_irqrestore(&rs->lock, flags);
	return held;
}

/**
 * vcache_range_get - hold a range, or wait for it
 * @rs: the ranges of the volume
 * @r: the range: its blocks, and what to call when it is held later
 *
 * Return: whether it is held now. If not, @r->granted is called when it is.
 */
bool vcache_range_get(struct vcache_ranges *rs, struct vcache_range *r)
{
	unsigned long flags;
	bool held;

	spin_lock_irqsave(&rs->lock, flags);
	held = !vc_range_blocked(rs, r, &rs->waiting);
	if (held) {
		vc_range_tree_insert(r, &rs->held);
	} else {
		VCACHE_PROBE("write waits for its range");
		list_add_tail(&r->node, &rs->waiting);
	}
	spin_unlock_irqrestore(&rs->lock, flags);
	return held;
}

/**
 * vcache_range_put - release a range, and grant those that waited for it
 * @rs: the ranges of the volume
 * @r: the range, held
 */
void vcache_range_put(struct vcache_ranges *rs, struct vcache_range *r)
{
	struct vcache_range *waiter, *next;
	unsigned long flags;
	LIST_HEAD(granted);

	spin_lock_irqsave(&rs->lock, flags);
	vc_range_tree_remove(r, &rs->held);
	list_for_each_entry_safe(waiter, next, &rs->waiting, node) {
		if (vc_range_blocked(rs, waiter, &waiter->node))
			continue;
		list_move_tail(&waiter->node, &granted);
		vc_range_tree_insert(waiter, &rs->held);
	}
	spin_unlock_irqrestore(&rs->lock, flags);
	list_for_each_entry_safe(waiter, next, &granted, node) {
		list_del_init(&waiter->node);
		waiter->granted(waiter);
	}
}

/**
 * vcache_range_held - does anybody hold a part of a range?
 * @rs: the ranges of the volume
 * @first: first block
 * @last: last block
 */
bool vcache_range_held(struct vcache_ranges *rs, u64 first, u64 last)
{
	unsigned long flags;
	bool held;

	if (!READ_ONCE(rs->held.rb_root.rb_node))
		return false;
	spin_lock_irqsave(&rs->lock, flags);
	held = vc_range_tree_iter_first(&rs->held, first, last);
	spin_unlock_irqrestore(&rs->lock, flags);
	return held;
}
