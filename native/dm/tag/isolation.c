// SPDX-License-Identifier: GPL-2.0-only
/*
 * dm-vcache: what makes data durable on a device: nothing, FUA, tagged flushes, or a FLUSH
 * of everything.
 */
#include "internal.h"

/**
 * vc_isolation - find out how data is made durable on a device
 * @bdev: the origin
 *
 * This is not cached, because an administrator may change it in sysfs at any time.
 */
enum vcache_isolation vc_isolation(struct block_device *bdev)
{
	if (!bdev_write_cache(bdev))
		return VCACHE_ISOLATION_WRITE_THROUGH;
	if (bdev_fua(bdev))
		return VCACHE_ISOLATION_FUA;
	return VCACHE_ISOLATION_DEGRADED;
}

/**
 * vc_target_isolation - the same for the device that write-outs go to now
 * @vt: a table
 */
enum vcache_isolation vc_target_isolation(const struct vc_target *vt)
{
	if (vt->dev->target != vt)
		return vc_isolation(vt->origin->bdev);
	if (READ_ONCE(vt->dev->nvme.on))
		return VCACHE_ISOLATION_TAGGED;
	return vc_isolation(vt->dev->store);
}

/**
 * vc_durable_flags - flags that make a single write durable
 * @bdev: the origin
 *
 * None if there is no volatile cache. None either if the block layer would emulate FUA by
 * a FLUSH of the whole device after each write: one FLUSH at the end of a flush is
 * cheaper, see vc_flush_work().
 */
blk_opf_t vc_durable_flags(struct block_device *bdev)
{
	return vc_isolation(bdev) == VCACHE_ISOLATION_FUA ? REQ_FUA : 0;
}
