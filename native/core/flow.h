/* SPDX-License-Identifier: GPL-2.0 */
/*
 * How many windows of destage are in flight to an origin?
 *
 * An origin with a long round trip needs several windows in flight to use its bandwidth. More than
 * that only wait in its queue, where the reads of guests wait behind them. The depth is learned,
 * as BBR learns the rate of a connection: from what it brings, not from a model of the device.
 *
 * The time for which windows are in flight is divided into epochs. In an epoch, the depth is
 * constant and the rate is measured, in blocks per second. In some epochs another depth is tried:
 *
 * - A deeper one has to raise the rate by a quarter of what it raises the depth, in proportion:
 *   twice the depth needs a rate of 5/4. While that succeeds, the depth is doubled again. After
 *   the first failure it grows by a quarter only.
 * - A lower one, by a quarter, is kept if the rate falls by at most 1/16.
 *
 * After a try without success, there is no other for VC_FLOW_WAIT epochs. Then both directions
 * alternate. So windows do not stay in a queue that brings nothing.
 *
 * The depth is halved at once if a window takes more than VC_FLOW_LATENCY_MAX on average, because
 * that is for how long a read may have to wait; or if windows take twice as long as in the
 * epoch before and the rate falls by a quarter, because others use the origin. After a failure it
 * is 1.
 *
 * Time is in ns of any clock that does not go back. There are no locks.
 */
#ifndef VCACHE_CORE_FLOW_H
#define VCACHE_CORE_FLOW_H

#include "types.h"

/* Most windows in flight. */
#define VC_FLOW_DEPTH_MAX	16U

/* Shortest epoch, ns. Origins with a rate limit often apply it in steps of some ms. */
#define VC_FLOW_EPOCH		20000000ULL

/* The same before the first try fails: there may be little to destage. */
#define VC_FLOW_EPOCH_FIRST	5000000ULL

/* Windows may take so long on average, ns. */
#define VC_FLOW_LATENCY_MAX	50000000ULL

/* Epochs between tries. */
#define VC_FLOW_WAIT		32U

/**
 * struct vcache_flow - the windows of destage in flight to an origin
 * @depth: how many there may be, 1 to VC_FLOW_DEPTH_MAX
 * @before: the depth to return to if the present try fails; 0: the epoch is no try
 * @fast: no try has failed yet
 * @down: the last try was a lower depth
 * @wait: epochs until the next try
 * @rate: of the last epoch that counts, blocks per second; 0: none
 * @latency: mean duration of its windows, ns
 * @since: since when windows are in flight, ns; valid while there are any
 * @busy: duration of the present epoch before that, ns
 * @blocks: blocks that were written in the epoch
 * @windows: windows that were written in it
 * @sum: sum of their durations, ns
 */
struct vcache_flow {
	u32 depth;
	u32 before;
	bool fast;
	bool down;
	u32 wait;
	u64 rate;
	u64 latency;
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
