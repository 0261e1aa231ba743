// SPDX-License-Identifier: GPL-2.0
/*
 * A flush looks at the epochs of a tag without its lock. Meanwhile a block whose write-out
 * fails again and again moves from one slot to the other, before each read of the epochs.
 * The flush must never find them idle.
 */
#include "check.h"
#include "../../native/core/types.h"

static void move(void);

#undef READ_ONCE
#define READ_ONCE(x) (move(), (x))
#include "../../native/core/epoch.c"

static struct vcache_epoch epoch;
static unsigned int slot, moves;

/* The write-out fails: the block enters the other slot, and leaves this one. */
static void move(void)
{
	unsigned int was = slot;

	CHECK(vcache_epoch_flush(&epoch) == (int)was);
	slot = vcache_epoch_enter(&epoch);
	CHECK(slot != was);
	CHECK(vcache_epoch_leave(&epoch, was, true).done == 1U << was);
	moves++;
}

int main(void)
{
	unsigned int i;

	slot = vcache_epoch_enter(&epoch);
	for (i = 0; i < 8; i++)
		CHECK(!vcache_epoch_idle(&epoch));
	CHECK(moves >= 8);
	return 0;
}
