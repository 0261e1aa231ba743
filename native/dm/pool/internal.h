/* SPDX-License-Identifier: GPL-2.0-only */
/* dm-vcache: what the files of this folder share. */
#ifndef DM_VCACHE_POOL_INTERNAL_H
#define DM_VCACHE_POOL_INTERNAL_H

#include "pool.h"

/* fail.c */
void vc_fail_work(struct work_struct *work);

/* quiesce.c */
void vc_volume_close(struct vc_volume *v);

/* resize.c */
int vc_pool_resize(struct vc_pool *p, u64 sectors, const char **error);
int vc_resize_init(void);
void vc_resize_exit(void);

#endif /* DM_VCACHE_POOL_INTERNAL_H */
