// SPDX-License-Identifier: GPL-2.0-only
/*
 * dm-vcache: dumps of devices and tags to user space.
 */
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

/*
 * Dump the tags of a device behind the last one dumped. cb->args[1]: that one;
 * cb->args[2]: vcache_dev.seq of its device, which may have been removed since.
 */
static int vc_dump_tags(struct sk_buff *skb, struct netlink_callback *cb,
			struct vcache_dev *dev)
{
	struct vcache_tag *tag;

	if ((u64)cb->args[2] != dev->seq)
		cb->args[1] = 0;
	cb->args[2] = dev->seq;
	list_for_each_entry(tag, &dev->tags, node) {
		void *msg;

		if (tag->orphan || tag->seq <= (u64)cb->args[1])
			continue;
		msg = vc_nl_put(skb, cb, VCACHE_CMD_TAG_GET);
		if (!msg)
			return -EMSGSIZE;
		if (vcache_fill_tag(skb, tag)) {
			genlmsg_cancel(skb, msg);
			return -EMSGSIZE;
		}
		genlmsg_end(skb, msg);
		cb->args[1] = tag->seq;
	}
	cb->args[1] = 0;
	return 0;
}

int vcache_nl_tag_get_dumpit(struct sk_buff *skb, struct netlink_callback *cb)
{
	struct nlattr **attrs = vcache_dump_attrs(cb);
	struct vcache_dev *dev;
	int r;

	if (attrs[VCACHE_A_TAG_MAJOR] || attrs[VCACHE_A_TAG_MINOR]) {
		if (cb->args[0])
			return 0;
		dev = vcache_nl_device(attrs, cb->extack);
		if (IS_ERR(dev))
			return PTR_ERR(dev);
		r = vc_dump_tags(skb, cb, dev);
		if (!r)
			cb->args[0] = 1;
		vcache_nl_release(dev);
		return r == -EMSGSIZE && skb->len ? (int)skb->len : r;
	}
	return vc_dump_all(skb, cb, vc_dump_tags);
}
