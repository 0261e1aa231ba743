/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * dm-vcache: destage: dirty blocks are copied from the cache to the origin.
 */
#ifndef DM_VCACHE_DESTAGE_H
#define DM_VCACHE_DESTAGE_H

#include "../cache/cache.h"
#include "../log/round.h"

/* Blocks of a destage window while others read from an origin, see throttle.c. */
#define VC_WINDOW_THROTTLED	8U

/* bad.c */
void vcache_bad_free(struct vcache_volume *v);
void vcache_bad_retry_now(struct vcache_volume *v);

/* destage.c */
void vcache_volume_note_clean(struct vcache_volume *v);
void vcache_destage_soon(struct vcache_volume *v);
void vcache_destage_now(struct vcache_volume *v);
void vcache_destage_init(struct vcache_volume *v);

/* limit.c */
void vcache_destage_limit(struct vcache_volume *v, const struct vcache_limits *limits);
void vcache_destage_pause(struct vcache_volume *v, u32 seconds);
u32 vcache_destage_paused(const struct vcache_volume *v);

/* throttle.c */
void vcache_throttle_init(struct vcache_pool *p);

#endif /* DM_VCACHE_DESTAGE_H */
