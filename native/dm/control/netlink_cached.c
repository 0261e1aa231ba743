// SPDX-License-Identifier: GPL-2.0-only
/*
 * dm-vcache: netlink handlers for what a tag has in the cache: list its blocks, prefetch
 * blocks, drop all; and for its lanes.
 *
 * They work for a tag that exists, and for cached data of a tag that does not exist any
 * more: a stopped instance may have no tag.
 */
#include "../base/compat.h"
#include "netlink.h"
#include "nl_gen.h"

/* Cells that one message of a dump looks at. */
#define VC_MAP_CELLS	16384U

/* Most runs in a message. */
#define VC_MAP_RUNS	1024U

/* Chunks that one request reclaims. */
#define VC_DROP_CHUNKS	64U

/* Find the log of the tag that a request names. Return: or an ERR_PTR(). */
static struct vcache_log *vc_nl_log(struct vcache_dev *dev, struct nlattr **attrs,
				    struct netlink_ext_ack *extack)
{
	struct nlattr *id = attrs[VCACHE_A_CACHED_ID];
	struct vcache_log *log;

	if (!id) {
		NL_SET_ERR_MSG(extack, "id of the tag is required");
		return ERR_PTR(-EINVAL);
	}
	if (!dev->vol) {
		NL_SET_ERR_MSG(extack, "the device has no cache");
		return ERR_PTR(-ENODATA);
	}
	list_for_each_entry_lockless(log, &dev->vol->logs, node) {
		if (log->tag == nla_get_u32(id))
			return log;
	}
	NL_SET_ERR_MSG_ATTR(extack, id,
			    "the cache has no data of a tag with this id");
	return ERR_PTR(-ENOENT);
}

/* Put the name of the tag that was asked about. Return: 0 or -EMSGSIZE. */
static int vc_put_log(struct sk_buff *skb, struct vcache_log *log)
{
	return vcache_put_number(skb, log->vol->dev, VCACHE_A_CACHED_MAJOR,
				 VCACHE_A_CACHED_MINOR) ?:
	       nla_put_u32(skb, VCACHE_A_CACHED_ID, log->tag);
}

/**
 * struct vc_map_walk - a walk over the cells of a log
 * @skb: the message that gets the runs
 * @log: the log
 * @chunk: current chunk
 * @cell: current cell of it
 * @looked: cells looked at so far
 * @runs: runs put into the message
 * @run: current run, which may become longer
 */
struct vc_map_walk {
	struct sk_buff *skb;
	struct vcache_log *log;
	long chunk;
	long cell;
	u32 looked;
	u32 runs;
	struct vcache_cached_run run;
};

/* Put the current run. Return: false if the message is full. */
static bool vc_map_put(struct vc_map_walk *w)
{
	if (w->run.len && nla_append(w->skb, sizeof(w->run), &w->run))
		return false;
	w->runs += !!w->run.len;
	w->run.len = 0;
	return w->runs < VC_MAP_RUNS &&
	       skb_tailroom(w->skb) >= (int)sizeof(w->run);
}

/* Add a block to the current run, or begin a new one. Return: false without space. */
static bool vc_map_block(struct vc_map_walk *w, u64 block, u8 heat)
{
	struct vcache_cached_run *run = &w->run;
	u64 start = block * VC_BLOCK_SECTORS;

	if (!run->len || run->start + run->len != start ||
	    run->heat != heat) {
		/* Space was checked for one run more than was put, so this one fits. */
		if (!vc_map_put(w))
			return false;
		run->start = start;
		run->heat = heat;
	}
	run->len += VC_BLOCK_SECTORS;
	return true;
}

/* Walk over a chunk. Return: false if the message is full. */
static bool vc_map_chunk(struct vc_map_walk *w)
{
	struct vcache_pool *p = w->log->vol->pool;
	u32 cell = w->chunk * p->g.chunk_blocks;
	u64 block;
	u8 heat;

	for (; w->cell < vcache_chunk_capacity(&p->g); w->cell++) {
		if (++w->looked > VC_MAP_CELLS ||
		    (vcache_lookup_whole(w->log->vol, cell + w->cell, &block,
					 &heat) &&
		     !vc_map_block(w, block, heat)))
			return false;
	}
	return true;
}

/* Walk over all chunks; the pool is locked, so they stay with their logs. Return: done. */
static bool vc_map_walk(struct vc_map_walk *w)
{
	struct vcache_pool *p = w->log->vol->pool;

	for (; w->chunk < p->g.chunks; w->chunk++, w->cell = 0) {
		if (READ_ONCE(p->chunk[w->chunk].log) == w->log &&
		    !vc_map_chunk(w))
			return false;
		cond_resched();
	}
	return true;
}

/* Dump one message. Return: 1 when all cells are done, 0, or a negative errno. */
static int vc_dump_map(struct sk_buff *skb, struct netlink_callback *cb,
		       struct vcache_log *log)
{
	struct vc_map_walk w = {
		.skb = skb, .log = log, .chunk = cb->args[0],
		.cell = cb->args[1],
	};
	struct nlattr *runs;
	void *msg;
	bool done;

	msg = genlmsg_put(skb, NETLINK_CB(cb->skb).portid, cb->nlh->nlmsg_seq,
			  &vcache_family, NLM_F_MULTI, VCACHE_CMD_CACHE_MAP_GET);
	if (!msg || vc_put_log(skb, log))
		return -EMSGSIZE;
	runs = (struct nlattr *)skb_tail_pointer(skb);
	if (nla_put(skb, VCACHE_A_CACHED_RUNS, 0, NULL) ||
	    skb_tailroom(skb) < (int)sizeof(w.run))
		return -EMSGSIZE;
	done = vc_map_walk(&w);
	vc_map_put(&w);
	runs->nla_len = skb_tail_pointer(skb) - (unsigned char *)runs;
	genlmsg_end(skb, msg);
	cb->args[0] = w.chunk;
	cb->args[1] = w.cell;
	return done;
}

/* cb->args[0], [1]: next chunk, and next cell of it; [2]: all are done. */
int vcache_nl_cache_map_get_dumpit(struct sk_buff *skb,
				   struct netlink_callback *cb)
{
	struct nlattr **attrs = vcache_dump_attrs(cb);
	struct vcache_dev *dev;
	struct vcache_log *log;
	int r;

	if (cb->args[2])
		return 0;
	dev = vcache_nl_device(attrs, cb->extack);
	if (IS_ERR(dev))
		return PTR_ERR(dev);
	log = vc_nl_log(dev, attrs, cb->extack);
	r = PTR_ERR_OR_ZERO(log);
	if (!r) {
		mutex_lock(&log->vol->pool->lock);
		r = vc_dump_map(skb, cb, log);
		mutex_unlock(&log->vol->pool->lock);
	}
	vcache_nl_release(dev);
	if (r < 0)
		return r;
	cb->args[2] = r;
	return skb->len;
}

/* Check the runs of a request, if it has any. Return: 0 or -EINVAL. */
static int vc_nl_check_runs(struct vcache_log *log, struct genl_info *info)
{
	const struct nlattr *runs = info->attrs[VCACHE_A_CACHED_RUNS];
	const char *error;
	u32 nr;

	if (!runs)
		return 0;
	nr = nla_len(runs) / sizeof(struct vcache_cached_run);
	if (!nr || nr > VCACHE_PREFETCH_RUNS_MAX ||
	    nla_len(runs) % sizeof(struct vcache_cached_run)) {
		NL_SET_ERR_MSG_ATTR(info->extack, runs,
				    "there must be 1 to 2048 runs of {u64 start, u32 len, u32 heat}");
		return -EINVAL;
	}
	error = vcache_runs_wrong(nla_data(runs), nr, log->vol->sectors);
	if (!error)
		return 0;
	if (info->extack)
		info->extack->_msg = error;
	return -EINVAL;
}

static int vc_nl_prefetch(struct vcache_dev *dev, struct genl_info *info)
{
	struct vcache_log *log = vc_nl_log(dev, info->attrs, info->extack);
	struct nlattr *runs = info->attrs[VCACHE_A_CACHED_RUNS];
	const char *error = NULL;
	u32 nr;
	int r;

	if (IS_ERR(log))
		return PTR_ERR(log);
	if (!runs) {
		NL_SET_ERR_MSG(info->extack, "runs are required");
		return -EINVAL;
	}
	r = vc_nl_check_runs(log, info);
	if (r)
		return r;
	nr = nla_len(runs) / sizeof(struct vcache_cached_run);
	r = vcache_prefetch_add(log, nla_data(runs), nr, &error);
	if (error && info->extack)
		info->extack->_msg = error;
	return r;
}

int vcache_nl_cache_prefetch_doit(struct sk_buff *skb, struct genl_info *info)
{
	struct vcache_dev *dev = vcache_nl_device(info->attrs, info->extack);
	int r;

	if (IS_ERR(dev))
		return PTR_ERR(dev);
	r = vc_nl_prefetch(dev, info);
	vcache_nl_release(dev);
	return r;
}

/*
 * Add a run to the saved blocks of a log. The pool is locked for each run anew: writers of others
 * may wait for space, which needs the lock.
 *
 * Return: 0 or a negative errno; then the session has ended.
 */
static int vc_nl_saved_run(struct vcache_log *log, const void *at)
{
	struct vcache_cached_run run;
	int r = -ESTALE;

	memcpy(&run, at, sizeof(run));
	mutex_lock(&log->vol->pool->lock);
	if (log->saved)
		r = vcache_saved_add(log, run.start / VC_BLOCK_SECTORS,
				     run.len / VC_BLOCK_SECTORS);
	if (r)
		vcache_saved_begin(log, 0);
	mutex_unlock(&log->vol->pool->lock);
	return r;
}

static int vc_nl_saved(struct vcache_log *log, struct genl_info *info)
{
	const struct nlattr *runs = info->attrs[VCACHE_A_CACHED_RUNS];
	struct vcache_pool *p = log->vol->pool;
	int at, r = 0;

	if (info->attrs[VCACHE_A_CACHED_SAVED_BEGIN]) {
		mutex_lock(&p->lock);
		vcache_saved_begin(log, runs ? get_random_u64() | 1 : 0);
		mutex_unlock(&p->lock);
	}
	for (at = 0; runs && !r && at < nla_len(runs); at += sizeof(struct vcache_cached_run))
		r = vc_nl_saved_run(log, nla_data(runs) + at);
	if (r == -ESTALE)
		NL_SET_ERR_MSG(info->extack, "there is no session of saved blocks");
	return r;
}

int vcache_nl_cache_saved_doit(struct sk_buff *skb, struct genl_info *info)
{
	struct sk_buff *reply = nlmsg_new(NLMSG_GOODSIZE, GFP_KERNEL);
	struct vcache_dev *dev;
	struct vcache_log *log;
	void *msg;
	int r;

	if (!reply)
		return -ENOMEM;
	dev = vcache_nl_device(info->attrs, info->extack);
	if (IS_ERR(dev)) {
		nlmsg_free(reply);
		return PTR_ERR(dev);
	}
	log = vc_nl_log(dev, info->attrs, info->extack);
	r = PTR_ERR_OR_ZERO(log) ?: vc_nl_check_runs(log, info);
	if (!r)
		r = vc_nl_saved(log, info);
	if (!r) {
		msg = genlmsg_put_reply(reply, info, &vcache_family, 0,
					VCACHE_CMD_CACHE_SAVED);
		r = msg ? vc_put_log(reply, log) ?:
			  nla_put_u64_64bit(reply, VCACHE_A_CACHED_TOKEN,
					    log->saved, VCACHE_A_CACHED_PAD) :
			  -EMSGSIZE;
		if (msg)
			genlmsg_end(reply, msg);
	}
	vcache_nl_release(dev);
	if (r) {
		nlmsg_free(reply);
		return r;
	}
	return genlmsg_reply(reply, info);
}

/* Check the blocks of a fill. Return: what is wrong with them, or NULL. */
static const char *vc_nl_fill_wrong(struct vcache_log *log, struct genl_info *info)
{
	struct nlattr *data = info->attrs[VCACHE_A_CACHED_DATA];
	struct nlattr *start = info->attrs[VCACHE_A_CACHED_START];
	u64 sectors = log->vol->sectors;

	if (!data || !start || !info->attrs[VCACHE_A_CACHED_TOKEN])
		return "token, start and data are required";
	if (!nla_len(data) || nla_len(data) % VC_BLOCK_SIZE ||
	    nla_len(data) > VCACHE_FILL_BLOCKS_MAX * VC_BLOCK_SIZE)
		return "data must be 1 to 15 whole 4 KiB blocks";
	if (nla_get_u64(start) % VC_BLOCK_SECTORS)
		return "start must be the first sector of a 4 KiB block";
	if (nla_get_u64(start) > sectors ||
	    nla_len(data) >> SECTOR_SHIFT > sectors - nla_get_u64(start))
		return "the blocks must be on the device";
	return NULL;
}

static int vc_nl_fill(struct vcache_dev *dev, struct genl_info *info)
{
	struct vcache_log *log = vc_nl_log(dev, info->attrs, info->extack);
	struct nlattr **attrs = info->attrs;
	const char *error;
	int r = -EINVAL;

	if (IS_ERR(log))
		return PTR_ERR(log);
	error = vc_nl_fill_wrong(log, info);
	if (!error)
		r = vcache_fill(log, nla_get_u64(attrs[VCACHE_A_CACHED_TOKEN]),
				nla_get_u64(attrs[VCACHE_A_CACHED_START]) /
				VC_BLOCK_SECTORS,
				nla_len(attrs[VCACHE_A_CACHED_DATA]) / VC_BLOCK_SIZE,
				attrs[VCACHE_A_CACHED_HEAT] ?
				nla_get_u32(attrs[VCACHE_A_CACHED_HEAT]) : 0,
				nla_data(attrs[VCACHE_A_CACHED_DATA]), &error);
	if (error && info->extack)
		info->extack->_msg = error;
	return r;
}

int vcache_nl_cache_fill_doit(struct sk_buff *skb, struct genl_info *info)
{
	struct vcache_dev *dev = vcache_nl_device(info->attrs, info->extack);
	int r;

	if (IS_ERR(dev))
		return PTR_ERR(dev);
	r = vc_nl_fill(dev, info);
	vcache_nl_release(dev);
	return r;
}

/*
 * Reclaim chunks of a log that nobody needs. An open chunk is closed first. It may have no
 * seal yet; then the next request reclaims it.
 */
static int vc_nl_reclaim(struct vcache_log *log)
{
	struct vcache_pool *p = log->vol->pool;
	int r;

	mutex_lock(&p->lock);
	vcache_log_close_idle(log);
	vcache_reads_close(log);
	r = vcache_log_reclaim(log, VC_DROP_CHUNKS);
	if (!vcache_log_chunks(log))
		vcache_log_release_spare(log);
	mutex_unlock(&p->lock);
	/* If one cannot be reclaimed now, the next request does it. */
	return r == -EAGAIN ? 0 : r;
}

static int vc_fill_left(struct sk_buff *skb, struct vcache_log *log)
{
	u64 chunk = (u64)log->vol->pool->g.chunk_blocks * VC_BLOCK_SIZE;

	return vc_put_log(skb, log) ?:
	       nla_put_u64_64bit(skb, VCACHE_A_CACHED_CACHED_BYTES,
				 vcache_log_chunks(log) * chunk,
				 VCACHE_A_CACHED_PAD) ?:
	       nla_put_u64_64bit(skb, VCACHE_A_CACHED_CACHE_DIRTY_BYTES,
				 vcache_log_dirty(log) << SECTOR_SHIFT,
				 VCACHE_A_CACHED_PAD);
}

static int vc_nl_drop(struct sk_buff *reply, struct genl_info *info)
{
	struct vcache_dev *dev = vcache_nl_device(info->attrs, info->extack);
	struct vcache_log *log;
	void *msg;
	int r;

	if (IS_ERR(dev))
		return PTR_ERR(dev);
	log = vc_nl_log(dev, info->attrs, info->extack);
	r = IS_ERR(log) ? PTR_ERR(log) : vc_nl_reclaim(log);
	if (!r) {
		msg = genlmsg_put_reply(reply, info, &vcache_family, 0,
					VCACHE_CMD_CACHE_DROP);
		r = msg ? vc_fill_left(reply, log) : -EMSGSIZE;
		if (msg)
			genlmsg_end(reply, msg);
	}
	vcache_nl_release(dev);
	return r;
}

int vcache_nl_cache_drop_doit(struct sk_buff *skb, struct genl_info *info)
{
	struct sk_buff *reply = nlmsg_new(NLMSG_GOODSIZE, GFP_KERNEL);
	int r;

	if (!reply)
		return -ENOMEM;
	r = vc_nl_drop(reply, info);
	if (r) {
		nlmsg_free(reply);
		return r;
	}
	return genlmsg_reply(reply, info);
}

/**
 * vcache_nl_lanes_fit - can the lanes that are asked for be dedicated to a tag?
 * @dev: its device, locked
 * @info: the request, tag-set for an existing or a new tag; gets the reason if not
 */
bool vcache_nl_lanes_fit(struct vcache_dev *dev, struct genl_info *info)
{
	struct nlattr *attr = info->attrs[VCACHE_A_TAG_CACHE_LANES];
	struct nlattr *id = info->attrs[VCACHE_A_TAG_ID];
	struct vcache_tag *tag = id ? vcache_tag_find(dev, nla_get_u32(id)) : NULL;
	const char *error = NULL;

	if (attr)
		error = vcache_tag_lanes_refuse(dev, tag, nla_get_u64(attr));
	if (error && info->extack) {
		info->extack->_msg = error;
		NL_SET_BAD_ATTR(info->extack, attr);
	}
	return !error;
}
