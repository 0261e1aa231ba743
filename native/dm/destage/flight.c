// SPDX-License-Identifier: GPL-2.0-only
/*
 * dm-vcache: the windows of a destage round that are in flight.
 *
 * DOC: Windows in flight
 *
 * Without urgency, and while somebody reads from an origin, one window is copied at a time, and
 * a pause follows it. Otherwise, several windows are in flight: some are read from the cache
 * while others are written to the origin. How many depends on what the origin gains by it, see
 * ../../core/flow.h. If the origin serves one request at a time, there is one.
 *
 * The windows of a round are disjoint: it is sorted, and each window begins behind the one before.
 * Each holds its own ranges from before its write until its blocks are clean. So the order in
 * which windows complete does not matter, and a window that fails concerns its own blocks only.
 * If another part of its last block is in the next window, that part finds its range held. It is
 * left for a later round.
 *
 * Requests of all windows in flight share a queue, see ../../core/queue.h: one is sent when there
 * is room for it. So reads of the origin do not wait behind many of them.
 *
 * One worker does all that for a volume. It waits for windows in their order. Requests complete
 * in any order.
 *
 * Blocks of a window that has failed are copied one by one, when no window is in flight any
 * more: that may take long, and others must not hold their ranges for it.
 */
#include <linux/blkdev.h>
#include <linux/delay.h>

#include "internal.h"

/* When so many windows in a row have failed altogether, a round leaves blocks out. */
#define VC_FAILED_WINDOWS	4U

/* Most blocks that it leaves out at a time: behind them, there may be blocks that do not fail. */
#define VC_SKIP_MOST		256U

/* Fewest blocks of a window: an origin with a long latency need not be slow. */
#define VC_WINDOW_MIN		32U

/* Longest time that a window should take. */
#define VC_WINDOW_TIME		(HZ / 10)

/* Without urgency, a pause is so many times as long as the window took. */
#define VC_REST_EASY		8U

/* How often a pause checks for urgency. */
#define VC_REST_SLICE_MS	20U

/* Most windows of a pool beyond one for each round: 32 MiB. */
#define VC_WINDOWS_MORE		64

/**
 * vcache_flight_init - prepare a volume for windows in flight
 * @v: the volume, new
 */
void vcache_flight_init(struct vcache_volume *v)
{
	v->width = VC_WINDOW;
	v->rest_until = jiffies;
	vcache_flow_init(&v->flow);
	vcache_queue_init(&v->queue);
	atomic_set(&v->writes, 0);
	init_waitqueue_head(&v->room);
	v->writing = 0;
}

/* Pause after a window that took @took jiffies, until something is urgent. */
static void vc_volume_rest(struct vcache_volume *v, unsigned long took)
{
	v->rest_until = jiffies + max(took, 1UL) * VC_REST_EASY;
	while (time_before(jiffies, v->rest_until) && !vcache_volume_is_urgent(v))
		msleep(VC_REST_SLICE_MS);
}

/* Adapt the length of windows to the origin: the other logs wait for each of them. */
static void vc_window_adapt(struct vcache_volume *v, unsigned long took)
{
	if (took > VC_WINDOW_TIME)
		v->width = max(v->width / 2, VC_WINDOW_MIN);
	else if (took < VC_WINDOW_TIME / 4)
		v->width = min(v->width * 2, VC_WINDOW);
}

/* Begin a round without windows in flight. */
static void vc_round_start(struct vcache_round *r)
{
	r->from = 0;
	r->after = 0;
	r->extra = 0;
	INIT_LIST_HEAD(&r->idle);
	INIT_LIST_HEAD(&r->reading);
	INIT_LIST_HEAD(&r->writing);
	INIT_LIST_HEAD(&r->failed);
	list_add(&r->own.node, &r->idle);
	r->flying = 0;
	r->worked = 0;
	r->failures = 0;
	r->skip = 0;
	r->error = 0;
	r->busy = 0;
	r->bad = 0;
	r->copied = 0;
	r->refused = false;
}

/* Free the windows that only a fast round needs. */
static void vc_round_end(struct vcache_round *r, struct vcache_volume *v)
{
	struct vcache_window *w, *next;

	list_for_each_entry_safe(w, next, &r->idle, node) {
		list_del(&w->node);
		if (w == &r->own)
			continue;
		vcache_window_free(w);
		atomic_dec(&v->pool->windows);
	}
}

/* Note how a window went, finally. After several failures, leave out more and more blocks. */
static void vc_round_result(struct vcache_round *r, struct vcache_volume *v, int error)
{
	r->failures = error ? r->failures + 1 : 0;
	r->error = r->error ?: error;
	r->skip = r->failures < VC_FAILED_WINDOWS ? 0 :
		  min(max(2 * r->skip, v->width), VC_SKIP_MOST);
	r->from += min(r->skip, r->nr - r->from);
}

/*
 * Copy the next window while no other is in flight. A throttled one is small, and a pause
 * follows.
 */
static void vc_round_copy_alone(struct vcache_round *r, struct vcache_volume *v,
				struct vcache_log *log, bool throttled)
{
	bool held = throttled && vcache_throttle_begin(v);
	unsigned long start = jiffies, took = 0;
	struct vcache_window *w = &r->own;

	vcache_window_fill(r, w, v, throttled ? VC_WINDOW_THROTTLED : v->width);
	if (w->nr) {
		w->error = vcache_window_copy(r, w, v);
		if (!w->error)
			vcache_throttle_learn(v, w);
		else
			w->error = vcache_window_copy_each(r, w, v);
		took = jiffies - start;
		r->worked += took;
		vcache_rate_count(v, w->nr);
		if (!w->error)
			vc_window_adapt(v, took);
		vc_round_result(r, v, w->error);
	}
	if (throttled)
		vcache_throttle_end(log, took, held);
	if (w->nr)
		vc_volume_rest(v, took);
}

/*
 * May the depth change, and be measured? Not if the origin serves one request at a time, or
 * reads of a volume that is short of space compete.
 */
static bool vc_flight_flows(struct vcache_volume *v)
{
	return !vcache_throttle_serial(v) && !vcache_readers_here(v);
}

/* Get memory for another window. Return: NULL if there is none now. */
static struct vcache_window *vc_flight_window(struct vcache_round *r, struct vcache_volume *v)
{
	struct vcache_window *w = list_first_entry_or_null(&r->idle, struct vcache_window, node);

	if (w || !atomic_add_unless(&v->pool->windows, 1, VC_WINDOWS_MORE))
		return w;
	w = vcache_window_make(GFP_NOIO | __GFP_NORETRY | __GFP_NOWARN);
	if (w)
		list_add(&w->node, &r->idle);
	else
		atomic_dec(&v->pool->windows);
	return w;
}

/* Begin another window, if there may be one more. Return: whether that was so. */
static bool vc_flight_begin(struct vcache_round *r, struct vcache_volume *v)
{
	u32 depth = vc_flight_flows(v) ? v->flow.depth.value : 1;
	struct vcache_window *w;

	if (r->flying >= depth || !list_empty(&r->failed))
		return false;
	w = vc_flight_window(r, v);
	if (!w)
		return false;
	vcache_window_fill(r, w, v, v->width);
	if (!w->nr)
		return true;
	if (!r->flying++) {
		r->flew = jiffies;
		vcache_flow_begin(&v->flow, ktime_get_ns());
	} else {
		VCACHE_PROBE("destage has several windows in flight");
	}
	vcache_rate_count(v, w->nr);
	w->alone = depth == 1;
	list_move_tail(&w->node, &r->reading);
	vcache_window_send_read(w, v->pool, w->cell, w->nr);
	return true;
}

/* A window is not in flight any more. */
static void vc_flight_land(struct vcache_round *r, struct vcache_volume *v,
			   struct vcache_window *w)
{
	list_move_tail(&w->node, w->error ? &r->failed : &r->idle);
	if (w->error)
		vcache_flow_failed(&v->flow, ktime_get_ns());
	if (--r->flying)
		return;
	r->worked += jiffies - r->flew;
	vcache_flow_end(&v->flow, ktime_get_ns());
}

/* Complete the earliest window that is being written. */
static void vc_flight_finish(struct vcache_round *r, struct vcache_volume *v,
			     struct vcache_window *w)
{
	u64 took;

	w->error = vcache_window_finish(r, w, v);
	if (!w->error) {
		took = w->ended - w->began;
		if (w->alone)
			vcache_throttle_learn(v, w);
		if (w->requests && vc_flight_flows(v))
			vcache_flow_done(&v->flow, ktime_get_ns(), w->nr, took);
		vc_window_adapt(v, nsecs_to_jiffies(took));
		vc_round_result(r, v, 0);
	}
	vc_flight_land(r, v, w);
}

/* Go on with what is in flight. Return: false if nothing is. */
static bool vc_flight_go_on(struct vcache_round *r, struct vcache_volume *v)
{
	struct vcache_window *w;

	w = list_first_entry_or_null(&r->reading, struct vcache_window, node);
	if (w) {
		list_move_tail(&w->node, &r->writing);
		w->error = vcache_window_write(r, w, v);
		if (w->error)
			vc_flight_land(r, v, w);
		return true;
	}
	w = list_first_entry_or_null(&r->writing, struct vcache_window, node);
	if (w) {
		vc_flight_finish(r, v, w);
		return true;
	}
	w = list_first_entry_or_null(&r->failed, struct vcache_window, node);
	if (w) {
		list_move(&w->node, &r->idle);
		vc_round_result(r, v, vcache_window_copy_each(r, w, v));
		return true;
	}
	return false;
}

/**
 * vcache_round_copy - copy the windows of a round
 * @r: the round, filled and sorted
 * @v: the volume
 * @log: the log whose round it is
 *
 * Blocks that fail stay dirty. When several windows in a row have failed altogether, more and
 * more blocks are left for a later round: the origin has failed, or the cache device, or a large
 * part of it. A round that was not urgent ends when destage becomes urgent: chunks that are
 * superseded by now may be enough. A round in which an operator begins a pause ends, too.
 *
 * Return: 0; or an error if nothing could be copied, unless that was only because the cache device
 * cannot read the blocks: the origin is all right then.
 */
int vcache_round_copy(struct vcache_round *r, struct vcache_volume *v, struct vcache_log *log)
{
	bool urgent = vcache_volume_is_urgent(v);

	vc_round_start(r);
	while (r->from < r->nr && !READ_ONCE(v->stopped) && !vcache_destage_held(log)) {
		bool throttled = vcache_throttle_wanted(log);

		if (vcache_rate_left(log)) {
			if (!vc_flight_go_on(r, v))
				r->worked += vcache_rate_wait(log);
		} else if (!throttled && vcache_volume_is_urgent(v)) {
			if (!urgent)
				break;
			if (!vc_flight_begin(r, v))
				vc_flight_go_on(r, v);
		} else if (!vc_flight_go_on(r, v)) {
			vc_round_copy_alone(r, v, log, throttled);
		}
		cond_resched();
	}
	while (vc_flight_go_on(r, v))
		;
	vc_round_end(r, v);
	return r->copied || !r->refused ? 0 : r->error;
}
