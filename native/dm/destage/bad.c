// SPDX-License-Identifier: GPL-2.0-only
/*
 * dm-vcache: blocks that cannot be destaged, because the origin does not take them or the
 * cache device cannot read them.
 *
 * They stay dirty. Destage leaves them out, so that everything else goes on, and tries
 * them again later, at growing intervals. The set is used by the destage of the volume
 * only, except for its size.
 */
#include <linux/ratelimit.h>

#include "internal.h"

/* First and longest time after which bad blocks are tried again. */
#define VC_BAD_DELAY_MIN	(5 * HZ)
#define VC_BAD_DELAY_MAX	(80 * HZ)

static DEFINE_RATELIMIT_STATE(vc_bad_messages, DEFAULT_RATELIMIT_INTERVAL,
			      DEFAULT_RATELIMIT_BURST);

/**
 * vcache_bad_init - begin without bad blocks
 * @v: the volume
 */
void vcache_bad_init(struct vcache_volume *v)
{
	xa_init(&v->bad);
	v->bad_delay = VC_BAD_DELAY_MIN;
}

/**
 * vcache_bad_add - note a block that could not be destaged
 * @v: the volume
 * @block: the block
 * @error: why
 *
 * Return: 0, or @error if there is no memory to note it.
 */
int vcache_bad_add(struct vcache_volume *v, u64 block, int error)
{
	void *was = xa_store(&v->bad, block, xa_mk_value(v->bad_turn),
			     GFP_NOIO);

	if (xa_is_err(was))
		return error;
	if (was)
		return 0;
	/* The first one is always reported. */
	if (!v->nbad || __ratelimit(&vc_bad_messages))
		DMERR("%s: volume %u: block %llu cannot be destaged: error %d; it stays dirty",
		      dm_device_name(v->pool->md), v->id, block, error);
	if (!v->nbad)
		vcache_tag_event(v->dev->host, VCACHE_EVENT_KIND_ORIGIN_ERROR);
	WRITE_ONCE(v->nbad, v->nbad + 1);
	return 0;
}

/**
 * vcache_bad_has - shall destage leave a block out?
 * @v: the volume
 * @block: the block
 */
bool vcache_bad_has(struct vcache_volume *v, u64 block)
{
	return v->nbad && xa_load(&v->bad, block) == xa_mk_value(v->bad_turn);
}

/**
 * vcache_bad_remove - a block has been destaged
 * @v: the volume
 * @block: the block
 */
void vcache_bad_remove(struct vcache_volume *v, u64 block)
{
	if (!v->nbad || !xa_erase(&v->bad, block))
		return;
	WRITE_ONCE(v->nbad, v->nbad - 1);
	if (!v->nbad)
		vcache_tag_event(v->dev->host, VCACHE_EVENT_KIND_ORIGIN_OK);
}

/**
 * vcache_bad_free - forget all bad blocks
 * @v: the volume; it is detached
 */
void vcache_bad_free(struct vcache_volume *v)
{
	xa_destroy(&v->bad);
	WRITE_ONCE(v->nbad, 0);
	v->bad_delay = VC_BAD_DELAY_MIN;
}

/**
 * vcache_bad_clear - forget all bad blocks, because the volume has no dirty data any more
 * @v: the volume, in use
 */
void vcache_bad_clear(struct vcache_volume *v)
{
	if (v->nbad)
		vcache_tag_event(v->dev->host, VCACHE_EVENT_KIND_ORIGIN_OK);
	vcache_bad_free(v);
}

/**
 * vcache_bad_retry_now - let the next run of destage try bad blocks again
 * @v: the volume; somebody asked for a drain, or the origin may be another one
 */
void vcache_bad_retry_now(struct vcache_volume *v)
{
	WRITE_ONCE(v->bad_delay, VC_BAD_DELAY_MIN);
	WRITE_ONCE(v->bad_at, jiffies);
}

/**
 * vcache_bad_retry - let destage try bad blocks again, if it is time
 * @v: the volume
 *
 * Those that did not fail in the last turn are not dirty any more.
 */
void vcache_bad_retry(struct vcache_volume *v)
{
	unsigned long block, delay;
	struct vcache_log *log;
	void *turn;

	if (!v->nbad) {
		WRITE_ONCE(v->bad_delay, VC_BAD_DELAY_MIN);
		WRITE_ONCE(v->bad_at, jiffies + VC_BAD_DELAY_MIN);
		return;
	}
	if (time_before(jiffies, READ_ONCE(v->bad_at)))
		return;
	xa_for_each(&v->bad, block, turn) {
		if (turn != xa_mk_value(v->bad_turn))
			vcache_bad_remove(v, block);
	}
	list_for_each_entry_lockless(log, &v->logs, node)
		log->passed = 0;
	v->bad_turn ^= 1;
	/* vcache_bad_retry_now() is not lost: this turn has just begun. */
	delay = min(READ_ONCE(v->bad_delay) * 2, VC_BAD_DELAY_MAX);
	WRITE_ONCE(v->bad_delay, delay);
	WRITE_ONCE(v->bad_at, jiffies + delay);
}
