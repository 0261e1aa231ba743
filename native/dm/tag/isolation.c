// SPDX-License-Identifier: GPL-2.0-only
/*
 * dm-vcache: what makes data durable on a device: nothing, FUA, tagged flushes, or a FLUSH
 * of everything.
 */
#include "internal.h"

/**
 * vcache_isolation_of - find out how data is made durable on a device
 * @bdev: the origin
 *
 * This is not cached, because an administrator may change it in sysfs at any time.
 */
enum vcache_isolation vcache_isolation_of(struct block_device *bdev)
{
	if (!bdev_write_cache(bdev))
		return VCACHE_ISOLATION_WRITE_THROUGH;
	if (bdev_fua(bdev))
		return VCACHE_ISOLATION_FUA;
	return VCACHE_ISOLATION_DEGRADED;
}

/**
 * vcache_target_isolation - the same for the device that write-outs go to now
 * @vt: a table
 */
enum vcache_isolation vcache_target_isolation(const struct vcache_target *vt)
{
	if (vt->dev->target != vt)
		return vcache_isolation_of(vt->origin->bdev);
	if (READ_ONCE(vt->dev->nvme.on))
		return VCACHE_ISOLATION_TAGGED;
	return vcache_isolation_of(vt->dev->store);
}

/**
 * vcache_origin_note_write - the origin has completed a write-out of a device
 * @dev: the device
 * @bio: the write-out
 *
 * Called before anybody learns that it is complete.
 */
void vcache_origin_note_write(struct vcache_dev *dev, const struct bio *bio)
{
	if (bio->bi_opf & REQ_FUA)
		return;
	atomic64_inc(&dev->origin_writes);
	smp_mb__after_atomic(); /* before a flush finds its tag without such data */
}

/**
 * vcache_origin_needs_flush - may completed write-outs be in a volatile cache of the origin?
 * @dev: the device
 * @origin: its origin
 */
bool vcache_origin_needs_flush(struct vcache_dev *dev, struct block_device *origin)
{
	return atomic64_read(&dev->origin_writes) != atomic64_read(&dev->origin_durable) &&
	       vcache_isolation_of(origin) == VCACHE_ISOLATION_DEGRADED;
}

/**
 * vcache_origin_flush - make all completed write-outs durable
 * @dev: the device
 * @origin: its origin
 *
 * Return: 0 or a negative errno.
 */
int vcache_origin_flush(struct vcache_dev *dev, struct block_device *origin)
{
	s64 covered = atomic64_read(&dev->origin_writes);
	int r = blkdev_issue_flush(origin);

	/* If a FLUSH that began later has covered more already, the next flush sends another. */
	if (!r)
		atomic64_set(&dev->origin_durable, covered);
	return r;
}

/**
 * vcache_durable_flags - flags that make a single write durable
 * @bdev: the origin
 *
 * None if there is no volatile cache. None either if the block layer would emulate FUA by
 * a FLUSH of the whole device after each write: one FLUSH at the end of a flush is
 * cheaper, see vcache_flush_work().
 */
blk_opf_t vcache_durable_flags(struct block_device *bdev)
{
	return vcache_isolation_of(bdev) == VCACHE_ISOLATION_FUA ? REQ_FUA : 0;
}
