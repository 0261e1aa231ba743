// SPDX-License-Identifier: GPL-2.0-only
/*
 * dm-vcache: prefetch: blocks are promoted before they are read, because user space asks
 * for it. They were cached before their instance was stopped, for example.
 *
 * Each is a promotion (promote.c) that no request waits for, and that follows the same
 * rules. Prefetch only adds the pace. Some promotions run at a time, with a jiffy between
 * them; while others read from an origin (throttle.c), half of the time is left to these.
 * A promotion gets its place in a chunk before the origin is read. So no read is useless,
 * and if there is no chunk only time is lost. Prefetch takes only chunks beyond the
 * reserve, and beyond those that logs above their shares would have to give up. It waits
 * for such chunks, but not for long.
 *
 * Only the work of a log reads its lists, so only adding and removing a list is locked.
 */
#include <linux/slab.h>

#include "promote.h"
#include "internal.h"

/* Most promotions of a log under way: 1 MiB. */
#define VC_PREFETCH_FLYING	8U

/* Pieces that are looked up in one go, because many may be in the cache already. */
#define VC_PREFETCH_LOOK	256U

/* Most runs of a log that may wait. */
#define VC_PREFETCH_WAITING	(32 * VCACHE_PREFETCH_RUNS_MAX)

/* Without a chunk, or memory, prefetch tries again after so long, and so often. */
#define VC_PREFETCH_RETRY	(HZ / 10 + 1)
#define VC_PREFETCH_TRIES	20U

/**
 * struct vc_prefetch_list - the runs of one message
 * @node: vcache_prefetch.lists
 * @nr: how many
 * @at: the first run that is not dealt with
 * @off: sectors of it that are dealt with
 * @run: the runs
 */
struct vc_prefetch_list {
	struct list_head node;
	u32 nr;
	u32 at;
	u32 off;
	struct vcache_cached_run run[];
};

/* So many blocks do not wait any more. */
static void vc_prefetch_less(struct vcache_log *log, u64 blocks)
{
	atomic64_sub(blocks, &log->prefetch.waiting);
}

static struct vc_prefetch_list *vc_prefetch_first(struct vcache_log *log)
{
	struct vc_prefetch_list *list;

	spin_lock_irq(&log->lock);
	list = list_first_entry_or_null(&log->prefetch.lists,
					struct vc_prefetch_list, node);
	spin_unlock_irq(&log->lock);
	return list;
}

static void vc_prefetch_forget(struct vcache_log *log,
			       struct vc_prefetch_list *list)
{
	spin_lock_irq(&log->lock);
	list_del(&list->node);
	WRITE_ONCE(log->prefetch.runs, log->prefetch.runs - list->nr);
	spin_unlock_irq(&log->lock);
	kvfree(list);
}

/* So many blocks of a list are being promoted, or need not be. */
static void vc_prefetch_pass(struct vcache_log *log, struct vc_prefetch_list *list,
			     u32 blocks)
{
	list->off += blocks * VC_BLOCK_SECTORS;
	if (list->off < list->run[list->at].len)
		return;
	list->off = 0;
	if (++list->at == list->nr)
		vc_prefetch_forget(log, list);
}

static void vc_prefetch_clear(struct vcache_log *log)
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

/* How long is the origin left alone now, in jiffies? */
static unsigned long vc_prefetch_rest(struct vcache_log *log)
{
	unsigned long took = jiffies - log->prefetch.began;

	if (READ_ONCE(log->prefetch.tries))
		return VC_PREFETCH_RETRY;
	if (!vcache_readers_any(log->vol->pool))
		return 1;
	return took + 1;
}

/* A promotion has ended. After the last one the next ones are sent. */
static void vc_prefetch_land(struct vcache_log *log)
{
	struct vcache_prefetch *pf = &log->prefetch;

	if (atomic_dec_and_test(&pf->flying) && !list_empty(&pf->lists))
		queue_delayed_work(log->vol->pool->wq, &pf->work,
				   vc_prefetch_rest(log));
}

/**
 * vcache_prefetch_ended - a promotion of a prefetch has ended
 * @log: the log
 * @blocks: its blocks
 */
void vcache_prefetch_ended(struct vcache_log *log, u32 blocks)
{
	vc_prefetch_less(log, blocks);
	vc_prefetch_land(log);
}

/* Is any part of a block in the buffer or in the cache? */
static bool vc_prefetch_is_there(struct vcache_volume *v, u64 block)
{
	return vcache_buffer_covers(v->dev, block, block) ||
	       vcache_lookup_any(v, block, 1);
}

/* Count how many of the next @n blocks are in the same state as the first one. */
static u32 vc_prefetch_alike(struct vcache_volume *v, u64 block, u32 n,
			     bool *there)
{
	u32 i = 1;

	*there = vc_prefetch_is_there(v, block);
	while (i < n && vc_prefetch_is_there(v, block + i) == *there)
		i++;
	return i;
}

/**
 * vcache_prefetch_place - make a promotion that has its place in a chunk already
 * @log: the log
 * @block: the first block
 * @n: how many; the promotion has fewer if the open chunk has no space for more
 *
 * Return: NULL without a chunk, or memory.
 */
struct vcache_promotion *vcache_prefetch_place(struct vcache_log *log, u64 block, u32 n)
{
	struct vcache_promotion *pr = NULL;

	mutex_lock(&log->fill);
	n = min(n, vcache_reads_space(log, VC_READS_MAIN, 1, VC_TAKE_PREFETCH));
	if (n)
		pr = vcache_promotion_make(log, block, n, 0);
	if (pr)
		pr->cell = vcache_reads_take(log, VC_READS_MAIN, n);
	mutex_unlock(&log->fill);
	return pr;
}

/* Start a promotion. Return: how many blocks it has; 0 if there can be none now. */
static u32 vc_prefetch_send(struct vcache_log *log, u64 block, u32 n, u8 heat)
{
	struct vcache_promotion *pr = vcache_prefetch_place(log, block, n);

	if (!pr)
		return 0;
	n = pr->n;
	/* Half the heat, as for blocks that are kept when their chunk is reclaimed. */
	pr->heat = heat / 2;
	WRITE_ONCE(log->prefetch.tries, 0);
	pr->ahead = true;
	atomic_inc(&log->prefetch.flying);
	if (vcache_promote_begin(pr))
		submit_bio_noacct(pr->bio);
	else
		vcache_promotion_free(pr);
	return n;
}

/* Start as many promotions as may be under way. Return: 0 or a negative errno. */
static int vc_prefetch_some(struct vcache_log *log)
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

/**
 * vcache_prefetch_may - may data read by the tag of a log be cached now?
 * @log: the log
 */
bool vcache_prefetch_may(struct vcache_log *log)
{
	struct vcache_tag *tag;
	bool may;

	rcu_read_lock();
	tag = rcu_dereference(log->user);
	may = tag && vcache_promote_may(tag);
	rcu_read_unlock();
	return may;
}

static void vc_prefetch_work(struct work_struct *work)
{
	struct vcache_log *log = container_of(to_delayed_work(work), struct vcache_log,
					      prefetch.work);
	struct vcache_prefetch *pf = &log->prefetch;
	struct vcache_volume *v = log->vol;
	struct blk_plug plug;

	/* vcache_volume_resume() queues this work again. */
	if (!vcache_promote_enter(v))
		return;
	/* The last promotion under way queues it, too. */
	if (!atomic_cmpxchg(&pf->flying, 0, 1)) {
		pf->began = jiffies;
		blk_start_plug(&plug);
		if (!vcache_prefetch_may(log))
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
	vcache_promote_leave(v);
}

/**
 * vcache_prefetch_init - initialise the prefetch of a log
 * @log: a new log
 */
void vcache_prefetch_init(struct vcache_log *log)
{
	INIT_LIST_HEAD(&log->prefetch.lists);
	INIT_DELAYED_WORK(&log->prefetch.work, vc_prefetch_work);
}

/**
 * vcache_prefetch_drop - drop the lists of a log
 * @log: a log of a volume that is stopped, or that nobody uses
 */
void vcache_prefetch_drop(struct vcache_log *log)
{
	cancel_delayed_work_sync(&log->prefetch.work);
	vc_prefetch_clear(log);
}

/**
 * vcache_prefetch_resume - continue with the lists of a log
 * @log: the log; its volume is not stopped any more
 */
void vcache_prefetch_resume(struct vcache_log *log)
{
	if (!list_empty(&log->prefetch.lists))
		queue_delayed_work(log->vol->pool->wq, &log->prefetch.work, 0);
}

/**
 * vcache_runs_wrong - check runs of blocks
 * @runs: the runs, perhaps not aligned
 * @nr: how many
 * @sectors: size of their device
 *
 * Return: what is wrong with them, or NULL.
 */
const char *vcache_runs_wrong(const void *runs, u32 nr, u64 sectors)
{
	u64 end = 0;

	for (; nr; nr--, runs += sizeof(struct vcache_cached_run)) {
		struct vcache_cached_run run;

		memcpy(&run, runs, sizeof(run));
		if (!run.len || run.len % VC_BLOCK_SECTORS ||
		    run.start % VC_BLOCK_SECTORS)
			return "runs must consist of whole 4 KiB blocks";
		if (run.start < end)
			return "runs must be sorted and disjoint";
		if (run.start > sectors || run.len > sectors - run.start)
			return "runs must be on the device";
		if (run.heat > VC_HEAT_MAX)
			return "heat must be from 0 to 15";
		end = run.start + run.len;
	}
	return NULL;
}

static int vc_prefetch_queue(struct vcache_log *log, struct vc_prefetch_list *list,
			     const char **error)
{
	u64 sectors = 0;
	u32 i;

	*error = "reads of the tag are not cached now";
	if (!vcache_prefetch_may(log))
		return -EOPNOTSUPP;
	*error = "too many runs of the tag are waiting";
	if (READ_ONCE(log->prefetch.runs) + list->nr > VC_PREFETCH_WAITING)
		return -EBUSY;
	*error = NULL;
	for (i = 0; i < list->nr; i++)
		sectors += list->run[i].len;
	atomic64_add(sectors / VC_BLOCK_SECTORS, &log->prefetch.waiting);
	spin_lock_irq(&log->lock);
	list_add_tail(&list->node, &log->prefetch.lists);
	WRITE_ONCE(log->prefetch.runs, log->prefetch.runs + list->nr);
	spin_unlock_irq(&log->lock);
	vcache_prefetch_resume(log);
	return 0;
}

/**
 * vcache_prefetch_add - add blocks to prefetch, behind those that wait already
 * @log: the log; its device is locked
 * @run: runs of blocks that vcache_runs_wrong() has accepted, perhaps not aligned
 * @nr: how many
 * @error: set to what is wrong
 *
 * Return: 0 or a negative errno.
 */
int vcache_prefetch_add(struct vcache_log *log, const void *run, u32 nr,
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
