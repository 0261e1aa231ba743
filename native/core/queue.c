// SPDX-License-Identifier: GPL-2.0
#include "queue.h"

#define VC_NS_PER_S 1000000000ULL

/**
 * vcache_queue_init - begin with an origin about which nothing is known
 * @q: the queue
 */
void vcache_queue_init(struct vcache_queue *q)
{
	*q = (struct vcache_queue) { .sent = 0 };
	vcache_depth_init(&q->depth, VC_QUEUE_FIRST, VC_QUEUE_MOST);
}

/**
 * vcache_queue_begin - requests will be sent after a time in which none was in flight
 * @q: the queue
 * @now: time, ns
 */
void vcache_queue_begin(struct vcache_queue *q, u64 now)
{
	q->room = q->depth.value;
	q->sent = 0;
	q->began = now;
}

/* An epoch ends. */
static void vc_queue_decide(struct vcache_queue *q)
{
	u64 busy = q->busy ? q->busy : 1;
	u32 before = q->depth.value;
	u64 latency = div_u64(busy * before, q->epoch);

	if (latency > VC_QUEUE_SHORT)
		vcache_depth_decide(&q->depth, div64_u64(q->epoch * VC_NS_PER_S, busy), latency);
	else if (2 * latency <= VC_QUEUE_SHORT && 2 * before <= VC_QUEUE_MOST)
		vcache_depth_settle(&q->depth, 2 * before);
	/* The next request that waits for room begins an epoch; not one that waits for more. */
	q->room = q->depth.value > before ? q->depth.value - before :
					    q->depth.value < before;
	q->epoch = 0;
	q->busy = 0;
}

/**
 * vcache_queue_sent - a request was sent, for which there was room
 * @q: the queue
 * @now: time, ns
 */
void vcache_queue_sent(struct vcache_queue *q, u64 now)
{
	q->sent++;
	if (q->room) {
		q->room--;
	} else {
		q->epoch++;
		q->busy += now - q->since;
	}
	q->since = now;
	if (q->epoch >= VC_QUEUE_EPOCH && q->epoch >= q->depth.value)
		vc_queue_decide(q);
}

/**
 * vcache_queue_end - no request is in flight any more
 * @q: the queue
 * @now: time, ns
 */
void vcache_queue_end(struct vcache_queue *q, u64 now)
{
	u32 half = q->sent / 2;

	if (now - q->began <= VC_DEPTH_LATENCY_MAX || q->sent > q->depth.value ||
	    half <= VC_QUEUE_FIRST)
		return;
	vcache_depth_settle(&q->depth, half);
	q->epoch = 0;
	q->busy = 0;
}
