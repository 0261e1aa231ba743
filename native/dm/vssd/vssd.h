/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * dm-vcache: the target "vcache-vssd".
 */
#ifndef DM_VCACHE_VSSD_H
#define DM_VCACHE_VSSD_H

#include "../pool/pool.h"

/* target.c */
int vcache_vssd_init(void);
void vcache_vssd_exit(void);

#endif /* DM_VCACHE_VSSD_H */
