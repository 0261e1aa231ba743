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

struct vcache_chunk;

enum vcache_block_state {
	VC_DIRTY,
	VC_WRITEOUT,
	VC_CLEAN,
	VC_DEAD,
};

/**
 * struct vcache_block - one page of buffered data
 * @lock: guards all fields below except where said; taken in interrupts
 * @ref: one is held by the index or the reaper, and one by each read that uses the block
 * @state: see "Block states"
 * @shared: also in the epochs of hTag, see "Tags of a block"
 * @want: write out as soon as @older has arrived
 * @failed: a part of the present write-out has failed
 * @bad: the last write-out failed; counted in vcache_tag.bad
 * @queued: on a dirty list; under the lock of vcache_block_home()
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
 * @spill: vcache_dev.spilled, if the xarray had no memory for it
 * @dev: the device
 * @valid: sectors that hold data; in WRITEOUT, sectors that are being written
 */
struct vcache_block {
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
	struct vcache_tag *tag;
	struct vcache_block *older;
	struct vcache_block *newer;
	unsigned long since;
	struct list_head node;
	union {
		struct llist_node reap;
		struct rcu_head rcu;
	};
	struct hlist_node spill;
	struct vcache_dev *dev;
	DECLARE_BITMAP(valid, VC_PAGE_SECTORS);
};

/**
 * struct vcache_writeout - a write-out to the origin
 * @range: its blocks, if @ranges is set
 * @ranges: the ranges of the volume, if the origin is written by destage as well
 * @waits: what it waits for before it is sent: its range, and its record if @ordered
 * @ordered: it is sent when its record is durable; if that has failed it is not sent
 * @release: called before its blocks are released; or NULL
 * @failed: the origin has refused the data
 * @chunk: for @release: the chunk with its record, if it is a write-through
 * @next: the next write-out of the same record
 * @users: until the request is complete and, for a write-through, until the index has its
 *	record
 * @granted: vcache_dev.granted
 * @bio: the request, with its memory behind it
 */
struct vcache_writeout {
	struct vcache_range range;
	struct vcache_ranges *ranges;
	atomic_t waits;
	bool ordered;
	void (*release)(struct vcache_writeout *w);
	bool failed;
	struct vcache_chunk *chunk;
	struct vcache_writeout *next;
	atomic_t users;
	struct llist_node granted;
	struct bio bio;
};

static inline struct vcache_writeout *vcache_writeout(struct bio *bio)
{
	return container_of(bio, struct vcache_writeout, bio);
}

/* The tag whose dirty list the block belongs to. */
static inline struct vcache_tag *vcache_block_home(const struct vcache_block *b)
{
	return b->shared ? b->tag->dev->host : b->tag;
}

/**
 * struct vcache_buffer_ops - what upper layers do for the buffer
 * @written: a write to so many blocks can be found in the buffer; the block is locked
 * @durable: continues flushes that waited for a tag; the list is empty on return
 */
struct vcache_buffer_ops {
	void (*written)(struct vcache_volume *v, u64 block, u64 blocks);
	void (*durable)(struct list_head *waiters, bool failed);
};

extern const struct vcache_buffer_ops *vcache_buffer_upper;

/* block.c */
unsigned int vcache_block_runs(const struct vcache_block *b);
bool vcache_block_start(struct vcache_block *b, bool runs, bool copy);
void vcache_block_part_done(struct vcache_block *b, blk_status_t status);

/* blocks.c */
void vcache_block_put(struct vcache_block *b);
struct vcache_block *vcache_blocks_load(struct vcache_dev *dev, pgoff_t index);
struct vcache_block *vcache_blocks_next(struct vcache_dev *dev, pgoff_t first, pgoff_t last);
bool vcache_buffer_covers(struct vcache_dev *dev, pgoff_t first, pgoff_t last);
int vcache_blocks_swap(struct vcache_dev *dev, pgoff_t index, struct vcache_block *old,
		       struct vcache_block *new);
int vcache_blocks_init(struct vcache_dev *dev);
void vcache_blocks_exit(struct vcache_dev *dev);
int vcache_blocks_module_init(const struct vcache_buffer_ops *ops);
void vcache_blocks_module_exit(void);

/* buffer.c */
int vcache_buffer_write(struct vcache_tag *tag, struct bio *bio, unsigned int *taken);
void vcache_reap_work(struct work_struct *work);

/* inflight.c */
void vcache_writeout_sent(struct vcache_tag *tag, unsigned int sectors);
void vcache_writeout_short(struct vcache_tag *tag);
void vcache_writeout_arrived(struct vcache_tag *tag);
void vcache_writeout_complete(struct vcache_tag *tag, unsigned int sectors);
void vcache_writeout_ready(struct vcache_writeout *w);
void vcache_writeout_put(struct vcache_writeout *w);
void vcache_writeout_done(struct bio *bio);
void vcache_writeout_end(struct bio *bio);

#endif /* DM_VCACHE_BUFFER_H */
