/* SPDX-License-Identifier: GPL-2.0-only */
/* dm-vcache: what the files of this folder share. */
#ifndef DM_VCACHE_DESTAGE_INTERNAL_H
#define DM_VCACHE_DESTAGE_INTERNAL_H

#include "destage.h"

/* bad.c */
void vcache_bad_init(struct vcache_volume *v);
int vcache_bad_add(struct vcache_volume *v, u64 block, int error);
bool vcache_bad_has(struct vcache_volume *v, u64 block);
void vcache_bad_remove(struct vcache_volume *v, u64 block);
void vcache_bad_clear(struct vcache_volume *v);
void vcache_bad_retry(struct vcache_volume *v);

/* throttle.c */
bool vcache_throttle_wanted(struct vcache_log *log);
void vcache_throttle_end(struct vcache_log *log, unsigned long took, bool held);
bool vcache_throttle_begin(struct vcache_volume *v);
void vcache_throttle_learn(struct vcache_volume *v, const struct vcache_round *r);

/* window.c */
int vcache_window_next(struct vcache_round *r, struct vcache_volume *v, u32 from, u32 most,
		       u32 *n, u32 *dealt);

#endif /* DM_VCACHE_DESTAGE_INTERNAL_H */
