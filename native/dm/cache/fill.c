// SPDX-License-Identifier: GPL-2.0-only
/*
 * dm-vcache: blocks are filled with data that user space has saved, as if it had been read from
 * the origin.
 *
 * A fill is a promotion (promote.c) that no request waits for, and whose data does not come
 * from the origin. It takes chunks as a prefetch does, and takes part in its counters.
 *
 * DOC: Order of fills
 *
 * The data is as old as the session that it belongs to, see ../log/saved.c. A promotion that
 * reads the origin misses no write that came before it; a fill would. So it checks that its
 * blocks are still saved after it has noted the change counts. A write makes itself visible,
 * then removes its blocks from the saved ones, then counts a change if a promotion is under
 * way. If the fill finds its blocks saved, no such removal has happened yet, so the count of
 * that write comes later, and ends the fill; or the fill is in the index first, and the write
 * supersedes it there, as it supersedes any block.
 */
#include "promote.h"
#include "internal.h"

/* Most blocks of a log that are on their way to the cache: 8 MiB. */
#define VC_FILL_WAITING	2048

/* May a block be filled: is it still saved, and neither in the buffer nor in the cache? */
static bool vc_fill_wants(struct vcache_log *log, u64 block)
{
	return vcache_saved_has(log, block, 1) &&
	       !vcache_buffer_covers(log->vol->dev, block, block) &&
	       !vcache_lookup_any(log->vol, block, 1);
}

/*
 * Fill blocks that are next to one another. Return: how many were dealt with; 0 without a chunk,
 * or memory.
 */
static u32 vc_fill_send(struct vcache_log *log, u64 block, u32 n, u8 heat, const u8 *data)
{
	struct vcache_promotion *pr = vcache_prefetch_place(log, block, n);
	u32 i;

	if (!pr)
		return 0;
	n = pr->n;
	pr->heat = heat / 2;
	pr->ahead = true;
	atomic64_add(n, &log->prefetch.waiting);
	atomic_inc(&log->prefetch.flying);
	for (i = 0; i < n; i++)
		memcpy(page_address(pr->part[i].page), data + i * VC_BLOCK_SIZE,
		       VC_BLOCK_SIZE);
	/* The order of the two matters, see above. */
	if (vcache_promote_begin(pr) && vcache_saved_has(log, block, n))
		vcache_promote_store(pr);
	else
		vcache_promotion_free(pr);
	return n;
}

/**
 * vcache_fill - fill blocks with saved data, where it is not outdated
 * @log: the log; its device is locked, and not suspended
 * @token: the session of the data
 * @block: the first block
 * @n: how many
 * @heat: how hot they were when they were saved
 * @data: their data
 * @error: set to what is wrong
 *
 * Blocks that were written since they were saved, or that are in the buffer or the cache, are
 * skipped.
 *
 * Return: 0; -ESTALE if the session has ended; -EBUSY if too much is on its way; -ENOSPC
 * without a chunk; another negative errno.
 */
int vcache_fill(struct vcache_log *log, u64 token, u64 block, u32 n, u8 heat, const u8 *data,
		const char **error)
{
	u32 at, same;

	*error = "the blocks of this token are not known any more";
	if (!token || READ_ONCE(log->saved) != token)
		return -ESTALE;
	*error = "reads of the tag are not cached now";
	if (!vcache_prefetch_may(log))
		return -EOPNOTSUPP;
	*error = "too many blocks of the tag are on their way to the cache";
	if (atomic64_read(&log->prefetch.waiting) + n > VC_FILL_WAITING)
		return -EBUSY;
	*error = "the cache has no chunk, or the kernel no memory, for these blocks now";
	for (at = 0; at < n; at += same) {
		bool wants = vc_fill_wants(log, block + at);

		for (same = 1; at + same < n && same < VC_PROMOTION_MAX &&
		     vc_fill_wants(log, block + at + same) == wants; same++)
			;
		if (!wants)
			continue;
		same = vc_fill_send(log, block + at, same, heat,
				    data + at * VC_BLOCK_SIZE);
		if (!same)
			return -ENOSPC;
	}
	*error = NULL;
	return 0;
}
