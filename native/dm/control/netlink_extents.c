// SPDX-License-Identifier: GPL-2.0-only
/*
 * dm-vcache: handlers of the commands that change extents.
 *
 * A list may take several messages. What has arrived is staged in the tag, in memory that
 * doubles, so that each message is copied about once.
 */
#include <linux/slab.h>

#include "../base/compat.h"
#include "nl_gen.h"
#include "netlink.h"

static void vc_nl_unstage(struct vcache_tag *tag)
{
	kvfree(tag->staged.s);
	kvfree(tag->staged_remove.s);
	memset(&tag->staged, 0, sizeof(tag->staged));
	memset(&tag->staged_remove, 0, sizeof(tag->staged_remove));
}

/* Make room for more extents. */
static int vc_nl_make_room(struct vcache_staged *to, size_t more)
{
	struct vcache_sectors *s;
	size_t room = to->room;

	if (to->nr + more <= room)
		return 0;
	room = max(2 * room, to->nr + more);
	s = kvmalloc_array(room, sizeof(*s), GFP_KERNEL);
	if (!s)
		return -ENOMEM;
	if (to->nr)
		memcpy(s, to->s, to->nr * sizeof(*s));
	kvfree(to->s);
	to->s = s;
	to->room = room;
	return 0;
}

/* Add the extents of a message to those staged before. */
static int vc_nl_stage(struct vcache_tag *tag, struct vcache_staged *to, struct nlattr *attr,
		       struct netlink_ext_ack *extack)
{
	size_t nr = nla_len(attr) / sizeof(struct vcache_sectors);
	struct vcache_sectors *s;
	u64 from = 0;
	int r;

	if (nla_len(attr) % sizeof(*s)) {
		NL_SET_ERR_MSG_ATTR(extack, attr, "each extent must be {u64 start, u64 len}");
		return -EINVAL;
	}
	if (to->nr + nr > vcache_extents_max()) {
		NL_SET_ERR_MSG_FMT(extack, "%zu extents given, a tag may have %u (extents_max)",
				   to->nr + nr, vcache_extents_max());
		return -E2BIG;
	}
	r = vc_nl_make_room(to, nr);
	if (r)
		return r;
	s = to->s + to->nr;
	if (to->nr)
		from = s[-1].start + s[-1].len;
	if (nr)
		memcpy(s, nla_data(attr), nr * sizeof(*s));
	if (vcache_sectors_check(s, nr, from, tag->dev->target->ti->len)) {
		NL_SET_ERR_MSG_ATTR(extack, attr,
				    "extents must be sorted, disjoint and on the device");
		return -EINVAL;
	}
	to->nr += nr;
	return 0;
}

/* Stage what a message has. */
static int vc_nl_receive(struct vcache_tag *tag, struct genl_info *info)
{
	struct nlattr *add = info->attrs[VCACHE_A_TAG_EXTENTS];
	bool change = info->genlhdr->cmd == VCACHE_CMD_TAG_EXTENTS_CHANGE;
	/* The attributes of the other command end before this one. */
	struct nlattr *remove = change ? info->attrs[VCACHE_A_TAG_EXTENTS_REMOVE] : NULL;
	int r = 0;

	if (tag->dev->target->scope == VCACHE_SCOPE_VOLUME || tag == tag->dev->host) {
		NL_SET_ERR_MSG(info->extack, "hTag and tags in volume scope have no extents");
		return -EINVAL;
	}
	if (info->attrs[VCACHE_A_TAG_EXTENTS_BEGIN])
		vc_nl_unstage(tag);
	if (!tag->staged.nr && !tag->staged_remove.nr)
		tag->staged_by = info->genlhdr->cmd;
	if (tag->staged_by != info->genlhdr->cmd) {
		NL_SET_ERR_MSG(info->extack, "another command has begun a list; begin a new one");
		return -EINVAL;
	}
	if (add)
		r = vc_nl_stage(tag, &tag->staged, add, info->extack);
	if (!r && remove)
		r = vc_nl_stage(tag, &tag->staged_remove, remove, info->extack);
	return r;
}

/* Apply what is staged. */
static int vc_nl_commit(struct vcache_tag *tag, struct genl_info *info)
{
	struct vcache_refusal why = { };
	int r;

	if (info->genlhdr->cmd == VCACHE_CMD_TAG_EXTENTS)
		r = vcache_tag_set_extents(tag, &tag->staged, &why);
	else
		r = vcache_tag_change_extents(tag, &tag->staged_remove, &tag->staged, &why);
	if (r == -EEXIST)
		NL_SET_ERR_MSG_FMT(info->extack, "sector %llu belongs to tag %u already",
				   why.sector, why.other->id);
	if (r == -E2BIG)
		NL_SET_ERR_MSG_FMT(info->extack,
				   "the tag would have %llu extents, it may have %u (extents_max)",
				   why.runs, vcache_extents_max());
	return r;
}

static int vc_nl_extents(struct vcache_tag *tag, struct genl_info *info)
{
	int r = vc_nl_receive(tag, info);

	if (!r && !info->attrs[VCACHE_A_TAG_EXTENTS_COMMIT])
		return 0;
	if (!r)
		r = vc_nl_commit(tag, info);
	vc_nl_unstage(tag);
	return r;
}

int vcache_nl_tag_extents_doit(struct sk_buff *skb, struct genl_info *info)
{
	struct vcache_tag *tag = vcache_nl_tag(info);
	int r;

	if (IS_ERR(tag))
		return PTR_ERR(tag);
	r = vc_nl_extents(tag, info);
	vcache_nl_release(tag->dev);
	return r;
}

/* Put the counters after a change into its reply, which has enough space for them. */
static void vc_nl_reply_counters(struct sk_buff *reply, struct vcache_tag *tag,
				 struct genl_info *info)
{
	void *msg = genlmsg_put_reply(reply, info, &vcache_family, 0, info->genlhdr->cmd);

	if (WARN_ON_ONCE(!msg))
		return;
	WARN_ON_ONCE(vcache_put_number(reply, tag->dev, VCACHE_A_TAG_MAJOR,
				       VCACHE_A_TAG_MINOR) ?:
		     nla_put_u32(reply, VCACHE_A_TAG_ID, tag->id) ?:
		     vcache_fill_extents(reply, tag));
	genlmsg_end(reply, msg);
}

int vcache_nl_tag_extents_change_doit(struct sk_buff *skb, struct genl_info *info)
{
	bool commit = info->attrs[VCACHE_A_TAG_EXTENTS_COMMIT];
	struct sk_buff *reply = NULL;
	struct vcache_tag *tag;
	int r;

	/* First, since a change cannot be taken back. */
	if (commit) {
		reply = nlmsg_new(NLMSG_GOODSIZE, GFP_KERNEL);
		if (!reply)
			return -ENOMEM;
	}
	tag = vcache_nl_tag(info);
	if (IS_ERR(tag)) {
		nlmsg_free(reply);
		return PTR_ERR(tag);
	}
	r = vc_nl_extents(tag, info);
	if (!r && commit)
		vc_nl_reply_counters(reply, tag, info);
	vcache_nl_release(tag->dev);
	if (!r && commit)
		return genlmsg_reply(reply, info);
	nlmsg_free(reply);
	return r;
}
