/* SPDX-License-Identifier: GPL-2.0-only */
/* dm-vcache: what the files of this folder share. */
#ifndef DM_VCACHE_BUFFER_INTERNAL_H
#define DM_VCACHE_BUFFER_INTERNAL_H

#include "buffer.h"

/* blocks.c */
struct vcache_block *vcache_block_alloc(struct vcache_tag *tag, pgoff_t index);
void vcache_block_free(struct vcache_block *b);

/* stock.c */
struct vcache_block *vcache_stock_get(void);
bool vcache_stock_put(struct vcache_block *b);
int vcache_stock_init(void);
void vcache_stock_exit(void);

#endif /* DM_VCACHE_BUFFER_INTERNAL_H */
