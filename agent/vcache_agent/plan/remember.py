# SPDX-License-Identifier: Apache-2.0
"""The rows of the store for the disks and layers in use."""

import dataclasses
from collections.abc import Iterable, Iterator, Mapping

from vcache_agent.model import DeviceNumber, DiskId, DiskState
from vcache_agent.plan.assign import Assigned
from vcache_agent.plan.holders import Known
from vcache_agent.plan.state import KernelState
from vcache_agent.records import DiskRow, LayerRow, RowChanges


def in_use(tagged: Iterable[Assigned], kernel: KernelState, rows: Mapping[DiskId, DiskRow],
           layers: Mapping[str, LayerRow]) -> RowChanges:
    """Return the rows that differ from those of the store.

    :param tagged: the disks and shared layers with a tag
    :param rows: the store's disks
    :param layers: the store's layers
    """
    known = Known(layers)
    disks: list[DiskRow] = []
    found: list[LayerRow] = []
    outdated: list[str] = []
    for item in tagged:
        if item.holder.shared:
            wanted = list(_shared_layer(item, known))
        else:
            disks += [_disk(item, user, rows.get(user.id)) for user in item.holder.users]
            wanted = list(_own_layers(item, kernel, known))
        for row in wanted:
            old = known.row(row.key, item.holder.users)
            if old is not None and old.key != row.key:
                outdated.append(old.key)
        found += wanted
    return RowChanges(
        disks=tuple(row for row in disks if row != rows.get(row.id)),
        layers=tuple(row for row in found if row != layers.get(row.key)),
        forgotten_layers=tuple(outdated))


def _disk(item: Assigned, user: DiskState, old: DiskRow | None) -> DiskRow:
    """Return the row of a disk. The settings of operators stay, whatever its layers are."""
    home = item.home
    if user.location is None and old is not None:
        # The location is unknown this time: the last known one stays.
        return dataclasses.replace(old, released=None)
    row = DiskRow(*user.id, home.number, user.domain.name, user.source.path or "",
                  item.holder.key if user.location else "", home.device.name,
                  user.source.target, persist=user.specs.persist)
    if old is None:
        return row
    return dataclasses.replace(row, weight=old.weight, mode=old.mode, lanes=old.lanes)


def _own_layers(item: Assigned, kernel: KernelState, known: Known) -> Iterator[LayerRow]:
    """Yield the rows of the located layers of a disk.

    The owner of a layer that disks of several domains write stays the same while it is one
    of them.
    """
    users = {user.id: user for user in item.holder.users}
    for location in item.holder.layers:
        old = known.row(location.key, item.holder.users)
        owner = old.owner if old is not None and old.owner in users else next(iter(users))
        path = item.holder.path if location.key == item.holder.key else old.path if old else ""
        yield LayerRow(location.key, path, _name(kernel, location.device), owner.domain,
                       owner.target)


def _shared_layer(item: Assigned, known: Known) -> Iterator[LayerRow]:
    """Yield the row of a shared layer; it remembers the disk that it once belonged to."""
    home = item.home
    old = known.row(item.holder.key, ())
    if not item.holder.layers:
        if old is not None:
            yield dataclasses.replace(old, released=None)
        return
    yield LayerRow(item.holder.key, item.holder.path, home.device.name,
                   old.domain if old else None, old.target if old else None, home.number)


def _name(kernel: KernelState, number: DeviceNumber) -> str:
    device = kernel.devices.get(number)
    return device.name if device is not None else ""
