# SPDX-License-Identifier: Apache-2.0
"""What the agent knows about: mapped devices, tags, disks and domains.

Plain values without behaviour that touches the host, so that decisions can be
taken, tested and replayed without one.
"""

import dataclasses
import enum
from typing import NamedTuple

from nova_vcache.extra_specs import ExtraSpecs, Mode
from vcache_agent.netlink import spec

SECTOR_BYTES = 512
#: A block of a cache, and of the curves that tell its size.
BLOCK_BYTES = 4096

#: Modes that a tag can be in, on a device in mode writeback.
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


Extents = tuple[Extent, ...]


@dataclasses.dataclass(frozen=True)
class Stats:
    """Counters of a tag; see the netlink specification for each."""

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


@dataclasses.dataclass(frozen=True)
class Curve:
    """What a cache of any size would have done for a tag, since the tag was made.

    :param grain: bytes by which the cache of a point is larger than that of the one before
    :param footprint: bytes accessed at all, about
    :param reads: blocks of 4 KiB read
    :param writes: and written
    :param read_misses: of the reads, those that a cache of 0, 1, 2 ... grains would have missed
    :param write_misses: the same of the writes
    """

    grain: int
    footprint: int
    reads: int
    writes: int
    read_misses: tuple[int, ...]
    write_misses: tuple[int, ...]

    def misses(self, size: int) -> tuple[int, int]:
        """Return the (reads, writes) that a cache of so many bytes would have missed.

        Between two points they fall evenly; behind the last one they stay.
        """
        return self._at(self.read_misses, size), self._at(self.write_misses, size)

    def _at(self, points: tuple[int, ...], size: int) -> int:
        point, rest = divmod(size, self.grain)
        if point >= len(points) - 1:
            return points[-1]
        fall = points[point] - points[point + 1]
        return points[point] - fall * rest // self.grain


class Phase(enum.StrEnum):
    """How far a domain has come."""

    #: libvirt is about to start it; it has no cgroup yet
    PREPARING = "preparing"
    #: QEMU runs
    RUNNING = "running"


@dataclasses.dataclass(frozen=True)
class DiskSource:
    """A disk as the domain's XML describes it.

    :param target: name in the domain, such as ``vda``
    :param kind: ``file``, ``block``, or another of libvirt's source types
    :param path: host path of its file or block device
    :param readonly: the guest cannot write it
    """

    target: str
    kind: str
    path: str | None
    readonly: bool = False


@dataclasses.dataclass(frozen=True)
class Domain:
    """A domain as its XML describes it.

    :param extra_specs: those of its flavor, unchecked
    :param project: id of the project that owns the instance; empty: Nova did not say
    """

    uuid: str
    name: str
    extra_specs: dict[str, str]
    disks: tuple[DiskSource, ...]
    project: str = ""


@dataclasses.dataclass(frozen=True)
class Location:
    """Where a disk's data is on a mapped device of the target vcache.

    :param key: identity of the virtual disk on this host, which stays the same
        over restarts of the domain, the agent and the host
    :param device: the mapped device
    :param extents: its sectors there; empty in volume scope, where every
        sector is the disk's
    """

    key: str
    device: DeviceNumber
    extents: Extents = ()


@dataclasses.dataclass(frozen=True)
class DiskState:
    """A disk of a domain that runs or is about to.

    :param specs: what its flavor asks for
    :param location: where it is, or None when it cannot be tagged
    :param reason: why it cannot be tagged
    :param cgroup: id of the domain's cgroup, when it has one
    """

    domain: Domain
    source: DiskSource
    specs: ExtraSpecs
    location: Location | None
    reason: str = ""
    cgroup: int | None = None

    @property
    def label(self) -> str:
        """Return the name the kernel keeps for its tag."""
        name = f"{self.domain.uuid}:{self.source.target}"
        return name.encode()[:spec.NAME_MAX].decode(errors="ignore")


def lanes_of(mask: int) -> list[int]:
    """Return the numbers of the lanes in a mask."""
    return [lane for lane in range(mask.bit_length()) if mask >> lane & 1]


def mask_of(lanes: str | None) -> int:
    """Return the mask of lanes whose numbers are given, "1,3"; None, or nothing: no lane."""
    return sum({1 << int(lane) for lane in lanes.split(",")}) if lanes else 0
