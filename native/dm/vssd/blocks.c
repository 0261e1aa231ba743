// SPDX-License-Identifier: GPL-2.0-only
/*
 * dm-vcache: the blocks of an elastic SSD: mapping them to chunks, and taking these away.
 */
#include "internal.h"

/**
 * vc_vssd_hold - use a block, if it has a chunk
 * @s: the elastic SSD
 * @b: the block
 *
 * Return: the chunk; then vc_vssd_release() has to follow; or VC_VSSD_*. Any context.
 */
u32 vc_vssd_hold(struct vcache_vssd *s, struct vc_vssd_block *b)
{
	u32 chunk;

	atomic_inc(&b->users);
	smp_mb__after_atomic(); /* pairs with vc_vssd_remove() */
	chunk = READ_ONCE(b->chunk);
	if (!vc_vssd_is_chunk(chunk))
		vc_vssd_release(s, b);
	return chunk;
}

/**
 * vc_vssd_release - a user of a block is done
 * @s: the elastic SSD
 * @b: the block
 *
 * Any context.
 */
void vc_vssd_release(struct vcache_vssd *s, struct vc_vssd_block *b)
{
	if (atomic_dec_and_test(&b->users) && wq_has_sleeper(&s->idle))
		wake_up(&s->idle);
}

/* Take a ready chunk. Return: 0; -EAGAIN: one will be ready soon; -ENOSPC. */
static int vc_vssd_pop(struct vcache_vssd *s, u32 *chunk)
{
	lockdep_assert_held(&s->lock);
	if (!s->ready.nr)
		return s->raw.nr || s->zeroing ? -EAGAIN : -ENOSPC;
	*chunk = s->ready.chunk[--s->ready.nr];
	return 0;
}

/**
 * vc_vssd_map - give a block a chunk, in memory only
 * @s: the elastic SSD, without persist
 * @block: the block
 *
 * Any context.
 *
 * Return: 0 if it had no chunk or has one already; -EAGAIN: later; -ENOSPC: there is no chunk.
 */
int vc_vssd_map(struct vcache_vssd *s, u32 block)
{
	struct vc_vssd_block *b = &s->map[block];
	unsigned long flags;
	u32 chunk;
	int r = 0;

	spin_lock_irqsave(&s->lock, flags);
	if (b->chunk == VC_VSSD_NONE) {
		r = vc_vssd_pop(s, &chunk);
		if (!r) {
			WRITE_ONCE(b->chunk, chunk);
			s->mapped++;
		}
	}
	spin_unlock_irqrestore(&s->lock, flags);
	return r;
}

/**
 * vc_vssd_map_durably - give a block a chunk, also in the chunk table
 * @s: the elastic SSD, with persist, and with its mutex held
 * @block: the block, which has none
 *
 * Return: as vc_vssd_map(), or the error of a write. Then the chunk is not used any more.
 */
int vc_vssd_map_durably(struct vcache_vssd *s, u32 block)
{
	struct vc_vssd_block *b = &s->map[block];
	u32 chunk;
	int r;

	lockdep_assert_held(&s->mutex);
	spin_lock_irq(&s->lock);
	r = vc_vssd_pop(s, &chunk);
	/* It counts from here on: it is not ready any more. */
	s->mapped += !r;
	spin_unlock_irq(&s->lock);
	if (r)
		return r;
	r = vcache_direct_note(s->vol, chunk, block);
	spin_lock_irq(&s->lock);
	if (r)
		s->mapped--;
	else
		WRITE_ONCE(b->chunk, chunk);
	spin_unlock_irq(&s->lock);
	return r;
}

/*
 * Take the chunk from a block, which is VC_VSSD_NONE or VC_VSSD_TAKEN then. Return: 0, or the
 * error of a write; then requests to the block fail, and its chunk is not used any more.
 */
static int vc_vssd_remove(struct vcache_vssd *s, u32 block, u32 then)
{
	struct vc_vssd_block *b = &s->map[block];
	u32 chunk = b->chunk;
	int r = 0;

	lockdep_assert_held(&s->mutex);
	spin_lock_irq(&s->lock);
	WRITE_ONCE(b->chunk, VC_VSSD_BUSY);
	spin_unlock_irq(&s->lock);
	smp_mb(); /* pairs with vc_vssd_hold() */
	wait_event(s->idle, !atomic_read(&b->users));
	if (s->persist)
		r = vcache_direct_unnote(s->vol, chunk);
	spin_lock_irq(&s->lock);
	s->mapped--;
	if (r)
		then = VC_VSSD_TAKEN;
	else
		s->raw.chunk[s->raw.nr++] = chunk;
	s->taken += then == VC_VSSD_TAKEN;
	WRITE_ONCE(b->chunk, then);
	spin_unlock_irq(&s->lock);
	return r;
}

/*
 * Write to the slot of the volume whether blocks may have been taken. Which ones is known only as
 * long as the device exists. After that, all blocks without a chunk count as taken.
 */
static int vc_vssd_note_taken(struct vcache_vssd *s, bool taken)
{
	u64 flags = taken ? VC_SLOT_TAKEN : 0;
	int r = 0;

	if (!s->persist)
		return 0;
	mutex_lock(&s->pool->lock);
	if (s->vol->flags != flags) {
		s->vol->flags = flags;
		r = vcache_slot_save(s->vol);
	}
	mutex_unlock(&s->pool->lock);
	return r;
}

/**
 * vc_vssd_free - take the chunk from a block that its user does not need any more
 * @s: the elastic SSD, with its mutex held
 * @block: the block; it reads as zeroes then, also if its chunk was taken by force before
 *
 * Return: 0 or the error of a write.
 */
int vc_vssd_free(struct vcache_vssd *s, u32 block)
{
	struct vc_vssd_block *b = &s->map[block];
	bool last = false;
	int r = 0;

	lockdep_assert_held(&s->mutex);
	if (vc_vssd_is_chunk(READ_ONCE(b->chunk)))
		return vc_vssd_remove(s, block, VC_VSSD_NONE);
	spin_lock_irq(&s->lock);
	if (b->chunk == VC_VSSD_TAKEN) {
		WRITE_ONCE(b->chunk, VC_VSSD_NONE);
		last = !--s->taken;
	}
	spin_unlock_irq(&s->lock);
	if (last)
		r = vc_vssd_note_taken(s, false);
	return r;
}

/**
 * vc_vssd_free_range - the same for several blocks
 * @s: the elastic SSD; its mutex is not held
 * @first: the first block
 * @nr: how many
 *
 * Return: 0 or the error of a write.
 */
int vc_vssd_free_range(struct vcache_vssd *s, u32 first, u32 nr)
{
	int r = 0;

	mutex_lock(&s->mutex);
	while (nr-- && !r) {
		r = vc_vssd_free(s, first++);
		cond_resched();
	}
	mutex_unlock(&s->mutex);
	vc_vssd_fill_soon(s);
	return r;
}

/**
 * vc_vssd_force - take chunks away, from the last block on, until the quota is kept
 * @s: the elastic SSD
 *
 * Return: 0 or the error of a write.
 */
int vc_vssd_force(struct vcache_vssd *s)
{
	u32 block;
	int r = 0;

	mutex_lock(&s->mutex);
	spin_lock_irq(&s->lock);
	s->keep = false;
	spin_unlock_irq(&s->lock);
	for (block = s->blocks; block-- && !r; ) {
		/* What has no block is returned by vc_vssd_fill_work(). */
		if (READ_ONCE(s->mapped) <= READ_ONCE(s->quota))
			break;
		if (!vc_vssd_is_chunk(READ_ONCE(s->map[block].chunk)))
			continue;
		/* Before the first one: after a crash the flag must not be missing. */
		r = vc_vssd_note_taken(s, true) ?:
		    vc_vssd_remove(s, block, VC_VSSD_TAKEN);
		cond_resched();
	}
	mutex_unlock(&s->mutex);
	vc_vssd_fill_soon(s);
	return r;
}
