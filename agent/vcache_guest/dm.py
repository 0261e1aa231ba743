# SPDX-License-Identifier: Apache-2.0
"""Device mapper by its ioctls, as far as a cache needs it.

dmsetup would not do: while the cache is suspended, no program may have to be loaded from a disk
that may be behind it. The guest's package is independent of the host's, so this is no part of it.
"""

import fcntl
import os
import struct
from collections.abc import Sequence
from typing import NamedTuple

# struct dm_ioctl and struct dm_target_spec of linux/dm-ioctl.h.
_HEADER = struct.Struct("=3IIIIiIIIQ128s129s7x")
_SPEC = struct.Struct("=QQiI16s")
_VERSION = (4, 0, 0)
_BUFFER = 1 << 14
_CONTROL = "/dev/mapper/control"

_LIST, _CREATE, _REMOVE, _SUSPEND, _INFO, _LOAD, _TABLE = 2, 3, 4, 6, 7, 9, 12
_FLAG_SUSPEND, _FLAG_TABLE, _FLAG_NO_LOCKFS, _FLAG_DEFERRED = 1 << 1, 1 << 4, 1 << 6, 1 << 17


class DmError(OSError):
    """Device mapper refused a request, or is not accessible."""


class Line(NamedTuple):
    """The only line of a table or of a status; a cache and its parts have no other."""

    start: int
    length: int
    target: str
    arguments: str


class Dm:
    """A connection to device mapper.

    :raises DmError: if the control device cannot be opened
    """

    def __init__(self) -> None:
        try:
            self._fd = os.open(_CONTROL, os.O_RDWR | os.O_CLOEXEC)
        except OSError as error:
            raise DmError(error.errno, f"{_CONTROL}: {error.strerror}") from None

    def close(self) -> None:
        """Close it."""
        os.close(self._fd)

    def exists(self, name: str) -> bool:
        """Return whether there is a device of this name."""
        try:
            self._call(_INFO, name)
        except DmError:
            return False
        return True

    def path(self, name: str) -> str:
        """Return the node of a device, which the kernel itself creates."""
        number = self._call(_INFO, name)[0][10]
        return f"/dev/dm-{number & 0xFF | number >> 12 & ~0xFF}"

    def create(self, name: str) -> None:
        """Create a device without a table."""
        self._call(_CREATE, name)

    def remove(self, name: str, *, deferred: bool = False) -> None:
        """Remove a device that nobody has open.

        :param deferred: if somebody has, as soon as nobody has
        """
        self._call(_REMOVE, name, flags=_FLAG_DEFERRED if deferred else 0)

    def names(self) -> list[str]:
        """Return the names of all devices."""
        data = self._call(_LIST, "")[1]
        found, at = [], 0
        # struct dm_name_list: a device number, the offset of the next one, a name.
        while len(data) >= at + 12 and struct.unpack_from("=Q", data, at)[0]:
            found.append(data[at + 12:].split(b"\0", 1)[0].decode())
            step = struct.unpack_from("=I", data, at + 8)[0]
            if not step:
                break
            at += step
        return found

    def load(self, name: str, length: int, target: str, arguments: str) -> None:
        """Load a table of one line; resume() makes it the active one."""
        self.load_lines(name, [Line(0, length, target, arguments)])

    def load_lines(self, name: str, lines: Sequence[Line]) -> None:
        """Load a table; resume() makes it the active one."""
        data = b""
        for line in lines:
            text = line.arguments.encode() + b"\0"
            step = _SPEC.size + len(text) + 7 & ~7
            head = _SPEC.pack(line.start, line.length, 0, step, line.target.encode())
            data += (head + text).ljust(step, b"\0")
        self._call(_LOAD, name, data, targets=len(lines))

    def suspend(self, name: str, *, sync: bool = True) -> None:
        """Suspend a device: requests wait, and a cache writes its metadata.

        :param sync: a file system on it writes what it has first
        """
        self._call(_SUSPEND, name, flags=_FLAG_SUSPEND | (0 if sync else _FLAG_NO_LOCKFS))

    def resume(self, name: str) -> None:
        """Make the loaded table active, if there is one, and resume the device."""
        self._call(_SUSPEND, name)

    def status(self, name: str) -> Line:
        """Return the status."""
        return self._line(name, 0)

    def table(self, name: str) -> Line:
        """Return the table."""
        return self._line(name, _FLAG_TABLE)

    def _line(self, name: str, flags: int) -> Line:
        header, data = self._call(_TABLE, name, flags=flags)
        if not header[5]:
            return Line(0, 0, "", "")
        start, length, _, _, target = _SPEC.unpack_from(data)
        return Line(start, length, target.rstrip(b"\0").decode(),
                    data[_SPEC.size:].split(b"\0", 1)[0].decode())

    def _call(self, command: int, name: str, data: bytes = b"", *, flags: int = 0,
              targets: int = 0) -> tuple[tuple[int, ...], bytes]:
        buffer = bytearray(max(_BUFFER, _HEADER.size + len(data)))
        _HEADER.pack_into(buffer, 0, *_VERSION, len(buffer), _HEADER.size, targets, 0, flags, 0, 0,
                          0, name.encode(), b"")
        buffer[_HEADER.size:_HEADER.size + len(data)] = data
        try:
            fcntl.ioctl(self._fd, 3 << 30 | _HEADER.size << 16 | 0xFD << 8 | command, buffer)
        except OSError as error:
            raise DmError(error.errno, f"device mapper, {name}: {error.strerror}") from None
        header = _HEADER.unpack_from(buffer)
        return header, bytes(buffer[header[4]:header[3]])
