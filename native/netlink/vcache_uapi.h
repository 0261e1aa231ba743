/* SPDX-License-Identifier: ((GPL-2.0 WITH Linux-syscall-note) OR BSD-3-Clause) */
/* Do not edit, generated from native/netlink/vcache.yaml by generate.py. */
#ifndef _UAPI_VCACHE_H
#define _UAPI_VCACHE_H

#include <linux/types.h>

#define VCACHE_FAMILY_NAME	"vcache"
#define VCACHE_FAMILY_VERSION	1

#define VCACHE_MCGRP_EVENTS	"events"

/* Longest tag name in bytes. */
#define VCACHE_NAME_MAX	127

/* Largest tag number. */
#define VCACHE_TAG_MAX	65535

/* Largest weight. */
#define VCACHE_WEIGHT_MAX	1000

/* Most cgroups of one tag. */
#define VCACHE_CGROUPS_MAX	16

/*
 * Buckets of a latency histogram. Bucket b counts values of
 * [lower(b), lower(b + 1)) ns, four buckets to each power of two;
 * lower(b) = b for b < 4, else (4 + b % 4) << (b / 4 - 1).
 * The last bucket takes everything above.
 */
#define VCACHE_HISTOGRAM_BUCKETS	128

/* Points of a miss curve, the first for no cache at all. */
#define VCACHE_CURVE_POINTS	1025

/* A block that was read so often is as hot as can be. */
#define VCACHE_HEAT_MAX	15

/* Most runs of one cache-prefetch. */
#define VCACHE_PREFETCH_RUNS_MAX	2048

/**
 * enum vcache_mode - What a device does with writes.
 * @VCACHE_MODE_FLUSH_ONLY: a tagged write buffer over the origin, no cache
 *   device
 * @VCACHE_MODE_WRITEBACK: write-outs go to the log of their tag in a cache, and
 *   to the origin later
 * @VCACHE_MODE_WRITETHROUGH: write-outs go to the origin, the cache has copies
 * @VCACHE_MODE_NONE: requests go to the origin as they are, flushes are device-
 *   wide
 */
enum vcache_mode {
	VCACHE_MODE_FLUSH_ONLY,
	VCACHE_MODE_WRITEBACK,
	VCACHE_MODE_WRITETHROUGH,
	VCACHE_MODE_NONE,
};

/**
 * enum vcache_scope - How a request gets its tag.
 * @VCACHE_SCOPE_VOLUME: one fixed tag for the whole device
 * @VCACHE_SCOPE_FILESYSTEM: by the submitter's cgroup and the image's extents
 */
enum vcache_scope {
	VCACHE_SCOPE_VOLUME,
	VCACHE_SCOPE_FILESYSTEM,
};

/**
 * enum vcache_isolation - How data is made durable, and so whether tags are
 *   isolated.
 * @VCACHE_ISOLATION_WRITE_THROUGH: the origin has no volatile cache, a
 *   completed write is durable
 * @VCACHE_ISOLATION_FUA: each write-out carries FUA
 * @VCACHE_ISOLATION_DEGRADED: the origin has a volatile cache and no FUA,
 *   flushes are device-wide
 * @VCACHE_ISOLATION_TAGGED: the origin understands tags, a tagged flush makes a
 *   tag's write-outs durable
 */
enum vcache_isolation {
	VCACHE_ISOLATION_WRITE_THROUGH,
	VCACHE_ISOLATION_FUA,
	VCACHE_ISOLATION_DEGRADED,
	VCACHE_ISOLATION_TAGGED,
};

/**
 * enum vcache_event_kind - What happened.
 * @VCACHE_EVENT_KIND_PRESSURE: writers of a tag had to wait for room in its
 *   buffer
 * @VCACHE_EVENT_KIND_ORIGIN_ERROR: a write-out to the origin failed, the data
 *   stays buffered
 * @VCACHE_EVENT_KIND_ORIGIN_OK: write-outs that had failed have all succeeded
 *   since
 * @VCACHE_EVENT_KIND_EXTENTS_LOST: a tag's extents were dropped (no memory for
 *   a discard), set again
 * @VCACHE_EVENT_KIND_TAGS_LOST: the origin refused a tagged command, FUA is
 *   used until device-set tells its tags again
 * @VCACHE_EVENT_KIND_CACHE_LOST: the cache device of the pool has failed
 */
enum vcache_event_kind {
	VCACHE_EVENT_KIND_PRESSURE,
	VCACHE_EVENT_KIND_ORIGIN_ERROR,
	VCACHE_EVENT_KIND_ORIGIN_OK,
	VCACHE_EVENT_KIND_EXTENTS_LOST,
	VCACHE_EVENT_KIND_TAGS_LOST,
	VCACHE_EVENT_KIND_CACHE_LOST,
};

/**
 * struct vcache_extent - A run of sectors. Host byte order; sorted, not empty,
 *   not overlapping.
 * @start: first sector (512 bytes) on the mapped device
 * @len: number of sectors, at least 1
 */
struct vcache_extent {
	__u64 start;
	__u64 len;
};

/**
 * struct vcache_cached_run - A run of blocks in the cache. Host byte order.
 * @start: first sector (512 bytes) on the mapped device, of a block of 4 KiB
 * @len: number of sectors, whole blocks, at least one
 * @heat: how often its blocks were read of late, up to heat-max
 */
struct vcache_cached_run {
	__u64 start;
	__u32 len;
	__u32 heat;
};

/**
 * enum vcache_a_device - attributes of the set "device"
 * @VCACHE_A_DEVICE_MAJOR: major number of the mapped device
 * @VCACHE_A_DEVICE_MINOR: minor number of the mapped device
 * @VCACHE_A_DEVICE_NAME: name of the mapped device
 * @VCACHE_A_DEVICE_MODE: mode
 * @VCACHE_A_DEVICE_SCOPE: scope
 * @VCACHE_A_DEVICE_ISOLATION: isolation
 * @VCACHE_A_DEVICE_SECTORS: size of the device in sectors
 * @VCACHE_A_DEVICE_ORIGIN: major:minor of the origin
 * @VCACHE_A_DEVICE_DIRTY_BYTES: completed writes not yet durable
 * @VCACHE_A_DEVICE_TAGS: number of tags with hTag
 * @VCACHE_A_DEVICE_SUSPENDED: the device is suspended
 * @VCACHE_A_DEVICE_BROKEN: write-outs to the origin fail at present
 * @VCACHE_A_DEVICE_POOL: major:minor of the pool's mapped device, with a cache
 * @VCACHE_A_DEVICE_VOLUME: number of the origin in the pool
 * @VCACHE_A_DEVICE_CACHE_DIRTY_BYTES: in the cache and not on the origin yet
 * @VCACHE_A_DEVICE_CACHE_BROKEN: the cache or the origin below it fails at
 *   present
 * @VCACHE_A_DEVICE_ORIGIN_NSID: NVMe namespace of the origin; 0: send no tagged
 *   commands
 * @VCACHE_A_DEVICE_ORIGIN_TAG_MAX: largest tag the origin knows, from its log
 *   page C0h
 * @VCACHE_A_DEVICE_ORIGIN_INSTANCE: what the origin's log page C0h says of this
 *   power-on, not 0
 * @VCACHE_A_DEVICE_PAD: aligns 64-bit values, no content
 */
enum vcache_a_device {
	VCACHE_A_DEVICE_MAJOR = 1,
	VCACHE_A_DEVICE_MINOR,
	VCACHE_A_DEVICE_NAME,
	VCACHE_A_DEVICE_MODE,
	VCACHE_A_DEVICE_SCOPE,
	VCACHE_A_DEVICE_ISOLATION,
	VCACHE_A_DEVICE_SECTORS,
	VCACHE_A_DEVICE_ORIGIN,
	VCACHE_A_DEVICE_DIRTY_BYTES,
	VCACHE_A_DEVICE_TAGS,
	VCACHE_A_DEVICE_SUSPENDED,
	VCACHE_A_DEVICE_BROKEN,
	VCACHE_A_DEVICE_POOL,
	VCACHE_A_DEVICE_VOLUME,
	VCACHE_A_DEVICE_CACHE_DIRTY_BYTES,
	VCACHE_A_DEVICE_CACHE_BROKEN,
	VCACHE_A_DEVICE_ORIGIN_NSID,
	VCACHE_A_DEVICE_ORIGIN_TAG_MAX,
	VCACHE_A_DEVICE_ORIGIN_INSTANCE,
	VCACHE_A_DEVICE_PAD,

	/* private: */
	__VCACHE_A_DEVICE_MAX,
	VCACHE_A_DEVICE_MAX = (__VCACHE_A_DEVICE_MAX - 1)
};

/**
 * enum vcache_a_tag - attributes of the set "tag"
 * @VCACHE_A_TAG_MAJOR: major number of the mapped device
 * @VCACHE_A_TAG_MINOR: minor number of the mapped device
 * @VCACHE_A_TAG_ID: tag number
 * @VCACHE_A_TAG_NAME: free text for people
 * @VCACHE_A_TAG_WEIGHT: share of the buffer memory and of the cache
 * @VCACHE_A_TAG_CGROUP: cgroup v2 id (inode of its directory); replaces the
 *   tag's list; 0 alone empties it
 * @VCACHE_A_TAG_EXTENTS: extents, see tag-extents
 * @VCACHE_A_TAG_EXTENTS_BEGIN: first message of a new extent list
 * @VCACHE_A_TAG_EXTENTS_COMMIT: last message of a new extent list
 * @VCACHE_A_TAG_EXTENTS_COUNT: extents in force
 * @VCACHE_A_TAG_EXTENTS_SECTORS: sectors in force
 * @VCACHE_A_TAG_LIMIT_BYTES: most buffered bytes of this tag now
 * @VCACHE_A_TAG_DIRTY_BYTES: completed writes not yet durable
 * @VCACHE_A_TAG_INFLIGHT_BYTES: of these being written to the origin
 * @VCACHE_A_TAG_STATS: stats
 * @VCACHE_A_TAG_BROKEN: write-outs of this tag fail at present
 * @VCACHE_A_TAG_MODE: what becomes of its writes on a device in writeback mode:
 *   writeback, writethrough or flush-only; elsewhere that of the device
 * @VCACHE_A_TAG_CACHED_BYTES: in chunks of the cache device that are its own
 * @VCACHE_A_TAG_CACHE_DIRTY_BYTES: of these not on the origin yet
 * @VCACHE_A_TAG_CACHE_MIN_BYTES: its share of the cache is at least this, in
 *   whole chunks, if all of these fit; what they leave is shared by weight
 * @VCACHE_A_TAG_CACHE_MAX_BYTES: most that it may have in any case, in whole
 *   chunks, two at least; 0: no limit
 * @VCACHE_A_TAG_CACHE_SHARE_BYTES: its share now: what it has even if all want
 *   more
 * @VCACHE_A_TAG_PREFETCH_WAITING_BYTES: of cache-prefetch, what has not come to
 *   its end
 * @VCACHE_A_TAG_PREFETCHED_BYTES: what cache-prefetch has brought into the
 *   cache
 * @VCACHE_A_TAG_CACHE_LANES: lanes of the pool that it has for itself, a bit
 *   each; 0: none
 * @VCACHE_A_TAG_CACHE_OWN_BYTES: of cached-bytes those in its own lanes
 * @VCACHE_A_TAG_CACHE_HOT_BYTES: of those in shared lanes what is hot there
 * @VCACHE_A_TAG_PAD: aligns 64-bit values, no content
 */
enum vcache_a_tag {
	VCACHE_A_TAG_MAJOR = 1,
	VCACHE_A_TAG_MINOR,
	VCACHE_A_TAG_ID,
	VCACHE_A_TAG_NAME,
	VCACHE_A_TAG_WEIGHT,
	VCACHE_A_TAG_CGROUP,
	VCACHE_A_TAG_EXTENTS,
	VCACHE_A_TAG_EXTENTS_BEGIN,
	VCACHE_A_TAG_EXTENTS_COMMIT,
	VCACHE_A_TAG_EXTENTS_COUNT,
	VCACHE_A_TAG_EXTENTS_SECTORS,
	VCACHE_A_TAG_LIMIT_BYTES,
	VCACHE_A_TAG_DIRTY_BYTES,
	VCACHE_A_TAG_INFLIGHT_BYTES,
	VCACHE_A_TAG_STATS,
	VCACHE_A_TAG_BROKEN,
	VCACHE_A_TAG_MODE,
	VCACHE_A_TAG_CACHED_BYTES,
	VCACHE_A_TAG_CACHE_DIRTY_BYTES,
	VCACHE_A_TAG_CACHE_MIN_BYTES,
	VCACHE_A_TAG_CACHE_MAX_BYTES,
	VCACHE_A_TAG_CACHE_SHARE_BYTES,
	VCACHE_A_TAG_PREFETCH_WAITING_BYTES,
	VCACHE_A_TAG_PREFETCHED_BYTES,
	VCACHE_A_TAG_CACHE_LANES,
	VCACHE_A_TAG_CACHE_OWN_BYTES,
	VCACHE_A_TAG_CACHE_HOT_BYTES,
	VCACHE_A_TAG_PAD,

	/* private: */
	__VCACHE_A_TAG_MAX,
	VCACHE_A_TAG_MAX = (__VCACHE_A_TAG_MAX - 1)
};

/**
 * enum vcache_a_stats - attributes of the set "stats"
 * @VCACHE_A_STATS_READS: read requests
 * @VCACHE_A_STATS_READ_BYTES: read bytes
 * @VCACHE_A_STATS_READ_HIT_BYTES: of these served from the buffer
 * @VCACHE_A_STATS_WRITES: write requests
 * @VCACHE_A_STATS_WRITE_BYTES: write bytes
 * @VCACHE_A_STATS_ABSORBED_BYTES: overwritten in the buffer before they were
 *   written out
 * @VCACHE_A_STATS_FUA_WRITES: writes with FUA
 * @VCACHE_A_STATS_WRITEOUTS: requests sent to the origin
 * @VCACHE_A_STATS_WRITEOUT_BYTES: writeout bytes
 * @VCACHE_A_STATS_WRITEOUT_ERRORS: writeout errors
 * @VCACHE_A_STATS_FLUSHES: flushes attributed to this tag
 * @VCACHE_A_STATS_FLUSH_NS: their summed latency
 * @VCACHE_A_STATS_FLUSH_HIST: their latency histogram, histogram-buckets times
 *   u64, host byte order
 * @VCACHE_A_STATS_WAITS: writes that waited for room
 * @VCACHE_A_STATS_WAIT_NS: their summed waiting time
 * @VCACHE_A_STATS_DISCARDS: discard requests
 * @VCACHE_A_STATS_DEVICE_FLUSHES: FLUSH commands sent to the origin for this
 *   tag (isolation=degraded)
 * @VCACHE_A_STATS_TAGGED_FLUSHES: tagged flushes sent to the origin
 * @VCACHE_A_STATS_CACHE_HIT_BYTES: reads served from the cache device
 * @VCACHE_A_STATS_MIGRATED_BLOCKS: blocks of 4 KiB copied between its own lanes
 *   and shared ones
 * @VCACHE_A_STATS_READ_NS: summed latency of its reads, from whatever they are
 *   served
 * @VCACHE_A_STATS_READ_HIST: their latency histogram, histogram-buckets times
 *   u64, host byte order
 * @VCACHE_A_STATS_PAD: aligns 64-bit values, no content
 */
enum vcache_a_stats {
	VCACHE_A_STATS_READS = 1,
	VCACHE_A_STATS_READ_BYTES,
	VCACHE_A_STATS_READ_HIT_BYTES,
	VCACHE_A_STATS_WRITES,
	VCACHE_A_STATS_WRITE_BYTES,
	VCACHE_A_STATS_ABSORBED_BYTES,
	VCACHE_A_STATS_FUA_WRITES,
	VCACHE_A_STATS_WRITEOUTS,
	VCACHE_A_STATS_WRITEOUT_BYTES,
	VCACHE_A_STATS_WRITEOUT_ERRORS,
	VCACHE_A_STATS_FLUSHES,
	VCACHE_A_STATS_FLUSH_NS,
	VCACHE_A_STATS_FLUSH_HIST,
	VCACHE_A_STATS_WAITS,
	VCACHE_A_STATS_WAIT_NS,
	VCACHE_A_STATS_DISCARDS,
	VCACHE_A_STATS_DEVICE_FLUSHES,
	VCACHE_A_STATS_TAGGED_FLUSHES,
	VCACHE_A_STATS_CACHE_HIT_BYTES,
	VCACHE_A_STATS_MIGRATED_BLOCKS,
	VCACHE_A_STATS_READ_NS,
	VCACHE_A_STATS_READ_HIST,
	VCACHE_A_STATS_PAD,

	/* private: */
	__VCACHE_A_STATS_MAX,
	VCACHE_A_STATS_MAX = (__VCACHE_A_STATS_MAX - 1)
};

/**
 * enum vcache_a_curve - attributes of the set "curve"
 * @VCACHE_A_CURVE_MAJOR: major number of the mapped device
 * @VCACHE_A_CURVE_MINOR: minor number of the mapped device
 * @VCACHE_A_CURVE_ID: tag number
 * @VCACHE_A_CURVE_GRAIN_BYTES: by so much the cache of a point is larger than
 *   that of the one before; doubles as need be
 * @VCACHE_A_CURVE_FOOTPRINT_BYTES: about so much was accessed at all
 * @VCACHE_A_CURVE_READS: blocks of 4 KiB that were read
 * @VCACHE_A_CURVE_WRITES: and written
 * @VCACHE_A_CURVE_READ_MISSES: of the reads, those that an LRU cache of each
 *   size would have missed: curve-points times u64, host byte order
 * @VCACHE_A_CURVE_WRITE_MISSES: the same of the writes
 * @VCACHE_A_CURVE_PAD: aligns 64-bit values, no content
 */
enum vcache_a_curve {
	VCACHE_A_CURVE_MAJOR = 1,
	VCACHE_A_CURVE_MINOR,
	VCACHE_A_CURVE_ID,
	VCACHE_A_CURVE_GRAIN_BYTES,
	VCACHE_A_CURVE_FOOTPRINT_BYTES,
	VCACHE_A_CURVE_READS,
	VCACHE_A_CURVE_WRITES,
	VCACHE_A_CURVE_READ_MISSES,
	VCACHE_A_CURVE_WRITE_MISSES,
	VCACHE_A_CURVE_PAD,

	/* private: */
	__VCACHE_A_CURVE_MAX,
	VCACHE_A_CURVE_MAX = (__VCACHE_A_CURVE_MAX - 1)
};

/**
 * enum vcache_a_event - attributes of the set "event"
 * @VCACHE_A_EVENT_KIND: kind
 * @VCACHE_A_EVENT_MAJOR: major
 * @VCACHE_A_EVENT_MINOR: minor
 * @VCACHE_A_EVENT_TAG: tag
 * @VCACHE_A_EVENT_PAD: aligns 64-bit values, no content
 */
enum vcache_a_event {
	VCACHE_A_EVENT_KIND = 1,
	VCACHE_A_EVENT_MAJOR,
	VCACHE_A_EVENT_MINOR,
	VCACHE_A_EVENT_TAG,
	VCACHE_A_EVENT_PAD,

	/* private: */
	__VCACHE_A_EVENT_MAX,
	VCACHE_A_EVENT_MAX = (__VCACHE_A_EVENT_MAX - 1)
};

/**
 * enum vcache_a_cached - attributes of the set "cached"
 * @VCACHE_A_CACHED_MAJOR: major number of the mapped device
 * @VCACHE_A_CACHED_MINOR: minor number of the mapped device
 * @VCACHE_A_CACHED_ID: tag number; a tag that was removed may have something
 *   there still
 * @VCACHE_A_CACHED_RUNS: runs
 * @VCACHE_A_CACHED_CACHED_BYTES: in chunks of the cache device that are its own
 * @VCACHE_A_CACHED_CACHE_DIRTY_BYTES: of these not on the origin yet
 * @VCACHE_A_CACHED_PAD: aligns 64-bit values, no content
 */
enum vcache_a_cached {
	VCACHE_A_CACHED_MAJOR = 1,
	VCACHE_A_CACHED_MINOR,
	VCACHE_A_CACHED_ID,
	VCACHE_A_CACHED_RUNS,
	VCACHE_A_CACHED_CACHED_BYTES,
	VCACHE_A_CACHED_CACHE_DIRTY_BYTES,
	VCACHE_A_CACHED_PAD,

	/* private: */
	__VCACHE_A_CACHED_MAX,
	VCACHE_A_CACHED_MAX = (__VCACHE_A_CACHED_MAX - 1)
};

/**
 * enum vcache_cmd - commands
 * @VCACHE_CMD_DEVICE_GET: Dump the devices.
 * @VCACHE_CMD_TAG_GET: Get one tag (major, minor, id), or dump the tags of a
 *   device (major, minor) or of all devices.
 * @VCACHE_CMD_TAG_SET: Make a tag or change it; what is not given stays. Volume
 *   scope has only the tag of its table line.
 * @VCACHE_CMD_TAG_DEL: Remove a tag. Its buffered data is taken over by hTag,
 *   so every flush covers it; nothing is dropped.
 * @VCACHE_CMD_TAG_EXTENTS: Replace the extents of a tag. A long list takes
 *   several messages: the first has extents-begin, the last extents-commit, a
 *   short one both; the old list is in force until the commit. Sectors may be
 *   owned by one tag only; a commit that claims another tag's sectors is
 *   refused whole.
 * @VCACHE_CMD_EVENT_NTF: Something an operator or the agent should know.
 * @VCACHE_CMD_DEVICE_SET: Tell that a device's origin is an NVMe namespace that
 *   understands tags, or with origin-nsid 0 that it is not to be used so.
 *   Refused when the origin is no NVMe namespace itself or does not take a
 *   tagged flush.
 * @VCACHE_CMD_CURVE_GET: Get the miss-ratio curve of a tag, estimated from a
 *   sample of its blocks (SHARDS). Refused with ENODATA for a tag whose device
 *   has no cache, and where there was no memory for a sample.
 * @VCACHE_CMD_CACHE_MAP_GET: Dump which blocks a tag has in the cache as a
 *   whole, in the order of the cache, so not sorted; a message may have no
 *   runs. It changes while it is read: a block may be missing, and one may be
 *   there twice.
 * @VCACHE_CMD_CACHE_PREFETCH: Bring blocks into the cache that only the origin
 *   has, in the background, behind those of earlier requests. Runs are sorted
 *   and do not overlap. A block is left out that the buffer or the cache has,
 *   and the rest of all lists where chunks or memory stay short. EBUSY: too
 *   much waits already.
 * @VCACHE_CMD_CACHE_DROP: Give up chunks of a tag, some at a time, and tell
 *   what is left. Only what the origin has as well is given up.
 */
enum vcache_cmd {
	VCACHE_CMD_DEVICE_GET = 1,
	VCACHE_CMD_TAG_GET,
	VCACHE_CMD_TAG_SET,
	VCACHE_CMD_TAG_DEL,
	VCACHE_CMD_TAG_EXTENTS,
	VCACHE_CMD_EVENT_NTF,
	VCACHE_CMD_DEVICE_SET,
	VCACHE_CMD_CURVE_GET,
	VCACHE_CMD_CACHE_MAP_GET,
	VCACHE_CMD_CACHE_PREFETCH,
	VCACHE_CMD_CACHE_DROP,

	/* private: */
	__VCACHE_CMD_MAX,
	VCACHE_CMD_MAX = (__VCACHE_CMD_MAX - 1)
};

#endif /* _UAPI_VCACHE_H */
