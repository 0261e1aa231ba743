// SPDX-License-Identifier: GPL-2.0
#include "flow.h"

#define VC_NS_PER_S 1000000000ULL

/**
 * vcache_flow_init - begin with one window in flight
 * @f: the flow
 */
void vcache_flow_init(struct vcache_flow *f)
{
	*f = (struct vcache_flow) { .since = 0 };
	vcache_depth_init(&f->depth, 1, VC_FLOW_DEPTH_MAX);
}

/* Begin an epoch. */
static void vc_flow_restart(struct vcache_flow *f, u64 now)
{
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
	if (f->windows < 2 * f->depth.value ||
	    busy < (f->depth.fast ? VC_FLOW_EPOCH_FIRST : VC_FLOW_EPOCH))
		return;
	vcache_depth_decide(&f->depth, div64_u64(f->blocks * VC_NS_PER_S, busy),
			    div_u64(f->sum, f->windows));
	vc_flow_restart(f, now);
}

/**
 * vcache_flow_failed - a window has failed
 * @f: the flow
 * @now: time, ns
 */
void vcache_flow_failed(struct vcache_flow *f, u64 now)
{
	vcache_depth_settle(&f->depth, 1);
	vc_flow_restart(f, now);
}
