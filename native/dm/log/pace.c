// SPDX-License-Identifier: GPL-2.0-only
/*
 * dm-vcache: a writer that gets too little space is slowed down evenly, see ../../core/pace.h. So
 * its flushes wait a little each, and none waits until a whole chunk has been reclaimed.
 *
 * The writers of other logs are not delayed: the pace is that of a log.
 */
#include <linux/ktime.h>

#include "../base/compat.h"
#include "internal.h"

static enum hrtimer_restart vc_pace_expired(struct hrtimer *timer)
{
	vcache_log_kick(container_of(timer, struct vcache_log, pace_timer));
	return HRTIMER_NORESTART;
}

/**
 * vcache_pace_init - begin without delays
 * @log: the log, being made
 */
void vcache_pace_init(struct vcache_log *log)
{
	hrtimer_setup(&log->pace_timer, vc_pace_expired, CLOCK_MONOTONIC, HRTIMER_MODE_REL_SOFT);
}

/**
 * vcache_pace_exit - stop the timer
 * @log: the log; nobody writes to it any more
 */
void vcache_pace_exit(struct vcache_log *log)
{
	hrtimer_cancel(&log->pace_timer);
}

/**
 * vcache_pace_next - a writer opens the next chunk
 * @log: the log, locked; its append lock is held
 * @reserved: the chunk was reserved for it before
 */
void vcache_pace_next(struct vcache_log *log, bool reserved)
{
	u64 now = ktime_get_ns();

	lockdep_assert_held(&log->append);
	lockdep_assert_held(&log->lock);
	vcache_pace_open(&log->pace, now, now - (reserved ? log->spare_since : log->opened));
	log->opened = now;
}

/**
 * vcache_log_is_paced - must the next record of a writer wait?
 * @log: the log, its append lock is held
 *
 * Return: true if it must; then the workers of the log are woken when it may be written.
 */
bool vcache_log_is_paced(struct vcache_log *log)
{
	u64 wait;

	lockdep_assert_held(&log->append);
	wait = vcache_pace_wait(&log->pace, ktime_get_ns());
	if (!wait)
		return false;
	VCACHE_PROBE("record waits for its pace");
	hrtimer_start(&log->pace_timer, ns_to_ktime(wait), HRTIMER_MODE_REL_SOFT);
	return true;
}

/**
 * vcache_log_wrote - a writer has written a record
 * @log: the log, its append lock is held
 * @blocks: size of the record
 */
void vcache_log_wrote(struct vcache_log *log, u32 blocks)
{
	u32 dirty = atomic_read(&log->dirty_cells), limit = vcache_log_upper->dirty_limit(log);
	u64 now = ktime_get_ns();

	lockdep_assert_held(&log->append);
	vcache_pace_write(&log->pace, now, blocks,
			  vcache_chunk_capacity(&log->vol->pool->g));
	if (dirty > log->paced_dirty)
		vcache_pace_grow(&log->pace, now, dirty - log->paced_dirty, dirty, limit);
	log->paced_dirty = dirty;
	log->paced_limit = limit;
}

/**
 * vcache_log_paced_blocks - how many blocks may the next record of a writer have?
 * @log: the log, its append lock is held
 */
u32 vcache_log_paced_blocks(struct vcache_log *log)
{
	lockdep_assert_held(&log->append);
	return vcache_pace_blocks(&log->pace, vcache_chunk_capacity(&log->vol->pool->g),
				  atomic_read(&log->dirty_cells), log->paced_limit);
}
