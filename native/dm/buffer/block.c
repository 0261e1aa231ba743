// SPDX-License-Identifier: GPL-2.0-only
/*
 * dm-vcache: the states of a block while it is written out, and what waits for them. See
 * "Block states" in buffer.h.
 */
#include "internal.h"

/**
 * vcache_block_runs - count the runs of valid sectors in a block
 * @b: the block
 */
unsigned int vcache_block_runs(const struct vcache_block *b)
{
	unsigned int s, n = 0;

	for (s = 0; s < VC_PAGE_SECTORS; s++)
		n += test_bit(s, b->valid) &&
		     (!s || !test_bit(s - 1, b->valid));
	return n;
}

/**
 * vcache_block_start - begin the write-out of a block: its content may not change any more
 * @b: the block
 * @runs: its runs of sectors are written to the origin; each of them is a part
 * @copy: the page is written to the cache, which is a part
 *
 * Return: false if its older version is being written; it is written after that.
 */
bool vcache_block_start(struct vcache_block *b, bool runs, bool copy)
{
	unsigned long flags;
	bool start;

	spin_lock_irqsave(&b->lock, flags);
	start = !b->older;
	if (start) {
		b->state = VC_WRITEOUT;
		b->failed = false;
		b->parts = copy + (runs ? vcache_block_runs(b) : 0);
	} else {
		VCACHE_PROBE("older version still in flight");
		b->want = true;
	}
	spin_unlock_irqrestore(&b->lock, flags);
	return start;
}

/*
 * Flushes to continue when no lock is held: those without and those with a failure.
 * @again: a flush that waited behind a failure drains now, and needs a try of its own.
 */
struct vc_after {
	struct list_head waiters[2];
	bool again;
};

/*
 * A block leaves its epoch in @tag. If its write-out failed it enters the open epoch
 * first, so that flushes which wait for that also cover the next try. Called with the
 * locks of block and tag held.
 */
static void vc_tag_leave(struct vcache_tag *tag, struct vcache_block *b, u8 *slot,
			 bool stays, struct vc_after *after)
{
	struct vcache_epoch_done d;
	u8 was = *slot;
	unsigned int s;

	lockdep_assert_held(&tag->lock);
	lockdep_assert_held(&b->lock);
	if (stays)
		*slot = vcache_epoch_enter(&tag->epoch);
	d = vcache_epoch_leave(&tag->epoch, was, b->failed);
	after->again |= d.failed && tag->epoch.draining;
	for (s = 0; s < VC_EPOCH_SLOTS; s++) {
		bool failed = d.failed & BIT(s);

		if (d.done & BIT(s))
			list_splice_tail_init(&tag->waiters[s],
					      &after->waiters[failed]);
	}
}

/*
 * Count blocks whose write-out failed, announce changes, and wake up requests that may
 * depend on the block. Called with the lock of the block held.
 */
static void vc_block_note_result(struct vcache_block *b, bool stays)
{
	struct vcache_tag *tag = b->tag;

	lockdep_assert_held(&b->lock);
	if (stays && !b->bad && atomic_inc_return(&tag->bad) == 1)
		vcache_tag_event(tag, VCACHE_EVENT_KIND_ORIGIN_ERROR);
	if (!stays && b->bad && atomic_dec_and_test(&tag->bad))
		vcache_tag_event(tag, VCACHE_EVENT_KIND_ORIGIN_OK);
	b->bad = stays;
	if (!stays)
		return;
	/* Writes that wait for memory or for their range may have to fail. */
	queue_work(tag->dev->wq, &tag->work);
	if (atomic_read(&tag->dev->nparked))
		queue_work(tag->dev->wq, &tag->dev->park_work);
}

/* Put a block whose write-out failed back on its list. Called with its lock held. */
static void vc_block_requeue(struct vcache_block *b)
{
	struct vcache_tag *home = vcache_block_home(b);

	lockdep_assert_held(&b->lock);
	spin_lock(&home->lock);
	list_add_tail(&b->node, &home->dirty);
	b->queued = true;
	b->retry = true;
	b->since = jiffies;
	WRITE_ONCE(home->ndirty, home->ndirty + 1);
	spin_unlock(&home->lock);
}

/* Called with the lock of the block held. */
static void vc_block_leave_epochs(struct vcache_block *b, bool stays,
				  struct vc_after *after)
{
	struct vcache_tag *host = b->tag->dev->host;

	lockdep_assert_held(&b->lock);
	spin_lock(&b->tag->lock);
	vc_tag_leave(b->tag, b, &b->slot, stays, after);
	spin_unlock(&b->tag->lock);
	if (b->shared) {
		spin_lock(&host->lock);
		vc_tag_leave(host, b, &b->host_slot, stays, after);
		spin_unlock(&host->lock);
	}
	vc_block_note_result(b, stays);
	if (stays)
		vc_block_requeue(b);
	/*
	 * One try for all blocks that failed meanwhile. A try for each of them would keep
	 * a processor busy while another block of the flush hangs.
	 */
	if (after->again) {
		VCACHE_PROBE("flush waits for another try");
		vcache_tag_write_out(b->tag, UINT_MAX);
		vcache_tag_write_out(host, UINT_MAX);
	}
	atomic_long_dec(&b->tag->dev->pending);
}

/* The newer version need not wait for @b any more. Called with b->lock held. */
static void vc_block_release_newer(struct vcache_block *b)
{
	struct vcache_block *n = b->newer;

	lockdep_assert_held(&b->lock);
	spin_lock_nested(&n->lock, SINGLE_DEPTH_NESTING);
	n->older = NULL;
	if (n->want) {
		n->want = false;
		spin_lock(&n->tag->lock);
		list_add_tail(&n->node, &n->tag->ready);
		spin_unlock(&n->tag->lock);
		queue_work(n->tag->dev->wq, &n->tag->work);
	}
	spin_unlock(&n->lock);
	b->newer = NULL;
}

/*
 * All parts of the block's write-out have completed. On failure the data stays dirty: in
 * this block, or in the newer version, which has inherited all of it.
 */
static void vc_block_written(struct vcache_block *b, struct vc_after *after)
{
	unsigned int sectors = bitmap_weight(b->valid, VC_PAGE_SECTORS);
	bool stays = b->failed && !b->newer;

	b->state = stays ? VC_DIRTY : VC_CLEAN;
	if (b->failed && b->newer) {
		VCACHE_PROBE("write-out failed under a newer version");
		atomic_inc(&b->tag->dev->inherited);
		smp_mb__after_atomic(); /* pairs with vc_flush_missed() */
	}
	if (!stays)
		atomic64_sub(sectors, &b->tag->dirty_sectors);
	if (b->failed)
		atomic64_inc(&vcache_stats(b->tag)->writeout_errors);
	vc_block_leave_epochs(b, stays, after);
	if (b->newer)
		vc_block_release_newer(b);
	if (!stays && llist_add(&b->reap, &b->tag->dev->reap))
		queue_work(b->tag->dev->wq, &b->tag->dev->reap_work);
}

/**
 * vcache_block_part_done - a request with data of a block has completed
 * @b: the block; it may be freed by this
 * @status: the status of the request
 */
void vcache_block_part_done(struct vcache_block *b, blk_status_t status)
{
	struct vc_after after = {};
	unsigned long flags;

	INIT_LIST_HEAD(&after.waiters[0]);
	INIT_LIST_HEAD(&after.waiters[1]);

	spin_lock_irqsave(&b->lock, flags);
	if (status)
		b->failed = true;
	if (!--b->parts)
		vc_block_written(b, &after);
	spin_unlock_irqrestore(&b->lock, flags);

	vcache_buffer_upper->durable(&after.waiters[0], false);
	vcache_buffer_upper->durable(&after.waiters[1], true);
}
