# SPDX-License-Identifier: Apache-2.0
"""Map the sectors of a block device to a vcache device below it.

Between a file system (or a disk) and the vcache device there may be partitions,
dm-linear devices (LVM volumes) and dm-crypt devices. Other devices move data, so that
sectors cannot be mapped; they are refused by name.
"""

import bisect
import dataclasses
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path

from vcache_agent import sysfs
from vcache_agent.dm import Dm, DmError, Lines
from vcache_agent.model import Device, DeviceNumber, Extent, Extents

_MAX_LEVELS = 8
_VSSD = "vcache-vssd"
# Targets that do not move sectors, and where their table has the device below and its first sector.
# dm-crypt: cipher, key, offset of the initialization vectors, device, sector.
_LINEAR = {"linear": slice(0, 2), "crypt": slice(3, 5)}


class NotOnVcache(Exception):
    """There is no vcache device below a device, or its sectors cannot be mapped."""


class NotCacheable(NotOnVcache):
    """No command of this host can give a disk a cache."""


class IsVssd(NotOnVcache):
    """A disk is an elastic SSD: its blocks are in a pool, and it needs no tag."""


class LocationUnknown(NotOnVcache):
    """It could not be found out this time what is below a device."""


@dataclasses.dataclass(frozen=True)
class Segment:
    """A run of sectors of a device and its place on a vcache device.

    :param start: first sector on the device
    :param length: number of sectors
    :param device: the vcache device
    :param target: first sector on the vcache device
    """

    start: int
    length: int
    device: Device
    target: int


def dm_table(number: DeviceNumber) -> Lines:
    """Return the lines of a mapped device's table.

    :raises LocationUnknown: if it cannot be read
    """
    try:
        with Dm() as dm:
            return dm.table(number)
    except DmError as error:
        raise LocationUnknown(f"table of device {number}: {error.strerror}") from None


class BlockStack:
    """The block devices above the vcache devices, at the time of the first request.

    :param devices: the vcache devices
    :param root: path of /sys/dev/block
    :param table: returns the table lines of a mapped device
    """

    def __init__(self, devices: Iterable[Device], root: Path = sysfs.BLOCK,
                 table: Callable[[DeviceNumber], Lines] = dm_table) -> None:
        self._devices = {device.number: device for device in devices}
        self._root = root
        self._table = table
        self._known: dict[DeviceNumber, list[Segment]] = {}
        #: The devices whose segments were requested.
        self.asked: set[DeviceNumber] = set()

    def segments(self, number: DeviceNumber) -> list[Segment]:
        """Return the segments of a device, sorted by their start on the device.

        :raises NotOnVcache: if it has none; the text says why
        """
        self.asked.add(number)
        if number not in self._known:
            try:
                self._known[number] = self._segments(number, _MAX_LEVELS)
            except OSError as error:  # a device that has just disappeared
                raise LocationUnknown(f"device {number}: {error.strerror}") from None
        return self._known[number]

    def may_be_attached(self, number: DeviceNumber) -> bool:
        """Return True if 'vcache attach' may accept a device: a mapped device, or one of krbd.

        A device that has disappeared may be one.
        """
        there = (self._root / str(number)).exists()
        return not there or sysfs.is_mapped(number, self._root) \
            or sysfs.is_rbd(number, self._root)

    def name(self, number: DeviceNumber) -> str:
        """Return the kernel's name of a device."""
        return sysfs.name(number, self._root)

    def _segments(self, number: DeviceNumber, levels: int) -> list[Segment]:
        device = self._devices.get(number)
        if device is not None:
            return [Segment(0, device.sectors, device, 0)]
        if number.major == 0:
            raise NotOnVcache("its file system is not on a single block device")
        if levels == 0:
            raise NotOnVcache(f"more than {_MAX_LEVELS} devices are stacked below it")
        part = sysfs.partition(number, self._root)
        if part is not None:
            return _slice(self._segments(part.disk, levels - 1), part.start, part.size, 0)
        if sysfs.is_mapped(number, self._root):
            return self._mapped(number, levels)
        raise NotOnVcache(f"no vcache device is below device {number}")

    def _mapped(self, number: DeviceNumber, levels: int) -> list[Segment]:
        found: list[Segment] = []
        for line in self._table(number):
            if line.target == _VSSD:
                raise IsVssd(f"device {number} is an elastic SSD, which has no tag")
            if line.target not in _LINEAR:
                if self._devices.keys().isdisjoint(sysfs.below([number], self._root)):
                    raise NotOnVcache(f"no vcache device is below device {number}")
                raise NotOnVcache(f"sectors cannot be mapped through dm target {line.target!r} of "
                                  f"device {number}")
            try:
                below, offset = line.arguments.split()[_LINEAR[line.target]]
                segments = self._segments(sysfs.number(below), levels - 1)
                found += _slice(segments, int(offset), line.length, line.start)
            except ValueError as error:
                raise NotOnVcache(f"device {number} has an invalid table: {error}") from None
        if not found:
            raise LocationUnknown(f"device {number} has no table")
        return found


def follow(segments: Sequence[Segment], extents: Iterable[Extent]) -> tuple[Device, Extents]:
    """Map extents of a device to its vcache device.

    :param segments: segments of the device; see :meth:`BlockStack.segments`
    :param extents: extents on the device, in sectors
    :return: the vcache device, and the extents on it
    :raises NotOnVcache: if there are several vcache devices, or an extent is beyond the
        end of the device
    """
    starts = [segment.start for segment in segments]
    devices = {segment.device.number: segment.device for segment in segments}
    if len(devices) != 1:
        raise NotOnVcache("it is spread over several vcache devices")
    device = next(iter(devices.values()))
    moved = []
    for start, length in extents:
        while length:
            place = bisect.bisect_right(starts, start) - 1
            if place < 0 or start >= segments[place].start + segments[place].length:
                raise NotOnVcache(f"sector {start} is beyond the end of its device")
            segment = segments[place]
            part = min(length, segment.start + segment.length - start)
            moved.append(Extent(segment.target + start - segment.start, part))
            start, length = start + part, length - part
    return device, tuple(moved)


def _slice(segments: Iterable[Segment], start: int, size: int, base: int) -> list[Segment]:
    """Return the segments of [start, start + size), shifted so that `start` becomes `base`."""
    parts = []
    for segment in segments:
        low = max(segment.start, start)
        high = min(segment.start + segment.length, start + size)
        if low < high:
            parts.append(Segment(low - start + base, high - low, segment.device,
                                 segment.target + low - segment.start))
    return parts

