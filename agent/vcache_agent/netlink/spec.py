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
#: Longest tag name in bytes.
NAME_MAX = 127
#: Largest tag number.
TAG_MAX = 65535
#: Largest weight.
WEIGHT_MAX = 1000
#: Most cgroups of one tag.
CGROUPS_MAX = 16
#: Buckets of a latency histogram. Bucket b counts values of
#: [lower(b), lower(b + 1)) ns, four buckets to each power of two;
#: lower(b) = b for b < 4, else (4 + b % 4) << (b / 4 - 1).
#: The last bucket takes everything above.
HISTOGRAM_BUCKETS = 128
#: Points of a miss curve, the first for no cache at all.
CURVE_POINTS = 1025
#: A block that was read so often is as hot as can be.
HEAT_MAX = 15
#: Most runs of one cache-prefetch.
PREFETCH_RUNS_MAX = 2048


class Command(enum.IntEnum):
    """Commands of the family."""

    #: Dump the devices.
    DEVICE_GET = 1
    #: Get one tag (major, minor, id), or dump the tags of a device (major,
    #: minor) or of all devices.
    TAG_GET = 2
    #: Make a tag or change it; what is not given stays. Volume scope has only
    #: the tag of its table line.
    TAG_SET = 3
    #: Remove a tag. Its buffered data is taken over by hTag, so every flush
    #: covers it; nothing is dropped.
    TAG_DEL = 4
    #: Replace the extents of a tag. A long list takes several messages: the
    #: first has extents-begin, the last extents-commit, a short one both; the
    #: old list is in force until the commit. Sectors may be owned by one tag
    #: only; a commit that claims another tag's sectors is refused whole.
    TAG_EXTENTS = 5
    #: Something an operator or the agent should know.
    EVENT_NTF = 6
    #: Tell that a device's origin is an NVMe namespace that understands tags,
    #: or with origin-nsid 0 that it is not to be used so. Refused when the
    #: origin is no NVMe namespace itself or does not take a tagged flush.
    DEVICE_SET = 7
    #: Get the miss-ratio curve of a tag, estimated from a sample of its blocks
    #: (SHARDS). Refused with ENODATA for a tag whose device has no cache, and
    #: where there was no memory for a sample.
    CURVE_GET = 8
    #: Dump which blocks a tag has in the cache as a whole, in the order of the
    #: cache, so not sorted; a message may have no runs. It changes while it is
    #: read: a block may be missing, and one may be there twice.
    CACHE_MAP_GET = 9
    #: Bring blocks into the cache that only the origin has, in the background,
    #: behind those of earlier requests. Runs are sorted and do not overlap. A
    #: block is left out that the buffer or the cache has, and the rest of all
    #: lists where chunks or memory stay short. EBUSY: too much waits already.
    CACHE_PREFETCH = 10
    #: Give up chunks of a tag, some at a time, and tell what is left. Only
    #: what the origin has as well is given up.
    CACHE_DROP = 11


class Mode(enum.IntEnum):
    """What a device does with writes."""

    #: a tagged write buffer over the origin, no cache device
    FLUSH_ONLY = 0
    #: write-outs go to the log of their tag in a cache, and to the origin
    #: later
    WRITEBACK = 1
    #: write-outs go to the origin, the cache has copies
    WRITETHROUGH = 2
    #: requests go to the origin as they are, flushes are device-wide
    NONE = 3


class Scope(enum.IntEnum):
    """How a request gets its tag."""

    #: one fixed tag for the whole device
    VOLUME = 0
    #: by the submitter's cgroup and the image's extents
    FILESYSTEM = 1


class Isolation(enum.IntEnum):
    """How data is made durable, and so whether tags are isolated."""

    #: the origin has no volatile cache, a completed write is durable
    WRITE_THROUGH = 0
    #: each write-out carries FUA
    FUA = 1
    #: the origin has a volatile cache and no FUA, flushes are device-wide
    DEGRADED = 2
    #: the origin understands tags, a tagged flush makes a tag's write-outs
    #: durable
    TAGGED = 3


class EventKind(enum.IntEnum):
    """What happened."""

    #: writers of a tag had to wait for room in its buffer
    PRESSURE = 0
    #: a write-out to the origin failed, the data stays buffered
    ORIGIN_ERROR = 1
    #: write-outs that had failed have all succeeded since
    ORIGIN_OK = 2
    #: a tag's extents were dropped (no memory for a discard), set again
    EXTENTS_LOST = 3
    #: the origin refused a tagged command, FUA is used until device-set tells
    #: its tags again
    TAGS_LOST = 4
    #: the cache device of the pool has failed
    CACHE_LOST = 5


class Extent(NamedTuple):
    """A run of sectors.

    Host byte order; sorted, not empty, not overlapping.
    """

    #: first sector (512 bytes) on the mapped device
    start: int
    #: number of sectors, at least 1
    len: int


#: Layout of one Extent in its binary attribute.
EXTENT_LAYOUT = struct.Struct('=QQ')


class CachedRun(NamedTuple):
    """A run of blocks in the cache.

    Host byte order.
    """

    #: first sector (512 bytes) on the mapped device, of a block of 4 KiB
    start: int
    #: number of sectors, whole blocks, at least one
    len: int
    #: how often its blocks were read of late, up to heat-max
    heat: int


#: Layout of one CachedRun in its binary attribute.
CACHED_RUN_LAYOUT = struct.Struct('=QII')
