/* SPDX-License-Identifier: GPL-2.0-only */
/* Do not edit, generated from native/netlink/vcache.yaml by generate.py. */
#ifndef _VCACHE_NL_GEN_H
#define _VCACHE_NL_GEN_H

#include <net/genetlink.h>

#include "../../netlink/vcache_uapi.h"

/* Index into vcache_nl_mcgrps[], for genlmsg_multicast(). */
enum {
	VCACHE_NLGRP_EVENTS,
};

#define VCACHE_NL_OPS_COUNT	14
#define VCACHE_NL_MCGRPS_COUNT	1

extern const struct genl_ops vcache_nl_ops[VCACHE_NL_OPS_COUNT];
extern const struct genl_multicast_group
	vcache_nl_mcgrps[VCACHE_NL_MCGRPS_COUNT];

/* Written by hand in netlink.c. */
int vcache_nl_start(struct netlink_callback *cb);
int vcache_nl_device_get_dumpit(struct sk_buff *skb,
				struct netlink_callback *cb);
int vcache_nl_tag_get_doit(struct sk_buff *skb, struct genl_info *info);
int vcache_nl_tag_get_dumpit(struct sk_buff *skb, struct netlink_callback *cb);
int vcache_nl_tag_set_doit(struct sk_buff *skb, struct genl_info *info);
int vcache_nl_tag_del_doit(struct sk_buff *skb, struct genl_info *info);
int vcache_nl_tag_extents_doit(struct sk_buff *skb, struct genl_info *info);
int vcache_nl_device_set_doit(struct sk_buff *skb, struct genl_info *info);
int vcache_nl_curve_get_doit(struct sk_buff *skb, struct genl_info *info);
int vcache_nl_curve_get_dumpit(struct sk_buff *skb,
			       struct netlink_callback *cb);
int vcache_nl_cache_map_get_dumpit(struct sk_buff *skb,
				   struct netlink_callback *cb);
int vcache_nl_cache_prefetch_doit(struct sk_buff *skb, struct genl_info *info);
int vcache_nl_cache_drop_doit(struct sk_buff *skb, struct genl_info *info);
int vcache_nl_tag_extents_change_doit(struct sk_buff *skb,
				      struct genl_info *info);
int vcache_nl_cache_saved_doit(struct sk_buff *skb, struct genl_info *info);
int vcache_nl_cache_fill_doit(struct sk_buff *skb, struct genl_info *info);
int vcache_nl_lane_get_dumpit(struct sk_buff *skb, struct netlink_callback *cb);

#endif /* _VCACHE_NL_GEN_H */
