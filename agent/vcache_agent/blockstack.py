# SPDX-License-Identifier: Apache-2.0
"""Map the sectors of a block device to a vcache device below it.

Between a file system (or a disk) and the vcache device there may be partitions
and dm-linear devices (LVM volumes). Other devices move or change data, so that
sectors cannot be mapped; they are refused by name.
"""

import bisect
import dataclasses
import subprocess
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path

from vcache_agent.model import Device, DeviceNumber, Extent, Extents

_MAX_LEVELS = 8
_TABLE_SECONDS = 5


class NotOnVcache(Exception):
    """There is no vcache device below a device, or its sectors cannot be mapped."""


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


def dm_table(number: DeviceNumber) -> list[str]:
    """Return the lines of a mapped device's table.

    :raises NotOnVcache: if it cannot be read
    """
    try:
        done = subprocess.run(
            ["dmsetup", "table", "-j", str(number.major), "-m", str(number.minor)],
            stdin=subprocess.DEVNULL, capture_output=True, text=True,
            timeout=_TABLE_SECONDS, check=False)
    except (OSError, subprocess.TimeoutExpired) as error:
        raise NotOnVcache(f"dmsetup table of {number}: {error}") from None
    if done.returncode:
        raise NotOnVcache(f"dmsetup table of {number}: {done.stderr.strip()}")
    return done.stdout.splitlines()


class BlockStack:
    """The block devices above the vcache devices, at the time of the first request.

    :param devices: the vcache devices
    :param sysfs: path of /sys/dev/block
    :param table: returns the table lines of a mapped device
    """

    def __init__(self, devices: Iterable[Device], sysfs: Path = Path("/sys/dev/block"),
                 table: Callable[[DeviceNumber], list[str]] = dm_table) -> None:
        self._devices = {device.number: device for device in devices}
        self._sysfs = sysfs
        self._table = table
        self._known: dict[DeviceNumber, list[Segment]] = {}

    def segments(self, number: DeviceNumber) -> list[Segment]:
        """Return the segments of a device, sorted by their start on the device.

        :raises NotOnVcache: if it has none; the text says why
        """
        if number not in self._known:
            self._known[number] = self._segments(number, _MAX_LEVELS)
        return self._known[number]

    def _segments(self, number: DeviceNumber, levels: int) -> list[Segment]:
        device = self._devices.get(number)
        if device is not None:
            return [Segment(0, device.sectors, device, 0)]
        if number.major == 0:
            raise NotOnVcache("its file system is not on a single block device")
        if levels == 0:
            raise NotOnVcache(f"more than {_MAX_LEVELS} devices are stacked below it")
        folder = self._sysfs / str(number)
        if (folder / "partition").exists():
            return self._partition(folder, levels)
        if (folder / "dm").is_dir():
            return self._mapped(number, levels)
        raise NotOnVcache(f"no vcache device is below device {number}")

    def _partition(self, folder: Path, levels: int) -> list[Segment]:
        start = int((folder / "start").read_text())
        size = int((folder / "size").read_text())
        parent = _number((folder.resolve().parent / "dev").read_text())
        return _slice(self._segments(parent, levels - 1), start, size, 0)

    def _mapped(self, number: DeviceNumber, levels: int) -> list[Segment]:
        found: list[Segment] = []
        for line in self._table(number):
            fields = line.split()
            if len(fields) < 3:
                raise NotOnVcache(f"device {number} has an invalid table")
            if fields[2] != "linear":
                if not self._slaves_on_vcache(number):
                    raise NotOnVcache(f"no vcache device is below device {number}")
                raise NotOnVcache(f"sectors cannot be mapped through dm target {fields[2]!r} of "
                                  f"device {number}")
            below = self._segments(_number(fields[3]), levels - 1)
            found += _slice(below, int(fields[4]), int(fields[1]), int(fields[0]))
        if not found:
            raise NotOnVcache(f"device {number} has no table")
        return found

    def _slaves_on_vcache(self, number: DeviceNumber) -> bool:
        """Return True if a vcache device is anywhere below a mapped device."""
        pending, seen = [number], set()
        while pending:
            current = pending.pop()
            if current in self._devices:
                return True
            if current in seen:
                continue
            seen.add(current)
            for slave in (self._sysfs / str(current)).glob("slaves/*/dev"):
                pending.append(_number(slave.read_text()))
        return False


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


def _number(text: str) -> DeviceNumber:
    major, _, minor = text.strip().partition(":")
    try:
        return DeviceNumber(int(major), int(minor))
    except ValueError:
        raise NotOnVcache(f"{text.strip()!r} is not a device number") from None
