// SPDX-License-Identifier: GPL-2.0
#include "pace.h"

static u64 vc_lesser(u64 a, u64 b)
{
	return a < b ? a : b;
}

/**
 * vcache_pace_stop - the writer stands still for want of space
 * @p: the pace
 * @now: time, ns, not 0
 */
void vcache_pace_stop(struct vcache_pace *p, u64 now)
{
	if (!p->since)
		p->since = now;
}

/**
 * vcache_pace_go - the writer may try again
 * @p: the pace
 * @now: time, ns
 */
void vcache_pace_go(struct vcache_pace *p, u64 now)
{
	if (p->since)
		p->stood += now - p->since;
	p->since = 0;
}

/**
 * vcache_pace_open - the writer opens its next chunk
 * @p: the pace
 * @now: time, ns
 * @early: for how long the chunk has been there, ns
 */
void vcache_pace_open(struct vcache_pace *p, u64 now, u64 early)
{
	u64 delay = p->delay;

	vcache_pace_go(p, now);
	if (p->stood)
		delay += vc_lesser(p->stood, VC_PACE_STOOD_MAX) / 4;
	else
		delay -= vc_lesser(delay, early) / 2;
	WRITE_ONCE(p->delay, vc_lesser(delay, VC_PACE_DELAY_MAX));
	p->stood = 0;
}

/**
 * vcache_pace_write - a record is written
 * @p: the pace
 * @now: time, ns
 * @blocks: its size
 * @capacity: blocks of a chunk
 */
void vcache_pace_write(struct vcache_pace *p, u64 now, u32 blocks, u32 capacity)
{
	u64 first = p->next > now ? p->next : now;

	p->next = first + div_u64(p->delay, capacity) * blocks;
}

/**
 * vcache_pace_wait - how long must the next record wait?
 * @p: the pace
 * @now: time, ns
 *
 * Return: ns, 0 to VC_PACE_WAIT_MAX.
 */
u64 vcache_pace_wait(const struct vcache_pace *p, u64 now)
{
	if (p->next < now + VC_PACE_WAIT_MIN)
		return 0;
	return vc_lesser(p->next - now, VC_PACE_WAIT_MAX);
}
