/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * dm-vcache: buffered data, and write-outs of it.
 *
 * DOC: Block states
 *
 *   DIRTY --write-out--> WRITEOUT --durable--> CLEAN --reaped--> DEAD
 *     ^                     |
 *     +------- failed ------+
 *
 * The content of a block may change only while it is DIRTY. If it changed during the
 * write-out, a power cut could leave a sector half of one write and half of another. A
 * write that meets a block in WRITEOUT makes a newer block, which inherits the content
 * and takes its place in the index. The newer block is not written out before the older
 * one has arrived, so the device never has two versions of a sector in flight. There are
 * at most two versions of a block.
 *
 * DOC: Tags of a block
 *
 * A block belongs to the tag that first dirtied it. When another tag writes to it, it
 * becomes *shared*: it also enters the epochs of hTag. Every flush covers hTag, so the
 * block is covered by the flushes of both tags.
 */
#ifndef DM_VCACHE_BUFFER_H
#define DM_VCACHE_BUFFER_H

#include <linux/refcount.h>

#include "../base/range.h"
#include "../tag/tag.h"

struct vc_chunk;

enum vc_block_state {
	VC_DIRTY,
	VC_WRITEOUT,
	VC_CLEAN,
	VC_DEAD,
};

/**
 * struct vc_block - one page of buffered data
 * @lock: guards all fields below except where said; taken in interrupts
 * @ref: one is held by the index or the reaper, and one by each read that uses the block
 * @state: see "Block states"
 * @shared: also in the epochs of hTag, see "Tags of a block"
 * @want: write out as soon as @older has arrived
 * @failed: a part of the present write-out has failed
 * @bad: the last write-out failed; counted in vc_tag.bad
 * @queued: on a dirty list; under the lock of vc_block_home()
 * @retry: its write-out failed and has not been tried again; under the same lock
 * @slot: epoch slot of @tag
 * @host_slot: epoch slot of hTag, if @shared
 * @parts: requests of this write-out that have not completed
 * @index: page number on the device
 * @page: the data; page_private points back here
 * @tag: the tag that first dirtied it, and that its memory is charged to
 * @older: previous version, still in WRITEOUT
 * @newer: version that replaced this one, while this is in WRITEOUT
 * @since: when it became dirty, jiffies
 * @node: dirty list, ready list or the worker's batch
 * @reap: list of blocks to free
 * @rcu: frees the block
 * @spill: vc_dev.spilled, if the xarray had no memory for it
 * @dev: the device
 * @valid: sectors that hold data; in WRITEOUT, sectors that are being written
 */
struct vc_block {
	spinlock_t lock; /* state and content of the block */
	refcount_t ref;
	u8 state;
	bool shared;
	bool want;
	bool failed;
	bool bad;
	bool queued;
	bool retry;
	u8 slot;
	u8 host_slot;
	unsigned int parts;
	pgoff_t index;
	struct page *page;
	struct vc_tag *tag;
	struct vc_block *older;
	struct vc_block *newer;
	unsigned long since;
	struct list_head node;
	union {
		struct llist_node reap;
		struct rcu_head rcu;
	};
	struct hlist_node spill;
	struct vc_dev *dev;
	DECLARE_BITMAP(valid, VC_PAGE_SECTORS);
};

/**
 * struct vc_writeout - a write-out to the origin
 * @range: its blocks, if @ranges is set
 * @ranges: the ranges of the volume, if the origin is written by destage as well
 * @release: called before its blocks are released; or NULL
 * @failed: the origin has refused the data
 * @chunk: for @release: the chunk with its record, if it is a write-through
 * @next: the next write-out of the same record
 * @users: until the request is complete and, for a write-through, until the index has its
 *	record
 * @granted: vc_dev.granted
 * @bio: the request, with its memory behind it
 */
struct vc_writeout {
	struct vc_range range;
	struct vc_ranges *ranges;
	void (*release)(struct vc_writeout *w);
	bool failed;
	struct vc_chunk *chunk;
	struct vc_writeout *next;
	atomic_t users;
	struct llist_node granted;
	struct bio bio;
};

static inline struct vc_writeout *vc_writeout(struct bio *bio)
{
	return container_of(bio, struct vc_writeout, bio);
}

/* The tag whose dirty list the block belongs to. */
static inline struct vc_tag *vc_block_home(const struct vc_block *b)
{
	return b->shared ? b->tag->dev->host : b->tag;
}

/**
 * struct vc_buffer_ops - what upper layers do for the buffer
 * @written: a write to so many blocks can be found in the buffer; the block is locked
 * @durable: continues flushes that waited for a tag; the list is empty on return
 */
struct vc_buffer_ops {
	void (*written)(struct vc_volume *v, u64 block, u64 blocks);
	void (*durable)(struct list_head *waiters, bool failed);
};

extern const struct vc_buffer_ops *vc_buffer_upper;

/* block.c */
unsigned int vc_block_runs(const struct vc_block *b);
bool vc_block_start(struct vc_block *b, bool runs, bool copy);
void vc_block_part_done(struct vc_block *b, blk_status_t status);

/* blocks.c */
void vc_block_put(struct vc_block *b);
struct vc_block *vc_blocks_load(struct vc_dev *dev, pgoff_t index);
struct vc_block *vc_blocks_next(struct vc_dev *dev, pgoff_t first, pgoff_t last);
bool vc_buffer_covers(struct vc_dev *dev, pgoff_t first, pgoff_t last);
int vc_blocks_swap(struct vc_dev *dev, pgoff_t index, struct vc_block *old,
		   struct vc_block *new);
int vc_blocks_init(struct vc_dev *dev);
void vc_blocks_exit(struct vc_dev *dev);
int vc_blocks_module_init(const struct vc_buffer_ops *ops);
void vc_blocks_module_exit(void);

/* buffer.c */
int vc_buffer_write(struct vc_tag *tag, struct bio *bio, unsigned int *taken);
void vc_reap_work(struct work_struct *work);

/* inflight.c */
void vc_writeout_sent(struct vc_tag *tag, unsigned int sectors);
void vc_writeout_arrived(struct vc_tag *tag);
void vc_writeout_complete(struct vc_tag *tag, unsigned int sectors);
void vc_writeout_put(struct vc_writeout *w);
void vc_writeout_done(struct bio *bio);
void vc_writeout_end(struct bio *bio);

#endif /* DM_VCACHE_BUFFER_H */
