# SPDX-License-Identifier: Apache-2.0
"""Which layers belong to which disk, and which layers disks share.

A **holder** is what one tag number is for: a disk, or a shared layer.

* The active layer belongs to the disk that writes it. If disks of several domains write
  the same layer, they are one disk with several users.
* A backing layer belongs to a disk if it once was the active layer of that disk, and no
  other disk uses it now. So after an external snapshot, a block commit or a block pull, a
  disk has the same tag with other extents. A layer above such a layer was an active one, too,
  even if the agent did not see it: two snapshots may follow each other quickly.
* Any other backing layer is shared, such as Nova's image in ``_base``. This also holds for
  a layer that only one disk uses, but that the agent never saw as an active one.
"""

import dataclasses
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence

from vcache_agent.inode import without_generation
from vcache_agent.model import DeviceNumber, DiskId, DiskState, Extents, Location, shared_label
from vcache_agent.packed_extents import merged
from vcache_agent.records import DiskRow, LayerRow


@dataclasses.dataclass(frozen=True)
class Holder:
    """A disk or a shared layer, and the places of its data.

    :param key: key of the active layer, or of the shared layer
    :param users: the disks of the domains that use it, sorted by their label
    :param shared: it is a shared layer
    :param path: host path of the active layer, or of the shared layer
    :param home: device of the active layer, or of the shared layer; None: unknown
    :param layers: the located layers that belong to it
    :param unknown: the location of a layer that belongs to it is unknown this time
    """

    key: str
    users: tuple[DiskState, ...]
    shared: bool = False
    path: str = ""
    home: DeviceNumber | None = None
    layers: tuple[Location, ...] = ()
    unknown: bool = False

    @property
    def names(self) -> tuple[str, ...]:
        """The names that its tag can have in the kernel."""
        return (shared_label(self.path),) if self.shared else \
            tuple(user.label for user in self.users)

    @property
    def devices(self) -> tuple[DeviceNumber, ...]:
        """The devices of its layers, the home first."""
        found = dict.fromkeys([self.home] if self.home is not None else [])
        return tuple(found | dict.fromkeys(layer.device for layer in self.layers))

    def extents(self, device: DeviceNumber) -> Extents:
        """Return its extents on a device."""
        return merged([layer.extents for layer in self.layers if layer.device == device])


@dataclasses.dataclass(frozen=True)
class Holders:
    """The holders of all disks.

    :param found: disks and shared layers
    :param unplaced: disks without a tag, because their active layer cannot have one; they
        can use shared layers nevertheless
    :param read: keys of all layers that a disk uses, also of those whose location is unknown
    :param unknown_paths: host paths of the layers whose location is unknown
    """

    found: tuple[Holder, ...]
    unplaced: tuple[DiskState, ...]
    read: frozenset[str]
    unknown_paths: frozenset[str]


class Known:
    """The layers of the store.

    :param layers: rows by key
    """

    def __init__(self, layers: Mapping[str, LayerRow]) -> None:
        self._layers = layers
        self._paths: dict[str, list[LayerRow]] = defaultdict(list)
        self._owned: dict[DiskId, list[LayerRow]] = defaultdict(list)
        for row in layers.values():
            self._paths[row.path].append(row)
            if row.owner is not None:
                self._owned[row.owner].append(row)

    def row(self, key: str, users: Iterable[DiskState]) -> LayerRow | None:
        """Return the row of a layer.

        The store of an older agent has keys without the generation of the inode. Such a row
        counts only for the disk that it belongs to: a reused number gives nothing to others.
        """
        row = self._layers.get(key)
        if row is None:
            old = self._layers.get(without_generation(key))
            if old is not None and old.owner in {user.id for user in users}:
                return old
        return row

    def of_domain(self, key: str, disk: DiskId) -> LayerRow | None:
        """Return the row of a layer if it belongs to a disk of the domain of `disk`."""
        row = self._layers.get(key)
        if row is None:
            old = self._layers.get(without_generation(key))
            return old if old is not None and old.owner == disk else None
        return row if row.domain == disk.domain else None

    def at(self, path: str) -> list[LayerRow]:
        """Return the rows of the layers that were found at a host path."""
        return self._paths.get(path, [])

    def owned(self, disk: DiskId) -> list[LayerRow]:
        """Return the rows of the layers that belong to a disk."""
        return self._owned.get(disk, [])


def find(disks: Sequence[DiskState], rows: Mapping[DiskId, DiskRow],
         layers: Mapping[str, LayerRow]) -> Holders:
    """Return the holders of the disks.

    :param disks: disks that request a tag
    :param rows: the store's disks
    :param layers: the store's layers
    """
    known = Known(layers)
    groups: dict[str, list[DiskState]] = defaultdict(list)
    unplaced = []
    for state in sorted(disks, key=lambda disk: disk.label):
        if state.location is None and not state.unknown:
            unplaced.append(state)
        else:
            groups[_active_key(state, rows)].append(state)
    chains = _chains(groups, unplaced, known)
    own: dict[str, list[_Use]] = defaultdict(list)
    found = []
    for key, uses in chains.items():
        owner = _owner(uses)
        if owner is None:
            found.append(_shared(key, uses))
        else:
            own[owner].append(next((use for use in uses if use.location), uses[0]))
    disks_found = [_disk(key, users, own[key]) for key, users in groups.items()]
    unknown_paths = {use.path for uses in chains.values() for use in uses if use.location is None}
    unknown_paths |= {layer.path for state in disks for layer in state.backing if layer.unknown}
    return Holders((*disks_found, *found), tuple(unplaced),
                   frozenset(groups.keys() | chains.keys()), frozenset(unknown_paths))


@dataclasses.dataclass(frozen=True)
class _Use:
    """The use of a backing layer by a disk.

    :param group: key of the disk's active layer; empty: the disk has no tag
    :param location: None: unknown this time
    :param own: it is or was an active layer of the disk
    """

    group: str
    user: DiskState
    path: str
    location: Location | None
    own: bool


def _active_key(state: DiskState, rows: Mapping[DiskId, DiskRow]) -> str:
    """Return the key of a disk's active layer, which is the last known one if it is unknown."""
    if state.location is not None:
        return state.location.key
    row = rows.get(state.id)
    return row.layer if row and row.layer else f"unknown:{state.label}"


def _chains(groups: Mapping[str, Sequence[DiskState]], unplaced: Iterable[DiskState],
            known: Known) -> dict[str, list[_Use]]:
    """Return the uses of each layer that only is a backing layer."""
    found: dict[str, list[_Use]] = defaultdict(list)
    uses = [(group, state) for group, states in groups.items() for state in states]
    uses += [("", state) for state in unplaced]
    # What one disk cannot locate this time, another one may have located.
    located = {layer.path: layer.location.key for _, state in uses for layer in state.backing
               if layer.location is not None}
    for group, state in uses:
        chain = list(_backing(state, known, located))
        own = [_owns(key, groups.get(group, ()), known) for key, *_ in chain]
        listed = [at for at, (*_, in_chain) in enumerate(chain) if in_chain and own[at]]
        for at, (key, path, location, _) in enumerate(chain):
            if key not in groups:
                found[key].append(_Use(group, state, path, location,
                                       own[at] or at < max(listed, default=0)))
    return found


def _owns(key: str, states: Sequence[DiskState], known: Known) -> bool:
    """Return True if a layer was an active one of a disk, as far as the store knows."""
    row = known.row(key, states)
    return row is not None and row.owner in {state.id for state in states}


def _backing(state: DiskState, known: Known,
             located: Mapping[str, str]) -> Iterable[tuple[str, str, Location | None, bool]]:
    """Yield key, host path and location of each backing layer that is or was on a device.

    The last value is whether the layer is in the chain, in its place from the top.

    :param located: keys of the layers that other disks have located, by host path
    """
    seen = set()
    for layer in state.backing:
        if layer.location is not None:
            seen.add(layer.location.key)
            yield layer.location.key, layer.path, layer.location, True
        elif layer.unknown:
            keys = {row.key for row in known.at(layer.path)}
            if layer.path in located:
                keys.add(located[layer.path])
            for key in sorted(keys - seen):
                seen.add(key)
                yield key, layer.path, None, True
    if not state.source.chain_known:
        # The disk may still use all layers that it had.
        active = state.location.key if state.location else ""
        for row in known.owned(state.id):
            if row.key not in seen and row.key not in (active, without_generation(active)):
                yield row.key, row.path, None, False


def _owner(uses: Sequence[_Use]) -> str | None:
    """Return the group that a backing layer belongs to; None: the layer is shared."""
    used_by = {use.group for use in uses}
    if len(used_by) != 1 or "" in used_by:
        return None
    return uses[0].group if any(use.own for use in uses) else None


def _disk(key: str, users: Sequence[DiskState], own: Sequence[_Use]) -> Holder:
    active = next((user.location for user in users if user.location is not None), None)
    located = [use.location for use in own if use.location is not None]
    return Holder(
        key, tuple(users), path=users[0].source.path or "",
        home=active.device if active else None,
        layers=(*([active] if active else []), *located),
        unknown=active is None or len(located) < len(own))


def _shared(key: str, uses: Sequence[_Use]) -> Holder:
    location = next((use.location for use in uses if use.location is not None), None)
    users = {use.user.id: use.user for use in uses}
    return Holder(
        key, tuple(sorted(users.values(), key=lambda user: user.label)), shared=True,
        path=uses[0].path, home=location.device if location else None,
        layers=(location,) if location else (), unknown=location is None)
