/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * dm-vcache: an origin that is an SSD with tagged commands.
 */
#ifndef DM_VCACHE_SSD_H
#define DM_VCACHE_SSD_H

#include "../buffer/buffer.h"

/* Exported by nvme-core, but not in an installed header. */
void nvme_init_request(struct request *req, struct nvme_command *cmd);

/* nvme.c */
bool vcache_nvme_enter(struct vcache_dev *dev);
void vcache_nvme_leave(struct vcache_dev *dev);
int vcache_nvme_set(struct vcache_dev *dev, const struct vcache_nvme *as,
		    const char **error);
unsigned int vcache_nvme_max_bytes(struct block_device *bdev);
void vcache_nvme_write(struct vcache_tag *tag, struct bio *bio);
void vcache_nvme_drop(struct vcache_dev *dev);

/* tagged.c */
void vcache_tagged_end(struct bio *bio);
void vcache_commit_work(struct work_struct *work);

#endif /* DM_VCACHE_SSD_H */
