/* SPDX-License-Identifier: GPL-2.0-only */
/* dm-vcache: what the files of this folder share. */
#ifndef DM_VCACHE_CACHE_INTERNAL_H
#define DM_VCACHE_CACHE_INTERNAL_H

#include "cache.h"

/* prefetch.c */
void vc_prefetch_ended(struct vc_log *log, u32 blocks);
void vc_prefetch_init(struct vc_log *log);

/* readers.c */
bool vc_readers_any(const struct vc_pool *p);

/* reads.c */
void vc_reads_put_pending(struct vc_log *log, struct vc_chunk *c);
u32 vc_reads_space(struct vc_log *log, enum vc_reads_kind kind, u32 least,
		   enum vc_take take);
u32 vc_reads_take(struct vc_log *log, enum vc_reads_kind kind, u32 n);

#endif /* DM_VCACHE_CACHE_INTERNAL_H */
