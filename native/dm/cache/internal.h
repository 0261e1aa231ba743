/* SPDX-License-Identifier: GPL-2.0-only */
/* dm-vcache: what the files of this folder share. */
#ifndef DM_VCACHE_CACHE_INTERNAL_H
#define DM_VCACHE_CACHE_INTERNAL_H

#include "cache.h"

/* prefetch.c */
void vcache_prefetch_ended(struct vcache_log *log, u32 blocks);
void vcache_prefetch_init(struct vcache_log *log);

/* readers.c */
bool vcache_readers_any(const struct vcache_pool *p);

/* reads.c */
void vcache_reads_put_pending(struct vcache_log *log, struct vcache_chunk *c);
u32 vcache_reads_space(struct vcache_log *log, enum vcache_reads_kind kind, u32 least,
		       enum vcache_take take);
u32 vcache_reads_take(struct vcache_log *log, enum vcache_reads_kind kind, u32 n);

#endif /* DM_VCACHE_CACHE_INTERNAL_H */
