# SPDX-License-Identifier: Apache-2.0
"""The data types of the agent: mapped devices, tags, disks and domains.

They are plain values that do not access the host, so that decisions can be made,
tested and replayed without one.
"""

import dataclasses
import enum
import functools
import os
from collections.abc import Sequence
from typing import NamedTuple

from nova_vcache.extra_specs import ExtraSpecs, Mode
from vcache_agent.netlink import spec

SECTOR_BYTES = 512
#: Size of a block in caches and miss-ratio curves.
BLOCK_BYTES = 4096

# How the names of the tags of shared layers begin.
_SHARED = "base:"

#: Modes of a tag, on a device in mode writeback.
TAG_MODES = tuple(mode.value for mode in (Mode.WRITEBACK, Mode.WRITETHROUGH, Mode.FLUSH_ONLY))


class DeviceNumber(NamedTuple):
    """Number of a block device."""

    major: int
    minor: int

    def __str__(self) -> str:
        return f"{self.major}:{self.minor}"


class Extent(NamedTuple):
    """A run of sectors on a device."""

    start: int
    length: int


#: A sorted list of extents that do not touch; see packed_extents.py for long ones.
Extents = Sequence[Extent]


@dataclasses.dataclass(frozen=True)
class Stats:
    """Counters of a tag; the netlink specification describes them."""

    reads: int = 0
    read_bytes: int = 0
    read_hit_bytes: int = 0
    writes: int = 0
    write_bytes: int = 0
    absorbed_bytes: int = 0
    fua_writes: int = 0
    writeouts: int = 0
    writeout_bytes: int = 0
    writeout_errors: int = 0
    flushes: int = 0
    flush_ns: int = 0
    flush_hist: tuple[int, ...] = ()
    waits: int = 0
    wait_ns: int = 0
    discards: int = 0
    device_flushes: int = 0
    tagged_flushes: int = 0
    cache_hit_bytes: int = 0
    migrated_blocks: int = 0
    read_ns: int = 0
    read_hist: tuple[int, ...] = ()
    write_ns: int = 0
    write_hist: tuple[int, ...] = ()
    origin_reads: int = 0
    origin_read_ns: int = 0
    flush_space_ns: int = 0
    flush_cache_ns: int = 0
    flush_origin_ns: int = 0
    flush_others_ns: int = 0
    flush_device_ns: int = 0
    ssd_data_bytes: int = 0
    ssd_record_bytes: int = 0
    ssd_relocated_bytes: int = 0
    ssd_promoted_bytes: int = 0
    evicted_bytes: int = 0
    evicted_own_bytes: int = 0
    evicted_limit_bytes: int = 0
    gained_bytes: int = 0
    refused_stream_bytes: int = 0
    refused_level_bytes: int = 0
    refused_space_bytes: int = 0


#: The latency histograms of :class:`Stats`.
HISTOGRAMS = ("flush_hist", "read_hist", "write_hist")
#: What a flush can wait for: the causes of the counters ``flush_*_ns`` of :class:`Stats`.
FLUSH_CAUSES = ("space", "cache", "origin", "others", "device")
#: Causes of writes to the SSD: those of the counters ``ssd_*_bytes``.
SSD_CAUSES = ("data", "record", "relocated", "promoted")
#: Why data is not cached: the causes of the counters ``refused_*_bytes``.
REFUSAL_CAUSES = ("stream", "level", "space")
#: Counters of :class:`Stats` that count from the load of the volume, and not of the tag.
VOLUME_COUNTERS = frozenset((
    "evicted_bytes", "evicted_own_bytes", "evicted_limit_bytes", "gained_bytes",
    *(f"ssd_{cause}_bytes" for cause in SSD_CAUSES),
    *(f"refused_{cause}_bytes" for cause in REFUSAL_CAUSES)))


@dataclasses.dataclass(frozen=True)
class Lane:
    """A lane of a pool, as the kernel reports it; counters since the pool was loaded.

    :param pool: number of the pool's mapped device
    :param lane: number of the lane in the pool
    :param volume: volume of the tag that it is dedicated to; 0: it is shared
    :param tag: that tag; 0 with volume 0: it is shared
    :param busy_ns: estimate of the time in which any request was under way
    """

    pool: DeviceNumber
    lane: int
    free_bytes: int = 0
    volume: int = 0
    tag: int = 0
    reads: int = 0
    read_ns: int = 0
    writes: int = 0
    write_ns: int = 0
    busy_ns: int = 0


@dataclasses.dataclass(frozen=True)
class Device:
    """A mapped device of the target vcache, as the kernel reports it."""

    number: DeviceNumber
    name: str
    mode: spec.Mode
    scope: spec.Scope
    isolation: spec.Isolation
    sectors: int
    origin: str
    dirty_bytes: int = 0
    tags: int = 0
    suspended: bool = False
    broken: bool = False
    pool: str = ""
    volume: int = 0
    cache_dirty_bytes: int = 0
    cache_broken: bool = False


@dataclasses.dataclass(frozen=True)
class Tag:
    """A tag of a device, as the kernel reports it."""

    device: DeviceNumber
    id: int
    name: str = ""
    weight: int = 100
    cgroups: frozenset[int] = frozenset()
    extents_count: int = 0
    extents_sectors: int = 0
    limit_bytes: int = 0
    dirty_bytes: int = 0
    inflight_bytes: int = 0
    broken: bool = False
    stats: Stats = Stats()
    mode: spec.Mode = spec.Mode.FLUSH_ONLY
    cached_bytes: int = 0
    cache_dirty_bytes: int = 0
    cache_min_bytes: int = 0
    cache_max_bytes: int = 0
    cache_share_bytes: int = 0
    prefetch_waiting_bytes: int = 0
    prefetched_bytes: int = 0
    cache_lanes: int = 0
    cache_own_bytes: int = 0
    cache_hot_bytes: int = 0
    dirty_age_ms: int = 0
    cache_dirty_age_ms: int = 0


@dataclasses.dataclass(frozen=True)
class Curve:
    """The miss-ratio curve of a tag since the tag was created, for an LRU cache.

    :param grain: step of the cache size from point to point, in bytes
    :param footprint: estimate of the bytes that were accessed at least once
    :param reads: 4 KiB blocks read
    :param writes: 4 KiB blocks written
    :param read_misses: number of the reads that a cache of 0, 1, 2 ... grains would miss
    :param write_misses: number of the writes that it would miss
    """

    grain: int
    footprint: int
    reads: int
    writes: int
    read_misses: tuple[int, ...]
    write_misses: tuple[int, ...]

    def short(self) -> "Curve":
        """Return the curve with one of the equal points at its end, which says the same."""
        return dataclasses.replace(self, read_misses=_short(self.read_misses),
                                   write_misses=_short(self.write_misses))

    def misses(self, size: int) -> tuple[int, int]:
        """Return the (reads, writes) that a cache of `size` bytes would have missed.

        Between two points the curve is interpolated linearly; behind the last point it is
        constant.
        """
        return self._at(self.read_misses, size), self._at(self.write_misses, size)

    def _at(self, points: tuple[int, ...], size: int) -> int:
        point, rest = divmod(size, self.grain)
        if point >= len(points) - 1:
            return points[-1]
        fall = points[point] - points[point + 1]
        return points[point] - fall * rest // self.grain


def _short(points: tuple[int, ...]) -> tuple[int, ...]:
    if not points:
        return points
    # A curve never increases, so the equal points at its end are all that are as small.
    end = points.index(points[-1]) + 1
    return points[:end] if set(points[end:]) <= {points[-1]} else points


class Phase(enum.StrEnum):
    """State of a domain."""

    #: libvirt is about to start it; it has no cgroup yet.
    PREPARING = "preparing"
    #: QEMU runs.
    RUNNING = "running"


class Owner(enum.StrEnum):
    """What a disk belongs to."""

    #: An instance, which is a domain of libvirt.
    INSTANCE = "instance"
    #: A volume of Cinder that the agent manages. The instances that have it attached do not matter.
    VOLUME = "volume"


#: Target of the only disk of a managed volume.
VOLUME_TARGET = "volume"


class DiskId(NamedTuple):
    """Identity of a virtual disk. It holds wherever the data of the disk is.

    :param domain: UUID of its domain
    :param target: its name in the domain, such as ``vda``, when it was first seen
    """

    domain: str
    target: str


class Backing(NamedTuple):
    """A layer below the one that a disk writes, such as the backing image of a qcow2 image.

    :param kind: ``file``, ``block``, or another source type of libvirt
    :param path: host path of its file or block device; None: it has none
    """

    kind: str
    path: str | None


@dataclasses.dataclass(frozen=True)
class DiskSource:
    """A disk as described in the domain's XML.

    :param target: name in the domain, such as ``vda``
    :param kind: ``file``, ``block``, or another source type of libvirt
    :param path: host path of its active layer, a file or block device; None: it has none
    :param readonly: the guest cannot write it, or it is a CD-ROM or floppy drive
    :param backing: the layers below the active one, from the top
    :param deeper: number of further layers below these, which exceed the limit
    :param chain_known: `backing` is complete. It is not before QEMU has opened the disk.
    :param volume: a volume of Cinder is attached as this disk
    :param shareable: other domains may write it at the same time, also on other hosts
    :param serial: its serial number, which the guest sees
    """

    target: str
    kind: str
    path: str | None
    readonly: bool = False
    backing: tuple[Backing, ...] = ()
    deeper: int = 0
    chain_known: bool = True
    volume: bool = False
    shareable: bool = False
    serial: str = ""


@dataclasses.dataclass(frozen=True)
class Domain:
    """A domain as described in its XML; or a managed volume, which is its own only disk.

    :param uuid: UUID of the domain, or id of the volume
    :param extra_specs: extra specs of its flavor or volume type, not validated
    :param project: id of the project that owns the instance; empty: unknown
    :param channel: socket of its channel for elastic SSDs, on which QEMU listens; empty: none
    """

    uuid: str
    name: str
    extra_specs: dict[str, str]
    disks: tuple[DiskSource, ...]
    project: str = ""
    owner: Owner = Owner.INSTANCE
    channel: str = ""


@dataclasses.dataclass(frozen=True)
class Location:
    """The place of a layer's data on a mapped device of the target vcache.

    :param key: identity of the layer on this host, which is stable over restarts of the
        domain, the agent and the host. That of a file contains the generation of its inode
        (inode.py), so that a later file with the same number has another key.
    :param device: the mapped device
    :param extents: its extents on the device, in sectors; empty in scope volume, where
        all sectors belong to the layer
    """

    key: str
    device: DeviceNumber
    extents: Extents = ()


@dataclasses.dataclass(frozen=True)
class Layer:
    """A layer below the active one of a disk.

    :param path: host path of its file or block device
    :param location: its location; None: it is not on a mapped device, or unknown
    :param unknown: its location could not be found out this time
    """

    path: str
    location: Location | None
    unknown: bool = False


class Limits(NamedTuple):
    """The highest modes that the disks of a domain may have now, whatever was requested.

    :param volume: of a block device, which other hosts may see; None: no limit
    :param file: of an image file
    :param reason: why, or empty
    """

    volume: Mode | None = None
    file: Mode | None = None
    reason: str = ""


#: Any mode.
NO_LIMITS = Limits()


@dataclasses.dataclass(frozen=True)
class DiskState:
    """A disk of a domain that runs or is about to.

    :param specs: extra specs of the flavor, with overrides applied
    :param location: location of its active layer; None: it cannot have a tag, or `unknown`
    :param reason: why there is no location, or empty
    :param cgroup: id of the domain's cgroup; None: unknown
    :param unknown: the location could not be found out this time, so the last known state
        must stay in force
    :param backing: the layers below the active one that have a path, from the top
    :param identity: its identity; None: domain and target; see plan/identify.py
    :param limits: the limits of its domain, for instance while that migrates
    """

    domain: Domain
    source: DiskSource
    specs: ExtraSpecs
    location: Location | None
    reason: str = ""
    cgroup: int | None = None
    unknown: bool = False
    backing: tuple[Layer, ...] = ()
    identity: DiskId | None = None
    limits: Limits = NO_LIMITS

    @functools.cached_property
    def id(self) -> DiskId:
        """The identity of the disk."""
        return self.identity or DiskId(self.domain.uuid, self.source.target)

    @functools.cached_property
    def label(self) -> str:
        """The name of its tag in the kernel: domain and target, at most NAME_MAX bytes."""
        return _tag_name(f"{self.domain.uuid}:{self.source.target}")


def shared_label(path: str) -> str:
    """Return the name of the tag of a layer that several disks use.

    :param path: host path of the layer
    """
    return _tag_name(f"{_SHARED}{os.path.basename(path)}")


def is_shared_label(name: str) -> bool:
    """Return True if a tag has the name of a layer that several disks use, which is only read."""
    return name.startswith(_SHARED)


def _tag_name(text: str) -> str:
    return text.encode()[:spec.NAME_MAX].decode(errors="ignore")


def lanes_of(mask: int) -> list[int]:
    """Return the numbers of the lanes in a bit mask."""
    return [lane for lane in range(mask.bit_length()) if mask >> lane & 1]


def mask_of(lanes: str | None) -> int:
    """Return the bit mask of a list of lane numbers such as "1,3"; None or empty: 0."""
    return sum({1 << int(lane) for lane in lanes.split(",")}) if lanes else 0
