/* SPDX-License-Identifier: GPL-2.0-only */
/* dm-vcache: what the files of this folder share. */
#ifndef DM_VCACHE_SSD_INTERNAL_H
#define DM_VCACHE_SSD_INTERNAL_H

#include "ssd.h"

/* nvme.c */
void vc_nvme_leave(struct vc_dev *dev);
void vc_nvme_lost(struct vc_tag *tag);
void vc_nvme_flush(struct vc_tag *tag);

/* tagged.c */
void vc_tagged_flushed(struct vc_tag *tag, blk_status_t status);

#endif /* DM_VCACHE_SSD_INTERNAL_H */
