# SPDX-License-Identifier: Apache-2.0
"""Device mapper by ioctls, since starting dmsetup takes most of a second in the box."""

import ctypes
import errno
import os
import struct
import threading

# struct dm_ioctl and struct dm_target_spec of linux/dm-ioctl.h.
_HEADER = struct.Struct("=3IIIIiIIIQ128s129s7x")
_SPEC = struct.Struct("=QQiI16s")
_VERSION = (4, 0, 0)
_BUFFER = 1 << 12

_LIST, _CREATE, _REMOVE, _SUSPEND, _STATUS = 2, 3, 4, 6, 7
_LOAD, _CLEAR, _TABLE, _MESSAGE = 9, 10, 12, 14

_FLAG_SUSPEND, _FLAG_TABLE, _FLAG_FULL = 1 << 1, 1 << 4, 1 << 8
SKIP_LOCKFS, NOFLUSH = 1 << 10, 1 << 11

_control = threading.local()

# Not fcntl.ioctl(): with more than 1 KiB it keeps other threads from running.
_ioctl = ctypes.CDLL(None, use_errno=True).ioctl
_ioctl.argtypes = [ctypes.c_int, ctypes.c_ulong, ctypes.c_void_p]


class DmError(OSError):
    """Device mapper refused a request."""


def _fd() -> int:
    if not hasattr(_control, "fd"):
        _control.fd = os.open("/dev/mapper/control", os.O_RDWR | os.O_CLOEXEC)
    fd: int = _control.fd
    return fd


def _call(command: int, name: str, data: bytes = b"", *, flags: int = 0, targets: int = 0,
          what: str = "") -> tuple[tuple[int, ...], bytes]:
    """Make one ioctl; return the header's fields and the returned data."""
    size = max(_BUFFER, _HEADER.size + len(data) + 8)
    while True:
        buffer = bytearray(size)
        _HEADER.pack_into(buffer, 0, *_VERSION, size, _HEADER.size, targets, 0, flags, 0, 0, 0,
                          name.encode(), b"")
        buffer[_HEADER.size:_HEADER.size + len(data)] = data
        number = 3 << 30 | _HEADER.size << 16 | 0xFD << 8 | command
        if _ioctl(_fd(), number, ctypes.byref(ctypes.c_char.from_buffer(buffer))):
            code = ctypes.get_errno()
            raise DmError(code, f"{what or 'dm'} {name}: {os.strerror(code)}")
        header = _HEADER.unpack_from(buffer)
        if not header[7] & _FLAG_FULL:
            return header, bytes(buffer[header[4]:header[3]])
        size *= 4


def create(name: str) -> None:
    """Make a device without a table."""
    _call(_CREATE, name, what="create")


def remove(name: str) -> None:
    """Remove a device."""
    _call(_REMOVE, name, what="remove")


def names() -> list[str]:
    """Return the names of all devices."""
    _, data = _call(_LIST, "")
    found, at = [], 0
    while at + 12 <= len(data):
        device, step = struct.unpack_from("=QI", data, at)
        if device:
            found.append(data[at + 12:].split(b"\0", 1)[0].decode())
        if not step:
            break
        at += step
    return found


def number(name: str) -> tuple[int, int]:
    """Return major and minor of a device."""
    header, _ = _call(_STATUS, name)
    device = header[10]
    return device >> 8 & 0xFFF, device & 0xFF | device >> 12 & ~0xFF


def load(name: str, table: str) -> None:
    """Load a table: lines of start, length, target and arguments."""
    data = b""
    lines = [line.split(maxsplit=3) for line in table.splitlines()]
    for start, length, target, *arguments in lines:
        text = "".join(arguments).encode() + b"\0"
        step = _SPEC.size + len(text) + 7 & ~7
        data += (_SPEC.pack(int(start), int(length), 0, step, target.encode()) + text).ljust(
            step, b"\0")
    _call(_LOAD, name, data, targets=len(lines), what="load")


def clear(name: str) -> None:
    """Drop the loaded table that is not active."""
    _call(_CLEAR, name, what="clear")


def suspend(name: str, flags: int = 0) -> None:
    """Suspend a device; flags are SKIP_LOCKFS and NOFLUSH."""
    _call(_SUSPEND, name, flags=_FLAG_SUSPEND | flags, what="suspend")


def resume(name: str, flags: int = 0) -> None:
    """Resume a device with the loaded table; suspends it first if needed."""
    _call(_SUSPEND, name, flags=flags, what="resume")


def lines(name: str, *, table: bool) -> list[str]:
    """Return the table or the status, one line per target."""
    header, data = _call(_TABLE, name, flags=_FLAG_TABLE if table else 0)
    found, at = [], 0
    for _ in range(header[5]):
        start, length, status, step, target = _SPEC.unpack_from(data, at)
        text = data[at + _SPEC.size:].split(b"\0", 1)[0].decode()
        kind = target.rstrip(b"\0").decode()
        found.append(f"{start} {length} {kind} {text}".strip())
        at = step
        if status:
            raise DmError(status, f"status {name}")
    return found


def message(name: str, text: str) -> None:
    """Send a message to the target at sector 0."""
    _call(_MESSAGE, name, struct.pack("=Q", 0) + text.encode() + b"\0", what="message")


def answer(name: str, text: str) -> str:
    """Send a message and return what the target answers."""
    _, data = _call(_MESSAGE, name, struct.pack("=Q", 0) + text.encode() + b"\0", what="message")
    return data.split(b"\0", 1)[0].decode()


def is_busy(error: DmError) -> bool:
    """Return whether a device could not be removed because it is in use."""
    return error.errno == errno.EBUSY
