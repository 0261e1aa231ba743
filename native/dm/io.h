/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * dm-vcache: what we keep for each request of dm, by the way that it goes.
 */
#ifndef DM_VCACHE_IO_H
#define DM_VCACHE_IO_H

#include <linux/bio.h>
#include <linux/device-mapper.h>
#include <linux/list.h>

struct vc_block;
struct vc_dev;
struct vc_tag;

/* Blocks that a read notes without allocating. */
#define VC_READ_PINS		4U

enum vc_io_kind {
	VC_IO_PLAIN,
	VC_IO_READ,
	VC_IO_FLUSH,
	VC_IO_PARKED,
	VC_IO_DIRECT,
};

/**
 * struct vc_read - a read, which may be partly in the buffer
 * @tag: whose statistics count it
 * @start: when it came, ns
 * @iter: where the data goes
 * @nr: blocks noted
 * @pin: the blocks, @few or allocated
 * @few: room for most cases
 */
struct vc_read {
	struct vc_tag *tag;
	u64 start;
	struct bvec_iter iter;
	unsigned int nr;
	struct vc_block **pin;
	struct vc_block *few[VC_READ_PINS];
};

/**
 * struct vc_flush - a flush on its way through the tags it covers
 * @node: vc_tag.waiters
 * @cursor: vc_tag.seq of the last tag seen
 * @cgroup: covers the tags of this cgroup, when not @all
 * @gen: vc_dev.attr_gen when @cgroup was found
 * @all: covers every tag
 * @failed: some data could not be made durable
 * @fua: it is a write with FUA, which is in the buffer
 * @owner: whose statistics count it
 * @start: ns
 */
struct vc_flush {
	struct list_head node;
	u64 cursor;
	u64 cgroup;
	int gen;
	bool all;
	bool failed;
	bool fua;
	struct vc_tag *owner;
	u64 start;
};

/**
 * struct vc_parked - a request that needs a range for itself, or goes past the
 *	buffer: then it has a range only
 * @node: vc_dev.parked
 * @first: first page number
 * @last: last page number
 * @pass: vc_dev.park_pass when the worker last looked at it
 * @sent: on its way to the origin
 * @retried: has had refused blocks of its range tried again
 */
struct vc_parked {
	struct list_head node;
	pgoff_t first;
	pgoff_t last;
	unsigned int pass;
	bool sent;
	bool retried;
};

/**
 * struct vc_io - what we keep for each request of dm
 * @dev: the device
 * @kind: which member of the union is used
 * @taken: a write that has been cut to size and counted
 * @cell: what a read from the cache reads, or VC_IO_NO_CELL
 * @start: when a write began to wait for room, ns
 */
struct vc_io {
	struct vc_dev *dev;
	enum vc_io_kind kind;
	bool taken;
	u32 cell;
	union {
		u64 start;
		struct vc_read read;
		struct vc_flush flush;
		struct vc_parked parked;
	};
};

#define VC_IO_NO_CELL (~0U)

static inline struct vc_io *vc_io(struct bio *bio)
{
	return dm_per_bio_data(bio, sizeof(struct vc_io));
}

static inline struct bio *vc_io_bio(struct vc_io *io)
{
	return dm_bio_from_per_bio_data(io, sizeof(struct vc_io));
}

#endif
