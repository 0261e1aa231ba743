# SPDX-License-Identifier: Apache-2.0
"""The tag numbers of disks and shared layers.

A disk has one number on all devices of scope filesystem, normally the one that the
store remembers. On a device of scope volume the table line sets the number.
"""

import dataclasses
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping
from typing import NamedTuple

from vcache_agent import tags as numbers
from vcache_agent.model import Device, DeviceNumber, DiskId, Extents
from vcache_agent.netlink import spec
from vcache_agent.plan.actions import TagKey
from vcache_agent.plan.holders import Holder, Known
from vcache_agent.plan.state import KernelState
from vcache_agent.records import DiskRow, LayerRow

#: Most shared layers with a tag, on one host. Each tag has a sample of the kernel's
#: miss-ratio curves (0.3 MiB). The reads of further layers have the host tag.
SHARED_MAX = 256


class Place(NamedTuple):
    """A tag of a disk or a shared layer on one device.

    :param number: the tag number
    :param extents: its extents; None: they stay as they are
    """

    device: Device
    number: int
    extents: Extents | None


@dataclasses.dataclass(frozen=True)
class Assigned:
    """A disk or a shared layer with its tags.

    :param places: its tags, that of its home first
    """

    holder: Holder
    places: tuple[Place, ...]

    @property
    def home(self) -> Place:
        """The tag of the active layer."""
        return self.places[0]


class Refused(NamedTuple):
    """A disk or a shared layer without a tag.

    :param reason: why it has none
    """

    holder: Holder
    reason: str


class Assignment(NamedTuple):
    """The numbers of all disks and shared layers.

    :param last_tag: the tag number that was allocated last
    """

    tagged: tuple[Assigned, ...]
    refused: tuple[Refused, ...]
    last_tag: int


def assign(holders: Iterable[Holder], kernel: KernelState, rows: Mapping[DiskId, DiskRow],
           layers: Mapping[str, LayerRow], last_tag: int) -> Assignment:
    """Return the tags of disks and shared layers.

    :param rows: the store's disks
    :param layers: the store's layers
    :param last_tag: the tag number that was allocated last
    """
    book = _Numbers(kernel, rows, layers, last_tag)
    tagged, refused, shared = [], [], 0
    for holder in sorted(holders, key=book.rank):
        try:
            if holder.shared and shared == SHARED_MAX:
                raise _NoTag(f"{SHARED_MAX} shared layers have a tag already")
            tagged.append(Assigned(holder, book.places(holder)))
            shared += holder.shared
        except (_NoTag, numbers.TagsExhausted) as error:
            refused.append(Refused(holder, str(error)))
    return Assignment(tuple(tagged), tuple(refused), book.last_tag)


class _NoTag(Exception):
    """A disk cannot have a tag; the text says why."""


class _Numbers:
    """The numbers that are taken, while numbers are assigned."""

    def __init__(self, kernel: KernelState, rows: Mapping[DiskId, DiskRow],
                 layers: Mapping[str, LayerRow], last_tag: int) -> None:
        self.last_tag = last_tag
        self._kernel = kernel
        self._rows = rows
        self._known = Known(layers)
        self._recorded = {row.tag for row in rows.values()}
        self._recorded |= {row.tag for row in layers.values() if row.tag is not None}
        self._taken = self._recorded | {number for _, number in kernel.tags}
        self._used: set[TagKey] = set()
        self._used_numbers: set[int] = set()
        self._by_name: dict[str, list[TagKey]] = defaultdict(list)
        for key, tag in kernel.tags.items():
            self._by_name[tag.name].append(key)
        # The numbers in the table lines of volumes.
        self._fixed = {device: number for device, number in kernel.tags
                       if self._is_volume(device)}
        self._fixed_numbers = set(self._fixed.values())

    def rank(self, holder: Holder) -> tuple[bool, int, str]:
        """Return a sort key: who has the first claim to a number that several have had."""
        if holder.home is not None and self._is_volume(holder.home):
            claim = 0
        else:
            present = self._present(holder)
            claim = 1 if any(number in present for number in self._recorded_for(holder)) else 2
        return holder.shared, claim, holder.names[0]

    def places(self, holder: Holder) -> tuple[Place, ...]:
        """Return the tags of a disk or shared layer, and mark them as used."""
        if holder.home is not None and holder.home not in self._kernel.devices:
            raise _NoTag(f"device {holder.home} no longer exists")
        number = self._number(holder)
        found = dict(self._located(holder, number))
        if holder.unknown:
            found |= {key: None for key in self._kept(holder, number) if key not in found}
        if not found:
            raise _NoTag(holder.users[0].reason or f"the location of {holder.path} is unknown")
        self._used |= found.keys()
        self._used_numbers |= {tag for _, tag in found}
        return tuple(Place(self._kernel.devices[device], tag, extents)
                     for (device, tag), extents in found.items())

    def _located(self, holder: Holder,
                 number: int | None) -> Iterator[tuple[TagKey, Extents | None]]:
        """Yield the tags on the devices of the located layers."""
        for device in holder.devices:
            if device not in self._kernel.devices:
                continue
            if not self._is_volume(device):
                assert number is not None  # noqa: S101 - there is a device that needs it
                key = (device, number)
                stays = holder.unknown and key in self._kernel.tags
                yield key, None if stays else holder.extents(device)
            elif device in self._fixed:
                yield (device, self._fixed[device]), ()
            elif device == holder.home:
                name = self._kernel.devices[device].name
                raise _NoTag(f"device {name} has no tag in its table")

    def _kept(self, holder: Holder, number: int | None) -> list[TagKey]:
        """Return the kernel's tags that a holder with unknown layers has, its home first."""
        homes = {row.device for user in holder.users if (row := self._rows.get(user.id))}
        homes |= {row.device for row in self._known.at(holder.path)}
        found = []
        for device, tag in dict.fromkeys((*self._named(holder), *self._stored(holder))):
            at_home = self._kernel.devices[device].name in homes
            if self._is_volume(device):
                # The table line has the number, so only the device tells.
                keep = holder.home is None and (at_home or not homes)
            else:
                keep = tag == number
            if keep:
                found.append((not at_home, (device, tag)))
        return [key for _, key in sorted(found)]

    def _number(self, holder: Holder) -> int | None:
        """Return the number on devices of scope filesystem; None: there is no such device."""
        needed = any(not self._is_volume(device) for device in holder.devices)
        present = self._present(holder)
        if holder.unknown:
            present += [tag for device, tag in self._stored(holder)
                        if not self._is_volume(device)]
        recorded = self._recorded_for(holder)
        lost = [number for number in present if number not in self._recorded]
        for number in (*(number for number in recorded if number in present), *recorded, *lost):
            if number in present or (needed and number not in self._used_numbers
                                     and number not in self._fixed_numbers):
                return number
        if not needed:
            return None
        self.last_tag = numbers.allocate(self.last_tag, self._taken)
        self._taken.add(self.last_tag)
        return self.last_tag

    def _recorded_for(self, holder: Holder) -> list[int]:
        """Return the numbers that the store has for a holder, the best first."""
        if holder.shared:
            layer = self._known.row(holder.key, ())
            return [layer.tag] if layer is not None and layer.tag is not None else []
        rows = [row for user in holder.users if (row := self._rows.get(user.id))]
        # That of the same layer first: the number goes with the disk that had it.
        rows.sort(key=lambda row: row.layer != holder.key)
        return [row.tag for row in rows]

    def _present(self, holder: Holder) -> list[int]:
        """Return the numbers that the kernel has for a holder, on devices with files."""
        return [tag for device, tag in self._named(holder) if not self._is_volume(device)]

    def _named(self, holder: Holder) -> list[TagKey]:
        """Return the kernel's tags with a name of the holder that no other holder uses."""
        return [key for name in holder.names for key in self._by_name.get(name, ())
                if key not in self._used and key[0] in self._kernel.devices]

    def _stored(self, holder: Holder) -> list[TagKey]:
        """Return the kernel's tags where the store has the holder, whatever their names are.

        The name is that of another domain if that one used the disk, too, and has stopped.
        """
        rows = {(row.device, row.tag) for user in holder.users
                if not holder.shared and (row := self._rows.get(user.id))}
        keys = [(device.number, number) for name, number in sorted(rows)
                for device in self._kernel.devices.values() if device.name == name]
        return [key for key in keys if key in self._kernel.tags and key not in self._used]

    def _is_volume(self, number: DeviceNumber) -> bool:
        device = self._kernel.devices.get(number)
        return device is not None and device.scope is spec.Scope.VOLUME
