/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * dm-vcache: the log of a tag of a volume: its chunks, its records under way, and its
 * read chunks. See log.h for the states of a chunk, and for locks.
 */
#ifndef DM_VCACHE_CHUNK_H
#define DM_VCACHE_CHUNK_H

#include <linux/bio.h>
#include <linux/mutex.h>
#include <linux/workqueue.h>

#include "../../core/hot.h"
#include "../../core/level.h"
#include "../../core/log.h"
#include "../../core/pace.h"
#include "../../core/place.h"
#include "../../core/replace.h"
#include "counts.h"

struct vcache_pool;
struct vcache_tag;
struct vcache_volume;
struct vcache_writeout;

/* Most data blocks of a record: 512 KiB. */
#define VC_RECORD_MAX		128U

/* Chunks of a log that may wait for their seals at a time. */
#define VC_SEALS		4U

/* Sequential streams of reads that a log can tell apart. */
#define VC_STREAMS		8U

enum vcache_chunk_state {
	VC_CHUNK_FREE,
	VC_CHUNK_SPARE,
	VC_CHUNK_OPEN,
	VC_CHUNK_CLOSED,
	VC_CHUNK_SEALED,
	VC_CHUNK_RECLAIM,
	VC_CHUNK_BAD,
	VC_CHUNK_OUTSIDE,
	VC_CHUNK_DIRECT,
};

/**
 * struct vcache_chunk - a chunk of a pool
 * @node: vcache_log.chunks, vcache_reads.chunks, or vcache_lane.free
 * @log: the log that it belongs to
 * @gen: generation
 * @reuse: how often it was freed; code that holds no reference compares it to find
 *	out whether the chunk was reused, see vcache_lookup_clean(); 32 bits, because it is
 *	read without a lock
 * @live: cells with valid data
 * @dirty: cells with data that is not on the origin
 * @users: reads from it under way
 * @wanted: it could not be reclaimed because of them
 * @pending: records under way, plus one while it is open
 * @state: enum vcache_chunk_state, under the lock of the log or of the free list
 * @lane: its lane
 * @own: its lane is dedicated to its log, see lane.c; set when it is taken, and under
 *	the lock of the log
 * @clean: all its valid data is on the origin; set once, or from the start
 * @unread_until: relocation could not read its blocks and does not try again before, jiffies;
 *	0: it could; under the lock of the log
 * @reads: for a read chunk, the set of read chunks that it belongs to; else NULL
 * @warm: it was a read chunk before the pool was shut down, see warm.c
 * @failed: a record of it could not be written; it gets no more records, and no seal
 * @bad: vcache_pool.cell_bad has some of its cells
 * @stale: records of other logs supersede entries of it, see reseal.c
 * @discards: it has records of discards
 * @lost: valid blocks that were dropped when it was last reclaimed, until it is taken again
 * @lost_slot: with @lost, vcache_volume.slot of the log that it had
 * @lost_tag: with @lost, the tag of that log
 * @since: when it was opened, or found by a replay, jiffies
 * @sealing: the seal being collected, until it is written
 */
struct vcache_chunk {
	struct list_head node;
	struct vcache_log *log;
	u64 gen;
	u32 reuse;
	atomic_t live;
	atomic_t dirty;
	atomic_t users;
	atomic_t pending;
	u8 state;
	u8 lane;
	bool own;
	bool clean;
	bool warm;
	bool failed;
	bool bad;
	bool stale;
	bool discards;
	bool wanted;
	u16 lost_slot;
	u16 lost_tag;
	u32 lost;
	unsigned long unread_until;
	unsigned long since;
	struct vcache_reads *reads;
	struct vcache_sealing *sealing;
};

static inline enum vcache_domain vcache_chunk_domain(const struct vcache_chunk *c)
{
	return READ_ONCE(c->own) ? VC_OWN : VC_SHARED;
}

/* Why a log takes a chunk. */
enum vcache_take {
	VC_TAKE_WRITE,		/* for records */
	VC_TAKE_READ,		/* for promoted blocks */
	VC_TAKE_PREFETCH,	/* for blocks promoted before they are read */
	VC_TAKE_KEEP,		/* to keep hot blocks of a reclaimed chunk in shared lanes */
	VC_TAKE_KEEP_OWN,	/* to keep hot blocks of one in dedicated lanes */
	VC_TAKE_RELOCATE,	/* to relocate dirty blocks */
};

/* What kind of data a record has. */
enum vcache_append_kind {
	VC_APPEND_LOG,		/* writeback: the cache has the only copy */
	VC_APPEND_THROUGH,	/* the data goes to the origin as well */
	VC_APPEND_COPY,		/* the same, and the copy in the cache may be lost */
	VC_APPEND_RELOCATE,	/* the data was in an older chunk of the log */
};

/* Is the data of such a record on the origin, too? */
static inline bool vcache_append_is_clean(enum vcache_append_kind kind)
{
	return kind == VC_APPEND_THROUGH || kind == VC_APPEND_COPY;
}

/**
 * struct vcache_sealing - a seal being collected
 * @node: vcache_log.seals or vcache_log.closed
 * @chunk: the chunk to seal
 * @seq: sequence number of the last record
 * @nr: entries
 * @data: its blocks, all copies
 */
struct vcache_sealing {
	struct list_head node;
	struct vcache_chunk *chunk;
	u64 seq;
	u32 nr;
	u8 *data;
};

/**
 * struct vcache_record - a record being written to the cache device
 * @node: vcache_log.records
 * @log: the log
 * @tag: the tag whose write-out it is; NULL: a discard
 * @chunk: the chunk that it is written to
 * @head: its first block
 * @info: decoded content of the head
 * @arrived: the device has completed the request
 * @through: the data goes to the origin as well
 * @copy: and a failure of the record does no harm
 * @through_writes: these write-outs; they hold their blocks until the index has the record
 * @relocate: the sender drops the reference in vcache_chunk.pending
 * @status: of the request
 * @done: completed when the record is durable or has failed; the waiter frees the record
 * @finish: called instead of what is done for blocks of the buffer, when the record is durable
 *	and in the index, or has failed; in any context
 * @owner: of @finish
 * @bio: the request
 * @sent: when it was placed, ns
 */
struct vcache_record {
	struct list_head node;
	struct vcache_log *log;
	struct vcache_tag *tag;
	struct vcache_chunk *chunk;
	struct page *head;
	struct vcache_log_info info;
	bool arrived;
	bool through;
	bool copy;
	bool relocate;
	struct vcache_writeout *through_writes;
	blk_status_t status;
	struct completion *done;
	void (*finish)(struct vcache_record *rec);
	void *owner;
	struct bio *bio;
	u64 sent;
};

/**
 * struct vcache_stream - a stream of sequential reads
 * @next: the sector behind the last read
 * @run: sectors read so far
 */
struct vcache_stream {
	u64 next;
	u64 run;
};

/*
 * The sets of read chunks of a log. Blocks that were missed once are in few chunks, which
 * are reclaimed soon unless the blocks are read again; see Yang et al., FIFO queues are
 * all you need for cache eviction, SOSP 2023, section 4.
 */
enum vcache_reads_kind {
	VC_READS_SMALL,		/* blocks that were missed once */
	VC_READS_MAIN,		/* blocks that were missed twice, or kept because they are hot */
	VC_READS_WARM,		/* with dedicated lanes: blocks that were kept though not hot */
	VC_READS_KINDS
};

/**
 * struct vcache_reads - a set of read chunks, filled one after the other
 * @chunks: by kind of lanes, the oldest first; under vcache_log.lock
 * @nr: how many; under vcache_log.lock
 * @open: the one that is being filled, or NULL; under vcache_log.fill
 * @filled: blocks of it in use; under vcache_log.fill
 */
struct vcache_reads {
	struct list_head chunks[VC_DOMAINS];
	u32 nr[VC_DOMAINS];
	struct vcache_chunk *open;
	u32 filled;
};

/**
 * struct vcache_prefetch - blocks to promote before they are read
 * @lists: lists of blocks; filled and emptied under vcache_log.lock, the first is read by
 *	@work only
 * @runs: runs in all lists; under vcache_log.lock
 * @waiting: blocks that are not dealt with
 * @done: blocks that were promoted
 * @flying: promotions under way, plus one while they are sent
 * @began: when the first of these was sent, jiffies
 * @tries: how often in a row there was no chunk, or no memory; of @work
 * @work: sends the next ones
 */
struct vcache_prefetch {
	struct list_head lists;
	u32 runs;
	atomic64_t waiting;
	atomic64_t done;
	atomic_t flying;
	unsigned long began;
	u32 tries;
	struct delayed_work work;
};

/**
 * struct vcache_claim - what a log claims of the chunks in shared lanes
 * @least: its minimum
 * @most: its maximum
 * @own_most: its maximum in its dedicated lanes
 * @share: its fair share
 * @weight: 0 if nobody uses the log
 * @full: its share is its maximum
 */
struct vcache_claim {
	u32 least;
	u32 most;
	u32 own_most;
	u64 share;
	u32 weight;
	bool full;
};

enum vcache_log_state {
	VC_LOG_OK,
	VC_LOG_BYPASSED,	/* the cache has failed, and had no dirty data of the tag */
	VC_LOG_LOST,		/* the cache has failed with dirty data of the tag */
};

/**
 * struct vcache_log - the log of a tag of a volume
 * @node: vcache_volume.logs
 * @vol: the volume
 * @tag: number of the tag
 * @user: the newest tag that writes to it, or NULL; RCU
 * @state: enum vcache_log_state; changes under the lock of the pool, which has failed
 * @append: serialises the writers of records
 * @open: chunk being written, or NULL; changes under @append
 * @at: place of the next record; under @append
 * @lock: guards the following fields; taken in interrupts
 * @chunks: all written chunks, the oldest first
 * @records: records under way, the oldest first
 * @durable: sequence number of the last record that is durable, and none before it is under way
 * @nr: chunks in @chunks
 * @nr_own: chunks of these in dedicated lanes
 * @dirty: chunks of these that are not clean
 * @dirty_since: about when the oldest of these was opened, jiffies; while @dirty is not 0
 * @warm: chunks of these that are warm
 * @passed: generation up to which a destage has found nothing but bad blocks; of destage
 * @unsealed: a chunk of this generation cannot be sealed again; it and all older ones have to
 *	be reclaimed. 0: none. Under the lock of the pool
 * @blocked_until: no written chunk is reclaimed before, jiffies; under the lock of the pool
 * @spare: the chunk that is reserved for it, or NULL
 * @starved: its writer waits for a chunk or for a seal
 * @pace: how long the next record of a writer has to wait. @pace.since and @pace.stood under
 *	@lock, the rest under @append; @pace.delay is also read without it
 * @paced_dirty: @dirty_cells when a writer has written its last record; under @append
 * @paced_limit: how many there might be, or U32_MAX; under @append
 * @pace_timer: wakes a writer that waits for its pace
 * @opened: when a writer has opened a chunk, ns
 * @spare_since: since when there is @spare, ns
 * @served: when a writer of it has opened a chunk: a number that grows with each one of the pool
 * @by_relocation: relocation has opened the open chunk, out of turn, and no writer has used it
 * @reclaim_pending: it has to give up a chunk, and none can be reclaimed yet, see space.c
 * @forgotten: what it has in the cache becomes invalid on the device, see drop.c; under the
 *	lock of the pool
 * @emptied: a written chunk may have become empty since vc_log_empty_written() looked
 * @held: its writer waits until the chunks for relocation are free, or for its turn, see
 *	vc_log_hold()
 * @claim: what its share is computed from; under the lock of the pool
 * @share: its fair share of the shared lanes, chunks
 * @guaranteed: the part of @share for which other logs give up chunks of theirs
 * @most: chunks that it may have in shared lanes, before one more to keep blocks
 * @own_part: its maximum, or U32_MAX: how much of its dedicated lanes is counted as its part
 * @own_most: chunks that it may have in dedicated lanes, before one more to keep blocks
 * @lanes: lanes dedicated to it, bits; under the lock of the pool, too
 * @own_size: chunks in these lanes
 * @own_foreign: chunks of other logs that are still in these lanes
 * @own_short: too few chunks are free in these lanes, and no clean one can be reclaimed
 * @misplaced: chunks that it has in lanes dedicated to other logs
 * @look_at: cursor of the search for hot chunks that migrate
 * @cool_at: cursor of the chunks whose heat is reduced
 * @cooled_at: blocks that had been read from the cache when heat was last reduced
 * @stays: least heat of blocks that stay in dedicated lanes when their chunk makes
 *	place for a hotter one; at most VC_HEAT_MAX
 * @written: when the last record was sent, jiffies
 * @seals: seals that are not in use
 * @closed: seals of chunks whose records are complete
 * @seal_work: writes the seals in @closed
 * @fill: serialises the writers of read chunks
 * @reads: its read chunks
 * @promotions: promotions that have been read and have no place yet; under @lock
 * @promote_work: gives them a place
 * @prefetch: blocks to promote before they are read
 * @saved: token of its session of saved blocks, or 0, see saved.c; changes under the lock of the
 *	pool
 * @live: cells with valid data in its chunks
 * @dirty_cells: those that are dirty
 * @hot: about how many of them are in shared lanes and hot
 * @credit: what it may spend on copies of blocks that are not hot, see vcache_log_paid()
 * @misses: blocks missed for the first time, the clock of its ghosts
 * @level: whether a block has to be missed once or twice to be promoted
 * @hot_level: how often a block must have been read to be kept; under the lock of the pool
 * @counts: counters
 * @stream_lock: guards @stream and @stream_next; not taken in interrupts
 * @stream: reads that may be sequential
 * @stream_next: cursor: the one that is replaced next
 */
struct vcache_log {
	struct list_head node;
	struct vcache_volume *vol;
	u16 tag;
	struct vcache_tag __rcu *user;
	u8 state;
	struct mutex append; /* writers of records */
	struct vcache_chunk *open;
	u32 at;
	spinlock_t lock; /* chunks and records */
	struct list_head chunks;
	struct list_head records;
	u64 durable;
	u32 nr;
	u32 nr_own;
	u32 dirty;
	unsigned long dirty_since;
	u32 warm;
	u64 passed;
	u64 unsealed;
	unsigned long blocked_until;
	struct vcache_chunk *spare;
	bool starved;
	u64 served;
	bool by_relocation;
	struct vcache_pace pace;
	u32 paced_dirty;
	u32 paced_limit;
	struct hrtimer pace_timer;
	u64 opened;
	u64 spare_since;
	bool reclaim_pending;
	bool forgotten;
	bool emptied;
	bool held;
	struct vcache_claim claim;
	u32 share;
	u32 guaranteed;
	u32 most;
	u32 own_part;
	u32 own_most;
	u64 lanes;
	u32 own_size;
	u32 own_foreign;
	bool own_short;
	u32 misplaced;
	u32 look_at;
	u32 cool_at;
	u64 cooled_at;
	u32 stays;
	unsigned long written;
	struct list_head seals;
	struct list_head closed;
	struct work_struct seal_work;
	struct mutex fill; /* the open chunk of reads */
	struct vcache_reads reads[VC_READS_KINDS];
	struct list_head promotions;
	struct work_struct promote_work;
	struct vcache_prefetch prefetch;
	u64 saved;
	atomic_t live;
	atomic_t dirty_cells;
	atomic_t hot;
	u32 credit;
	u32 misses;
	struct vcache_level level;
	struct vcache_hot hot_level;
	struct vcache_log_counts counts;
	spinlock_t stream_lock; /* stream */
	struct vcache_stream stream[VC_STREAMS];
	u8 stream_next;
	struct vcache_sealing sealing[VC_SEALS];
};

/* Read chunks of a log in lanes of this kind. */
static inline u32 vcache_log_reads_in(const struct vcache_log *log,
				      enum vcache_domain domain)
{
	return READ_ONCE(log->reads[VC_READS_SMALL].nr[domain]) +
	       READ_ONCE(log->reads[VC_READS_MAIN].nr[domain]) +
	       READ_ONCE(log->reads[VC_READS_WARM].nr[domain]);
}

/* All read chunks of a log. */
static inline u32 vcache_log_reads(const struct vcache_log *log)
{
	return vcache_log_reads_in(log, VC_SHARED) + vcache_log_reads_in(log, VC_OWN);
}

/* Written chunks of a log in lanes of this kind. */
static inline u32 vcache_log_written_in(const struct vcache_log *log,
					enum vcache_domain domain)
{
	u32 own = READ_ONCE(log->nr_own), nr;

	if (domain == VC_OWN)
		return own;
	/* Without log->lock, a chunk may have left after its own count was read. */
	nr = READ_ONCE(log->nr);
	return nr - min(own, nr);
}

/* All chunks of a log in lanes of this kind. */
static inline u32 vcache_log_has(const struct vcache_log *log, enum vcache_domain domain)
{
	return vcache_log_written_in(log, domain) + vcache_log_reads_in(log, domain);
}

/* All chunks of a log. */
static inline u32 vcache_log_chunks(const struct vcache_log *log)
{
	return READ_ONCE(log->nr) + vcache_log_reads(log);
}

/* Chunks in the dedicated lanes of a log that are not foreign. */
static inline u32 vcache_log_own(const struct vcache_log *log)
{
	u32 size = READ_ONCE(log->own_size);

	return size - min(size, READ_ONCE(log->own_foreign));
}

/* Most chunks that a log may have in its dedicated lanes. */
static inline u32 vcache_log_own_limit(const struct vcache_log *log)
{
	return min(vcache_log_own(log), READ_ONCE(log->own_part));
}

/* What a log may count on: its fair share, and its dedicated lanes. */
static inline u32 vcache_log_part(const struct vcache_log *log)
{
	return READ_ONCE(log->share) + vcache_log_own_limit(log);
}

/* Most chunks that a log may have altogether. */
static inline u64 vcache_log_most(const struct vcache_log *log)
{
	return (u64)READ_ONCE(log->most) + vcache_log_own_limit(log);
}

/* Does a log have chunks in lanes where it may not have any? */
static inline bool vcache_log_must_vacate(const struct vcache_log *log)
{
	return READ_ONCE(log->misplaced) ||
	       (!READ_ONCE(log->most) && vcache_log_has(log, VC_SHARED));
}

/* Add to the credit of a log. A race may lose some of it. */
static inline void vcache_log_paid(struct vcache_log *log, u32 paid)
{
	u32 credit = READ_ONCE(log->credit);

	if (credit < VC_CREDIT_MAX)
		WRITE_ONCE(log->credit, credit + paid);
}

#endif /* DM_VCACHE_CHUNK_H */
