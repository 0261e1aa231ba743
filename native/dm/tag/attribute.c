// SPDX-License-Identifier: GPL-2.0-only
/*
 * dm-vcache: attribution: which tag does a request belong to?
 *
 * In filesystem scope a write belongs to a tag only if the submitter is in one of the
 * tag's cgroups *and* every sector is in the tag's known, written extents. Any other write
 * belongs to hTag (vFLUSH, section III-A: allocating writes belong to the host, because
 * the journal of the file system must cover them). So an outdated extent map does no harm
 * when blocks move to another owner: the writes of the new owner do not come from a cgroup
 * of the old one.
 *
 * The submitter is the current task: dm calls map in the context of submit_bio(). If a
 * layer above has passed the request to a kernel thread, that is in no cgroup of a tag.
 * Then a write belongs to hTag, and a flush covers everything. A kernel thread is never
 * attributed to a tag.
 *
 * Attribution may only narrow what is safe. In case of doubt a write belongs to hTag,
 * which all flushes cover, and a flush covers everything.
 */
#include <linux/cgroup.h>
#include <linux/sched.h>
#include <linux/slab.h>

#include "internal.h"

/* The submitter's cgroup, or NULL if it can be in no tag's cgroup. */
static struct cgroup *vc_submitter(void)
{
	if (current->flags & PF_KTHREAD)
		return NULL;
	return task_dfl_cgroup(current);
}

/* The parent cgroup, or NULL: the root cgroup belongs to no tag. */
static struct cgroup *vc_level(struct cgroup *cg)
{
	return cg && cgroup_parent(cg) ? cg : NULL;
}

/**
 * vcache_tag_has_cgroup - does a cgroup belong to a tag?
 * @tag: the tag
 * @id: cgroup v2 id
 */
bool vcache_tag_has_cgroup(struct vcache_tag *tag, u64 id)
{
	struct vcache_cgroups *cgs;
	bool has = false;
	unsigned int i;

	rcu_read_lock();
	cgs = rcu_dereference(tag->cgroups);
	for (i = 0; cgs && i < cgs->nr && !has; i++)
		has = cgs->id[i] == id;
	rcu_read_unlock();
	return has;
}

static bool vc_tag_has_submitter(struct vcache_tag *tag)
{
	struct cgroup *cg;

	for (cg = vc_level(vc_submitter()); cg;
	     cg = vc_level(cgroup_parent(cg))) {
		if (vcache_tag_has_cgroup(tag, cgroup_id(cg)))
			return true;
	}
	return false;
}

/**
 * vcache_tag_of_range - find the tag that owns all sectors of a request
 * @vt: the target
 * @bio: the request
 *
 * Called under rcu_read_lock().
 *
 * Return: the tag; NULL if the sectors are not known to belong to one tag.
 */
struct vcache_tag *vcache_tag_of_range(struct vcache_target *vt, struct bio *bio)
{
	struct vcache_owner *owner;

	if (vt->scope == VCACHE_SCOPE_VOLUME)
		return vt->tag;
	owner = vcache_runs_owner(rcu_dereference(vt->dev->map), bio->bi_iter.bi_sector,
				  bio_sectors(bio));
	return owner ? vcache_tag_of_owner(owner) : NULL;
}

/**
 * vcache_tag_of_write - find the tag that a write belongs to
 * @vt: the target
 * @bio: the write, in the context of its submitter
 *
 * Called under rcu_read_lock().
 */
struct vcache_tag *vcache_tag_of_write(struct vcache_target *vt, struct bio *bio)
{
	struct vcache_tag *tag = vcache_tag_of_range(vt, bio);

	if (vt->scope == VCACHE_SCOPE_VOLUME)
		return tag;
	return tag && vc_tag_has_submitter(tag) ? tag : vt->dev->host;
}

/* Find the first tag that has a cgroup. */
static struct vcache_tag *vc_tag_of_cgroup(struct vcache_dev *dev, u64 id)
{
	struct vcache_tag *tag;

	list_for_each_entry_rcu(tag, &dev->tags, node) {
		if (vcache_tag_has_cgroup(tag, id))
			return tag;
	}
	return NULL;
}

/**
 * vcache_scope_of_flush - find out what a flush covers
 * @vt: the target
 * @f: the flush, in the context of its submitter; @all, @cgroup and @owner
 *     are set
 *
 * A submitter may have written as a tag of its own cgroup or of a parent. If more than one
 * level has tags the flush covers everything, so that no list of tags is needed.
 *
 * Called under rcu_read_lock().
 */
void vcache_scope_of_flush(struct vcache_target *vt, struct vcache_flush *f)
{
	struct vcache_tag *tag;
	struct cgroup *cg;

	f->all = true;
	f->owner = vt->dev->host;
	if (vt->scope == VCACHE_SCOPE_VOLUME) {
		f->owner = vt->tag;
		return;
	}
	for (cg = vc_level(vc_submitter()); cg;
	     cg = vc_level(cgroup_parent(cg))) {
		tag = vc_tag_of_cgroup(vt->dev, cgroup_id(cg));
		if (!tag)
			continue;
		if (!f->all) {
			f->all = true;
			return;
		}
		f->all = false;
		f->cgroup = cgroup_id(cg);
		f->owner = tag;
	}
}

/* Is any cgroup of the old list missing in the new one? */
static bool vc_cgroups_lose(const struct vcache_cgroups *old, const u64 *id,
			    unsigned int nr)
{
	unsigned int i, k;

	for (i = 0; old && i < old->nr; i++) {
		for (k = 0; k < nr && id[k] != old->id[i]; k++)
			;
		if (k == nr)
			return true;
	}
	return false;
}

/**
 * vcache_tag_set_cgroups - replace the cgroups of a tag
 * @tag: the tag
 * @id: cgroup v2 ids
 * @nr: how many; 0: none
 *
 * Flushes of a cgroup that is removed from the tag must still cover what it has written as
 * this tag. So every flush covers the tag until it has been durable once. Called under
 * vcache_dev.lock.
 *
 * Return: 0 or -ENOMEM.
 */
int vcache_tag_set_cgroups(struct vcache_tag *tag, const u64 *id, unsigned int nr)
{
	struct vcache_cgroups *old, *new = NULL;
	bool loses;

	lockdep_assert_held(&tag->dev->lock);
	if (nr) {
		new = kmalloc(struct_size(new, id, nr), GFP_KERNEL);
		if (!new)
			return -ENOMEM;
		new->nr = nr;
		memcpy(new->id, id, nr * sizeof(*id));
	}
	old = rcu_dereference_protected(tag->cgroups,
					lockdep_is_held(&tag->dev->lock));
	loses = vc_cgroups_lose(old, id, nr);
	if (loses)
		WRITE_ONCE(tag->exposed, VC_EXPOSED_CHANGING);
	/* From here on flushes under way cover everything. */
	atomic_inc(&tag->dev->attr_gen);
	rcu_assign_pointer(tag->cgroups, new);
	atomic_inc(&tag->dev->attr_gen);
	if (loses) {
		synchronize_rcu();
		WRITE_ONCE(tag->exposed, VC_EXPOSED);
		mod_delayed_work(tag->dev->wq, &tag->dev->age_work, 1);
	}
	if (old)
		kfree_rcu(old, rcu);
	return 0;
}
