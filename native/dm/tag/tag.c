// SPDX-License-Identifier: GPL-2.0-only
/*
 * dm-vcache: tags, their shares of the buffer memory, and their removal.
 */
#include <linux/module.h>
#include <linux/slab.h>

#include "../base/compat.h"
#include "internal.h"

#define VC_WEIGHT_DEFAULT 100U

/* Minimum time between two announcements of events of a kind. */
#define VC_EVENT_DELAY (HZ / 10)

/* Guards the list of all tags of the host, and vcache_tag.limit. Taken under vcache_dev.lock. */
static DEFINE_MUTEX(vc_limits_lock);
static LIST_HEAD(vc_limits_tags);

static const struct vcache_tag_ops *vc_tag_upper __ro_after_init;

/**
 * vcache_tag_register - set what upper layers do for tags
 * @ops: their operations; called before there is a tag
 */
void __init vcache_tag_register(const struct vcache_tag_ops *ops)
{
	vc_tag_upper = ops;
	vcache_stats_init();
}

static unsigned int buffer_mb = 128;

/* In volume scope hTag has no data, so it has no weight. */
static unsigned int vc_limits_weight(const struct vcache_tag *tag)
{
	return tag == tag->dev->host && tag->dev->volume ? 0 : READ_ONCE(tag->weight);
}

static void vc_limits_share(void)
{
	u64 pages = ((u64)READ_ONCE(buffer_mb) << 20) >> PAGE_SHIFT;
	struct vcache_tag *tag;
	u64 weights = 0;

	list_for_each_entry(tag, &vc_limits_tags, registry)
		weights += vc_limits_weight(tag);
	if (!weights)
		return;
	list_for_each_entry(tag, &vc_limits_tags, registry)
		WRITE_ONCE(tag->limit,
			   max_t(u64, VC_LIMIT_MIN,
				 div64_u64(pages * vc_limits_weight(tag),
					   weights)));
}

/**
 * vcache_limits_update - share the buffer memory out by weight again
 *
 * A tag above its new limit gets no pages until enough of its data has been written out.
 */
void vcache_limits_update(void)
{
	mutex_lock(&vc_limits_lock);
	vc_limits_share();
	mutex_unlock(&vc_limits_lock);
}

static int vc_buffer_mb_set(const char *val, const struct kernel_param *kp)
{
	int r = param_set_uint_minmax(val, kp, 1, 1U << 20);

	if (!r)
		vcache_limits_update();
	return r;
}

static const struct kernel_param_ops vc_buffer_mb_ops = {
	.set = vc_buffer_mb_set,
	.get = param_get_uint,
};
module_param_cb(buffer_mb, &vc_buffer_mb_ops, &buffer_mb, 0644);
MODULE_PARM_DESC(buffer_mb, "Write buffer memory of the host in MiB, shared by weight (1..1048576, default 128)");

static unsigned long vc_shrink_count(struct shrinker *shrinker,
				     struct shrink_control *sc)
{
	unsigned long pages = 0;
	struct vcache_tag *tag;

	if (!mutex_trylock(&vc_limits_lock))
		return 0;
	list_for_each_entry(tag, &vc_limits_tags, registry)
		pages += atomic_read(&tag->used);
	mutex_unlock(&vc_limits_lock);
	return pages;
}

/* Memory is short: write out dirty data. Its pages are freed later. */
static unsigned long vc_shrink_scan(struct shrinker *shrinker,
				    struct shrink_control *sc)
{
	struct vcache_tag *tag;

	if (!mutex_trylock(&vc_limits_lock))
		return SHRINK_STOP;
	list_for_each_entry(tag, &vc_limits_tags, registry)
		vcache_tag_write_out(tag, sc->nr_to_scan);
	mutex_unlock(&vc_limits_lock);
	return SHRINK_STOP;
}

static struct shrinker *vc_shrinker;

int __init vcache_shrinker_init(void)
{
	vc_shrinker = vcache_shrinker_make(vc_shrink_count, vc_shrink_scan);
	return vc_shrinker ? 0 : -ENOMEM;
}

void vcache_shrinker_exit(void)
{
	vcache_shrinker_drop(vc_shrinker);
}

/**
 * vcache_tag_find - find a tag by its number
 * @dev: the device
 * @id: the number
 *
 * Called under vcache_dev.lock or rcu_read_lock().
 *
 * Return: the tag, or NULL if there is none.
 */
struct vcache_tag *vcache_tag_find(struct vcache_dev *dev, u32 id)
{
	struct vcache_tag *tag;

	list_for_each_entry_rcu(tag, &dev->tags, node,
				lockdep_is_held(&dev->lock)) {
		if (tag->id == id && !tag->orphan)
			return tag;
	}
	return NULL;
}

/**
 * vcache_tag_make - make a tag
 * @dev: the device
 * @id: a number that no tag of the device has
 *
 * Called under vcache_dev.lock.
 *
 * Return: the tag, or NULL without memory.
 */
struct vcache_tag *vcache_tag_make(struct vcache_dev *dev, u32 id)
{
	struct vcache_tag *tag = kzalloc(sizeof(*tag), GFP_KERNEL);
	unsigned int s;

	lockdep_assert_held(&dev->lock);
	if (!tag)
		return NULL;
	tag->stats = vcache_stats_make();
	if (!tag->stats) {
		kfree(tag);
		return NULL;
	}
	tag->dev = dev;
	tag->id = id;
	tag->seq = ++dev->next_seq;
	tag->weight = VC_WEIGHT_DEFAULT;
	tag->mode = VCACHE_MODE_WRITEBACK;
	spin_lock_init(&tag->lock);
	for (s = 0; s < VC_EPOCH_SLOTS; s++)
		INIT_LIST_HEAD(&tag->waiters[s]);
	INIT_LIST_HEAD(&tag->dirty);
	INIT_LIST_HEAD(&tag->ready);
	mutex_init(&tag->writer);
	INIT_LIST_HEAD(&tag->batch);
	bio_list_init(&tag->waiting);
	bio_list_init(&tag->sent);
	bio_list_init(&tag->committing);
	bio_list_init(&tag->refused);
	INIT_WORK(&tag->work, vc_tag_upper->write_out);
	INIT_WORK(&tag->commit_work, vc_tag_upper->commit);
	if (dev->vol && vc_tag_upper->join(dev->vol, tag)) {
		kvfree(tag->stats);
		kfree(tag);
		return NULL;
	}

	mutex_lock(&vc_limits_lock);
	list_add_tail(&tag->registry, &vc_limits_tags);
	vc_limits_share();
	mutex_unlock(&vc_limits_lock);
	list_add_tail_rcu(&tag->node, &dev->tags);
	return tag;
}

/**
 * vcache_tag_set_mode - set the mode of a tag
 * @tag: the tag; of a device in writeback mode, unless @mode is the mode of the device
 * @mode: writeback, writethrough or flush-only
 *
 * It applies from the next write-out on. In another mode than writeback, destage writes the
 * dirty data in the cache at full speed.
 */
void vcache_tag_set_mode(struct vcache_tag *tag, enum vcache_mode mode)
{
	if (!tag->dev->writeback)
		return;
	WRITE_ONCE(tag->mode, mode);
}

/**
 * vcache_tag_remove - remove a tag, for user space
 * @tag: not hTag
 *
 * From now on every flush covers its data. The tag is freed when it is drained. Called
 * under vcache_dev.lock.
 */
void vcache_tag_remove(struct vcache_tag *tag)
{
	const struct vcache_staged none = { };
	struct vcache_refusal why;

	lockdep_assert_held(&tag->dev->lock);
	WRITE_ONCE(tag->orphan, true);
	/* An empty list of cgroups needs no memory ... */
	vcache_tag_set_cgroups(tag, NULL, 0);
	/* ... but a map does. Without memory all extents are dropped. */
	if (vcache_tag_set_extents(tag, &none, &why))
		vcache_extents_drop(tag->dev);
	/* After this no write is attributed to the tag any more. */
	synchronize_rcu();
	vcache_tag_write_out(tag, UINT_MAX);
	mod_delayed_work(tag->dev->wq, &tag->dev->age_work, 1);
	mod_delayed_work(system_long_wq, &tag->dev->collect_work, 1);
}

static void vc_tag_free(struct vcache_tag *tag)
{
	/* The shrinker starts workers of tags: it must not find this one any more. */
	mutex_lock(&vc_limits_lock);
	list_del(&tag->registry);
	vc_limits_share();
	mutex_unlock(&vc_limits_lock);
	cancel_work_sync(&tag->work);
	cancel_work_sync(&tag->commit_work);
	vc_tag_upper->leave(tag);
	kvfree(tag->staged.s);
	kvfree(tag->staged_remove.s);
	kfree(rcu_dereference_protected(tag->cgroups, true));
	vcache_payer_forget(tag);
	vcache_curve_free(tag->curve);
	kvfree(tag->stats);
	kfree(tag);
}

static bool vc_tag_unused(struct vcache_tag *tag)
{
	bool unused;

	spin_lock_irq(&tag->lock);
	unused = vcache_epoch_idle(&tag->epoch) && bio_list_empty(&tag->waiting) &&
		 !atomic_read(&tag->used) && !atomic_read(&tag->timed) &&
		 !atomic_read(&tag->inflight) &&
		 /* It may have taken a write from the list that has to wait on. */
		 !work_busy(&tag->work);
	spin_unlock_irq(&tag->lock);
	return unused;
}

/**
 * vcache_collect_work - free removed tags that are drained
 * @work: vcache_dev.collect_work
 *
 * It waits for the lock of the device, and the holder of that may wait for workers of
 * tags. So it must not run in their workqueue: without memory that has a single thread.
 */
void vcache_collect_work(struct work_struct *work)
{
	struct vcache_dev *dev = container_of(to_delayed_work(work), struct vcache_dev,
					      collect_work);
	struct vcache_tag *tag, *next;
	bool left = false;
	LIST_HEAD(gone);

	vcache_dev_lock(dev);
	list_for_each_entry_safe(tag, next, &dev->tags, node) {
		if (!tag->orphan)
			continue;
		if (vc_tag_unused(tag)) {
			list_del_rcu(&tag->node);
			list_add(&tag->gone, &gone);
		} else {
			left = true;
		}
	}
	vcache_dev_unlock(dev);
	if (!list_empty(&gone)) {
		/* Flushes may be at this tag, and the reaper may still use it. */
		synchronize_rcu();
		flush_work(&dev->reap_work);
	}
	list_for_each_entry_safe(tag, next, &gone, gone)
		vc_tag_free(tag);
	if (left && !READ_ONCE(dev->suspended))
		queue_delayed_work(system_long_wq, &dev->collect_work,
				   vcache_age_tick(dev));
}

/**
 * vcache_tags_free - free all tags of a device that nothing uses any more
 * @dev: the device
 */
void vcache_tags_free(struct vcache_dev *dev)
{
	struct vcache_tag *tag, *next;

	list_for_each_entry_safe(tag, next, &dev->tags, node) {
		list_del_rcu(&tag->node);
		vc_tag_free(tag);
	}
}

/**
 * vcache_tag_event - announce an event of a tag soon
 * @tag: the tag
 * @kind: what happened
 *
 * Called in any context, also with locks held.
 */
void vcache_tag_event(struct vcache_tag *tag, enum vcache_event_kind kind)
{
	if (!test_and_set_bit(kind, &tag->events))
		queue_delayed_work(system_long_wq, &tag->dev->event_work,
				   VC_EVENT_DELAY);
}

/**
 * vcache_event_work - announce events of a device's tags
 * @work: vcache_dev.event_work
 */
void vcache_event_work(struct work_struct *work)
{
	struct vcache_dev *dev = container_of(to_delayed_work(work), struct vcache_dev,
					      event_work);
	enum vcache_event_kind kind;
	struct vcache_tag *tag;

	vcache_dev_lock(dev);
	list_for_each_entry(tag, &dev->tags, node) {
		for (kind = 0; kind <= VCACHE_EVENT_KIND_CACHE_ERROR; kind++) {
			if (test_and_clear_bit(kind, &tag->events))
				vc_tag_upper->announce(dev, tag->id, kind);
		}
	}
	vcache_dev_unlock(dev);
}
