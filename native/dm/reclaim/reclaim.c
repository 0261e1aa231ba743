// SPDX-License-Identifier: GPL-2.0-only
/*
 * dm-vcache: reclaim of a chunk. In this order:
 *
 * 1. The seals of other logs drop the entries that the chunk supersedes, see reseal.c.
 * 2. The chunk table says that the chunk is dead.
 * 3. Its hot blocks are copied to another chunk.
 * 4. The chunk is trimmed, and free.
 */
#include <linux/blkdev.h>
#include <linux/delay.h>

#include "internal.h"

/**
 * vcache_chunk_release - trim a chunk, and free it
 * @p: the pool
 * @c: the chunk, without live blocks; it is dead on the device
 */
void vcache_chunk_release(struct vcache_pool *p, struct vcache_chunk *c)
{
	u64 block = (u64)vcache_chunk_nr(p, c) * p->g.chunk_blocks;

	if (bdev_max_discard_sectors(p->bdev))
		blkdev_issue_discard(p->bdev, block * VC_BLOCK_SECTORS,
				     p->g.chunk_blocks * VC_BLOCK_SECTORS,
				     GFP_NOIO);
	vcache_chunk_free(p, c);
}

/**
 * vcache_log_is_blocked - has the reclaim of a chunk of a log just failed?
 * @log: the log
 *
 * Then other logs give up theirs meanwhile.
 */
bool vcache_log_is_blocked(const struct vcache_log *log)
{
	return time_before(jiffies, READ_ONCE(log->blocked_until));
}

/**
 * vcache_chunk_reclaimable - can a chunk be reclaimed now?
 * @c: the chunk, the lock of its log is held
 *
 * It cannot while it is being read: waiting for the reader would hold up everybody who
 * waits for space. So the last reader is asked to kick us.
 */
bool vcache_chunk_reclaimable(struct vcache_chunk *c)
{
	lockdep_assert_held(&c->log->lock);
	if (c->state != VC_CHUNK_SEALED || atomic_read(&c->dirty) ||
	    (!c->reads && vcache_log_is_blocked(c->log)))
		return false;
	if (!atomic_read(&c->users))
		return true;
	VCACHE_PROBE("reader keeps a chunk from reclaim");
	WRITE_ONCE(c->wanted, true);
	smp_mb(); /* pairs with vcache_lookup_done(): it drops its count, then reads the flag */
	return !atomic_read(&c->users);
}

/*
 * Write to the chunk table that a chunk is dead. A read chunk is not in use there anyway, and
 * the slot of the volume may have told it already. Return: 0 or a negative errno.
 */
static int vc_chunk_mark_dead(struct vcache_pool *p, struct vcache_chunk *c)
{
	struct vcache_log *log = c->log;
	u32 nr = vcache_chunk_nr(p, c);
	int r;

	if (c->reads || c->gen < log->vol->floor)
		return 0;
	r = vcache_reseal_others(p, log->vol, log) ?: vcache_reseal_older(p, c) ?:
	    vcache_volume_flush_origin(log->vol);
	if (r)
		return r;
	mutex_lock(&p->table_lock);
	vcache_table_entry(p, nr)->dead = cpu_to_le64(c->gen);
	r = vcache_table_save(p, nr);
	mutex_unlock(&p->table_lock);
	return r;
}

/*
 * From here on no destage round takes the chunk. It could belong to another log by the
 * time the round marks it clean. Return: false if the chunk is not reclaimable any more.
 */
static bool vc_chunk_begin_reclaim(struct vcache_log *log, struct vcache_chunk *c)
{
	bool may;

	spin_lock_irq(&log->lock);
	may = vcache_chunk_reclaimable(c);
	if (may)
		c->state = VC_CHUNK_RECLAIM;
	spin_unlock_irq(&log->lock);
	return may;
}

/*
 * A chunk that is reclaimed before an older one may be the only one that is stale. When it
 * is gone, nothing else tells that entries of the older ones, which it has superseded, must not
 * become valid again. No cell of it is valid any more, so it does not become stale now.
 */
static void vc_chunk_pass_stale(struct vcache_log *log, struct vcache_chunk *c)
{
	lockdep_assert_held(&log->lock);
	if (!READ_ONCE(c->stale) || c == list_first_entry(&log->chunks, struct vcache_chunk, node))
		return;
	VCACHE_PROBE("chunk passes on that it is stale");
	WRITE_ONCE(list_prev_entry(c, node)->stale, true);
}

/*
 * Count what is lost with a chunk, after what is kept has been copied. See "Evictions" in
 * ../log/counts.h.
 */
static void vc_chunk_count_lost(struct vcache_log *log, struct vcache_chunk *c,
				enum vcache_reclaim how)
{
	u32 lost = atomic_read(&c->live);
	bool limit = how != VC_RECLAIM_KEEP ||
		     (c->own ? vcache_log_has(log, VC_OWN) >= READ_ONCE(log->own_most) :
			       vcache_log_has(log, VC_SHARED) >= READ_ONCE(log->most));

	atomic64_add(lost, &log->counts.evicted);
	if (limit)
		atomic64_add(lost, &log->counts.evicted_limit);
	c->lost = limit ? 0 : lost;
	c->lost_slot = log->vol->slot;
	c->lost_tag = log->tag;
}

/**
 * vcache_chunk_reclaim - reclaim a written chunk of a log, or a read chunk
 * @p: the pool, locked
 * @c: the chunk: what vcache_log_oldest() has found, one without live blocks, or a read chunk
 * @how: which of its blocks are kept, as copies
 *
 * The index keeps the blocks of the chunk until its death is durable: until then a write
 * that supersedes one of them may have to make chunks of other logs stale, see
 * vcache_reseal_others(). Copies enter the index only after that. They have no record, so
 * superseding a copy changes nothing on the device.
 *
 * Return: 0; -EAGAIN if the chunk cannot be reclaimed now; another negative errno.
 */
int vcache_chunk_reclaim(struct vcache_pool *p, struct vcache_chunk *c, enum vcache_reclaim how)
{
	struct vcache_log *log = c->log;
	u32 cell = vcache_chunk_nr(p, c) * p->g.chunk_blocks, i;
	bool clean;
	int r;

	lockdep_assert_held(&p->lock);
	if (!vc_chunk_begin_reclaim(log, c))
		return -EAGAIN;
	r = vc_chunk_mark_dead(p, c);
	if (r) {
		if (r != -EAGAIN)
			WRITE_ONCE(log->blocked_until, jiffies + VC_BLOCKED_DELAY);
		spin_lock_irq(&log->lock);
		c->state = VC_CHUNK_SEALED;
		spin_unlock_irq(&log->lock);
		return r;
	}
	if (how != VC_RECLAIM_ALL)
		vcache_reads_keep(c, how);
	vc_chunk_count_lost(log, c, how);
	for (i = 0; i < vcache_chunk_capacity(&p->g); i++)
		vcache_lookup_drop(p, cell + i);
	/* Reads that found the chunk before are still on their way. No new ones come. */
	while (atomic_read(&c->users)) {
		VCACHE_PROBE("reclaim waits for a reader");
		usleep_range(50, 200);
	}
	spin_lock_irq(&log->lock);
	if (!c->reads)
		vc_chunk_pass_stale(log, c);
	clean = c->clean;
	if (!clean)
		vcache_log_gets_clean(log, c);
	list_del_init(&c->node);
	if (c->reads) {
		c->reads->nr[c->own]--;
	} else {
		WRITE_ONCE(log->nr, log->nr - 1);
		WRITE_ONCE(log->nr_own, log->nr_own - c->own);
	}
	if (c->warm)
		log->warm--;
	spin_unlock_irq(&log->lock);
	vcache_chunk_release(p, c);
	/* During a drain a writer waits until few chunks of its log are dirty. */
	if (!clean)
		vcache_log_wake(log);
	return 0;
}
