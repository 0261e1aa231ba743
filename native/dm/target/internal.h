/* SPDX-License-Identifier: GPL-2.0-only */
/* dm-vcache: what the files of this folder share. */
#ifndef DM_VCACHE_TARGET_INTERNAL_H
#define DM_VCACHE_TARGET_INTERNAL_H

#include "target.h"

/* options.c */
int vcache_options_parse(struct vcache_target *vt, struct dm_arg_set *as);
unsigned int vcache_options_show(struct vcache_target *vt, char *result, unsigned int maxlen,
				 unsigned int sz);
int vcache_target_message(struct dm_target *ti, unsigned int argc, char **argv, char *result,
			  unsigned int maxlen);

/* device.c */
struct vcache_dev *vcache_dev_make(struct mapped_device *md);
void vcache_dev_put(struct vcache_dev *dev, struct vcache_target *vt);
bool vcache_dev_keeps_volume(struct vcache_dev *dev, struct vcache_target *vt);
int vcache_dev_activate(struct vcache_dev *dev, struct vcache_target *vt);
void vcache_dev_presuspend(struct vcache_dev *dev, bool noflush);
void vcache_dev_postsuspend(struct vcache_dev *dev);
void vcache_dev_resume(struct vcache_dev *dev);

#endif /* DM_VCACHE_TARGET_INTERNAL_H */
