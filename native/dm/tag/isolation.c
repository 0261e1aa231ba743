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
