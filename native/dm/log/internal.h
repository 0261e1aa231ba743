/* SPDX-License-Identifier: GPL-2.0-only */
/* dm-vcache: what the files of this folder share. */
#ifndef DM_VCACHE_LOG_INTERNAL_H
#define DM_VCACHE_LOG_INTERNAL_H

#include "log.h"

/* chunk.c */
void vcache_seal_work(struct work_struct *work);
void vcache_log_kick(struct vcache_log *log);

/* doubt.c */
void vcache_doubt_chunk(struct vcache_chunk *c);
void vcache_doubt_block(struct vcache_volume *v, u64 block);

/* pace.c */
void vcache_pace_init(struct vcache_log *log);
void vcache_pace_exit(struct vcache_log *log);
void vcache_pace_next(struct vcache_log *log, bool reserved);

/* update.c */
bool vcache_cell_count(struct vcache_pool *p, u32 cell);
void vcache_lookup_put(struct vcache_volume *v, struct vcache_log *by, u32 cell, u64 block,
		       u8 mask);
void vcache_lookup_make_dirty(struct vcache_chunk *c, u64 first, u64 last);

#endif /* DM_VCACHE_LOG_INTERNAL_H */
