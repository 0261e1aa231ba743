// SPDX-License-Identifier: GPL-2.0-only
/*
 * dm-vcache: read chunks survive a clean restart.
 *
 * Nothing on the device describes a read chunk. So its blocks are gone when the index is,
 * and nothing has to be written when they are superseded. A clean shutdown, when nothing
 * is written any more, turns read chunks into chunks of the log: each gets a new
 * generation, the chunk table says that it is clean, and it gets a seal. From then on they
 * are like other chunks, also after a crash. As they are the newest of the log, written
 * chunks are reclaimed before them. But if older chunks cannot be reclaimed, these can:
 * blocks that were read have superseded nothing, see rule 1 in format.h.
 *
 * The heat of blocks is not kept. A volume in write-through mode starts with an empty cache
 * anyway.
 */
#include <linux/blkdev.h>

#include "internal.h"

/* After so many chunks others may run. */
#define VC_WARM_BATCH 64U

/*
 * Note in the chunk table that this generation of a chunk is clean; or that it is dead, if
 * the write of its seal failed. The table is written before the clean flag of the pool.
 */
static void vc_warm_note(struct vcache_pool *p, u32 nr, u64 gen, bool sealed)
{
	mutex_lock(&p->table_lock);
	if (sealed)
		vcache_table_entry(p, nr)->clean = cpu_to_le64(gen);
	else
		vcache_table_entry(p, nr)->dead = cpu_to_le64(gen);
	set_bit(nr / VC_CHUNKS_PER_BLOCK, p->table_dirty);
	mutex_unlock(&p->table_lock);
}

/* Add the chunk to the written chunks of the log. */
static void vc_warm_hand_over(struct vcache_log *log, struct vcache_chunk *c, u64 gen)
{
	spin_lock_irq(&log->lock);
	c->gen = gen;
	c->reads->nr[c->own]--;
	c->reads = NULL;
	c->warm = true;
	c->stale = false; /* its seal has valid entries only */
	list_move_tail(&c->node, &log->chunks);
	WRITE_ONCE(log->nr, log->nr + 1);
	WRITE_ONCE(log->nr_own, log->nr_own + c->own);
	log->warm++;
	spin_unlock_irq(&log->lock);
}

/* Seal a read chunk. Return: 0, also if it has no valid blocks; or a negative errno. */
static int vc_warm_chunk(struct vcache_log *log, struct vcache_chunk *c)
{
	struct vcache_pool *p = log->vol->pool;
	struct vcache_log_info info = {
		.gen = atomic64_inc_return(&p->seq), .volume = log->vol->id,
		.chunk = vcache_chunk_nr(p, c), .tag = log->tag,
	};
	int r;

	info.seq = info.gen;
	if (!vcache_seal_reads(&p->g, &p->ix, p->work, &info))
		return 0;
	/* One flush at the end is enough for all of them. */
	r = vcache_store_io(p, REQ_OP_WRITE | REQ_SYNC, (u64)info.chunk *
			    p->g.chunk_blocks + vcache_chunk_capacity(&p->g),
			    VC_SEAL_COPIES * p->g.seal_blocks, p->work);
	vc_warm_note(p, info.chunk, info.gen, !r);
	if (!r)
		vc_warm_hand_over(log, c, info.gen);
	return r;
}

/* Seal all read chunks of a log; those that are reclaimed first get older generations. */
static int vc_warm_log(struct vcache_log *log)
{
	struct vcache_chunk *c, *next;
	u32 kind, n = 0;
	int r = 0;

	for (kind = 0; kind < VC_READS_KINDS; kind++) {
		/* No volume is in use, so all lanes are shared. */
		list_for_each_entry_safe(c, next,
					 &log->reads[kind].chunks[VC_SHARED],
					 node) {
			if (!r && c->state == VC_CHUNK_SEALED)
				r = vc_warm_chunk(log, c);
			if (!(++n % VC_WARM_BATCH))
				cond_resched();
		}
	}
	return r;
}

/* Has the pool any read chunks? */
static bool vc_pool_has_reads(struct vcache_pool *p)
{
	struct vcache_volume *v;
	struct vcache_log *log;

	list_for_each_entry(v, &p->volumes, node) {
		list_for_each_entry(log, &v->logs, node) {
			if (vcache_log_reads(log))
				return true;
		}
	}
	return false;
}

/**
 * vcache_pool_keep_reads - seal the read chunks, so that their blocks survive a restart
 * @p: the pool, locked; no volume is in use
 *
 * Each chunk takes one write of a few KiB. The data has to be durable before, or a seal
 * could name data that a crash has lost.
 *
 * Return: 0 or a negative errno.
 */
int vcache_pool_keep_reads(struct vcache_pool *p)
{
	struct vcache_volume *v;
	struct vcache_log *log;
	int r;

	lockdep_assert_held(&p->lock);
	if (!vc_pool_has_reads(p))
		return 0;
	r = blkdev_issue_flush(p->bdev);
	list_for_each_entry(v, &p->volumes, node) {
		if (v->mode == VC_VOLUME_WRITETHROUGH)
			continue;
		list_for_each_entry(log, &v->logs, node)
			r = r ?: vc_warm_log(log);
	}
	return r ?: blkdev_issue_flush(p->bdev);
}
