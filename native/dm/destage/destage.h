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
void vc_bad_free(struct vc_volume *v);
void vc_bad_retry_now(struct vc_volume *v);

/* destage.c */
void vc_volume_note_clean(struct vc_volume *v);
void vc_destage_soon(struct vc_volume *v);
void vc_destage_init(struct vc_volume *v);

/* throttle.c */
void vc_throttle_init(struct vc_pool *p);

#endif /* DM_VCACHE_DESTAGE_H */
