// SPDX-License-Identifier: GPL-2.0-only
/*
 * dm-vcache: the extents of tags, in filesystem scope.
 *
 * All tags of a device have one map, native/core/runs.h, so that a sector has at most one tag,
 * and a request is looked up once. Requests read it under RCU. Changes are made under
 * vcache_dev.lock; each replaces the few pages of memory that it touches.
 */
#include <linux/module.h>
#include <linux/slab.h>

#include "internal.h"

static_assert(sizeof(struct vcache_sectors) == sizeof(struct vcache_extent));
static_assert(offsetof(struct vcache_sectors, len) ==
	      offsetof(struct vcache_extent, len));

#define VC_EXTENTS_MAX_DEFAULT	65536U

/* A leaf or a directory, with what frees it. */
struct vc_leaf {
	struct rcu_head rcu;
	struct vcache_leaf leaf;
};

struct vc_map {
	struct rcu_head rcu;
	struct vcache_runs map;
};

static_assert(sizeof(struct vc_leaf) + VC_LEAF_MAX * sizeof(struct vcache_run) <= 4096);
static_assert(sizeof(struct vc_leaf) + VC_LEAF_HALF * sizeof(struct vcache_run) <= 2048);

static unsigned int extents_max = VC_EXTENTS_MAX_DEFAULT;

static int vc_extents_max_set(const char *val, const struct kernel_param *kp)
{
	return param_set_uint_minmax(val, kp, 1, 1U << 24);
}

static const struct kernel_param_ops vc_extents_max_ops = {
	.set = vc_extents_max_set,
	.get = param_get_uint,
};
module_param_cb(extents_max, &vc_extents_max_ops, &extents_max, 0644);
MODULE_PARM_DESC(extents_max, "Most extents of a tag (1..16777216, default 65536)");

/**
 * vcache_extents_max - get the limit of extents of a tag
 *
 * Otherwise a guest could fill the memory of the host by fragmenting its image.
 */
unsigned int vcache_extents_max(void)
{
	return READ_ONCE(extents_max);
}

static struct vcache_leaf *vc_leaf_alloc(size_t runs)
{
	struct vc_leaf *m = kmalloc(struct_size(m, leaf.run, runs), GFP_KERNEL);

	return m ? &m->leaf : NULL;
}

static void vc_leaf_free(struct vcache_leaf *leaf)
{
	kfree(container_of(leaf, struct vc_leaf, leaf));
}

static struct vcache_runs *vc_map_alloc(size_t leaves)
{
	struct vc_map *m = kvmalloc(sizeof(*m) - sizeof(m->map) + vcache_runs_size(leaves),
				    GFP_KERNEL | __GFP_NOWARN);

	if (!m)
		return NULL;
	vcache_runs_init(&m->map, leaves);
	return &m->map;
}

static struct vcache_runs *vc_map_locked(struct vcache_dev *dev)
{
	return rcu_dereference_protected(dev->map, lockdep_is_held(&dev->lock));
}

static void vc_leaf_free_later(struct vcache_leaf *leaf)
{
	struct vc_leaf *m = container_of(leaf, struct vc_leaf, leaf);

	kfree_rcu(m, rcu);
}

static void vc_map_free_later(struct vcache_runs *map)
{
	struct vc_map *m = container_of(map, struct vc_map, map);

	kvfree_rcu(m, rcu);
}

/* Change the map, and free what readers may still use after them. */
static int vc_map_change(struct vcache_dev *dev, struct vcache_change *c)
{
	struct vcache_leaf *leaf;
	int r;

	lockdep_assert_held(&dev->lock);
	c->map = vc_map_locked(dev);
	c->most = vcache_extents_max();
	c->leaf_alloc = vc_leaf_alloc;
	c->leaf_free = vc_leaf_free;
	c->map_alloc = vc_map_alloc;
	r = vcache_change_apply(c);
	if (r)
		return r;
	if (c->to != c->map) {
		rcu_assign_pointer(dev->map, c->to);
		if (c->map)
			vc_map_free_later(c->map);
	}
	while ((leaf = c->gone)) {
		c->gone = leaf->next;
		vc_leaf_free_later(leaf);
	}
	return 0;
}

/**
 * vcache_extents_drop - drop all extents: everything is hTag's until they are set again
 * @dev: the device
 *
 * Used if there is no memory for a change. Called under vcache_dev.lock.
 */
void vcache_extents_drop(struct vcache_dev *dev)
{
	struct vcache_runs *map = vc_map_locked(dev);
	struct vcache_tag *tag;
	size_t i;

	lockdep_assert_held(&dev->lock);
	rcu_assign_pointer(dev->map, NULL);
	for (i = 0; map && i < map->nr; i++)
		vc_leaf_free_later(map->leaf[i]);
	if (map)
		vc_map_free_later(map);
	list_for_each_entry(tag, &dev->tags, node) {
		if (!tag->extents.runs)
			continue;
		tag->extents.runs = 0;
		tag->extents.sectors = 0;
		vcache_tag_event(tag, VCACHE_EVENT_KIND_EXTENTS_LOST);
	}
}

/**
 * vcache_extents_free - free the map of a device that nothing uses any more
 * @dev: the device
 */
void vcache_extents_free(struct vcache_dev *dev)
{
	struct vcache_runs *map = rcu_dereference_protected(dev->map, true);
	size_t i;

	if (!map)
		return;
	for (i = 0; i < map->nr; i++)
		vc_leaf_free(map->leaf[i]);
	kvfree(container_of(map, struct vc_map, map));
}

static int vc_tag_change(struct vcache_tag *tag, struct vcache_change *c,
			 struct vcache_refusal *why)
{
	int r;

	c->owner = &tag->extents;
	r = vc_map_change(tag->dev, c);
	if (r == -EEXIST) {
		why->sector = c->clash;
		why->other = vcache_tag_of_owner(c->other);
	}
	if (r == -E2BIG)
		why->runs = c->runs;
	return r;
}

/**
 * vcache_tag_set_extents - replace the extents of a tag
 * @tag: the tag
 * @add: the new ones, checked by vcache_sectors_check()
 * @why: set after an error
 *
 * Called under vcache_dev.lock.
 *
 * Return: 0; -ENOMEM; -EEXIST if a sector belongs to another tag; -E2BIG if they are too many.
 * On error nothing has changed.
 */
int vcache_tag_set_extents(struct vcache_tag *tag, const struct vcache_staged *add,
			   struct vcache_refusal *why)
{
	struct vcache_change c = { .all = true, .add = add->s, .adds = add->nr };

	return vc_tag_change(tag, &c, why);
}

/**
 * vcache_tag_change_extents - remove and add extents of a tag, in one step
 * @tag: the tag
 * @remove: sectors to remove, checked by vcache_sectors_check(); they need not belong to it
 * @add: sectors to add then, also checked; they may belong to it already
 * @why: set after an error
 *
 * Called under vcache_dev.lock.
 *
 * Return: as vcache_tag_set_extents().
 */
int vcache_tag_change_extents(struct vcache_tag *tag, const struct vcache_staged *remove,
			      const struct vcache_staged *add, struct vcache_refusal *why)
{
	struct vcache_change c = { .remove = remove->s, .removes = remove->nr,
				   .add = add->s, .adds = add->nr };

	return vc_tag_change(tag, &c, why);
}

/**
 * vcache_extents_punch - remove a range that is discarded from all tags' extents
 * @dev: the device
 * @start: first sector
 * @len: number of sectors
 *
 * The file system may reuse the range when the discard is complete. From then on these
 * extents must not attribute a write to a tag. A hole in an extent makes two of it; if the tag
 * may not have more, it loses the shorter one as well.
 */
void vcache_extents_punch(struct vcache_dev *dev, sector_t start, sector_t len)
{
	struct vcache_sectors range = { .start = start, .len = len };
	struct vcache_change c = { .remove = &range, .removes = 1 };

	if (!rcu_access_pointer(dev->map))
		return;
	vcache_dev_lock(dev);
	if (vc_map_change(dev, &c))
		vcache_extents_drop(dev);
	vcache_dev_unlock(dev);
}
