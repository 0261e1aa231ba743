/* SPDX-License-Identifier: GPL-2.0-only */
/* dm-vcache: what the files of this folder share. */
#ifndef DM_VCACHE_LOG_INTERNAL_H
#define DM_VCACHE_LOG_INTERNAL_H

#include "log.h"

/* chunk.c */
void vc_seal_work(struct work_struct *work);

/* update.c */
bool vc_cell_count(struct vc_pool *p, u32 cell);
void vc_lookup_put(struct vc_volume *v, struct vc_log *by, u32 cell, u64 block,
		   u8 mask);
void vc_lookup_make_dirty(struct vc_chunk *c, u64 first, u64 last);

#endif /* DM_VCACHE_LOG_INTERNAL_H */
