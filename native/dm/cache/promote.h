/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * dm-vcache: a promotion, for a read or for a prefetch.
 */
#ifndef DM_VCACHE_PROMOTE_H
#define DM_VCACHE_PROMOTE_H

#include "cache.h"

/* Most blocks of a promotion: 128 KiB. Origins serve larger reads well. */
#define VC_PROMOTION_MAX	32U

/**
 * struct vc_promoted - a block of a promotion
 * @page: its data
 * @changes: vc_lookup_changes() of it
 */
struct vc_promoted {
	struct page *page;
	int changes;
};

/**
 * struct vc_promotion - blocks on their way from the origin to the cache
 * @node: vc_log.promotions
 * @log: the log
 * @user: the request that reads them, until it is complete; or NULL
 * @iter: the part of the data that the request wants
 * @bio: our request, first to the origin, then to the cache
 * @block: the first block
 * @n: how many
 * @kind: the set of read chunks that they go to
 * @cell: the first cell, or VC_CELL_NONE while they have no place
 * @heat: the heat that they get
 * @ahead: it is a prefetch, see prefetch.c
 * @part: the blocks
 */
struct vc_promotion {
	struct list_head node;
	struct vc_log *log;
	struct bio *user;
	struct bvec_iter iter;
	struct bio *bio;
	u64 block;
	u32 n;
	enum vc_reads_kind kind;
	u32 cell;
	u8 heat;
	bool ahead;
	struct vc_promoted part[];
};

/* promote.c */
bool vc_promote_enter(struct vc_volume *v);
void vc_promote_leave(struct vc_volume *v);
void vc_promotion_free(struct vc_promotion *pr);
bool vc_promote_begin(struct vc_promotion *pr);
struct vc_promotion *vc_promotion_make(struct vc_log *log, u64 block, u32 n,
				       blk_opf_t flags);
bool vc_promote_may(struct vc_tag *tag);
void vc_promote_work(struct work_struct *work);

#endif /* DM_VCACHE_PROMOTE_H */
