/* SPDX-License-Identifier: GPL-2.0-only */
/* dm-vcache: what the files of this folder share. */
#ifndef DM_VCACHE_SSD_INTERNAL_H
#define DM_VCACHE_SSD_INTERNAL_H

#include "ssd.h"

/* nvme.c */
void vcache_nvme_lost(struct vcache_tag *tag);
void vcache_nvme_flush(struct vcache_tag *tag);

/* tagged.c */
void vcache_tagged_flushed(struct vcache_tag *tag, blk_status_t status);

#endif /* DM_VCACHE_SSD_INTERNAL_H */
