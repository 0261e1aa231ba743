/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * dm-vcache: elastic SSDs.
 *
 * DOC: Blocks
 *
 * An elastic SSD maps blocks of the size of a chunk to chunks. It has a quota, and owns at most as
 * many chunks; more only after the quota was reduced. Each chunk that it owns is in one of these
 * states:
 *
 *   (of the pool) -> raw -> zeroed -> ready -> mapped to a block -> raw
 *                     └──────── (back to the pool) ────┘
 *
 * A chunk is zeroed before it can be mapped. So a new block reads as zeroes, and nobody sees what
 * the chunk had before. Each block is in one of these states:
 *
 *   VC_VSSD_NONE: no chunk; reads return zeroes, a write maps a ready chunk
 *   mapped: has a chunk
 *   VC_VSSD_BUSY: its chunk is being taken away; requests wait
 *   VC_VSSD_TAKEN: its chunk was taken by force; requests fail until the block is discarded
 *
 * Chunks above the quota that have no block go back to the pool at once. While vcache_vssd.keep is
 * set they stay, so that writes to new blocks succeed until the user of the disk has shrunk.
 *
 * DOC: Locks
 *
 *   vcache_vssd.mutex (one at a time removes blocks, or maps them durably)
 *     └── vcache_pool.lock
 *           └── vcache_vssd.lock (spin: blocks and counts; taken in interrupts)
 *
 * A request counts itself in vc_vssd_block.users, and then reads the chunk. Whoever removes a block
 * first makes it VC_VSSD_BUSY, and then waits until nobody is counted. A full barrier is between
 * both steps on both sides. So no request reaches a chunk that has left its block.
 *
 * vc_vssds_lock guards the list of elastic SSDs, and the sum of the quotas in a pool. It is taken
 * outside of all these.
 */
#ifndef DM_VCACHE_VSSD_INTERNAL_H
#define DM_VCACHE_VSSD_INTERNAL_H

#include <linux/bio.h>
#include <linux/device-mapper.h>
#include <linux/mutex.h>
#include <linux/wait.h>
#include <linux/workqueue.h>

#include "vssd.h"

/* Values of vc_vssd_block.chunk that are no chunk: chunk 0 has metadata. */
#define VC_VSSD_NONE	0U
#define VC_VSSD_BUSY	(~0U)
#define VC_VSSD_TAKEN	(~0U - 1)

/**
 * struct vc_vssd_block - a block of an elastic SSD
 * @chunk: its chunk, or VC_VSSD_*; changes under vcache_vssd.lock
 * @users: requests that use, or are about to look at, @chunk
 */
struct vc_vssd_block {
	u32 chunk;
	atomic_t users;
};

/**
 * struct vc_vssd_stack - chunks without a block
 * @nr: how many; under vcache_vssd.lock
 * @chunk: which ones
 */
struct vc_vssd_stack {
	u32 nr;
	u32 *chunk;
};

/**
 * struct vcache_vssd - an elastic SSD
 * @registry: list of all of them, under vc_vssds_lock
 * @md: its mapped device
 * @tables: tables that refer to it, under vc_vssds_lock
 * @pool: its pool; NULL before the first resume
 * @vol: its volume in the pool
 * @persist: its content outlives the device, and a power cut
 * @shift: sectors of a block, as a power of two
 * @blocks: its size; changes while it is suspended
 * @map: its blocks
 * @lock: guards the counts, the stacks, and changes of @map
 * @quota: how many chunks it may own
 * @keep: chunks above the quota are not returned; changes under @lock
 * @mapped: blocks that have a chunk
 * @taken: blocks in state VC_VSSD_TAKEN
 * @zeroing: chunks being zeroed
 * @raw: chunks that have to be zeroed
 * @ready: zeroed chunks
 * @deferred: requests for the worker
 * @starved: writes that wait until a chunk is zeroed
 * @wanted: what is noted for it in vcache_pool.direct_wanted; under the lock of the pool
 * @mutex: held by whoever removes blocks, or maps them durably
 * @idle: woken when the last user of a block is done
 * @errors: requests that failed because a block was taken, or the device has failed them
 * @refused: writes that failed because it had no chunk left
 * @suspended: chunks are not zeroed or returned now
 * @wq: for its work
 * @work: handles @deferred
 * @fill: gets chunks, zeroes them, and returns those above the quota
 */
struct vcache_vssd {
	struct list_head registry;
	struct mapped_device *md;
	unsigned int tables;
	struct vcache_pool *pool;
	struct vcache_volume *vol;
	bool persist;
	u8 shift;
	u32 blocks;
	struct vc_vssd_block *map;
	spinlock_t lock; /* counts, stacks, changes of the map */
	u32 quota;
	bool keep;
	u32 mapped;
	u32 taken;
	u32 zeroing;
	struct vc_vssd_stack raw;
	struct vc_vssd_stack ready;
	struct bio_list deferred;
	struct bio_list starved;
	u32 wanted;
	struct mutex mutex; /* removal of blocks */
	wait_queue_head_t idle;
	atomic64_t errors;
	atomic64_t refused;
	bool suspended;
	struct workqueue_struct *wq;
	struct work_struct work;
	struct delayed_work fill;
};

/**
 * struct vc_vssd_io - what is kept for each request of dm
 * @block: the block whose user it is, or NULL
 */
struct vc_vssd_io {
	struct vc_vssd_block *block;
};

/**
 * struct vc_vssd_target - what a table line says
 * @vssd: the elastic SSD
 * @pool_dev: the device of the pool
 * @volume: number of its volume in the pool
 * @quota: how many chunks it may own
 * @persist: see vcache_vssd.persist
 */
struct vc_vssd_target {
	struct vcache_vssd *vssd;
	struct dm_dev *pool_dev;
	u32 volume;
	u32 quota;
	bool persist;
};

static inline bool vc_vssd_is_chunk(u32 chunk)
{
	return chunk != VC_VSSD_NONE && chunk < VC_VSSD_TAKEN;
}

/* Chunks that it owns. Exact under vcache_vssd.lock. */
static inline u32 vc_vssd_owned(const struct vcache_vssd *s)
{
	return READ_ONCE(s->mapped) + READ_ONCE(s->raw.nr) + READ_ONCE(s->ready.nr) +
	       READ_ONCE(s->zeroing);
}

/* blocks.c */
u32 vc_vssd_hold(struct vcache_vssd *s, struct vc_vssd_block *b);
void vc_vssd_release(struct vcache_vssd *s, struct vc_vssd_block *b);
int vc_vssd_map(struct vcache_vssd *s, u32 block);
int vc_vssd_map_durably(struct vcache_vssd *s, u32 block);
int vc_vssd_free(struct vcache_vssd *s, u32 block);
int vc_vssd_free_range(struct vcache_vssd *s, u32 first, u32 nr);
int vc_vssd_force(struct vcache_vssd *s);

/* fill.c */
void vc_vssd_fill_soon(struct vcache_vssd *s);
void vc_vssd_fill_work(struct work_struct *work);

/* io.c */
int vc_vssd_request(struct vcache_vssd *s, struct bio *bio);
void vc_vssd_request_done(struct vcache_vssd *s, struct bio *bio, blk_status_t status);
void vc_vssd_work(struct work_struct *work);

/* state.c */
struct vcache_vssd *vc_vssd_get(struct mapped_device *md);
void vc_vssd_put(struct vcache_vssd *s);
int vc_vssd_set_quota(struct vcache_vssd *s, u32 quota, bool keep);
int vc_vssd_activate(struct vcache_vssd *s, struct vc_vssd_target *vt, sector_t sectors);
void vc_vssd_suspend(struct vcache_vssd *s);
void vc_vssd_resume(struct vcache_vssd *s);

#endif /* DM_VCACHE_VSSD_INTERNAL_H */
