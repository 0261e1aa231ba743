/* SPDX-License-Identifier: GPL-2.0-only */
/* dm-vcache: what the files of netlink handlers share. */
#ifndef DM_VCACHE_NETLINK_H
#define DM_VCACHE_NETLINK_H

#include <net/genetlink.h>

#include "control.h"

/* netlink.c */
extern struct genl_family vcache_family;
struct vc_dev *vc_nl_device(struct nlattr **attrs,
			    struct netlink_ext_ack *extack);
struct vc_dev *vc_nl_lock(struct vc_dev *dev);
void vc_nl_release(struct vc_dev *dev);

/* netlink_cached.c */
bool vc_nl_lanes_fit(struct vc_dev *dev, struct genl_info *info);

/* netlink_fill.c */
int vc_put_number(struct sk_buff *skb, struct vc_dev *dev, int major,
		  int minor);
int vc_fill_device(struct sk_buff *skb, struct vc_dev *dev);
int vc_fill_tag(struct sk_buff *skb, struct vc_tag *tag);
int vc_fill_curve(struct sk_buff *skb, struct nlattr **asked,
		  const struct vc_curve_said *said);

#endif /* DM_VCACHE_NETLINK_H */
