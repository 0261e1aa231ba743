# SPDX-License-Identifier: Apache-2.0
"""Whether a periodic pass has anything to decide.

Most passes find what the pass before has found, and that pass had nothing to do. Then a pass
ends after it has read its inputs: it makes no decision, and looks at no disk. Each change that
is reported asks for a pass, which decides in any case. So do the changes that nobody reports:
time, another table below a file system, and a kernel's tag that was changed by hand.
"""

import dataclasses
import math
from collections.abc import Iterable, Mapping
from operator import attrgetter
from typing import NamedTuple

from vcache_agent.blockstack import BlockStack, NotOnVcache, Segment
from vcache_agent.inventory import Snapshot
from vcache_agent.locate import Located
from vcache_agent.migration.moves import Move
from vcache_agent.model import Device, DeviceNumber, DiskId, Tag
from vcache_agent.observe.sample import Sample
from vcache_agent.plan.state import Plan
from vcache_agent.records import DiskRow, LayerRow
from vcache_agent.swap import Swapped

# What the counters of devices and tags are called; their growth changes no decision about tags
# in use.
_COUNTERS = frozenset((
    "tags", "stats", "dirty_bytes", "inflight_bytes", "cached_bytes", "cache_dirty_bytes",
    "limit_bytes", "cache_share_bytes", "prefetch_waiting_bytes", "prefetched_bytes",
    "cache_own_bytes", "cache_hot_bytes", "dirty_age_ms", "cache_dirty_age_ms"))
_DEVICE, _TAG = (attrgetter(*(field.name for field in dataclasses.fields(kind)
                              if field.name not in _COUNTERS)) for kind in (Device, Tag))
# Progress of stopped instances' caches that ends only when time passes or a domain starts.
_RESTING = frozenset(("listed", "released", "swapped out"))

Segments = Mapping[DeviceNumber, list[Segment] | None]


class Inputs(NamedTuple):
    """What a pass depends on, apart from the time.

    :param devices: the kernel's devices, without counters
    :param tags: the kernel's tags, without counters
    :param segments: what is below the file systems and block devices of disks
    :param locations: version of the locations of disks
    :param store: version of the store
    :param moves: the migrations
    :param survey: the newest sample with curves, if it matters
    """

    snapshot: Snapshot
    devices: tuple[object, ...]
    tags: tuple[object, ...]
    segments: Segments
    locations: int
    store: int
    moves: Mapping[str, Move]
    survey: Sample | None


def without_counters(devices: Iterable[Device],
                     tags: Iterable[Tag]) -> tuple[tuple[object, ...], tuple[object, ...]]:
    """Return what may matter of devices and tags."""
    return tuple(map(_DEVICE, devices)), tuple(map(_TAG, tags))


def segments(stack: BlockStack, numbers: Iterable[DeviceNumber]) -> Segments:
    """Return what is below some devices; None: no vcache device, or it is unknown."""
    found: dict[DeviceNumber, list[Segment] | None] = {}
    for number in numbers:
        try:
            found[number] = stack.segments(number)
        except NotOnVcache:
            found[number] = None
    return found


def rests(plan: Plan, moves: Mapping[str, Move], located: Iterable[Located],
          swapped: Iterable[Swapped]) -> bool:
    """Return True if a pass has done nothing, and waits for nothing.

    :param moves: the migrations; while there is one, counters matter
    :param located: the locations of the disks
    :param swapped: the progress of stopped instances' caches
    """
    return not plan.actions and not plan.rows and not moves \
        and all(orphan.device is None for orphan in plan.orphans) \
        and not any(found.unknown for found in located) \
        and all(report.state in _RESTING for report in swapped)


def until(rows: Mapping[DiskId, DiskRow], layers: Mapping[str, LayerRow], now: float,
          *periods: float) -> float:
    """Return the Unix time at which a decision changes because time has passed.

    :param periods: seconds after which something happens to what no domain uses
    """
    kept: list[DiskRow | LayerRow] = [*rows.values(), *layers.values()]
    released = [row.released for row in kept if row.released is not None]
    times = (at + period for at in released for period in periods)
    return min((time for time in times if time >= now), default=math.inf)
