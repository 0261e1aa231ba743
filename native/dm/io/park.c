// SPDX-License-Identifier: GPL-2.0-only
/*
 * dm-vcache: requests that need exclusive access to a range of the device.
 *
 * Discards, and writes that bypass the buffer while it has some of their sectors, must be
 * ordered against buffered data. Such a request is parked until its range has been written
 * out and has left the buffer. Then it is sent to the origin. Writes that overlap it park
 * behind it, in their order, so later writes cannot delay it for ever.
 *
 * DOC: Writes that do not see a discard
 *
 * A discard drops everything that the cache has of its range. So no write may enter the
 * buffer from when its range is found to be free. But a write may have looked at the list of
 * parked requests before the discard was there, and buffer its data later. All writes do both
 * within a read-side section of vcache_dev.writers. A discard waits until these sections
 * have ended, and looks at the buffer again. Writes that wait for space look at the list when
 * they are admitted.
 */
#include "internal.h"

/*
 * Do two ranges overlap? They are compared by pages, because a write to another sector of
 * a page would keep the page in the buffer.
 */
static bool vc_parked_meets(const struct vcache_parked *p, pgoff_t first,
			    pgoff_t last)
{
	return p->first <= last && first <= p->last;
}

/**
 * vcache_parked_overlap - does a request overlap one that is parked?
 * @dev: the device
 * @bio: a write
 */
bool vcache_parked_overlap(struct vcache_dev *dev, struct bio *bio)
{
	struct vcache_parked *p;
	unsigned long flags;
	bool meets = false;

	spin_lock_irqsave(&dev->park_lock, flags);
	list_for_each_entry(p, &dev->parked, node) {
		meets = vc_parked_meets(p, vcache_first_page(bio),
					vcache_last_page(bio));
		if (meets)
			break;
	}
	spin_unlock_irqrestore(&dev->park_lock, flags);
	return meets;
}

/**
 * vcache_park - park a request until its range is free
 * @dev: the device
 * @bio: the request, to be sent to the origin
 * @io: our data of it
 *
 * Return: what a map function returns, always DM_MAPIO_SUBMITTED.
 */
int vcache_park(struct vcache_dev *dev, struct bio *bio, struct vcache_io *io)
{
	unsigned long flags;
	bool noflush;

	io->parked.first = vcache_first_page(bio);
	io->parked.last = vcache_last_page(bio);
	io->parked.sent = false;
	io->parked.retried = false;
	io->parked.seen = false;
	io->parked.pass = READ_ONCE(dev->park_pass) - 1;
	spin_lock_irqsave(&dev->park_lock, flags);
	noflush = dev->noflush;
	if (!noflush) {
		io->kind = VC_IO_PARKED;
		list_add_tail(&io->parked.node, &dev->parked);
		atomic_inc(&dev->nparked);
	}
	spin_unlock_irqrestore(&dev->park_lock, flags);

	if (noflush) {
		bio->bi_status = BLK_STS_DM_REQUEUE;
		bio_endio(bio);
	} else {
		queue_work(dev->wq, &dev->park_work);
	}
	return DM_MAPIO_SUBMITTED;
}

static void vc_parked_unlink(struct vcache_dev *dev, struct vcache_io *io)
{
	list_del(&io->parked.node);
	atomic_dec(&dev->nparked);
	io->kind = VC_IO_PLAIN;
}

/**
 * vcache_past_done - the origin has completed a request that bypassed the buffer
 * @dev: the device
 * @io: our data of the request
 * @op: its operation
 *
 * Blocks of its range that were promoted meanwhile may have the data of before: drop them.
 * After a discard any data is as good as other.
 */
void vcache_past_done(struct vcache_dev *dev, struct vcache_io *io, enum req_op op)
{
	pgoff_t i;

	if (!dev->vol)
		return;
	vcache_lookup_change(dev->vol, io->parked.first, io->parked.last -
			     io->parked.first + 1);
	if (op != REQ_OP_WRITE || READ_ONCE(dev->writeback))
		return;
	for (i = io->parked.first; i <= io->parked.last; i++)
		vcache_lookup_cut(dev->vol, NULL, i, VC_MASK_ALL);
}

/**
 * vcache_parked_done - the origin has completed a request that was parked
 * @dev: the device
 * @io: our data of the request
 * @op: its operation
 */
void vcache_parked_done(struct vcache_dev *dev, struct vcache_io *io, enum req_op op)
{
	unsigned long flags;

	vcache_past_done(dev, io, op);
	spin_lock_irqsave(&dev->park_lock, flags);
	vc_parked_unlink(dev, io);
	spin_unlock_irqrestore(&dev->park_lock, flags);
	if (atomic_read(&dev->nparked))
		queue_work(dev->wq, &dev->park_work);
}

/**
 * vcache_parked_requeue - give parked requests back to dm
 * @dev: a device that is being suspended without a flush
 *
 * Those that were sent are completed by the origin.
 */
void vcache_parked_requeue(struct vcache_dev *dev)
{
	struct vcache_parked *p, *next;
	LIST_HEAD(list);

	spin_lock_irq(&dev->park_lock);
	list_for_each_entry_safe(p, next, &dev->parked, node) {
		if (p->sent)
			continue;
		vc_parked_unlink(dev, container_of(p, struct vcache_io, parked));
		list_add_tail(&p->node, &list);
	}
	spin_unlock_irq(&dev->park_lock);

	list_for_each_entry_safe(p, next, &list, node) {
		struct bio *bio = vcache_io_bio(container_of(p, struct vcache_io,
							     parked));

		bio->bi_status = BLK_STS_DM_REQUEUE;
		bio_endio(bio);
	}
}

enum vc_park_state {
	VC_PARK_FREE,
	VC_PARK_BUSY,
	VC_PARK_FAILED,
};

/*
 * Is any part of the range in the buffer? If so, start its write-out. Blocks whose
 * write-out failed before are tried again once. A large write is waited for, too.
 */
static enum vc_park_state vc_parked_clear(struct vcache_dev *dev, struct vcache_parked *p)
{
	enum vc_park_state range = VC_PARK_FREE;
	struct vcache_tag *kicked = NULL;
	pgoff_t at = p->first;
	bool refused = false;
	struct vcache_block *b;

	rcu_read_lock();
	for (; at <= p->last && (b = vcache_blocks_next(dev, at, p->last));
	     at = b->index + 1) {
		unsigned long flags;
		struct vcache_tag *home;
		bool bad;
		u8 state;

		spin_lock_irqsave(&b->lock, flags);
		home = vcache_block_home(b);
		state = b->state;
		bad = b->bad;
		spin_unlock_irqrestore(&b->lock, flags);
		if (state == VC_DEAD)
			continue;
		range = VC_PARK_BUSY;
		if (state == VC_DIRTY && bad && p->retried) {
			range = VC_PARK_FAILED;
			break;
		}
		refused |= bad;
		if (state == VC_DIRTY && home != kicked) {
			vcache_tag_write_out(home, UINT_MAX);
			kicked = home;
		}
	}
	rcu_read_unlock();
	p->retried |= refused;
	if (range == VC_PARK_FREE && vcache_large_covers(dev, p->first, p->last))
		return VC_PARK_BUSY;
	return range;
}

/*
 * Find the first request that was not looked at in this pass and overlaps none before it.
 * The list is short, unless there are many discards, and these do not overlap.
 */
static struct vcache_parked *vc_parked_next(struct vcache_dev *dev)
{
	struct vcache_parked *p, *q;

	list_for_each_entry(p, &dev->parked, node) {
		bool meets = false;

		if (p->sent || p->pass == dev->park_pass)
			continue;
		list_for_each_entry(q, &dev->parked, node) {
			if (q == p)
				break;
			meets = vc_parked_meets(q, p->first, p->last);
			if (meets)
				break;
		}
		if (!meets)
			return p;
	}
	return NULL;
}

/*
 * In writeback mode a write has waited only for requests before it. Now it is buffered
 * after all. The worker submits it, so it is attributed to hTag. That is always safe.
 */
static void vc_parked_write(struct vcache_dev *dev, struct vcache_io *io,
			    struct bio *bio)
{
	vcache_parked_done(dev, io, bio_op(bio));
	io->unparked = true;
	if (vcache_write_bio(dev->target, bio, io) == DM_MAPIO_REQUEUE) {
		bio->bi_status = BLK_STS_DM_REQUEUE;
		bio_endio(bio);
	}
}

/* Nothing of the range is buffered any more: go on with the request. */
static void vc_parked_go(struct vcache_dev *dev, struct vcache_io *io, struct bio *bio)
{
	if (bio_op(bio) == REQ_OP_DISCARD) {
		vcache_discard_begin(io);
	} else if (READ_ONCE(dev->writeback) && bio_op(bio) == REQ_OP_WRITE) {
		vc_parked_write(dev, io, bio);
	} else {
		vcache_write_uncache(dev, bio);
		submit_bio_noacct(bio);
	}
}

/* A part of the range is buffered. The request goes on when it has left the buffer. */
static void vc_parked_back(struct vcache_dev *dev, struct vcache_parked *p)
{
	spin_lock_irq(&dev->park_lock);
	p->sent = false;
	spin_unlock_irq(&dev->park_lock);
	if (READ_ONCE(dev->noflush))
		vcache_parked_requeue(dev);
}

/**
 * vcache_parked_wait_writers - wait for writes that may not have seen a discard
 * @io: our data of the discard; its range was free
 *
 * Return: whether the range is still free. If not, the discard is parked again.
 */
bool vcache_parked_wait_writers(struct vcache_io *io)
{
	struct vcache_parked *p = &io->parked;
	struct vcache_dev *dev = io->dev;

	if (p->seen)
		return true;
	synchronize_srcu(&dev->writers);
	p->seen = true;
	if (!vcache_buffer_covers(dev, p->first, p->last) &&
	    !vcache_large_covers(dev, p->first, p->last))
		return true;
	VCACHE_PROBE("write is buffered after a discard was parked");
	vc_parked_back(dev, p);
	queue_work(dev->wq, &dev->park_work);
	return false;
}

static void vc_parked_send(struct vcache_dev *dev, struct vcache_parked *p)
{
	struct vcache_io *io = container_of(p, struct vcache_io, parked);
	struct bio *bio = vcache_io_bio(io);

	switch (vc_parked_clear(dev, p)) {
	case VC_PARK_FREE:
		vc_parked_go(dev, io, bio);
		break;
	case VC_PARK_FAILED:
		bio_io_error(bio);
		break;
	case VC_PARK_BUSY:
		vc_parked_back(dev, p);
		break;
	}
}

/**
 * vcache_park_work - send parked requests whose ranges have become free
 * @work: vcache_dev.park_work
 *
 * Runs when a request is parked or completes, and when blocks have left the buffer.
 */
void vcache_park_work(struct work_struct *work)
{
	struct vcache_dev *dev = container_of(work, struct vcache_dev, park_work);
	struct vcache_parked *p;

	WRITE_ONCE(dev->park_pass, dev->park_pass + 1);
	for (;;) {
		spin_lock_irq(&dev->park_lock);
		p = vc_parked_next(dev);
		if (p) {
			p->sent = true;
			p->pass = dev->park_pass;
		}
		spin_unlock_irq(&dev->park_lock);
		if (!p)
			break;
		vc_parked_send(dev, p);
	}
}
