/* SPDX-License-Identifier: GPL-2.0-only */
/* dm-vcache: what the files of this folder share. */
#ifndef DM_VCACHE_DESTAGE_INTERNAL_H
#define DM_VCACHE_DESTAGE_INTERNAL_H

#include "destage.h"

/* bad.c */
void vc_bad_init(struct vc_volume *v);
int vc_bad_add(struct vc_volume *v, u64 block, int error);
bool vc_bad_has(struct vc_volume *v, u64 block);
void vc_bad_remove(struct vc_volume *v, u64 block);
void vc_bad_clear(struct vc_volume *v);
void vc_bad_retry(struct vc_volume *v);

/* throttle.c */
bool vc_throttle_wanted(struct vc_log *log);
void vc_throttle_end(struct vc_volume *v, unsigned long took, bool held);
bool vc_throttle_begin(struct vc_volume *v);
void vc_throttle_learn(struct vc_volume *v, const struct vc_round *r);

/* window.c */
int vc_window_next(struct vc_round *r, struct vc_volume *v, u32 from, u32 most,
		   u32 *n, u32 *dealt);

#endif /* DM_VCACHE_DESTAGE_INTERNAL_H */
