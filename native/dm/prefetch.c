// SPDX-License-Identifier: GPL-2.0-only
/*
 * dm-vcache: blocks are brought into the cache before anybody reads them, because
 * somebody knows that they will be: they were there before their instance was
 * stopped.
 *
 * Each is a promotion (promote.c) that no request waits for: by the same rules it is
 * not old, and by the same it is given up. What it adds is only when: some at a
 * time, a tick between them, and while somebody reads from an origin (throttle.c), half
 * of the time is his. It has its place in a chunk before the origin is read: so no read is
 * for nothing, and when there is no chunk for it nothing is lost but time. What is
 * free beyond the reserve, and beyond what others above their shares would give, is
 * waited for, but not for long.
 *
 * A list is read by the work of its log alone, so only adding it, and taking it
 * away, is locked.
 */
#include <linux/slab.h>

#include "promote.h"

/* Promotions of a log on their way: 1 MiB at most. */
#define VC_PREFETCH_FLYING	8U

/* Pieces that are looked at in one go, be they in the cache already. */
#define VC_PREFETCH_LOOK	256U

/* Runs that may wait, of one log. */
#define VC_PREFETCH_WAITING	(32 * VCACHE_PREFETCH_RUNS_MAX)

/* Without a chunk, or memory, it is tried again after so long, and so often. */
#define VC_PREFETCH_RETRY	(HZ / 10 + 1)
#define VC_PREFETCH_TRIES	20U

/**
 * struct vc_prefetch_list - runs of one message
 * @node: vc_prefetch.lists
 * @nr: how many
 * @at: the first one that has not come to its end
 * @off: sectors of that which have
 * @run: the runs
 */
struct vc_prefetch_list {
	struct list_head node;
	u32 nr;
	u32 at;
	u32 off;
	struct vcache_cached_run run[];
};

/* Blocks that wait become less. */
static void vc_prefetch_less(struct vc_log *log, u64 blocks)
{
	atomic64_sub(blocks, &log->prefetch.waiting);
}

static struct vc_prefetch_list *vc_prefetch_first(struct vc_log *log)
{
	struct vc_prefetch_list *list;

	spin_lock_irq(&log->lock);
	list = list_first_entry_or_null(&log->prefetch.lists,
					struct vc_prefetch_list, node);
	spin_unlock_irq(&log->lock);
	return list;
}

static void vc_prefetch_forget(struct vc_log *log,
			       struct vc_prefetch_list *list)
{
	spin_lock_irq(&log->lock);
	list_del(&list->node);
	log->prefetch.runs -= list->nr;
	spin_unlock_irq(&log->lock);
	kvfree(list);
}

/* So many blocks of a list are on their way, or need not go. */
static void vc_prefetch_pass(struct vc_log *log, struct vc_prefetch_list *list,
			     u32 blocks)
{
	list->off += blocks * VC_BLOCK_SECTORS;
	if (list->off < list->run[list->at].len)
		return;
	list->off = 0;
	if (++list->at == list->nr)
		vc_prefetch_forget(log, list);
}

static void vc_prefetch_clear(struct vc_log *log)
{
	struct vc_prefetch_list *list;

	while ((list = vc_prefetch_first(log))) {
		u64 left = 0;

		for (; list->at < list->nr; list->at++, list->off = 0)
			left += list->run[list->at].len - list->off;
		vc_prefetch_less(log, left / VC_BLOCK_SECTORS);
		vc_prefetch_forget(log, list);
	}
}

/* How long is the origin left alone now? */
static unsigned long vc_prefetch_rest(struct vc_log *log)
{
	unsigned long took = jiffies - log->prefetch.began;

	if (READ_ONCE(log->prefetch.tries))
		return VC_PREFETCH_RETRY;
	if (!vc_pool_is_read(log->vol->pool))
		return 1;
	return took + 1;
}

/* One less is on its way. When the last one is not, the next ones go. */
static void vc_prefetch_land(struct vc_log *log)
{
	struct vc_prefetch *pf = &log->prefetch;

	if (atomic_dec_and_test(&pf->flying) && !list_empty(&pf->lists))
		queue_delayed_work(log->vol->pool->wq, &pf->work,
				   vc_prefetch_rest(log));
}

/**
 * vc_prefetch_ended - a promotion that nobody had asked for has come to its end
 * @log: the log
 * @blocks: blocks of it
 */
void vc_prefetch_ended(struct vc_log *log, u32 blocks)
{
	vc_prefetch_less(log, blocks);
	vc_prefetch_land(log);
}

/* Has somebody else than the origin any of a block? */
static bool vc_prefetch_is_there(struct vc_volume *v, u64 block)
{
	return xa_load(&v->dev->blocks, block) || vc_lookup_any(v, block, 1);
}

/* Return: how many of the next @n blocks are as the first one is. */
static u32 vc_prefetch_alike(struct vc_volume *v, u64 block, u32 n,
			     bool *there)
{
	u32 i = 1;

	*there = vc_prefetch_is_there(v, block);
	while (i < n && vc_prefetch_is_there(v, block + i) == *there)
		i++;
	return i;
}

/*
 * Have a promotion of @n blocks, or of as many as the chunk that is being filled has
 * room for, with its place there. Return: NULL without a chunk, or memory.
 */
static struct vc_promotion *vc_prefetch_place(struct vc_log *log, u64 block,
					      u32 n)
{
	struct vc_promotion *pr = NULL;

	mutex_lock(&log->fill);
	n = min(n, vc_reads_space(log, VC_READS_MAIN, 1, VC_TAKE_PREFETCH));
	if (n)
		pr = vc_promotion_make(log, block, n, 0);
	if (pr)
		pr->cell = vc_reads_take(log, VC_READS_MAIN, n);
	mutex_unlock(&log->fill);
	return pr;
}

/* Send blocks on their way. Return: how many; 0 when none can go now. */
static u32 vc_prefetch_send(struct vc_log *log, u64 block, u32 n, u8 heat)
{
	struct vc_promotion *pr = vc_prefetch_place(log, block, n);

	if (!pr)
		return 0;
	n = pr->n;
	/* Half as hot: as is what is kept when its chunk goes. */
	pr->heat = heat / 2;
	WRITE_ONCE(log->prefetch.tries, 0);
	pr->ahead = true;
	atomic_inc(&log->prefetch.flying);
	if (vc_promote_begin(pr))
		submit_bio_noacct(pr->bio);
	else
		vc_promotion_free(pr);
	return n;
}

/* Send what may be on its way at a time. Return: 0 or a negative errno. */
static int vc_prefetch_some(struct vc_log *log)
{
	u32 look, sent = 0;

	for (look = 0; look < VC_PREFETCH_LOOK && sent < VC_PREFETCH_FLYING;
	     look++) {
		struct vc_prefetch_list *list = vc_prefetch_first(log);
		struct vcache_cached_run *run;
		bool there;
		u64 block;
		u32 n;

		if (!list)
			return 0;
		run = &list->run[list->at];
		block = (run->start + list->off) / VC_BLOCK_SECTORS;
		n = min((run->len - list->off) / VC_BLOCK_SECTORS,
			VC_PROMOTION_MAX);
		n = vc_prefetch_alike(log->vol, block, n, &there);
		if (there)
			vc_prefetch_less(log, n);
		else
			n = vc_prefetch_send(log, block, n, run->heat);
		if (!n)
			return -ENOSPC;
		sent += !there;
		vc_prefetch_pass(log, list, n);
		cond_resched();
	}
	return 0;
}

/* May what is read by the tag of a log be cached now? */
static bool vc_prefetch_may(struct vc_log *log)
{
	struct vc_tag *tag;
	bool may;

	rcu_read_lock();
	tag = rcu_dereference(log->user);
	may = tag && vc_promote_may(tag);
	rcu_read_unlock();
	return may;
}

static void vc_prefetch_work(struct work_struct *work)
{
	struct vc_log *log = container_of(to_delayed_work(work), struct vc_log,
					  prefetch.work);
	struct vc_prefetch *pf = &log->prefetch;
	struct vc_volume *v = log->vol;
	struct blk_plug plug;

	/* vc_volume_resume() brings us back. */
	if (!vc_promote_enter(v))
		return;
	/* And the last that is on its way. */
	if (!atomic_cmpxchg(&pf->flying, 0, 1)) {
		pf->began = jiffies;
		blk_start_plug(&plug);
		if (!vc_prefetch_may(log))
			vc_prefetch_clear(log);
		else if (vc_prefetch_some(log))
			WRITE_ONCE(pf->tries, pf->tries + 1);
		blk_finish_plug(&plug);
		if (pf->tries > VC_PREFETCH_TRIES) {
			vc_prefetch_clear(log);
			WRITE_ONCE(pf->tries, 0);
		}
		vc_prefetch_land(log);
	}
	vc_promote_leave(v);
}

/**
 * vc_prefetch_init - nothing is to be prefetched
 * @log: a new log
 */
void vc_prefetch_init(struct vc_log *log)
{
	INIT_LIST_HEAD(&log->prefetch.lists);
	INIT_DELAYED_WORK(&log->prefetch.work, vc_prefetch_work);
}

/**
 * vc_prefetch_drop - forget what is to be prefetched
 * @log: a log of a volume that is stopped, or that nobody uses
 */
void vc_prefetch_drop(struct vc_log *log)
{
	cancel_delayed_work_sync(&log->prefetch.work);
	vc_prefetch_clear(log);
}

/**
 * vc_prefetch_resume - go on with what is to be prefetched
 * @log: the log; its volume is not stopped any more
 */
void vc_prefetch_resume(struct vc_log *log)
{
	if (!list_empty(&log->prefetch.lists))
		queue_delayed_work(log->vol->pool->wq, &log->prefetch.work, 0);
}

/* Return: what is wrong with a list, or NULL. */
static const char *vc_prefetch_wrong(const struct vc_prefetch_list *list,
				     u64 sectors)
{
	const struct vcache_cached_run *run = list->run;
	u64 end = 0;
	u32 i;

	for (i = 0; i < list->nr; i++, run++) {
		if (!run->len || run->len % VC_BLOCK_SECTORS ||
		    run->start % VC_BLOCK_SECTORS)
			return "runs must be of whole blocks of 4 KiB";
		if (run->start < end)
			return "runs must be sorted and disjoint";
		if (run->start > sectors || run->len > sectors - run->start)
			return "runs must be on the device";
		if (run->heat > VC_HEAT_MAX)
			return "heat is from 0 to 15";
		end = run->start + run->len;
	}
	return NULL;
}

static int vc_prefetch_queue(struct vc_log *log, struct vc_prefetch_list *list,
			     const char **error)
{
	u64 sectors = 0;
	u32 i;

	*error = vc_prefetch_wrong(list, log->vol->sectors);
	if (*error)
		return -EINVAL;
	*error = "reads of the tag are not cached now";
	if (!vc_prefetch_may(log))
		return -EOPNOTSUPP;
	*error = "too many runs of the tag wait already";
	if (READ_ONCE(log->prefetch.runs) + list->nr > VC_PREFETCH_WAITING)
		return -EBUSY;
	*error = NULL;
	for (i = 0; i < list->nr; i++)
		sectors += list->run[i].len;
	atomic64_add(sectors / VC_BLOCK_SECTORS, &log->prefetch.waiting);
	spin_lock_irq(&log->lock);
	list_add_tail(&list->node, &log->prefetch.lists);
	log->prefetch.runs += list->nr;
	spin_unlock_irq(&log->lock);
	vc_prefetch_resume(log);
	return 0;
}

/**
 * vc_prefetch_add - have blocks promoted, behind those that wait already
 * @log: the log; its device is locked
 * @run: runs of them, perhaps not aligned
 * @nr: how many
 * @error: says what was wrong
 *
 * Return: 0 or a negative errno.
 */
int vc_prefetch_add(struct vc_log *log, const void *run, u32 nr,
		    const char **error)
{
	struct vc_prefetch_list *list;
	int r;

	list = kvmalloc(struct_size(list, run, nr), GFP_KERNEL);
	if (!list)
		return -ENOMEM;
	list->nr = nr;
	list->at = 0;
	list->off = 0;
	memcpy(list->run, run, nr * sizeof(list->run[0]));
	r = vc_prefetch_queue(log, list, error);
	if (r)
		kvfree(list);
	return r;
}
