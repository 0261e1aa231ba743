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

/* destage.c */
bool vcache_log_is_rest(struct vcache_log *log);
bool vcache_volume_is_urgent(struct vcache_volume *v);

/* flight.c */
void vcache_flight_init(struct vcache_volume *v);
int vcache_round_copy(struct vcache_round *r, struct vcache_volume *v, struct vcache_log *log);

/* limit.c */
void vcache_destage_limits_init(struct vcache_volume *v);
bool vcache_destage_held(struct vcache_log *log);
u64 vcache_rate_left(struct vcache_log *log);
unsigned long vcache_rate_wait(struct vcache_log *log);
void vcache_rate_count(struct vcache_volume *v, u32 blocks);

/* throttle.c */
bool vcache_throttle_wanted(struct vcache_log *log);
void vcache_throttle_end(struct vcache_log *log, unsigned long took, bool held);
bool vcache_throttle_begin(struct vcache_volume *v);
bool vcache_throttle_serial(const struct vcache_volume *v);
void vcache_throttle_learn(struct vcache_volume *v, const struct vcache_window *w);

/* window.c */
void vcache_window_fill(struct vcache_round *r, struct vcache_window *w,
			struct vcache_volume *v, u32 most);
int vcache_window_write(struct vcache_round *r, struct vcache_window *w,
			struct vcache_volume *v);
int vcache_window_finish(struct vcache_round *r, struct vcache_window *w,
			 struct vcache_volume *v);
int vcache_window_copy(struct vcache_round *r, struct vcache_window *w, struct vcache_volume *v);
int vcache_window_copy_each(struct vcache_round *r, struct vcache_window *w,
			    struct vcache_volume *v);

#endif /* DM_VCACHE_DESTAGE_INTERNAL_H */
