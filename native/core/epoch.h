/* SPDX-License-Identifier: GPL-2.0 */
/*
 * Flush epochs of one tag.
 *
 * Every buffered block belongs to the epoch in which it became dirty, and
 * leaves it when it is durable. A flush closes the open epoch and waits until
 * that one and all before it are empty: exactly the writes completed before
 * the flush. Two epochs are enough, as two flush queues are enough for the
 * block layer (block/blk-flush.c): while one drains, flushes that arrive wait
 * together for the open one, which is closed as soon as the first is empty.
 *
 * The caller serialises all calls for one epoch pair and keeps the waiters,
 * one list for each slot.
 */
#ifndef VCACHE_CORE_EPOCH_H
#define VCACHE_CORE_EPOCH_H

#include "types.h"

#define VC_EPOCH_SLOTS 2
#define VC_EPOCH_IDLE (-1)

/**
 * struct vc_epoch - the open epoch and the one that drains
 * @pending: blocks that are not yet durable, by slot
 * @open: the slot that new blocks enter
 * @draining: a flush waits for the other slot; when false, that slot is empty
 * @wanted: a flush waits for the open slot; only while @draining
 * @failed: a block of the slot could not be made durable since a flush waits
 */
struct vc_epoch {
	u32 pending[VC_EPOCH_SLOTS];
	u8 open;
	bool draining;
	bool wanted;
	bool failed[VC_EPOCH_SLOTS];
};

/**
 * struct vc_epoch_done - slots whose waiters are to be completed
 * @done: bit s is set when the waiters of slot s are done
 * @failed: bit s is set when they must be told of an error
 */
struct vc_epoch_done {
	u8 done;
	u8 failed;
};

unsigned int vc_epoch_enter(struct vc_epoch *e);
struct vc_epoch_done vc_epoch_leave(struct vc_epoch *e, unsigned int slot,
				    bool failed);
int vc_epoch_flush(struct vc_epoch *e);
bool vc_epoch_idle(const struct vc_epoch *e);

#endif /* VCACHE_CORE_EPOCH_H */
