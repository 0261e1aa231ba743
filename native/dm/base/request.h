/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * dm-vcache: what is kept for each request of dm.
 */
#ifndef DM_VCACHE_REQUEST_H
#define DM_VCACHE_REQUEST_H

#include <linux/bio.h>
#include <linux/device-mapper.h>
#include <linux/list.h>
#include <linux/workqueue.h>

#include "range.h"

struct vcache_block;
struct vcache_dev;
struct vcache_record;
struct vcache_tag;

/* Blocks that a read can reference without an allocation. */
#define VC_READ_PINS		4U

enum vcache_io_kind {
	VC_IO_PLAIN,
	VC_IO_READ,
	VC_IO_FLUSH,
	VC_IO_PARKED,
	VC_IO_DIRECT,
};

/**
 * struct vcache_read - a read, which may be partly in the buffer
 * @tag: the tag whose statistics count it
 * @start: when it came, ns
 * @origin: it was sent to the origin
 * @iter: where the data goes
 * @nr: blocks referenced
 * @pin: the blocks, @few or allocated
 * @few: space for most cases
 */
struct vcache_read {
	struct vcache_tag *tag;
	u64 start;
	bool origin;
	struct bvec_iter iter;
	unsigned int nr;
	struct vcache_block **pin;
	struct vcache_block *few[VC_READ_PINS];
};

/**
 * struct vcache_flush - a flush on its way through the tags that it covers
 * @node: vcache_tag.waiters
 * @cursor: vcache_tag.seq of the last tag seen
 * @cgroup: covers the tags of this cgroup, unless @all
 * @gen: vcache_dev.attr_gen when @cgroup was found
 * @inherited: vcache_dev.inherited when the flush began to visit tags
 * @all: covers every tag
 * @failed: some data could not be made durable
 * @fua: it is a write with FUA, which is in the buffer
 * @cause: enum vcache_flush_cause: what it waits for now
 * @owner: the tag whose statistics count it
 * @start: when it came, ns
 * @since: since when it waits, ns
 * @blocked: how long the tag that it waits for had waited for space by then, ns
 */
struct vcache_flush {
	struct list_head node;
	u64 cursor;
	u64 cgroup;
	int gen;
	int inherited;
	bool all;
	bool failed;
	bool fua;
	u8 cause;
	struct vcache_tag *owner;
	u64 start;
	u64 since;
	u64 blocked;
};

/**
 * struct vcache_parked - a request that needs exclusive access to a range, or one that
 *	bypasses the buffer; of the second kind only the range is used
 * @node: vcache_dev.parked
 * @first: first page number
 * @last: last page number
 * @pass: vcache_dev.park_pass when the worker last looked at it
 * @sent: on its way to the origin
 * @retried: failed blocks of its range have been tried again for it
 * @seen: a discard that every write sees now, see park.c
 * @step: what a discard does next, see discard.c
 * @range: whole blocks of a discard; held while it is at the origin
 * @work: does that
 */
struct vcache_parked {
	struct list_head node;
	pgoff_t first;
	pgoff_t last;
	unsigned int pass;
	bool sent;
	bool retried;
	bool seen;
	u8 step;
	struct vcache_range range;
	struct delayed_work work;
};

/**
 * struct vcache_large - a write that goes to the log without a copy, see large.c
 * @range: its blocks, held until the index has them
 * @rec: its record
 * @work: sends the record when the data is durable
 */
struct vcache_large {
	struct vcache_range range;
	struct vcache_record *rec;
	struct work_struct work;
};

/**
 * struct vcache_io - what is kept for each request of dm
 * @dev: the device
 * @kind: which member of the union is used
 * @taken: a write that has been split to size and counted
 * @unparked: a write that was parked; those still parked came later
 * @partial: a write of which a part is in the buffer; it goes on behind that
 * @copied: a write that has to be copied, because the cache device has failed it
 * @nowait: its sender does not wait, REQ_NOWAIT
 * @cell: the cell that a read from the cache reads, or VC_IO_NO_CELL
 * @writer: for a write, the tag whose statistics count how long it takes; else NULL
 * @began: when that write came, ns
 * @start: when a write began to wait for memory, ns
 */
struct vcache_io {
	struct vcache_dev *dev;
	enum vcache_io_kind kind;
	bool taken;
	bool unparked;
	bool partial;
	bool copied;
	bool nowait;
	u32 cell;
	struct vcache_tag *writer;
	u64 began;
	union {
		u64 start;
		struct vcache_read read;
		struct vcache_flush flush;
		struct vcache_parked parked;
		struct vcache_large large;
	};
};

#define VC_IO_NO_CELL (~0U)

static inline struct vcache_io *vcache_io(struct bio *bio)
{
	return dm_per_bio_data(bio, sizeof(struct vcache_io));
}

static inline struct bio *vcache_io_bio(struct vcache_io *io)
{
	return dm_bio_from_per_bio_data(io, sizeof(struct vcache_io));
}

#endif
