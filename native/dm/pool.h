/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * dm-vcache: the cache device, its chunks, and the logs in them.
 *
 * DOC: Objects
 *
 * A &struct vc_pool is a cache device: its metadata, its chunks and the index
 * of what is in them. A &struct vc_volume is an origin with a number, which
 * the pool remembers also while no target uses it. Each tag of a volume has a
 * &struct vc_log: the chunks that hold its data, in the order of their
 * generations, the newest being written. ../core/format.h says how this looks
 * on the device and what has to happen in which order.
 *
 * DOC: States of a chunk
 *
 *   FREE -> SPARE -> OPEN -> CLOSED -> SEALED (dirty -> clean) -> DYING -> FREE
 *
 * SPARE: promised to a log, so that a flush which needs a chunk takes no lock
 * of the pool. CLOSED: full, but some of its records or its seal are still on
 * their way. A SEALED chunk becomes clean when all that counts in it is on the
 * origin. Only a clean one, or one in which nothing counts any more, may die,
 * and it must be the oldest of its log.
 *
 * DOC: Locks
 *
 *   vc_dev.lock
 *     └── vc_pool.lock (mutex: volumes, attach and detach, kills, carrying)
 *           ├── vc_pool.table_lock (mutex: the chunk table)
 *           └── vc_log.append, when something is carried
 *   vc_log.append (mutex: who writes the next record)
 *     └── vc_log.lock (spin: its chunks and records on their way)
 *           └── vc_pool.free_lock (spin: the free list)
 *   vc_pool.group[] (spin: cells of some origin blocks), innermost
 *
 * All spin locks are taken in interrupts. A flush takes those of its own log,
 * and of the cells that its data goes to.
 */
#ifndef DM_VCACHE_POOL_H
#define DM_VCACHE_POOL_H

#include <linux/mempool.h>

#include "../core/crc32c.h"
#include "../core/recover.h"
#include "vcache.h"

/* Data blocks of one record: 512 KiB. */
#define VC_RECORD_MAX		128U

/* Chunks of a log that may be waiting for their seal. */
#define VC_SEALS		4U

/* Chunks that a log may have dirty while it is drained. */
#define VC_DRAIN_CHUNKS		2U

enum vc_chunk_state {
	VC_CHUNK_FREE,
	VC_CHUNK_SPARE,
	VC_CHUNK_OPEN,
	VC_CHUNK_CLOSED,
	VC_CHUNK_SEALED,
	VC_CHUNK_DYING,
	VC_CHUNK_BAD,
};

/**
 * struct vc_chunk - a chunk of a pool
 * @node: vc_log.chunks, or vc_pool.free
 * @log: whose it is
 * @gen: generation
 * @lives: how often it was freed, for who cannot keep it: see vc_lookup_clean();
 *	32 bits, for it is read without a lock
 * @dirty: cells that hold something the origin has not
 * @users: reads from it on their way
 * @wanted: it would have gone but for them
 * @pending: records on their way, one more while it is open
 * @state: enum vc_chunk_state, under the lock of the log or of the free list
 * @clean: all that counts in it is on the origin; set once, or from the start
 * @failed: a record of it could not be written; it gets no more and no seal
 * @stale: records of other logs supersede entries of it, see vc_kill_reseal()
 * @sealing: what its seal will say, until it is written
 */
struct vc_chunk {
	struct list_head node;
	struct vc_log *log;
	u64 gen;
	u32 lives;
	atomic_t dirty;
	atomic_t users;
	atomic_t pending;
	u8 state;
	bool clean;
	bool failed;
	bool stale;
	bool wanted;
	struct vc_sealing *sealing;
};

/* What a record is to its log. */
enum vc_append_kind {
	VC_APPEND_LOG,		/* it is all there is of the data */
	VC_APPEND_THROUGH,	/* the data goes to the origin as well */
	VC_APPEND_COPY,		/* and what is in the cache need not last */
	VC_APPEND_CARRY,	/* the data was in an older chunk of the log */
};

/* Is what such a record has on the origin, too? */
static inline bool vc_append_is_clean(enum vc_append_kind kind)
{
	return kind == VC_APPEND_THROUGH || kind == VC_APPEND_COPY;
}

/**
 * struct vc_sealing - a seal being collected
 * @node: vc_log.seals or vc_log.closed
 * @chunk: whose it is
 * @seq: of the last record
 * @nr: entries
 * @data: its blocks, all copies
 */
struct vc_sealing {
	struct list_head node;
	struct vc_chunk *chunk;
	u64 seq;
	u32 nr;
	u8 *data;
};

/**
 * struct vc_record - a record on its way to the cache device
 * @node: vc_log.records
 * @log: whose it is
 * @tag: whose write-out it is; NULL: a discard
 * @chunk: where it goes
 * @head: its first block
 * @info: what the head says
 * @arrived: the device has answered
 * @through: the data goes to the origin as well
 * @copy: and nothing depends on it here
 * @carry: who sends it says when its chunk may be closed
 * @status: what
 * @done: told that it is durable, then the waiter frees it
 * @bio: the request
 */
struct vc_record {
	struct list_head node;
	struct vc_log *log;
	struct vc_tag *tag;
	struct vc_chunk *chunk;
	struct page *head;
	struct vc_log_info info;
	bool arrived;
	bool through;
	bool copy;
	bool carry;
	blk_status_t status;
	struct completion *done;
	struct bio *bio;
};

/**
 * struct vc_log - the log of a tag of a volume
 * @node: vc_volume.logs
 * @vol: the volume
 * @tag: number of the tag
 * @user: the tag that writes it now; RCU, may be NULL
 * @append: serialises the writers of records
 * @open: chunk being written, or NULL; under @append
 * @at: where the next record goes; under @append
 * @lock: guards what follows; taken in interrupts
 * @chunks: all its chunks, the oldest first
 * @records: records on their way, the oldest first
 * @nr: chunks in @chunks
 * @dirty: of those the ones that are not clean
 * @spare: the next chunk
 * @starved: the writer waits for a chunk or for a seal
 * @share: chunks that are its share of the pool
 * @written: when the last record was sent, jiffies
 * @seals: seals that are not in use
 * @closed: seals of chunks whose records are complete
 * @seal_work: writes those
 */
struct vc_log {
	struct list_head node;
	struct vc_volume *vol;
	u16 tag;
	struct vc_tag __rcu *user;
	struct mutex append; /* writers of records */
	struct vc_chunk *open;
	u32 at;
	spinlock_t lock; /* chunks and records */
	struct list_head chunks;
	struct list_head records;
	u32 nr;
	u32 dirty;
	struct vc_chunk *spare;
	bool starved;
	u32 share;
	unsigned long written;
	struct list_head seals;
	struct list_head closed;
	struct work_struct seal_work;
	struct vc_sealing sealing[VC_SEALS];
};

struct vc_round;

/**
 * struct vc_volume - an origin that a pool has a number for
 * @node: vc_pool.volumes
 * @pool: the pool
 * @id: its number
 * @slot: number of its slot
 * @mode: enum vc_volume_mode
 * @floor: generations below are dead
 * @sectors: size of the origin
 * @dev: who uses it now, or NULL
 * @origin: its origin, while used
 * @logs: its logs; grows only, while used
 * @replayed: the index knows it
 * @damaged: chunks that could not be read in the replay
 * @drain: have everything destaged
 * @stopped: no destage now
 * @failing: the origin refused the last round
 * @discards: being noted in the log
 * @bypass: the cache has failed with nothing of ours in it; not used any more
 * @read_at: when a read was sent to the origin last, jiffies
 * @destage: rounds
 * @idle: woken when a round ends
 * @most: cells of a round that the origin takes in good time
 * @width: and blocks of a window
 * @destaged: sectors written to the origin
 * @cache_errors: records that the cache device refused
 */
struct vc_volume {
	struct list_head node;
	struct vc_pool *pool;
	u32 id;
	u16 slot;
	u32 mode;
	u64 floor;
	u64 sectors;
	struct vc_dev *dev;
	struct block_device *origin;
	struct list_head logs;
	bool replayed;
	u64 damaged;
	bool drain;
	bool stopped;
	bool failing;
	atomic_t discards;
	bool bypass;
	unsigned long read_at;
	struct delayed_work destage;
	wait_queue_head_t idle;
	u32 most;
	u32 width;
	atomic64_t destaged;
	atomic_t cache_errors;
};

enum vc_pool_state {
	VC_POOL_OK,
	VC_POOL_READ_ONLY,	/* metadata is damaged or cannot be written */
	VC_POOL_FAILED,		/* the cache device is gone */
};

/**
 * struct vc_pool - a cache device
 * @registry: list of all pools
 * @md: the mapped device
 * @tables: tables that refer to it
 * @bdev: the cache device of the table in force
 * @lock: control path, see "Locks"
 * @state: enum vc_pool_state
 * @last_words: failed, but metadata may be written still; under @lock
 * @loaded: the metadata has been read
 * @attached: volumes in use
 * @nlogs: logs of all volumes
 * @short_of_space: fewer chunks are free than should be
 * @g: geometry
 * @sb: superblock
 * @super: its block
 * @slots: blocks of the slots
 * @table_lock: guards @table and @table_dirty
 * @table: blocks of the chunk table
 * @table_dirty: blocks of it that say more than the device, bits
 * @store: access for ../core
 * @ix: what is in the cache
 * @cell_clean: by cell: the origin has it, too; a bit, under the cell's lock
 * @group: locks of its groups
 * @group_mask: number of those less one
 * @chunk: the chunks
 * @found: what the scan has found in them
 * @volumes: all volumes known
 * @seq: last sequence number given out
 * @free_lock: guards @free; taken in interrupts
 * @free: free chunks, in the order in which they are used again
 * @nfree: how many
 * @wq: for all work of the pool
 * @space_work: gives out spares, and makes room
 * @fail_work: the cache device has failed
 * @errors: records in a row that it has refused
 * @bs: requests to the cache device and origins
 * @records: memory for records
 * @pages: and for their first blocks
 * @rounds: memory to destage with
 * @work: memory to seal a chunk again, under @lock
 * @carrying: memory to carry blocks forward, under @lock
 * @carried: blocks carried forward so far
 */
struct vc_pool {
	struct list_head registry;
	struct mapped_device *md;
	unsigned int tables;
	struct block_device *bdev;
	struct mutex lock; /* control path */
	enum vc_pool_state state;
	bool last_words;
	bool loaded;
	unsigned int attached;
	unsigned int nlogs;
	bool short_of_space;
	struct vc_geometry g;
	struct vc_super sb;
	void *super;
	u8 *slots;
	struct mutex table_lock; /* table */
	u8 *table;
	unsigned long *table_dirty;
	struct vc_store store;
	struct vc_index ix;
	unsigned long *cell_clean;
	spinlock_t *group; /* cells of some origin blocks */
	u32 group_mask;
	struct vc_chunk *chunk;
	struct vc_found *found;
	struct list_head volumes;
	atomic64_t seq;
	spinlock_t free_lock; /* free */
	struct list_head free;
	u32 nfree;
	struct workqueue_struct *wq;
	struct delayed_work space_work;
	struct work_struct fail_work;
	atomic_t errors;
	struct bio_set bs;
	mempool_t records;
	mempool_t pages;
	mempool_t rounds;
	u8 *work;
	struct vc_round *carrying;
	atomic64_t carried;
};

/* Chunks have become free, or more of them are needed. Any context. */
static inline void vc_space_kick(struct vc_pool *p)
{
	mod_delayed_work(p->wq, &p->space_work, 0);
}

static inline u32 vc_chunk_nr(const struct vc_pool *p,
			      const struct vc_chunk *c)
{
	return c - p->chunk;
}

static inline struct vc_chunk *vc_cell_chunk(struct vc_pool *p, u32 cell)
{
	return &p->chunk[cell / p->g.chunk_blocks];
}

static inline spinlock_t *vc_cell_lock(struct vc_pool *p, u16 slot, u64 block)
{
	return &p->group[vc_index_group(&p->ix, slot, block) & p->group_mask];
}

/* Weight of the tag that uses a log; in volume scope hTag has no data. */
static inline u32 vc_log_weight(struct vc_log *log)
{
	struct vc_tag *tag;
	u32 weight = 0;

	rcu_read_lock();
	tag = rcu_dereference(log->user);
	if (tag && !(tag == tag->dev->host && tag->dev->volume))
		weight = READ_ONCE(tag->weight);
	rcu_read_unlock();
	return weight;
}

/* pool.c */
struct vc_pool *vc_pool_find(struct block_device *bdev);
int vc_pool_init(void);
void vc_pool_exit(void);

/* store.c */
int vc_pool_load(struct vc_pool *p, u32 chunk_blocks, const char **error);
int vc_pool_close(struct vc_pool *p);
void vc_pool_unload(struct vc_pool *p);
int vc_pool_set_flags(struct vc_pool *p, u32 flags);
int vc_slot_save(struct vc_volume *v);
int vc_table_save(struct vc_pool *p, u32 chunk);
struct vc_chunk_disk *vc_table_entry(struct vc_pool *p, u32 chunk);
void vc_store_init(struct vc_pool *p);

/* replay.c */
int vc_volume_replay(struct vc_volume *v);

/* volume.c */
struct vc_log *vc_log_get(struct vc_volume *v, u16 tag);
struct vc_volume *vc_volume_alloc(struct vc_pool *p, u32 id, u16 slot);
int vc_volume_attach(struct vc_pool *p, u32 id, u32 mode, struct vc_dev *dev,
		     struct block_device *origin, sector_t sectors,
		     struct vc_volume **out);
int vc_volume_detach(struct vc_volume *v, bool forget);
u64 vc_volume_sectors(struct vc_pool *p, u32 id);
int vc_volume_start(struct vc_volume *v);
void vc_volume_free(struct vc_volume *v);
struct vc_volume *vc_volume_find(struct vc_pool *p, u32 id);
int vc_volume_join(struct vc_volume *v, struct vc_tag *tag);
void vc_volume_part(struct vc_tag *tag);
int vc_volume_change(struct vc_volume *v, u32 mode,
		     struct block_device *origin, sector_t sectors);
void vc_volume_settle(struct vc_volume *v);
bool vc_volume_stuck(struct vc_volume *v);
void vc_volume_drain(struct vc_volume *v);
int vc_volume_forget(struct vc_volume *v);
int vc_volume_harden(struct vc_volume *v);
void vc_volume_go(struct vc_volume *v);
u64 vc_log_dirty(struct vc_log *log);
u64 vc_volume_dirty(struct vc_volume *v);
int vc_volume_drop(struct vc_pool *p, u32 id, bool force, const char **error);

/* append.c */
bool vc_append(struct vc_tag *tag);
bool vc_append_copy(struct vc_tag *tag);
int vc_append_discard(struct vc_log *log, u64 block, u64 blocks);
bool vc_append_refuse(struct vc_tag *tag);
blk_opf_t vc_append_flags(struct vc_pool *p);
struct vc_record *vc_record_make(struct vc_log *log, struct vc_tag *tag);
void vc_record_add(struct vc_record *rec, const struct vc_entry *e);
void vc_record_send(struct vc_record *rec);
void vc_record_free(struct vc_pool *p, struct vc_record *rec);

/* chunk.c */
u32 vc_log_space(struct vc_log *log, enum vc_append_kind kind);
void vc_chunk_settled(struct vc_log *log, struct vc_chunk *c);
void vc_log_close(struct vc_log *log);
void vc_seal_work(struct work_struct *work);
void vc_log_wake(struct vc_log *log);

/* carry.c */
bool vc_carry_chunk(struct vc_log *log, struct vc_chunk *c);

/* lookup.c */
unsigned int vc_lookup(struct vc_volume *v, sector_t sector, unsigned int len,
		       u32 *cell);
void vc_lookup_done(struct vc_pool *p, u32 cell);
void vc_lookup_cut(struct vc_volume *v, struct vc_log *by, u64 block, u8 mask);
void vc_lookup_put(struct vc_volume *v, struct vc_log *by, u32 cell, u64 block,
		   u8 mask);
void vc_lookup_drop(struct vc_pool *p, u32 cell);
bool vc_lookup_any(struct vc_volume *v, u64 block, u64 blocks);
bool vc_lookup_dirty(struct vc_volume *v, u64 block, u32 *cell);
u8 vc_lookup_pin(struct vc_volume *v, u32 cell, u64 block);
void vc_lookup_clean(struct vc_volume *v, u32 cell, u64 block, u32 lives);
void vc_lookup_move(struct vc_volume *v, u32 from, u32 to, u8 mask);

/* destage.c */
void vc_volume_note_clean(struct vc_volume *v);
void vc_destage_work(struct work_struct *work);
void vc_log_close_idle(struct vc_log *log);

/* fail.c */
void vc_pool_record_done(struct vc_pool *p, bool failed);
void vc_fail_work(struct work_struct *work);

/* space.c */
void vc_space_work(struct work_struct *work);
struct vc_chunk *vc_chunk_take(struct vc_pool *p, struct vc_log *log,
			       bool any);
void vc_chunk_release(struct vc_pool *p, struct vc_chunk *c);
void vc_chunk_free(struct vc_pool *p, struct vc_chunk *c);
int vc_log_clear(struct vc_log *log);

#endif /* DM_VCACHE_POOL_H */
