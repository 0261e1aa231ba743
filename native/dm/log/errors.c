// SPDX-License-Identifier: GPL-2.0-only
/*
 * dm-vcache: counts of errors of the cache device.
 *
 * The device has failed when several records in a row fail, or reads of several different
 * chunks without a successful one between them. A bad block that is read again and again
 * does not count again.
 */
#include "internal.h"

/**
 * vcache_pool_record_done - count a completed record
 * @p: the pool
 * @failed: the cache device has failed to write it
 */
void vcache_pool_record_done(struct vcache_pool *p, bool failed)
{
	if (!failed) {
		if (atomic_read(&p->errors))
			atomic_set(&p->errors, 0);
	} else if (atomic_inc_return(&p->errors) == VC_ERRORS_MAX) {
		queue_work(p->wq, &p->fail_work);
	}
}

/**
 * vcache_pool_read_failed - count a read that the cache device has failed
 * @p: the pool
 * @cell: the first cell that was read
 */
void vcache_pool_read_failed(struct vcache_pool *p, u32 cell)
{
	u32 chunk = cell / p->g.chunk_blocks, n, i;
	unsigned long flags;

	spin_lock_irqsave(&p->error_lock, flags);
	n = READ_ONCE(p->read_errors);
	for (i = 0; i < n && p->unreadable[i] != chunk; i++)
		;
	if (i == n && n < VC_ERRORS_MAX) {
		p->unreadable[n] = chunk;
		WRITE_ONCE(p->read_errors, n + 1);
		if (n + 1 == VC_ERRORS_MAX)
			queue_work(p->wq, &p->fail_work);
	}
	spin_unlock_irqrestore(&p->error_lock, flags);
}
