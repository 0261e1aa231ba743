/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * dm-vcache: read chunks: blocks that are cached because they are read.
 */
#ifndef DM_VCACHE_READS_H
#define DM_VCACHE_READS_H

#include "../core/replace.h"
#include "pool.h"

/* Add to the credit of a log. A race may lose some of it. */
static inline void vc_log_paid(struct vc_log *log, u32 paid)
{
	u32 credit = READ_ONCE(log->credit);

	if (credit < VC_CREDIT_MAX)
		WRITE_ONCE(log->credit, credit + paid);
}

/* Flags of a read that are passed on when its data is read with another request. */
#define VC_READ_FLAGS (REQ_SYNC | REQ_META | REQ_PRIO | REQ_IDLE | REQ_RAHEAD)

/* promote.c */
struct bio *vc_promote_read(struct vc_tag *tag, struct bio *bio);
void vc_promote_work(struct work_struct *work);

/* reads.c */
void vc_reads_init(struct vc_log *log);
u32 vc_reads_space(struct vc_log *log, enum vc_reads_kind kind, u32 least,
		   enum vc_take take);
u32 vc_reads_take(struct vc_log *log, enum vc_reads_kind kind, u32 n);
void vc_reads_put_pending(struct vc_log *log, struct vc_chunk *c);
void vc_reads_close(struct vc_log *log);
void vc_reads_leave(struct vc_log *log, enum vc_reads_kind kind,
		    enum vc_domain domain);
u64 vc_log_cells(const struct vc_log *log);
bool vc_reads_fit(struct vc_log *log);
void vc_reads_keep(struct vc_chunk *c, enum vc_reclaim how);

/* victim.c */
struct vc_chunk *vc_reads_oldest(struct vc_log *log, enum vc_reads_kind kind,
				 enum vc_domain domain);

/* prefetch.c */
void vc_prefetch_init(struct vc_log *log);
void vc_prefetch_drop(struct vc_log *log);
void vc_prefetch_resume(struct vc_log *log);
int vc_prefetch_add(struct vc_log *log, const void *run, u32 nr,
		    const char **error);

/* warm.c */
int vc_pool_keep_reads(struct vc_pool *p);

#endif /* DM_VCACHE_READS_H */
