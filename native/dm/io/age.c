// SPDX-License-Identifier: GPL-2.0-only
/*
 * dm-vcache: limits how long dirty data stays in memory if there is no flush.
 */
#include "internal.h"

/* Count the dirty blocks that are older than @limit; if one has failed, all of them. */
static unsigned int vc_tag_aged(struct vcache_tag *tag, unsigned long limit)
{
	unsigned int n = 0;
	struct vcache_block *b;

	if (atomic_read(&tag->bad))
		return tag->ndirty;
	list_for_each_entry(b, &tag->dirty, node) {
		if (time_before(jiffies, b->since + limit))
			break;
		n++;
	}
	return n;
}

static void vc_tag_age(struct vcache_tag *tag, unsigned long limit)
{
	unsigned int aged;
	bool waits;

	spin_lock_irq(&tag->lock);
	aged = vc_tag_aged(tag, limit);
	if (tag->exposed == VC_EXPOSED && vcache_epoch_idle(&tag->epoch) &&
	    bio_list_empty(&tag->waiting))
		tag->exposed = VC_NOT_EXPOSED;
	waits = !bio_list_empty(&tag->waiting);
	spin_unlock_irq(&tag->lock);
	if (aged)
		vcache_tag_write_out(tag, aged);
	/* A write may have found no memory, see vc_tag_refuse(). */
	if (waits)
		queue_work(tag->dev->wq, &tag->work);
}

/**
 * vcache_age_work - write out blocks that have been dirty for too long, retry failed ones
 * @work: vcache_dev.age_work
 *
 * Runs only while there is dirty data: an idle device does no I/O.
 */
void vcache_age_work(struct work_struct *work)
{
	struct vcache_dev *dev = container_of(to_delayed_work(work), struct vcache_dev,
					      age_work);
	struct vcache_tag *tag;

	if (READ_ONCE(dev->suspended))
		return;
	rcu_read_lock();
	list_for_each_entry_rcu(tag, &dev->tags, node)
		vc_tag_age(tag, vcache_age_tick(dev) * 3);
	rcu_read_unlock();
	if (atomic_long_read(&dev->nblocks))
		queue_delayed_work(dev->wq, &dev->age_work, vcache_age_tick(dev));
}
