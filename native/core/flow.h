/* SPDX-License-Identifier: GPL-2.0 */
/*
 * How many windows of destage are in flight to an origin?
 *
 * An origin with a long round trip needs several windows in flight to use its bandwidth. Their
 * number is learned, see depth.h. The time for which windows are in flight is divided into epochs,
 * and the rate is measured in blocks per second. After a failure there is one window.
 *
 * Time is in ns of any clock that does not go back. There are no locks.
 */
#ifndef VCACHE_CORE_FLOW_H
#define VCACHE_CORE_FLOW_H

#include "depth.h"

/* Most windows in flight. */
#define VC_FLOW_DEPTH_MAX	16U

/* Shortest epoch, ns. Origins with a rate limit often apply it in steps of some ms. */
#define VC_FLOW_EPOCH		20000000ULL

/* The same before the first try fails: there may be little to destage. */
#define VC_FLOW_EPOCH_FIRST	5000000ULL

/**
 * struct vcache_flow - the windows of destage in flight to an origin
 * @depth: how many there may be
 * @since: since when windows are in flight, ns; valid while there are any
 * @busy: duration of the present epoch before that, ns
 * @blocks: blocks that were written in the epoch
 * @windows: windows that were written in it
 * @sum: sum of their durations, ns
 */
struct vcache_flow {
	struct vcache_depth depth;
	u64 since;
	u64 busy;
	u64 blocks;
	u32 windows;
	u64 sum;
};

void vcache_flow_init(struct vcache_flow *f);
void vcache_flow_begin(struct vcache_flow *f, u64 now);
void vcache_flow_end(struct vcache_flow *f, u64 now);
void vcache_flow_done(struct vcache_flow *f, u64 now, u32 blocks, u64 took);
void vcache_flow_failed(struct vcache_flow *f, u64 now);

#endif /* VCACHE_CORE_FLOW_H */
