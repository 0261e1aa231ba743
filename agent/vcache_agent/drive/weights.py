# SPDX-License-Identifier: Apache-2.0
"""The weights that tags should have in drives that understand tags; pure functions.

A tag of the kernel has its effective weight already: that of its flavor, of an override, or of a
nested share. Its tag in the drive gets the same.
"""

import dataclasses
from collections.abc import Iterable, Mapping
from typing import NamedTuple

from vcache_agent.drive.tag_shares import TagShare
from vcache_agent.model import Device, DeviceNumber, Tag, is_shared_label
from vcache_agent.netlink import spec
from vcache_agent.sysfs import NvmeDrive
from vcache_agent.tags import HOST_TAG


@dataclasses.dataclass(frozen=True)
class Drive:
    """A drive, and what its tags should have.

    :param name: the kernel's name of its controller
    :param origin: number of a namespace of it, or of a partition, for commands
    :param tagged: a device sends it tagged commands
    :param names: names of the kernel's tags on it, with the host tag
    :param weights: the weights that tags should have in the drive
    :param kept: tags that keep what they have: their device sends no tagged commands now, for
        instance after the drive has lost its power
    """

    name: str
    origin: str
    tagged: bool = False
    names: Mapping[int, str] = dataclasses.field(default_factory=dict)
    weights: Mapping[int, int] = dataclasses.field(default_factory=dict)
    kept: frozenset[int] = frozenset()


class Change(NamedTuple):
    """A change of the weight of a tag in a drive; 0: none."""

    tag: int
    weight: int


def drives(devices: Iterable[Device], tags: Iterable[Tag],
           places: Mapping[DeviceNumber, NvmeDrive]) -> dict[str, Drive]:
    """Return the drives with what their tags should have, by the names of their subsystems.

    Several devices may be on namespaces or partitions of one drive, which knows one tag of each
    number: if they have tags with the same number, it has the largest of their weights.

    Layers that several disks share are only read, so their tags use nothing that is shared by
    weight, and a weight would occupy a state of the drive.

    :param places: the drives of those devices that are on one
    """
    found: dict[str, Drive] = {}
    at = {device.number: device for device in devices if device.number in places}
    # Those that send tagged commands first: one of their origins is used for commands.
    for device in sorted(at.values(), key=lambda item: (not _sends_tags(item), item.number)):
        place = places[device.number]
        found.setdefault(place.subsystem, Drive(place.name, device.origin, _sends_tags(device)))
    of_drive: dict[str, list[Tag]] = {subsystem: [] for subsystem in found}
    for tag in tags:
        if tag.device in at:
            of_drive[places[tag.device].subsystem].append(tag)
    return {subsystem: _with_tags(drive, of_drive[subsystem], at)
            for subsystem, drive in found.items()}


def _with_tags(drive: Drive, tags: Iterable[Tag], devices: Mapping[DeviceNumber, Device]) -> Drive:
    names: dict[int, str] = {}
    weights: dict[int, int] = {}
    kept = set()
    for tag in tags:
        names[tag.id] = names.get(tag.id) or tag.name
        if tag.id == HOST_TAG or is_shared_label(tag.name):
            continue
        if _sends_tags(devices[tag.device]):
            weights[tag.id] = max(tag.weight, weights.get(tag.id, 0))
        else:
            kept.add(tag.id)
    return dataclasses.replace(drive, names=names, weights=weights,
                               kept=frozenset(kept - weights.keys()))


def _sends_tags(device: Device) -> bool:
    return device.isolation is spec.Isolation.TAGGED


def without_tags(drive: Drive) -> Drive:
    """Return a drive that no device uses any more."""
    return dataclasses.replace(drive, names={}, weights={}, kept=frozenset())


def changes(drive: Drive, shares: Iterable[TagShare]) -> tuple[Change, ...]:
    """Return the changes that give the tags of a drive their weights; none if they have them.

    A tag with a weight occupies a state of the drive, so weights are removed before others are
    set. The host tag keeps what an operator has given it.

    :param shares: what the drive reports
    """
    has = {share.tag: share.weight for share in shares}
    used = drive.weights.keys() | drive.kept | {HOST_TAG}
    gone = [Change(tag, 0) for tag, weight in sorted(has.items()) if weight and tag not in used]
    return (*gone, *(Change(tag, weight) for tag, weight in sorted(drive.weights.items())
                     if has.get(tag, 0) != weight))
