// SPDX-License-Identifier: GPL-2.0-only
/* Do not edit, generated from native/netlink/vcache.yaml by generate.py. */
#include "../base/compat.h"
#include "nl_gen.h"

static struct netlink_range_validation vcache_nl_tag_id_range = {
	.max = VCACHE_TAG_MAX,
};

static struct netlink_range_validation vcache_nl_curve_id_range = {
	.max = VCACHE_TAG_MAX,
};

static struct netlink_range_validation vcache_nl_cached_id_range = {
	.max = VCACHE_TAG_MAX,
};

/* VCACHE_CMD_DEVICE_GET */
static const struct nla_policy
vcache_nl_device_get_policy[VCACHE_A_DEVICE_MAJOR + 1] = {
	[VCACHE_A_DEVICE_MAJOR] = { .type = NLA_REJECT, },
};

/* VCACHE_CMD_TAG_GET */
static const struct nla_policy
vcache_nl_tag_get_policy[VCACHE_A_TAG_ID + 1] = {
	[VCACHE_A_TAG_MAJOR] = { .type = NLA_U32, },
	[VCACHE_A_TAG_MINOR] = { .type = NLA_U32, },
	[VCACHE_A_TAG_ID] = NLA_POLICY_FULL_RANGE(NLA_U32, &vcache_nl_tag_id_range),
};

/* VCACHE_CMD_TAG_SET */
static const struct nla_policy
vcache_nl_tag_set_policy[VCACHE_A_TAG_CACHE_LANES + 1] = {
	[VCACHE_A_TAG_MAJOR] = { .type = NLA_U32, },
	[VCACHE_A_TAG_MINOR] = { .type = NLA_U32, },
	[VCACHE_A_TAG_ID] = NLA_POLICY_FULL_RANGE(NLA_U32, &vcache_nl_tag_id_range),
	[VCACHE_A_TAG_NAME] = { .type = NLA_NUL_STRING, .len = VCACHE_NAME_MAX, },
	[VCACHE_A_TAG_WEIGHT] = NLA_POLICY_RANGE(NLA_U32, 1, VCACHE_WEIGHT_MAX),
	[VCACHE_A_TAG_CGROUP] = { .type = NLA_U64, },
	[VCACHE_A_TAG_MODE] = NLA_POLICY_MAX(NLA_U32, VCACHE_MODE_NONE),
	[VCACHE_A_TAG_CACHE_MIN_BYTES] = { .type = NLA_U64, },
	[VCACHE_A_TAG_CACHE_MAX_BYTES] = { .type = NLA_U64, },
	[VCACHE_A_TAG_CACHE_LANES] = { .type = NLA_U64, },
};

/* VCACHE_CMD_TAG_DEL */
static const struct nla_policy
vcache_nl_tag_del_policy[VCACHE_A_TAG_ID + 1] = {
	[VCACHE_A_TAG_MAJOR] = { .type = NLA_U32, },
	[VCACHE_A_TAG_MINOR] = { .type = NLA_U32, },
	[VCACHE_A_TAG_ID] = NLA_POLICY_FULL_RANGE(NLA_U32, &vcache_nl_tag_id_range),
};

/* VCACHE_CMD_TAG_EXTENTS */
static const struct nla_policy
vcache_nl_tag_extents_policy[VCACHE_A_TAG_EXTENTS_COMMIT + 1] = {
	[VCACHE_A_TAG_MAJOR] = { .type = NLA_U32, },
	[VCACHE_A_TAG_MINOR] = { .type = NLA_U32, },
	[VCACHE_A_TAG_ID] = NLA_POLICY_FULL_RANGE(NLA_U32, &vcache_nl_tag_id_range),
	[VCACHE_A_TAG_EXTENTS] = { .type = NLA_BINARY, },
	[VCACHE_A_TAG_EXTENTS_BEGIN] = { .type = NLA_FLAG, },
	[VCACHE_A_TAG_EXTENTS_COMMIT] = { .type = NLA_FLAG, },
};

/* VCACHE_CMD_DEVICE_SET */
static const struct nla_policy
vcache_nl_device_set_policy[VCACHE_A_DEVICE_ORIGIN_INSTANCE + 1] = {
	[VCACHE_A_DEVICE_MAJOR] = { .type = NLA_U32, },
	[VCACHE_A_DEVICE_MINOR] = { .type = NLA_U32, },
	[VCACHE_A_DEVICE_ORIGIN_NSID] = { .type = NLA_U32, },
	[VCACHE_A_DEVICE_ORIGIN_TAG_MAX] = { .type = NLA_U32, },
	[VCACHE_A_DEVICE_ORIGIN_INSTANCE] = { .type = NLA_U32, },
};

/* VCACHE_CMD_CURVE_GET */
static const struct nla_policy
vcache_nl_curve_get_policy[VCACHE_A_CURVE_ID + 1] = {
	[VCACHE_A_CURVE_MAJOR] = { .type = NLA_U32, },
	[VCACHE_A_CURVE_MINOR] = { .type = NLA_U32, },
	[VCACHE_A_CURVE_ID] = NLA_POLICY_FULL_RANGE(NLA_U32, &vcache_nl_curve_id_range),
};

/* VCACHE_CMD_CACHE_MAP_GET */
static const struct nla_policy
vcache_nl_cache_map_get_policy[VCACHE_A_CACHED_ID + 1] = {
	[VCACHE_A_CACHED_MAJOR] = { .type = NLA_U32, },
	[VCACHE_A_CACHED_MINOR] = { .type = NLA_U32, },
	[VCACHE_A_CACHED_ID] = NLA_POLICY_FULL_RANGE(NLA_U32, &vcache_nl_cached_id_range),
};

/* VCACHE_CMD_CACHE_PREFETCH */
static const struct nla_policy
vcache_nl_cache_prefetch_policy[VCACHE_A_CACHED_RUNS + 1] = {
	[VCACHE_A_CACHED_MAJOR] = { .type = NLA_U32, },
	[VCACHE_A_CACHED_MINOR] = { .type = NLA_U32, },
	[VCACHE_A_CACHED_ID] = NLA_POLICY_FULL_RANGE(NLA_U32, &vcache_nl_cached_id_range),
	[VCACHE_A_CACHED_RUNS] = { .type = NLA_BINARY, },
};

/* VCACHE_CMD_CACHE_DROP */
static const struct nla_policy
vcache_nl_cache_drop_policy[VCACHE_A_CACHED_ID + 1] = {
	[VCACHE_A_CACHED_MAJOR] = { .type = NLA_U32, },
	[VCACHE_A_CACHED_MINOR] = { .type = NLA_U32, },
	[VCACHE_A_CACHED_ID] = NLA_POLICY_FULL_RANGE(NLA_U32, &vcache_nl_cached_id_range),
};

/* VCACHE_CMD_TAG_EXTENTS_CHANGE */
static const struct nla_policy
vcache_nl_tag_extents_change_policy[VCACHE_A_TAG_EXTENTS_REMOVE + 1] = {
	[VCACHE_A_TAG_MAJOR] = { .type = NLA_U32, },
	[VCACHE_A_TAG_MINOR] = { .type = NLA_U32, },
	[VCACHE_A_TAG_ID] = NLA_POLICY_FULL_RANGE(NLA_U32, &vcache_nl_tag_id_range),
	[VCACHE_A_TAG_EXTENTS] = { .type = NLA_BINARY, },
	[VCACHE_A_TAG_EXTENTS_BEGIN] = { .type = NLA_FLAG, },
	[VCACHE_A_TAG_EXTENTS_COMMIT] = { .type = NLA_FLAG, },
	[VCACHE_A_TAG_EXTENTS_REMOVE] = { .type = NLA_BINARY, },
};

/* VCACHE_CMD_CACHE_SAVED */
static const struct nla_policy
vcache_nl_cache_saved_policy[VCACHE_A_CACHED_SAVED_BEGIN + 1] = {
	[VCACHE_A_CACHED_MAJOR] = { .type = NLA_U32, },
	[VCACHE_A_CACHED_MINOR] = { .type = NLA_U32, },
	[VCACHE_A_CACHED_ID] = NLA_POLICY_FULL_RANGE(NLA_U32, &vcache_nl_cached_id_range),
	[VCACHE_A_CACHED_RUNS] = { .type = NLA_BINARY, },
	[VCACHE_A_CACHED_SAVED_BEGIN] = { .type = NLA_FLAG, },
};

/* VCACHE_CMD_CACHE_FILL */
static const struct nla_policy
vcache_nl_cache_fill_policy[VCACHE_A_CACHED_DATA + 1] = {
	[VCACHE_A_CACHED_MAJOR] = { .type = NLA_U32, },
	[VCACHE_A_CACHED_MINOR] = { .type = NLA_U32, },
	[VCACHE_A_CACHED_ID] = NLA_POLICY_FULL_RANGE(NLA_U32, &vcache_nl_cached_id_range),
	[VCACHE_A_CACHED_TOKEN] = { .type = NLA_U64, },
	[VCACHE_A_CACHED_START] = { .type = NLA_U64, },
	[VCACHE_A_CACHED_HEAT] = NLA_POLICY_MAX(NLA_U32, VCACHE_HEAT_MAX),
	[VCACHE_A_CACHED_DATA] = { .type = NLA_BINARY, },
};

/* VCACHE_CMD_LANE_GET */
static const struct nla_policy
vcache_nl_lane_get_policy[VCACHE_A_LANE_MAJOR + 1] = {
	[VCACHE_A_LANE_MAJOR] = { .type = NLA_REJECT, },
};

const struct genl_ops vcache_nl_ops[VCACHE_NL_OPS_COUNT] = {
	{
		.cmd = VCACHE_CMD_DEVICE_GET,
		.dumpit = vcache_nl_device_get_dumpit,
		.start = vcache_nl_start,
		.policy = vcache_nl_device_get_policy,
		.maxattr = VCACHE_A_DEVICE_MAJOR,
	},
	{
		.cmd = VCACHE_CMD_TAG_GET,
		.doit = vcache_nl_tag_get_doit,
		.dumpit = vcache_nl_tag_get_dumpit,
		.start = vcache_nl_start,
		.policy = vcache_nl_tag_get_policy,
		.maxattr = VCACHE_A_TAG_ID,
	},
	{
		.cmd = VCACHE_CMD_TAG_SET,
		.doit = vcache_nl_tag_set_doit,
		.policy = vcache_nl_tag_set_policy,
		.maxattr = VCACHE_A_TAG_CACHE_LANES,
	},
	{
		.cmd = VCACHE_CMD_TAG_DEL,
		.doit = vcache_nl_tag_del_doit,
		.policy = vcache_nl_tag_del_policy,
		.maxattr = VCACHE_A_TAG_ID,
	},
	{
		.cmd = VCACHE_CMD_TAG_EXTENTS,
		.doit = vcache_nl_tag_extents_doit,
		.policy = vcache_nl_tag_extents_policy,
		.maxattr = VCACHE_A_TAG_EXTENTS_COMMIT,
	},
	{
		.cmd = VCACHE_CMD_DEVICE_SET,
		.doit = vcache_nl_device_set_doit,
		.policy = vcache_nl_device_set_policy,
		.maxattr = VCACHE_A_DEVICE_ORIGIN_INSTANCE,
	},
	{
		.cmd = VCACHE_CMD_CURVE_GET,
		.doit = vcache_nl_curve_get_doit,
		.dumpit = vcache_nl_curve_get_dumpit,
		.start = vcache_nl_start,
		.policy = vcache_nl_curve_get_policy,
		.maxattr = VCACHE_A_CURVE_ID,
	},
	{
		.cmd = VCACHE_CMD_CACHE_MAP_GET,
		.dumpit = vcache_nl_cache_map_get_dumpit,
		.start = vcache_nl_start,
		.policy = vcache_nl_cache_map_get_policy,
		.maxattr = VCACHE_A_CACHED_ID,
	},
	{
		.cmd = VCACHE_CMD_CACHE_PREFETCH,
		.doit = vcache_nl_cache_prefetch_doit,
		.policy = vcache_nl_cache_prefetch_policy,
		.maxattr = VCACHE_A_CACHED_RUNS,
	},
	{
		.cmd = VCACHE_CMD_CACHE_DROP,
		.doit = vcache_nl_cache_drop_doit,
		.policy = vcache_nl_cache_drop_policy,
		.maxattr = VCACHE_A_CACHED_ID,
	},
	{
		.cmd = VCACHE_CMD_TAG_EXTENTS_CHANGE,
		.doit = vcache_nl_tag_extents_change_doit,
		.policy = vcache_nl_tag_extents_change_policy,
		.maxattr = VCACHE_A_TAG_EXTENTS_REMOVE,
	},
	{
		.cmd = VCACHE_CMD_CACHE_SAVED,
		.doit = vcache_nl_cache_saved_doit,
		.policy = vcache_nl_cache_saved_policy,
		.maxattr = VCACHE_A_CACHED_SAVED_BEGIN,
	},
	{
		.cmd = VCACHE_CMD_CACHE_FILL,
		.doit = vcache_nl_cache_fill_doit,
		.policy = vcache_nl_cache_fill_policy,
		.maxattr = VCACHE_A_CACHED_DATA,
	},
	{
		.cmd = VCACHE_CMD_LANE_GET,
		.dumpit = vcache_nl_lane_get_dumpit,
		.start = vcache_nl_start,
		.policy = vcache_nl_lane_get_policy,
		.maxattr = VCACHE_A_LANE_MAJOR,
	},
};

const struct genl_multicast_group
vcache_nl_mcgrps[VCACHE_NL_MCGRPS_COUNT] = {
	[VCACHE_NLGRP_EVENTS] = {
		.name = VCACHE_MCGRP_EVENTS,
		.flags = GENL_MCAST_CAP_SYS_ADMIN,
	},
};
