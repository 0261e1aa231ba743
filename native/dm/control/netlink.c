// SPDX-License-Identifier: GPL-2.0-only
/*
 * dm-vcache: handlers of the generic-netlink family "vcache".
 *
 * native/netlink/vcache.yaml describes the family; policies and command tables are
 * generated from it. Every handler counts as a user of the device that it works on, and
 * holds its lock. The handlers run in parallel: while one waits for a device, others of this
 * family, and of all others, go on.
 *
 * All commands need CAP_SYS_ADMIN, as the ioctls of dm do: reading them out takes locks that
 * discards need, and tells the names of tenants.
 */
#include <linux/dm-ioctl.h>
#include <linux/sizes.h>
#include <linux/slab.h>

#include "../base/compat.h"
#include "nl_gen.h"
#include "netlink.h"

/* Space for what a message has of a tag: three histograms of a KiB, and the rest. */
#define VC_NL_TAG_BYTES		(6 * SZ_1K)

/* Space for one message of a dump: a curve has 16 KiB. */
#define VC_NL_DUMP_BYTES	(20 * SZ_1K)

/* May the sender of a request use the family? */
static int vc_nl_permit(struct sk_buff *request,
			struct netlink_ext_ack *extack)
{
	if (netlink_capable(request, CAP_SYS_ADMIN))
		return 0;
	NL_SET_ERR_MSG(extack, "CAP_SYS_ADMIN is required");
	return -EPERM;
}

static int vc_nl_pre_doit(const struct vc_genl_op *op, struct sk_buff *skb,
			  struct genl_info *info)
{
	return vc_nl_permit(skb, info->extack);
}

int vcache_nl_start(struct netlink_callback *cb)
{
	/* Else the first message of a dump might be too small for one tag, or for one curve. */
	cb->min_dump_alloc = VC_NL_DUMP_BYTES;
	return vc_nl_permit(cb->skb, cb->extack);
}

struct genl_family vcache_family = {
	.name = VCACHE_FAMILY_NAME,
	.version = VCACHE_FAMILY_VERSION,
	.maxattr = VCACHE_A_TAG_MAX,
	.module = THIS_MODULE,
	.ops = vcache_nl_ops,
	.n_ops = VCACHE_NL_OPS_COUNT,
	.mcgrps = vcache_nl_mcgrps,
	.n_mcgrps = VCACHE_NL_MCGRPS_COUNT,
	.resv_start_op = VCACHE_CMD_DEVICE_GET,
	.pre_doit = vc_nl_pre_doit,
	.parallel_ops = true,
};

/* A request names its device in the same way in both attribute sets. */
static_assert((int)VCACHE_A_DEVICE_MAJOR == (int)VCACHE_A_TAG_MAJOR);
static_assert((int)VCACHE_A_DEVICE_MINOR == (int)VCACHE_A_TAG_MINOR);
static_assert((int)VCACHE_A_CURVE_MAJOR == (int)VCACHE_A_TAG_MAJOR);
static_assert((int)VCACHE_A_CURVE_MINOR == (int)VCACHE_A_TAG_MINOR);
static_assert((int)VCACHE_A_CURVE_ID == (int)VCACHE_A_TAG_ID);

static_assert((int)VCACHE_A_CACHED_MAJOR == (int)VCACHE_A_TAG_MAJOR);
static_assert((int)VCACHE_A_CACHED_MINOR == (int)VCACHE_A_TAG_MINOR);

/**
 * vcache_nl_lock - lock a device
 * @dev: the device, kept by vcache_dev_use_number() or vcache_dev_use_after(); or NULL
 *
 * A device whose first table is being replayed has no active table, and is not waited for.
 *
 * Return: the device, for vcache_nl_release(); or NULL if it has no active table.
 */
struct vcache_dev *vcache_nl_lock(struct vcache_dev *dev)
{
	if (!dev)
		return NULL;
	if (READ_ONCE(dev->target)) {
		vcache_dev_lock(dev);
		if (dev->target)
			return dev;
		vcache_dev_unlock(dev);
	}
	vcache_dev_unuse(dev);
	return NULL;
}

/**
 * vcache_nl_device - find and lock the device that a request names
 * @attrs: attributes of the request
 * @extack: gets the reason of an error
 *
 * Return: the device, for vcache_nl_release(); or an ERR_PTR().
 */
struct vcache_dev *vcache_nl_device(struct nlattr **attrs,
				    struct netlink_ext_ack *extack)
{
	struct vcache_dev *dev;
	dev_t number;

	if (!attrs[VCACHE_A_TAG_MAJOR] || !attrs[VCACHE_A_TAG_MINOR]) {
		NL_SET_ERR_MSG(extack, "major and minor of the device are required");
		return ERR_PTR(-EINVAL);
	}
	number = MKDEV(nla_get_u32(attrs[VCACHE_A_TAG_MAJOR]),
		       nla_get_u32(attrs[VCACHE_A_TAG_MINOR]));
	dev = vcache_nl_lock(vcache_dev_use_number(number));
	if (dev)
		return dev;
	NL_SET_ERR_MSG(extack, "no active vcache device has this major:minor");
	return ERR_PTR(-ENODEV);
}

/**
 * vcache_nl_release - unlock the device that vcache_nl_device() has locked
 * @dev: the device
 */
void vcache_nl_release(struct vcache_dev *dev)
{
	vcache_dev_unlock(dev);
	vcache_dev_unuse(dev);
}

/**
 * vcache_nl_tag - find the tag that a request names, and lock its device
 * @info: the request
 *
 * Return: the tag, for vcache_nl_release() of its device; or an ERR_PTR().
 */
struct vcache_tag *vcache_nl_tag(struct genl_info *info)
{
	struct vcache_dev *dev = vcache_nl_device(info->attrs, info->extack);
	struct nlattr *id = info->attrs[VCACHE_A_TAG_ID];
	struct vcache_tag *tag;

	if (IS_ERR(dev))
		return ERR_CAST(dev);
	tag = id ? vcache_tag_find(dev, nla_get_u32(id)) : NULL;
	if (tag)
		return tag;
	vcache_nl_release(dev);
	if (!id) {
		NL_SET_ERR_MSG(info->extack, "id of the tag is required");
		return ERR_PTR(-EINVAL);
	}
	NL_SET_ERR_MSG_ATTR(info->extack, id,
			    "the device has no tag with this id");
	return ERR_PTR(-ENOENT);
}

int vcache_nl_tag_get_doit(struct sk_buff *skb, struct genl_info *info)
{
	struct sk_buff *reply = genlmsg_new(VC_NL_TAG_BYTES, GFP_KERNEL);
	struct vcache_tag *tag;
	void *msg;
	int r;

	if (!reply)
		return -ENOMEM;
	tag = vcache_nl_tag(info);
	if (IS_ERR(tag)) {
		nlmsg_free(reply);
		return PTR_ERR(tag);
	}
	msg = genlmsg_put_reply(reply, info, &vcache_family, 0,
				VCACHE_CMD_TAG_GET);
	r = msg ? vcache_fill_tag(reply, tag) : -EMSGSIZE;
	vcache_nl_release(tag->dev);
	if (r) {
		nlmsg_free(reply);
		return r;
	}
	genlmsg_end(reply, msg);
	return genlmsg_reply(reply, info);
}

/* Compute the curve of a tag, and put it into a message. Return: 0 or a negative errno. */
static int vc_nl_put_curve(struct sk_buff *skb, struct genl_info *info,
			   struct vcache_curve_said *said)
{
	struct vcache_tag *tag = vcache_nl_tag(info);
	int r;

	if (IS_ERR(tag))
		return PTR_ERR(tag);
	r = vcache_curve_read(tag, said);
	if (r)
		NL_SET_ERR_MSG(info->extack,
			       "the tag has no cache, or there was no memory for its sample");
	else
		r = vcache_fill_curve(skb, tag, said);
	vcache_nl_release(tag->dev);
	return r;
}

int vcache_nl_curve_get_doit(struct sk_buff *skb, struct genl_info *info)
{
	struct vcache_curve_said *said = kvzalloc(sizeof(*said), GFP_KERNEL);
	struct sk_buff *reply = genlmsg_new(sizeof(*said) + NLMSG_GOODSIZE,
					    GFP_KERNEL);
	void *msg = NULL;
	int r = -ENOMEM;

	if (said && reply) {
		msg = genlmsg_put_reply(reply, info, &vcache_family, 0,
					VCACHE_CMD_CURVE_GET);
		r = msg ? vc_nl_put_curve(reply, info, said) : -EMSGSIZE;
	}
	kvfree(said);
	if (r) {
		nlmsg_free(reply);
		return r;
	}
	genlmsg_end(reply, msg);
	return genlmsg_reply(reply, info);
}

/* Parse cgroup ids. Return: how many, or -EINVAL if they are too many or no ids. */
static int vc_nl_cgroups(struct genl_info *info, u64 *ids)
{
	struct nlattr *attr;
	bool zero = false;
	int rem, n = 0;

	nlmsg_for_each_attr(attr, info->nlhdr, GENL_HDRLEN, rem) {
		if (nla_type(attr) != VCACHE_A_TAG_CGROUP)
			continue;
		if (n == VCACHE_CGROUPS_MAX) {
			NL_SET_ERR_MSG_ATTR(info->extack, attr,
					    "a tag can have at most 16 cgroups");
			return -EINVAL;
		}
		ids[n] = nla_get_u64(attr);
		zero |= !ids[n++];
	}
	if (zero && n == 1)
		return 0;
	if (zero) {
		NL_SET_ERR_MSG(info->extack, "cgroup 0 empties the list and must be the only one");
		return -EINVAL;
	}
	return n;
}

/* Find the tag to be set, or make it. */
static struct vcache_tag *vc_nl_make_tag(struct vcache_dev *dev,
					 struct genl_info *info)
{
	struct vcache_tag *tag;

	if (!info->attrs[VCACHE_A_TAG_ID]) {
		NL_SET_ERR_MSG(info->extack, "id of the tag is required");
		return ERR_PTR(-EINVAL);
	}
	tag = vcache_tag_find(dev, nla_get_u32(info->attrs[VCACHE_A_TAG_ID]));
	if (tag)
		return tag;
	if (dev->target->scope == VCACHE_SCOPE_VOLUME) {
		NL_SET_ERR_MSG_ATTR(info->extack, info->attrs[VCACHE_A_TAG_ID],
				    "in volume scope only the tag of the table exists");
		return ERR_PTR(-EINVAL);
	}
	tag = vcache_tag_make(dev, nla_get_u32(info->attrs[VCACHE_A_TAG_ID]));
	return tag ?: ERR_PTR(-ENOMEM);
}

/* Can a tag of this device have the mode that is asked for? */
static bool vc_nl_mode_fits(struct vcache_dev *dev, struct genl_info *info)
{
	struct nlattr *attr = info->attrs[VCACHE_A_TAG_MODE];
	u32 mode = nla_get_u32(attr);

	if (mode >= VCACHE_MODE_NONE) {
		NL_SET_ERR_MSG_ATTR(info->extack, attr,
				    "mode must be flush-only, writeback or writethrough");
		return false;
	}
	if (dev->target->mode == VCACHE_MODE_WRITEBACK ||
	    mode == dev->target->mode)
		return true;
	NL_SET_ERR_MSG_ATTR(info->extack, attr,
			    "tags can have other modes only on a writeback device");
	return false;
}

/* Minimum and maximum of a tag in the cache, in bytes; @most 0: no maximum. */
struct vc_nl_cache {
	u64 least;
	u64 most;
};

/*
 * Check and compute what a tag, or a new one, is to have of the cache. Return: false if
 * that is not possible; the message says which attribute is wrong.
 */
static bool vc_nl_cache_fits(struct vcache_dev *dev, struct genl_info *info,
			     struct vc_nl_cache *cache)
{
	struct nlattr *id = info->attrs[VCACHE_A_TAG_ID];
	struct nlattr *least = info->attrs[VCACHE_A_TAG_CACHE_MIN_BYTES];
	struct nlattr *most = info->attrs[VCACHE_A_TAG_CACHE_MAX_BYTES];
	struct vcache_tag *tag = id ? vcache_tag_find(dev, nla_get_u32(id)) : NULL;

	cache->least = least ? nla_get_u64(least) : tag ? tag->least : 0;
	cache->most = most ? nla_get_u64(most) : tag ? tag->most : 0;
	if (!cache->most || cache->least <= cache->most)
		return true;
	NL_SET_ERR_MSG_ATTR(info->extack, least ?: most,
			    "cache-min-bytes is more than cache-max-bytes");
	return false;
}

static int vc_nl_set_tag(struct vcache_dev *dev, struct genl_info *info)
{
	struct nlattr **attrs = info->attrs;
	u64 ids[VCACHE_CGROUPS_MAX];
	struct vc_nl_cache cache;
	struct vcache_tag *tag;
	int n = 0, r = 0;

	if (attrs[VCACHE_A_TAG_CGROUP]) {
		n = vc_nl_cgroups(info, ids);
		if (n < 0)
			return n;
	}
	if (attrs[VCACHE_A_TAG_MODE] && !vc_nl_mode_fits(dev, info))
		return -EINVAL;
	if (!vc_nl_cache_fits(dev, info, &cache) || !vcache_nl_lanes_fit(dev, info))
		return -EINVAL;
	tag = vc_nl_make_tag(dev, info);
	if (IS_ERR(tag))
		return PTR_ERR(tag);
	if (attrs[VCACHE_A_TAG_CGROUP] && tag == dev->host) {
		NL_SET_ERR_MSG_ATTR(info->extack, attrs[VCACHE_A_TAG_CGROUP],
				    "tag 0 is the host tag and has no cgroups");
		return -EINVAL;
	}
	if (attrs[VCACHE_A_TAG_CGROUP])
		r = vcache_tag_set_cgroups(tag, ids, n);
	if (!r && attrs[VCACHE_A_TAG_CACHE_LANES])
		r = vcache_tag_set_lanes(tag,
					 nla_get_u64(attrs[VCACHE_A_TAG_CACHE_LANES]));
	if (r)
		return r;
	WRITE_ONCE(tag->least, cache.least);
	WRITE_ONCE(tag->most, cache.most);
	if (attrs[VCACHE_A_TAG_MODE]) {
		vcache_tag_set_mode(tag, nla_get_u32(attrs[VCACHE_A_TAG_MODE]));
		if (dev->vol)
			vcache_destage_now(dev->vol);
	}
	if (attrs[VCACHE_A_TAG_NAME])
		nla_strscpy(tag->name, attrs[VCACHE_A_TAG_NAME],
			    sizeof(tag->name));
	if (attrs[VCACHE_A_TAG_WEIGHT]) {
		WRITE_ONCE(tag->weight, nla_get_u32(attrs[VCACHE_A_TAG_WEIGHT]));
		vcache_limits_update();
	}
	if (dev->vol)
		vcache_space_kick(dev->vol->pool);
	return 0;
}

int vcache_nl_tag_set_doit(struct sk_buff *skb, struct genl_info *info)
{
	struct vcache_dev *dev = vcache_nl_device(info->attrs, info->extack);
	int r;

	if (IS_ERR(dev))
		return PTR_ERR(dev);
	r = vc_nl_set_tag(dev, info);
	vcache_nl_release(dev);
	return r;
}

int vcache_nl_tag_del_doit(struct sk_buff *skb, struct genl_info *info)
{
	struct vcache_tag *tag = vcache_nl_tag(info);
	struct vcache_dev *dev;
	int r = 0;

	if (IS_ERR(tag))
		return PTR_ERR(tag);
	dev = tag->dev;
	if (tag == dev->host || tag == dev->target->tag) {
		NL_SET_ERR_MSG_ATTR(info->extack, info->attrs[VCACHE_A_TAG_ID],
				    "tag 0 and the tag of the table line cannot be removed");
		r = -EBUSY;
	} else {
		vcache_tag_remove(tag);
	}
	vcache_nl_release(dev);
	return r;
}

static int vc_nl_set_origin(struct vcache_dev *dev, struct genl_info *info)
{
	struct nlattr **attrs = info->attrs;
	struct nlattr *nsid = attrs[VCACHE_A_DEVICE_ORIGIN_NSID];
	struct nlattr *tag_max = attrs[VCACHE_A_DEVICE_ORIGIN_TAG_MAX];
	struct nlattr *instance = attrs[VCACHE_A_DEVICE_ORIGIN_INSTANCE];
	struct vcache_nvme as = { };
	const char *error = NULL;
	int r;

	if (!nsid || (nla_get_u32(nsid) &&
		      (!tag_max || !instance || !nla_get_u32(instance)))) {
		NL_SET_ERR_MSG(info->extack, "origin-nsid, tag-max and instance are required");
		return -EINVAL;
	}
	as.nsid = nla_get_u32(nsid);
	if (as.nsid) {
		as.tag_max = nla_get_u32(tag_max);
		as.instance = nla_get_u32(instance);
	}
	r = vcache_nvme_set(dev, &as, &error);
	if (error && info->extack)
		info->extack->_msg = error;
	return r;
}

int vcache_nl_device_set_doit(struct sk_buff *skb, struct genl_info *info)
{
	struct vcache_dev *dev = vcache_nl_device(info->attrs, info->extack);
	int r;

	if (IS_ERR(dev))
		return PTR_ERR(dev);
	r = vc_nl_set_origin(dev, info);
	vcache_nl_release(dev);
	return r;
}

/**
 * vcache_netlink_event - send an event to all listeners
 * @dev: the device
 * @tag: the tag
 * @kind: what happened
 */
void vcache_netlink_event(struct vcache_dev *dev, u32 tag, enum vcache_event_kind kind)
{
	struct sk_buff *skb = nlmsg_new(NLMSG_DEFAULT_SIZE, GFP_NOIO);
	void *msg;

	if (!skb)
		return;
	msg = genlmsg_put(skb, 0, 0, &vcache_family, 0, VCACHE_CMD_EVENT_NTF);
	if (!msg || nla_put_u32(skb, VCACHE_A_EVENT_KIND, kind) ||
	    vcache_put_number(skb, dev, VCACHE_A_EVENT_MAJOR,
			      VCACHE_A_EVENT_MINOR) ||
	    nla_put_u32(skb, VCACHE_A_EVENT_TAG, tag)) {
		nlmsg_free(skb);
		return;
	}
	genlmsg_end(skb, msg);
	genlmsg_multicast(&vcache_family, skb, 0, VCACHE_NLGRP_EVENTS,
			  GFP_NOIO);
}

int __init vcache_netlink_init(void)
{
	return genl_register_family(&vcache_family);
}

void vcache_netlink_exit(void)
{
	genl_unregister_family(&vcache_family);
}
