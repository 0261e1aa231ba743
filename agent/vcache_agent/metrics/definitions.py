# SPDX-License-Identifier: Apache-2.0
"""All metrics of the agent: name, type, meaning and source. The documentation is made of it."""

import enum
from collections.abc import Callable
from typing import Any, NamedTuple

from vcache_agent.drive.tag_shares import BLOCK_BYTES, TagShare
from vcache_agent.model import (
    FLUSH_CAUSES,
    REFUSAL_CAUSES,
    SECTOR_BYTES,
    SSD_CAUSES,
    Device,
    Lane,
    Tag,
)
from vcache_agent.netlink import spec

_NS = 1e-9


class Kind(enum.StrEnum):
    """Type of a metric, by Prometheus' name."""

    COUNTER = "counter"
    GAUGE = "gauge"
    HISTOGRAM = "histogram"


class Metric(NamedTuple):
    """One metric.

    :param help: its meaning in one sentence
    :param value: returns the value of a device, a tag or a row of a pool; a histogram's value
        is the pair of buckets and sum in ns; with one label in `labels`, a mapping of the
        label's values to values; None: collector.py computes it
    :param labels: its labels beside those of its group
    """

    name: str
    kind: Kind
    help: str
    value: Callable[[Any], Any] | None = None
    labels: tuple[str, ...] = ()


DEVICE_LABELS = ("device",)
POOL_LABELS = ("pool",)
LANE_LABELS = ("pool", "lane")
TAG_LABELS = ("device", "tag", "disk")
DRIVE_LABELS = ("drive",)
DRIVE_TAG_LABELS = ("drive", "tag", "disk")
#: Labels of tags with the option ``[metrics] instance_labels``.
INSTANCE_LABELS = ("instance_uuid", "project_id")


def _device(name: str, text: str, value: Callable[[Device], float]) -> Metric:
    return Metric(f"vcache_device_{name}", Kind.GAUGE, text, value)


def _gauge(name: str, text: str, value: Callable[[Tag], float]) -> Metric:
    return Metric(f"vcache_tag_{name}", Kind.GAUGE, text, value)


def _count(name: str, text: str, field: str, factor: float = 1) -> Metric:
    def value(tag: Tag) -> float:
        return float(getattr(tag.stats, field) * factor)

    return Metric(f"vcache_tag_{name}_total", Kind.COUNTER, text, value)


def _causes(name: str, text: str, field: str, causes: tuple[str, ...],
            factor: float = 1) -> Metric:
    """Return a metric with a series for each cause.

    :param field: name of the counters, with {} for the cause
    """
    def value(tag: Tag) -> dict[str, float]:
        return {cause: float(getattr(tag.stats, field.format(cause)) * factor)
                for cause in causes}

    return Metric(f"vcache_tag_{name}_total", Kind.COUNTER, text, value, ("cause",))


DEVICES = (
    Metric("vcache_device_info", Kind.GAUGE, "Properties of a device; the value is always 1.",
           labels=("mode", "scope", "isolation", "pool")),
    _device("size_bytes", "Size of the device.", lambda item: item.sectors * SECTOR_BYTES),
    _device("dirty_bytes", "Data in the write buffer that is not on the origin or in the cache.",
            lambda item: item.dirty_bytes),
    _device("cache_dirty_bytes", "Data in the cache that is not on the origin.",
            lambda item: item.cache_dirty_bytes),
    _device("tags", "Number of tags, with the host tag.", lambda item: item.tags),
    _device("suspended", "1: device mapper has suspended the device.",
            lambda item: item.suspended),
    _device("broken", "1: writes to the origin fail; the data stays in the write buffer.",
            lambda item: item.broken),
    _device("cache_broken", "1: I/O to the cache or to its origin fails.",
            lambda item: item.cache_broken),
    _device("isolation_degraded", "1: each flush is device-wide, because the origin has a "
            "volatile write cache and no FUA; tenants are not isolated.",
            lambda item: item.isolation is spec.Isolation.DEGRADED))

TAGS = (
    _count("reads", "Read requests.", "reads"),
    _count("read_bytes", "Bytes read.", "read_bytes"),
    _count("read_buffer_hit_bytes", "Bytes read from the write buffer.", "read_hit_bytes"),
    _count("read_cache_hit_bytes", "Bytes read from the cache device.", "cache_hit_bytes"),
    _count("writes", "Write requests.", "writes"),
    _count("write_bytes", "Bytes written.", "write_bytes"),
    _count("absorbed_bytes", "Bytes written that replaced buffered data.", "absorbed_bytes"),
    _count("fua_writes", "Write requests with FUA.", "fua_writes"),
    _count("writeouts", "Write requests from the buffer to the origin or the cache.",
           "writeouts"),
    _count("writeout_bytes", "Bytes written from the buffer to the origin or the cache.",
           "writeout_bytes"),
    _count("writeout_errors", "Write requests from the buffer that failed.", "writeout_errors"),
    _count("waits", "Write requests that waited for buffer space.", "waits"),
    _count("wait_seconds", "Time that write requests waited for buffer space.", "wait_ns", _NS),
    _count("discards", "Discard requests.", "discards"),
    _count("device_flushes", "FLUSH commands to the origin (isolation degraded).",
           "device_flushes"),
    _count("tagged_flushes", "Tagged flush commands to the origin.", "tagged_flushes"),
    _count("migrated_blocks", "4 KiB blocks that moved between shared and dedicated lanes.",
           "migrated_blocks"),
    _count("origin_reads", "Read requests that the origin served, at least in part.",
           "origin_reads"),
    _count("origin_read_seconds", "Total latency of these read requests.", "origin_read_ns", _NS),
    _causes("flush_wait_seconds", "Time that flushes waited, by what they waited for: space in "
            "the log, writes to the cache, writes to the origin, data of other tags that they "
            "cover, or a FLUSH of the device.", "flush_{}_ns", FLUSH_CAUSES, _NS),
    _causes("ssd_written_bytes", "Bytes written to the cache device since the load of the "
            "volume: data of writes, heads of records and seals, relocated data, or promoted "
            "data.", "ssd_{}_bytes", SSD_CAUSES),
    _count("evicted_bytes", "Valid cached data that was lost because its chunk was reclaimed, "
           "since the load of the volume.", "evicted_bytes"),
    _count("evicted_own_bytes", "Part of it whose space the tag itself has taken again.",
           "evicted_own_bytes"),
    _count("evicted_limit_bytes", "Part of it that a limit of the tag has cost: its maximum, its "
           "lanes, or a command.", "evicted_limit_bytes"),
    _count("gained_bytes", "Data of other tags that was lost for space which this tag has taken.",
           "gained_bytes"),
    _causes("refused_bytes", "Data read from the origin that was not cached: the read was long "
            "and sequential, the data was not missed often enough, or there was no space.",
            "refused_{}_bytes", REFUSAL_CAUSES),
    Metric("vcache_tag_flush_duration_seconds", Kind.HISTOGRAM, "Latency of flushes.",
           lambda tag: (tag.stats.flush_hist, tag.stats.flush_ns)),
    Metric("vcache_tag_read_duration_seconds", Kind.HISTOGRAM, "Latency of read requests.",
           lambda tag: (tag.stats.read_hist, tag.stats.read_ns)),
    Metric("vcache_tag_write_duration_seconds", Kind.HISTOGRAM, "Latency of write requests.",
           lambda tag: (tag.stats.write_hist, tag.stats.write_ns)),
    _gauge("weight", "Weight of the tag, 1 to 1000.", lambda tag: tag.weight),
    _gauge("broken", "1: a write of the tag's data to the origin failed.",
           lambda tag: tag.broken),
    _gauge("extents", "Number of extents of the tag.", lambda tag: tag.extents_count),
    _gauge("extents_bytes", "Size of the extents of the tag.",
           lambda tag: tag.extents_sectors * SECTOR_BYTES),
    _gauge("buffer_limit_bytes", "Buffer space of the tag.", lambda tag: tag.limit_bytes),
    _gauge("dirty_bytes", "Data in the write buffer that is not on the origin or in the cache.",
           lambda tag: tag.dirty_bytes),
    _gauge("inflight_bytes", "Buffered data that is being written.",
           lambda tag: tag.inflight_bytes),
    _gauge("dirty_age_seconds", "How long the oldest data in the write buffer has waited; 0: "
           "there is none.", lambda tag: tag.dirty_age_ms / 1000),
    _gauge("cache_dirty_age_seconds", "About how long ago the oldest chunk with data that is not "
           "on the origin was begun, or found after a restart; 0: there is none.",
           lambda tag: tag.cache_dirty_age_ms / 1000),
    _gauge("cached_bytes", "Data in the cache.", lambda tag: tag.cached_bytes),
    _gauge("cache_dirty_bytes", "Data in the cache that is not on the origin.",
           lambda tag: tag.cache_dirty_bytes),
    _gauge("cache_min_bytes", "Lower bound of the tag's share of the cache.",
           lambda tag: tag.cache_min_bytes),
    _gauge("cache_max_bytes", "Upper bound of the tag's cached data; 0: no limit.",
           lambda tag: tag.cache_max_bytes),
    _gauge("cache_share_bytes", "The tag's share of the cache.",
           lambda tag: tag.cache_share_bytes),
    _gauge("cache_lanes", "Number of dedicated lanes.", lambda tag: tag.cache_lanes.bit_count()),
    _gauge("cache_own_bytes", "Cached data in dedicated lanes.", lambda tag: tag.cache_own_bytes),
    _gauge("cache_hot_bytes", "Hot cached data in shared lanes.",
           lambda tag: tag.cache_hot_bytes),
    _gauge("prefetch_waiting_bytes", "Data that is still to be loaded into the cache.",
           lambda tag: tag.prefetch_waiting_bytes),
    _gauge("prefetched_bytes", "Data that was loaded into the cache at the start of the instance.",
           lambda tag: tag.prefetched_bytes))

#: The objectives that tags miss, and the limits because of them; the collector computes them.
OBJECTIVES = (
    Metric("vcache_tag_slo_missed", Kind.GAUGE, "1: the tag missed an objective in the last "
           "control period, by objective and cause; no series: it met all.",
           labels=("objective", "cause")),
    Metric("vcache_tag_limit_bytes_per_second", Kind.GAUGE, "What the tag may read or write at "
           "most, because it makes others miss an objective, by means (destage or io) and "
           "direction (read or write); no series: no limit.", labels=("means", "direction")))


def _pool(name: str, text: str, value: Callable[[dict[str, Any]], float]) -> Metric:
    return Metric(f"vcache_pool_{name}", Kind.GAUGE, text, value)


POOLS = (
    Metric("vcache_pool_info", Kind.GAUGE, "Properties of a pool; the value is always 1.",
           labels=("cache_device", "state")),
    _pool("size_bytes", "Size of the pool.", lambda row: row["size_bytes"]),
    _pool("free_bytes", "Free space.", lambda row: row["free_bytes"]),
    _pool("dirty_bytes", "Space in chunks with data that is not on the origin.",
          lambda row: row["dirty_bytes"]),
    _pool("read_bytes", "Space in chunks with promoted data.", lambda row: row["read_bytes"] or 0),
    _pool("lanes", "Number of lanes.", lambda row: len(row["lanes_bytes"])),
    _pool("volumes", "Number of volumes, attached or not.", lambda row: row["volumes"]),
    Metric("vcache_pool_cache_errors_total", Kind.COUNTER,
           "I/O errors of the cache, on the attached devices.",
           lambda row: sum(member["cache_errors"] or 0 for member in row["members"])))


def _lane(name: str, text: str, field: str) -> Metric:
    factor = _NS if field.endswith("_ns") else 1

    def value(lane: Lane) -> float:
        return float(getattr(lane, field) * factor)

    return Metric(f"vcache_lane_{name}_total", Kind.COUNTER, text, value)


LANES = (
    Metric("vcache_lane_info", Kind.GAUGE, "The volume and the tag that a lane is dedicated to, "
           "empty if it is shared; the value is always 1.", labels=("volume", "tag")),
    Metric("vcache_lane_free_bytes", Kind.GAUGE, "Size of the free chunks.",
           lambda lane: lane.free_bytes),
    _lane("reads", "Requests that read from the lane.", "reads"),
    _lane("read_seconds", "Total latency of these requests.", "read_ns"),
    _lane("writes", "Requests that wrote to the lane, apart from metadata and seals.", "writes"),
    _lane("write_seconds", "Total latency of these requests.", "write_ns"),
    _lane("busy_seconds", "Estimate of the time in which any request was under way.", "busy_ns"))


def _share(name: str, text: str, field: str, factor: float = 1) -> Metric:
    def value(share: TagShare) -> float:
        return float(getattr(share, field) * factor)

    kind = Kind.COUNTER if name.endswith("_total") else Kind.GAUGE
    return Metric(f"vcache_drive_tag_{name}", kind, text, value)


DRIVES = (
    Metric("vcache_drive_success", Kind.GAUGE, "1: the drive has reported its tags, and with "
           "[drives] weights, it has accepted all weights.", lambda item: not item.problem),)

#: Values of an entry of a drive's log page C1h.
DRIVE_TAGS = (
    _share("weight", "Weight of the tag in the drive; 0: none.", "weight"),
    _share("buffer_share_bytes", "Share of the drive's write buffer; 0: the tag is idle, and its "
           "share is lent.", "share", BLOCK_BYTES),
    _share("buffered_bytes", "Data in the drive's write buffer.", "buffered", BLOCK_BYTES),
    _share("writes_total", "Write commands that the drive has received.", "writes"),
    _share("flushes_total", "Flush commands that the drive has received.", "flushes"),
    _share("buffer_wait_seconds_total", "Time that blocks waited for space in the drive's write "
           "buffer.", "buffer_wait_ns", _NS),
    _share("bank_seconds_total", "Time of the drive's banks that programs and erases took on "
           "behalf of the tag.", "bank_ns", _NS),
    _share("bank_wait_seconds_total", "Time that these waited in a bank for those of other tags.",
           "bank_wait_ns", _NS))

AGENT = (
    Metric("vcache_agent_build_info", Kind.GAUGE, "Version of the agent; the value is always 1.",
           labels=("version",)),
    Metric("vcache_agent_reconcile_success", Kind.GAUGE,
           "1: the last reconcile pass succeeded."),
    Metric("vcache_agent_reconcile_timestamp_seconds", Kind.GAUGE,
           "Unix time at which the last reconcile pass ended; 0: none has ended yet."),
    Metric("vcache_agent_reconcile_passes_total", Kind.COUNTER,
           "Reconcile passes by result, success or failure.", labels=("result",)),
    Metric("vcache_agent_reconcile_cpu_seconds_total", Kind.COUNTER,
           "Processor time of the reconcile passes, without that of the helper processes."),
    Metric("vcache_agent_store_success", Kind.GAUGE,
           "1: the last change of the agent's state file succeeded; 0: new disks get no tags."),
    Metric("vcache_agent_failed_tags", Kind.GAUGE,
           "Number of tags of which the kernel refused a change in the last pass."),
    Metric("vcache_agent_libvirt_connected", Kind.GAUGE,
           "1: libvirt has listed the running domains."),
    Metric("vcache_agent_domains", Kind.GAUGE, "Domains that run or are about to."),
    Metric("vcache_agent_disks", Kind.GAUGE,
           "Disks of these domains by state, as 'vcache disks' shows it.", labels=("state",)),
    Metric("vcache_agent_orphans", Kind.GAUGE, "Tags without a running domain."),
    Metric("vcache_agent_orphan_dirty_bytes", Kind.GAUGE,
           "Buffered data of tags without a running domain."),
    Metric("vcache_agent_events_total", Kind.COUNTER,
           "Events by kind, as 'vcache events' shows them.", labels=("kind",)),
    Metric("vcache_agent_sample_timestamp_seconds", Kind.GAUGE,
           "Unix time of the newest sample of the kernel; 0: there is none."),
    Metric("vcache_agent_sample_duration_seconds", Kind.GAUGE,
           "Duration of the newest sample of the kernel."),
    Metric("vcache_agent_sample_gaps_total", Kind.COUNTER,
           "Samples that failed, because the kernel did not answer."),
    Metric("vcache_agent_record_dropped_total", Kind.COUNTER,
           "Samples that could not be recorded to record_path."))

#: The groups of metrics, each with its labels, for the documentation.
GROUPS = (("Devices", DEVICE_LABELS, DEVICES), ("Tags", TAG_LABELS, (*TAGS, *OBJECTIVES)),
          ("Pools", POOL_LABELS, POOLS), ("Lanes", LANE_LABELS, LANES),
          ("Drives with tags", DRIVE_LABELS, DRIVES),
          ("Tags of drives", DRIVE_TAG_LABELS, DRIVE_TAGS), ("Agent", (), AGENT))
