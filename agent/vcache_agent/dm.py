# SPDX-License-Identifier: Apache-2.0
"""Device mapper, by its ioctls.

dmsetup would not do. A resume that activates a new table is one ioctl, which a
signal cannot interrupt halfway. And while a device is suspended, no program may
have to be loaded from a disk.
"""

import dataclasses
import errno
import fcntl
import os
import stat
import struct
from collections.abc import Iterable
from pathlib import Path
from types import TracebackType
from typing import Any, NamedTuple, Self

from vcache_agent.model import DeviceNumber

# struct dm_ioctl and struct dm_target_spec of linux/dm-ioctl.h.
_HEADER = struct.Struct("=3IIIIiIIIQ128s129s7x")
_SPEC = struct.Struct("=QQiI16s")
_VERSION = (4, 0, 0)
_BUFFER = 1 << 14

_LIST, _CREATE, _REMOVE, _SUSPEND, _STATUS = 2, 3, 4, 6, 7
_LOAD, _CLEAR, _TABLE, _MESSAGE = 9, 10, 12, 14

_READONLY, _SUSPENDED, _STATUS_TABLE = 1 << 0, 1 << 1, 1 << 4
_ACTIVE, _INACTIVE, _FULL, _QUERY_INACTIVE = 1 << 5, 1 << 6, 1 << 8, 1 << 12

# Flags for udev, for a device that only this program uses: no links by file system label,
# because the label already exists on the device above, and no scan by LVM. They are in
# the upper half of the event number, without a cookie (libdevmapper.h).
HIDDEN = (0x2 | 0x4 | 0x8 | 0x40) << 16

NAME_MAX = 127
_CONTROL = Path("/dev/mapper/control")


class DmError(OSError):
    """Device mapper refused a request, or is not accessible."""


class Line(NamedTuple):
    """A line of a table or of a status.

    :param start: first sector
    :param length: number of sectors
    """

    start: int
    length: int
    target: str
    arguments: str

    def __str__(self) -> str:
        return f"{self.start} {self.length} {self.target} {self.arguments}".rstrip()


Lines = tuple[Line, ...]


@dataclasses.dataclass(frozen=True)
class Info:
    """A mapped device.

    :param opened: open count
    :param active: it has an active table
    :param inactive: it has a loaded table that is not active
    """

    name: str
    uuid: str
    number: DeviceNumber
    opened: int
    suspended: bool
    active: bool
    inactive: bool
    readonly: bool

    @property
    def path(self) -> str:
        """The device node, which the kernel itself creates."""
        return f"/dev/dm-{self.number.minor}"


class Dm:
    """A connection to device mapper.

    :raises DmError: if the control device does not exist or must not be opened
    """

    def __init__(self) -> None:
        try:
            self._fd = os.open(_CONTROL, os.O_RDWR | os.O_CLOEXEC)
        except OSError as error:
            raise DmError(error.errno, f"{_CONTROL}: {error.strerror}") from None

    def close(self) -> None:
        """Close it."""
        os.close(self._fd)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, value: BaseException | None,
                 trace: TracebackType | None) -> None:
        self.close()

    def names(self) -> list[str]:
        """Return the names of all devices."""
        _, data = self._call(_LIST, "list")
        found, at = [], 0
        while at + 12 <= len(data):
            device, step = struct.unpack_from("=QI", data, at)
            if device:
                found.append(data[at + 12:].split(b"\0", 1)[0].decode())
            if not step:
                break
            at += step
        return found

    def info(self, device: str | DeviceNumber) -> Info | None:
        """Return a device by its name or number; None if it does not exist."""
        try:
            header, _ = self._call(_STATUS, "info", device)
        except DmError as error:
            if error.errno == errno.ENXIO:
                return None
            raise
        flags, number, name, uuid = header[7], header[10], *header[11:13]
        return Info(
            _text(name), _text(uuid),
            DeviceNumber(number >> 8 & 0xFFF, number & 0xFF | number >> 12 & ~0xFF),
            header[6], bool(flags & _SUSPENDED), bool(flags & _ACTIVE), bool(flags & _INACTIVE),
            bool(flags & _READONLY))

    def create(self, name: str, uuid: str = "") -> None:
        """Create a device without a table."""
        self._call(_CREATE, "create", name, uuid=uuid)

    def remove(self, name: str, event: int = 0) -> None:
        """Remove a device, which must not be open.

        :param event: flags for udev, such as :data:`HIDDEN`
        """
        self._call(_REMOVE, "remove", name, event=event)

    def load(self, name: str, lines: Iterable[Line]) -> None:
        """Load a table, which resume() activates."""
        lines, data = tuple(lines), b""
        for line in lines:
            text = line.arguments.encode() + b"\0"
            step = _SPEC.size + len(text) + 7 & ~7
            data += (_SPEC.pack(line.start, line.length, 0, step, line.target.encode())
                     + text).ljust(step, b"\0")
        self._call(_LOAD, "load", name, data, targets=len(lines))

    def clear(self, name: str) -> None:
        """Drop the loaded table that is not active."""
        self._call(_CLEAR, "clear", name)

    def suspend(self, name: str) -> None:
        """Suspend a device: freeze its file system and write its data."""
        self._call(_SUSPEND, "suspend", name, flags=_SUSPENDED)

    def resume(self, name: str, event: int = 0) -> None:
        """Activate the loaded table, if there is one, and resume the device.

        The kernel suspends the device first, if it is not suspended.
        """
        self._call(_SUSPEND, "resume", name, event=event)

    def table(self, device: str | DeviceNumber, *, inactive: bool = False) -> Lines:
        """Return the active table, or with `inactive` the loaded one.

        This does no I/O, and does not wait for a device that is suspended or hangs.

        :param device: its name or number
        """
        flags = _STATUS_TABLE | (_QUERY_INACTIVE if inactive else 0)
        return self._lines(device, flags)

    def status(self, name: str) -> Lines:
        """Return the status, one line for each target."""
        return self._lines(name, 0)

    def message(self, name: str, text: str) -> None:
        """Send a message to the target at sector 0."""
        self._call(_MESSAGE, f"message {text!r} to", name,
                   struct.pack("=Q", 0) + text.encode() + b"\0")

    def ask(self, name: str, text: str) -> str:
        """Send a message to the target at sector 0, and return its answer."""
        _, data = self._call(_MESSAGE, f"message {text!r} to", name,
                             struct.pack("=Q", 0) + text.encode() + b"\0")
        return _text(data)

    def _lines(self, device: str | DeviceNumber, flags: int) -> Lines:
        header, data = self._call(_TABLE, "status", device, flags=flags)
        found, at = [], 0
        for _ in range(header[5]):
            start, length, _status, step, target = _SPEC.unpack_from(data, at)
            found.append(Line(start, length, _text(target), _text(data[at + _SPEC.size:])))
            at = step
        return tuple(found)

    def _call(self, command: int, what: str, device: str | DeviceNumber = "", data: bytes = b"",
              *, flags: int = 0, targets: int = 0, uuid: str = "",
              event: int = 0) -> tuple[tuple[Any, ...], bytes]:
        """Make one ioctl; return the header's fields and the data behind it."""
        name, number = device, 0
        if isinstance(device, DeviceNumber):
            name = ""
            number = device.minor & 0xFF | device.major << 8 | (device.minor & ~0xFF) << 12
        size = max(_BUFFER, _HEADER.size + len(data) + 8)
        while True:
            buffer = bytearray(size)
            _HEADER.pack_into(buffer, 0, *_VERSION, size, _HEADER.size, targets, 0, flags, event,
                              0, number, str(name).encode(), uuid.encode())
            buffer[_HEADER.size:_HEADER.size + len(data)] = data
            try:
                fcntl.ioctl(self._fd, 3 << 30 | _HEADER.size << 16 | 0xFD << 8 | command, buffer)
            except OSError as error:
                raise DmError(error.errno, f"{what} {device}: {error.strerror}") from None
            header = _HEADER.unpack_from(buffer)
            if not header[7] & _FULL:
                return header, bytes(buffer[header[4]:header[3]])
            size *= 4


def _text(data: bytes) -> str:
    return data.split(b"\0", 1)[0].decode(errors="replace")


def block_number(path: str) -> DeviceNumber | None:
    """Return the number of a block device by its path; None if it is not a block device."""
    try:
        status = os.stat(path)
    except OSError:
        return None
    if not stat.S_ISBLK(status.st_mode):
        return None
    return DeviceNumber(os.major(status.st_rdev), os.minor(status.st_rdev))


class KernelWords:
    """Reads the reason of a refusal from the kernel's log, from its creation on.

    Device mapper returns only an error number and logs the reason. If the log cannot be
    read, there is no reason.
    """

    def __init__(self) -> None:
        try:
            self._fd = os.open("/dev/kmsg", os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
            os.lseek(self._fd, 0, os.SEEK_END)
        except OSError:
            self._fd = -1

    def last(self) -> str:
        """Return the last reason that device mapper has logged, or an empty text."""
        words = ""
        while self._fd >= 0:
            try:
                record = os.read(self._fd, 8192).decode(errors="replace")
            except BrokenPipeError:
                continue  # records were overwritten before they could be read
            except OSError:
                break
            text = record.partition(";")[2].split("\n", 1)[0]
            if text.startswith("device-mapper: "):
                words = _reason(text) or words
        return words

    def close(self) -> None:
        """Close the log."""
        if self._fd >= 0:
            os.close(self._fd)


def _reason(text: str) -> str:
    """Return the reason in a line such as ``device-mapper: table: 254:0: vcache: … (-EINVAL)``."""
    parts = text.split(": ")[1:]
    if parts[0] == "table":
        # Skip the device number and the name of the target.
        parts = parts[3:]
        if parts and parts[0].startswith("preresume failed"):
            return ""  # the target has logged the reason in a separate line
    elif parts[0].startswith("vcache"):
        parts = parts[2:]
    else:
        return ""
    return ": ".join(parts).split(" (-E")[0]
