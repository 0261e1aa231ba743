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

/* How long to wait for each block by which a log becomes more dirty, ns. */
static u64 vc_pace_each(u32 dirty, u32 limit)
{
	if (dirty <= limit / 2)
		return 0;
	return div_u64(VC_PACE_GROW, dirty < limit ? limit - dirty : 1);
}

/* Let the next record wait longer, by @ns, within the bound. */
static void vc_pace_add(struct vcache_pace *p, u64 now, u64 ns)
{
	u64 first = p->next > now ? p->next : now;

	p->next = vc_lesser(first + ns, now + VC_PACE_WAIT_MAX);
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
	vc_pace_add(p, now, div_u64(p->delay, capacity) * blocks);
}

/**
 * vcache_pace_grow - a record is written after a log has become more dirty
 * @p: the pace
 * @now: time, ns
 * @grown: by how many blocks, since the previous record
 * @dirty: how many are dirty
 * @limit: how many may be
 */
void vcache_pace_grow(struct vcache_pace *p, u64 now, u32 grown, u32 dirty, u32 limit)
{
	vc_pace_add(p, now, vc_pace_each(dirty, limit) * grown);
}

/**
 * vcache_pace_blocks - how many blocks may the next record have, so that its delay is in the bound?
 * @p: the pace
 * @capacity: blocks of a chunk
 * @dirty: how many blocks of the log are dirty
 * @limit: how many may be
 *
 * Return: at least VC_PACE_BLOCKS_MIN.
 */
u32 vcache_pace_blocks(const struct vcache_pace *p, u32 capacity, u32 dirty, u32 limit)
{
	u64 each = div_u64(p->delay, capacity) + vc_pace_each(dirty, limit);
	u32 blocks = VC_PACE_BLOCKS_MIN;

	while (blocks < capacity && each * blocks * 2 <= VC_PACE_WAIT_MAX)
		blocks *= 2;
	return blocks;
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
	return p->next < now + VC_PACE_WAIT_MIN ? 0 : p->next - now;
}
