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

/* What cannot be done now is tried again after so long, jiffies. */
#define VC_SPACE_RETRY		1UL

/* Chunks that every log may have. */
#define VC_CHUNKS_MIN		2U

/* After an error, no written chunk of a log is reclaimed for so long, jiffies. */
#define VC_BLOCKED_DELAY	HZ

/**
 * struct vc_clearing - reclaim of chunks because of where they are
 * @left: how many may be reclaimed; 0 also if one could not be reclaimed now
 * @further: there are chunks of volumes that were not replayed yet
 */
struct vc_clearing {
	u32 left;
	bool further;
};

/* Must a chunk behind the new end of the pool still be reclaimed? */
static inline bool vc_chunk_leaves(const struct vc_chunk *c)
{
	u8 state = READ_ONCE(c->state);

	return state != VC_CHUNK_OUTSIDE && state != VC_CHUNK_BAD;
}

/* How many of so many chunks are reserved for relocation? */
static inline u32 vc_relocate_reserve(u32 chunks)
{
	return min(chunks / VC_RELOCATE_OF, VC_RELOCATE_MAX);
}

/* How many chunks of the shared lanes are? */
static inline u32 vc_pool_relocate_reserve(const struct vc_pool *p)
{
	return vc_relocate_reserve(READ_ONCE(p->shared));
}

/* Is the pool being shrunk? */
static inline bool vc_pool_shrinks(const struct vc_pool *p)
{
	return READ_ONCE(p->limit) < p->g.chunks;
}

/* clear.c */
void vc_pool_count_leaving(struct vc_pool *p);

/* dedicate.c */
void vc_log_set_lanes(struct vc_log *log, u64 lanes);
const char *vc_tag_lanes_refuse(struct vc_dev *dev, const struct vc_tag *tag,
				u64 lanes);
int vc_tag_set_lanes(struct vc_tag *tag, u64 lanes);
void vc_tag_keep_lanes(struct vc_tag *tag);

/* drop.c */
int vc_volume_forget(struct vc_volume *v);
int vc_log_forget(struct vc_log *log);
int vc_volume_clear(struct vc_volume *v);
int vc_volume_drop(struct vc_pool *p, u32 id, bool force, const char **error);
int vc_volume_drop_tag(struct vc_pool *p, u32 id, u32 tag, bool force,
		       const char **error);
int vc_volume_start(struct vc_volume *v);

/* migrate.c */
void vc_migrate_soon(struct vc_log *log);

/* own.c */
bool vc_log_may_write(const struct vc_log *log);

/* space.c */
void vc_space_work(struct work_struct *work);
struct vc_chunk *vc_chunk_take(struct vc_pool *p, struct vc_log *log,
			       enum vc_take take, enum vc_domain first);
int vc_log_reclaim(struct vc_log *log, u32 most);

#endif /* DM_VCACHE_RECLAIM_H */
