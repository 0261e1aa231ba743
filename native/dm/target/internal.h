/* SPDX-License-Identifier: GPL-2.0-only */
/* dm-vcache: what the files of this folder share. */
#ifndef DM_VCACHE_TARGET_INTERNAL_H
#define DM_VCACHE_TARGET_INTERNAL_H

#include "target.h"

/* device.c */
struct vc_dev *vc_dev_make(struct mapped_device *md);
void vc_dev_put(struct vc_dev *dev, struct vc_target *vt);
bool vc_dev_keeps_volume(struct vc_dev *dev, struct vc_target *vt);
int vc_dev_activate(struct vc_dev *dev, struct vc_target *vt);
void vc_dev_presuspend(struct vc_dev *dev, bool noflush);
void vc_dev_postsuspend(struct vc_dev *dev);
void vc_dev_resume(struct vc_dev *dev);

#endif /* DM_VCACHE_TARGET_INTERNAL_H */
