// SPDX-License-Identifier: GPL-2.0
#include "flow.h"

#define VC_NS_PER_S 1000000000ULL

/**
 * vcache_flow_init - begin with one window in flight
 * @f: the flow
 */
void vcache_flow_init(struct vcache_flow *f)
{
	*f = (struct vcache_flow) { .depth = 1, .fast = true };
}

/* Begin an epoch with a depth. */
static void vc_flow_restart(struct vcache_flow *f, u64 now, u32 depth)
{
	f->depth = depth;
	f->since = now;
	f->busy = 0;
	f->blocks = 0;
	f->windows = 0;
	f->sum = 0;
}

/**
 * vcache_flow_begin - the first window is sent after a time in which none was in flight
 * @f: the flow
 * @now: time, ns
 */
void vcache_flow_begin(struct vcache_flow *f, u64 now)
{
	f->since = now;
}

/**
 * vcache_flow_end - no window is in flight any more
 * @f: the flow
 * @now: time, ns
 */
void vcache_flow_end(struct vcache_flow *f, u64 now)
{
	f->busy += now - f->since;
	f->since = now;
}

/* Stay at a depth for some time. */
static void vc_flow_settle(struct vcache_flow *f, u64 now, u32 depth)
{
	f->before = 0;
	f->fast = false;
	f->wait = VC_FLOW_WAIT;
	vc_flow_restart(f, now, depth);
}

/* Try a depth in the next epoch. */
static void vc_flow_try(struct vcache_flow *f, u64 now, u32 depth)
{
	u32 before = f->depth;

	vc_flow_restart(f, now, depth);
	f->before = depth == before ? 0 : before;
}

static u32 vc_flow_step(const struct vcache_flow *f)
{
	return f->depth < 8 ? 1 : f->depth / 4;
}

/* Try more, or fewer if @down. */
static void vc_flow_next(struct vcache_flow *f, u64 now, bool down)
{
	u32 step = f->fast && !down ? f->depth : vc_flow_step(f);
	u32 depth = down ? f->depth - step : f->depth + step;

	f->down = down;
	if (depth >= 1 && depth <= VC_FLOW_DEPTH_MAX)
		vc_flow_try(f, now, depth);
	else
		vc_flow_settle(f, now, f->depth);
}

/* Is the rate of a try good enough to keep its depth? */
static bool vc_flow_keeps(const struct vcache_flow *f, u64 rate)
{
	if (f->depth < f->before)
		return rate >= f->rate - f->rate / 16;
	return rate >= f->rate + div_u64(f->rate * (f->depth - f->before), 4 * f->before);
}

/* A try ends. */
static void vc_flow_judge(struct vcache_flow *f, u64 now, u64 rate, u64 latency)
{
	if (!vc_flow_keeps(f, rate)) {
		vc_flow_settle(f, now, f->before);
		return;
	}
	f->rate = rate;
	f->latency = latency;
	vc_flow_next(f, now, f->down);
}

/* Do others use the origin now, as windows take longer, and fewer are written? */
static bool vc_flow_crowded(const struct vcache_flow *f, u64 rate, u64 latency)
{
	return f->rate && rate < f->rate - f->rate / 4 && latency > 2 * f->latency;
}

/* An epoch ends. */
static void vc_flow_decide(struct vcache_flow *f, u64 now, u64 rate, u64 latency)
{
	if (latency > VC_FLOW_LATENCY_MAX || vc_flow_crowded(f, rate, latency)) {
		f->rate = 0;
		vc_flow_settle(f, now, f->depth > 1 ? f->depth / 2 : 1);
	} else if (f->before) {
		vc_flow_judge(f, now, rate, latency);
	} else {
		f->rate = rate;
		f->latency = latency;
		if (!f->wait) {
			vc_flow_next(f, now, !f->fast && !f->down && f->depth > 1);
			return;
		}
		f->wait--;
		vc_flow_restart(f, now, f->depth);
	}
}

/**
 * vcache_flow_done - a window was written
 * @f: the flow
 * @now: time, ns
 * @blocks: its blocks
 * @took: how long it was in flight, ns
 */
void vcache_flow_done(struct vcache_flow *f, u64 now, u32 blocks, u64 took)
{
	u64 busy;

	f->blocks += blocks;
	f->windows++;
	f->sum += took;
	busy = f->busy + now - f->since;
	if (f->windows >= 2 * f->depth &&
	    busy >= (f->fast ? VC_FLOW_EPOCH_FIRST : VC_FLOW_EPOCH))
		vc_flow_decide(f, now, div64_u64(f->blocks * VC_NS_PER_S, busy),
			       div_u64(f->sum, f->windows));
}

/**
 * vcache_flow_failed - a window has failed
 * @f: the flow
 * @now: time, ns
 */
void vcache_flow_failed(struct vcache_flow *f, u64 now)
{
	f->rate = 0;
	vc_flow_settle(f, now, 1);
}
