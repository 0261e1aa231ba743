/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * dm-vcache: the log of a tag of a volume: its chunks, its records on their way,
 * and what it has of reads. See pool.h for the states of a chunk, and for locks.
 */
#ifndef DM_VCACHE_TAGLOG_H
#define DM_VCACHE_TAGLOG_H

#include <linux/bio.h>
#include <linux/mutex.h>
#include <linux/workqueue.h>

#include "../core/level.h"
#include "../core/log.h"
#include "../core/place.h"

struct vc_pool;
struct vc_tag;
struct vc_volume;

/* Data blocks of one record: 512 KiB. */
#define VC_RECORD_MAX		128U

/* Chunks of a log that may be waiting for their seal. */
#define VC_SEALS		4U

/* Sequential reads of a log that are told apart. */
#define VC_STREAMS		8U

enum vc_chunk_state {
	VC_CHUNK_FREE,
	VC_CHUNK_SPARE,
	VC_CHUNK_OPEN,
	VC_CHUNK_CLOSED,
	VC_CHUNK_SEALED,
	VC_CHUNK_RECLAIM,
	VC_CHUNK_BAD,
	VC_CHUNK_OUTSIDE,
};

/**
 * struct vc_chunk - a chunk of a pool
 * @node: vc_log.chunks, vc_reads.chunks, or vc_lane.free
 * @log: whose it is
 * @gen: generation
 * @reuse: how often it was freed; code that holds no reference compares it to find
 *	out whether the chunk was reused, see vc_lookup_clean(); 32 bits, because it is
 *	read without a lock
 * @live: cells that hold something
 * @dirty: of these, cells with what the origin has not
 * @users: reads from it on their way
 * @wanted: it would have gone but for them
 * @pending: records on their way, one more while it is open
 * @state: enum vc_chunk_state, under the lock of the log or of the free list
 * @lane: its lane
 * @own: that is one of its log's own, see lane.c; from when it is taken on, under
 *	the lock of the log
 * @clean: all that counts in it is on the origin; set once, or from the start
 * @reads: what is in it was promoted, it has no records, and these are its like;
 *	or NULL
 * @warm: it was of reads before the pool was shut down, see warm.c
 * @failed: a record of it could not be written; it gets no more and no seal
 * @stale: records of other logs supersede entries of it, see vc_reclaim_reseal()
 * @sealing: what its seal will say, until it is written
 */
struct vc_chunk {
	struct list_head node;
	struct vc_log *log;
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
	bool stale;
	bool wanted;
	struct vc_reads *reads;
	struct vc_sealing *sealing;
};

static inline enum vc_domain vc_chunk_domain(const struct vc_chunk *c)
{
	return READ_ONCE(c->own) ? VC_OWN : VC_SHARED;
}

/* What a log takes a chunk for. */
enum vc_take {
	VC_TAKE_WRITE,		/* for records */
	VC_TAKE_READ,		/* for what is promoted */
	VC_TAKE_PREFETCH,	/* for what is promoted and nobody reads now */
	VC_TAKE_KEEP,		/* for what was hot in a chunk that goes, of shared lanes */
	VC_TAKE_KEEP_OWN,	/* and in one of the log's own lanes */
	VC_TAKE_RELOCATE,		/* for what has to last in a chunk that goes */
};

/* What a record is to its log. */
enum vc_append_kind {
	VC_APPEND_LOG,		/* it is all there is of the data */
	VC_APPEND_THROUGH,	/* the data goes to the origin as well */
	VC_APPEND_COPY,		/* and what is in the cache need not last */
	VC_APPEND_RELOCATE,	/* the data was in an older chunk of the log */
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
 * @relocate: who sends it says when its chunk may be closed
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
	bool relocate;
	blk_status_t status;
	struct completion *done;
	struct bio *bio;
};

/**
 * struct vc_stream - reads that follow one another
 * @next: the sector behind the last one
 * @run: sectors so far
 */
struct vc_stream {
	u64 next;
	u64 run;
};

/*
 * Where a block is that is read. What was missed once is in few chunks, and goes
 * soon if it is not read again; see Yang et al., FIFO queues are all you need for
 * cache eviction, SOSP 2023, section 4.
 */
enum vc_reads_kind {
	VC_READS_SMALL,		/* it was missed once */
	VC_READS_MAIN,		/* it was missed twice, or was hot in another chunk */
	VC_READS_WARM,		/* it was kept, not hot: of a tag with lanes of its own */
	VC_READS_KINDS
};

/**
 * struct vc_reads - chunks of reads, filled one after the other
 * @chunks: the oldest first, by where they are; under vc_log.lock
 * @nr: how many; under vc_log.lock
 * @open: the one that is being filled, or NULL; under vc_log.fill
 * @filled: blocks of it in use; under vc_log.fill
 */
struct vc_reads {
	struct list_head chunks[VC_DOMAINS];
	u32 nr[VC_DOMAINS];
	struct vc_chunk *open;
	u32 filled;
};

/**
 * struct vc_prefetch - blocks that are to be promoted before anybody reads them
 * @lists: what is to be done; filled and emptied under vc_log.lock, the first is
 *	read by @work alone
 * @runs: of all lists; under vc_log.lock
 * @waiting: blocks that have not come to their end
 * @done: blocks that were promoted
 * @flying: promotions on their way, one more while they are sent
 * @began: when the first of these was sent, jiffies
 * @tries: how often in a row there was no chunk, or no memory; of @work
 * @work: sends the next ones
 */
struct vc_prefetch {
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
 * struct vc_claim - what the tag of a log is to have of the chunks in shared lanes
 * @least: its minimum
 * @most: its maximum
 * @own_most: its maximum in lanes of its own
 * @share: its share
 * @weight: 0 when nobody uses the log
 * @full: its share is its maximum
 */
struct vc_claim {
	u32 least;
	u32 most;
	u32 own_most;
	u64 share;
	u32 weight;
	bool full;
};

/**
 * struct vc_log - the log of a tag of a volume
 * @node: vc_volume.logs
 * @vol: the volume
 * @tag: number of the tag
 * @user: the newest tag that writes it; RCU, NULL when none does
 * @append: serialises the writers of records
 * @open: chunk being written, or NULL; changes under @append
 * @at: where the next record goes; under @append
 * @lock: guards what follows; taken in interrupts
 * @chunks: all its chunks, the oldest first
 * @records: records on their way, the oldest first
 * @nr: chunks in @chunks
 * @nr_own: of those the ones in lanes of its own
 * @dirty: of those the ones that are not clean
 * @warm: and those that are warm
 * @spare: the next chunk
 * @starved: the writer waits for a chunk or for a seal
 * @reclaim_pending: it has to give up a chunk, and none can be reclaimed yet, see space.c
 * @held: it waits until relocation has its chunks, see vc_log_hold()
 * @claim: how its share is found; under the lock of the pool
 * @share: chunks that are its share of the shared lanes
 * @guaranteed: the part of @share for which other logs give up chunks of theirs
 * @most: chunks that it takes there at most, before one more is relocated to
 * @own_part: its maximum, or U32_MAX: what it has of its own lanes as its part
 * @own_most: the same, less the chunk for what is kept: what it may have there
 * @lanes: lanes of its own, bits; under the lock of the pool, too
 * @own_size: chunks of those
 * @own_foreign: chunks of other logs that are still in these lanes
 * @own_short: too few of these are free, and what is clean cannot go
 * @misplaced: chunks that it has in lanes dedicated to other logs
 * @look_at: where the next chunk is looked for whose hot blocks migrate
 * @cool_at: where the next one that cools down
 * @cooled_at: blocks that had been read in the cache when one did
 * @stays: so hot are blocks that stay in its own lanes when a chunk of these goes
 *	for one that is hotter; VC_HEAT_MAX at most
 * @written: when the last record was sent, jiffies
 * @seals: seals that are not in use
 * @closed: seals of chunks whose records are complete
 * @seal_work: writes those
 * @fill: serialises who fills chunks with reads
 * @reads: chunks with what was promoted
 * @promotions: what has been read and has no place yet; under @lock
 * @promote_work: gives it one
 * @prefetch: what is to be promoted before it is read
 * @live: cells of its chunks that hold something
 * @hot: those in shared lanes that are hot there, or about so many
 * @credit: what it may spend on blocks that are not hot, see vc_log_paid()
 * @misses: blocks missed for the first time, the clock of its ghosts
 * @level: how often these have to be missed
 * @stream_lock: guards @stream and @stream_next; taken in no interrupt
 * @stream: reads that may be sequential
 * @stream_next: cursor: the one that is replaced next
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
	u32 nr_own;
	u32 dirty;
	u32 warm;
	struct vc_chunk *spare;
	bool starved;
	bool reclaim_pending;
	bool held;
	struct vc_claim claim;
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
	struct vc_reads reads[VC_READS_KINDS];
	struct list_head promotions;
	struct work_struct promote_work;
	struct vc_prefetch prefetch;
	atomic_t live;
	atomic_t hot;
	u32 credit;
	u32 misses;
	struct vc_level level;
	spinlock_t stream_lock; /* stream */
	struct vc_stream stream[VC_STREAMS];
	u8 stream_next;
	struct vc_sealing sealing[VC_SEALS];
};

/* Chunks of reads that a log has there. */
static inline u32 vc_log_reads_in(const struct vc_log *log,
				  enum vc_domain domain)
{
	return READ_ONCE(log->reads[VC_READS_SMALL].nr[domain]) +
	       READ_ONCE(log->reads[VC_READS_MAIN].nr[domain]) +
	       READ_ONCE(log->reads[VC_READS_WARM].nr[domain]);
}

/* Chunks of reads that a log has. */
static inline u32 vc_log_reads(const struct vc_log *log)
{
	return vc_log_reads_in(log, VC_SHARED) + vc_log_reads_in(log, VC_OWN);
}

/* Chunks that a log has written, there. */
static inline u32 vc_log_written_in(const struct vc_log *log,
				    enum vc_domain domain)
{
	u32 own = READ_ONCE(log->nr_own);

	return domain == VC_OWN ? own : READ_ONCE(log->nr) - own;
}

/* Chunks that a log has there, written and read. */
static inline u32 vc_log_has(const struct vc_log *log, enum vc_domain domain)
{
	return vc_log_written_in(log, domain) + vc_log_reads_in(log, domain);
}

/* Chunks that a log has, written and read. */
static inline u32 vc_log_chunks(const struct vc_log *log)
{
	return READ_ONCE(log->nr) + vc_log_reads(log);
}

/* Chunks in a log's own lanes that nobody else has. */
static inline u32 vc_log_own(const struct vc_log *log)
{
	u32 size = READ_ONCE(log->own_size);

	return size - min(size, READ_ONCE(log->own_foreign));
}

/* Chunks that a log can have in its own lanes. */
static inline u32 vc_log_own_limit(const struct vc_log *log)
{
	return min(vc_log_own(log), READ_ONCE(log->own_part));
}

/* Chunks that a log can have: its share, and its own lanes. */
static inline u32 vc_log_part(const struct vc_log *log)
{
	return READ_ONCE(log->share) + vc_log_own_limit(log);
}

/* Chunks that a log can have at most: there, and in its own lanes. */
static inline u64 vc_log_most(const struct vc_log *log)
{
	return (u64)READ_ONCE(log->most) + vc_log_own_limit(log);
}

/* Does a log have chunks in lanes where it may not have any? */
static inline bool vc_log_must_vacate(const struct vc_log *log)
{
	return READ_ONCE(log->misplaced) ||
	       (!READ_ONCE(log->most) && vc_log_has(log, VC_SHARED));
}

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
void vc_chunk_open(struct vc_log *log, struct vc_chunk *c);
void vc_chunk_put_pending(struct vc_log *log, struct vc_chunk *c);
void vc_log_close(struct vc_log *log);
void vc_seal_work(struct work_struct *work);
void vc_log_wake(struct vc_log *log);

#endif /* DM_VCACHE_TAGLOG_H */
