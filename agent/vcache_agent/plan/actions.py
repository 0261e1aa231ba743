# SPDX-License-Identifier: Apache-2.0
"""Changes of the kernel's tags: their types, and the difference between wanted and present."""

import dataclasses
from collections.abc import Iterable, Mapping

from vcache_agent.model import Device, DeviceNumber, Extents, Tag
from vcache_agent.netlink import spec
from vcache_agent.packed_extents import sectors_of

TagKey = tuple[DeviceNumber, int]


@dataclasses.dataclass(frozen=True)
class SetTag:
    """Create or change a tag; fields that are None stay unchanged.

    :param cgroups: ids of the cgroups whose I/O gets the tag
    :param mode: mode of the tag; only a device in mode writeback offers a choice
    :param cache_min: lower bound of its share of the cache in bytes
    :param cache_max: upper bound of its cached data in bytes; 0: no limit
    """

    device: DeviceNumber
    tag: int
    name: str
    weight: int
    cgroups: tuple[int, ...] | None
    mode: spec.Mode | None = None
    cache_min: int | None = None
    cache_max: int | None = None


@dataclasses.dataclass(frozen=True)
class SetLanes:
    """Set the dedicated lanes of a tag; all tags share the lanes that it had before.

    This is separate from SetTag, which must succeed even if the kernel refuses the lanes.

    :param lanes: bit mask of the lanes
    :param had: bit mask of its current lanes
    """

    device: DeviceNumber
    tag: int
    lanes: int
    had: int = 0


@dataclasses.dataclass(frozen=True)
class SetExtents:
    """Replace a tag's extents."""

    device: DeviceNumber
    tag: int
    extents: Extents


@dataclasses.dataclass(frozen=True)
class DeleteTag:
    """Remove a tag that no domain uses."""

    device: DeviceNumber
    tag: int


Action = SetTag | SetLanes | SetExtents | DeleteTag


def changes(device: Device, wish: SetTag, lanes: int, extents: Extents | None,
            present: Tag | None, applied: Extents | None) -> list[Action]:
    """Return the actions that bring a tag to its wanted state.

    :param wish: its wanted properties
    :param lanes: bit mask of its wanted lanes
    :param extents: its wanted extents; None: they stay as they are
    :param present: the kernel's tag; None: there is none
    :param applied: the extents that this agent has set; None: unknown
    """
    found: list[Action] = []
    if present is None or _differs(present, wish, device):
        found.append(wish)
    had = present.cache_lanes if present else 0
    if lanes != had:
        found.append(SetLanes(device.number, wish.tag, lanes, had))
    if extents is None or device.scope is spec.Scope.VOLUME:
        return found
    in_force = (0, 0) if present is None else (present.extents_count, present.extents_sectors)
    wanted = (len(extents), sectors_of(extents))
    if in_force != wanted or (applied != extents and wanted != (0, 0)):
        found.append(SetExtents(device.number, wish.tag, extents))
    return found


def _differs(present: Tag, wish: SetTag, device: Device) -> bool:
    """Return True if a tag of the kernel differs from its wanted state."""
    # A device whose cache has failed does not report the modes of its tags.
    other_mode = wish.mode is not None and not device.cache_broken \
        and present.mode is not wish.mode
    other_cache = (wish.cache_min not in (None, present.cache_min_bytes)
                   or wish.cache_max not in (None, present.cache_max_bytes))
    return other_mode or other_cache or present.name != wish.name \
        or present.weight != wish.weight \
        or (wish.cgroups is not None and present.cgroups != frozenset(wish.cgroups))


def in_order(actions: Iterable[Action]) -> tuple[Action, ...]:
    """Return the actions in an order in which sectors and lanes are released before use."""
    order: Mapping[type, int] = {DeleteTag: 0, SetTag: 1, SetLanes: 2, SetExtents: 2}
    return tuple(sorted(actions, key=lambda action: (
        0 if _releases(action) else order[type(action)])))


def freed_lanes(actions: Iterable[Action]) -> frozenset[TagKey]:
    """Return the tags whose lanes the actions release."""
    return frozenset((action.device, action.tag) for action in actions
                     if isinstance(action, SetLanes | DeleteTag) and _releases(action))


def _releases(action: Action) -> bool:
    """Return True if an action only releases sectors or lanes, which other tags may claim."""
    return (isinstance(action, SetExtents) and not action.extents) or \
        isinstance(action, DeleteTag) or \
        (isinstance(action, SetLanes) and not action.lanes & ~action.had)
