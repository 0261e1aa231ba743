// SPDX-License-Identifier: GPL-2.0-only
/*
 * dm-vcache: the fair shares of the logs in the shared lanes.
 *
 * Nine tenths of the chunks are shared out. The last tenth is the common reserve. Each
 * tag gets its minimum; if the minima exceed the chunks, they are scaled down in
 * proportion. The rest is shared out by weight. What exceeds a tag's maximum goes to the
 * other tags.
 *
 * A share is soft: space.c says what happens to a log that has more. Half of it, or the
 * minimum if that is more, is guaranteed. A maximum is a hard limit.
 *
 * A tag with dedicated lanes (lane.c) gets its minimum and its maximum there first. Here
 * it claims what these lanes do not hold: nothing, if they hold its maximum.
 */
#include "internal.h"

/* Convert bytes to whole chunks, rounded up, at most all chunks of a pool. */
static u32 vc_pool_chunks(const struct vcache_pool *p, u64 bytes)
{
	u64 chunk = (u64)p->g.chunk_blocks * VC_BLOCK_SIZE;

	return min_t(u64, div64_u64(bytes, chunk) + !!(bytes & (chunk - 1)),
		     p->g.chunks);
}

/* Find out what the tag of a log asks for. In volume scope hTag has no data. */
static void vc_log_claim(struct vcache_log *log)
{
	struct vcache_pool *p = log->vol->pool;
	u32 own = vcache_log_own(log);
	struct vcache_tag *tag;
	u64 most;

	memset(&log->claim, 0, sizeof(log->claim));
	log->claim.most = U32_MAX;
	log->claim.own_most = U32_MAX;
	rcu_read_lock();
	tag = rcu_dereference(log->user);
	if (tag && !(tag == tag->dev->host && tag->dev->volume)) {
		log->claim.weight = READ_ONCE(tag->weight);
		log->claim.least = vc_pool_chunks(p, READ_ONCE(tag->least));
		most = READ_ONCE(tag->most);
		if (most) {
			log->claim.most = max(VC_CHUNKS_MIN,
					      vc_pool_chunks(p, most));
			log->claim.own_most = log->claim.most;
		}
		/* What its dedicated lanes hold is not claimed in the shared ones. */
		log->claim.least -= min(log->claim.least, own);
		if (most)
			log->claim.most -= min(log->claim.most, own);
	}
	rcu_read_unlock();
}

/* Collect the claims of all logs. Return: the sum of the minima. */
static u64 vc_pool_claims(struct vcache_pool *p)
{
	struct vcache_volume *v;
	struct vcache_log *log;
	u64 sum = 0;

	list_for_each_entry(v, &p->volumes, node) {
		list_for_each_entry(log, &v->logs, node) {
			vc_log_claim(log);
			sum += log->claim.least;
		}
	}
	return sum;
}

/* Scale the minima down if their sum exceeds the chunks. */
static void vc_pool_scale(struct vcache_pool *p, u64 chunks, u64 least)
{
	struct vcache_volume *v;
	struct vcache_log *log;

	list_for_each_entry(v, &p->volumes, node) {
		list_for_each_entry(log, &v->logs, node)
			log->claim.least = div64_u64(chunks * log->claim.least,
						     least);
	}
}

/*
 * Share out by weight what the minima leave. Return: true if some logs would exceed their
 * maxima. They get these, and the rest has to be shared out again.
 */
static bool vc_pool_divide(struct vcache_pool *p, u64 chunks)
{
	struct vcache_volume *v;
	struct vcache_log *log;
	bool again = false;
	u64 weights = 0;

	list_for_each_entry(v, &p->volumes, node) {
		list_for_each_entry(log, &v->logs, node) {
			chunks -= log->claim.full ? log->claim.most :
				  log->claim.least;
			if (!log->claim.full)
				weights += log->claim.weight;
		}
	}
	list_for_each_entry(v, &p->volumes, node) {
		list_for_each_entry(log, &v->logs, node) {
			struct vcache_claim *c = &log->claim;

			c->share = c->full ? c->most : c->least +
				   div64_u64(chunks * c->weight,
					     weights ? weights : 1);
			if (c->share > c->most) {
				c->full = true;
				again = true;
			}
		}
	}
	return again;
}

/*
 * The blocks that are kept of a reclaimed chunk may need one more chunk. So a log gets one
 * chunk less than its maximum for everything else.
 */
static u32 vc_chunks_limit(u32 most)
{
	return most > VC_CHUNKS_MIN ? most - 1 : most;
}

/**
 * vcache_pool_share - compute the fair shares of the logs in use
 * @p: the pool, locked
 */
void vcache_pool_share(struct vcache_pool *p)
{
	u64 all = READ_ONCE(p->shared), chunks = all - all / VC_COMMON_OF;
	u64 least = vc_pool_claims(p);
	struct vcache_volume *v;
	struct vcache_log *log;
	u32 users = 0;

	lockdep_assert_held(&p->lock);
	if (least > chunks)
		vc_pool_scale(p, chunks, least);
	while (vc_pool_divide(p, chunks))
		;
	list_for_each_entry(v, &p->volumes, node) {
		list_for_each_entry(log, &v->logs, node) {
			users += !!log->claim.weight;
			WRITE_ONCE(log->share, log->claim.share);
			WRITE_ONCE(log->guaranteed, max_t(u64, log->claim.least,
							  log->claim.share / 2));
			WRITE_ONCE(log->most, vc_chunks_limit(log->claim.most));
			WRITE_ONCE(log->own_part, log->claim.own_most);
			WRITE_ONCE(log->own_most,
				   vc_chunks_limit(log->claim.own_most));
		}
	}
	WRITE_ONCE(p->nusers, users);
}

/**
 * vcache_log_dirty_limit - how dirty may a log become?
 * @log: the log
 *
 * With more dirty blocks than 13/16 of the chunks that it has or can get, relocation gains
 * little, and the log gets space only as fast as its origin takes data.
 *
 * Return: blocks.
 */
u32 vcache_log_dirty_limit(const struct vcache_log *log)
{
	const struct vcache_pool *p = log->vol->pool;
	u64 lanes = READ_ONCE(log->lanes), chunks = vcache_log_chunks(log);
	u32 nfree = READ_ONCE(p->nfree), reserve = vcache_pool_reserve(p);

	if (lanes)
		chunks += vcache_lanes_free(p, lanes);
	if (nfree > reserve)
		chunks += nfree - reserve;
	chunks = min(max_t(u64, chunks, vcache_log_part(log)), vcache_log_most(log));
	return min_t(u64, chunks * vcache_chunk_capacity(&p->g) / 16 * 13, U32_MAX);
}
