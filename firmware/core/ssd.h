/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The SSD as its front ends see it: NVMe/TCP controller, self-test, benchmarks.
 *
 * One caller at a time. A command takes effect, as far as anybody can see, in
 * the order of the calls. What it costs is told, not waited for: each call is
 * given the time at which the command arrived, in ns, never earlier than in the
 * call before, and returns when it completes. A front end on the wall clock
 * answers at that moment, one in virtual time goes on to it.
 */
#ifndef VCACHE_FW_SSD_H
#define VCACHE_FW_SSD_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define VS_SECTOR 512u
/* Logical block of the FTL; the NVMe front end shows 512 B and 4 KiB formats. */
#define VS_BLOCK 4096u
/* hTag: the host's own I/O, and what carries no tag. */
#define VS_TAG_HOST 0u

typedef uint64_t vs_time;

enum vs_status {
	VS_OK,
	VS_EINVAL,	/* out of range */
	VS_EMEDIA,	/* unrecoverable read error */
	VS_EREADONLY,	/* spare blocks used up, or metadata lost */
	VS_EPOWER,	/* the power is off (cut by the NAND model) */
};

struct vs_result {
	enum vs_status status;
	vs_time done;
};

struct vs_ssd;

/**
 * struct vs_geometry - the NAND behind the ops
 * @channels: 1 ... 32
 * @ways: banks of a channel; bank = channel * ways + way
 * @blocks: of a bank
 * @pages: of a block, a multiple of 2 from 4 on; @pages blocks of VS_BLOCK
 *	must fit in a log area: at most 336
 * @page_size: bytes, 1 ... 32 times VS_BLOCK
 * @paired: MLC with the two pages of a word line far apart, see pairing.h
 */
struct vs_geometry {
	uint32_t channels;
	uint32_t ways;
	uint32_t blocks;
	uint32_t pages;
	uint32_t page_size;
	bool paired;
};

/* Spare bytes of a page that the firmware uses, a multiple of 8. */
#define VS_OOB_SIZE(page_size) ((40u + (page_size) / VS_BLOCK * 12u + 7u) & ~7u)

struct vs_page {
	uint32_t bank;
	uint32_t block;
	uint32_t page;
};

/**
 * struct vs_nand_ops - everything the firmware does to the world
 * @read: @data may be NULL: spare bytes only. VS_EMEDIA when uncorrectable.
 *	An erased page reads as ones.
 * @program: VS_EMEDIA when it failed; then the block is to be retired. What
 *	was programmed before stays readable, but for the other page of the word
 *	line if there are pairs
 * @erase: VS_EMEDIA when it failed
 * @is_bad: does the block carry a bad-block mark?
 * @mark_bad: give it one; it stays over a power cut
 *
 * An operation begins at @now or when its bank and channel are free, and is
 * over at *@done. All but @is_bad may return VS_EPOWER, and nothing works
 * after that.
 */
struct vs_nand_ops {
	enum vs_status (*read)(void *ctx, vs_time now, struct vs_page at,
			       void *data, void *oob, vs_time *done);
	enum vs_status (*program)(void *ctx, vs_time now, struct vs_page at,
				  const void *data, const void *oob,
				  vs_time *done);
	enum vs_status (*erase)(void *ctx, vs_time now, struct vs_page at,
				vs_time *done);
	bool (*is_bad)(void *ctx, struct vs_page at);
	enum vs_status (*mark_bad)(void *ctx, vs_time now, struct vs_page at,
				   vs_time *done);
};

enum vs_personality {
	VS_TAGGED,	/* vFLUSH: tag-based write buffer and map logs */
	VS_BASELINE,	/* every flush: all buffered data, all dirty map pages */
};

enum vs_gc_policy {
	VS_GC_GREEDY,		/* fewest valid blocks */
	VS_GC_COST_BENEFIT,	/* age * free / (2 * used), as LFS has it */
};

enum vs_mapping {
	VS_MAP_PAGE,	/* any block of the host anywhere */
	VS_MAP_FAST,	/* hybrid: data blocks, and log blocks merged with them */
};

#define VS_LANE_ANY UINT32_MAX
#define VS_HANDLES 8u

/**
 * struct vs_config - a device
 * @geometry: its NAND
 * @buffer_blocks: write buffer, in VS_BLOCK; at least two pages
 * @max_tags: tags that have state at a time, hTag included, 1 ... 256. Who
 *	comes when all are in use is treated as hTag until one is free
 * @lanes: groups of whole channels, 1 ... @geometry.channels
 * @meta_stripe: metadata blocks open at once in a lane, 1 ... its banks; at
 *	least two are, for the two copies of a page
 * @spare_percent: over-provisioning, 0 ... 90, on top of what garbage
 *	collection must have to get on at all
 * @bad_blocks: per lane, set aside for factory and grown bad blocks
 * @idle_percent: of the buffer. What is dirty beyond it, the oldest, is written
 *	back by banks that have nothing to do. A flush later finds less to do;
 *	what would soon have been overwritten is written in vain. 0: they never do
 * @personality: of the flush
 * @gc: choice of victims
 * @gc_pages: pages that garbage collection programs at most along with one
 *	page of the host, as long as blocks are left
 * @wear_gap: erases that the least worn block may lag behind the most worn
 *	one before its data is moved; 0: never moved
 * @mapping: where data goes and how room is made for it. Both show the same
 *	capacity, with the same blocks spare. VS_MAP_FAST has one lane, and
 *	uses none of @gc, @gc_pages and @idle_percent
 * @log_entries: changes of the map that a tag's log area takes, at most what a
 *	page has room for; 0: that
 * @sync_pages: a flush, or write with FUA, of at most so many pages of data
 *	programs no log page: recovery finds them by their spare bytes; at most
 *	32, 0: there are always log pages. Only of VS_TAGGED with VS_MAP_PAGE
 * @sync_copies: how often each of these pages is programmed, on as many banks
 *	at the same time: 2, or 1 if it may happen that the newest page of an
 *	erase block cannot be read after a power cut, and is taken for torn
 * @handles: placement handles of the host, 1 ... VS_HANDLES; 0 is 1. Each has
 *	open blocks of its own in all banks, so data with different lifetimes can
 *	be kept apart. What is collected is mixed. VS_MAP_FAST has one
 * @log_blocks: of VS_MAP_FAST, the sequential one included: at least 2, at
 *	most what is spare; 0: as many as that gives
 */
struct vs_config {
	struct vs_geometry geometry;
	uint32_t buffer_blocks;
	uint32_t max_tags;
	uint32_t lanes;
	uint32_t meta_stripe;
	uint32_t spare_percent;
	uint32_t bad_blocks;
	uint32_t idle_percent;
	enum vs_personality personality;
	enum vs_gc_policy gc;
	uint32_t gc_pages;
	uint32_t wear_gap;
	enum vs_mapping mapping;
	uint32_t log_entries;
	uint32_t log_blocks;
	uint32_t sync_pages;
	uint32_t sync_copies;
	uint32_t handles;
};

/* Bytes of memory for a device, of any alignment; 0: the values are wrong. */
size_t vs_size_needed(const struct vs_config *c);
/* Blocks that such a device shows; 0: the values are wrong. */
uint64_t vs_capacity(const struct vs_config *c);
/* Erase everything, then an empty device. What was there is gone. */
struct vs_result vs_format(struct vs_ssd **out, void *mem,
			   const struct vs_config *c,
			   const struct vs_nand_ops *ops, void *ctx,
			   vs_time now);
/*
 * Recover a formatted device, after a power cut or not. VS_EMEDIA: there is
 * none of this geometry, lanes and size, or so much of its metadata is lost
 * that nobody knows which blocks are concerned. Blocks of a map page that is
 * lost read as VS_EMEDIA until they are written or trimmed. VS_EREADONLY: the
 * device is worn out, and can be read.
 */
struct vs_result vs_mount(struct vs_ssd **out, void *mem,
			  const struct vs_config *c,
			  const struct vs_nand_ops *ops, void *ctx,
			  vs_time now);

/* Blocks are of VS_BLOCK bytes, counted over the whole device. */
struct vs_result vs_read(struct vs_ssd *s, vs_time now, uint64_t block,
			 uint32_t count, void *data);
struct vs_result vs_write(struct vs_ssd *s, vs_time now, uint32_t tag,
			  uint64_t block, uint32_t count, const void *data,
			  bool fua);
/* The same with a placement handle; vs_write() uses handle 0. */
struct vs_result vs_write_placed(struct vs_ssd *s, vs_time now, uint32_t tag,
				 uint32_t handle, uint64_t block,
				 uint32_t count, const void *data, bool fua);
/* Afterwards the blocks read as zeroes. It is the tag's, like a write. */
struct vs_result vs_trim(struct vs_ssd *s, vs_time now, uint32_t tag,
			 uint64_t block, uint64_t count);
/* All data of all tags of blocks [first, first + count): an NVMe FLUSH. */
struct vs_result vs_flush(struct vs_ssd *s, vs_time now, uint64_t first,
			  uint64_t count);
/* The tag's own data and hTag's. */
struct vs_result vs_flush_tag(struct vs_ssd *s, vs_time now, uint32_t tag);
uint64_t vs_blocks(const struct vs_ssd *s);

/*
 * Where a tag's data goes from now on: into one lane while that has room, or
 * anywhere (VS_LANE_ANY). Who may go anywhere keeps out of dedicated lanes
 * while others have room. Forgotten at power-off, and VS_EINVAL for a tag that
 * finds all of max_tags in use.
 */
enum vs_status vs_set_lane(struct vs_ssd *s, uint32_t tag, uint32_t lane,
			   bool dedicated);

/* As in Linux' control groups. */
#define VS_WEIGHT_DEFAULT 100u
#define VS_WEIGHT_MAX 10000u
/*
 * The write buffer is shared by weight among the tags that have written or flushed in the
 * last 250 ms; without a weight, one counts with the default. Of the time of the banks, only
 * tags with a weight have a share; the others have the rest in common. 0 takes the weight
 * away. A tag with a weight keeps its log area. Forgotten at power-off. VS_EINVAL: above
 * VS_WEIGHT_MAX, or the tag finds all of max_tags in use.
 */
enum vs_status vs_set_weight(struct vs_ssd *s, uint32_t tag, uint32_t weight);
uint32_t vs_get_weight(const struct vs_ssd *s, uint32_t tag);

/*
 * A reclaim unit is what a handle fills before it gets new blocks: one in each
 * bank. Its size in VS_BLOCK; what is left of the handle's own; and the change
 * to a new one, of which VS_EINVAL means that there is no such handle.
 */
uint64_t vs_unit_blocks(const struct vs_ssd *s);
/* Of an erase block. */
uint64_t vs_erase_blocks(const struct vs_ssd *s);
uint64_t vs_unit_left(const struct vs_ssd *s, uint32_t handle);
enum vs_status vs_unit_next(struct vs_ssd *s, uint32_t handle);

/* What pages are programmed for. */
enum vs_cause {
	VS_CAUSE_HOST,		/* data of the host, first time */
	VS_CAUSE_GC,		/* data moved by garbage collection */
	VS_CAUSE_LOG,		/* tags' log areas */
	VS_CAUSE_MAP,		/* map pages and roots of checkpoints */
	VS_CAUSE_PADDING,	/* rest of a data page, and its second copy */
	VS_CAUSE_MERGE,		/* data moved by merges of VS_MAP_FAST */
	VS_CAUSES
};

/* How a log block of VS_MAP_FAST and a logical block become one again. */
enum vs_merge {
	VS_MERGE_SWITCH,	/* the log block is the data block from now on */
	VS_MERGE_PARTIAL,	/* so it is, with its rest copied to it */
	VS_MERGE_FULL,		/* all that is valid copied to a new block */
	VS_MERGES
};

/**
 * struct vs_stats - counters since format or mount
 * @programmed: blocks of VS_BLOCK by cause. Their sum is the number of pages
 *	programmed, in blocks
 * @written: blocks that the host wrote
 * @absorbed: of these, overwritten while they were in the buffer
 * @skipped: pages left out because their pair held durable data
 * @erases: blocks erased
 * @checkpoints: of the map
 * @sync_pages: pages of data that needed no log page, copies included
 * @spilled: pages that went to another lane than the tag's
 * @bad_blocks: now, factory and grown
 * @lost_reads: reads that the media failed
 * @lost_blocks: blocks that vs_mount() has found lost with their map page
 * @rescued: pages programmed again because their pair failed
 * @recovery_pages: pages read by vs_mount()
 * @replayed: log entries applied by vs_mount()
 * @merges: of each kind, each of one logical block
 * @merged: blocks of VS_BLOCK that merges of each kind have copied; their sum
 *	is what was programmed for VS_CAUSE_MERGE
 */
struct vs_stats {
	uint64_t programmed[VS_CAUSES];
	uint64_t written;
	uint64_t absorbed;
	uint64_t skipped;
	uint64_t erases;
	uint64_t checkpoints;
	uint64_t sync_pages;
	uint64_t spilled;
	uint64_t bad_blocks;
	uint64_t lost_reads;
	uint64_t lost_blocks;
	uint64_t rescued;
	uint64_t recovery_pages;
	uint64_t replayed;
	uint64_t merges[VS_MERGES];
	uint64_t merged[VS_MERGES];
};

/**
 * struct vs_tag_stats - counters of one tag while it has state
 * @buffered: blocks in the write buffer now
 * @unlogged: changes of the map that are not durable yet; a TRIM is one
 * @written: blocks written under this tag
 * @flushes: completed
 * @flushed: blocks that its flushes took out of the buffer; of hTag, also
 *	those that vs_flush() took, whoever's they were
 * @log_pages: of its log, programmed
 * @flush_ns: sum of the flushes' durations
 * @flush_max_ns: the longest
 * @share: of the write buffer, in blocks, at the last write or flush of any tag; 0: it was
 *	idle, and its share was lent
 * @buffer_wait_ns: sum of the times that its blocks waited for room in the buffer
 * @bank_ns: time of banks that programs and erases took on its behalf, transfers and
 *	collection included; not reads
 * @bank_wait_ns: sum of the times that these waited in a bank for those of other tags
 */
struct vs_tag_stats {
	uint64_t buffered;
	uint64_t unlogged;
	uint64_t written;
	uint64_t flushes;
	uint64_t flushed;
	uint64_t log_pages;
	uint64_t flush_ns;
	uint64_t flush_max_ns;
	uint64_t share;
	uint64_t buffer_wait_ns;
	uint64_t bank_ns;
	uint64_t bank_wait_ns;
};

void vs_get_stats(const struct vs_ssd *s, struct vs_stats *out);
/* False when the tag has no state of its own. */
bool vs_get_tag_stats(const struct vs_ssd *s, uint32_t tag,
		      struct vs_tag_stats *out);
/* Erase blocks that data may fill: neither metadata's, spare nor reserve. */
uint64_t vs_data_blocks(const struct vs_ssd *s);
/* Good blocks by erases: out[i] has those erased i * width times and more. */
void vs_erase_histogram(const struct vs_ssd *s, uint32_t width, uint32_t *out,
			uint32_t buckets);
/* The same map gives the same hash, on every port. */
uint32_t vs_map_hash(const struct vs_ssd *s);

#endif /* VCACHE_FW_SSD_H */
