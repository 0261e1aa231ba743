/* SPDX-License-Identifier: GPL-2.0-only */
/* dm-vcache: what the files of this folder share. */
#ifndef DM_VCACHE_RECLAIM_INTERNAL_H
#define DM_VCACHE_RECLAIM_INTERNAL_H

#include "reclaim.h"

/* Has a log more chunks in shared lanes than its share? */
static inline bool vcache_log_is_over(const struct vcache_log *log)
{
	return vcache_log_has(log, VC_SHARED) > READ_ONCE(log->share);
}

/* clear.c */
void vcache_pool_clear(struct vcache_pool *p, u32 from, u32 end,
		       const struct vcache_log *keeper, struct vcache_clearing *by);
void vcache_pool_clear_again(struct vcache_pool *p, const struct vcache_clearing *by);
void vcache_pool_vacate(struct vcache_pool *p);

/* migrate.c */
void vcache_pool_migrate(struct vcache_pool *p);

/* own.c */
bool vcache_own_is_short(const struct vcache_log *log);
bool vcache_own_is_urgent(const struct vcache_log *log);
bool vcache_own_has_space(const struct vcache_log *log);
bool vcache_own_may_take(const struct vcache_pool *p, const struct vcache_log *log,
			 enum vcache_take take);
bool vcache_own_make_space(struct vcache_pool *p, unsigned long end);
void vcache_own_clear(struct vcache_pool *p);

/* reclaim.c */
void vcache_chunk_release(struct vcache_pool *p, struct vcache_chunk *c);
bool vcache_log_is_blocked(const struct vcache_log *log);
bool vcache_chunk_reclaimable(struct vcache_chunk *c);
int vcache_chunk_reclaim(struct vcache_pool *p, struct vcache_chunk *c, enum vcache_reclaim how);

/* relocate.c */
struct vcache_chunk *vcache_relocate_candidate(struct vcache_log *log, enum vcache_domain domain);
bool vcache_relocate_chunk(struct vcache_log *log, struct vcache_chunk *c);

/* reseal.c */
int vcache_reseal_others(struct vcache_pool *p, struct vcache_volume *v,
			 const struct vcache_log *log);
int vcache_reseal_older(struct vcache_pool *p, struct vcache_chunk *c);
void vcache_pool_give_up_unsealed(struct vcache_pool *p);

/* share.c */
void vcache_pool_share(struct vcache_pool *p);

/* space.c */
bool vcache_pool_look_further(struct vcache_pool *p);
bool vcache_pool_reclaim(struct vcache_pool *p, struct vcache_chunk *c);
void vcache_space_retry(struct vcache_pool *p);

/* take.c */
u32 vcache_pool_reserve(const struct vcache_pool *p);
u32 vcache_pool_guaranteed_reserve(const struct vcache_pool *p);
bool vcache_log_may_grow(const struct vcache_pool *p, const struct vcache_log *log);
bool vcache_pool_give_spares(struct vcache_pool *p, bool starved);
bool vcache_log_yields(const struct vcache_log *log);
bool vcache_pool_take_turns(struct vcache_pool *p);

/* victim.c */
u32 vcache_chunk_heat(const struct vcache_pool *p, const struct vcache_chunk *c, u32 hot);
struct vcache_chunk *vcache_reads_oldest(struct vcache_log *log, enum vcache_reads_kind kind,
					 enum vcache_domain domain);
bool vcache_chunk_is_unread(const struct vcache_chunk *c);
struct vcache_chunk *vcache_log_oldest(struct vcache_log *log);
bool vcache_chunk_is_empty(const struct vcache_chunk *c);
bool vcache_chunk_droppable(const struct vcache_chunk *c);
bool vcache_log_frees_space(const struct vcache_log *log, const struct vcache_chunk *c,
			    enum vcache_domain domain);
struct vcache_chunk *vcache_log_victim(struct vcache_log *log, enum vcache_domain domain);
struct vcache_chunk *vcache_log_any(struct vcache_log *log);
struct vcache_chunk *vcache_log_empty_chunk(struct vcache_log *log, enum vcache_domain domain);

#endif /* DM_VCACHE_RECLAIM_INTERNAL_H */
