// SPDX-License-Identifier: GPL-2.0-only
/*
 * dm-vcache: the end of a chunk. First what it would bring back to life is taken
 * out of other seals, then the chunk table says that it is dead, then what is hot
 * in it is copied, then it is trimmed, and then it is free.
 */
#include <linux/blkdev.h>
#include <linux/delay.h>

#include "reads.h"

/**
 * vc_chunk_free - a chunk may be used again
 * @p: the pool
 * @c: the chunk; it is dead on the device
 */
void vc_chunk_free(struct vc_pool *p, struct vc_chunk *c)
{
	unsigned long flags;

	/* Or somebody empties a cell when the chunk is another log's. */
	WARN_ON_ONCE(atomic_read(&c->live));
	spin_lock_irqsave(&p->free_lock, flags);
	p->found[vc_chunk_nr(p, c)].gen = 0;
	c->log = NULL;
	c->gen = 0;
	c->reads = NULL;
	WRITE_ONCE(c->reuse, c->reuse + 1);
	c->own = false;
	c->state = VC_CHUNK_OUTSIDE;
	if (vc_chunk_nr(p, c) < p->limit)
		vc_lane_add(p, c);
	spin_unlock_irqrestore(&p->free_lock, flags);
}

/**
 * vc_chunk_release - nothing is in a chunk any more: trim it, and free it
 * @p: the pool
 * @c: the chunk; it is dead on the device
 */
void vc_chunk_release(struct vc_pool *p, struct vc_chunk *c)
{
	u64 block = (u64)vc_chunk_nr(p, c) * p->g.chunk_blocks;

	if (bdev_max_discard_sectors(p->bdev))
		blkdev_issue_discard(p->bdev, block * VC_BLOCK_SECTORS,
				     p->g.chunk_blocks * VC_BLOCK_SECTORS,
				     GFP_NOIO);
	vc_chunk_free(p, c);
}

/**
 * vc_chunk_reclaimable - may a chunk go?
 * @c: the chunk, the lock of its log is held
 *
 * Who reads from the chunk keeps it, and would hold up all others who wait for
 * room.
 */
bool vc_chunk_reclaimable(struct vc_chunk *c)
{
	if (c->state != VC_CHUNK_SEALED || atomic_read(&c->dirty))
		return false;
	if (!atomic_read(&c->users))
		return true;
	WRITE_ONCE(c->wanted, true);
	smp_mb(); /* the last one that has it lets go first, and looks then */
	return !atomic_read(&c->users);
}

/* The newest chunk of a log that is stale, or NULL. */
static struct vc_chunk *vc_log_stale(struct vc_log *log)
{
	struct vc_chunk *c, *stale = NULL;

	spin_lock_irq(&log->lock);
	list_for_each_entry_reverse(c, &log->chunks, node) {
		if (READ_ONCE(c->stale)) {
			stale = c;
			break;
		}
	}
	spin_unlock_irq(&log->lock);
	return stale;
}

/* Seal a chunk again. Return: 0 or a negative errno. */
static int vc_chunk_refresh(struct vc_pool *p, struct vc_chunk *c)
{
	int r;

	WRITE_ONCE(c->stale, false);
	smp_mb(); /* what makes it stale again empties the cell first */
	r = vc_chunk_reseal(&p->store, &p->g, &p->ix, vc_chunk_nr(p, c),
			    c->gen, p->work);
	if (r)
		WRITE_ONCE(c->stale, true);
	return r;
}

/*
 * Seal the stale chunks of a log again, and those before them: what goes from
 * a seal may have hidden something older. Chunks leave the list only under the
 * lock of the pool, which is held.
 */
static int vc_log_refresh(struct vc_pool *p, struct vc_log *log)
{
	struct vc_chunk *c, *last = vc_log_stale(log);
	int r = 0;

	if (!last)
		return 0;
	if (READ_ONCE(last->state) != VC_CHUNK_SEALED) {
		/* Its seal brings us back here. */
		vc_log_close_idle(log);
		return -EAGAIN;
	}
	list_for_each_entry(c, &log->chunks, node) {
		r = vc_chunk_refresh(p, c);
		if (r || c == last)
			break;
	}
	return r;
}

/*
 * Take out of the seals of other logs what records have superseded that are
 * to go now: it must not come back to life. See rule 2 in format.h. Return: 0,
 * or -EAGAIN when a chunk has no seal yet.
 */
static int vc_reclaim_reseal(struct vc_pool *p, struct vc_log *log)
{
	struct vc_log *other;
	int r = 0;

	list_for_each_entry(other, &log->vol->logs, node) {
		if (other != log && !r)
			r = vc_log_refresh(p, other);
	}
	return r;
}

/*
 * Say on the device that a chunk is dead; one of reads never was alive there.
 * Return: 0 or a negative errno.
 */
static int vc_chunk_mark_dead(struct vc_pool *p, struct vc_chunk *c)
{
	struct vc_log *log = c->log;
	u32 nr = vc_chunk_nr(p, c);
	int r;

	if (c->reads)
		return 0;
	r = vc_reclaim_reseal(p, log) ?: vc_volume_flush_origin(log->vol);
	if (r)
		return r;
	mutex_lock(&p->table_lock);
	vc_table_entry(p, nr)->dead = cpu_to_le64(c->gen);
	r = vc_table_save(p, nr);
	mutex_unlock(&p->table_lock);
	return r;
}

/*
 * From here on no round takes the chunk: it would find it in other hands when
 * it says that it is clean. Return: false when a round has it already.
 */
static bool vc_chunk_begin_reclaim(struct vc_log *log, struct vc_chunk *c)
{
	bool may;

	spin_lock_irq(&log->lock);
	may = vc_chunk_reclaimable(c);
	if (may)
		c->state = VC_CHUNK_RECLAIM;
	spin_unlock_irq(&log->lock);
	return may;
}

/**
 * vc_chunk_reclaim - reclaim the oldest written chunk of a log, or a read chunk
 * @p: the pool, locked
 * @c: the chunk
 * @how: what of it stays, as a copy
 *
 * Until that is durable the index has what is in it: what supersedes that has to
 * know, see vc_reclaim_reseal(). So copies take its place only behind that: they have
 * no record, and who supersedes one of them takes nothing back on the device.
 *
 * Return: 0; -EAGAIN when it may not; another negative errno.
 */
int vc_chunk_reclaim(struct vc_pool *p, struct vc_chunk *c, enum vc_reclaim how)
{
	struct vc_log *log = c->log;
	u32 cell = vc_chunk_nr(p, c) * p->g.chunk_blocks, i;
	int r;

	if (!vc_chunk_begin_reclaim(log, c))
		return -EAGAIN;
	r = vc_chunk_mark_dead(p, c);
	if (r) {
		spin_lock_irq(&log->lock);
		c->state = VC_CHUNK_SEALED;
		spin_unlock_irq(&log->lock);
		return r;
	}
	if (how != VC_RECLAIM_ALL)
		vc_reads_keep(c, how);
	for (i = 0; i < vc_chunk_capacity(&p->g); i++)
		vc_lookup_drop(p, cell + i);
	/* Who found it before is still reading; nobody finds it any more. */
	while (atomic_read(&c->users))
		usleep_range(50, 200);
	spin_lock_irq(&log->lock);
	list_del_init(&c->node);
	if (c->reads) {
		c->reads->nr[c->own]--;
	} else {
		log->nr--;
		log->nr_own -= c->own;
	}
	if (!c->clean)
		log->dirty--;
	if (c->warm)
		log->warm--;
	spin_unlock_irq(&log->lock);
	vc_chunk_release(p, c);
	return 0;
}
