# SPDX-License-Identifier: Apache-2.0
"""Which mapped device of the target vcache lies under a block device, and where.

Between a file system (or a disk) and the vcache device there may be partitions
and dm-linear devices (LVM volumes). Anything else moves or changes data in a
way that sectors cannot be followed through, and is refused by name.
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
    """No vcache device lies under it, or not in a way that can be followed."""


@dataclasses.dataclass(frozen=True)
class Segment:
    """A run of a device's sectors and where it is on a vcache device."""

    start: int
    length: int
    device: Device
    target: int


def dm_table(number: DeviceNumber) -> list[str]:
    """Return the lines of a mapped device's table."""
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
    """The block devices above the vcache devices, as they are now.

    :param devices: the vcache devices
    :param sysfs: where /sys/dev/block is
    :param table: reads a mapped device's table
    """

    def __init__(self, devices: Iterable[Device], sysfs: Path = Path("/sys/dev/block"),
                 table: Callable[[DeviceNumber], list[str]] = dm_table) -> None:
        self._devices = {device.number: device for device in devices}
        self._sysfs = sysfs
        self._table = table
        self._known: dict[DeviceNumber, list[Segment]] = {}

    def segments(self, number: DeviceNumber) -> list[Segment]:
        """Return where the sectors of a device are, sorted by their start on it.

        :raises NotOnVcache: saying why not
        """
        if number not in self._known:
            self._known[number] = self._segments(number, _MAX_LEVELS)
        return self._known[number]

    def _segments(self, number: DeviceNumber, levels: int) -> list[Segment]:
        device = self._devices.get(number)
        if device is not None:
            return [Segment(0, device.sectors, device, 0)]
        if number.major == 0:
            raise NotOnVcache("its file system is on no single block device")
        if levels == 0:
            raise NotOnVcache(f"more than {_MAX_LEVELS} devices are stacked under it")
        folder = self._sysfs / str(number)
        if (folder / "partition").exists():
            return self._partition(folder, levels)
        if (folder / "dm").is_dir():
            return self._mapped(number, levels)
        raise NotOnVcache(f"no vcache device lies under device {number}")

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
                raise NotOnVcache(f"device {number} has no table that can be read")
            if fields[2] != "linear":
                if not self._slaves_on_vcache(number):
                    raise NotOnVcache(f"no vcache device lies under device {number}")
                raise NotOnVcache(f"dm target {fields[2]!r} lies between, through which sectors "
                                  "cannot be followed")
            below = self._segments(_number(fields[3]), levels - 1)
            found += _slice(below, int(fields[4]), int(fields[1]), int(fields[0]))
        if not found:
            raise NotOnVcache(f"device {number} has no table")
        return found

    def _slaves_on_vcache(self, number: DeviceNumber) -> bool:
        """Tell whether a vcache device is anywhere under a mapped device."""
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
    """Return on which vcache device extents are, and where there.

    :raises NotOnVcache: if on more than one, or beyond the device's end
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
    """Return what [start, start + size) of a device is, moved to begin at base."""
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
        raise NotOnVcache(f"{text.strip()!r} is not the number of a device") from None
