/* SPDX-License-Identifier: GPL-2.0 */
/*
 * How many requests of destage are in flight to an origin?
 *
 * A window may have as many requests as blocks. If all of them are sent at once to a disk that
 * needs 4 ms for each, a read that comes then waits half a second, and longer if several volumes
 * do so. So a request is sent when there is room for it. How many there may be is learned, see
 * depth.h.
 *
 * A queue whose latency is short grows also without a gain: it is in nobody's way, and the block
 * layer may limit how many requests reach the device for some time (blk-wbt).
 *
 * An epoch consists of the requests that had to wait for room, because the queue was full. The mean
 * latency follows from their rate, by Little's law. If the queue is larger than what is sent, there
 * are none. Then only the duration of all requests is known. If that is long, the queue gets
 * shorter, so that there are epochs.
 *
 * Time is in ns of any clock that does not go back. There are no locks.
 */
#ifndef VCACHE_CORE_QUEUE_H
#define VCACHE_CORE_QUEUE_H

#include "depth.h"

/* Requests in flight to an origin about which nothing is known. */
#define VC_QUEUE_FIRST		16U

/* A latency up to this is short, ns: some requests of a disk. */
#define VC_QUEUE_SHORT		10000000ULL

/* Fewest requests of an epoch. */
#define VC_QUEUE_EPOCH		64U

/* Most requests in flight: all of 16 windows. */
#define VC_QUEUE_MOST		2048U

/**
 * struct vcache_queue - the requests of destage in flight to an origin
 * @depth: how many there may be
 * @room: requests that can be sent before the queue is full
 * @sent: requests sent since none was in flight
 * @began: when the first of them was sent, ns
 * @epoch: requests of the present epoch
 * @since: when the last request was sent, ns
 * @busy: sum of the times between those of the epoch and the ones before, ns
 */
struct vcache_queue {
	struct vcache_depth depth;
	u32 room;
	u32 sent;
	u64 began;
	u32 epoch;
	u64 since;
	u64 busy;
};

void vcache_queue_init(struct vcache_queue *q);
void vcache_queue_begin(struct vcache_queue *q, u64 now);
void vcache_queue_sent(struct vcache_queue *q, u64 now);
void vcache_queue_end(struct vcache_queue *q, u64 now);

#endif /* VCACHE_CORE_QUEUE_H */
