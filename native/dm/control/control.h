/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * dm-vcache: the netlink family.
 */
#ifndef DM_VCACHE_CONTROL_H
#define DM_VCACHE_CONTROL_H

#include "../target/target.h"

/* netlink.c */
void vc_netlink_event(struct vc_dev *dev, u32 tag, enum vcache_event_kind kind);
int vc_netlink_init(void);
void vc_netlink_exit(void);

#endif /* DM_VCACHE_CONTROL_H */
