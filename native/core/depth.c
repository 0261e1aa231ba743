// SPDX-License-Identifier: GPL-2.0
#include "depth.h"

/**
 * vcache_depth_init - begin with a depth
 * @d: the depth
 * @value: the first one
 * @most: the largest one
 */
void vcache_depth_init(struct vcache_depth *d, u32 value, u32 most)
{
	*d = (struct vcache_depth) { .value = value, .most = most, .fast = true };
}

/* Stay at a depth for some time. */
static void vc_depth_stay(struct vcache_depth *d, u32 value)
{
	d->value = value;
	d->before = 0;
	d->fast = false;
	d->wait = VC_DEPTH_WAIT;
}

/**
 * vcache_depth_settle - take another depth, about which nothing is known
 * @d: the depth
 * @value: the new one
 */
void vcache_depth_settle(struct vcache_depth *d, u32 value)
{
	d->rate = 0;
	d->slow = false;
	vc_depth_stay(d, value);
}

/* Try a depth in the next epoch. */
static void vc_depth_try(struct vcache_depth *d, u32 value)
{
	d->before = d->value;
	d->value = value;
}

static u32 vc_depth_step(const struct vcache_depth *d, bool down)
{
	if (down && d->slow && d->value > 1)
		return d->value / 2;
	if (!down && d->fast)
		return d->value;
	return d->value < 8 ? 1 : d->value / 4;
}

/* Try more, or fewer if @down. */
static void vc_depth_next(struct vcache_depth *d, bool down)
{
	u32 step = vc_depth_step(d, down);
	u32 value = down ? d->value - step : d->value + step;

	d->down = down;
	if (value >= 1 && value <= d->most)
		vc_depth_try(d, value);
	else
		vc_depth_stay(d, d->value);
}

/* Is the rate of a try good enough to keep its depth? */
static bool vc_depth_keeps(const struct vcache_depth *d, u64 rate)
{
	if (d->value < d->before)
		return rate >= d->rate - d->rate / (d->fast ? 8 : 16);
	return rate >= d->rate + div_u64(d->rate * (d->value - d->before), 4 * d->before);
}

/* A try ends. */
static void vc_depth_judge(struct vcache_depth *d, u64 rate, u64 latency)
{
	if (vc_depth_keeps(d, rate)) {
		d->rate = rate;
		d->latency = latency;
		vc_depth_next(d, d->down);
	} else if (d->fast && d->down) {
		/* The latency is the device's own, so a deeper queue may raise the rate. */
		d->value = d->before;
		vc_depth_next(d, false);
	} else {
		vc_depth_stay(d, d->before);
	}
}

/* Do others use the device now, as requests take longer, and fewer are completed? */
static bool vc_depth_crowded(const struct vcache_depth *d, u64 rate, u64 latency)
{
	return d->rate && rate < d->rate - d->rate / 4 && latency > 2 * d->latency;
}

/**
 * vcache_depth_decide - an epoch ends: which depth has the next one?
 * @d: the depth
 * @rate: what was completed, per second, in a unit of the caller
 * @latency: mean latency, ns
 */
void vcache_depth_decide(struct vcache_depth *d, u64 rate, u64 latency)
{
	bool slow = latency > VC_DEPTH_LATENCY_MAX, first = slow && !d->slow;

	if (vc_depth_crowded(d, rate, latency)) {
		vcache_depth_settle(d, d->value > 1 ? d->value / 2 : 1);
		return;
	}
	d->slow = slow;
	if (d->before) {
		vc_depth_judge(d, rate, latency);
	} else {
		d->rate = rate;
		d->latency = latency;
		if (first && d->value > 1)
			vc_depth_next(d, true);
		else if (d->wait)
			d->wait--;
		else
			vc_depth_next(d, !d->fast && !d->down && d->value > 1);
	}
}
