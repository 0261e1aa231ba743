/* SPDX-License-Identifier: GPL-2.0-only */
/* dm-vcache: what the files of this folder share. */
#ifndef DM_VCACHE_POOL_INTERNAL_H
#define DM_VCACHE_POOL_INTERNAL_H

#include "pool.h"

/* fail.c */
void vcache_fail_work(struct work_struct *work);

/* label.c */
int vcache_volume_label(struct vcache_pool *p, u32 id, const char *text,
			const char **error);
void vcache_pool_labels(struct vcache_pool *p, char *result, unsigned int maxlen);

/* quiesce.c */
void vcache_volume_close(struct vcache_volume *v);

/* resize.c */
int vcache_pool_resize(struct vcache_pool *p, u64 sectors, const char **error);
int vcache_resize_init(void);
void vcache_resize_exit(void);

#endif /* DM_VCACHE_POOL_INTERNAL_H */
