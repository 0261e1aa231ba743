// SPDX-License-Identifier: GPL-2.0-only
/*
 * dm-vcache: giving up what a volume has in the cache.
 *
 * Because its origin goes on without the cache, because it is used in another
 * way, or because an administrator says so.
 */
#include <linux/slab.h>

#include "pool.h"

/**
 * vc_volume_forget - nothing that the volume has in the cache comes back
 * @v: the volume, its pool is locked
 *
 * One write: records of now and before are void, wherever they are.
 *
 * Return: 0 or a negative errno.
 */
int vc_volume_forget(struct vc_volume *v)
{
	v->floor = atomic64_inc_return(&v->pool->seq);
	return vc_slot_save(v);
}

/**
 * vc_volume_clear - reclaim all chunks of a volume
 * @v: the volume; its pool is locked
 *
 * Return: 0; -EBUSY when something is dirty; another negative errno.
 */
int vc_volume_clear(struct vc_volume *v)
{
	struct vc_log *log;
	int r;

	if (vc_volume_dirty(v)) {
		DMERR("%s: volume %u has data that is only in the cache, drain it first",
		      dm_device_name(v->pool->md), v->id);
		return -EBUSY;
	}
	r = vc_volume_forget(v);
	list_for_each_entry(log, &v->logs, node) {
		if (!r)
			r = vc_log_clear(log);
	}
	return r;
}

/* The slot becomes free, and so what the chunks say is of no volume. */
static int vc_volume_erase(struct vc_volume *v)
{
	struct vc_pool *p = v->pool;
	u32 i, k, id = v->id;
	int r;

	cancel_delayed_work_sync(&v->destage);
	v->id = 0;
	r = vc_slot_save(v);
	if (r) {
		v->id = id;
		return r;
	}
	for (i = p->g.first_chunk; i < p->g.chunks; i++) {
		struct vc_chunk *c = &p->chunk[i];

		if (c->log ? c->log->vol != v :
		    !p->found[i].gen || p->found[i].volume != id)
			continue;
		for (k = 0; c->log && k < vc_chunk_capacity(&p->g); k++)
			vc_lookup_drop(p, i * p->g.chunk_blocks + k);
		p->found[i].gen = 0;
		list_del_init(&c->node);
		vc_chunk_release(p, c);
	}
	vc_volume_free(v);
	return 0;
}

/**
 * vc_volume_drop - an administrator has no more use for a volume
 * @p: the pool
 * @id: its number
 * @force: also when that loses data
 * @error: says what was wrong
 *
 * Return: 0 or a negative errno.
 */
int vc_volume_drop(struct vc_pool *p, u32 id, bool force, const char **error)
{
	struct vc_volume *v;
	int r = 0;

	mutex_lock(&p->lock);
	v = vc_volume_find(p, id);
	if (!v) {
		*error = "there is no such volume";
		r = -ENOENT;
	} else if (v->dev) {
		*error = "the volume is in use";
		r = -EBUSY;
	} else if (!force && (!v->replayed || vc_volume_dirty(v))) {
		*error = "the volume may have data that is only in the cache";
		r = -EBUSY;
	}
	if (!r)
		r = vc_volume_erase(v);
	mutex_unlock(&p->lock);
	return r;
}
