// SPDX-License-Identifier: GPL-2.0
#include "epoch.h"

/**
 * vcache_epoch_enter - a block becomes dirty
 * @e: the tag's epochs
 *
 * Return: the slot to give to vcache_epoch_leave() when the block is durable.
 */
unsigned int vcache_epoch_enter(struct vcache_epoch *e)
{
	WRITE_ONCE(e->total, e->total + 1);
	e->pending[e->open]++;
	return e->open;
}

/* While the draining slot is empty: complete its waiters, and start the next drain. */
static void vc_epoch_advance(struct vcache_epoch *e, struct vcache_epoch_done *d)
{
	unsigned int old = !e->open;

	while (e->draining && !e->pending[old]) {
		d->done |= 1U << old;
		if (e->failed[old])
			d->failed |= 1U << old;
		e->draining = false;
		if (!e->wanted)
			break;
		e->wanted = false;
		e->draining = true;
		old = e->open;
		e->open = !e->open;
	}
}

/**
 * vcache_epoch_leave - a block of @slot is durable, or its write-out has failed
 * @e: the tag's epochs
 * @slot: what vcache_epoch_enter() returned for it
 * @failed: its write-out has failed
 *
 * A block that failed and stays buffered must enter again *before* it leaves, so that a
 * flush which already waits for the open slot covers it too.
 *
 * Return: the slots whose waiters have to be completed now.
 */
struct vcache_epoch_done vcache_epoch_leave(struct vcache_epoch *e, unsigned int slot,
					    bool failed)
{
	struct vcache_epoch_done d = { 0, 0 };

	e->pending[slot]--;
	WRITE_ONCE(e->total, e->total - 1);
	if (failed)
		e->failed[slot] = true;
	vc_epoch_advance(e, &d);
	return d;
}

/**
 * vcache_epoch_flush - find out what a flush has to wait for
 * @e: the tag's epochs
 *
 * Return: the slot whose list the flush has to wait on, or VC_EPOCH_IDLE if everything is
 * durable already.
 */
int vcache_epoch_flush(struct vcache_epoch *e)
{
	unsigned int slot = e->open;

	if (!e->pending[slot])
		return e->draining ? !slot : VC_EPOCH_IDLE;
	if (e->draining) {
		if (!e->wanted)
			e->failed[slot] = false;
		e->wanted = true;
		return slot;
	}
	e->failed[slot] = false;
	e->draining = true;
	e->open = !slot;
	return slot;
}

/**
 * vcache_epoch_idle - is everything durable?
 * @e: the tag's epochs
 *
 * This call need not be serialised with the others. Then it tells of blocks that entered
 * before it whether they are durable.
 */
bool vcache_epoch_idle(const struct vcache_epoch *e)
{
	return !READ_ONCE(e->total);
}
