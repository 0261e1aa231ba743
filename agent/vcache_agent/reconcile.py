# SPDX-License-Identifier: Apache-2.0
"""Decide what has to change: libvirt's domains + the store + the kernel's tags → actions.

A pure function, so that any state can be tested. It is idempotent: after its actions
have been applied, it returns no further actions, even if an earlier run was
interrupted. So the agent handles its start and every event in the same way.
"""

import dataclasses
import re
from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from typing import NamedTuple

from nova_vcache.extra_specs import Isolation, Mode
from vcache_agent import lanes as lanes_of_pool
from vcache_agent import policies
from vcache_agent import tags as numbers
from vcache_agent.model import Device, DeviceNumber, DiskState, Extents, Location, Tag, mask_of
from vcache_agent.netlink import spec
from vcache_agent.policies import Demand, Range
from vcache_agent.store import Assignment

# Names of the tags that an agent has created: DiskState.label.
_LABEL = re.compile(r"[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}:.+")

TagKey = tuple[DeviceNumber, int]


@dataclasses.dataclass(frozen=True)
class World:
    """All inputs of a decision.

    :param disks: disks of the domains that run or are about to
    :param devices: the devices of the target
    :param tags: the kernel's tags
    :param complete: libvirt has listed the running domains, so all others are stopped
    :param defined: UUIDs of all domains that libvirt knows; None: unknown
    :param assignments: rows of the store by key of the disk
    :param last_tag: the tag number that was assigned last
    :param applied: extents that this agent has set, by device and tag
    :param missing: keys of released disks whose image no longer exists
    :param now: Unix time in seconds
    :param forget_after: seconds for which a disk keeps its tag number after libvirt no
        longer knows its domain
    :param policy: name of the policy that divides pools
    :param pools: known sizes of the pools in bytes, by device number; only for a policy
        that needs them
    :param lanes: known sizes of the pools' lanes in bytes, by device number; only if a tag
        has or requests dedicated lanes
    """

    disks: tuple[DiskState, ...]
    devices: tuple[Device, ...]
    tags: tuple[Tag, ...]
    complete: bool = True
    defined: frozenset[str] | None = None
    assignments: Mapping[str, Assignment] = dataclasses.field(default_factory=dict)
    last_tag: int = 0
    applied: Mapping[TagKey, Extents] = dataclasses.field(default_factory=dict)
    missing: frozenset[str] = frozenset()
    now: float = 0.0
    forget_after: float = 86400.0
    policy: str = policies.DEFAULT
    pools: Mapping[str, int] = dataclasses.field(default_factory=dict)
    lanes: Mapping[str, Sequence[int]] = dataclasses.field(default_factory=dict)


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


@dataclasses.dataclass(frozen=True)
class DiskReport:
    """The decision about one disk of one domain.

    :param tag: its tag; None: it runs untagged
    :param mode: the mode that it gets
    :param weight: the weight of its tag
    :param note: why it does not get what its flavor requests, or empty
    """

    state: DiskState
    tag: int | None
    mode: Mode
    weight: int = 0
    note: str = ""


@dataclasses.dataclass(frozen=True)
class Orphan:
    """A tag without a running domain, in the kernel or only in the store.

    :param device: None: the tag is only in the store
    :param reason: why the tag is kept
    """

    device: DeviceNumber | None
    tag: int
    name: str
    dirty_bytes: int
    reason: str


@dataclasses.dataclass(frozen=True)
class Plan:
    """The decision.

    :param actions: changes of the kernel's tags, in order
    :param changed: rows to write to the store
    :param forgotten: keys of rows to delete from the store
    :param last_tag: the tag number that was assigned last
    :param disks: the result for each disk of each domain
    :param orphans: tags without a running domain
    """

    actions: tuple[Action, ...]
    changed: tuple[Assignment, ...]
    forgotten: tuple[str, ...]
    last_tag: int
    disks: tuple[DiskReport, ...]
    orphans: tuple[Orphan, ...]


class Effective(NamedTuple):
    """The mode that a disk gets on its device.

    :param mode: the mode
    :param note: why it differs from the requested mode or does not work, or empty
    :param lacking: the mode gives less than the requested mode, or does not work now
    """

    mode: Mode
    note: str = ""
    lacking: bool = False


# From the least to the most use of the cache.
_ORDER = (Mode.NONE, Mode.FLUSH_ONLY, Mode.WRITETHROUGH, Mode.WRITEBACK)
_CACHED = (Mode.WRITEBACK, Mode.WRITETHROUGH)
_MODES = {mode: Mode(mode.name.lower().replace("_", "-")) for mode in spec.Mode}
_KERNEL_MODES = {ours: mode for mode, ours in _MODES.items()}


def effective_mode(asked: Mode, device: Device) -> Effective:
    """Return the mode that a disk gets on a device.

    :param asked: mode that its flavor requests
    """
    served = _MODES[device.mode]
    if asked is Mode.NONE:
        return Effective(asked)
    if served is Mode.WRITEBACK or asked is served:
        if asked in _CACHED and device.cache_broken:
            return Effective(asked, f"I/O to the cache of device {device.name} fails", True)
        return Effective(asked)
    if served is Mode.NONE:
        return Effective(served, f"device {device.name} is in mode none, which isolates nothing",
                         True)
    if served is Mode.FLUSH_ONLY:
        return Effective(served, f"{asked} needs a cache pool, but device {device.name} is in "
                         "mode flush-only", True)
    return Effective(served, f"device {device.name} is in mode {served} for all its tags",
                     _ORDER.index(served) < _ORDER.index(asked))


def plan(world: World) -> Plan:
    """Return the changes that make the kernel's tags match the domains."""
    return _Planner(world).plan()


class _Wish(NamedTuple):
    """The wanted state of a tag, before the pools are divided.

    :param demand: its demand on the pool; None without a pool
    """

    device: Device
    location: Location
    tag: SetTag
    demand: Demand | None
    isolation: Isolation


class _Planner:
    """The intermediate results of one decision."""

    def __init__(self, world: World) -> None:
        self.world = world
        self.devices = {device.number: device for device in world.devices}
        self.kernel: dict[TagKey, Tag] = {
            (tag.device, tag.id): tag for tag in world.tags if tag.id != numbers.HOST_TAG}
        self.rows = dict(world.assignments)
        self.by_tag = {row.tag: row for row in self.rows.values()}
        self.groups: dict[str, list[DiskState]] = defaultdict(list)
        self.taken = {tag for _, tag in self.kernel}
        self.taken |= self.by_tag.keys()
        self.last_tag = world.last_tag
        self.actions: list[Action] = []
        self.changed: list[Assignment] = []
        self.forgotten: list[str] = []
        self.reports: list[DiskReport] = []
        self.orphans: list[Orphan] = []
        self.used: set[TagKey] = set()
        # Number of disks whose device has a pool, by UUID of the domain.
        self.cached: Counter[str] = Counter()
        self.wishes: list[_Wish] = []
        # Notes about dedicated lanes that a tag requests and does not get.
        self.lacking: dict[TagKey, str] = {}

    def plan(self) -> Plan:
        groups = self.groups
        for state in sorted(self.world.disks, key=lambda disk: disk.label):
            if state.location is None or state.specs.mode is Mode.NONE:
                self.reports.append(DiskReport(state, None, Mode.NONE, note=state.reason))
            else:
                groups[state.location.key].append(state)
        for states in groups.values():
            if self._has_pool(states):
                self.cached.update({state.domain.uuid for state in states})
        for key, states in groups.items():
            self._disk(key, states)
        self._unused_tags()
        self._divide()
        self._unused_assignments()
        # Release sectors and lanes before other tags claim them.
        order = {DeleteTag: 0, SetTag: 1, SetLanes: 2, SetExtents: 2}
        self.actions.sort(key=lambda action: (
            order[type(action)] if not _frees(action) else 0))
        return Plan(tuple(self.actions), tuple(self.changed), tuple(self.forgotten),
                    self.last_tag, tuple(map(self._noted, self.reports)), tuple(self.orphans))

    def _noted(self, report: DiskReport) -> DiskReport:
        """Return a report with the note about dedicated lanes, if it has no other note."""
        location = report.state.location
        lacks = self.lacking.get((location.device, report.tag)) \
            if location and report.tag is not None else None
        return dataclasses.replace(report, note=lacks) if lacks and not report.note else report

    def _has_pool(self, states: list[DiskState]) -> bool:
        """Return True if the device of a disk has a pool."""
        location = states[0].location
        device = self.devices.get(location.device) if location else None
        return device is not None and bool(device.pool)

    def _disk(self, key: str, states: list[DiskState]) -> None:
        """Decide about one disk and the domains that use it."""
        location = states[0].location
        assert location is not None  # noqa: S101 - they were grouped by it
        device = self.devices.get(location.device)
        if device is None:
            self._untagged(states, f"device {location.device} no longer exists")
            return
        assigned = self.world.assignments.get(key)
        try:
            tag = self._number(device, key, states)
        except numbers.TagsExhausted as error:
            self._untagged(states, str(error))
            return
        if tag is None:
            self._untagged(states, f"device {device.name} has no tag in its table")
            return
        weight = max(state.specs.weight for state in states)
        if assigned is not None and assigned.weight is not None:
            weight = assigned.weight
        given = effective_mode(self._asked(states, assigned), device)
        cgroups = sorted({state.cgroup for state in states if state.cgroup is not None})
        excess = len(cgroups) > spec.CGROUPS_MAX
        owner = self._owner((device.number, tag), states)
        self.wishes.append(_Wish(device, location, SetTag(
            device.number, tag, owner.label, weight, tuple(cgroups[:spec.CGROUPS_MAX]),
            _KERNEL_MODES[given.mode] if device.mode is spec.Mode.WRITEBACK else None),
            Demand(weight, self._asked_range(states), given.mode in _CACHED)
            if device.pool else None, _isolation(states)))
        self.used.add((device.number, tag))
        conflict = self._assign(key, tag, owner, any(state.specs.persist for state in states))
        for state in states:
            note = given.note or _other_mode(state.specs.mode, given.mode)
            if excess:
                note = (f"more than {spec.CGROUPS_MAX} domains use the disk, some of them are not "
                        "isolated")
            note = conflict or note
            self.reports.append(DiskReport(state, tag, given.mode, weight, note))

    def _divide(self) -> None:
        """Divide the pools by the policy and add the actions of all tags."""
        of_pool: dict[str, list[_Wish]] = defaultdict(list)
        for wish in self.wishes:
            if wish.demand is None:
                self._kernel_tag(wish.device, wish.location, wish.tag, 0)
            else:
                of_pool[wish.device.pool].append(wish)
        for pool, wishes in of_pool.items():
            lanes = self._lanes(pool, wishes)
            # A tag that uses only dedicated lanes gets no part of the shared lanes.
            alone = {at: size for at, wish in enumerate(wishes)
                     if (size := self._alone(pool, wish, lanes[at]))}
            rest = [wish.demand for at, wish in enumerate(wishes)
                    if at not in alone and wish.demand is not None]
            ranges = iter(self._ranges(pool, rest, sum(alone.values())))
            for at, wish in enumerate(wishes):
                given = _within(wish.demand.asked, alone[at]) \
                    if at in alone and wish.demand else next(ranges)
                self._kernel_tag(wish.device, wish.location, dataclasses.replace(
                    wish.tag, cache_min=given.least, cache_max=given.most), lanes[at])

    def _lanes(self, pool: str, wishes: list[_Wish]) -> list[int]:
        """Return the dedicated lanes of a pool's tags, as bit masks.

        Lanes that an operator has set override those that the flavors request.
        """
        rows = [self.world.assignments.get(wish.location.key) for wish in wishes]
        keys = [(wish.device.number, wish.tag.tag) for wish in wishes]
        held = [self._held(key) for key in keys]
        found = [mask_of(row.lanes) if row and row.lanes is not None else had
                 for row, had in zip(rows, held, strict=True)]
        sizes = self.world.lanes.get(pool, ())
        if not sizes:
            # The lane sizes are unknown: every tag keeps its lanes.
            return found
        open_to = [at for at, row in enumerate(rows) if row is None or row.lanes is None]
        taken = 0
        for key in self.kernel.keys() - set(keys) - self._freed():
            if self._pool(key[0]) == pool:
                taken |= self._held(key)
        for at in set(range(len(wishes))) - set(open_to):
            taken |= found[at]
        claims = [lanes_of_pool.Claim(
            wishes[at].isolation if wish.demand.cached else Isolation.SHARED,
            wish.demand.asked.least, held[at])
            for at in open_to if (wish := wishes[at]).demand is not None]
        for at, given in zip(open_to, lanes_of_pool.assign(sizes, claims, taken), strict=True):
            found[at] = given
            wish = wishes[at]
            if wish.isolation is Isolation.DEDICATED and wish.demand and wish.demand.cached \
                    and not self._alone(pool, wish, given):
                self.lacking[keys[at]] = (
                    "vcache:isolation is dedicated, but the pool has no free lane"
                    if not given else
                    f"vcache:isolation is dedicated, but the {given.bit_count()} free lanes have "
                    "less than vcache:min_mb: the disk uses shared lanes, too")
        return found

    def _alone(self, pool: str, wish: _Wish, lanes: int) -> int:
        """Return the bytes of a tag's dedicated lanes if it uses only those, otherwise 0."""
        if wish.isolation is not Isolation.DEDICATED or wish.demand is None or not lanes:
            return 0
        size = lanes_of_pool.capacity(self.world.lanes.get(pool, ()), lanes)
        return size if size >= wish.demand.asked.least else 0

    def _held(self, key: TagKey) -> int:
        """Return the bit mask of a tag's current dedicated lanes."""
        found = self.kernel.get(key)
        return found.cache_lanes if found else 0

    def _pool(self, number: DeviceNumber) -> str:
        device = self.devices.get(number)
        return device.pool if device else ""

    def _freed(self) -> set[TagKey]:
        """Return the tags whose lanes the actions so far release."""
        return {(action.device, action.tag) for action in self.actions if _frees(action)
                and isinstance(action, SetLanes | DeleteTag)}

    def _ranges(self, pool: str, demands: list[Demand], alone: int) -> list[Range]:
        """Return the ranges of a pool's tags.

        :param alone: bytes of the pool in lanes of tags that use only dedicated lanes
        """
        policy = policies.POLICIES[self.world.policy]
        size = max(0, self.world.pools.get(pool, 0) - alone)
        if policy.sized and not size:
            return [demand.asked for demand in demands]
        # The host tags take part in the division, but get no limits.
        hosts = [Demand(tag.weight) for tag in self.world.tags
                 if tag.id == numbers.HOST_TAG and self._shares(tag, pool)]
        using = [at for at, demand in enumerate(demands) if demand.cached]
        given = policy.divide([*(demands[at] for at in using), *hosts], size)
        found = [demand.asked for demand in demands]
        for at, item in zip(using, given[:len(using)], strict=True):
            found[at] = item
        return found

    def _shares(self, tag: Tag, pool: str) -> bool:
        """Return True if the host tag of a device can have data in a pool.

        It cannot in scope volume, where all I/O has the tag of the volume.
        """
        device = self.devices.get(tag.device)
        return device is not None and device.pool == pool and \
            device.scope == spec.Scope.FILESYSTEM

    def _asked_range(self, states: list[DiskState]) -> Range:
        """Return the minimum and maximum that the flavors give a disk, in bytes.

        The flavor's values apply to the instance. Each of its disks that can have a cache
        gets an equal part, in whole MiB.
        """
        least, most = 0, 0
        for state in states:
            disks = self.cached[state.domain.uuid]
            least = max(least, state.specs.min_mb // disks)
            if state.specs.max_mb is not None:
                most = max(most, state.specs.max_mb // disks, 1)
        limited = all(state.specs.max_mb is not None for state in states)
        return Range(least << 20, most << 20 if limited else 0)

    @staticmethod
    def _asked(states: list[DiskState], assigned: Assignment | None) -> Mode:
        """Return the mode that an operator has set, or the highest that the flavors request."""
        if assigned is not None and assigned.mode is not None:
            return Mode(assigned.mode)
        return max((state.specs.mode for state in states), key=_ORDER.index)

    def _owner(self, key: TagKey, states: list[DiskState]) -> DiskState:
        """Return the domain's disk that names the tag, if several domains use the disk.

        The name stays while its domain uses the disk, because statistics refer to it.
        """
        found = self.kernel.get(key)
        return next((state for state in states if found and state.label == found.name), states[0])

    def _untagged(self, states: Iterable[DiskState], reason: str) -> None:
        self.reports += [DiskReport(state, None, Mode.NONE, note=reason) for state in states]

    def _number(self, device: Device, key: str, states: list[DiskState]) -> int | None:
        """Return the disk's tag number: from the table line, the store, the kernel, or new.

        :return: None if the device is in scope volume and has no tag
        """
        if device.scope == spec.Scope.VOLUME:
            return next((tag for number, tag in self.kernel if number == device.number), None)
        assigned = self.world.assignments.get(key)
        if assigned is not None:
            return assigned.tag
        labels = {state.label for state in states}
        for (number, tag), found in self.kernel.items():
            # The store was lost, but the kernel still has the tag.
            if number == device.number and found.name in labels and tag not in self.by_tag \
                    and (number, tag) not in self.used:
                return tag
        self.last_tag = numbers.allocate(self.last_tag, self.taken)
        self.taken.add(self.last_tag)
        return self.last_tag

    def _kernel_tag(self, device: Device, location: Location, wish: SetTag, lanes: int) -> None:
        """Add the actions that bring a tag to its wanted state."""
        tag = wish.tag
        found = self.kernel.get((device.number, tag))
        volume = device.scope == spec.Scope.VOLUME
        if volume:
            # The table line sets the tag of all I/O, so cgroups do not matter.
            wish = dataclasses.replace(wish, cgroups=None)
        if found is None or _differs(found, wish, device):
            self.actions.append(wish)
        had = found.cache_lanes if found else 0
        if lanes != had:
            self.actions.append(SetLanes(device.number, tag, lanes, had))
        if volume:
            return
        applied = self.world.applied.get((device.number, tag))
        in_force = (0, 0) if found is None else (found.extents_count, found.extents_sectors)
        wanted = (len(location.extents), sum(extent.length for extent in location.extents))
        if in_force != wanted or (applied != location.extents and wanted != (0, 0)):
            self.actions.append(SetExtents(device.number, tag, location.extents))

    def _assign(self, key: str, tag: int, state: DiskState, persist: bool) -> str:
        """Save a disk's tag; return a note if another disk has the same tag."""
        old = self.rows.get(key)
        other = self.by_tag.get(tag)
        if other is not None and other.key != key:
            # Only a table line, which the agent does not write, can cause this.
            if other.key in self.groups:
                return f"{other.path} has the same tag {tag}, tags should be unique"
            del self.rows[other.key]
            self.forgotten.append(other.key)
        row = Assignment(key, tag, state.domain.uuid, state.domain.name, state.source.target,
                         state.source.path or "", old.weight if old else None,
                         mode=old.mode if old else None, persist=persist,
                         lanes=old.lanes if old else None)
        if row != old:
            self.rows[key] = self.by_tag[tag] = row
            self.changed.append(row)
        return ""

    def _unused_tags(self) -> None:
        """Release the tags in the kernel that no domain uses."""
        for (number, tag), found in self.kernel.items():
            device = self.devices.get(number)
            if (number, tag) in self.used or device is None:
                continue
            if device.scope == spec.Scope.VOLUME:
                self._lend(found)
                continue
            if tag not in self.by_tag and not _LABEL.fullmatch(found.name):
                self._orphan(found, "not created by the agent, left unchanged")
            elif not self.world.complete:
                self._orphan(found, "libvirt does not answer whether its domain runs")
            else:
                self._release(found)

    def _lend(self, found: Tag) -> None:
        """Clear the limits and lanes of a volume that no domain uses.

        Its data stays in the cache until other tags need the space.
        """
        if self.world.complete and _LABEL.fullmatch(found.name) \
                and (found.cache_min_bytes or found.cache_max_bytes):
            self.actions.append(SetTag(found.device, found.id, found.name, found.weight, None,
                                       cache_min=0, cache_max=0))
        if self.world.complete and _LABEL.fullmatch(found.name) and found.cache_lanes:
            self.actions.append(SetLanes(found.device, found.id, 0, found.cache_lanes))

    def _release(self, found: Tag) -> None:
        """Remove a tag; while it has buffered data, only its cgroups and extents."""
        if not found.dirty_bytes and not found.inflight_bytes:
            self.actions.append(DeleteTag(found.device, found.id))
            return
        if found.extents_count:
            self.actions.append(SetExtents(found.device, found.id, ()))
        if found.cgroups:
            self.actions.append(SetTag(found.device, found.id, found.name, found.weight, ()))
        self._orphan(found, "its domain has stopped, but its data is not durable yet")

    def _orphan(self, found: Tag, reason: str) -> None:
        self.orphans.append(Orphan(found.device, found.id, found.name, found.dirty_bytes, reason))

    def _unused_assignments(self) -> None:
        """Record when disks are released; forget those whose domain no longer exists."""
        world = self.world
        if not world.complete:
            return
        in_kernel = {tag for _, tag in self.kernel}
        for key, row in list(self.rows.items()):
            if key in self.groups:
                continue
            if row.released is None:
                self.changed.append(dataclasses.replace(row, released=world.now))
            elif world.defined is None or row.domain in world.defined or row.tag in in_kernel:
                continue
            elif key in world.missing or world.now - row.released > world.forget_after:
                self.forgotten.append(key)
            else:
                self.orphans.append(Orphan(None, row.tag, f"{row.domain}:{row.target}", 0,
                                           "libvirt no longer knows its domain"))


def _differs(found: Tag, wish: SetTag, device: Device) -> bool:
    """Return True if a tag of the kernel differs from its wanted state."""
    # A device whose cache has failed does not report the modes of its tags.
    other_mode = wish.mode is not None and not device.cache_broken and found.mode is not wish.mode
    other_cache = (wish.cache_min not in (None, found.cache_min_bytes)
                   or wish.cache_max not in (None, found.cache_max_bytes))
    return other_mode or other_cache or found.name != wish.name or found.weight != wish.weight \
        or (wish.cgroups is not None and found.cgroups != frozenset(wish.cgroups))


def _other_mode(asked: Mode, given: Mode) -> str:
    """Return a note if a disk's mode is not the one of its flavor, or nothing."""
    if asked is given:
        return ""
    return (f"mode {given} instead of {asked}: set by an operator, or by the flavor of another "
            "domain that uses the disk")


def _within(asked: Range, size: int) -> Range:
    """Return a range limited to `size` bytes."""
    return Range(min(asked.least, size), min(asked.most or size, size))


def _isolation(states: Iterable[DiskState]) -> Isolation:
    """Return the strictest isolation that the flavors of a disk's domains request."""
    asked = {state.specs.isolation for state in states}
    return next(one for one in (Isolation.DEDICATED, Isolation.AUTO, Isolation.SHARED)
                if one in asked)


def _frees(action: Action) -> bool:
    """Return True if an action only releases sectors or lanes, which other tags may claim."""
    return (isinstance(action, SetExtents) and not action.extents) or \
        isinstance(action, DeleteTag) or \
        (isinstance(action, SetLanes) and not action.lanes & ~action.had)
