# SPDX-License-Identifier: Apache-2.0
"""A model of the kernel's tags, and a host that reconciles repeatedly."""

import dataclasses

from nova_vcache.extra_specs import ExtraSpecs, Mode
from vcache_agent import policies
from vcache_agent.decide.history import History
from vcache_agent.model import (
    Backing,
    Device,
    DeviceNumber,
    DiskId,
    DiskSource,
    DiskState,
    Domain,
    Extent,
    Extents,
    Layer,
    Location,
    Tag,
)
from vcache_agent.netlink import spec
from vcache_agent.observe.sample import Sample
from vcache_agent.plan.actions import DeleteTag, SetExtents, SetLanes, SetTag
from vcache_agent.plan.decide import decide
from vcache_agent.plan.state import Nesting, Observed, Plan
from vcache_agent.records import DiskRow, LayerRow

FILES, VOLUME = DeviceNumber(254, 0), DeviceNumber(254, 1)


def device(number: DeviceNumber = FILES, scope: spec.Scope = spec.Scope.FILESYSTEM,
           mode: spec.Mode = spec.Mode.FLUSH_ONLY) -> Device:
    return Device(number, f"dm{number.minor}", mode, scope, spec.Isolation.FUA, 1 << 20, "8:0")


DEVICES = (device(), device(VOLUME, spec.Scope.VOLUME))


def uuid(number: int) -> str:
    return f"{number:08x}-0000-4000-8000-000000000000"


def disk(number: int, *, key: str | None = None, cgroup: int | None = None,
         extents: Extents | None = None, target: str = "vda",
         mode: Mode = Mode.FLUSH_ONLY, weight: int = 100,
         on: DeviceNumber = FILES) -> DiskState:
    key = key or (f"file:dm0:{number}" if on == FILES else f"volume:dm{on.minor}")
    if extents is None:
        extents = (Extent(number * 100, 50),) if on == FILES else ()
    return DiskState(
        Domain(uuid(number), f"vm{number}", {}, ()), DiskSource(target, "file", f"/{key}"),
        ExtraSpecs(mode=mode, weight=weight), Location(key, on, extents), "", cgroup)


def unknown(state: DiskState, reason: str = "its path hangs") -> DiskState:
    """Return a disk whose location could not be found out."""
    return dataclasses.replace(state, location=None, unknown=True, reason=reason)


def layer(key: str, start: int, length: int = 10, on: DeviceNumber = FILES) -> Layer:
    """Return a backing layer with one extent."""
    return Layer(f"/{key}", Location(key, on, (Extent(start, length),) if on != VOLUME else ()))


def lost(known: Layer) -> Layer:
    """Return a backing layer whose location could not be found out."""
    return Layer(known.path, None, unknown=True)


def over(state: DiskState, *layers: Layer, chain_known: bool = True) -> DiskState:
    """Return a disk with layers below its active one."""
    source = dataclasses.replace(state.source, chain_known=chain_known, backing=tuple(
        Backing("file", item.path) for item in layers))
    return dataclasses.replace(state, source=source, backing=layers)


class Kernel:
    """The kernel's tags, with the refusals of the real kernel."""

    def __init__(self, *volume_tags: int) -> None:
        self.modes = {item.number: item.mode for item in DEVICES}
        self.pools = {item.number: item.pool for item in DEVICES}
        self.tags = {(VOLUME, tag): Tag(VOLUME, tag) for tag in volume_tags}
        self.extents: dict[tuple[DeviceNumber, int], tuple[Extent, ...]] = {}

    def apply(self, decided: Plan, limit: int | None = None) -> None:
        for action in decided.actions[:limit]:
            key = (action.device, action.tag)
            if isinstance(action, DeleteTag):
                assert not self.tags[key].dirty_bytes, "dirty data must not be let go"
                del self.tags[key]
                self.extents.pop(key, None)
            elif isinstance(action, SetTag):
                tag = self.tags.get(key, Tag(*key, mode=self.modes[action.device]))
                if action.mode is not None:
                    assert self.modes[action.device] is spec.Mode.WRITEBACK
                    tag = dataclasses.replace(tag, mode=action.mode)
                assert action.device != VOLUME or key in self.tags
                if action.cache_min is not None and action.cache_max is not None:
                    assert self.pools[action.device], "a device without a pool has no cache"
                    assert not action.cache_max or action.cache_min <= action.cache_max
                    tag = dataclasses.replace(tag, cache_min_bytes=action.cache_min,
                                              cache_max_bytes=action.cache_max)
                cgroups = tag.cgroups if action.cgroups is None else frozenset(action.cgroups)
                assert len(cgroups) <= spec.CGROUPS_MAX
                self.tags[key] = dataclasses.replace(
                    tag, name=action.name, weight=action.weight, cgroups=cgroups)
            elif isinstance(action, SetLanes):
                assert not action.lanes or self.pools[action.device]
                assert action.had == self.tags[key].cache_lanes
                assert not any(action.lanes & tag.cache_lanes for other, tag in self.tags.items()
                               if other != key), "a lane is another tag's"
                self.tags[key] = dataclasses.replace(self.tags[key], cache_lanes=action.lanes)
            else:
                self._set_extents(action)

    def _set_extents(self, action: SetExtents) -> None:
        key = (action.device, action.tag)
        for other, extents in self.extents.items():
            if other != key and other[0] == key[0]:
                assert not any(a.start < b.start + b.length and b.start < a.start + a.length
                               for a in extents for b in action.extents), "claimed twice"
        self.extents[key] = tuple(action.extents)
        self.tags[key] = dataclasses.replace(
            self.tags[key], extents_count=len(action.extents),
            extents_sectors=sum(extent.length for extent in action.extents))

    def dirty(self, key: tuple[DeviceNumber, int], count: int) -> None:
        self.tags[key] = dataclasses.replace(self.tags[key], dirty_bytes=count)


class Host:
    """A world whose state persists from one decision to the next."""

    def __init__(self, *volume_tags: int) -> None:
        self.kernel = Kernel(*volume_tags)
        self.rows: dict[DiskId, DiskRow] = {}
        self.layers: dict[str, LayerRow] = {}
        self.last_tag = 0
        self.applied: dict[tuple[DeviceNumber, int], tuple[Extent, ...]] = {}
        self.now = 1000.0
        self.devices: tuple[Device, ...] = DEVICES
        self.policy = policies.DEFAULT
        self.pools: dict[str, int] = {}
        self.lanes: dict[str, tuple[int, ...]] = {}
        self.survey: Sample | None = None
        self.history = History()
        self.nesting = Nesting()

    def use(self, mode: spec.Mode, **fields: object) -> None:
        """Switch both devices to a mode, as a loaded table does."""
        self.devices = tuple(dataclasses.replace(item, mode=mode, **fields)  # type: ignore[arg-type]
                             for item in DEVICES)
        self.kernel.modes = {item.number: mode for item in DEVICES}
        self.kernel.pools = {item.number: item.pool for item in self.devices}
        self.kernel.tags = {key: dataclasses.replace(tag, mode=mode)
                            for key, tag in self.kernel.tags.items()}

    def decide(self, *disks: DiskState, complete: bool = True,
               defined: frozenset[str] | None = None,
               missing: frozenset[str] = frozenset()) -> Plan:
        return decide(Observed(
            disks=disks, devices=self.devices, tags=tuple(self.kernel.tags.values()),
            complete=complete, defined=defined, rows=self.rows, layers=self.layers,
            last_tag=self.last_tag, applied=self.applied, missing=missing, now=self.now,
            policy=self.policy, pools=self.pools, lanes=self.lanes, survey=self.survey,
            history=self.history, nesting=self.nesting))

    def remember(self, decided: Plan) -> None:
        self.history = decided.pools.history
        for disk_id in decided.rows.forgotten:
            del self.rows[disk_id]
        for key in decided.rows.forgotten_layers:
            del self.layers[key]
        for row in decided.rows.disks:
            old = self.rows.get(row.id, row)
            self.rows[row.id] = dataclasses.replace(row, weight=old.weight, mode=old.mode,
                                                    lanes=old.lanes)
        self.layers |= {layer.key: layer for layer in decided.rows.layers}
        assert decided.rows.last_tag is not None
        self.last_tag = decided.rows.last_tag

    def set(self, number: int, target: str = "vda", **fields: object) -> None:
        """Set weight, mode or lanes of a disk, as an operator does."""
        disk_id = DiskId(uuid(number), target)
        self.rows[disk_id] = dataclasses.replace(self.rows[disk_id], **fields)  # type: ignore[arg-type]

    def step(self, *disks: DiskState, complete: bool = True,
             defined: frozenset[str] | None = None,
             missing: frozenset[str] = frozenset()) -> Plan:
        decided = self.decide(*disks, complete=complete, defined=defined, missing=missing)
        self.remember(decided)
        self.kernel.apply(decided)
        self.applied = {key: self.kernel.extents[key] for key in self.kernel.extents}
        return decided


