/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * dm-vcache: devices and their tags.
 *
 * DOC: Objects
 *
 * Tag 0 of a device is *hTag*, the tag of the host: it has all I/O that cannot be
 * attributed to another tag.
 *
 * A &struct vcache_dev belongs to a mapped device and outlives its tables, so tags and
 * buffered data survive a table reload, also a noflush one. A &struct vcache_target holds
 * what one table line says. A &struct vcache_tag is one tag of a device, with its share, its
 * dirty list, its flush epochs and its statistics. A &struct vcache_block is one page of
 * buffered data of a tag.
 *
 * DOC: Locks
 *
 *   vcache_block.lock (of the older, then of the newer version)
 *     └── vcache_tag.lock, or the xa_lock of vcache_dev.blocks, one at a time;
 *         only vc_block_share() takes hTag's inside another tag's
 *
 * All of these are taken in interrupts. A flush takes the lock of each tag that it
 * covers, one after the other, and no lock of the whole device: only writers and the
 * reaper change the index. Lists of tags and maps of sectors are read under RCU and
 * changed under vcache_dev.lock (a mutex), which is held during a replay. vc_registry_lock guards
 * the list of devices; no other lock of a device in use is taken inside it, see registry.c.
 * vc_limits_lock guards the limits and is taken inside vcache_dev.lock.
 */
#ifndef DM_VCACHE_TAG_H
#define DM_VCACHE_TAG_H

#include <linux/bio.h>
#include <linux/device-mapper.h>
#include <linux/list.h>
#include <linux/llist.h>
#include <linux/mempool.h>
#include <linux/mutex.h>
#include <linux/rcupdate.h>
#include <linux/sched/mm.h>
#include <linux/smp.h>
#include <linux/spinlock.h>
#include <linux/srcu.h>
#include <linux/wait.h>
#include <linux/workqueue.h>
#include <linux/xarray.h>

#include "../../core/epoch.h"
#include "../../core/runs.h"
#include "../../netlink/vcache_uapi.h"
#include "../base/base.h"
#include "../base/request.h"
#include "curve.h"
#include "stats.h"

struct nvme_command;
struct request;
struct vcache_log;
struct vcache_volume;

/*
 * Most write-outs of a tag that are at the origin at once. Enough to keep an SSD busy; few
 * enough that a large flush leaves space in the origin's queue for requests of others.
 */
#define VC_INFLIGHT_MAX		32U

/*
 * With an origin that understands tags, so many times as many may be in flight: those
 * that have arrived and wait for a tagged flush, and the flush itself.
 */
#define VC_GROUPS_MAX		8U

/* A tag can always buffer this many pages, however small its share. */
#define VC_LIMIT_MIN		64U

#define VC_AGE_MS_DEFAULT	5000U
#define VC_AGE_MS_MAX		600000U

/* Range of vcache_limits.mib, and of a pause in s. */
#define VC_LIMIT_MIB_MAX	1048576U
#define VC_PAUSE_MAX		86400U

/* Dirty shares, in percent, from which destage begins, and runs at full speed. */
#define VC_DIRTY_LOW		25U
#define VC_DIRTY_HIGH		75U
/* Writers are slowed down from 81 percent on: destage must be at full speed before. */
#define VC_DIRTY_HIGH_MAX	80U

/**
 * struct vcache_limits - limits of destage, see ../destage/limit.c
 * @mib: most MiB per second; 0: no limit
 * @low: percentage of a share that is dirty from which destage begins, 0 to @high
 * @high: the same, from which it runs at full speed, 1 to VC_DIRTY_HIGH_MAX
 */
struct vcache_limits {
	u32 mib;
	u32 low;
	u32 high;
};

/**
 * struct vcache_cgroups - the cgroups whose I/O belongs to a tag
 * @rcu: frees it
 * @nr: how many
 * @id: cgroup v2 ids
 */
struct vcache_cgroups {
	struct rcu_head rcu;
	unsigned int nr;
	u64 id[];
};

/**
 * struct vcache_staged - extents received but not committed, under vcache_dev.lock
 * @s: sorted
 * @nr: how many
 * @room: for how many @s has memory
 */
struct vcache_staged {
	struct vcache_sectors *s;
	size_t nr;
	size_t room;
};

/**
 * struct vcache_refusal - why extents were refused
 * @sector: after -EEXIST: a sector that belongs to another tag
 * @other: after -EEXIST: that tag
 * @runs: after -E2BIG: how many extents the tag would have
 */
struct vcache_refusal {
	u64 sector;
	struct vcache_tag *other;
	u64 runs;
};

/* Whether every flush covers a tag because it has lost a cgroup. */
enum vcache_exposure {
	VC_NOT_EXPOSED,
	VC_EXPOSED_CHANGING,	/* writes may still be attributed by the old cgroups */
	VC_EXPOSED,		/* until the data that was dirty then is durable */
};

/**
 * struct vcache_nvme - an origin that understands tags, see nvme.c
 * @init_request: function of nvme-core, which stays loaded while this is set
 * @on: write-outs are tagged
 * @users: tagged write-outs that are not durable
 * @nsid: namespace
 * @tag_max: largest tag that the drive knows
 * @instance: number of the drive's power-on; after another power-on flushes fail
 */
struct vcache_nvme {
	void (*init_request)(struct request *rq, struct nvme_command *cmd);
	bool on;
	atomic_t users;
	u32 nsid;
	u32 tag_max;
	u32 instance;
};

/**
 * struct vcache_tag - one tag of a device
 * @node: vcache_dev.tags, in the order of @seq
 * @registry: list of all tags of the host, for the limits
 * @gone: list of tags being freed
 * @dev: the device
 * @seq: number of the tag in the life of the device, never used twice
 * @id: its number in user space
 * @orphan: removed by user space; its data is covered by every flush
 * @exposed: it has lost a cgroup; covered by every flush until it is durable once
 * @weight: weight for its share of the buffer memory and of the cache
 * @least: minimum of its share of the cache, bytes
 * @most: maximum of what it may have in the cache, bytes; 0: no limit
 * @lanes: lanes of the pool that are dedicated to it, bits
 * @name: a label for the administrator
 * @cgroups: may be NULL
 * @payer: who pays for writes to the origin in the background, see payer.c; RCU
 * @mode: where its write-outs go, on a device in writeback mode
 * @log: its log in the pool, or NULL
 * @curve: its miss-ratio curve, or NULL
 * @extents: number of its extents and of their sectors, under vcache_dev.lock
 * @staged: extents to be added at the commit
 * @staged_remove: extents to be removed at the commit
 * @staged_by: the command that has staged them
 * @used: pages used or reserved
 * @limit: most pages that it may use
 * @dirty_sectors: sectors of completed writes that are not durable
 * @timed: flushes, reads and writes under way that will be counted in @stats
 * @lock: guards from here to @refused; taken in interrupts
 * @epoch: flush epochs
 * @waiters: flushes that wait for an epoch slot
 * @dirty: blocks to write out, the oldest first
 * @ready: blocks that waited for their older version
 * @ndirty: length of @dirty
 * @goal: how many of them to write out now
 * @waiting: writes that wait for memory
 * @bad: blocks charged to it whose last write-out failed
 * @sent: tagged writes in the origin's volatile cache, see tagged.c
 * @nsent: length of @sent
 * @committing: tagged writes that the tagged flush under way covers
 * @busy: a tagged flush is under way
 * @refused: tagged writes that have to be repeated with FUA
 * @commit_work: sends tagged flushes
 * @stalled: the worker stopped at VC_INFLIGHT_MAX
 * @sending: requests at the origin
 * @tagging: the tagged writes among them
 * @inflight: requests whose data is not durable, including those in @sending
 * @inflight_sectors: their size
 * @rate: how fast its write-outs complete while there are any, or they wait for space in the
 *        log, sectors per ms; 0: unknown
 * @busy_since: since when @rate is being measured, ns
 * @busy_measured: it was measured before since write-outs are under way
 * @busy_sectors: what has completed since
 * @short_of_space: since @busy_since, or a later time, write-outs wait for space in the log
 * @writer: held by whoever writes out blocks of the tag: the worker, or a flush
 * @batch: blocks being written out in order; under @writer
 * @work: the worker
 * @events: kinds of events to be announced, bits
 * @blocked_since: since when write-outs wait for space in the log, ns; 0: they do not; under
 *	@writer, read without it
 * @blocked_ns: how long they have waited before; the same
 * @stats: stripes of the counters
 */
struct vcache_tag {
	struct list_head node;
	struct list_head registry;
	struct list_head gone;
	struct vcache_dev *dev;
	u64 seq;
	u32 id;
	bool orphan;
	enum vcache_exposure exposed;
	u32 weight;
	u64 least;
	u64 most;
	u64 lanes;
	char name[VCACHE_NAME_MAX + 1];
	struct vcache_cgroups __rcu *cgroups;
	struct cgroup_subsys_state *payer;
	enum vcache_mode mode;
	struct vcache_log *log;
	struct vcache_curve *curve;
	struct vcache_owner extents;
	struct vcache_staged staged;
	struct vcache_staged staged_remove;
	u8 staged_by;

	atomic_t used;
	unsigned int limit;
	atomic64_t dirty_sectors;
	atomic_t timed;

	spinlock_t lock; /* lists, epochs and waiters of the tag */
	struct vcache_epoch epoch;
	struct list_head waiters[VC_EPOCH_SLOTS];
	struct list_head dirty;
	struct list_head ready;
	unsigned int ndirty;
	unsigned int goal;
	struct bio_list waiting;
	struct bio_list sent;
	unsigned int nsent;
	struct bio_list committing;
	bool busy;
	struct bio_list refused;
	struct work_struct commit_work;

	atomic_t bad;

	bool stalled;
	atomic_t sending;
	atomic_t tagging;
	atomic_t inflight;
	atomic_t inflight_sectors;
	u32 rate;
	u64 busy_since;
	bool busy_measured;
	atomic_t busy_sectors;
	bool short_of_space;
	struct mutex writer; /* batch */
	struct list_head batch;
	struct work_struct work;
	unsigned long events;
	u64 blocked_since;
	u64 blocked_ns;
	struct vcache_stats *stats;
};

/**
 * struct vcache_target - what a table line says
 * @dev: the device it belongs to
 * @ti: dm's view of it
 * @origin: the origin
 * @mode: what becomes of writes
 * @pool_dev: the device of the pool, or NULL
 * @volume: number of the origin in the pool
 * @scope: how requests get their tag
 * @tag_id: the tag in volume scope
 * @tag: the same, found when the table is resumed
 * @age_ms: longest time that data stays buffered
 * @age_given: the table line has it
 * @limits: of destage; change under vcache_dev.lock
 */
struct vcache_target {
	struct vcache_dev *dev;
	struct dm_target *ti;
	struct dm_dev *origin;
	enum vcache_mode mode;
	struct dm_dev *pool_dev;
	u32 volume;
	enum vcache_scope scope;
	u32 tag_id;
	struct vcache_tag *tag;
	unsigned int age_ms;
	bool age_given;
	struct vcache_limits limits;
};

/**
 * struct vcache_dev - the state of a mapped device
 * @registry: list of all devices
 * @md: the mapped device
 * @seq: greater than that of all devices made before
 * @tables: tables that refer to it, under vc_registry_lock
 * @users: others that use it, under vc_registry_lock
 * @target: the active table; changes only while the device is suspended
 * @volume: the active table has volume scope
 * @writeback: write-outs go to the log in the cache
 * @vol: the origin's volume in a pool, or NULL; changes while suspended
 * @mode: mode of the active table, or of the last one
 * @origin: the origin of that table; for work that may go on after the table
 * @store: the device that write-outs go to
 * @flushed_origin: origin whose volatile cache has been flushed since we use it
 * @origin_writes: write-outs that the origin has completed, but may not have made durable
 * @origin_durable: how many of these a FLUSH has covered
 * @lock: control path: tags, maps; see vcache_dev_lock()
 * @noio: allocation scope of the holder of @lock
 * @tags: all tags, hTag first; RCU
 * @host: hTag
 * @next_seq: for vcache_tag.seq
 * @attr_gen: counts changes of cgroups and removals of tags
 * @map: the tags' sectors, in filesystem scope; may be NULL; RCU
 * @blocks: index of the buffered blocks by page number
 * @spilled: buffered blocks for which @blocks had no memory; changes under its xa_lock
 * @nspilled: how many
 * @nblocks: blocks in @blocks and @spilled
 * @reserve: memory for blocks
 * @pending: dirty blocks, except those that failed and have not been tried again
 * @inherited: counts blocks whose write-out failed while a newer version had their data
 * @reap: CLEAN blocks to be taken out of the index
 * @reap_work: takes them out
 * @park_lock: guards @parked; taken in interrupts
 * @parked: requests that need exclusive access to a range, in order
 * @nparked: length of @parked
 * @park_pass: number of the present pass over @parked; the worker's own
 * @park_work: submits them
 * @writers: held by a write from its look at @parked until its data is buffered, see park.c
 * @flush_lock: guards @flushq; taken in interrupts
 * @flushq: flushes that need a FLUSH of the origin (isolation=degraded)
 * @flush_work: submits them
 * @age_work: writes out blocks that have been dirty for too long
 * @event_work: announces events
 * @collect_work: frees removed tags
 * @nvme: state of tagged commands, under @lock except where nvme.c says otherwise
 * @wq: for all work of this device but that of the following
 * @flush_wq: for tagged flushes
 * @discard_wq: for discards
 * @large_wq: for records of large writes: others wait for these, and they for nobody
 * @large_held: a block may not be written out before a large write is complete
 * @fallback_lock: guards @fallback; taken in interrupts
 * @fallback: reads that the cache device has failed
 * @fallback_work: takes them up
 * @retries: requests to read their data again, see fallback.c
 * @bs: write-out requests, &struct vcache_writeout
 * @granted: write-outs that waited for their ranges
 * @granted_work: sends them
 * @inflight: write-outs at the origin
 * @idle: woken when @inflight becomes 0 and when a tag is drained
 * @suspended: no new I/O to the origin
 * @noflush: suspending without flushing: nothing may wait
 * @frozen: being suspended by a resize of the pool, see resize.c
 * @hung: suspended while the origin does not answer; see "Origins that hang" in device.c
 * @held: keeps @origin open while @hung
 */
struct vcache_dev {
	struct list_head registry;
	struct mapped_device *md;
	u64 seq;
	unsigned int tables;
	unsigned int users;
	struct vcache_target *target;
	bool volume;
	bool writeback;
	struct vcache_volume *vol;
	enum vcache_mode mode;
	struct block_device *origin;
	struct block_device *store;
	dev_t flushed_origin;
	atomic64_t origin_writes;
	atomic64_t origin_durable;
	struct mutex lock; /* control path, see vcache_dev_lock() */
	unsigned int noio;
	struct list_head tags;
	struct vcache_tag *host;
	u64 next_seq;
	atomic_t attr_gen;
	struct vcache_runs __rcu *map;
	struct xarray blocks;
	struct hlist_head spilled;
	unsigned int nspilled;
	atomic_long_t nblocks;
	mempool_t reserve;
	atomic_long_t pending;
	atomic_t inherited;
	struct llist_head reap;
	struct work_struct reap_work;
	spinlock_t park_lock; /* parked */
	struct list_head parked;
	atomic_t nparked;
	unsigned int park_pass;
	struct work_struct park_work;
	struct srcu_struct writers;
	spinlock_t flush_lock; /* flushq */
	struct bio_list flushq;
	struct work_struct flush_work;
	struct delayed_work age_work;
	struct delayed_work event_work;
	struct delayed_work collect_work;
	struct vcache_nvme nvme;
	struct workqueue_struct *wq;
	struct workqueue_struct *flush_wq;
	struct workqueue_struct *discard_wq;
	struct workqueue_struct *large_wq;
	bool large_held;
	spinlock_t fallback_lock; /* fallback */
	struct bio_list fallback;
	struct work_struct fallback_work;
	struct bio_set retries;
	struct bio_set bs;
	struct llist_head granted;
	struct work_struct granted_work;
	atomic_t inflight;
	wait_queue_head_t idle;
	bool suspended;
	bool noflush;
	bool frozen;
	bool hung;
	void *held;
};

/**
 * struct vcache_tag_ops - what upper layers do for tags
 * @write_out: the worker of a tag, vcache_tag.work
 * @commit: sends tagged flushes, vcache_tag.commit_work
 * @join: gives a tag its log in a volume; 0 or -ENOMEM
 * @leave: takes the log from a tag, which is idle
 * @announce: tells user space about an event of a tag
 */
struct vcache_tag_ops {
	work_func_t write_out;
	work_func_t commit;
	int (*join)(struct vcache_volume *v, struct vcache_tag *tag);
	void (*leave)(struct vcache_tag *tag);
	void (*announce)(struct vcache_dev *dev, u32 tag,
			 enum vcache_event_kind kind);
};

/*
 * Direct a request to the origin, in the context of its submitter: this also finds the
 * cgroup that the request is charged to. Requests answered by the buffer or the cache do
 * without, because it takes time.
 */
static inline void vcache_bind(struct vcache_dev *dev, struct bio *bio)
{
	bio_set_dev(bio, dev->target->origin->bdev);
}

/*
 * The lock of the control path. Discards need it. So its holder must not wait for memory
 * that only I/O of this device can free.
 */
static inline void vcache_dev_lock(struct vcache_dev *dev)
{
	mutex_lock(&dev->lock);
	dev->noio = memalloc_noio_save();
}

static inline void vcache_dev_unlock(struct vcache_dev *dev)
{
	memalloc_noio_restore(dev->noio);
	mutex_unlock(&dev->lock);
}

/* The counters that this processor adds to. */
static inline struct vcache_stats *vcache_stats(const struct vcache_tag *tag)
{
	return &tag->stats[raw_smp_processor_id() & vcache_stats_mask];
}

static inline struct vcache_tag *vcache_tag_of_owner(struct vcache_owner *owner)
{
	return container_of(owner, struct vcache_tag, extents);
}

/* attribute.c */
bool vcache_tag_has_cgroup(struct vcache_tag *tag, u64 id);
struct vcache_tag *vcache_tag_of_range(struct vcache_target *vt, struct bio *bio);
struct vcache_tag *vcache_tag_of_write(struct vcache_target *vt, struct bio *bio);
void vcache_payer_note(struct vcache_tag *tag);
void vcache_payer_forget(struct vcache_tag *tag);
void vcache_payer_charge(struct vcache_tag *tag, struct bio *bio);
void vcache_scope_of_flush(struct vcache_target *vt, struct vcache_flush *f);
int vcache_tag_set_cgroups(struct vcache_tag *tag, const u64 *id, unsigned int nr);

/* extents.c */
unsigned int vcache_extents_max(void);
int vcache_tag_set_extents(struct vcache_tag *tag, const struct vcache_staged *add,
			   struct vcache_refusal *why);
int vcache_tag_change_extents(struct vcache_tag *tag, const struct vcache_staged *remove,
			      const struct vcache_staged *add, struct vcache_refusal *why);
void vcache_extents_punch(struct vcache_dev *dev, sector_t start, sector_t len);
void vcache_extents_free(struct vcache_dev *dev);

/* goal.c */
void vcache_tag_kick(struct vcache_tag *tag);
bool vcache_tag_ask(struct vcache_tag *tag, unsigned int goal);
void vcache_tag_write_out(struct vcache_tag *tag, unsigned int goal);
void vcache_dev_write_out(struct vcache_dev *dev);
void vcache_tag_write_out_all(struct vcache_tag *tag);
bool vcache_dev_drained(struct vcache_dev *dev);
unsigned long vcache_age_tick(struct vcache_dev *dev);
void vcache_dev_flush_origin(struct vcache_dev *dev, struct block_device *origin);
void vcache_dev_bypass(struct vcache_dev *dev, struct block_device *origin);

/* isolation.c */
enum vcache_isolation vcache_isolation_of(struct block_device *bdev);
enum vcache_isolation vcache_target_isolation(const struct vcache_target *vt);
blk_opf_t vcache_durable_flags(struct block_device *bdev);
void vcache_origin_note_write(struct vcache_dev *dev, const struct bio *bio);
bool vcache_origin_needs_flush(struct vcache_dev *dev, struct block_device *origin);
int vcache_origin_flush(struct vcache_dev *dev, struct block_device *origin);

/* registry.c */
struct vcache_dev *vcache_dev_get(struct mapped_device *md,
				  struct vcache_dev *(*make)(struct mapped_device *md));
bool vcache_registry_put(struct vcache_dev *dev);
void vcache_dev_unuse(struct vcache_dev *dev);
struct vcache_dev *vcache_dev_use_number(dev_t number);
struct vcache_dev *vcache_dev_use_after(u64 seq);
bool vcache_dev_freeze(struct mapped_device *md, bool on);

/* tag.c */
void vcache_tag_register(const struct vcache_tag_ops *ops);
void vcache_limits_update(void);
int vcache_shrinker_init(void);
void vcache_shrinker_exit(void);
struct vcache_tag *vcache_tag_find(struct vcache_dev *dev, u32 id);
struct vcache_tag *vcache_tag_make(struct vcache_dev *dev, u32 id);
void vcache_tag_set_mode(struct vcache_tag *tag, enum vcache_mode mode);
void vcache_tag_remove(struct vcache_tag *tag);
void vcache_collect_work(struct work_struct *work);
void vcache_tags_free(struct vcache_dev *dev);
void vcache_tag_event(struct vcache_tag *tag, enum vcache_event_kind kind);
void vcache_event_work(struct work_struct *work);

#endif /* DM_VCACHE_TAG_H */
