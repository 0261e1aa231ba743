/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * dm-vcache: blocks that are cached because they are read.
 */
#ifndef DM_VCACHE_CACHE_H
#define DM_VCACHE_CACHE_H

#include "../log/log.h"

/* Flags of a read that are passed on when its data is read with another request. */
#define VC_READ_FLAGS (REQ_SYNC | REQ_META | REQ_PRIO | REQ_IDLE | REQ_RAHEAD)

/* How a chunk is reclaimed. */
enum vc_reclaim {
	VC_RECLAIM_ALL,		/* nothing is kept */
	VC_RECLAIM_KEEP,	/* hot blocks are copied */
	VC_RECLAIM_SWAP,	/* for migration: hot or cold blocks change lanes */
};

/* prefetch.c */
void vc_prefetch_drop(struct vc_log *log);
void vc_prefetch_resume(struct vc_log *log);
int vc_prefetch_add(struct vc_log *log, const void *run, u32 nr,
		    const char **error);

/* promote.c */
struct bio *vc_promote_read(struct vc_tag *tag, struct bio *bio);

/* readers.c */
void vc_readers_init(struct vc_pool *p);
void vc_readers_note(struct vc_volume *v);
bool vc_readers_here(const struct vc_volume *v);
bool vc_readers_elsewhere(const struct vc_volume *v);

/* reads.c */
void vc_reads_init(struct vc_log *log);
void vc_reads_exit(struct vc_log *log);
void vc_reads_close(struct vc_log *log);
void vc_reads_leave(struct vc_log *log, enum vc_reads_kind kind,
		    enum vc_domain domain);
u64 vc_log_cells(const struct vc_log *log);
bool vc_reads_fit(struct vc_log *log);
void vc_reads_keep(struct vc_chunk *c, enum vc_reclaim how);

/* warm.c */
int vc_pool_keep_reads(struct vc_pool *p);

#endif /* DM_VCACHE_CACHE_H */
