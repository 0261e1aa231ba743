/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * dm-vcache: the target "vcache-pool", and volumes in use.
 */
#ifndef DM_VCACHE_POOL_H
#define DM_VCACHE_POOL_H

#include "../reclaim/reclaim.h"

/* attach.c */
u64 vc_volume_sectors(struct vc_pool *p, u32 id);
int vc_volume_change(struct vc_volume *v, u32 mode,
		     struct block_device *origin, sector_t sectors);
int vc_volume_attach(struct vc_pool *p, u32 id, u32 mode, struct vc_dev *dev,
		     struct block_device *origin, sector_t sectors,
		     struct vc_volume **out);
int vc_volume_detach(struct vc_volume *v, bool forget);
int vc_volume_join(struct vc_volume *v, struct vc_tag *tag);
void vc_volume_leave(struct vc_tag *tag);

/* pool.c */
struct vc_pool *vc_pool_find(struct block_device *bdev);
int vc_pool_init(void);
void vc_pool_exit(void);

/* quiesce.c */
bool vc_volume_is_busy(struct vc_volume *v);
bool vc_volume_stop(struct vc_volume *v, long patience);
void vc_volume_drain(struct vc_volume *v);
bool vc_volume_quiesce(struct vc_volume *v, long patience);
void vc_volume_resume(struct vc_volume *v);

#endif /* DM_VCACHE_POOL_H */
