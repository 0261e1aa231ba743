/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The firmware's state, shared by its files only.
 *
 * Four rules keep data through a power cut; each is in one place:
 *
 *  1. A change of the map is made durable (log page, root) only after all data
 *     it points to is on the NAND: vs_log_commit(), vs_checkpoint(). A page that
 *     is durable by itself (sync.c) is both.
 *  2. Once it is durable, no MSB page is programmed whose LSB page holds what
 *     it points to: vs_mark_committed(), vs_mark_log_committed(), vs_next_page().
 *     If the program of an MSB page fails, its LSB page is programmed again from
 *     memory: pair.c.
 *  3. A block is erased only when no map entry points to it, and none that is
 *     durable on the NAND either: vs_block.unsafe, vs_block.trim,
 *     vs_release().
 *  4. Erasing waits for the completion, not the issue, of what made it safe:
 *     vs_block.not_before.
 */
#ifndef VCACHE_FW_INTERNAL_H
#define VCACHE_FW_INTERNAL_H

#include "layout.h"
#include "ssd.h"

/* Blocks of a lane that are left to garbage collection alone. */
#define VS_GC_RESERVE 1u
/* Blocks of each bank beyond it that collection tries to keep free. */
#define VS_GC_FREE 3u
#define VS_MAX_TAGS 256u
#define VS_HTAG_LOG 0u
/* Pages that wait to be programmed again: programs that fail in a row. */
#define VS_RESCUES 4u
/* A tag that neither writes nor flushes for so long has its share lent, ns. */
#define VS_LENT_AFTER 250000000u

enum vs_block_state {
	VS_BLOCK_FREE,		/* erased when it is opened, not before */
	VS_BLOCK_OPEN,		/* a frontier's */
	VS_BLOCK_DATA,		/* full, or closed for another reason */
	VS_BLOCK_META,
	VS_BLOCK_STUCK,		/* valid data in it cannot be read */
	VS_BLOCK_RETIRED,	/* empty, failed, not marked yet */
	VS_BLOCK_BAD,
};

/**
 * struct vs_block - an erase block
 * @valid: map entries that point to it; of a metadata block, map pages of the
 *	newest checkpoint in it
 * @unsafe: changes of the map that took a block out of it and are not durable
 * @erases: known number of erases
 * @opened: vs_ssd.opens when it was opened: its age
 * @trim: number of the newest TRIM that took a block out of it, or 0 (trim.c)
 * @copies: second copies in it that recovery may need until a checkpoint
 * @not_before: nothing is done to it earlier: a free block is not erased before
 *	all is durable that made it free, an open one is programmed further when
 *	both copies of its last page are there; during recovery, the number of
 *	its first page
 * @state: enum vs_block_state
 * @retire: mark it bad when it is empty
 * @root: has a page of the newest root
 * @pending: counted in vs_bank.pending
 * @keep: only used while reclaimable() counts
 * @log: a log block of FAST
 * @lbn: whose data block, or sequential log block, it is: a logical block of
 *	FAST, or VS_NONE
 */
struct vs_block {
	uint32_t valid;
	uint32_t unsafe;
	uint32_t trim;
	uint32_t copies;
	uint32_t erases;
	uint32_t opened;
	vs_time not_before;
	uint8_t state;
	bool retire;
	bool root;
	bool pending;
	bool keep;
	bool log;
	uint32_t lbn;
};

/**
 * struct vs_frontier - a block being filled
 * @block: VS_NONE: none
 * @next: page to be programmed next, at the earliest
 * @committed: pages below it are committed: they hold data that must not be lost
 * @before: number of the page programmed last, or 0
 * @before_type: its type
 * @before_lpn: what the next page tells of it in vs_oob_slot.before
 * @kept: with pairs, copies of the LSB pages whose MSB page is still to come:
 *	the page, then its spare bytes
 * @kept_page: which these are, or VS_NONE
 */
struct vs_frontier {
	uint32_t block;
	uint32_t next;
	uint32_t committed;
	uint64_t before;
	uint32_t before_type;
	uint32_t before_lpn[32];
	uint8_t *kept[2];
	uint32_t kept_page[2];
};

/**
 * struct vs_rescue - a page that was lost because its pair failed
 * @page: its content
 * @oob: its spare bytes
 * @from: where it was, a page address
 */
struct vs_rescue {
	uint8_t *page;
	struct vs_oob *oob;
	uint32_t from;
};

/**
 * struct vs_bank - a bank, and garbage collection in it
 * @done: when all is programmed that it has been given
 * @copied_at: when both copies of its last page are there, if it has two
 * @holder: whose the last of that is, an index of vs_log
 * @gc_payer: whose programs made the collection necessary that is put off, an index of vs_log
 * @free: blocks in state FREE
 * @pending: pending blocks: erasable once changes of the map are durable
 * @copied: of these, with copies, for which it takes a checkpoint
 * @to: where moved, or merged, data goes; FAST has one, that of bank 0
 * @victim: block of the bank being collected step by step, or VS_NONE
 * @cursor: its next page
 * @gc_debt: pages that collection still has to move, in 1/256
 * @opened: blocks that the host has opened since wear was looked at
 *
 * Each bank moves its own data: neither reads nor programs of one wait for
 * what is queued in another.
 */
struct vs_bank {
	vs_time done;
	vs_time copied_at;
	uint32_t holder;
	uint32_t gc_payer;
	uint32_t free;
	uint32_t pending;
	uint32_t copied;
	struct vs_frontier to;
	uint32_t victim;
	uint32_t cursor;
	uint32_t gc_debt;
	uint32_t opened;
};

/**
 * struct vs_lane - a group of channels
 * @first_bank: of it; its banks are contiguous
 * @banks: how many
 * @free: blocks in state FREE
 * @failed: bad ones, and those that have failed and are to be
 * @meta: metadata blocks, open or not
 * @meta_share: how many of these it must have room for
 * @valid: map entries that point into it
 * @quota: as many as it can bear
 * @bank_cursor: bank that the next page goes to
 * @meta_cursor: the same for metadata
 * @picks: of FAST, blocks opened since wear was looked at
 * @dedicated: keep others out
 * @msb_done: when the last MSB page over a page that is not committed is programmed
 */
struct vs_lane {
	uint32_t first_bank;
	uint32_t banks;
	uint32_t free;
	uint32_t failed;
	uint32_t meta;
	uint32_t meta_share;
	uint32_t valid;
	uint32_t quota;
	uint32_t bank_cursor;
	uint32_t meta_cursor;
	uint32_t picks;
	bool dedicated;
	vs_time msb_done;
};

/**
 * struct vs_log - a tag's map log, the vFLUSH paper's logging area (III-D)
 * @used: has a tag
 * @tag: which
 * @lane: where its data and log pages go, or VS_LANE_ANY
 * @page: a page of memory: struct vs_meta, then entries
 * @entry: the entries in it
 * @old: the place that each change took a block from, or VS_NONE
 * @count: entries
 * @durable: of these, on the NAND
 * @sync: of those not durable, the last ones, in pages that need no log page
 * @full: there was no room for a change, so the next flush is a checkpoint
 * @unlogged: changes not durable that it has no entries of, being full
 * @trim: number of its oldest TRIM that is not durable, or 0
 * @lanes: bit for each lane that entries not durable point into
 * @data_done: when all data that the entries point to is programmed
 * @commit_done: when the newest log page is
 * @head: oldest of the tag's buffered blocks, an index of vs_entry
 * @tail: newest
 * @weight: of the tag, 0: it has none
 * @active_until: when its share is lent if it sends nothing more
 * @reserved: free entries that only this tag may take
 * @leaving: entries that this tag waits for until their content is on the NAND; those of
 *	the log of collection are for tags below their share
 * @leaving_head: the first one
 * @leaving_tail: the last one
 * @seq: of its newest page, as found by recovery
 * @lost: number of the newest page of it that recovery knows to be lost
 * @stats: what vs_get_tag_stats() shows
 */
struct vs_log {
	bool used;
	uint32_t tag;
	uint32_t lane;
	uint8_t *page;
	struct vs_log_entry *entry;
	uint32_t *old;
	uint32_t count;
	uint32_t durable;
	uint32_t sync;
	uint32_t unlogged;
	bool full;
	uint32_t trim;
	uint32_t lanes;
	vs_time data_done;
	vs_time commit_done;
	uint32_t head, tail;
	uint32_t weight;
	vs_time active_until;
	uint32_t reserved;
	uint32_t leaving;
	uint32_t leaving_head, leaving_tail;
	uint64_t seq;
	uint64_t lost;
	struct vs_tag_stats stats;
};

/**
 * struct vs_entry - a block of the write buffer
 * @lpn: logical block, VS_NONE when it is free
 * @log: index of its tag
 * @handle: placement handle
 * @newer: in the LRU list, or in the list of free ones, or of those leaving
 * @older: in the LRU list
 * @tag_newer: in its tag's list
 * @tag_older: the same
 * @chain: next with the same hash
 * @free_at: when its last content has left for the NAND
 */
struct vs_entry {
	uint32_t lpn;
	uint32_t log;
	uint32_t handle;
	uint32_t newer, older;
	uint32_t tag_newer, tag_older;
	uint32_t chain;
	vs_time free_at;
};

/**
 * struct vs_placement - what page mapping and FAST do differently
 * @size: set @hosts and other sizes; false when it cannot be done. Capacity
 *	and metadata are laid out already
 * @whole: buffered blocks that fill the page in which @entry has its own
 *	place, to be programmed together; their number, 0: it has no such page,
 *	or blocks of it are missing
 * @program: program a page of the host, after making room
 * @again: program a lost page, without making room: vs_pair_moved() included
 * @found: recovery has found the map
 *
 * The map, its logs and checkpoints are the same for both, and with them what
 * a power cut leaves.
 */
struct vs_placement {
	bool (*size)(struct vs_ssd *s);
	uint32_t (*whole)(const struct vs_ssd *s, uint32_t entry,
			  uint32_t *peers);
	enum vs_status (*program)(struct vs_ssd *s, uint32_t lane,
				  uint32_t handle, vs_time now,
				  const void *data, struct vs_oob *oob,
				  uint32_t *address, vs_time *done);
	enum vs_status (*again)(struct vs_ssd *s, uint32_t bank, vs_time now,
				const struct vs_rescue *lost);
	void (*found)(struct vs_ssd *s);
};

/**
 * struct vs_found - a page that needs no log page, found by recovery
 * @seq: its number
 * @address: where it is; if it is lost, of the page that tells so
 * @lost: it cannot be read
 */
struct vs_found {
	uint64_t seq;
	uint32_t address;
	bool lost;
};

struct vs_ssd {
	struct vs_config c;
	const struct vs_placement *placement;
	const struct vs_nand_ops *ops;
	void *ctx;
	enum vs_status status;	/* VS_OK, or why nothing can be written */

	/* Sizes that follow from the configuration. */
	uint32_t banks, slots, blocks_all, blocks;
	uint32_t map_per_page, map_pages, roots_per_page, root_pages;
	uint32_t log_entries, logs, gc_log, meta_blocks, meta_need, hash_mask;
	uint32_t hosts, lbns, stripe, sync_max;

	struct vs_lane *lane;
	struct vs_block *block;
	struct vs_frontier *host;	/* of the placement; see page.c, fast.c */
	struct vs_frontier *meta;	/* stripe of them for each lane */
	struct vs_bank *bank;
	struct vs_log *log;

	uint32_t *map;		/* slot address of each logical block */
	uint32_t *map_at;	/* page address of each map page */
	uint32_t *map_new;	/* the same in a checkpoint under way */
	uint8_t *dirty;		/* map pages that have changed */
	uint8_t *root_found;	/* pages of the root, by recovery */
	uint32_t *open_found;	/* blocks open when it was written */
	struct vs_found *found;	/* sync_max pages, in their order */
	uint32_t founds;
	uint8_t *live;		/* map entries that point to each page */

	struct vs_entry *entry;
	uint8_t *data;		/* of the entries */
	uint32_t *hash;
	uint32_t newest, oldest;
	uint32_t free_head, free_tail, free_count;
	uint32_t buffered;
	uint32_t payer;		/* whose work the banks do, an index of log */
	uint32_t taker;		/* who gets the entries that become free */
	uint32_t guaranteed;	/* entries to be left to other tags */
	uint32_t set_aside;	/* of these, free */
	bool alone;		/* no other tag is active */

	/* A page each: of the host, read, of collected data, metadata. */
	uint8_t *page, *read_page, *stage, *meta_page;
	struct vs_oob *oob, *read_oob, *stage_oob, *meta_oob;
	uint32_t staged;

	struct vs_rescue rescue[VS_RESCUES];
	uint32_t rescues;
	bool rescuing;

	uint64_t seq;		/* of pages */
	uint64_t checkpoint;	/* id of the newest */
	uint64_t checkpoint_max;	/* highest id ever seen */
	uint64_t since;		/* number of the root's last page */
	uint32_t trims;		/* number of the last one since then */
	uint32_t trim_oldest;	/* of those not durable, or 0 */
	uint32_t syncs;		/* pages since then that need no log page */
	bool urgent;		/* programs are of a flush */
	uint32_t avoid;		/* bank of the first copy, or VS_NONE */
	uint32_t full_logs;
	uint32_t opens;
	uint32_t retired;	/* blocks in state RETIRED */
	uint32_t lane_cursor;
	vs_time data_done;	/* all data pages programmed so far */
	vs_time commit_done;	/* all log pages and roots so far */
	vs_time root_done;	/* the newest root */
	struct vs_stats stats;
};

/* geometry.c */
bool vs_lay_out(struct vs_ssd *s, const struct vs_config *c, uint8_t *mem,
		size_t *size);

/* Is it a place, and not VS_NONE or VS_LOST? */
static inline bool vs_mapped(uint32_t slot)
{
	return slot < VS_LOST;
}

/* Logical blocks that a change of the map is about. */
static inline uint32_t vs_entry_blocks(const struct vs_log_entry *e)
{
	return e->slot & VS_TRIM ? e->slot & ~VS_TRIM : 1;
}

static inline uint32_t vs_block_of(const struct vs_ssd *s, uint32_t slot)
{
	return slot / (s->c.geometry.pages * s->slots);
}

static inline uint32_t vs_lane_of(const struct vs_ssd *s, uint32_t block)
{
	uint32_t bank = block / s->c.geometry.blocks;

	return bank / s->c.geometry.ways * s->c.lanes / s->c.geometry.channels;
}

static inline uint32_t vs_page_address(const struct vs_ssd *s, uint32_t block,
				       uint32_t page)
{
	return block * s->c.geometry.pages + page;
}

static inline struct vs_page vs_place(const struct vs_ssd *s, uint32_t address)
{
	uint32_t block = address / s->c.geometry.pages;

	return (struct vs_page){
		.bank = block / s->c.geometry.blocks,
		.block = block % s->c.geometry.blocks,
		.page = address % s->c.geometry.pages,
	};
}

static inline vs_time vs_later(vs_time a, vs_time b)
{
	return a > b ? a : b;
}

/* block.c */
uint32_t vs_claim(const struct vs_ssd *s, uint32_t lane);
uint32_t vs_room(const struct vs_ssd *s, uint32_t lane);
uint32_t vs_spare(const struct vs_ssd *s, uint32_t lane);
uint32_t vs_meta_room(const struct vs_ssd *s);
void vs_block_pending(struct vs_ssd *s, uint32_t block);
void vs_release(struct vs_ssd *s, uint32_t block);
enum vs_status vs_open(struct vs_ssd *s, uint32_t lane, uint32_t bank,
		       bool worn, vs_time now, struct vs_frontier *f);
void vs_close(struct vs_ssd *s, struct vs_frontier *f, bool meta);

/* Blocks of a lane that the host's data may not take. */
static inline uint32_t vs_reserve(const struct vs_ssd *s, uint32_t lane)
{
	return VS_GC_RESERVE + vs_spare(s, lane);
}

/* frontier.c */
void vs_mark_committed(struct vs_ssd *s);
void vs_mark_page_committed(struct vs_ssd *s, uint32_t address);
void vs_mark_log_committed(struct vs_ssd *s, const struct vs_log *log,
			   const uint32_t *address);
uint32_t vs_next_page(const struct vs_ssd *s, const struct vs_frontier *f);
bool vs_has_page(const struct vs_ssd *s, const struct vs_frontier *f);
void vs_copied(struct vs_ssd *s, const uint32_t *address, vs_time done);
uint32_t vs_oob_crc(const struct vs_ssd *s, const struct vs_oob *oob);
uint32_t vs_page_crc(const struct vs_ssd *s, const void *page);
enum vs_status vs_put(struct vs_ssd *s, struct vs_frontier *f, bool meta,
		      vs_time now, const void *data, struct vs_oob *oob,
		      uint32_t *address, vs_time *done);
enum vs_status vs_append(struct vs_ssd *s, struct vs_frontier *f,
			 enum vs_cause cause, vs_time now, const void *data,
			 struct vs_oob *oob, uint32_t *address, vs_time *done);
enum vs_status vs_read_page(struct vs_ssd *s, vs_time now, uint32_t address,
			    void *data, struct vs_oob *oob, vs_time *done);

/* meta.c */
enum vs_status vs_program_meta(struct vs_ssd *s, uint32_t lane, vs_time now,
			       void *page, uint32_t *address, vs_time *done);
enum vs_status vs_program_twice(struct vs_ssd *s, uint32_t lane, vs_time now,
				void *page, uint32_t *address, vs_time *done);

/* pair.c */
void vs_pair_keep(const struct vs_ssd *s, struct vs_frontier *f, uint32_t page,
		  const void *data, const struct vs_oob *oob);
enum vs_status vs_pair_lost(struct vs_ssd *s, const struct vs_frontier *f,
			    uint32_t page);
enum vs_status vs_pair_rescue(struct vs_ssd *s, uint32_t bank, vs_time now);
void vs_pair_moved(struct vs_ssd *s, const struct vs_rescue *lost,
		   uint32_t address, vs_time done);

/* map.c */
void vs_map_set(struct vs_ssd *s, uint32_t log, uint32_t lpn, uint32_t slot,
		vs_time done);

void vs_map_trim(struct vs_ssd *s, uint32_t log, uint32_t lpn, uint32_t count,
		 vs_time now);

/* trim.c */
bool vs_trim_holds(const struct vs_ssd *s, uint32_t block);
void vs_trim_durable(struct vs_ssd *s, struct vs_log *log);
void vs_trim_forget(struct vs_ssd *s);

/* sync.c */
bool vs_sync_wanted(const struct vs_ssd *s, uint32_t log, uint64_t blocks);
bool vs_sync_room(const struct vs_ssd *s);
enum vs_status vs_sync_copy(struct vs_ssd *s, uint32_t lane, uint32_t handle,
			    vs_time now, uint32_t first, vs_time *done);
void vs_sync_durable(struct vs_ssd *s, struct vs_log *log, vs_time now,
		     vs_time *done);

/* forward.c */
enum vs_status vs_forward_find(struct vs_ssd *s, vs_time now, vs_time *all);
enum vs_status vs_forward_apply(struct vs_ssd *s, const struct vs_found *f,
				vs_time now, vs_time *all);

/* share.c */
bool vs_active(const struct vs_ssd *s, uint32_t log, vs_time now);
bool vs_share_over(const struct vs_ssd *s, uint32_t log);
uint32_t vs_share_ahead(const struct vs_ssd *s);
void vs_share_begin(struct vs_ssd *s, uint32_t log, vs_time now);
uint32_t vs_share_victim(const struct vs_ssd *s, vs_time now);
uint32_t vs_share_bank(const struct vs_ssd *s, uint32_t lane, uint32_t log,
		       vs_time now);
vs_time vs_bank_free(const struct vs_ssd *s, uint32_t bank);
void vs_share_charge(struct vs_ssd *s, uint32_t bank, vs_time now, vs_time done);

/* tag.c */
uint32_t vs_tag_find(const struct vs_ssd *s, uint32_t tag);
uint32_t vs_tag_get(struct vs_ssd *s, uint32_t tag);
uint32_t vs_tag_lane(struct vs_ssd *s, uint32_t log);

/* log.c */
void vs_log_room(struct vs_ssd *s, uint32_t log, uint32_t n);
enum vs_status vs_log_commit(struct vs_ssd *s, uint32_t log, vs_time now,
			     vs_time *done);
void vs_log_durable(struct vs_ssd *s, struct vs_log *log);

/* format.c */
struct vs_ssd *vs_prepare(void *mem, const struct vs_config *c,
			  const struct vs_nand_ops *ops, void *ctx);
void vs_count_free(struct vs_ssd *s);
struct vs_result vs_begin(struct vs_ssd *s, vs_time now);

/* recover.c */
enum vs_status vs_load(struct vs_ssd *s, uint32_t address, bool whole,
		       vs_time now, vs_time *all);

/* checkpoint.c */
bool vs_meta_tight(const struct vs_ssd *s);
enum vs_status vs_checkpoint(struct vs_ssd *s, vs_time now, vs_time *done);
uint32_t vs_shape(const struct vs_ssd *s);

/* pending.c */
bool vs_has_pending(const struct vs_ssd *s, uint32_t lane);
bool vs_has_copied(const struct vs_ssd *s, uint32_t lane);
enum vs_status vs_commit_pending(struct vs_ssd *s, uint32_t lane, vs_time now);

/* page.c */
extern const struct vs_placement vs_page_mapping;
struct vs_frontier *vs_page_to(const struct vs_ssd *s, uint32_t lane,
			       uint32_t bank);
enum vs_status vs_page_move(struct vs_ssd *s, uint32_t bank, vs_time now,
			    const void *data, struct vs_oob *oob,
			    uint32_t *address, vs_time *done);

/* gc.c */
uint32_t vs_least_worn(const struct vs_ssd *s, uint32_t bank, uint32_t banks);
enum vs_status vs_gc(struct vs_ssd *s, uint32_t lane, uint32_t bank,
		     vs_time now);
enum vs_status vs_gc_owed(struct vs_ssd *s, vs_time now);

/* fast.c */
#define VS_FAST_SEQUENTIAL 0u	/* frontiers of the host */
#define VS_FAST_RANDOM 1u
#define VS_FAST_FRONTIERS 2u
extern const struct vs_placement vs_fast_mapping;

static inline uint32_t vs_lbn_of(const struct vs_ssd *s, uint32_t lpn)
{
	return lpn / (s->c.geometry.pages * s->slots);
}

/* fast_merge.c */
enum vs_status vs_fast_end(struct vs_ssd *s, vs_time now);
enum vs_status vs_fast_merge(struct vs_ssd *s, uint32_t lbn, bool worn,
			     vs_time now);

/* fast_room.c */
uint32_t vs_fast_bank(struct vs_ssd *s);
enum vs_status vs_fast_reserve(struct vs_ssd *s, vs_time now);
enum vs_status vs_fast_room(struct vs_ssd *s, uint32_t most, vs_time now);

/* buffer.c */
void vs_buffer_init(struct vs_ssd *s);
void vs_buffer_reap(struct vs_ssd *s, uint32_t log, vs_time now);
uint32_t vs_buffer_find(const struct vs_ssd *s, uint32_t lpn);
enum vs_status vs_buffer_idle(struct vs_ssd *s, vs_time now, vs_time until);
enum vs_status vs_buffer_put(struct vs_ssd *s, uint32_t log, uint32_t handle,
			     uint32_t lpn, const void *data, vs_time now,
			     vs_time *done);
void vs_buffer_drop(struct vs_ssd *s, uint32_t entry, vs_time free_at);
enum vs_status vs_buffer_program(struct vs_ssd *s, uint32_t *entries,
				 uint32_t n, bool sync, vs_time now,
				 vs_time *done);

#endif /* VCACHE_FW_INTERNAL_H */
