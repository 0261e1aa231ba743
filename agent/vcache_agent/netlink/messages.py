# SPDX-License-Identifier: Apache-2.0
# Do not edit, generated from native/netlink/vcache.yaml by generate.py.
"""Messages of the generic-netlink family "vcache".

Importing these takes longer than most commands. spec.py does not need them.
"""

from vcache_agent.netlink.pyroute2_base import genlmsg, nla
from vcache_agent.netlink.spec import Command


class Stats(nla):
    """Attributes of the set "stats"."""

    prefix = 'VCACHE_A_STATS_'
    nla_map = (
        ('VCACHE_A_STATS_UNSPEC', 'none'),
        ('VCACHE_A_STATS_READS', 'uint64'),
        ('VCACHE_A_STATS_READ_BYTES', 'uint64'),
        ('VCACHE_A_STATS_READ_HIT_BYTES', 'uint64'),
        ('VCACHE_A_STATS_WRITES', 'uint64'),
        ('VCACHE_A_STATS_WRITE_BYTES', 'uint64'),
        ('VCACHE_A_STATS_ABSORBED_BYTES', 'uint64'),
        ('VCACHE_A_STATS_FUA_WRITES', 'uint64'),
        ('VCACHE_A_STATS_WRITEOUTS', 'uint64'),
        ('VCACHE_A_STATS_WRITEOUT_BYTES', 'uint64'),
        ('VCACHE_A_STATS_WRITEOUT_ERRORS', 'uint64'),
        ('VCACHE_A_STATS_FLUSHES', 'uint64'),
        ('VCACHE_A_STATS_FLUSH_NS', 'uint64'),
        ('VCACHE_A_STATS_FLUSH_HIST', 'cdata'),
        ('VCACHE_A_STATS_WAITS', 'uint64'),
        ('VCACHE_A_STATS_WAIT_NS', 'uint64'),
        ('VCACHE_A_STATS_DISCARDS', 'uint64'),
        ('VCACHE_A_STATS_DEVICE_FLUSHES', 'uint64'),
        ('VCACHE_A_STATS_TAGGED_FLUSHES', 'uint64'),
        ('VCACHE_A_STATS_CACHE_HIT_BYTES', 'uint64'),
        ('VCACHE_A_STATS_MIGRATED_BLOCKS', 'uint64'),
        ('VCACHE_A_STATS_READ_NS', 'uint64'),
        ('VCACHE_A_STATS_READ_HIST', 'cdata'),
        ('VCACHE_A_STATS_WRITE_NS', 'uint64'),
        ('VCACHE_A_STATS_WRITE_HIST', 'cdata'),
        ('VCACHE_A_STATS_ORIGIN_READS', 'uint64'),
        ('VCACHE_A_STATS_ORIGIN_READ_NS', 'uint64'),
        ('VCACHE_A_STATS_FLUSH_SPACE_NS', 'uint64'),
        ('VCACHE_A_STATS_FLUSH_CACHE_NS', 'uint64'),
        ('VCACHE_A_STATS_FLUSH_ORIGIN_NS', 'uint64'),
        ('VCACHE_A_STATS_FLUSH_OTHERS_NS', 'uint64'),
        ('VCACHE_A_STATS_FLUSH_DEVICE_NS', 'uint64'),
        ('VCACHE_A_STATS_SSD_DATA_BYTES', 'uint64'),
        ('VCACHE_A_STATS_SSD_RECORD_BYTES', 'uint64'),
        ('VCACHE_A_STATS_SSD_RELOCATED_BYTES', 'uint64'),
        ('VCACHE_A_STATS_SSD_PROMOTED_BYTES', 'uint64'),
        ('VCACHE_A_STATS_EVICTED_BYTES', 'uint64'),
        ('VCACHE_A_STATS_EVICTED_OWN_BYTES', 'uint64'),
        ('VCACHE_A_STATS_EVICTED_LIMIT_BYTES', 'uint64'),
        ('VCACHE_A_STATS_GAINED_BYTES', 'uint64'),
        ('VCACHE_A_STATS_REFUSED_STREAM_BYTES', 'uint64'),
        ('VCACHE_A_STATS_REFUSED_LEVEL_BYTES', 'uint64'),
        ('VCACHE_A_STATS_REFUSED_SPACE_BYTES', 'uint64'),
        ('VCACHE_A_STATS_PAD', 'none'),
    )


class DeviceMessage(genlmsg):
    """Attributes of the set "device"."""

    prefix = 'VCACHE_A_DEVICE_'
    nla_map = (
        ('VCACHE_A_DEVICE_UNSPEC', 'none'),
        ('VCACHE_A_DEVICE_MAJOR', 'uint32'),
        ('VCACHE_A_DEVICE_MINOR', 'uint32'),
        ('VCACHE_A_DEVICE_NAME', 'asciiz'),
        ('VCACHE_A_DEVICE_MODE', 'uint32'),
        ('VCACHE_A_DEVICE_SCOPE', 'uint32'),
        ('VCACHE_A_DEVICE_ISOLATION', 'uint32'),
        ('VCACHE_A_DEVICE_SECTORS', 'uint64'),
        ('VCACHE_A_DEVICE_ORIGIN', 'asciiz'),
        ('VCACHE_A_DEVICE_DIRTY_BYTES', 'uint64'),
        ('VCACHE_A_DEVICE_TAGS', 'uint32'),
        ('VCACHE_A_DEVICE_SUSPENDED', 'flag'),
        ('VCACHE_A_DEVICE_BROKEN', 'flag'),
        ('VCACHE_A_DEVICE_POOL', 'asciiz'),
        ('VCACHE_A_DEVICE_VOLUME', 'uint32'),
        ('VCACHE_A_DEVICE_CACHE_DIRTY_BYTES', 'uint64'),
        ('VCACHE_A_DEVICE_CACHE_BROKEN', 'flag'),
        ('VCACHE_A_DEVICE_ORIGIN_NSID', 'uint32'),
        ('VCACHE_A_DEVICE_ORIGIN_TAG_MAX', 'uint32'),
        ('VCACHE_A_DEVICE_ORIGIN_INSTANCE', 'uint32'),
        ('VCACHE_A_DEVICE_PAD', 'none'),
    )


class TagMessage(genlmsg):
    """Attributes of the set "tag"."""

    prefix = 'VCACHE_A_TAG_'
    nla_map = (
        ('VCACHE_A_TAG_UNSPEC', 'none'),
        ('VCACHE_A_TAG_MAJOR', 'uint32'),
        ('VCACHE_A_TAG_MINOR', 'uint32'),
        ('VCACHE_A_TAG_ID', 'uint32'),
        ('VCACHE_A_TAG_NAME', 'asciiz'),
        ('VCACHE_A_TAG_WEIGHT', 'uint32'),
        ('VCACHE_A_TAG_CGROUP', 'uint64'),
        ('VCACHE_A_TAG_EXTENTS', 'cdata'),
        ('VCACHE_A_TAG_EXTENTS_BEGIN', 'flag'),
        ('VCACHE_A_TAG_EXTENTS_COMMIT', 'flag'),
        ('VCACHE_A_TAG_EXTENTS_COUNT', 'uint32'),
        ('VCACHE_A_TAG_EXTENTS_SECTORS', 'uint64'),
        ('VCACHE_A_TAG_LIMIT_BYTES', 'uint64'),
        ('VCACHE_A_TAG_DIRTY_BYTES', 'uint64'),
        ('VCACHE_A_TAG_INFLIGHT_BYTES', 'uint64'),
        ('VCACHE_A_TAG_STATS', 'Stats'),
        ('VCACHE_A_TAG_BROKEN', 'flag'),
        ('VCACHE_A_TAG_MODE', 'uint32'),
        ('VCACHE_A_TAG_CACHED_BYTES', 'uint64'),
        ('VCACHE_A_TAG_CACHE_DIRTY_BYTES', 'uint64'),
        ('VCACHE_A_TAG_CACHE_MIN_BYTES', 'uint64'),
        ('VCACHE_A_TAG_CACHE_MAX_BYTES', 'uint64'),
        ('VCACHE_A_TAG_CACHE_SHARE_BYTES', 'uint64'),
        ('VCACHE_A_TAG_PREFETCH_WAITING_BYTES', 'uint64'),
        ('VCACHE_A_TAG_PREFETCHED_BYTES', 'uint64'),
        ('VCACHE_A_TAG_CACHE_LANES', 'uint64'),
        ('VCACHE_A_TAG_CACHE_OWN_BYTES', 'uint64'),
        ('VCACHE_A_TAG_CACHE_HOT_BYTES', 'uint64'),
        ('VCACHE_A_TAG_EXTENTS_REMOVE', 'cdata'),
        ('VCACHE_A_TAG_DIRTY_AGE_MS', 'uint32'),
        ('VCACHE_A_TAG_CACHE_DIRTY_AGE_MS', 'uint32'),
        ('VCACHE_A_TAG_PAD', 'none'),
    )

    Stats = Stats


class CurveMessage(genlmsg):
    """Attributes of the set "curve"."""

    prefix = 'VCACHE_A_CURVE_'
    nla_map = (
        ('VCACHE_A_CURVE_UNSPEC', 'none'),
        ('VCACHE_A_CURVE_MAJOR', 'uint32'),
        ('VCACHE_A_CURVE_MINOR', 'uint32'),
        ('VCACHE_A_CURVE_ID', 'uint32'),
        ('VCACHE_A_CURVE_GRAIN_BYTES', 'uint64'),
        ('VCACHE_A_CURVE_FOOTPRINT_BYTES', 'uint64'),
        ('VCACHE_A_CURVE_READS', 'uint64'),
        ('VCACHE_A_CURVE_WRITES', 'uint64'),
        ('VCACHE_A_CURVE_READ_MISSES', 'cdata'),
        ('VCACHE_A_CURVE_WRITE_MISSES', 'cdata'),
        ('VCACHE_A_CURVE_PAD', 'none'),
    )


class EventMessage(genlmsg):
    """Attributes of the set "event"."""

    prefix = 'VCACHE_A_EVENT_'
    nla_map = (
        ('VCACHE_A_EVENT_UNSPEC', 'none'),
        ('VCACHE_A_EVENT_KIND', 'uint32'),
        ('VCACHE_A_EVENT_MAJOR', 'uint32'),
        ('VCACHE_A_EVENT_MINOR', 'uint32'),
        ('VCACHE_A_EVENT_TAG', 'uint32'),
        ('VCACHE_A_EVENT_PAD', 'none'),
    )


class CachedMessage(genlmsg):
    """Attributes of the set "cached"."""

    prefix = 'VCACHE_A_CACHED_'
    nla_map = (
        ('VCACHE_A_CACHED_UNSPEC', 'none'),
        ('VCACHE_A_CACHED_MAJOR', 'uint32'),
        ('VCACHE_A_CACHED_MINOR', 'uint32'),
        ('VCACHE_A_CACHED_ID', 'uint32'),
        ('VCACHE_A_CACHED_RUNS', 'cdata'),
        ('VCACHE_A_CACHED_CACHED_BYTES', 'uint64'),
        ('VCACHE_A_CACHED_CACHE_DIRTY_BYTES', 'uint64'),
        ('VCACHE_A_CACHED_TOKEN', 'uint64'),
        ('VCACHE_A_CACHED_SAVED_BEGIN', 'flag'),
        ('VCACHE_A_CACHED_START', 'uint64'),
        ('VCACHE_A_CACHED_HEAT', 'uint32'),
        ('VCACHE_A_CACHED_DATA', 'cdata'),
        ('VCACHE_A_CACHED_PAD', 'none'),
    )


class LaneMessage(genlmsg):
    """Attributes of the set "lane"."""

    prefix = 'VCACHE_A_LANE_'
    nla_map = (
        ('VCACHE_A_LANE_UNSPEC', 'none'),
        ('VCACHE_A_LANE_MAJOR', 'uint32'),
        ('VCACHE_A_LANE_MINOR', 'uint32'),
        ('VCACHE_A_LANE_LANE', 'uint32'),
        ('VCACHE_A_LANE_FREE_BYTES', 'uint64'),
        ('VCACHE_A_LANE_VOLUME', 'uint32'),
        ('VCACHE_A_LANE_TAG', 'uint32'),
        ('VCACHE_A_LANE_READS', 'uint64'),
        ('VCACHE_A_LANE_READ_NS', 'uint64'),
        ('VCACHE_A_LANE_WRITES', 'uint64'),
        ('VCACHE_A_LANE_WRITE_NS', 'uint64'),
        ('VCACHE_A_LANE_BUSY_NS', 'uint64'),
        ('VCACHE_A_LANE_PAD', 'none'),
    )


#: Message class of each command, for requests and replies.
MESSAGES: dict[Command, type[genlmsg]] = {
    Command.DEVICE_GET: DeviceMessage,
    Command.TAG_GET: TagMessage,
    Command.TAG_SET: TagMessage,
    Command.TAG_DEL: TagMessage,
    Command.TAG_EXTENTS: TagMessage,
    Command.EVENT_NTF: EventMessage,
    Command.DEVICE_SET: DeviceMessage,
    Command.CURVE_GET: CurveMessage,
    Command.CACHE_MAP_GET: CachedMessage,
    Command.CACHE_PREFETCH: CachedMessage,
    Command.CACHE_DROP: CachedMessage,
    Command.TAG_EXTENTS_CHANGE: TagMessage,
    Command.CACHE_SAVED: CachedMessage,
    Command.CACHE_FILL: CachedMessage,
    Command.LANE_GET: LaneMessage,
}
