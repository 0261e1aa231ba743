# SPDX-License-Identifier: Apache-2.0
"""The wanted state of each tag: name, weight, cgroups, mode, demand on its pool."""

import dataclasses
from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from typing import NamedTuple

from nova_vcache.extra_specs import Isolation, Mode
from vcache_agent.decide.slo import Level
from vcache_agent.model import Device, DiskId, DiskState, Extents, Owner
from vcache_agent.netlink import spec
from vcache_agent.plan import modes
from vcache_agent.plan.actions import SetTag, TagKey
from vcache_agent.plan.assign import Assigned, Place
from vcache_agent.plan.modes import Effective
from vcache_agent.plan.state import KernelState
from vcache_agent.policies import ANYTHING, Demand, Range
from vcache_agent.records import DiskRow


class WantedTag(NamedTuple):
    """The wanted state of a tag, before its pool is divided.

    :param properties: without the range in the pool
    :param extents: None: they stay as they are
    :param demand: its demand on the pool; None without a pool
    :param lanes: lanes that an operator has set; None: as `isolation` requests
    :param level: objectives for reads, of its home device only
    :param flush_s: objective for the p99 of its flushes in seconds; 0: none
    """

    device: Device
    properties: SetTag
    extents: Extents | None
    demand: Demand | None
    isolation: Isolation
    lanes: str | None = None
    level: Level = Level()
    flush_s: float = 0.0

    @property
    def key(self) -> TagKey:
        """Device and number."""
        return self.device.number, self.properties.tag


@dataclasses.dataclass(frozen=True)
class WantedDisk:
    """A disk or a shared layer with the wanted state of its tags.

    :param given: the mode that it gets on its home device
    :param weight: its weight
    :param tags: its tags, that of its home first
    :param limited: why it may not have the mode that was requested, or empty
    """

    item: Assigned
    given: Effective
    weight: int
    tags: tuple[WantedTag, ...]
    limited: str = ""


def disks(tagged: Iterable[Assigned], rows: Mapping[DiskId, DiskRow],
          kernel: KernelState) -> list[WantedDisk]:
    """Return the wanted state of the disks' tags.

    :param tagged: the disks, without shared layers
    :param rows: the store's disks, with the settings of operators
    """
    tagged = list(tagged)
    parts: Counter[str] = Counter()
    for item in tagged:
        if item.home.device.pool:
            parts.update({user.domain.uuid for user in deciding(item.holder.users)})
    return [_disk(item, rows, kernel, parts) for item in tagged]


def deciding(users: Sequence[DiskState]) -> Sequence[DiskState]:
    """Return those users of a disk whose settings count.

    The type of a managed volume wins over the flavors of the instances that have it attached.
    Their limits do not count either: all hosts reach the volume through this host's device.
    """
    return [user for user in users if user.domain.owner is Owner.VOLUME] or users


def _disk(item: Assigned, rows: Mapping[DiskId, DiskRow], kernel: KernelState,
          parts: Mapping[str, int]) -> WantedDisk:
    users = deciding(item.holder.users)
    found = [row for user in users if (row := rows.get(user.id))]
    weight = max([row.weight for row in found if row.weight is not None]
                 or [user.specs.weight for user in users])
    asked = modes.requested((user.specs.mode for user in users),
                            [row.mode for row in found if row.mode is not None])
    lanes = next((row.lanes for row in found if row.lanes is not None), None)
    limits = _range(users, parts)
    tags = []
    for number, place in enumerate(item.places):
        # Layers on another device get no second guarantee and no lanes of their own.
        at_home = number == 0
        given = modes.effective_mode(
            modes.at_most(asked, modes.limit(users, place.device)[0]), place.device)
        demand = Demand(weight, limits if at_home else Range(0, limits.most),
                        given.mode in modes.CACHED) if place.device.pool else None
        tags.append(WantedTag(
            place.device, SetTag(place.device.number, place.number,
                                 _name(place, users, kernel), weight, _cgroups(item, place),
                                 modes.kernel_mode(given.mode, place.device)),
            place.extents, demand, _isolation(users) if at_home else Isolation.SHARED,
            lanes if at_home else None, _level(users) if at_home else Level(),
            _strictest(user.specs.slo_flush_ms for user in users) / 1e3))
    most, reason = modes.limit(users, item.home.device)
    allowed = modes.at_most(asked, most)
    return WantedDisk(item, modes.effective_mode(allowed, item.home.device), weight, tuple(tags),
                      "" if allowed is asked else reason)


def shared_layers(tagged: Iterable[Assigned], of_disks: Sequence[WantedDisk],
                  without: Iterable[DiskState]) -> list[WantedDisk]:
    """Return the wanted state of the shared layers' tags.

    The weight of a disk counts for all its data. So each of its shared layers gets the
    weight divided by one more than their number, and a shared layer has the sum of what its
    users give, at least 1 and at most WEIGHT_MAX. The disks' own weights stay as they are.

    :param tagged: the shared layers
    :param of_disks: the disks
    :param without: disks that have no tag, but use shared layers
    """
    tagged = list(tagged)
    gives = {id(user): (disk.weight / len(disk.item.holder.users), disk.given)
             for disk in of_disks for user in disk.item.holder.users}
    gives |= {id(user): (float(user.specs.weight), Effective(user.specs.mode))
              for user in without}
    layers: Counter[int] = Counter()
    for item in tagged:
        layers.update(id(user) for user in item.holder.users)
    found = []
    for item in tagged:
        users = [user for user in item.holder.users if id(user) in gives]
        total = sum(gives[id(user)][0] / (1 + layers[id(user)]) for user in users)
        weight = min(max(int(total), 1), spec.WEIGHT_MAX)
        asked = modes.of_shared_layer(gives[id(user)][1].mode for user in users)
        found.append(_shared(item, weight, asked))
    return found


def _shared(item: Assigned, weight: int, asked: Mode) -> WantedDisk:
    (name,) = item.holder.names
    tags = []
    for place in item.places:
        given = modes.effective_mode(asked, place.device)
        tags.append(WantedTag(
            place.device, SetTag(
                place.device.number, place.number, name, weight,
                None if place.device.scope is spec.Scope.VOLUME else (),
                modes.kernel_mode(given.mode, place.device)),
            place.extents,
            Demand(weight, ANYTHING, given.mode in modes.CACHED) if place.device.pool else None,
            Isolation.SHARED))
    return WantedDisk(item, modes.effective_mode(asked, item.home.device), weight, tuple(tags))


def shared_by_user(shared: Iterable[WantedDisk]) -> dict[DiskId, list[TagKey]]:
    """Return the tags of the shared layers that each disk uses."""
    found: dict[DiskId, list[TagKey]] = defaultdict(list)
    for layer in shared:
        for user in layer.item.holder.users:
            found[user.id] += [tag.key for tag in layer.tags]
    return found


def _cgroups(item: Assigned, place: Place) -> tuple[int, ...] | None:
    """Return the cgroups of a tag; None: they stay as they are."""
    if place.device.scope is spec.Scope.VOLUME:
        return None  # the table line sets the tag of all I/O, so cgroups do not matter
    found = all_cgroups(item.holder.users)
    if not found and item.holder.unknown:
        return None
    return tuple(found[:spec.CGROUPS_MAX])


def all_cgroups(users: Iterable[DiskState]) -> list[int]:
    """Return the cgroups of a disk's domains, sorted; they may be too many."""
    return sorted({user.cgroup for user in users if user.cgroup is not None})


def _name(place: Place, users: Sequence[DiskState], kernel: KernelState) -> str:
    """Return the name of a tag: the label of one of the disks that use it.

    The name stays while its domain uses the disk, because statistics refer to it.
    """
    present = kernel.tags.get((place.device.number, place.number))
    labels = [user.label for user in users]
    return present.name if present is not None and present.name in labels else labels[0]


def _range(users: Sequence[DiskState], parts: Mapping[str, int]) -> Range:
    """Return the minimum and maximum that the flavors give a disk, in bytes.

    The flavor's values apply to the instance. Each of its disks that can have a cache
    gets an equal part, in whole MiB.

    :param parts: number of disks whose device has a pool, by UUID of the domain
    """
    least, most = 0, 0
    for user in users:
        count = max(parts.get(user.domain.uuid, 1), 1)
        least = max(least, user.specs.min_mb // count)
        if user.specs.max_mb is not None:
            most = max(most, user.specs.max_mb // count, 1)
    limited = all(user.specs.max_mb is not None for user in users)
    return Range(least << 20, most << 20 if limited else 0)


def _isolation(users: Iterable[DiskState]) -> Isolation:
    """Return the strictest isolation that the flavors of a disk's domains request."""
    asked = {user.specs.isolation for user in users}
    return next(one for one in (Isolation.DEDICATED, Isolation.AUTO, Isolation.SHARED)
                if one in asked)


def _level(users: Sequence[DiskState]) -> Level:
    """Return the strictest objectives for reads of a disk's domains."""
    read = _strictest(user.specs.slo_read_us for user in users)
    iops = max((user.specs.slo_iops or 0.0 for user in users), default=0.0)
    return Level(read / 1e6 or None, iops or None)


def _strictest(values: Iterable[float | None]) -> float:
    """Return the least value that is given; 0: none is."""
    return min((value for value in values if value is not None), default=0.0)
