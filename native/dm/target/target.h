/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * dm-vcache: the target "vcache", and the state of its devices.
 */
#ifndef DM_VCACHE_TARGET_H
#define DM_VCACHE_TARGET_H

#include "../io/io.h"
#include "../pool/pool.h"

/* target.c */
int vcache_target_init(void);
void vcache_target_exit(void);

#endif /* DM_VCACHE_TARGET_H */
