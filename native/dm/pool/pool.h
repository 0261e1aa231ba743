/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * dm-vcache: the target "vcache-pool", and volumes in use.
 */
#ifndef DM_VCACHE_POOL_H
#define DM_VCACHE_POOL_H

#include "../reclaim/reclaim.h"

/* attach.c */
struct vcache_volume *vcache_volume_make(struct vcache_pool *p, u32 id);
int vcache_pool_begin_use(struct vcache_pool *p);
u64 vcache_volume_sectors(struct vcache_pool *p, u32 id);
int vcache_volume_change(struct vcache_volume *v, u32 mode,
			 struct block_device *origin, sector_t sectors);
int vcache_volume_attach(struct vcache_pool *p, u32 id, u32 mode, struct vcache_dev *dev,
			 struct block_device *origin, sector_t sectors,
			 struct vcache_volume **out);
int vcache_volume_detach(struct vcache_volume *v, bool forget);
int vcache_volume_join(struct vcache_volume *v, struct vcache_tag *tag);
void vcache_volume_leave(struct vcache_tag *tag);

/* pool.c */
struct vcache_pool *vcache_pool_find(struct block_device *bdev);
int vcache_pools_walk(int (*fn)(struct vcache_pool *p, void *context), void *context);
int vcache_pool_init(void);
void vcache_pool_exit(void);

/* quiesce.c */
bool vcache_volume_is_busy(struct vcache_volume *v);
bool vcache_volume_stop(struct vcache_volume *v, long patience);
void vcache_volume_drain(struct vcache_volume *v);
bool vcache_volume_quiesce(struct vcache_volume *v, long patience);
void vcache_volume_resume(struct vcache_volume *v);

#endif /* DM_VCACHE_POOL_H */
