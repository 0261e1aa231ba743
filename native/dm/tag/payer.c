// SPDX-License-Identifier: GPL-2.0-only
/*
 * dm-vcache: payers: the block cgroup that pays for what is written to the origin in the
 * background.
 *
 * Without it, workers of the module pay: the writes are those of the root cgroup, which has no
 * limits and no weight. So a cgroup could write to a slow disk as much as it likes, although its
 * direct writes there are limited (io.max, io.weight).
 *
 * The payer is the cgroup of the last write. Only a target in volume scope has one: all data of its
 * volume belongs to its tag. In filesystem scope, a window of destage has blocks of several tags,
 * and the limit of one cgroup would delay the data of others. A drain has no payer either: an
 * operator waits for it.
 */
#include <linux/bio.h>
#include <linux/blk-cgroup.h>
#include <linux/cgroup.h>

#include "internal.h"

/* The block cgroup of the current task; NULL if the kernel has none. */
static struct cgroup_subsys_state *vc_submitter_pays(void)
{
#ifdef CONFIG_BLK_CGROUP
	return task_css(current, io_cgrp_id);
#else
	return NULL;
#endif
}

/**
 * vcache_payer_note - remember who writes
 * @tag: the tag; the current task submits a write of it
 *
 * A write of the root cgroup changes nothing: it may be that of a worker of the layer above. dm
 * has not associated the request with a cgroup yet. Called under rcu_read_lock().
 */
void vcache_payer_note(struct vcache_tag *tag)
{
	struct cgroup_subsys_state *css = vc_submitter_pays(), *old;

	if (!css || !css->parent || css == READ_ONCE(tag->payer) || !css_tryget(css))
		return;
	old = xchg(&tag->payer, css);
	if (old)
		css_put(old);
}

/**
 * vcache_payer_forget - drop the reference to the payer
 * @tag: the tag
 */
void vcache_payer_forget(struct vcache_tag *tag)
{
	struct cgroup_subsys_state *old = xchg(&tag->payer, NULL);

	if (old)
		css_put(old);
}

/**
 * vcache_payer_charge - charge a request to the payer, if there is one
 * @tag: the tag whose data it writes
 * @bio: the request; its device is set
 *
 * If the cgroup has been removed, an ancestor pays.
 */
void vcache_payer_charge(struct vcache_tag *tag, struct bio *bio)
{
	struct cgroup_subsys_state *css;

	/* A cgroup is freed after a grace period. */
	rcu_read_lock();
	css = READ_ONCE(tag->payer);
	if (css)
		bio_associate_blkg_from_css(bio, css);
	rcu_read_unlock();
}
