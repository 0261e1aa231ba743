/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * dm-vcache: the cache device, its chunks, and the logs in them.
 *
 * DOC: Objects
 *
 * A &struct vcache_pool is a cache device: its metadata, its chunks and the index of what is
 * in them. A &struct vcache_volume is an origin with a number; the pool remembers it while no
 * target uses it. Each tag of a volume has a &struct vcache_log: the chunks that hold its
 * data, in the order of their generations; the newest is being written.
 * ../../core/format.h describes the format on the device, and the order in which it may
 * change.
 *
 * DOC: States of a chunk
 *
 *   FREE -> SPARE -> OPEN -> CLOSED -> SEALED (dirty -> clean) -> RECLAIM -> FREE
 *
 * A SPARE chunk is reserved for a log, so that a flush which needs a chunk takes no lock
 * of the pool. A CLOSED chunk is full, but some of its records or its seal are still
 * being written. A SEALED chunk becomes clean when all its valid data is on the origin.
 * Only a clean or an empty chunk may be reclaimed, and it must be the oldest of its log.
 * An OUTSIDE chunk is behind the part of the device that the pool uses, see resize.c. A DIRECT
 * chunk belongs to an elastic SSD, see ../reclaim/direct.c.
 *
 * Blocks promoted by reads go to chunks of their own, the read chunks. These have no
 * records and no seal. The origin has all their data, and after a crash they are free.
 * They are SEALED when they are full, and may be reclaimed in any order.
 *
 * DOC: Locks
 *
 *   vcache_dev.lock
 *     └── vcache_pool.lock (mutex: volumes, attach and detach, reclaim, relocation)
 *           ├── vcache_pool.table_lock (mutex: the chunk table)
 *           ├── vcache_log.append, to relocate blocks
 *           └── vcache_log.fill, to keep blocks
 *   vcache_log.append (mutex: the writer of the next record)
 *   vcache_log.fill (mutex: the writer of the open read chunks)
 *     └── vcache_log.lock (spin: its chunks, and its records under way)
 *           └── vcache_pool.free_lock (spin: the free lists, the owners of lanes)
 *   vcache_pool.group[] (spin: cells of some origin blocks), innermost
 *   vcache_volume.ranges.lock, .large.lock (spin), innermost
 *
 * All spin locks are taken in interrupts. A flush takes those of its own log, and of the
 * cells that its data goes to.
 */
#ifndef DM_VCACHE_LOG_H
#define DM_VCACHE_LOG_H

#include <linux/mempool.h>
#include <linux/semaphore.h>

#include "../../core/crc32c.h"
#include "../../core/flow.h"
#include "../../core/ghost.h"
#include "../../core/queue.h"
#include "../../core/recover.h"
#include "../base/range.h"
#include "../buffer/buffer.h"
#include "chunk.h"

struct vcache_round;

/* Dirty chunks that a log may have while it is drained. */
#define VC_DRAIN_CHUNKS		2U

/*
 * The cache device has failed after so many failed records in a row, or failed reads of
 * so many different chunks.
 */
#define VC_ERRORS_MAX		4U

/* Most lanes of a pool. */
#define VC_LANES_MAX		64U

/**
 * struct vcache_lane - an isolation unit of the cache device
 * @free: its free chunks, in the order in which they are reused
 * @nfree: how many
 * @first: its first chunk
 * @end: the chunk behind its last one; the largest number for the last lane
 * @direct: its chunks of elastic SSDs; under vcache_pool.free_lock
 * @sectors: its size as given in the table
 * @owner: the log that it is dedicated to, or NULL if it is shared
 */
struct vcache_lane {
	struct list_head free;
	u32 nfree;
	u32 first;
	u32 end;
	u32 direct;
	u64 sectors;
	struct vcache_log *owner;
};

/* Size of vcache_volume.doubtful, bits. */
#define VC_DOUBT_SHIFT 10U

/**
 * struct vcache_volume - an origin that a pool has a number for
 * @node: vcache_pool.volumes
 * @pool: the pool
 * @id: its number
 * @slot: number of its slot
 * @mode: enum vcache_volume_mode
 * @floor: older generations than this are dead
 * @flags: VC_SLOT_*
 * @sectors: size of the origin
 * @dev: the device that uses it, or NULL
 * @vssd_used: an elastic SSD uses it
 * @origin: the origin of that device
 * @logs: its logs; only grows while the volume is in use
 * @replayed: the index knows its blocks
 * @damaged: chunks that the replay could not read, or that have lost durable data
 * @drain: everything has to be destaged
 * @stopped: no I/O to the origin begins
 * @destaging: vc_destage_work() is running
 * @failing: the last round failed on the origin
 * @bad: blocks that cannot be destaged, with the turn in which they failed; see bad.c
 * @nbad: how many
 * @bad_turn: 0 or 1: the present turn
 * @bad_at: when the next turn begins, jiffies
 * @bad_delay: how long the present turn takes, jiffies
 * @progress: the present pass of destage has found other blocks as well; of destage
 * @bad_only: the last pass has found nothing but bad blocks
 * @ranges: blocks of the origin that are being written, see range.h
 * @large: blocks of large writes on their way to the log, see large.c
 * @discards: discards that are being recorded in the log
 * @bypass: the cache has failed without dirty data of this volume, and is not used
 * @bypass_in_part: it has failed with dirty data of some tags; the others do without it
 * @read_at: when a read was last sent to the origin, jiffies
 * @destage: destages the volume
 * @idle: woken when a round ends
 * @most: most cells that the origin takes in one round of acceptable length
 * @width: most blocks that it takes in one window
 * @flow: how many windows it takes at a time; of destage
 * @queue: how many requests of these; of destage
 * @writes: requests of destage to the origin in flight
 * @room: woken when one of them is complete
 * @writing: windows with such requests; of destage
 * @limits: of destage, set by an operator
 * @limit_next: when the next window may begin because of them, ns; of destage
 * @paused_until: destage is paused until then, ns
 * @rest_until: unless destage is urgent, the next window begins then, jiffies
 * @serial: counts windows that suggest an origin which serves one request at a time
 * @saved: blocks whose content user space has saved, see saved.c
 * @promoting: promotions under way, see promote.c
 * @promoted: blocks promoted
 * @destaged: sectors written to the origin
 * @failed_chunks: chunks with a record that has failed, see doubt.c
 * @doubt_lock: guards changes of @doubtful
 * @doubtful: hashes of the blocks of such records
 * @cache_errors: records that the cache device failed to write, and requests that it failed
 *	to read
 */
struct vcache_volume {
	struct list_head node;
	struct vcache_pool *pool;
	u32 id;
	u16 slot;
	u32 mode;
	u64 floor;
	u64 flags;
	u64 sectors;
	struct vcache_dev *dev;
	bool vssd_used;
	struct block_device *origin;
	struct list_head logs;
	bool replayed;
	u64 damaged;
	bool drain;
	bool stopped;
	bool destaging;
	bool failing;
	struct xarray bad;
	u32 nbad;
	u8 bad_turn;
	unsigned long bad_at;
	unsigned long bad_delay;
	bool progress;
	bool bad_only;
	struct vcache_ranges ranges;
	struct vcache_ranges large;
	atomic_t discards;
	bool bypass;
	bool bypass_in_part;
	unsigned long read_at;
	struct delayed_work destage;
	wait_queue_head_t idle;
	u32 most;
	u32 width;
	struct vcache_flow flow;
	struct vcache_queue queue;
	atomic_t writes;
	wait_queue_head_t room;
	u32 writing;
	struct vcache_limits limits;
	u64 limit_next;
	u64 paused_until;
	unsigned long rest_until;
	u32 serial;
	struct xarray saved;
	atomic_t promoting;
	atomic64_t promoted;
	atomic64_t destaged;
	atomic_t failed_chunks;
	spinlock_t doubt_lock; /* doubtful */
	DECLARE_BITMAP(doubtful, 1U << VC_DOUBT_SHIFT);
	atomic_t cache_errors;
};

enum vcache_pool_state {
	VC_POOL_OK,
	VC_POOL_READ_ONLY,	/* metadata is damaged or cannot be written */
	VC_POOL_FAILED,		/* the cache device has failed */
};

/**
 * struct vcache_pool - a cache device
 * @registry: list of all pools
 * @md: the mapped device
 * @tables: tables that refer to it
 * @bdev: the cache device of the active table
 * @lock: control path, see "Locks"
 * @state: enum vcache_pool_state
 * @metadata_writable: the pool has failed, but metadata can still be written; under @lock
 * @loaded: the metadata has been read
 * @attached: volumes in use
 * @nusers: logs in use with a share, when shares were last computed
 * @limit: chunks from here on are not used; changes under @free_lock as well
 * @leaving: chunks from there on that have still to be reclaimed
 * @resizing: a resize is under way; under @lock
 * @space_retry: delay of the next vcache_space_retry(), jiffies
 * @short_of_space: too few chunks are free
 * @short_of_clean: and no clean chunk can be reclaimed
 * @reads_percent: read chunks are reclaimed first above this percentage of a log
 * @hot_percent: blocks migrate while more than this percentage of what a log has in shared
 *	lanes is hot
 * @g: geometry
 * @sb: superblock
 * @super: its block
 * @slots: blocks of the volume slots
 * @table_lock: guards @table and @table_dirty
 * @table: blocks of the chunk table
 * @table_dirty: blocks of it that differ from those on the device, bits
 * @store: access for ../core
 * @ix: index of what is in the cache
 * @cell_clean: a bit for each cell: the origin has its data; under the cell's lock
 * @cell_hot: a bit for each cell: it is counted in vcache_log.hot; under the cell's lock
 * @cell_bad: a bit for each cell: it is clean, and the cache device could not read it;
 *	set under the cell's lock, valid until its chunk is freed
 * @heat: for each cell how often it was read, up to VC_HEAT_MAX
 * @ghosts: blocks that were missed recently
 * @group: locks of the index groups
 * @change: for each group, a count of writes that end promotions under way
 * @group_mask: number of groups less one
 * @chunk: the chunks
 * @found: what the scan has found in them
 * @volumes: all volumes known
 * @seq: last sequence number used
 * @opens: how many chunks writers have opened, see vcache_log.served
 * @turn: the least vcache_log.served of writers that wait for a chunk, or U64_MAX
 * @free_lock: guards @lane and @nfree; taken in interrupts
 * @lane: its lanes
 * @nlanes: how many
 * @given: how many of them the table names
 * @nfree: free chunks in shared lanes
 * @shared: chunks in shared lanes
 * @foreign: chunks in a lane that is dedicated to another log; they are reclaimed
 * @direct_wanted: chunks that elastic SSDs wait for; under @lock, read without it
 * @migrate_at: when blocks may migrate again, jiffies
 * @wq: for all work of the pool
 * @space_work: reclaims chunks, and reserves spare ones
 * @fail_work: deals with a failed cache device
 * @errors: how many records in a row have failed
 * @read_errors: in how many chunks a read has failed since one has succeeded
 * @unreadable: which ones; under @error_lock
 * @error_lock: guards these two, except that any successful read sets @read_errors to 0
 * @bs: requests to the cache device and to origins
 * @records: memory for records
 * @pages: memory for their first blocks
 * @rounds: memory for destage rounds
 * @windows: windows of rounds beyond the one that each round has
 * @work: memory to seal a chunk again, under @lock
 * @read_at: when a read was last sent to an origin, jiffies
 * @reader: the volume of that read
 * @mixed_at: when reads of two volumes last followed one another, jiffies
 * @serial_sem: held by throttled windows to origins that serve one request at a time
 * @relocate_round: memory to relocate and keep blocks, under @lock
 * @lane_counts: counters of the lanes, in stripes, see counts.h
 * @lane_at: for each lane, when its busy time was last counted, jiffies
 * @relocated: blocks relocated so far
 * @kept: hot blocks of reclaimed chunks that were copied so far
 */
struct vcache_pool {
	struct list_head registry;
	struct mapped_device *md;
	unsigned int tables;
	struct block_device *bdev;
	struct mutex lock; /* control path */
	enum vcache_pool_state state;
	bool metadata_writable;
	bool loaded;
	unsigned int attached;
	unsigned int nusers;
	u32 limit;
	u32 leaving;
	bool resizing;
	unsigned long space_retry;
	bool short_of_space;
	bool short_of_clean;
	u32 reads_percent;
	u32 hot_percent;
	u32 read_errors;
	struct vcache_geometry g;
	struct vcache_super sb;
	void *super;
	u8 *slots;
	struct mutex table_lock; /* table */
	u8 *table;
	unsigned long *table_dirty;
	struct vcache_store store;
	struct vcache_index ix;
	unsigned long *cell_clean;
	unsigned long *cell_hot;
	unsigned long *cell_bad;
	u8 *heat;
	struct vcache_ghosts ghosts;
	atomic_t *change;
	spinlock_t *group; /* cells of some origin blocks */
	u32 group_mask;
	struct vcache_chunk *chunk;
	struct vcache_found *found;
	struct list_head volumes;
	atomic64_t seq;
	atomic64_t opens;
	u64 turn;
	spinlock_t free_lock; /* lane */
	struct vcache_lane lane[VC_LANES_MAX];
	u32 nlanes;
	u32 given;
	u32 nfree;
	u32 shared;
	u32 foreign;
	u32 direct_wanted;
	unsigned long migrate_at;
	struct workqueue_struct *wq;
	struct delayed_work space_work;
	struct work_struct fail_work;
	atomic_t errors;
	spinlock_t error_lock; /* chunks that cannot be read */
	u32 unreadable[VC_ERRORS_MAX];
	struct bio_set bs;
	mempool_t records;
	mempool_t pages;
	mempool_t rounds;
	atomic_t windows;
	u8 *work;
	unsigned long read_at;
	u32 reader;
	unsigned long mixed_at;
	struct semaphore serial_sem;
	struct vcache_round *relocate_round;
	struct vcache_lane_counts *lane_counts;
	unsigned long lane_at[VC_LANES_MAX];
	atomic64_t relocated;
	atomic64_t kept;
};

/* Wake up vcache_space_work(): a chunk is free or reclaimable, or more are needed. Any context. */
static inline void vcache_space_kick(struct vcache_pool *p)
{
	mod_delayed_work(p->wq, &p->space_work, 0);
}

/* A read of the cache device has succeeded. Any context. */
static inline void vcache_pool_read_ok(struct vcache_pool *p)
{
	if (unlikely(READ_ONCE(p->read_errors)))
		WRITE_ONCE(p->read_errors, 0);
}

static inline u32 vcache_chunk_nr(const struct vcache_pool *p,
				  const struct vcache_chunk *c)
{
	return c - p->chunk;
}

static inline struct vcache_chunk *vcache_cell_chunk(struct vcache_pool *p, u32 cell)
{
	return &p->chunk[cell / p->g.chunk_blocks];
}

/* The sector of the cache device that has a sector of the block in a cell. */
static inline sector_t vcache_cell_sector(u32 cell, sector_t sector)
{
	return (sector_t)cell * VC_BLOCK_SECTORS + sector % VC_BLOCK_SECTORS;
}

static inline u32 vcache_cell_group(struct vcache_pool *p, u16 slot, u64 block)
{
	return vcache_index_group(&p->ix, slot, block) & p->group_mask;
}

static inline spinlock_t *vcache_cell_lock(struct vcache_pool *p, u16 slot, u64 block)
{
	return &p->group[vcache_cell_group(p, slot, block)];
}

/* Chunks for data. */
static inline u32 vcache_pool_size(const struct vcache_pool *p)
{
	return READ_ONCE(p->limit) - p->g.first_chunk;
}

/* Chunks that the map has memory for. */
static inline u32 vcache_map_chunks(const struct vcache_pool *p)
{
	return p->ix.cells / p->g.chunk_blocks;
}

/* Does a chunk hold data, or will it? */
static inline bool vcache_chunk_used(const struct vcache_chunk *c)
{
	u8 state = READ_ONCE(c->state);

	return state >= VC_CHUNK_OPEN && state < VC_CHUNK_BAD;
}

/**
 * struct vcache_log_ops - what upper layers do for logs and volumes
 * @init_log: initialises their part of a new log
 * @exit_log: stops their work for a log that is to be freed
 * @init_volume: initialises their part of a new volume
 * @take_chunk: takes a free chunk for a log; NULL if there is none now; the log is locked
 * @may_write: false: the writer of a log waits, because relocation needs the free chunks
 * @hot: a block has become hot in a shared lane; any context
 * @dirty: the first block of a chunk has become dirty; any context
 * @dirty_limit: how many blocks of a log may be dirty
 */
struct vcache_log_ops {
	void (*init_log)(struct vcache_log *log);
	void (*exit_log)(struct vcache_log *log);
	void (*init_volume)(struct vcache_volume *v);
	struct vcache_chunk *(*take_chunk)(struct vcache_pool *p, struct vcache_log *log,
					   enum vcache_take take,
					   enum vcache_domain first);
	bool (*may_write)(const struct vcache_log *log);
	void (*hot)(struct vcache_log *log);
	void (*dirty)(struct vcache_volume *v);
	u32 (*dirty_limit)(const struct vcache_log *log);
};

extern const struct vcache_log_ops *vcache_log_upper;

/* chunk.c */
void vcache_log_wake(struct vcache_log *log);
void vcache_chunk_put_pending(struct vcache_log *log, struct vcache_chunk *c);
void vcache_log_close(struct vcache_log *log);
void vcache_chunk_open(struct vcache_log *log, struct vcache_chunk *c);
u32 vcache_log_space(struct vcache_log *log, enum vcache_append_kind kind);
void vcache_log_close_idle(struct vcache_log *log);
void vcache_log_gets_dirty(struct vcache_log *log, struct vcache_chunk *c);
void vcache_log_gets_clean(struct vcache_log *log, struct vcache_chunk *c);

/* pace.c */
bool vcache_log_is_paced(struct vcache_log *log);
u32 vcache_log_paced_blocks(struct vcache_log *log);
void vcache_log_wrote(struct vcache_log *log, u32 blocks);

/* doubt.c */
void vcache_doubt_freed(struct vcache_chunk *c);
bool vcache_doubts(const struct vcache_volume *v, u64 block, u64 blocks);

/* errors.c */
void vcache_pool_record_done(struct vcache_pool *p, bool failed);
void vcache_pool_read_failed(struct vcache_pool *p, u32 cell);

/* lane.c */
void vcache_lanes_init(struct vcache_pool *p);
void vcache_lanes_count(struct vcache_pool *p);
void vcache_lane_add(struct vcache_pool *p, struct vcache_chunk *c);
struct vcache_chunk *vcache_lane_get(struct vcache_pool *p, const struct vcache_log *log);
void vcache_lane_cut(struct vcache_pool *p);
bool vcache_lanes_fit(const struct vcache_pool *p, u32 chunks);
u32 vcache_lanes_free(const struct vcache_pool *p, u64 lanes);
u32 vcache_pool_free_chunks(const struct vcache_pool *p);
int vcache_lanes_set(struct vcache_pool *p, const u64 *sectors, u32 n,
		     const char **error);
void vcache_chunk_free(struct vcache_pool *p, struct vcache_chunk *c);
void vcache_log_release_spare(struct vcache_log *log);

/* lookup.c */
void vcache_lookup_done(struct vcache_pool *p, u32 cell);
unsigned int vcache_lookup(struct vcache_volume *v, sector_t sector, unsigned int len,
			   bool only_copy, u32 *cell);
bool vcache_lookup_dirty(struct vcache_volume *v, u64 block, u32 *cell);
u8 vcache_lookup_pin(struct vcache_volume *v, u32 cell, u64 block, bool clean);
bool vcache_lookup_is_lost(struct vcache_volume *v, u64 block);
bool vcache_lookup_any(struct vcache_volume *v, u64 block, u64 blocks);
int vcache_lookup_changes(struct vcache_volume *v, u64 block);
bool vcache_lookup_whole(struct vcache_volume *v, u32 cell, u64 *block, u8 *heat);

/* map.c */
void vcache_map_free(struct vcache_pool *p);
int vcache_map_alloc(struct vcache_pool *p, u32 chunks);
void vcache_map_move(struct vcache_pool *p, struct vcache_pool *n);

/* record.c */
blk_opf_t vcache_append_flags(struct vcache_pool *p);
void vcache_record_free(struct vcache_pool *p, struct vcache_record *rec);
struct vcache_record *vcache_record_make(struct vcache_log *log, struct vcache_tag *tag,
					 gfp_t gfp);
void vcache_record_add(struct vcache_record *rec, const struct vcache_entry *e);
void vcache_record_write_through(struct vcache_record *rec, struct vcache_writeout *w);
void vcache_record_place(struct vcache_record *rec);
void vcache_record_send(struct vcache_record *rec);

/* replay.c */
int vcache_volume_replay(struct vcache_volume *v);

/* store.c */
int vcache_store_io(struct vcache_pool *p, blk_opf_t opf, u64 block, u32 n, void *buf);
void vcache_store_init(struct vcache_pool *p);
int vcache_pool_set_flags(struct vcache_pool *p, u32 flags);
struct vcache_chunk_disk *vcache_table_entry(struct vcache_pool *p, u32 chunk);
int vcache_table_save(struct vcache_pool *p, u32 chunk);
int vcache_slot_save(struct vcache_volume *v);
const char *vcache_slot_name(struct vcache_volume *v);
int vcache_slot_label(struct vcache_volume *v, const char *text);
void vcache_pool_unload(struct vcache_pool *p);
int vcache_pool_load(struct vcache_pool *p, u32 chunk_blocks, const char **error);
int vcache_table_save_all(struct vcache_pool *p);
int vcache_pool_close(struct vcache_pool *p);
int vcache_pool_save_geometry(struct vcache_pool *p, const struct vcache_geometry *g);

/* saved.c */
void vcache_saved_init(struct vcache_volume *v);
void vcache_saved_free(struct vcache_volume *v);
void vcache_saved_begin(struct vcache_log *log, u64 token);
int vcache_saved_add(struct vcache_log *log, u64 block, u64 n);
void vcache_saved_forget(struct vcache_volume *v, u64 block, u64 n);
bool vcache_saved_has(struct vcache_log *log, u64 block, u32 n);

/* update.c */
void vcache_lookup_cut(struct vcache_volume *v, struct vcache_log *by, u64 block, u8 mask);
void vcache_lookup_failed(struct vcache_volume *v, u32 cell, sector_t sector,
			  unsigned int len);
void vcache_lookup_drop(struct vcache_pool *p, u32 cell);
void vcache_lookup_sort(struct vcache_pool *p, u32 cell);
void vcache_lookup_clean(struct vcache_volume *v, u32 cell, u64 block, u32 reuse);
void vcache_lookup_move(struct vcache_volume *v, u32 from, u32 to, u8 mask);
void vcache_lookup_change(struct vcache_volume *v, u64 block, u64 blocks);
bool vcache_lookup_promote(struct vcache_volume *v, u32 cell, u64 block, int changes,
			   u8 heat);
bool vcache_lookup_keep(struct vcache_volume *v, u32 from, u32 to);

/* volume.c */
void vcache_log_register(const struct vcache_log_ops *ops);
struct vcache_volume *vcache_volume_find(struct vcache_pool *p, u32 id);
void vcache_volume_free(struct vcache_volume *v);
struct vcache_log *vcache_log_find(struct vcache_volume *v, u32 tag);
struct vcache_log *vcache_log_get(struct vcache_volume *v, u16 tag);
struct vcache_volume *vcache_volume_alloc(struct vcache_pool *p, u32 id, u16 slot);
u64 vcache_log_dirty(struct vcache_log *log);
u32 vcache_log_dirty_chunks(struct vcache_log *log);
u64 vcache_volume_dirty(struct vcache_volume *v);
int vcache_volume_flush_origin(struct vcache_volume *v);
bool vcache_volume_stuck(struct vcache_volume *v);

#endif /* DM_VCACHE_LOG_H */
