// SPDX-License-Identifier: GPL-2.0-only
/*
 * dm-vcache: dropping what a volume has in the cache: because its origin is used without
 * the cache, because its mode changes, or because an administrator asks for it.
 */
#include <linux/slab.h>

#include "pool.h"

/**
 * vc_volume_forget - make all that the volume has in the cache invalid
 * @v: the volume, its pool is locked
 *
 * One write of the volume slot does that: records written so far do not count any more,
 * wherever they are.
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
 * Return: 0; -EBUSY if some are dirty; another negative errno.
 */
int vc_volume_clear(struct vc_volume *v)
{
	struct vc_log *log;
	int r;

	if (vc_volume_dirty(v)) {
		DMERR("%s: volume %u has dirty data: drain it first",
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

/* Free the slot. From then on the chunks belong to no volume. */
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
 * vc_volume_drop - remove a volume from its pool, for an administrator
 * @p: the pool
 * @id: its number
 * @force: even if that loses data
 * @error: set to what is wrong
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
		*error = "the volume may have dirty data in the cache";
		r = -EBUSY;
	}
	if (!r)
		r = vc_volume_erase(v);
	mutex_unlock(&p->lock);
	return r;
}
