/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * dm-vcache: which logs get and give up chunks, and how chunks are reclaimed.
 */
#ifndef DM_VCACHE_RECLAIM_H
#define DM_VCACHE_RECLAIM_H

#include "../destage/destage.h"

/* One of so many chunks is reserved for relocation; at most so many are. */
#define VC_RELOCATE_OF		8U
#define VC_RELOCATE_MAX		2U

/* One of so many chunks is the common reserve, and not part of any share. */
#define VC_COMMON_OF		10U

/* What cannot be done now is tried again after so long at most, jiffies. */
#define VC_SPACE_RETRY_MAX	(HZ / 8)

/* Chunks that every log may have. */
#define VC_CHUNKS_MIN		2U

/* After an error, no written chunk of a log is reclaimed for so long, jiffies. */
#define VC_BLOCKED_DELAY	HZ

/**
 * struct vcache_clearing - reclaim of chunks because of where they are
 * @left: how many may be reclaimed; 0 also if one could not be reclaimed now
 * @further: there are chunks of volumes that were not replayed yet
 */
struct vcache_clearing {
	u32 left;
	bool further;
};

/* Must a chunk behind the new end of the pool still be reclaimed? */
static inline bool vcache_chunk_leaves(const struct vcache_chunk *c)
{
	u8 state = READ_ONCE(c->state);

	return state != VC_CHUNK_OUTSIDE && state != VC_CHUNK_BAD;
}

/* How many of so many chunks are reserved for relocation? */
static inline u32 vcache_relocate_reserve(u32 chunks)
{
	return min(chunks / VC_RELOCATE_OF, VC_RELOCATE_MAX);
}

/* How many chunks of the shared lanes are? */
static inline u32 vcache_pool_relocate_reserve(const struct vcache_pool *p)
{
	return vcache_relocate_reserve(READ_ONCE(p->shared));
}

/* Is the pool being shrunk? */
static inline bool vcache_pool_shrinks(const struct vcache_pool *p)
{
	return READ_ONCE(p->limit) < p->g.chunks;
}

/* clear.c */
void vcache_pool_count_leaving(struct vcache_pool *p);

/* dedicate.c */
void vcache_log_set_lanes(struct vcache_log *log, u64 lanes);
const char *vcache_tag_lanes_refuse(struct vcache_dev *dev, const struct vcache_tag *tag,
				    u64 lanes);
int vcache_tag_set_lanes(struct vcache_tag *tag, u64 lanes);
void vcache_tag_keep_lanes(struct vcache_tag *tag);

/* direct.c */
bool vcache_direct_take(struct vcache_pool *p, u32 *chunk);
void vcache_direct_return(struct vcache_pool *p, u32 chunk);
int vcache_direct_note(struct vcache_volume *v, u32 chunk, u32 block);
int vcache_direct_unnote(struct vcache_volume *v, u32 chunk);
bool vcache_direct_next(struct vcache_volume *v, u32 *chunk, u32 *block);
int vcache_direct_forget(struct vcache_volume *v);
u32 vcache_direct_space(const struct vcache_pool *p);
u32 vcache_direct_left(const struct vcache_pool *p);
void vcache_direct_want(struct vcache_pool *p, u32 before, u32 now);

/* drop.c */
int vcache_log_reclaim(struct vcache_log *log, u32 most);
int vcache_volume_forget(struct vcache_volume *v);
int vcache_logs_forget(struct vcache_volume *v);
int vcache_volume_clear(struct vcache_volume *v);
int vcache_volume_drop(struct vcache_pool *p, u32 id, bool force, const char **error);
int vcache_volume_drop_vssd(struct vcache_pool *p, u32 id, const char **error);
int vcache_volume_drop_tag(struct vcache_pool *p, u32 id, u32 tag, bool force,
			   const char **error);
int vcache_volume_start(struct vcache_volume *v);

/* share.c */
u32 vcache_log_dirty_limit(const struct vcache_log *log);

/* migrate.c */
void vcache_migrate_soon(struct vcache_log *log);

/* own.c */
bool vcache_log_may_write(const struct vcache_log *log);

/* space.c */
void vcache_space_work(struct work_struct *work);
struct vcache_chunk *vcache_chunk_take(struct vcache_pool *p, struct vcache_log *log,
				       enum vcache_take take, enum vcache_domain first);

#endif /* DM_VCACHE_RECLAIM_H */
