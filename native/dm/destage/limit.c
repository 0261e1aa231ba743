// SPDX-License-Identifier: GPL-2.0-only
/*
 * dm-vcache: limits of destage that an operator sets for a volume.
 *
 * - From which part of a share that is dirty destage begins, and from which it runs at full
 *   speed.
 * - How many bytes per second go to the origin.
 * - A pause for some time.
 *
 * They slow down the writers of their volume only, by pacing, when its share is full of dirty
 * data. They do not apply to what others wait for: chunks that a log has beyond its share, in
 * lanes that are dedicated to others, or in a part of the pool that is being removed. A drain
 * ends a pause, and observes the rate: it takes longer, but it ends. So does the drain of a tag
 * that has left the writeback mode, for instance because its instance migrates.
 *
 * The rate is that of windows. They are counted when they begin, so the first one of a burst
 * does not wait. One worker does all that for a volume, so there are no locks.
 */
#include <linux/delay.h>
#include <linux/ktime.h>

#include "internal.h"

/* How often a wait looks for a stop of the volume, and for new limits. */
#define VC_LIMIT_SLICE_MS	20U

/* What was not used counts for so long, ns, and so does what was used too early. */
#define VC_LIMIT_BURST		(20 * NSEC_PER_MSEC)
#define VC_LIMIT_DEBT		(2 * NSEC_PER_SEC)

/**
 * vcache_destage_limits_init - begin with the defaults
 * @v: the volume, new
 */
void vcache_destage_limits_init(struct vcache_volume *v)
{
	v->limits = (struct vcache_limits) { .low = VC_DIRTY_LOW, .high = VC_DIRTY_HIGH };
	v->paused_until = 0;
}

/**
 * vcache_destage_limit - set the limits of a volume
 * @v: the volume
 * @limits: the limits
 *
 * They apply from the next window on.
 */
void vcache_destage_limit(struct vcache_volume *v, const struct vcache_limits *limits)
{
	WRITE_ONCE(v->limits.mib, limits->mib);
	WRITE_ONCE(v->limits.low, limits->low);
	WRITE_ONCE(v->limits.high, limits->high);
	vcache_destage_soon(v);
}

/**
 * vcache_destage_pause - pause the destage of a volume, or end its pause
 * @v: the volume
 * @seconds: how long from now on; 0: not at all
 */
void vcache_destage_pause(struct vcache_volume *v, u32 seconds)
{
	WRITE_ONCE(v->paused_until, ktime_get_ns() + (u64)seconds * NSEC_PER_SEC);
	vcache_destage_soon(v);
}

/**
 * vcache_destage_paused - for how long is the destage of a volume paused?
 * @v: the volume
 *
 * Return: seconds, at least 1 if it is paused.
 */
u32 vcache_destage_paused(const struct vcache_volume *v)
{
	u64 until = READ_ONCE(v->paused_until), now = ktime_get_ns();

	return READ_ONCE(v->drain) || until <= now ? 0 :
	       div_u64(until - now - 1, NSEC_PER_SEC) + 1;
}

/* Does a log keep chunks that others wait for? */
static bool vc_log_owes(struct vcache_log *log)
{
	return READ_ONCE(log->reclaim_pending) || READ_ONCE(log->unsealed) ||
	       READ_ONCE(log->vol->pool->leaving) || vcache_log_must_vacate(log);
}

/**
 * vcache_destage_held - is a log not destaged now because of a pause?
 * @log: the log
 */
bool vcache_destage_held(struct vcache_log *log)
{
	return vcache_destage_paused(log->vol) && !vc_log_owes(log) && !vcache_log_is_rest(log);
}

/**
 * vcache_rate_left - when may the next window of a log begin?
 * @log: the log
 *
 * Return: in how many ns, 0 to VC_LIMIT_DEBT.
 */
u64 vcache_rate_left(struct vcache_log *log)
{
	struct vcache_volume *v = log->vol;
	u64 now = ktime_get_ns();

	if (!READ_ONCE(v->limits.mib) || v->limit_next <= now || READ_ONCE(v->stopped) ||
	    vc_log_owes(log))
		return 0;
	return v->limit_next - now;
}

/**
 * vcache_rate_wait - wait until the next window of a log may begin
 * @log: the log; no window of its volume is in flight
 *
 * Ends early when something changes: call it until it returns 0.
 *
 * Return: for how long it has waited, jiffies.
 */
unsigned long vcache_rate_wait(struct vcache_log *log)
{
	unsigned long start = jiffies;
	u64 ns = vcache_rate_left(log);

	if (!ns)
		return 0;
	msleep(min_t(u64, div_u64(ns - 1, NSEC_PER_MSEC) + 1, VC_LIMIT_SLICE_MS));
	return max(jiffies - start, 1UL);
}

/**
 * vcache_rate_count - a window begins
 * @v: the volume
 * @blocks: its blocks
 */
void vcache_rate_count(struct vcache_volume *v, u32 blocks)
{
	u64 now = ktime_get_ns(), first = max_t(u64, v->limit_next, now - VC_LIMIT_BURST);
	u32 mib = READ_ONCE(v->limits.mib);
	u64 ns;

	if (!mib)
		return;
	ns = div_u64((u64)blocks * VC_BLOCK_SIZE * NSEC_PER_SEC, mib) >> 20;
	v->limit_next = min_t(u64, first + ns, now + VC_LIMIT_DEBT);
}
