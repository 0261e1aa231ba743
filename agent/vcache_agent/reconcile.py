# SPDX-License-Identifier: Apache-2.0
"""Decide what has to change: libvirt's domains + intent + the kernel's tags → actions.

A pure function, so that any state can be tested. Applying its actions and
asking again yields no more actions, whatever was interrupted in between; that
is why every start of the agent, and every event, is simply a reconcile.
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

# Names that we give to tags: DiskState.label.
_LABEL = re.compile(r"[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}:.+")

TagKey = tuple[DeviceNumber, int]


@dataclasses.dataclass(frozen=True)
class World:
    """Everything a decision is made from.

    :param disks: disks of the domains that run or are about to
    :param complete: libvirt has said which domains run, so others do not
    :param defined: UUIDs of all domains libvirt knows; None when unknown
    :param assignments: the intent, by key of the disk
    :param last_tag: the tag number given last
    :param applied: extents this agent has set, by device and tag
    :param missing: keys of released disks whose image is no more
    :param now: Unix time
    :param forget_after: seconds that the tag number of a disk whose domain
        libvirt no longer knows is kept for it
    :param policy: name of the one that divides pools
    :param pools: sizes of the pools in bytes, by number; of those that are known, and
        only for a policy that divides by them
    :param lanes: sizes of the pools' lanes in bytes, by number; likewise, where lanes matter
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
    """Make a tag or change it.

    :param cgroups: None: as they are
    :param mode: None: as it is; only a device in mode writeback has a choice
    :param cache_min: bytes that its share of the cache is at least; None: as it is
    :param cache_max: bytes of the cache that it has at most, 0: no limit; None: as it is
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
    """Give a tag lanes of its pool for itself, a bit each; what it had is all tags' again.

    Not a part of SetTag: lanes may be refused, and the tag has to be set all the same.

    :param had: those that it has now
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
    """Remove a tag that nobody uses."""

    device: DeviceNumber
    tag: int


Action = SetTag | SetLanes | SetExtents | DeleteTag


@dataclasses.dataclass(frozen=True)
class DiskReport:
    """What became of a disk of a domain.

    :param tag: its tag, or None when it runs untagged
    :param mode: what it gets
    :param note: why it gets less than its flavor asks for, or other than usual
    """

    state: DiskState
    tag: int | None
    mode: Mode
    weight: int = 0
    note: str = ""


@dataclasses.dataclass(frozen=True)
class Orphan:
    """A tag, in the kernel or only intended, without a running domain."""

    device: DeviceNumber | None
    tag: int
    name: str
    dirty_bytes: int
    reason: str


@dataclasses.dataclass(frozen=True)
class Plan:
    """What to do, and how things stand once it is done."""

    actions: tuple[Action, ...]
    changed: tuple[Assignment, ...]
    forgotten: tuple[str, ...]
    last_tag: int
    disks: tuple[DiskReport, ...]
    orphans: tuple[Orphan, ...]


class Effective(NamedTuple):
    """What a disk gets on its device.

    :param mode: the mode
    :param note: why it is not the one that was asked for, or empty
    :param lacking: it is less than that, or does not work at present
    """

    mode: Mode
    note: str = ""
    lacking: bool = False


# From what has least of the cache to what has most.
_ORDER = (Mode.NONE, Mode.FLUSH_ONLY, Mode.WRITETHROUGH, Mode.WRITEBACK)
_CACHED = (Mode.WRITEBACK, Mode.WRITETHROUGH)
_MODES = {mode: Mode(mode.name.lower().replace("_", "-")) for mode in spec.Mode}
_KERNEL_MODES = {ours: mode for mode, ours in _MODES.items()}


def effective_mode(asked: Mode, device: Device) -> Effective:
    """Return what a disk gets on a device when its flavor asks for something."""
    served = _MODES[device.mode]
    if asked is Mode.NONE:
        return Effective(asked)
    if served is Mode.WRITEBACK or asked is served:
        if asked in _CACHED and device.cache_broken:
            return Effective(asked, f"the cache of device {device.name} fails at present", True)
        return Effective(asked)
    if served is Mode.NONE:
        return Effective(served, f"device {device.name} is in mode none, which isolates nothing",
                         True)
    if served is Mode.FLUSH_ONLY:
        return Effective(served, f"{asked} needs a cache pool, which device {device.name} does "
                         "not have: it is flush-only", True)
    return Effective(served, f"device {device.name} is in mode {served}, for all its tags",
                     _ORDER.index(served) < _ORDER.index(asked))


def plan(world: World) -> Plan:
    """Return what has to change so that the kernel does what the domains ask for."""
    return _Planner(world).plan()


class _Wish(NamedTuple):
    """A tag as it should be, but for what it has of a cache.

    :param demand: on its pool; None without one
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
        # Of each domain: disks whose device has a cache.
        self.cached: Counter[str] = Counter()
        self.wishes: list[_Wish] = []
        # Of tags: what they lack that only the others of their pool decide about.
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
        # Sectors and lanes are given up before others claim them.
        order = {DeleteTag: 0, SetTag: 1, SetLanes: 2, SetExtents: 2}
        self.actions.sort(key=lambda action: (
            order[type(action)] if not _frees(action) else 0))
        return Plan(tuple(self.actions), tuple(self.changed), tuple(self.forgotten),
                    self.last_tag, tuple(map(self._noted, self.reports)), tuple(self.orphans))

    def _noted(self, report: DiskReport) -> DiskReport:
        """Return a report with what its tag lacks of its pool."""
        location = report.state.location
        lacks = self.lacking.get((location.device, report.tag)) \
            if location and report.tag is not None else None
        return dataclasses.replace(report, note=lacks) if lacks and not report.note else report

    def _has_pool(self, states: list[DiskState]) -> bool:
        """Tell whether the device of a disk has a cache."""
        location = states[0].location
        device = self.devices.get(location.device) if location else None
        return device is not None and bool(device.pool)

    def _disk(self, key: str, states: list[DiskState]) -> None:
        """Decide about one disk and the domains that use it."""
        location = states[0].location
        assert location is not None  # noqa: S101 - they were grouped by it
        device = self.devices.get(location.device)
        if device is None:
            self._untagged(states, f"device {location.device} has gone")
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
                note = f"used by more than {spec.CGROUPS_MAX} domains, some are not isolated"
            note = conflict or note
            self.reports.append(DiskReport(state, tag, given.mode, weight, note))

    def _divide(self) -> None:
        """Divide the pools among the tags, by the policy, and add the tags' actions."""
        of_pool: dict[str, list[_Wish]] = defaultdict(list)
        for wish in self.wishes:
            if wish.demand is None:
                self._kernel_tag(wish.device, wish.location, wish.tag, 0)
            else:
                of_pool[wish.device.pool].append(wish)
        for pool, wishes in of_pool.items():
            lanes = self._lanes(pool, wishes)
            # Who is isolated by lanes has these, and nothing of what is divided.
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
        """Return the lanes of the tags of a pool: an operator's, or as the flavors ask."""
        rows = [self.world.assignments.get(wish.location.key) for wish in wishes]
        keys = [(wish.device.number, wish.tag.tag) for wish in wishes]
        held = [self._held(key) for key in keys]
        found = [mask_of(row.lanes) if row and row.lanes is not None else had
                 for row, had in zip(rows, held, strict=True)]
        sizes = self.world.lanes.get(pool, ())
        if not sizes:
            # Not known: whoever has lanes keeps them.
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
                    "vcache:isolation is dedicated, and the pool has no lane left for it"
                    if not given else
                    f"vcache:isolation is dedicated, and {given.bit_count()} lanes are left, "
                    "which hold less than vcache:min_mb: it shares the others' lanes, too")
        return found

    def _alone(self, pool: str, wish: _Wish, lanes: int) -> int:
        """Return the size of a tag's lanes if they are all that it has, else 0."""
        if wish.isolation is not Isolation.DEDICATED or wish.demand is None or not lanes:
            return 0
        size = lanes_of_pool.capacity(self.world.lanes.get(pool, ()), lanes)
        return size if size >= wish.demand.asked.least else 0

    def _held(self, key: TagKey) -> int:
        """Return the lanes that a tag has now."""
        found = self.kernel.get(key)
        return found.cache_lanes if found else 0

    def _pool(self, number: DeviceNumber) -> str:
        device = self.devices.get(number)
        return device.pool if device else ""

    def _freed(self) -> set[TagKey]:
        """Return the tags that give up their lanes now."""
        return {(action.device, action.tag) for action in self.actions if _frees(action)
                and isinstance(action, SetLanes | DeleteTag)}

    def _ranges(self, pool: str, demands: list[Demand], alone: int) -> list[Range]:
        """Return what the tags of a pool may have of it.

        :param alone: bytes of it that others have for themselves
        """
        policy = policies.POLICIES[self.world.policy]
        size = max(0, self.world.pools.get(pool, 0) - alone)
        if policy.sized and not size:
            return [demand.asked for demand in demands]
        # The host's own tags have a part, too: what nobody is given.
        hosts = [Demand(tag.weight) for tag in self.world.tags
                 if tag.id == numbers.HOST_TAG and self._shares(tag, pool)]
        using = [at for at, demand in enumerate(demands) if demand.cached]
        given = policy.divide([*(demands[at] for at in using), *hosts], size)
        found = [demand.asked for demand in demands]
        for at, item in zip(using, given[:len(using)], strict=True):
            found[at] = item
        return found

    def _shares(self, tag: Tag, pool: str) -> bool:
        """Tell whether data of a tag may be in a pool: of hTag not in volume scope."""
        device = self.devices.get(tag.device)
        return device is not None and device.pool == pool and \
            device.scope == spec.Scope.FILESYSTEM

    def _asked_range(self, states: list[DiskState]) -> Range:
        """Return the least and the most bytes of cache that the flavors give a disk.

        They are an instance's: each of its disks that can have cache gets an equal
        part, in whole MiB.
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
        """Return the mode of a disk: an operator's, or the most that is asked for."""
        if assigned is not None and assigned.mode is not None:
            return Mode(assigned.mode)
        return max((state.specs.mode for state in states), key=_ORDER.index)

    def _owner(self, key: TagKey, states: list[DiskState]) -> DiskState:
        """Return whose name the tag of a disk has that several domains may use.

        Who has it keeps it as others come and go: statistics are looked up by it.
        """
        found = self.kernel.get(key)
        return next((state for state in states if found and state.label == found.name), states[0])

    def _untagged(self, states: Iterable[DiskState], reason: str) -> None:
        self.reports += [DiskReport(state, None, Mode.NONE, note=reason) for state in states]

    def _number(self, device: Device, key: str, states: list[DiskState]) -> int | None:
        """Return the disk's tag number: fixed, remembered, found in the kernel, or new."""
        if device.scope == spec.Scope.VOLUME:
            return next((tag for number, tag in self.kernel if number == device.number), None)
        assigned = self.world.assignments.get(key)
        if assigned is not None:
            return assigned.tag
        labels = {state.label for state in states}
        for (number, tag), found in self.kernel.items():
            # The intent has been lost, the kernel still knows.
            if number == device.number and found.name in labels and tag not in self.by_tag \
                    and (number, tag) not in self.used:
                return tag
        self.last_tag = numbers.allocate(self.last_tag, self.taken)
        self.taken.add(self.last_tag)
        return self.last_tag

    def _kernel_tag(self, device: Device, location: Location, wish: SetTag, lanes: int) -> None:
        """Add the actions that make the kernel's tag as it should be."""
        tag = wish.tag
        found = self.kernel.get((device.number, tag))
        volume = device.scope == spec.Scope.VOLUME
        if volume:
            # The table line says whose the I/O is.
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
        """Remember a disk's tag; return a note if that cannot be."""
        old = self.rows.get(key)
        other = self.by_tag.get(tag)
        if other is not None and other.key != key:
            # Only a table line, which knows nothing of us, can bring this about.
            if other.key in self.groups:
                return f"tag {tag} is also that of {other.path}, tags should be unique"
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
        """Let go of tags in the kernel that no domain uses."""
        for (number, tag), found in self.kernel.items():
            device = self.devices.get(number)
            if (number, tag) in self.used or device is None:
                continue
            if device.scope == spec.Scope.VOLUME:
                self._lend(found)
                continue
            if tag not in self.by_tag and not _LABEL.fullmatch(found.name):
                self._orphan(found, "not set by this agent, left alone")
            elif not self.world.complete:
                self._orphan(found, "libvirt cannot be asked whether its domain runs")
            else:
                self._release(found)

    def _lend(self, found: Tag) -> None:
        """Promise nothing to a volume that no domain uses; what it has stays until needed."""
        if self.world.complete and _LABEL.fullmatch(found.name) \
                and (found.cache_min_bytes or found.cache_max_bytes):
            self.actions.append(SetTag(found.device, found.id, found.name, found.weight, None,
                                       cache_min=0, cache_max=0))
        if self.world.complete and _LABEL.fullmatch(found.name) and found.cache_lanes:
            self.actions.append(SetLanes(found.device, found.id, 0, found.cache_lanes))

    def _release(self, found: Tag) -> None:
        """Remove a tag; while it has data that is not durable, only its I/O and sectors."""
        if not found.dirty_bytes and not found.inflight_bytes:
            self.actions.append(DeleteTag(found.device, found.id))
            return
        if found.extents_count:
            self.actions.append(SetExtents(found.device, found.id, ()))
        if found.cgroups:
            self.actions.append(SetTag(found.device, found.id, found.name, found.weight, ()))
        self._orphan(found, "its domain has stopped, its data is not durable yet")

    def _orphan(self, found: Tag, reason: str) -> None:
        self.orphans.append(Orphan(found.device, found.id, found.name, found.dirty_bytes, reason))

    def _unused_assignments(self) -> None:
        """Note when disks are released; forget those whose domain is no more."""
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
    """Tell whether a tag of the kernel is not as it should be."""
    # A device whose cache has failed does not say which mode its tags are in.
    other_mode = wish.mode is not None and not device.cache_broken and found.mode is not wish.mode
    other_cache = (wish.cache_min not in (None, found.cache_min_bytes)
                   or wish.cache_max not in (None, found.cache_max_bytes))
    return other_mode or other_cache or found.name != wish.name or found.weight != wish.weight \
        or (wish.cgroups is not None and found.cgroups != frozenset(wish.cgroups))


def _other_mode(asked: Mode, given: Mode) -> str:
    """Return a note for a disk whose flavor did not decide about its mode."""
    if asked is given:
        return ""
    return f"{given} instead of {asked}: set by hand, or for another domain that uses the disk"


def _within(asked: Range, size: int) -> Range:
    """Return a range that is not more than so many bytes."""
    return Range(min(asked.least, size), min(asked.most or size, size))


def _isolation(states: Iterable[DiskState]) -> Isolation:
    """Return what the flavors of a disk's domains ask for: the strictest."""
    asked = {state.specs.isolation for state in states}
    return next(one for one in (Isolation.DEDICATED, Isolation.AUTO, Isolation.SHARED)
                if one in asked)


def _frees(action: Action) -> bool:
    """Tell whether an action only gives up what others may be about to claim."""
    return (isinstance(action, SetExtents) and not action.extents) or \
        isinstance(action, DeleteTag) or \
        (isinstance(action, SetLanes) and not action.lanes & ~action.had)
