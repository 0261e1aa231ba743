// SPDX-License-Identifier: GPL-2.0-only
/*
 * dm-vcache: flushes.
 *
 * A flush covers a set of tags. In volume scope it is the one tag there is. In filesystem
 * scope it is the tags of the submitter's cgroup, hTag and removed tags, or all tags. A
 * flush first starts the write-out of all of them at once. Then it visits one after the
 * other, and waits until the writes that completed before the flush are durable. It needs
 * no memory except that of its request, and takes no lock of a tag that it does not cover.
 *
 * The set is found again at each step. If the cgroups of a tag change meanwhile, data that
 * the flush has to cover may have moved to another tag. From then on it covers all tags.
 */
#include <linux/ktime.h>

#include "internal.h"

/*
 * A write with FUA covers its own tag, and blocks written by several tags: those of hTag. It
 * covers all tags if a part of it may have been buffered for another one.
 */
static bool vc_flush_covers(const struct vcache_flush *f, struct vcache_tag *tag)
{
	if (f->fua && !f->all)
		return tag == f->owner || tag == tag->dev->host;
	return f->all || tag == tag->dev->host || READ_ONCE(tag->orphan) ||
	       READ_ONCE(tag->exposed) || vcache_tag_has_cgroup(tag, f->cgroup);
}

enum vc_flush_next {
	VC_FLUSH_GO_ON,
	VC_FLUSH_WAITS,
	VC_FLUSH_REQUEUE,
};

/* How long have write-outs of a tag waited for space in its log? */
static u64 vc_tag_blocked_ns(const struct vcache_tag *tag, u64 now)
{
	u64 since = READ_ONCE(tag->blocked_since);

	return READ_ONCE(tag->blocked_ns) + (since && since < now ? now - since : 0);
}

/* Note what a flush is about to wait for. Called with the lock of the tag held. */
static void vc_flush_note(struct vcache_flush *f, const struct vcache_tag *tag)
{
	const struct vcache_dev *dev = tag->dev;

	f->since = ktime_get_ns();
	f->blocked = vc_tag_blocked_ns(tag, f->since);
	if (tag != f->owner)
		f->cause = VC_FLUSH_OTHERS;
	else if (READ_ONCE(dev->writeback) && READ_ONCE(tag->mode) == VCACHE_MODE_WRITEBACK)
		f->cause = VC_FLUSH_CACHE;
	else
		f->cause = VC_FLUSH_ORIGIN;
}

/* A flush does not wait any more: count how long it did, and for what. */
static void vc_flush_waited(struct vcache_flush *f)
{
	struct vcache_stats *st = vcache_stats(f->owner);
	u64 now = ktime_get_ns(), ns = now - f->since, space = 0;

	if (f->fua)
		return;
	/* It has waited for its owner. */
	if (f->cause == VC_FLUSH_CACHE || f->cause == VC_FLUSH_ORIGIN) {
		space = vc_tag_blocked_ns(f->owner, now);
		/* Races may lose some of it. */
		space = space > f->blocked ? min(space - f->blocked, ns) : 0;
	}
	atomic64_add(space, &st->flush_cause_ns[VC_FLUSH_SPACE]);
	atomic64_add(ns - space, &st->flush_cause_ns[f->cause]);
}

/* Wait for a tag, if it has data that is not durable. */
static enum vc_flush_next vc_flush_wait(struct vcache_flush *f,
					struct vcache_tag *tag)
{
	enum vc_flush_next next = VC_FLUSH_GO_ON;
	unsigned int ndirty = 0;
	unsigned long flags;
	int slot;

	/* Every write that the flush has to cover completed before the flush came. */
	if (vcache_epoch_idle(&tag->epoch))
		return VC_FLUSH_GO_ON;
	spin_lock_irqsave(&tag->lock, flags);
	if (tag->dev->noflush) {
		next = VC_FLUSH_REQUEUE;
	} else {
		slot = vcache_epoch_flush(&tag->epoch);
		if (slot != VC_EPOCH_IDLE) {
			vc_flush_note(f, tag);
			list_add_tail(&f->node, &tag->waiters[slot]);
			ndirty = tag->ndirty;
			WRITE_ONCE(tag->goal, ndirty);
			next = VC_FLUSH_WAITS;
		}
	}
	spin_unlock_irqrestore(&tag->lock, flags);
	if (next != VC_FLUSH_WAITS)
		return next;
	/* What is not dirty is with the worker, or on its way. */
	if (ndirty)
		queue_work(tag->dev->wq, &tag->work);
	/* A shared block is on the list of hTag, and may have failed while we waited for that. */
	if (atomic_read(&tag->bad))
		vcache_tag_write_out(tag->dev->host, UINT_MAX);
	return next;
}

/* Has any tag written to the origin of a device in writeback mode, which needs a FLUSH? */
static bool vc_flush_origin_too(struct vcache_dev *dev)
{
	return READ_ONCE(dev->writeback) && vcache_origin_needs_flush(dev, dev->vol->origin);
}

static void vc_flush_complete(struct vcache_dev *dev, struct bio *bio,
			      struct vcache_flush *f)
{
	unsigned long flags;

	if (f->failed) {
		bio_io_error(bio);
	} else if (vcache_isolation_of(dev->store) == VCACHE_ISOLATION_DEGRADED ||
		   vc_flush_origin_too(dev)) {
		f->since = ktime_get_ns();
		f->cause = VC_FLUSH_DEVICE;
		spin_lock_irqsave(&dev->flush_lock, flags);
		bio_list_add(&dev->flushq, bio);
		spin_unlock_irqrestore(&dev->flush_lock, flags);
		queue_work(dev->wq, &dev->flush_work);
	} else {
		bio_endio(bio);
	}
}

static void vc_flush_give_back(struct vcache_flush *f)
{
	struct bio *bio = vcache_io_bio(container_of(f, struct vcache_io, flush));

	bio->bi_status = BLK_STS_DM_REQUEUE;
	bio_endio(bio);
}

/*
 * Start the write-out of all tags that the flush covers, before it waits for any of them.
 * Called under RCU. Does not start the worker of @but.
 */
static void vc_flush_write_out(const struct vcache_flush *f, struct vcache_dev *dev,
			       const struct vcache_tag *but)
{
	struct vcache_tag *tag;

	list_for_each_entry_rcu(tag, &dev->tags, node) {
		if (!vc_flush_covers(f, tag) || vcache_epoch_idle(&tag->epoch))
			continue;
		vcache_tag_ask(tag, UINT_MAX);
		if (tag != but)
			vcache_tag_kick(tag);
	}
}

/*
 * May the flush have missed data, although all tags that it covers are durable? A block whose
 * write-out has failed has left its epoch, if a newer version has its data. That may be in an
 * epoch of a tag that the flush has visited before.
 */
static bool vc_flush_missed(struct vcache_flush *f, struct vcache_dev *dev)
{
	int now;

	smp_rmb(); /* the epochs were read before; pairs with vc_block_written() */
	now = atomic_read(&dev->inherited);
	if (f->inherited == now)
		return false;
	f->inherited = now;
	return true;
}

/* Continue with the next tag that is not durable; if there is none, complete. */
static void vc_flush_step(struct vcache_flush *f)
{
	struct vcache_io *io = container_of(f, struct vcache_io, flush);
	enum vc_flush_next next = VC_FLUSH_GO_ON;
	struct vcache_dev *dev = io->dev;
	struct vcache_tag *tag;

	rcu_read_lock();
again:
	list_for_each_entry_rcu(tag, &dev->tags, node) {
		if (tag->seq <= f->cursor || !vc_flush_covers(f, tag))
			continue;
		f->cursor = tag->seq;
		next = vc_flush_wait(f, tag);
		if (next != VC_FLUSH_GO_ON)
			break;
	}
	if (next == VC_FLUSH_GO_ON && !f->failed && vc_flush_missed(f, dev)) {
		VCACHE_PROBE("flush visits the tags again");
		f->cursor = 0;
		vc_flush_write_out(f, dev, NULL);
		goto again;
	}
	if (next == VC_FLUSH_GO_ON && !f->all && !f->fua &&
	    f->gen != atomic_read(&dev->attr_gen)) {
		VCACHE_PROBE("cgroups change during a flush");
		f->all = true;
		f->cursor = 0;
		vc_flush_write_out(f, dev, NULL);
		goto again;
	}
	rcu_read_unlock();
	if (next == VC_FLUSH_GO_ON)
		vc_flush_complete(dev, vcache_io_bio(io), f);
	else if (next == VC_FLUSH_REQUEUE)
		vc_flush_give_back(f);
}

/**
 * vcache_flush_bio - map a flush
 * @vt: the target
 * @bio: an empty flush
 * @io: our data of it
 *
 * Return: what the map function of a target returns.
 */
int vcache_flush_bio(struct vcache_target *vt, struct bio *bio, struct vcache_io *io)
{
	struct vcache_flush *f = &io->flush;
	struct vcache_dev *dev = vt->dev;

	io->kind = VC_IO_FLUSH;
	f->cursor = 0;
	f->failed = false;
	f->fua = false;
	f->cause = VC_FLUSH_CAUSES;
	f->start = ktime_get_ns();
	rcu_read_lock();
	f->gen = atomic_read(&dev->attr_gen);
	f->inherited = atomic_read(&dev->inherited);
	vcache_scope_of_flush(vt, f);
	atomic_inc(&f->owner->timed);
	vc_flush_write_out(f, dev, f->owner);
	rcu_read_unlock();
	/* The owner stays, because it counts the flush. To write out may wait for memory. */
	if (io->nowait || !vcache_writeout_small(f->owner))
		vcache_tag_kick(f->owner);
	vc_flush_step(f);
	return DM_MAPIO_SUBMITTED;
}

/**
 * vcache_flush_write - make a write with FUA durable, which is in the buffer
 * @tag: its tag
 * @bio: the write
 * @io: our data of it
 * @commits: the caller writes the tag out, or wakes its worker
 *
 * Called under rcu_read_lock(), which keeps @tag.
 */
void vcache_flush_write(struct vcache_tag *tag, struct bio *bio, struct vcache_io *io,
			bool commits)
{
	struct vcache_flush *f = &io->flush;

	io->kind = VC_IO_FLUSH;
	memset(f, 0, sizeof(*f));
	f->fua = true;
	/* The rest of a write that was parked is attributed to hTag. */
	f->all = io->partial && io->unparked;
	f->owner = tag;
	f->inherited = atomic_read(&tag->dev->inherited);
	f->start = ktime_get_ns();
	atomic_inc(&tag->timed);
	vc_flush_write_out(f, tag->dev, commits ? tag : NULL);
	vc_flush_step(f);
}

/**
 * vcache_flush_wake - continue flushes that waited for a tag
 * @waiters: the flushes; empty on return
 * @failed: a write-out that they cover has failed
 */
void vcache_flush_wake(struct list_head *waiters, bool failed)
{
	struct vcache_flush *f, *next;

	list_for_each_entry_safe(f, next, waiters, node) {
		list_del(&f->node);
		f->failed |= failed;
		vc_flush_waited(f);
		vc_flush_step(f);
	}
}

/**
 * vcache_flush_work - complete flushes on an origin that needs a FLUSH command
 * @work: vcache_dev.flush_work
 *
 * With a volatile cache and without FUA no other command makes data durable. This is
 * isolation=degraded.
 */
void vcache_flush_work(struct work_struct *work)
{
	struct vcache_dev *dev = container_of(work, struct vcache_dev, flush_work);
	struct bio_list list;
	struct bio *bio;
	bool store;
	int r = 0;

	spin_lock_irq(&dev->flush_lock);
	list = dev->flushq;
	bio_list_init(&dev->flushq);
	spin_unlock_irq(&dev->flush_lock);

	/* One FLUSH for all that have waited for the last one. */
	if (vc_flush_origin_too(dev))
		r = vcache_origin_flush(dev, dev->vol->origin);
	store = vcache_isolation_of(dev->store) == VCACHE_ISOLATION_DEGRADED;
	while ((bio = bio_list_pop(&list))) {
		struct vcache_flush *f = &vcache_io(bio)->flush;

		atomic64_inc(&vcache_stats(f->owner)->device_flushes);
		if (r) {
			bio_io_error(bio);
			continue;
		}
		if (!store) {
			bio_endio(bio);
			continue;
		}
		bio_set_dev(bio, dev->store);
		/* The data was written from the buffer, so the bio is not sent. */
		if (f->fua) {
			bio->bi_opf = REQ_OP_WRITE | REQ_PREFLUSH;
			bio->bi_iter.bi_size = 0;
		}
		submit_bio_noacct(bio);
	}
}

/**
 * vcache_flush_done - count a flush that is complete
 * @bio: the flush
 * @io: our data of it
 */
void vcache_flush_done(struct bio *bio, struct vcache_io *io)
{
	struct vcache_flush *f = &io->flush;
	struct vcache_stats *st = vcache_stats(f->owner);
	u64 ns = ktime_get_ns() - f->start;

	if (f->cause == VC_FLUSH_DEVICE)
		vc_flush_waited(f);
	if (bio->bi_status != BLK_STS_DM_REQUEUE && !f->fua) {
		atomic64_inc(&st->flushes);
		atomic64_add(ns, &st->flush_ns);
		atomic64_inc(&st->flush_hist[vcache_hist_bucket(ns)]);
	}
	atomic_dec(&f->owner->timed);
}

/**
 * vcache_flush_requeue - give waiting flushes back to dm
 * @dev: a device that is being suspended without a flush
 */
void vcache_flush_requeue(struct vcache_dev *dev)
{
	struct vcache_flush *f, *next;
	struct vcache_tag *tag;
	LIST_HEAD(list);
	unsigned int s;

	rcu_read_lock();
	list_for_each_entry_rcu(tag, &dev->tags, node) {
		spin_lock_irq(&tag->lock);
		for (s = 0; s < VC_EPOCH_SLOTS; s++)
			list_splice_tail_init(&tag->waiters[s], &list);
		spin_unlock_irq(&tag->lock);
	}
	rcu_read_unlock();

	list_for_each_entry_safe(f, next, &list, node) {
		list_del(&f->node);
		vc_flush_give_back(f);
	}
}
