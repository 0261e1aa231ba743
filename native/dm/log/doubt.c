// SPDX-License-Identifier: GPL-2.0-only
/*
 * dm-vcache: blocks of which the cache device may have more than the index knows.
 *
 * A record that the device has failed may be on it all the same. A replay finds it until its
 * chunk is free. Later records of the same blocks have higher sequence numbers and win. But a
 * write that goes to the origin only, or a discard without a record, would be lost in a
 * replay. So neither is done for blocks of failed records.
 *
 * Such blocks are noted without an allocation, in a bitmap of hashes. It is cleared when no
 * chunk with a failed record is left. A block with the hash of another one only gets a record
 * that it would not need.
 */
#include <linux/hash.h>

#include "internal.h"

/**
 * vcache_doubt_chunk - a record of a chunk has failed, for the first time
 * @c: the chunk; its log is locked
 *
 * While its blocks are being noted, the bitmap is not cleared.
 */
void vcache_doubt_chunk(struct vcache_chunk *c)
{
	lockdep_assert_held(&c->log->lock);
	c->failed = true;
	/* A seal without the failed records is needed before another log gives up newer ones. */
	WRITE_ONCE(c->stale, true);
	atomic_inc(&c->log->vol->failed_chunks);
}

/**
 * vcache_doubt_block - note a block of a record that has failed
 * @v: the volume; vcache_doubt_chunk() was called for the chunk
 * @block: the block
 *
 * Called before anybody learns that the record has failed.
 */
void vcache_doubt_block(struct vcache_volume *v, u64 block)
{
	unsigned long flags;

	spin_lock_irqsave(&v->doubt_lock, flags);
	__set_bit(hash_64(block, VC_DOUBT_SHIFT), v->doubtful);
	spin_unlock_irqrestore(&v->doubt_lock, flags);
}

/**
 * vcache_doubt_freed - a chunk has become free on the device
 * @c: the chunk, still of its log
 */
void vcache_doubt_freed(struct vcache_chunk *c)
{
	struct vcache_volume *v;
	unsigned long flags;

	if (!c->failed)
		return;
	c->failed = false;
	v = c->log->vol;
	spin_lock_irqsave(&v->doubt_lock, flags);
	if (atomic_dec_and_test(&v->failed_chunks))
		bitmap_zero(v->doubtful, 1U << VC_DOUBT_SHIFT);
	spin_unlock_irqrestore(&v->doubt_lock, flags);
}

/**
 * vcache_doubts - may the cache device have something of a range that the index does not know?
 * @v: the volume
 * @block: first block
 * @blocks: how many
 *
 * Return: true also for a range that is larger than the bitmap.
 */
bool vcache_doubts(const struct vcache_volume *v, u64 block, u64 blocks)
{
	u64 i;

	if (likely(!atomic_read(&v->failed_chunks)))
		return false;
	if (blocks > 1U << VC_DOUBT_SHIFT)
		return true;
	for (i = 0; i < blocks; i++) {
		if (test_bit(hash_64(block + i, VC_DOUBT_SHIFT), v->doubtful)) {
			VCACHE_PROBE("block of a failed record gets a record");
			return true;
		}
	}
	return false;
}
