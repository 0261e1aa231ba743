/* SPDX-License-Identifier: GPL-2.0 */
/*
 * How deep must a queue be, so that a device is used well?
 *
 * Requests beyond that only wait in the queue, and the reads of guests wait behind them. The depth
 * is learned, as BBR learns the rate of a connection: from what it brings, not from a model of the
 * device.
 *
 * The caller measures rate and latency in epochs. In an epoch, the depth is constant. In some
 * epochs another depth is tried:
 *
 * - A deeper one has to raise the rate by a quarter of what it raises the depth, in proportion:
 *   twice the depth needs a rate of 5/4. While that succeeds, the depth is doubled again. After
 *   the first failure it grows by a quarter only.
 * - A lower one, by a quarter, or by half while the latency is long, is kept if the rate falls by
 *   at most 1/16.
 *
 * After a try without success, there is no other for VC_DEPTH_WAIT epochs. Then both directions
 * alternate. So requests do not stay in a queue without a gain.
 *
 * If the mean latency exceeds VC_DEPTH_LATENCY_MAX, a lower depth is tried at once, because a read
 * may have to wait for so long. If the rate falls then (in the first tries, by an eighth), the
 * device itself takes so long, and not the queue.
 *
 * The depth is halved if the latency is twice that of the epoch before and the rate falls by a
 * quarter, because others use the device.
 *
 * There are no locks.
 */
#ifndef VCACHE_CORE_DEPTH_H
#define VCACHE_CORE_DEPTH_H

#include "types.h"

/* A mean latency above this is long, ns. */
#define VC_DEPTH_LATENCY_MAX	50000000ULL

/* Epochs between tries. */
#define VC_DEPTH_WAIT		32U

/**
 * struct vcache_depth - the depth of a queue
 * @value: the depth, 1 to @most
 * @most: the largest one
 * @before: the depth to return to if the present try fails; 0: the epoch is no try
 * @fast: no try has failed yet
 * @down: the last try was a lower depth
 * @slow: the latency of the last epoch was long; a lower depth has been tried
 * @wait: epochs until the next try
 * @rate: of the last epoch that counts, per second; 0: none
 * @latency: its mean latency, ns
 */
struct vcache_depth {
	u32 value;
	u32 most;
	u32 before;
	bool fast;
	bool down;
	bool slow;
	u32 wait;
	u64 rate;
	u64 latency;
};

void vcache_depth_init(struct vcache_depth *d, u32 value, u32 most);
void vcache_depth_decide(struct vcache_depth *d, u64 rate, u64 latency);
void vcache_depth_settle(struct vcache_depth *d, u32 value);

#endif /* VCACHE_CORE_DEPTH_H */
