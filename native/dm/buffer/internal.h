/* SPDX-License-Identifier: GPL-2.0-only */
/* dm-vcache: what the files of this folder share. */
#ifndef DM_VCACHE_BUFFER_INTERNAL_H
#define DM_VCACHE_BUFFER_INTERNAL_H

#include "buffer.h"

/* blocks.c */
struct vcache_block *vcache_block_alloc(struct vcache_tag *tag, pgoff_t index);

#endif /* DM_VCACHE_BUFFER_INTERNAL_H */
