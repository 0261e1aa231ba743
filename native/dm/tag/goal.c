// SPDX-License-Identifier: GPL-2.0-only
/*
 * dm-vcache: what the workers of tags have to write out, and to which device.
 */
#include "internal.h"

/**
 * vcache_tag_kick - wake the worker of a tag
 * @tag: the tag
 */
void vcache_tag_kick(struct vcache_tag *tag)
{
	queue_work(tag->dev->wq, &tag->work);
}

/**
 * vcache_tag_ask - raise the goal of a tag, without starting its worker
 * @tag: the tag
 * @goal: how many of its oldest dirty blocks to write out; UINT_MAX: all that are dirty now
 *
 * Return: whether it was lower.
 */
bool vcache_tag_ask(struct vcache_tag *tag, unsigned int goal)
{
	unsigned long flags;
	bool raised;

	spin_lock_irqsave(&tag->lock, flags);
	goal = min(goal, tag->ndirty);
	raised = goal > tag->goal;
	if (raised)
		WRITE_ONCE(tag->goal, goal);
	spin_unlock_irqrestore(&tag->lock, flags);
	return raised;
}

/**
 * vcache_tag_write_out - begin to write out the oldest dirty blocks of a tag
 * @tag: the tag
 * @goal: how many at least; UINT_MAX: all that are dirty now
 */
void vcache_tag_write_out(struct vcache_tag *tag, unsigned int goal)
{
	vcache_tag_ask(tag, goal);
	vcache_tag_kick(tag);
}

/**
 * vcache_dev_write_out - begin to write out all dirty blocks of a device
 * @dev: the device
 */
void vcache_dev_write_out(struct vcache_dev *dev)
{
	struct vcache_tag *tag;

	rcu_read_lock();
	list_for_each_entry_rcu(tag, &dev->tags, node)
		vcache_tag_write_out(tag, UINT_MAX);
	rcu_read_unlock();
}

/**
 * vcache_tag_write_out_all - have all dirty blocks of a device written out
 * @tag: a tag of it; called by its worker, which then writes out its own blocks
 *
 * No worker is started for blocks that it was asked for before: this may be called again and
 * again.
 */
void vcache_tag_write_out_all(struct vcache_tag *tag)
{
	struct vcache_tag *other;

	rcu_read_lock();
	list_for_each_entry_rcu(other, &tag->dev->tags, node) {
		if (vcache_tag_ask(other, UINT_MAX) && other != tag)
			vcache_tag_kick(other);
	}
	rcu_read_unlock();
}

/**
 * vcache_dev_drained - is all data durable, except for what the origin refuses?
 * @dev: the device
 *
 * The caller makes sure that no block becomes dirty meanwhile. A block whose write-out
 * failed counts as pending again when the worker takes it for another try. The worker
 * does that, and counts the goal down, under the same lock.
 */
bool vcache_dev_drained(struct vcache_dev *dev)
{
	struct vcache_tag *tag;
	bool asked = false;

	rcu_read_lock();
	list_for_each_entry_rcu(tag, &dev->tags, node) {
		spin_lock_irq(&tag->lock);
		asked |= tag->goal;
		spin_unlock_irq(&tag->lock);
	}
	rcu_read_unlock();
	return !asked && !atomic_long_read(&dev->pending) &&
	       !atomic_read(&dev->inflight);
}

/**
 * vcache_age_tick - time between two checks of the age of dirty data
 * @dev: the device
 *
 * A quarter of the age limit, in jiffies. So blocks older than three quarters of the
 * limit are written out: at the next check they would be too old.
 */
unsigned long vcache_age_tick(struct vcache_dev *dev)
{
	return max(msecs_to_jiffies(dev->target->age_ms) / 4, 1UL);
}

/**
 * vcache_dev_flush_origin - flushes have to reach the origin from now on
 * @dev: the device
 * @origin: its origin
 *
 * Called before the first tag bypasses a cache that has failed.
 */
void vcache_dev_flush_origin(struct vcache_dev *dev, struct block_device *origin)
{
	WRITE_ONCE(dev->store, origin);
	smp_wmb(); /* before the state of the logs */
}

/**
 * vcache_dev_bypass - do without a cache that has failed and has no dirty data
 * @dev: the device; not called in interrupts
 * @origin: its origin
 *
 * From now on write-outs go to the origin. Data that the cache refused is still buffered.
 */
void vcache_dev_bypass(struct vcache_dev *dev, struct block_device *origin)
{
	WRITE_ONCE(dev->store, origin);
	WRITE_ONCE(dev->writeback, false);
	vcache_dev_write_out(dev);
}
