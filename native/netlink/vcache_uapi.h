/* SPDX-License-Identifier: ((GPL-2.0 WITH Linux-syscall-note) OR BSD-3-Clause) */
/* Do not edit, generated from native/netlink/vcache.yaml by generate.py. */
#ifndef _UAPI_VCACHE_H
#define _UAPI_VCACHE_H

#include <linux/types.h>

#define VCACHE_FAMILY_NAME	"vcache"
#define VCACHE_FAMILY_VERSION	1

#define VCACHE_MCGRP_EVENTS	"events"

/* Maximum length of a tag name in bytes. */
#define VCACHE_NAME_MAX	127

/* Largest tag number. */
#define VCACHE_TAG_MAX	65535

/* Largest weight. */
#define VCACHE_WEIGHT_MAX	1000

/* Maximum number of cgroups of a tag. */
#define VCACHE_CGROUPS_MAX	16

/*
 * Buckets of a latency histogram. Bucket b counts values of
 * [lower(b), lower(b + 1)) ns, four buckets to each power of two;
 * lower(b) = b for b < 4, else (4 + b % 4) << (b / 4 - 1).
 * The last bucket counts all larger values.
 */
#define VCACHE_HISTOGRAM_BUCKETS	128

/* Points of a miss-ratio curve. The first is for a cache of size 0. */
#define VCACHE_CURVE_POINTS	1025

/* Maximum heat of a block. */
#define VCACHE_HEAT_MAX	15

/* Maximum number of runs of one cache-prefetch or cache-saved. */
#define VCACHE_PREFETCH_RUNS_MAX	2048

/* Maximum number of 4 KiB blocks of one cache-fill. */
#define VCACHE_FILL_BLOCKS_MAX	15

/**
 * enum vcache_mode - What a device does with writes.
 * @VCACHE_MODE_FLUSH_ONLY: a tagged write buffer over the origin, no cache
 *   device
 * @VCACHE_MODE_WRITEBACK: write-outs go to the log of their tag in the cache,
 *   and to the origin later
 * @VCACHE_MODE_WRITETHROUGH: write-outs go to the origin; the cache holds
 *   copies for reads
 * @VCACHE_MODE_NONE: requests go to the origin unchanged; flushes cover the
 *   whole device
 */
enum vcache_mode {
	VCACHE_MODE_FLUSH_ONLY,
	VCACHE_MODE_WRITEBACK,
	VCACHE_MODE_WRITETHROUGH,
	VCACHE_MODE_NONE,
};

/**
 * enum vcache_scope - How the tag of a request is determined.
 * @VCACHE_SCOPE_VOLUME: one fixed tag for the whole device
 * @VCACHE_SCOPE_FILESYSTEM: by the submitter's cgroup and the image's extents
 */
enum vcache_scope {
	VCACHE_SCOPE_VOLUME,
	VCACHE_SCOPE_FILESYSTEM,
};

/**
 * enum vcache_isolation - How data is made durable, which decides whether
 *   flushes of tags are isolated.
 * @VCACHE_ISOLATION_WRITE_THROUGH: the origin has no volatile cache; a
 *   completed write is durable
 * @VCACHE_ISOLATION_FUA: each write-out carries FUA
 * @VCACHE_ISOLATION_DEGRADED: the origin has a volatile cache and no FUA;
 *   flushes cover the whole device
 * @VCACHE_ISOLATION_TAGGED: the origin supports tags; a tagged flush makes the
 *   write-outs of a tag durable
 */
enum vcache_isolation {
	VCACHE_ISOLATION_WRITE_THROUGH,
	VCACHE_ISOLATION_FUA,
	VCACHE_ISOLATION_DEGRADED,
	VCACHE_ISOLATION_TAGGED,
};

/**
 * enum vcache_event_kind - Kind of an event.
 * @VCACHE_EVENT_KIND_PRESSURE: writes of a tag waited for space in its buffer
 * @VCACHE_EVENT_KIND_ORIGIN_ERROR: a write-out to the origin failed; the data
 *   stays in the buffer
 * @VCACHE_EVENT_KIND_ORIGIN_OK: all write-outs that had failed have succeeded
 *   since
 * @VCACHE_EVENT_KIND_EXTENTS_LOST: the extents of a tag were dropped (no memory
 *   for a discard) and must be set again
 * @VCACHE_EVENT_KIND_TAGS_LOST: the origin refused a tagged command; FUA is
 *   used until the next device-set
 * @VCACHE_EVENT_KIND_CACHE_LOST: the cache device of the pool has failed
 * @VCACHE_EVENT_KIND_CACHE_ERROR: the cache device could not read data of a
 *   tag; clean data was read from the origin
 */
enum vcache_event_kind {
	VCACHE_EVENT_KIND_PRESSURE,
	VCACHE_EVENT_KIND_ORIGIN_ERROR,
	VCACHE_EVENT_KIND_ORIGIN_OK,
	VCACHE_EVENT_KIND_EXTENTS_LOST,
	VCACHE_EVENT_KIND_TAGS_LOST,
	VCACHE_EVENT_KIND_CACHE_LOST,
	VCACHE_EVENT_KIND_CACHE_ERROR,
};

/**
 * struct vcache_extent - A range of sectors, in host byte order. Extents are
 *   sorted, not empty, and do not overlap.
 * @start: first sector (512 bytes) on the mapped device
 * @len: number of sectors, at least 1
 */
struct vcache_extent {
	__u64 start;
	__u64 len;
};

/**
 * struct vcache_cached_run - A range of blocks in the cache, in host byte
 *   order.
 * @start: first sector (512 bytes) on the mapped device, the first of a 4 KiB
 *   block
 * @len: number of sectors, in whole blocks, at least one block
 * @heat: number of recent reads of the blocks, up to heat-max
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
 * @VCACHE_A_DEVICE_DIRTY_BYTES: completed writes that are not yet durable
 * @VCACHE_A_DEVICE_TAGS: number of tags
 * @VCACHE_A_DEVICE_SUSPENDED: the device is suspended
 * @VCACHE_A_DEVICE_BROKEN: write-outs to the origin fail
 * @VCACHE_A_DEVICE_POOL: major:minor of the pool's mapped device, if the device
 *   has a cache
 * @VCACHE_A_DEVICE_VOLUME: number of the origin in the pool
 * @VCACHE_A_DEVICE_CACHE_DIRTY_BYTES: data in the cache that is not on the
 *   origin yet
 * @VCACHE_A_DEVICE_CACHE_BROKEN: the cache device or the origin fails
 * @VCACHE_A_DEVICE_ORIGIN_NSID: NVMe namespace ID of the origin; 0: send no
 *   tagged commands
 * @VCACHE_A_DEVICE_ORIGIN_TAG_MAX: largest tag that the origin supports, from
 *   its log page C0h
 * @VCACHE_A_DEVICE_ORIGIN_INSTANCE: power-on identifier from the origin's log
 *   page C0h, not 0
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
 * @VCACHE_A_TAG_NAME: descriptive text
 * @VCACHE_A_TAG_WEIGHT: weight for the division of buffer memory and cache
 * @VCACHE_A_TAG_CGROUP: cgroup v2 id (inode number of its directory); the given
 *   ids replace the tag's list; a single 0 empties it
 * @VCACHE_A_TAG_EXTENTS: extents of the tag, see tag-extents
 * @VCACHE_A_TAG_EXTENTS_BEGIN: first message of a new extent list
 * @VCACHE_A_TAG_EXTENTS_COMMIT: last message of a new extent list
 * @VCACHE_A_TAG_EXTENTS_COUNT: number of active extents
 * @VCACHE_A_TAG_EXTENTS_SECTORS: number of sectors in active extents
 * @VCACHE_A_TAG_LIMIT_BYTES: current maximum of buffered bytes
 * @VCACHE_A_TAG_DIRTY_BYTES: completed writes that are not yet durable
 * @VCACHE_A_TAG_INFLIGHT_BYTES: part of dirty-bytes that is being written out
 * @VCACHE_A_TAG_STATS: stats
 * @VCACHE_A_TAG_BROKEN: write-outs of this tag fail
 * @VCACHE_A_TAG_MODE: mode of the tag: writeback, writethrough or flush-only on
 *   a device in mode writeback, otherwise the mode of the device
 * @VCACHE_A_TAG_CACHED_BYTES: size of the tag's chunks on the cache device
 * @VCACHE_A_TAG_CACHE_DIRTY_BYTES: part of cached-bytes that is not on the
 *   origin yet
 * @VCACHE_A_TAG_CACHE_MIN_BYTES: minimum share of the cache, in whole chunks;
 *   reduced in proportion if the minima of all tags do not fit
 * @VCACHE_A_TAG_CACHE_MAX_BYTES: maximum size in the cache, in whole chunks, at
 *   least two; 0: no limit
 * @VCACHE_A_TAG_CACHE_SHARE_BYTES: current fair share
 * @VCACHE_A_TAG_PREFETCH_WAITING_BYTES: data of cache-prefetch requests that is
 *   still to be processed
 * @VCACHE_A_TAG_PREFETCHED_BYTES: data that cache-prefetch has read into the
 *   cache
 * @VCACHE_A_TAG_CACHE_LANES: bit mask of the lanes that are dedicated to the
 *   tag; 0: none
 * @VCACHE_A_TAG_CACHE_OWN_BYTES: part of cached-bytes in dedicated lanes
 * @VCACHE_A_TAG_CACHE_HOT_BYTES: hot data in shared lanes
 * @VCACHE_A_TAG_EXTENTS_REMOVE: extents to remove, see tag-extents-change
 * @VCACHE_A_TAG_DIRTY_AGE_MS: how long the oldest data that waits in the buffer
 *   has waited; only if there is any
 * @VCACHE_A_TAG_CACHE_DIRTY_AGE_MS: about how long ago the oldest chunk of the
 *   tag that is not on the origin was begun, or found after a restart; only if
 *   there is any
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
	VCACHE_A_TAG_EXTENTS_REMOVE,
	VCACHE_A_TAG_DIRTY_AGE_MS,
	VCACHE_A_TAG_CACHE_DIRTY_AGE_MS,
	VCACHE_A_TAG_PAD,

	/* private: */
	__VCACHE_A_TAG_MAX,
	VCACHE_A_TAG_MAX = (__VCACHE_A_TAG_MAX - 1)
};

/**
 * enum vcache_a_stats - attributes of the set "stats"
 * @VCACHE_A_STATS_READS: read requests
 * @VCACHE_A_STATS_READ_BYTES: read bytes
 * @VCACHE_A_STATS_READ_HIT_BYTES: part of read-bytes that was served from the
 *   buffer
 * @VCACHE_A_STATS_WRITES: write requests
 * @VCACHE_A_STATS_WRITE_BYTES: write bytes
 * @VCACHE_A_STATS_ABSORBED_BYTES: data overwritten in the buffer before it was
 *   written out
 * @VCACHE_A_STATS_FUA_WRITES: writes with FUA
 * @VCACHE_A_STATS_WRITEOUTS: requests sent to the origin
 * @VCACHE_A_STATS_WRITEOUT_BYTES: writeout bytes
 * @VCACHE_A_STATS_WRITEOUT_ERRORS: writeout errors
 * @VCACHE_A_STATS_FLUSHES: flushes attributed to this tag
 * @VCACHE_A_STATS_FLUSH_NS: total latency of the flushes
 * @VCACHE_A_STATS_FLUSH_HIST: latency histogram of the flushes, histogram-
 *   buckets times u64, host byte order
 * @VCACHE_A_STATS_WAITS: writes that waited for buffer space
 * @VCACHE_A_STATS_WAIT_NS: total waiting time of these writes
 * @VCACHE_A_STATS_DISCARDS: discard requests
 * @VCACHE_A_STATS_DEVICE_FLUSHES: FLUSH commands sent to the origin for this
 *   tag (isolation=degraded)
 * @VCACHE_A_STATS_TAGGED_FLUSHES: tagged flushes sent to the origin
 * @VCACHE_A_STATS_CACHE_HIT_BYTES: read data served from the cache device
 * @VCACHE_A_STATS_MIGRATED_BLOCKS: 4 KiB blocks copied between dedicated and
 *   shared lanes
 * @VCACHE_A_STATS_READ_NS: total latency of all reads
 * @VCACHE_A_STATS_READ_HIST: latency histogram of the reads, histogram-buckets
 *   times u64, host byte order
 * @VCACHE_A_STATS_WRITE_NS: total latency of all writes, including the time
 *   that they waited for buffer space
 * @VCACHE_A_STATS_WRITE_HIST: latency histogram of the writes, histogram-
 *   buckets times u64, host byte order
 * @VCACHE_A_STATS_ORIGIN_READS: reads that the origin has served
 * @VCACHE_A_STATS_ORIGIN_READ_NS: total latency of these reads
 * @VCACHE_A_STATS_FLUSH_SPACE_NS: part of flush-ns in which the flushes waited
 *   for space in the log of the tag, or for the pace of its writer
 * @VCACHE_A_STATS_FLUSH_CACHE_NS: part of flush-ns in which they waited for
 *   writes to the cache device
 * @VCACHE_A_STATS_FLUSH_ORIGIN_NS: part of flush-ns in which they waited for
 *   writes to the origin
 * @VCACHE_A_STATS_FLUSH_OTHERS_NS: part of flush-ns in which they waited for
 *   data of other tags that they cover, such as that of the host tag
 * @VCACHE_A_STATS_FLUSH_DEVICE_NS: part of flush-ns in which they waited for a
 *   FLUSH command (isolation=degraded)
 * @VCACHE_A_STATS_SSD_DATA_BYTES: data of writes written to the cache device;
 *   this and the following counters count from the load of the volume
 * @VCACHE_A_STATS_SSD_RECORD_BYTES: heads of records and seals written to the
 *   cache device
 * @VCACHE_A_STATS_SSD_RELOCATED_BYTES: data copied within the cache device
 * @VCACHE_A_STATS_SSD_PROMOTED_BYTES: data from the origin written to the cache
 *   device
 * @VCACHE_A_STATS_EVICTED_BYTES: valid data that was lost because its chunk was
 *   reclaimed
 * @VCACHE_A_STATS_EVICTED_OWN_BYTES: part of evicted-bytes whose space the tag
 *   itself has taken again
 * @VCACHE_A_STATS_EVICTED_LIMIT_BYTES: part of evicted-bytes that a limit of
 *   the tag itself has cost: its maximum, its lanes, or a command
 * @VCACHE_A_STATS_GAINED_BYTES: data of other tags that was lost for space
 *   which this tag has taken
 * @VCACHE_A_STATS_REFUSED_STREAM_BYTES: data read from the origin that was not
 *   cached, because the read was long and sequential
 * @VCACHE_A_STATS_REFUSED_LEVEL_BYTES: the same, because it was not missed
 *   often enough
 * @VCACHE_A_STATS_REFUSED_SPACE_BYTES: the same, because there was no chunk, no
 *   memory, or too much under way
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
	VCACHE_A_STATS_WRITE_NS,
	VCACHE_A_STATS_WRITE_HIST,
	VCACHE_A_STATS_ORIGIN_READS,
	VCACHE_A_STATS_ORIGIN_READ_NS,
	VCACHE_A_STATS_FLUSH_SPACE_NS,
	VCACHE_A_STATS_FLUSH_CACHE_NS,
	VCACHE_A_STATS_FLUSH_ORIGIN_NS,
	VCACHE_A_STATS_FLUSH_OTHERS_NS,
	VCACHE_A_STATS_FLUSH_DEVICE_NS,
	VCACHE_A_STATS_SSD_DATA_BYTES,
	VCACHE_A_STATS_SSD_RECORD_BYTES,
	VCACHE_A_STATS_SSD_RELOCATED_BYTES,
	VCACHE_A_STATS_SSD_PROMOTED_BYTES,
	VCACHE_A_STATS_EVICTED_BYTES,
	VCACHE_A_STATS_EVICTED_OWN_BYTES,
	VCACHE_A_STATS_EVICTED_LIMIT_BYTES,
	VCACHE_A_STATS_GAINED_BYTES,
	VCACHE_A_STATS_REFUSED_STREAM_BYTES,
	VCACHE_A_STATS_REFUSED_LEVEL_BYTES,
	VCACHE_A_STATS_REFUSED_SPACE_BYTES,
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
 * @VCACHE_A_CURVE_GRAIN_BYTES: difference in cache size between two points;
 *   doubles as the footprint grows
 * @VCACHE_A_CURVE_FOOTPRINT_BYTES: approximate size of all data that was
 *   accessed
 * @VCACHE_A_CURVE_READS: number of 4 KiB blocks read
 * @VCACHE_A_CURVE_WRITES: number of 4 KiB blocks written
 * @VCACHE_A_CURVE_READ_MISSES: reads that an LRU cache of each size would have
 *   missed: curve-points times u64, host byte order
 * @VCACHE_A_CURVE_WRITE_MISSES: as read-misses
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
 * @VCACHE_A_CACHED_ID: tag number; a removed tag may still have data in the
 *   cache
 * @VCACHE_A_CACHED_RUNS: runs
 * @VCACHE_A_CACHED_CACHED_BYTES: size of the tag's chunks on the cache device
 * @VCACHE_A_CACHED_CACHE_DIRTY_BYTES: part of cached-bytes that is not on the
 *   origin yet
 * @VCACHE_A_CACHED_TOKEN: session of saved blocks, see cache-saved; 0: there is
 *   none
 * @VCACHE_A_CACHED_SAVED_BEGIN: begin a new session
 * @VCACHE_A_CACHED_START: first sector of the blocks of a cache-fill, the first
 *   of a 4 KiB block
 * @VCACHE_A_CACHED_HEAT: number of recent reads of these blocks, up to heat-max
 * @VCACHE_A_CACHED_DATA: data of 1 to fill-blocks-max blocks
 * @VCACHE_A_CACHED_PAD: aligns 64-bit values, no content
 */
enum vcache_a_cached {
	VCACHE_A_CACHED_MAJOR = 1,
	VCACHE_A_CACHED_MINOR,
	VCACHE_A_CACHED_ID,
	VCACHE_A_CACHED_RUNS,
	VCACHE_A_CACHED_CACHED_BYTES,
	VCACHE_A_CACHED_CACHE_DIRTY_BYTES,
	VCACHE_A_CACHED_TOKEN,
	VCACHE_A_CACHED_SAVED_BEGIN,
	VCACHE_A_CACHED_START,
	VCACHE_A_CACHED_HEAT,
	VCACHE_A_CACHED_DATA,
	VCACHE_A_CACHED_PAD,

	/* private: */
	__VCACHE_A_CACHED_MAX,
	VCACHE_A_CACHED_MAX = (__VCACHE_A_CACHED_MAX - 1)
};

/**
 * enum vcache_a_lane - attributes of the set "lane"
 * @VCACHE_A_LANE_MAJOR: major number of the pool's mapped device
 * @VCACHE_A_LANE_MINOR: minor number of the pool's mapped device
 * @VCACHE_A_LANE_LANE: number of the lane, from 0
 * @VCACHE_A_LANE_FREE_BYTES: size of its free chunks
 * @VCACHE_A_LANE_VOLUME: volume of the tag that it is dedicated to; missing if
 *   it is shared
 * @VCACHE_A_LANE_TAG: that tag; missing if it is shared
 * @VCACHE_A_LANE_READS: requests that have read from it
 * @VCACHE_A_LANE_READ_NS: total latency of these requests
 * @VCACHE_A_LANE_WRITES: requests that have written to it
 * @VCACHE_A_LANE_WRITE_NS: total latency of these requests
 * @VCACHE_A_LANE_BUSY_NS: estimate of the time in which any request was under
 *   way, in whole ticks of the kernel
 * @VCACHE_A_LANE_PAD: aligns 64-bit values, no content
 */
enum vcache_a_lane {
	VCACHE_A_LANE_MAJOR = 1,
	VCACHE_A_LANE_MINOR,
	VCACHE_A_LANE_LANE,
	VCACHE_A_LANE_FREE_BYTES,
	VCACHE_A_LANE_VOLUME,
	VCACHE_A_LANE_TAG,
	VCACHE_A_LANE_READS,
	VCACHE_A_LANE_READ_NS,
	VCACHE_A_LANE_WRITES,
	VCACHE_A_LANE_WRITE_NS,
	VCACHE_A_LANE_BUSY_NS,
	VCACHE_A_LANE_PAD,

	/* private: */
	__VCACHE_A_LANE_MAX,
	VCACHE_A_LANE_MAX = (__VCACHE_A_LANE_MAX - 1)
};

/**
 * enum vcache_cmd - commands
 * @VCACHE_CMD_DEVICE_GET: Dump the devices.
 * @VCACHE_CMD_TAG_GET: Get one tag (major, minor, id), or dump the tags of a
 *   device (major, minor) or of all devices.
 * @VCACHE_CMD_TAG_SET: Create or change a tag. Attributes that are not given do
 *   not change. A device in volume scope has only the tag of its table.
 * @VCACHE_CMD_TAG_DEL: Remove a tag. The host tag takes over its buffered data,
 *   so every flush covers it. No data is dropped.
 * @VCACHE_CMD_TAG_EXTENTS: Replace the extents of a tag. A long list takes
 *   several messages: the first has extents-begin, the last extents-commit. A
 *   list of one message has both. The old list is active until the commit. A
 *   sector can belong to one tag only. A commit with sectors of another tag is
 *   refused as a whole (EEXIST), and so is one after which the tag has more
 *   extents than the module parameter extents_max allows (E2BIG).
 * @VCACHE_CMD_EVENT_NTF: Notification for the agent or an operator.
 * @VCACHE_CMD_DEVICE_SET: Enable tagged commands on a device whose origin is an
 *   NVMe namespace that supports tags. With origin-nsid 0, disable them. The
 *   request is refused if the origin is not itself an NVMe namespace, or if it
 *   does not accept a tagged flush.
 * @VCACHE_CMD_CURVE_GET: Get the miss-ratio curve of a tag, estimated from a
 *   sample of its blocks (SHARDS), or dump those of a device (major, minor) or
 *   of all devices. The error for one tag is ENODATA if the device has no
 *   cache, or if there was no memory for a sample; a dump leaves such tags out.
 * @VCACHE_CMD_CACHE_MAP_GET: Dump the complete blocks that a tag has in the
 *   cache. They are in the order of the cache and not sorted. A message may
 *   have no runs. The cache may change during the dump: a block may be missing
 *   or occur twice.
 * @VCACHE_CMD_CACHE_PREFETCH: Read blocks from the origin into the cache, in
 *   the background, after those of earlier requests. Runs are sorted and do not
 *   overlap. Blocks in the buffer or the cache are skipped. If chunks or memory
 *   stay short, the rest of all lists is dropped. The error is EBUSY if too
 *   many runs are waiting.
 * @VCACHE_CMD_CACHE_DROP: Reclaim some clean chunks of a tag, and return the
 *   size of the remaining data. Dirty data is not reclaimed.
 * @VCACHE_CMD_TAG_EXTENTS_CHANGE: Change the extents of a tag: remove the
 *   sectors of extents-remove from it, then add those of extents. The change
 *   takes effect as a whole, at the commit. Both lists can take several
 *   messages, as in tag-extents. Sectors to be removed that the tag does not
 *   have are ignored, and so are sectors to be added that it has. The commit is
 *   refused as a whole for the same reasons as in tag-extents. The message with
 *   the commit has a reply, with the extents that the tag has then. A kernel
 *   that does not know the command refuses it (EOPNOTSUPP); use tag-extents
 *   then.
 * @VCACHE_CMD_CACHE_SAVED: Add blocks to the saved blocks of a tag: blocks
 *   whose content user space is about to read and save, so that cache-fill can
 *   return it to the cache later. A block that is written leaves them, whoever
 *   writes it; blocks in the buffer are left out, so flush the device first.
 *   With saved-begin, a new session begins with the given runs, and the
 *   previous one ends; without runs, there is no session then. The reply has
 *   the token of the session. Without runs and saved-begin, the request only
 *   asks for the token. A session ends when the device is removed or gets
 *   another origin.
 * @VCACHE_CMD_CACHE_FILL: Put saved data of blocks into the cache, as clean
 *   blocks. Blocks that were written since they were added to the session, and
 *   blocks in the buffer or the cache, are skipped. The error is ESTALE if the
 *   session has ended, EBUSY if too many blocks are on their way to the cache,
 *   and ENOSPC if there is no chunk or memory for them now.
 * @VCACHE_CMD_LANE_GET: Dump the lanes of all pools.
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
	VCACHE_CMD_TAG_EXTENTS_CHANGE,
	VCACHE_CMD_CACHE_SAVED,
	VCACHE_CMD_CACHE_FILL,
	VCACHE_CMD_LANE_GET,

	/* private: */
	__VCACHE_CMD_MAX,
	VCACHE_CMD_MAX = (__VCACHE_CMD_MAX - 1)
};

#endif /* _UAPI_VCACHE_H */
