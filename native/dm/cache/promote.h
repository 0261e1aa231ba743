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
 * struct vcache_promoted - a block of a promotion
 * @page: its data
 * @changes: vcache_lookup_changes() of it
 */
struct vcache_promoted {
	struct page *page;
	int changes;
};

/**
 * struct vcache_promotion - blocks on their way from the origin to the cache
 * @node: vcache_log.promotions
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
 * @sent: when it was sent to the cache, ns
 * @part: the blocks
 */
struct vcache_promotion {
	struct list_head node;
	struct vcache_log *log;
	struct bio *user;
	struct bvec_iter iter;
	struct bio *bio;
	u64 block;
	u32 n;
	enum vcache_reads_kind kind;
	u32 cell;
	u8 heat;
	bool ahead;
	u64 sent;
	struct vcache_promoted part[];
};

/* prefetch.c */
struct vcache_promotion *vcache_prefetch_place(struct vcache_log *log, u64 block, u32 n);
bool vcache_prefetch_may(struct vcache_log *log);

/* promote.c */
bool vcache_promote_enter(struct vcache_volume *v);
void vcache_promote_leave(struct vcache_volume *v);
void vcache_promotion_free(struct vcache_promotion *pr);
bool vcache_promote_begin(struct vcache_promotion *pr);
struct vcache_promotion *vcache_promotion_make(struct vcache_log *log, u64 block, u32 n,
					       blk_opf_t flags);
bool vcache_promote_may(struct vcache_tag *tag);
void vcache_promote_store(struct vcache_promotion *pr);
void vcache_promote_work(struct work_struct *work);

#endif /* DM_VCACHE_PROMOTE_H */
