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
bool vc_nvme_enter(struct vc_dev *dev);
int vc_nvme_set(struct vc_dev *dev, const struct vc_nvme *as,
		const char **error);
unsigned int vc_nvme_max_bytes(struct block_device *bdev);
void vc_nvme_write(struct vc_tag *tag, struct bio *bio);
void vc_nvme_drop(struct vc_dev *dev);

/* tagged.c */
void vc_tagged_end(struct bio *bio);
void vc_commit_work(struct work_struct *work);

#endif /* DM_VCACHE_SSD_H */
