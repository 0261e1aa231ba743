/* SPDX-License-Identifier: GPL-2.0-only */
/* dm-vcache: what the files of netlink handlers share. */
#ifndef DM_VCACHE_NETLINK_H
#define DM_VCACHE_NETLINK_H

#include <net/genetlink.h>

#include "control.h"

/* netlink.c */
extern struct genl_family vcache_family;
struct vcache_dev *vcache_nl_device(struct nlattr **attrs,
				    struct netlink_ext_ack *extack);
struct vcache_dev *vcache_nl_lock(struct vcache_dev *dev);
void vcache_nl_release(struct vcache_dev *dev);
struct vcache_tag *vcache_nl_tag(struct genl_info *info);

/* netlink_cached.c */
bool vcache_nl_lanes_fit(struct vcache_dev *dev, struct genl_info *info);

/* netlink_fill.c */
int vcache_put_number(struct sk_buff *skb, struct vcache_dev *dev, int major,
		      int minor);
int vcache_fill_device(struct sk_buff *skb, struct vcache_dev *dev);
int vcache_fill_extents(struct sk_buff *skb, struct vcache_tag *tag);
int vcache_fill_tag(struct sk_buff *skb, struct vcache_tag *tag);
int vcache_fill_curve(struct sk_buff *skb, struct vcache_tag *tag,
		      const struct vcache_curve_said *said);
int vcache_fill_lane(struct sk_buff *skb, struct vcache_pool *p, u32 lane);

/* netlink_stats.c */
int vcache_fill_stats(struct sk_buff *skb, struct vcache_tag *tag);

#endif /* DM_VCACHE_NETLINK_H */
