// SPDX-License-Identifier: GPL-2.0-only
/*
 * dm-vcache: dumps of devices and tags to user space.
 */
#include <linux/slab.h>

#include "../base/compat.h"
#include "netlink.h"
#include "nl_gen.h"

static void *vc_nl_put(struct sk_buff *skb, struct netlink_callback *cb,
		       u8 cmd)
{
	return genlmsg_put(skb, NETLINK_CB(cb->skb).portid, cb->nlh->nlmsg_seq,
			   &vcache_family, NLM_F_MULTI, cmd);
}

/* What is to be dumped of a device. Return: 0, or -EMSGSIZE: the next message goes on. */
typedef int vc_dump_fn(struct sk_buff *skb, struct netlink_callback *cb,
		       struct vcache_dev *dev);

/* Dump all devices. cb->args[0]: vcache_dev.seq of the last one that was dumped. */
static int vc_dump_all(struct sk_buff *skb, struct netlink_callback *cb,
		       vc_dump_fn *dump)
{
	struct vcache_dev *dev;
	int r = 0;

	while (!r && (dev = vcache_dev_use_after(cb->args[0]))) {
		u64 seq = dev->seq;

		dev = vcache_nl_lock(dev);
		if (dev) {
			r = dump(skb, cb, dev);
			vcache_nl_release(dev);
		}
		if (!r)
			cb->args[0] = seq;
	}
	return r == -EMSGSIZE && skb->len ? (int)skb->len : r;
}

static int vc_dump_device(struct sk_buff *skb, struct netlink_callback *cb,
			  struct vcache_dev *dev)
{
	void *msg = vc_nl_put(skb, cb, VCACHE_CMD_DEVICE_GET);
	int r;

	if (!msg)
		return -EMSGSIZE;
	r = vcache_fill_device(skb, dev);
	if (r)
		genlmsg_cancel(skb, msg);
	else
		genlmsg_end(skb, msg);
	return r;
}

int vcache_nl_device_get_dumpit(struct sk_buff *skb,
				struct netlink_callback *cb)
{
	return vc_dump_all(skb, cb, vc_dump_device);
}

/* Put a tag into a message of a dump. Return: 0 or -EMSGSIZE. */
typedef int vc_put_fn(struct sk_buff *skb, struct netlink_callback *cb, struct vcache_tag *tag);

/*
 * Dump the tags of a device behind the last one dumped. cb->args[1]: that one;
 * cb->args[2]: vcache_dev.seq of its device, which may have been removed since.
 */
static int vc_dump_each(struct sk_buff *skb, struct netlink_callback *cb, struct vcache_dev *dev,
			vc_put_fn *put)
{
	struct vcache_tag *tag;

	if ((u64)cb->args[2] != dev->seq)
		cb->args[1] = 0;
	cb->args[2] = dev->seq;
	list_for_each_entry(tag, &dev->tags, node) {
		if (tag->orphan || tag->seq <= (u64)cb->args[1])
			continue;
		if (put(skb, cb, tag))
			return -EMSGSIZE;
		cb->args[1] = tag->seq;
	}
	cb->args[1] = 0;
	return 0;
}

static int vc_put_tag(struct sk_buff *skb, struct netlink_callback *cb, struct vcache_tag *tag)
{
	void *msg = vc_nl_put(skb, cb, VCACHE_CMD_TAG_GET);

	if (!msg)
		return -EMSGSIZE;
	if (vcache_fill_tag(skb, tag)) {
		genlmsg_cancel(skb, msg);
		return -EMSGSIZE;
	}
	genlmsg_end(skb, msg);
	return 0;
}

static int vc_dump_tags(struct sk_buff *skb, struct netlink_callback *cb, struct vcache_dev *dev)
{
	return vc_dump_each(skb, cb, dev, vc_put_tag);
}

/* Dump one device, if the request names one, or all. */
static int vc_dump_some(struct sk_buff *skb, struct netlink_callback *cb, vc_dump_fn *dump)
{
	struct nlattr **attrs = vcache_dump_attrs(cb);
	struct vcache_dev *dev;
	int r;

	if (!attrs[VCACHE_A_TAG_MAJOR] && !attrs[VCACHE_A_TAG_MINOR])
		return vc_dump_all(skb, cb, dump);
	if (cb->args[0])
		return 0;
	dev = vcache_nl_device(attrs, cb->extack);
	if (IS_ERR(dev))
		return PTR_ERR(dev);
	r = dump(skb, cb, dev);
	if (!r)
		cb->args[0] = 1;
	vcache_nl_release(dev);
	return r == -EMSGSIZE && skb->len ? (int)skb->len : r;
}

int vcache_nl_tag_get_dumpit(struct sk_buff *skb, struct netlink_callback *cb)
{
	return vc_dump_some(skb, cb, vc_dump_tags);
}

/* A tag without a curve is left out. */
static int vc_put_curve(struct sk_buff *skb, struct netlink_callback *cb, struct vcache_tag *tag)
{
	struct vcache_curve_said *said = (void *)cb->args[3];
	void *msg;

	if (vcache_curve_read(tag, said))
		return 0;
	msg = vc_nl_put(skb, cb, VCACHE_CMD_CURVE_GET);
	if (!msg)
		return -EMSGSIZE;
	if (vcache_fill_curve(skb, tag, said)) {
		genlmsg_cancel(skb, msg);
		return -EMSGSIZE;
	}
	genlmsg_end(skb, msg);
	return 0;
}

static int vc_dump_curves(struct sk_buff *skb, struct netlink_callback *cb, struct vcache_dev *dev)
{
	return vc_dump_each(skb, cb, dev, vc_put_curve);
}

/* cb->args[3]: memory for a curve, during a call. */
int vcache_nl_curve_get_dumpit(struct sk_buff *skb, struct netlink_callback *cb)
{
	struct vcache_curve_said *said = kvzalloc(sizeof(*said), GFP_KERNEL);
	int r;

	if (!said)
		return -ENOMEM;
	cb->args[3] = (long)said;
	r = vc_dump_some(skb, cb, vc_dump_curves);
	kvfree(said);
	return r;
}

/**
 * struct vc_lanes - a dump of lanes
 * @skb: the message
 * @cb: args[0]: lanes that were dumped, of all pools
 * @at: lanes looked at
 */
struct vc_lanes {
	struct sk_buff *skb;
	struct netlink_callback *cb;
	long at;
};

static int vc_dump_lanes(struct vcache_pool *p, void *context)
{
	struct vc_lanes *d = context;
	void *msg;
	u32 lane;

	for (lane = 0; lane < p->nlanes; lane++) {
		if (d->at++ < d->cb->args[0])
			continue;
		msg = vc_nl_put(d->skb, d->cb, VCACHE_CMD_LANE_GET);
		if (!msg)
			return -EMSGSIZE;
		if (vcache_fill_lane(d->skb, p, lane)) {
			genlmsg_cancel(d->skb, msg);
			return -EMSGSIZE;
		}
		genlmsg_end(d->skb, msg);
		d->cb->args[0] = d->at;
	}
	return 0;
}

/* If pools come or go during a dump, a lane may be missing or occur twice. */
int vcache_nl_lane_get_dumpit(struct sk_buff *skb, struct netlink_callback *cb)
{
	struct vc_lanes d = { .skb = skb, .cb = cb };
	int r = vcache_pools_walk(vc_dump_lanes, &d);

	return r == -EMSGSIZE && skb->len ? (int)skb->len : r;
}
