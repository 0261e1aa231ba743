// SPDX-License-Identifier: GPL-2.0-only
/*
 * dm-vcache: what was read is in the cache again after a clean restart.
 *
 * Nothing on the device knows of a chunk of reads: whatever happens, what is in
 * it is gone with the index, and nothing of it has to be taken back when it is
 * superseded. So a clean shutdown, when nothing is written any more, makes
 * such chunks ones of the log: it gives each a generation above all there are,
 * says in the chunk table that they are clean, and seals them. From then on they
 * are as others are, also after a crash; and they are the log's newest, so that
 * what was written goes before what was read. But where what is older cannot go
 * they may: what was read has superseded nothing, see rule 1 in format.h.
 *
 * How hot a block was is not kept. A volume in write-through mode begins with
 * nothing anyway.
 */
#include <linux/blkdev.h>

#include "reads.h"

/* Chunks between two chances for others to run. */
#define VC_WARM_BATCH 64U

/*
 * The chunk table says from now on that this generation of a chunk is clean; or
 * that it is dead, where nobody knows whether its seal is on the device. It is
 * written before the pool is said to be clean.
 */
static void vc_warm_note(struct vc_pool *p, u32 nr, u64 gen, bool sealed)
{
	mutex_lock(&p->table_lock);
	if (sealed)
		vc_table_entry(p, nr)->clean = cpu_to_le64(gen);
	else
		vc_table_entry(p, nr)->dead = cpu_to_le64(gen);
	set_bit(nr / VC_CHUNKS_PER_BLOCK, p->table_dirty);
	mutex_unlock(&p->table_lock);
}

/* Now the chunk is one of the log. */
static void vc_warm_hand_over(struct vc_log *log, struct vc_chunk *c, u64 gen)
{
	spin_lock_irq(&log->lock);
	c->gen = gen;
	c->reads->nr[c->own]--;
	c->reads = NULL;
	c->warm = true;
	c->stale = false; /* its seal was made of what counts */
	list_move_tail(&c->node, &log->chunks);
	log->nr++;
	log->nr_own += c->own;
	log->warm++;
	spin_unlock_irq(&log->lock);
}

/* Return: 0, also when nothing in the chunk counts; or a negative errno. */
static int vc_warm_chunk(struct vc_log *log, struct vc_chunk *c)
{
	struct vc_pool *p = log->vol->pool;
	struct vc_log_info info = {
		.gen = atomic64_inc_return(&p->seq), .volume = log->vol->id,
		.chunk = vc_chunk_nr(p, c), .tag = log->tag,
	};
	int r;

	info.seq = info.gen;
	if (!vc_seal_reads(&p->g, &p->ix, p->work, &info))
		return 0;
	/* One flush for all of them comes at the end. */
	r = vc_store_io(p, REQ_OP_WRITE | REQ_SYNC, (u64)info.chunk *
			p->g.chunk_blocks + vc_chunk_capacity(&p->g),
			VC_SEAL_COPIES * p->g.seal_blocks, p->work);
	vc_warm_note(p, info.chunk, info.gen, !r);
	if (!r)
		vc_warm_hand_over(log, c, info.gen);
	return r;
}

/* Those that were missed once come first: they are the first to go. */
static int vc_warm_log(struct vc_log *log)
{
	struct vc_chunk *c, *next;
	u32 kind, n = 0;
	int r = 0;

	for (kind = 0; kind < VC_READS_KINDS; kind++) {
		/* No volume is in use: all lanes are shared. */
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

/* Has the pool something to do here? */
static bool vc_pool_has_reads(struct vc_pool *p)
{
	struct vc_volume *v;
	struct vc_log *log;

	list_for_each_entry(v, &p->volumes, node) {
		list_for_each_entry(log, &v->logs, node) {
			if (vc_log_reads(log))
				return true;
		}
	}
	return false;
}

/**
 * vc_pool_keep_reads - seal what was read, so that it is there after a restart
 * @p: the pool, under its lock; no volume is in use
 *
 * One chunk takes a write of its seal, a few KiB. Its data has to be durable
 * before, or another crash would find the seal of what is not there.
 *
 * Return: 0 or a negative errno.
 */
int vc_pool_keep_reads(struct vc_pool *p)
{
	struct vc_volume *v;
	struct vc_log *log;
	int r;

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
