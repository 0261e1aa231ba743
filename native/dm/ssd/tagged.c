// SPDX-License-Identifier: GPL-2.0-only
/*
 * dm-vcache: write-outs to an origin that understands tags.
 *
 *   sent to the drive --> in its cache --tagged flush--> durable
 *          |                                  |
 *          +--------- refused: as FUA write --+
 *
 * Data in the volatile cache of the drive stays in our memory, and counts as in flight,
 * until a tagged flush that began later has completed. We decide when to flush the drive,
 * not the tenants: when everything that was sent has arrived, or half of what may be in
 * flight; one flush at a time. So a flush covers as much data as there is, and no flush
 * waits for another one.
 *
 * A tagged command that fails costs time, never data: the data is written again, with FUA.
 * If the drive has lost power meanwhile it has another instance number, and the flush
 * fails.
 *
 * DOC: Locks and lifetime
 *
 * vcache_tag.sent, .refused, .committing and .busy are under vcache_tag.lock. The tag is not freed
 * while one of its write-outs counts in vcache_tag.inflight, and for a grace period after
 * that. Flushes have a workqueue of their own, because a worker of another tag may wait for
 * memory that only a flush frees.
 */
#include "internal.h"

/* Is it time for a tagged flush? Called with the lock of the tag held. */
static bool vc_tagged_due(struct vcache_tag *tag)
{
	lockdep_assert_held(&tag->lock);
	if (!bio_list_empty(&tag->refused))
		return true;
	return !tag->busy && !bio_list_empty(&tag->sent) &&
	       (!atomic_read(&tag->tagging) ||
		tag->nsent >= VC_INFLIGHT_MAX * VC_GROUPS_MAX / 2);
}

static void vc_tagged_kick(struct vcache_tag *tag)
{
	if (vc_tagged_due(tag))
		queue_work(tag->dev->flush_wq, &tag->commit_work);
}

/**
 * vcache_tagged_end - the drive has completed or refused a tagged write
 * @bio: the write
 */
void vcache_tagged_end(struct bio *bio)
{
	struct vcache_tag *tag = bio->bi_private;
	blk_status_t status = bio->bi_status;
	unsigned long flags;

	rcu_read_lock();
	if (status)
		vcache_nvme_lost(tag);
	spin_lock_irqsave(&tag->lock, flags);
	if (status) {
		bio_list_add(&tag->refused, bio);
	} else {
		bio_list_add(&tag->sent, bio);
		tag->nsent++;
	}
	atomic_dec(&tag->tagging);
	vcache_writeout_arrived(tag);
	vc_tagged_kick(tag);
	spin_unlock_irqrestore(&tag->lock, flags);
	rcu_read_unlock();
}

/**
 * vcache_tagged_flushed - a tagged flush has completed
 * @tag: the tag
 * @status: its status
 */
void vcache_tagged_flushed(struct vcache_tag *tag, blk_status_t status)
{
	struct vcache_dev *dev = tag->dev;
	struct bio_list durable;
	unsigned long flags;
	struct bio *bio;

	bio_list_init(&durable);
	rcu_read_lock();
	if (status)
		vcache_nvme_lost(tag);
	spin_lock_irqsave(&tag->lock, flags);
	bio_list_merge(status ? &tag->refused : &durable, &tag->committing);
	bio_list_init(&tag->committing);
	tag->busy = false;
	vc_tagged_kick(tag);
	spin_unlock_irqrestore(&tag->lock, flags);

	while ((bio = bio_list_pop(&durable))) {
		vcache_nvme_leave(dev);
		vcache_writeout_done(bio);
	}
	rcu_read_unlock();
}

/* Write data again, with FUA, because a tagged command has failed. */
static void vc_tagged_redo(struct vcache_tag *tag, struct bio *bio)
{
	struct block_device *bdev = tag->dev->origin;
	struct bio_vec *first = bio_first_bvec_all(bio);
	struct vcache_block *b = (struct vcache_block *)page_private(first->bv_page);
	sector_t sector = (b->index << VC_PAGE_SECTORS_SHIFT) +
			  (first->bv_offset >> SECTOR_SHIFT);
	unsigned short vcnt = bio->bi_vcnt;
	struct bvec_iter_all all;
	struct bio_vec *bv;

	bio_reset(bio, bdev, REQ_OP_WRITE | REQ_SYNC | vcache_durable_flags(bdev));
	bio->bi_vcnt = vcnt;
	bio->bi_iter.bi_sector = sector;
	bio_for_each_segment_all(bv, bio, all)
		bio->bi_iter.bi_size += bv->bv_len;
	bio->bi_private = tag;
	bio->bi_end_io = vcache_writeout_end;
	vcache_nvme_leave(tag->dev);
	atomic_inc(&tag->sending);
	submit_bio_noacct(bio);
}

/**
 * vcache_commit_work - flush the data of a tag in the drive's volatile cache
 * @work: vcache_tag.commit_work
 */
void vcache_commit_work(struct work_struct *work)
{
	struct vcache_tag *tag = container_of(work, struct vcache_tag, commit_work);
	struct bio_list refused;
	struct bio *bio;
	bool flush;

	spin_lock_irq(&tag->lock);
	refused = tag->refused;
	bio_list_init(&tag->refused);
	flush = !tag->busy && !bio_list_empty(&tag->sent);
	if (flush) {
		tag->busy = true;
		tag->committing = tag->sent;
		bio_list_init(&tag->sent);
		tag->nsent = 0;
	}
	spin_unlock_irq(&tag->lock);

	while ((bio = bio_list_pop(&refused)))
		vc_tagged_redo(tag, bio);
	if (flush)
		vcache_nvme_flush(tag);
}
