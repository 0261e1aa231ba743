/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * dm-vcache: an origin that is an SSD with tagged commands.
 */
#ifndef DM_VCACHE_NVME_H
#define DM_VCACHE_NVME_H

#include <linux/atomic.h>
#include <linux/blk_types.h>

struct request;
struct nvme_command;
struct vc_dev;
struct vc_tag;

/* Exported by nvme-core, but not in an installed header. */
void nvme_init_request(struct request *req, struct nvme_command *cmd);

/**
 * struct vc_nvme - an origin that understands tags, see nvme.c
 * @init_request: function of nvme-core, which stays loaded while this is set
 * @on: write-outs are tagged
 * @users: tagged write-outs that are not durable
 * @nsid: namespace
 * @tag_max: largest tag that the drive knows
 * @instance: number of the drive's power-on; after another power-on flushes fail
 */
struct vc_nvme {
	void (*init_request)(struct request *rq, struct nvme_command *cmd);
	bool on;
	atomic_t users;
	u32 nsid;
	u32 tag_max;
	u32 instance;
};

/* tagged.c */
void vc_tagged_end(struct bio *bio);
void vc_tagged_flushed(struct vc_tag *tag, blk_status_t status);
void vc_commit_work(struct work_struct *work);

/* nvme.c */
bool vc_nvme_enter(struct vc_dev *dev);
void vc_nvme_leave(struct vc_dev *dev);
void vc_nvme_lost(struct vc_tag *tag);
unsigned int vc_nvme_max_bytes(struct block_device *bdev);
void vc_nvme_write(struct vc_tag *tag, struct bio *bio);
void vc_nvme_flush(struct vc_tag *tag);
void vc_nvme_drop(struct vc_dev *dev);
int vc_nvme_set(struct vc_dev *dev, const struct vc_nvme *as,
		const char **error);

#endif /* DM_VCACHE_NVME_H */
