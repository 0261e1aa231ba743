// SPDX-License-Identifier: GPL-2.0-only
/*
 * dm-vcache: the state of an elastic SSD, from its first table to its end.
 *
 * It belongs to the mapped device, not to a table, so its content survives a reload. With persist,
 * its volume has a slot in the pool, and the chunk table has its blocks; these stay when the
 * device is removed. Without persist, the pool knows nothing of it on the device.
 */
#include <linux/sched/mm.h>
#include <linux/slab.h>

#include "internal.h"

static DEFINE_MUTEX(vc_vssds_lock);
static LIST_HEAD(vc_vssds);

static void vc_vssd_free_state(struct vcache_vssd *s)
{
	if (s->wq)
		destroy_workqueue(s->wq);
	kvfree(s->map);
	kvfree(s->raw.chunk);
	kvfree(s->ready.chunk);
	mutex_destroy(&s->mutex);
	kfree(s);
}

static struct vcache_vssd *vc_vssd_make(struct mapped_device *md)
{
	struct vcache_vssd *s = kzalloc(sizeof(*s), GFP_KERNEL);

	if (!s)
		return NULL;
	s->md = md;
	s->suspended = true;
	spin_lock_init(&s->lock);
	mutex_init(&s->mutex);
	init_waitqueue_head(&s->idle);
	bio_list_init(&s->deferred);
	bio_list_init(&s->starved);
	INIT_WORK(&s->work, vc_vssd_work);
	INIT_DELAYED_WORK(&s->fill, vc_vssd_fill_work);
	s->wq = alloc_workqueue("vcache-vssd/%s", WQ_MEM_RECLAIM | WQ_UNBOUND, 0,
				dm_device_name(md));
	if (!s->wq) {
		vc_vssd_free_state(s);
		return NULL;
	}
	return s;
}

/**
 * vc_vssd_get - get the state of a mapped device for a table
 * @md: the mapped device
 *
 * Return: the state, or NULL without memory.
 */
struct vcache_vssd *vc_vssd_get(struct mapped_device *md)
{
	struct vcache_vssd *s;

	mutex_lock(&vc_vssds_lock);
	list_for_each_entry(s, &vc_vssds, registry) {
		if (s->md == md)
			goto found;
	}
	s = vc_vssd_make(md);
	if (!s)
		goto out;
	list_add_tail(&s->registry, &vc_vssds);
found:
	s->tables++;
out:
	mutex_unlock(&vc_vssds_lock);
	return s;
}

/* Return all chunks without a block; without persist, the others as well. The pool is locked. */
static void vc_vssd_return_all(struct vcache_vssd *s)
{
	u32 i;

	while (s->raw.nr)
		vcache_direct_return(s->pool, s->raw.chunk[--s->raw.nr]);
	while (s->ready.nr)
		vcache_direct_return(s->pool, s->ready.chunk[--s->ready.nr]);
	for (i = 0; i < s->blocks && !s->persist; i++) {
		if (vc_vssd_is_chunk(s->map[i].chunk))
			vcache_direct_return(s->pool, s->map[i].chunk);
		cond_resched();
	}
}

/* Leave the pool. Nothing uses the elastic SSD any more. */
static void vc_vssd_detach(struct vcache_vssd *s)
{
	struct vcache_pool *p = s->pool;

	mutex_lock(&p->lock);
	vcache_direct_want(p, s->wanted, 0);
	vc_vssd_return_all(s);
	s->vol->vssd_used = false;
	if (!s->persist)
		vcache_volume_free(s->vol);
	p->attached--;
	mutex_unlock(&p->lock);
}

/**
 * vc_vssd_put - drop a table's reference to the state of its device
 * @s: the elastic SSD
 */
void vc_vssd_put(struct vcache_vssd *s)
{
	bool last;

	mutex_lock(&vc_vssds_lock);
	last = !--s->tables;
	if (last)
		list_del(&s->registry);
	mutex_unlock(&vc_vssds_lock);
	if (!last)
		return;
	cancel_delayed_work_sync(&s->fill);
	flush_work(&s->work);
	if (s->pool)
		vc_vssd_detach(s);
	vc_vssd_free_state(s);
}

/**
 * vc_vssd_set_quota - change how many chunks an elastic SSD may own
 * @s: the elastic SSD, which has a pool
 * @quota: so many
 * @keep: do not return chunks above the quota before the next call, or before chunks are taken
 *
 * Return: 0; -ENOSPC: all elastic SSDs together would have more than the pool can give.
 */
int vc_vssd_set_quota(struct vcache_vssd *s, u32 quota, bool keep)
{
	struct vcache_vssd *other;
	u64 sum = quota;
	int r = 0;

	mutex_lock(&vc_vssds_lock);
	list_for_each_entry(other, &vc_vssds, registry) {
		if (other != s && other->pool == s->pool)
			sum += max(other->quota, vc_vssd_owned(other));
	}
	spin_lock_irq(&s->lock);
	/* Less is always possible. */
	if (quota > s->quota && sum > vcache_direct_space(s->pool)) {
		r = -ENOSPC;
	} else {
		WRITE_ONCE(s->quota, quota);
		s->keep = keep;
	}
	spin_unlock_irq(&s->lock);
	mutex_unlock(&vc_vssds_lock);
	return r;
}

/* Make space for so many blocks. They are of the pool's chunk size. The device is suspended. */
static int vc_vssd_grow(struct vcache_vssd *s, u32 blocks)
{
	struct vc_vssd_block *map;
	u32 *raw, *ready;

	if (blocks <= s->blocks)
		return blocks == s->blocks ? 0 : -EINVAL;
	map = kvcalloc(blocks, sizeof(*map), GFP_KERNEL);
	raw = kvcalloc(blocks, sizeof(*raw), GFP_KERNEL);
	ready = kvcalloc(blocks, sizeof(*ready), GFP_KERNEL);
	if (!map || !raw || !ready) {
		kvfree(map);
		kvfree(raw);
		kvfree(ready);
		return -ENOMEM;
	}
	if (s->map) {
		memcpy(map, s->map, s->blocks * sizeof(*map));
		memcpy(raw, s->raw.chunk, s->raw.nr * sizeof(*raw));
		memcpy(ready, s->ready.chunk, s->ready.nr * sizeof(*ready));
	}
	mutex_lock(&s->mutex);
	spin_lock_irq(&s->lock);
	swap(s->map, map);
	swap(s->raw.chunk, raw);
	swap(s->ready.chunk, ready);
	s->blocks = blocks;
	spin_unlock_irq(&s->lock);
	mutex_unlock(&s->mutex);
	kvfree(map);
	kvfree(raw);
	kvfree(ready);
	return 0;
}

/* Find the chunks that the chunk table has for it. The pool is locked. */
static void vc_vssd_load(struct vcache_vssd *s)
{
	u32 chunk, block, i;

	for (chunk = 0; vcache_direct_next(s->vol, &chunk, &block); chunk++) {
		if (block >= s->blocks || s->map[block].chunk) {
			DMERR("%s: chunk %u has block %u, which is outside or has another chunk",
			      dm_device_name(s->md), chunk, block);
			continue;
		}
		s->map[block].chunk = chunk;
		s->mapped++;
	}
	for (i = 0; i < s->blocks && s->vol->flags & VC_SLOT_TAKEN; i++) {
		if (!s->map[i].chunk) {
			s->map[i].chunk = VC_VSSD_TAKEN;
			s->taken++;
		}
	}
}

/* Write what a persistent elastic SSD needs on the cache device. The pool is locked. */
static int vc_vssd_save(struct vcache_vssd *s, sector_t sectors)
{
	struct vcache_pool *p = s->pool;
	int r = 0;

	/* An older module must not take its chunks for free ones. */
	if (!(p->sb.flags & VC_SUPER_VSSD))
		r = vcache_pool_set_flags(p, p->sb.flags | VC_SUPER_VSSD);
	if (r || s->vol->sectors == sectors)
		return r;
	s->vol->sectors = sectors;
	return vcache_slot_save(s->vol);
}

/* May an elastic SSD use a volume that exists? */
static int vc_vssd_may_use(struct vcache_vssd *s, const struct vcache_volume *v, sector_t sectors)
{
	if (v->mode != VC_VOLUME_VSSD || v->vssd_used) {
		DMERR("%s: volume %u is in use, or is a volume of a cache",
		      dm_device_name(s->md), v->id);
		return -EBUSY;
	}
	if (v->sectors > sectors) {
		DMERR("%s: volume %u has %llu sectors, and cannot shrink; drop it first",
		      dm_device_name(s->md), v->id, v->sectors);
		return -EFBIG;
	}
	return 0;
}

/* Find or make its volume. The pool is locked. Return: the volume or an ERR_PTR(). */
static struct vcache_volume *vc_vssd_volume(struct vcache_vssd *s, struct vcache_pool *p, u32 id,
					    sector_t sectors)
{
	struct vcache_volume *v = vcache_volume_find(p, id);
	int r = vcache_pool_begin_use(p);

	lockdep_assert_held(&p->lock);
	if (!r && v)
		r = vc_vssd_may_use(s, v, sectors);
	if (r)
		return ERR_PTR(r);
	if (v)
		return v;
	v = vcache_volume_make(p, id);
	if (!IS_ERR(v))
		v->mode = VC_VOLUME_VSSD;
	return v;
}

static int vc_vssd_attach_locked(struct vcache_vssd *s, struct vcache_pool *p, u32 id,
				 sector_t sectors)
{
	struct vcache_volume *v = vc_vssd_volume(s, p, id, sectors);
	bool made;
	int r = 0;

	if (IS_ERR(v))
		return PTR_ERR(v);
	made = !v->sectors;
	s->pool = p;
	s->vol = v;
	if (s->persist)
		r = vc_vssd_save(s, sectors);
	else
		v->sectors = sectors;
	if (r) {
		if (made)
			vcache_volume_free(v);
		s->pool = NULL;
		s->vol = NULL;
		return r;
	}
	v->vssd_used = true;
	p->attached++;
	vc_vssd_load(s);
	return 0;
}

/* Become the user of its volume. */
static int vc_vssd_attach(struct vcache_vssd *s, struct vcache_pool *p,
			  const struct vc_vssd_target *vt, sector_t sectors)
{
	const char *error;
	bool old;
	int r;

	mutex_lock(&p->lock);
	old = vcache_volume_find(p, vt->volume);
	mutex_unlock(&p->lock);
	s->persist = vt->persist;
	/* What an elastic SSD of this number had with persist must not show without. */
	if (old && !s->persist) {
		r = vcache_volume_drop_vssd(p, vt->volume, &error);
		if (r) {
			DMERR("%s: volume %u: %s", dm_device_name(s->md), vt->volume, error);
			return r;
		}
	}
	mutex_lock(&p->lock);
	r = vc_vssd_attach_locked(s, p, vt->volume, sectors);
	mutex_unlock(&p->lock);
	return r;
}

static int vc_vssd_activate_noio(struct vcache_vssd *s, struct vc_vssd_target *vt,
				 sector_t sectors)
{
	struct vcache_pool *p = vcache_pool_find(vt->pool_dev->bdev);
	int r;

	if (!p)
		return -ENODEV;
	if (s->pool && (p != s->pool || vt->volume != s->vol->id || vt->persist != s->persist)) {
		DMERR("%s: the pool, the volume and 'persist' cannot change",
		      dm_device_name(s->md));
		return -EINVAL;
	}
	s->shift = ilog2(p->g.chunk_blocks * VC_BLOCK_SECTORS);
	r = vc_vssd_grow(s, sectors >> s->shift);
	if (r) {
		DMERR("%s: it cannot shrink, or there is no memory: error %d",
		      dm_device_name(s->md), r);
		return r;
	}
	if (!s->pool) {
		r = vc_vssd_attach(s, p, vt, sectors);
	} else if (s->persist) {
		mutex_lock(&p->lock);
		r = vc_vssd_save(s, sectors);
		mutex_unlock(&p->lock);
	}
	if (r)
		return r;
	/* A suspend does not end a shrink. */
	r = vc_vssd_set_quota(s, vt->quota, s->keep);
	if (r)
		DMERR("%s: the elastic SSDs of the pool cannot have so many blocks",
		      dm_device_name(s->md));
	return r;
}

/**
 * vc_vssd_activate - make a table the active one
 * @s: the elastic SSD, suspended
 * @vt: the table
 * @sectors: its size
 *
 * It must not wait for memory that only I/O of this device can free.
 *
 * Return: 0 or a negative errno.
 */
int vc_vssd_activate(struct vcache_vssd *s, struct vc_vssd_target *vt, sector_t sectors)
{
	unsigned int noio = memalloc_noio_save();
	int r = vc_vssd_activate_noio(s, vt, sectors);

	memalloc_noio_restore(noio);
	return r;
}

/**
 * vc_vssd_suspend - end a suspend: no request of dm is in flight any more
 * @s: the elastic SSD
 */
void vc_vssd_suspend(struct vcache_vssd *s)
{
	WRITE_ONCE(s->suspended, true);
	cancel_delayed_work_sync(&s->fill);
	flush_work(&s->work);
}

/**
 * vc_vssd_resume - allow I/O again
 * @s: the elastic SSD
 */
void vc_vssd_resume(struct vcache_vssd *s)
{
	WRITE_ONCE(s->suspended, false);
	vc_vssd_fill_soon(s);
}
