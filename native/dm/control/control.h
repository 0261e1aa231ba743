/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * dm-vcache: the netlink family.
 */
#ifndef DM_VCACHE_CONTROL_H
#define DM_VCACHE_CONTROL_H

#include "../target/target.h"

/* netlink.c */
void vcache_netlink_event(struct vcache_dev *dev, u32 tag, enum vcache_event_kind kind);
int vcache_netlink_init(void);
void vcache_netlink_exit(void);

#endif /* DM_VCACHE_CONTROL_H */
