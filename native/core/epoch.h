/* SPDX-License-Identifier: GPL-2.0 */
/*
 * Flush epochs of a tag.
 *
 * Every buffered block belongs to the epoch in which it became dirty, and leaves it when
 * it is durable. A flush closes the open epoch, and waits until that epoch and all earlier
 * ones are empty: these have exactly the writes that completed before the flush.
 *
 * Two epochs are enough, as two flush queues are enough for the block layer
 * (block/blk-flush.c). While one epoch drains, new flushes wait together for the open one.
 * That is closed when the first one is empty.
 *
 * The caller serialises all calls for a pair of epochs, and keeps a list of waiters for
 * each slot.
 */
#ifndef VCACHE_CORE_EPOCH_H
#define VCACHE_CORE_EPOCH_H

#include "types.h"

#define VC_EPOCH_SLOTS 2
#define VC_EPOCH_IDLE (-1)

/**
 * struct vcache_epoch - the open epoch and the epoch that drains
 * @total: blocks that are not durable; may be read without serialisation: it does not become
 *	0 while a block moves to another slot
 * @pending: the same by slot
 * @open: the slot that new blocks enter
 * @draining: a flush waits for the other slot; if false, that slot is empty
 * @wanted: a flush waits for the open slot; only while @draining
 * @failed: a write-out of a block of the slot failed since a flush waits
 */
struct vcache_epoch {
	u32 total;
	u32 pending[VC_EPOCH_SLOTS];
	u8 open;
	bool draining;
	bool wanted;
	bool failed[VC_EPOCH_SLOTS];
};

/**
 * struct vcache_epoch_done - slots whose waiters have to be completed
 * @done: bit s is set if the waiters of slot s are done
 * @failed: bit s is set if they get an error
 */
struct vcache_epoch_done {
	u8 done;
	u8 failed;
};

unsigned int vcache_epoch_enter(struct vcache_epoch *e);
struct vcache_epoch_done vcache_epoch_leave(struct vcache_epoch *e, unsigned int slot,
					    bool failed);
int vcache_epoch_flush(struct vcache_epoch *e);
bool vcache_epoch_idle(const struct vcache_epoch *e);

#endif /* VCACHE_CORE_EPOCH_H */
