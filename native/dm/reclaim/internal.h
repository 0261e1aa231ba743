/* SPDX-License-Identifier: GPL-2.0-only */
/* dm-vcache: what the files of this folder share. */
#ifndef DM_VCACHE_RECLAIM_INTERNAL_H
#define DM_VCACHE_RECLAIM_INTERNAL_H

#include "reclaim.h"

/* clear.c */
void vc_pool_clear(struct vc_pool *p, u32 from, u32 end,
		   const struct vc_log *keeper, struct vc_clearing *by);
void vc_pool_clear_again(struct vc_pool *p, const struct vc_clearing *by);
void vc_pool_vacate(struct vc_pool *p);

/* migrate.c */
void vc_pool_migrate(struct vc_pool *p);

/* own.c */
bool vc_own_is_short(const struct vc_log *log);
bool vc_own_is_urgent(const struct vc_log *log);
bool vc_own_has_space(const struct vc_log *log);
bool vc_own_may_take(const struct vc_pool *p, const struct vc_log *log,
		     enum vc_take take);
bool vc_own_make_space(struct vc_pool *p, unsigned long end);
void vc_own_clear(struct vc_pool *p);

/* reclaim.c */
void vc_chunk_release(struct vc_pool *p, struct vc_chunk *c);
bool vc_log_is_blocked(const struct vc_log *log);
bool vc_chunk_reclaimable(struct vc_chunk *c);
int vc_chunk_reclaim(struct vc_pool *p, struct vc_chunk *c, enum vc_reclaim how);

/* relocate.c */
struct vc_chunk *vc_relocate_candidate(struct vc_log *log, enum vc_domain domain);
bool vc_relocate_chunk(struct vc_log *log, struct vc_chunk *c);

/* reseal.c */
int vc_reseal_others(struct vc_pool *p, struct vc_log *log);
void vc_pool_give_up_unsealed(struct vc_pool *p);

/* share.c */
void vc_pool_share(struct vc_pool *p);

/* space.c */
u32 vc_pool_reserve(const struct vc_pool *p);
bool vc_log_may_grow(const struct vc_pool *p, const struct vc_log *log);
bool vc_pool_look_further(struct vc_pool *p);
bool vc_pool_reclaim(struct vc_pool *p, struct vc_chunk *c);
int vc_log_clear(struct vc_log *log);

/* victim.c */
u32 vc_chunk_heat(const struct vc_pool *p, const struct vc_chunk *c, u32 hot);
struct vc_chunk *vc_reads_oldest(struct vc_log *log, enum vc_reads_kind kind,
				 enum vc_domain domain);
struct vc_chunk *vc_log_oldest(struct vc_log *log);
bool vc_log_frees_space(const struct vc_log *log, const struct vc_chunk *c,
			enum vc_domain domain);
struct vc_chunk *vc_log_victim(struct vc_log *log, enum vc_domain domain);
struct vc_chunk *vc_log_any(struct vc_log *log);
struct vc_chunk *vc_log_empty_chunk(struct vc_log *log, enum vc_domain domain);

#endif /* DM_VCACHE_RECLAIM_INTERNAL_H */
