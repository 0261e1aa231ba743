/* SPDX-License-Identifier: GPL-2.0-only */
/* dm-vcache: what the files of this folder share. */
#ifndef DM_VCACHE_TAG_INTERNAL_H
#define DM_VCACHE_TAG_INTERNAL_H

#include "tag.h"

/* extents.c */
void vcache_extents_drop(struct vcache_dev *dev);

#endif /* DM_VCACHE_TAG_INTERNAL_H */
