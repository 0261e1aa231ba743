# SPDX-License-Identifier: Apache-2.0
# Do not edit, generated from native/netlink/vcache.yaml by generate.py.
"""Names and numbers of the generic-netlink family "vcache"."""

import enum
import struct
from typing import NamedTuple

FAMILY_NAME = 'vcache'
FAMILY_VERSION = 1

#: Multicast group.
MCGRP_EVENTS = 'events'
#: Maximum length of a tag name in bytes.
NAME_MAX = 127
#: Largest tag number.
TAG_MAX = 65535
#: Largest weight.
WEIGHT_MAX = 1000
#: Maximum number of cgroups of a tag.
CGROUPS_MAX = 16
#: Buckets of a latency histogram. Bucket b counts values of
#: [lower(b), lower(b + 1)) ns, four buckets to each power of two;
#: lower(b) = b for b < 4, else (4 + b % 4) << (b / 4 - 1).
#: The last bucket counts all larger values.
HISTOGRAM_BUCKETS = 128
#: Points of a miss-ratio curve. The first is for a cache of size 0.
CURVE_POINTS = 1025
#: Maximum heat of a block.
HEAT_MAX = 15
#: Maximum number of runs of one cache-prefetch or cache-saved.
PREFETCH_RUNS_MAX = 2048
#: Maximum number of 4 KiB blocks of one cache-fill.
FILL_BLOCKS_MAX = 15


class Command(enum.IntEnum):
    """Commands of the family."""

    #: Dump the devices.
    DEVICE_GET = 1
    #: Get one tag (major, minor, id), or dump the tags of a device (major,
    #: minor) or of all devices.
    TAG_GET = 2
    #: Create or change a tag. Attributes that are not given do not change. A
    #: device in volume scope has only the tag of its table.
    TAG_SET = 3
    #: Remove a tag. The host tag takes over its buffered data, so every flush
    #: covers it. No data is dropped.
    TAG_DEL = 4
    #: Replace the extents of a tag. A long list takes several messages: the
    #: first has extents-begin, the last extents-commit. A list of one message
    #: has both. The old list is active until the commit. A sector can belong
    #: to one tag only. A commit with sectors of another tag is refused as a
    #: whole (EEXIST), and so is one after which the tag has more extents than
    #: the module parameter extents_max allows (E2BIG).
    TAG_EXTENTS = 5
    #: Notification for the agent or an operator.
    EVENT_NTF = 6
    #: Enable tagged commands on a device whose origin is an NVMe namespace
    #: that supports tags. With origin-nsid 0, disable them. The request is
    #: refused if the origin is not itself an NVMe namespace, or if it does not
    #: accept a tagged flush.
    DEVICE_SET = 7
    #: Get the miss-ratio curve of a tag, estimated from a sample of its blocks
    #: (SHARDS), or dump those of a device (major, minor) or of all devices.
    #: The error for one tag is ENODATA if the device has no cache, or if there
    #: was no memory for a sample; a dump leaves such tags out.
    CURVE_GET = 8
    #: Dump the complete blocks that a tag has in the cache. They are in the
    #: order of the cache and not sorted. A message may have no runs. The cache
    #: may change during the dump: a block may be missing or occur twice.
    CACHE_MAP_GET = 9
    #: Read blocks from the origin into the cache, in the background, after
    #: those of earlier requests. Runs are sorted and do not overlap. Blocks in
    #: the buffer or the cache are skipped. If chunks or memory stay short, the
    #: rest of all lists is dropped. The error is EBUSY if too many runs are
    #: waiting.
    CACHE_PREFETCH = 10
    #: Reclaim some clean chunks of a tag, and return the size of the remaining
    #: data. Dirty data is not reclaimed.
    CACHE_DROP = 11
    #: Change the extents of a tag: remove the sectors of extents-remove from
    #: it, then add those of extents. The change takes effect as a whole, at
    #: the commit. Both lists can take several messages, as in tag-extents.
    #: Sectors to be removed that the tag does not have are ignored, and so are
    #: sectors to be added that it has. The commit is refused as a whole for
    #: the same reasons as in tag-extents. The message with the commit has a
    #: reply, with the extents that the tag has then. A kernel that does not
    #: know the command refuses it (EOPNOTSUPP); use tag-extents then.
    TAG_EXTENTS_CHANGE = 12
    #: Add blocks to the saved blocks of a tag: blocks whose content user space
    #: is about to read and save, so that cache-fill can return it to the cache
    #: later. A block that is written leaves them, whoever writes it; blocks in
    #: the buffer are left out, so flush the device first. With saved-begin, a
    #: new session begins with the given runs, and the previous one ends;
    #: without runs, there is no session then. The reply has the token of the
    #: session. Without runs and saved-begin, the request only asks for the
    #: token. A session ends when the device is removed or gets another origin.
    CACHE_SAVED = 13
    #: Put saved data of blocks into the cache, as clean blocks. Blocks that
    #: were written since they were added to the session, and blocks in the
    #: buffer or the cache, are skipped. The error is ESTALE if the session has
    #: ended, EBUSY if too many blocks are on their way to the cache, and
    #: ENOSPC if there is no chunk or memory for them now.
    CACHE_FILL = 14
    #: Dump the lanes of all pools.
    LANE_GET = 15


class Mode(enum.IntEnum):
    """What a device does with writes."""

    #: a tagged write buffer over the origin, no cache device
    FLUSH_ONLY = 0
    #: write-outs go to the log of their tag in the cache, and to the origin
    #: later
    WRITEBACK = 1
    #: write-outs go to the origin; the cache holds copies for reads
    WRITETHROUGH = 2
    #: requests go to the origin unchanged; flushes cover the whole device
    NONE = 3


class Scope(enum.IntEnum):
    """How the tag of a request is determined."""

    #: one fixed tag for the whole device
    VOLUME = 0
    #: by the submitter's cgroup and the image's extents
    FILESYSTEM = 1


class Isolation(enum.IntEnum):
    """How data is made durable, which decides whether flushes of tags are isolated."""

    #: the origin has no volatile cache; a completed write is durable
    WRITE_THROUGH = 0
    #: each write-out carries FUA
    FUA = 1
    #: the origin has a volatile cache and no FUA; flushes cover the whole
    #: device
    DEGRADED = 2
    #: the origin supports tags; a tagged flush makes the write-outs of a tag
    #: durable
    TAGGED = 3


class EventKind(enum.IntEnum):
    """Kind of an event."""

    #: writes of a tag waited for space in its buffer
    PRESSURE = 0
    #: a write-out to the origin failed; the data stays in the buffer
    ORIGIN_ERROR = 1
    #: all write-outs that had failed have succeeded since
    ORIGIN_OK = 2
    #: the extents of a tag were dropped (no memory for a discard) and must be
    #: set again
    EXTENTS_LOST = 3
    #: the origin refused a tagged command; FUA is used until the next device-
    #: set
    TAGS_LOST = 4
    #: the cache device of the pool has failed
    CACHE_LOST = 5
    #: the cache device could not read data of a tag; clean data was read from
    #: the origin
    CACHE_ERROR = 6


class Extent(NamedTuple):
    """A range of sectors, in host byte order.

    Extents are sorted, not empty, and do not overlap.
    """

    #: first sector (512 bytes) on the mapped device
    start: int
    #: number of sectors, at least 1
    len: int


#: Layout of one Extent in its binary attribute.
EXTENT_LAYOUT = struct.Struct('=QQ')


class CachedRun(NamedTuple):
    """A range of blocks in the cache, in host byte order."""

    #: first sector (512 bytes) on the mapped device, the first of a 4 KiB
    #: block
    start: int
    #: number of sectors, in whole blocks, at least one block
    len: int
    #: number of recent reads of the blocks, up to heat-max
    heat: int


#: Layout of one CachedRun in its binary attribute.
CACHED_RUN_LAYOUT = struct.Struct('=QII')
