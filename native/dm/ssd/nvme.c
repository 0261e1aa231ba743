// SPDX-License-Identifier: GPL-2.0-only
/*
 * dm-vcache: commands of an NVMe drive that understands tags.
 *
 * A bio has no field for a tag, so tagged writes and flushes go to the drive's queue as
 * passthrough requests. Log page C0h of a drive says whether it understands them
 * (doc/source/reference/nvme.rst). User space reads that page and tells us, because nothing
 * in the kernel can read a log page of a namespace.
 *
 * &vcache_nvme.users counts tagged write-outs that are not durable. While there are any, only
 * @on of &struct vcache_nvme may change, and only to false.
 */
#include <linux/blk-mq.h>
#include <linux/blkdev.h>
#include <linux/module.h>
#include <linux/nvme.h>

#include "../base/compat.h"
#include "internal.h"

/* Opcodes of the drive, see doc/source/reference/nvme.rst. */
#define VC_NVME_TAGGED_FLUSH	0xc0
#define VC_NVME_TAGGED_WRITE	0xc1

/**
 * vcache_nvme_enter - may one more write-out be tagged?
 * @dev: the device
 *
 * Return: true; then vcache_nvme_leave() has to be called when it is durable.
 */
bool vcache_nvme_enter(struct vcache_dev *dev)
{
	if (!READ_ONCE(dev->nvme.on))
		return false;
	/* A full barrier; pairs with the barrier in vcache_nvme_set(). */
	atomic_inc_return(&dev->nvme.users);
	if (READ_ONCE(dev->nvme.on))
		return true;
	atomic_dec(&dev->nvme.users);
	return false;
}

/**
 * vcache_nvme_leave - a write-out is durable, or will be written without a tag
 * @dev: the device
 */
void vcache_nvme_leave(struct vcache_dev *dev)
{
	atomic_dec(&dev->nvme.users);
}

/**
 * vcache_nvme_lost - the drive has refused a tagged command: use FUA from now on
 * @tag: the tag of the command
 */
void vcache_nvme_lost(struct vcache_tag *tag)
{
	if (xchg(&tag->dev->nvme.on, false))
		vcache_tag_event(tag, VCACHE_EVENT_KIND_TAGS_LOST);
}

/**
 * vcache_nvme_max_bytes - get the maximum size of a tagged write
 * @bdev: the origin
 *
 * Passthrough requests are not split. Each page may be a segment of its own.
 */
unsigned int vcache_nvme_max_bytes(struct block_device *bdev)
{
	struct request_queue *q = bdev_get_queue(bdev);

	return min(queue_max_hw_sectors(q),
		   min_t(unsigned int, queue_max_segments(q), BIO_MAX_VECS) *
		   VC_PAGE_SECTORS) << SECTOR_SHIFT;
}

static struct request *vc_nvme_request(struct vcache_dev *dev,
				       struct nvme_command *cmd,
				       blk_opf_t flags)
{
	struct block_device *bdev = dev->origin;
	struct request *rq;

	cmd->common.nsid = cpu_to_le32(dev->nvme.nsid);
	rq = blk_mq_alloc_request(bdev_get_queue(bdev), REQ_OP_DRV_OUT | flags,
				  0);
	if (IS_ERR(rq))
		return rq;
	dev->nvme.init_request(rq, cmd);
	/* Like a write, wait for a controller that is being reset. */
	rq->cmd_flags &= ~REQ_FAILFAST_DRIVER;
	return rq;
}

/* Tags beyond the drive's largest one are sent as the host's tag, which is safe. */
static __le32 vc_nvme_tag(const struct vcache_tag *tag)
{
	return cpu_to_le32(tag->id <= tag->dev->nvme.tag_max ? tag->id : 0);
}

/**
 * vcache_nvme_write - send a tagged write
 * @tag: the tag
 * @bio: the data, of at most vcache_nvme_max_bytes()
 *
 * Completes @bio when the drive has the data, in its volatile cache.
 */
void vcache_nvme_write(struct vcache_tag *tag, struct bio *bio)
{
	sector_t sector = bio->bi_iter.bi_sector +
			  get_start_sect(bio->bi_bdev);
	unsigned int shift = ilog2(bdev_logical_block_size(bio->bi_bdev));
	struct nvme_command cmd = {
		.rw.opcode = VC_NVME_TAGGED_WRITE,
		.rw.slba = cpu_to_le64(sector >> (shift - SECTOR_SHIFT)),
		.rw.length = cpu_to_le16((bio->bi_iter.bi_size >> shift) - 1),
	};
	struct request *rq;

	cmd.common.cdw2[0] = vc_nvme_tag(tag);
	rq = vc_nvme_request(tag->dev, &cmd, bio->bi_opf & REQ_SYNC);
	if (IS_ERR(rq)) {
		bio_io_error(bio);
		return;
	}
	if (blk_rq_append_bio(rq, bio)) {
		blk_mq_free_request(rq);
		bio_io_error(bio);
		return;
	}
	blk_execute_rq_nowait(rq, false);
}

static struct request *vc_nvme_flush_request(struct vcache_tag *tag)
{
	struct nvme_command cmd = {
		.common.opcode = VC_NVME_TAGGED_FLUSH,
		.common.cdw10 = cpu_to_le32(tag->dev->nvme.instance),
	};

	cmd.common.cdw2[0] = vc_nvme_tag(tag);
	return vc_nvme_request(tag->dev, &cmd, REQ_SYNC);
}

static enum rq_end_io_ret vc_nvme_flush_end(VC_RQ_END_IO_ARGS)
{
	vcache_tagged_flushed(rq->end_io_data, status);
	return RQ_END_IO_FREE;
}

/**
 * vcache_nvme_flush - send a tagged flush
 * @tag: the tag; vcache_tagged_flushed() is called for it when it is complete
 */
void vcache_nvme_flush(struct vcache_tag *tag)
{
	struct request *rq = vc_nvme_flush_request(tag);

	if (IS_ERR(rq)) {
		vcache_tagged_flushed(tag, BLK_STS_IOERR);
		return;
	}
	rq->end_io = vc_nvme_flush_end;
	rq->end_io_data = tag;
	atomic64_inc(&vcache_stats(tag)->tagged_flushes);
	blk_execute_rq_nowait(rq, false);
}

static void vc_nvme_release(struct vcache_nvme *nvme)
{
	if (nvme->init_request)
		symbol_put(nvme_init_request);
	nvme->init_request = NULL;
}

/**
 * vcache_nvme_drop - stop using tagged commands, because the origin changes
 * @dev: the device, drained
 */
void vcache_nvme_drop(struct vcache_dev *dev)
{
	WRITE_ONCE(dev->nvme.on, false);
	vc_nvme_release(&dev->nvme);
}

/* Why can the device not take passthrough commands? NULL: it can. */
static const char *vc_nvme_unfit(struct block_device *bdev)
{
	struct device *parent = disk_to_dev(bdev->bd_disk)->parent;

	if (!queue_is_mq(bdev_get_queue(bdev)) || !parent || !parent->class ||
	    strcmp(parent->class->name, "nvme"))
		return "the origin is not a namespace of one NVMe controller";
	if (vcache_isolation_of(bdev) != VCACHE_ISOLATION_FUA)
		return "the origin has no volatile cache with FUA";
	return NULL;
}

/* Try a tagged flush. If the drive accepts it, tagged commands are used. */
static int vc_nvme_try(struct vcache_dev *dev)
{
	struct request *rq = vc_nvme_flush_request(dev->host);
	blk_status_t status;

	if (IS_ERR(rq))
		return PTR_ERR(rq);
	status = blk_execute_rq(rq, false);
	blk_mq_free_request(rq);
	return blk_status_to_errno(status);
}

/**
 * vcache_nvme_set - start or stop to send tagged commands
 * @dev: the device, with its lock held, and active
 * @as: parameters of the drive; @as->nsid 0: stop
 * @error: set to why not
 *
 * Return: 0 or a negative errno; then write-outs use FUA.
 */
int vcache_nvme_set(struct vcache_dev *dev, const struct vcache_nvme *as,
		    const char **error)
{
	struct block_device *bdev = dev->target->origin->bdev;
	struct vcache_nvme *nvme = &dev->nvme;
	int r;

	lockdep_assert_held(&dev->lock);
	if (nvme->on && nvme->nsid == as->nsid &&
	    nvme->tag_max == as->tag_max && nvme->instance == as->instance)
		return 0;
	WRITE_ONCE(nvme->on, false);
	if (!as->nsid)
		return 0;
	smp_mb(); /* pairs with the atomic operation in vcache_nvme_enter() */
	if (atomic_read(&nvme->users)) {
		*error = "tagged writes are still under way, try again";
		return -EBUSY;
	}
	*error = dev->suspended ? "the device is suspended" :
		 vc_nvme_unfit(bdev);
	if (*error)
		return dev->suspended ? -EBUSY : -EOPNOTSUPP;
	if (!nvme->init_request)
		nvme->init_request = symbol_get(nvme_init_request);
	if (!nvme->init_request) {
		*error = "nvme-core does not export nvme_init_request";
		return -EOPNOTSUPP;
	}
	nvme->nsid = as->nsid;
	nvme->tag_max = as->tag_max;
	nvme->instance = as->instance;
	r = vc_nvme_try(dev);
	if (r)
		*error = "the origin refused a tagged flush";
	else
		WRITE_ONCE(nvme->on, true);
	return r;
}
