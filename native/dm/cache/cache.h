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
enum vcache_reclaim {
	VC_RECLAIM_ALL,		/* nothing is kept */
	VC_RECLAIM_KEEP,	/* hot blocks are copied */
	VC_RECLAIM_SWAP,	/* for migration: hot or cold blocks change lanes */
};

/* fill.c */
int vcache_fill(struct vcache_log *log, u64 token, u64 block, u32 n, u8 heat, const u8 *data,
		const char **error);

/* prefetch.c */
const char *vcache_runs_wrong(const void *runs, u32 nr, u64 sectors);
void vcache_prefetch_drop(struct vcache_log *log);
void vcache_prefetch_resume(struct vcache_log *log);
int vcache_prefetch_add(struct vcache_log *log, const void *run, u32 nr,
			const char **error);

/* promote.c */
struct bio *vcache_promote_read(struct vcache_tag *tag, struct bio *bio);

/* readers.c */
void vcache_readers_init(struct vcache_pool *p);
void vcache_readers_note(struct vcache_volume *v);
bool vcache_readers_here(const struct vcache_volume *v);
bool vcache_readers_elsewhere(const struct vcache_volume *v);

/* reads.c */
void vcache_reads_init(struct vcache_log *log);
void vcache_reads_exit(struct vcache_log *log);
bool vcache_reads_close(struct vcache_log *log);
void vcache_reads_leave(struct vcache_log *log, enum vcache_reads_kind kind,
			enum vcache_domain domain);
u64 vcache_log_cells(const struct vcache_log *log);
bool vcache_reads_fit(struct vcache_log *log);
void vcache_reads_keep(struct vcache_chunk *c, enum vcache_reclaim how);

/* warm.c */
int vcache_pool_keep_reads(struct vcache_pool *p);

#endif /* DM_VCACHE_CACHE_H */
