# SPDX-License-Identifier: Apache-2.0
"""Read the drive's vendor log pages (doc/source/reference/nvme.rst)."""

import ctypes
import fcntl
import os
import struct
from typing import Any

_IOCTL_ADMIN_CMD = 0xC0484E41
_PASSTHRU = struct.Struct("=BBHIIIQQII6III")
_GET_LOG_PAGE = 0x02
_ALL_NAMESPACES = 0xFFFFFFFF
_TAGS, _CAUSES = 0xC1, 0xC2
_CAUSE_NAMES = ("host", "gc", "log", "map", "padding")


def _read(path: str, page: int, size: int) -> bytes:
    data = (ctypes.c_char * size)()
    command = bytearray(_PASSTHRU.pack(
        _GET_LOG_PAGE, 0, 0, _ALL_NAMESPACES, 0, 0, 0, ctypes.addressof(data), 0, size,
        page | (size // 4 - 1) << 16, 0, 0, 0, 0, 0, 5000, 0))
    descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    try:
        status = fcntl.ioctl(descriptor, _IOCTL_ADMIN_CMD, command)
    finally:
        os.close(descriptor)
    if status or not data.raw.startswith(b"vcacheSS"):
        raise OSError(f"log page {page:02x}h: status {status:#x}")
    return data.raw


def counters(path: str) -> dict[str, Any]:
    """Return the drive's counters since its start."""
    causes = _read(path, _CAUSES, 512)
    programmed = struct.unpack_from("<5Q", causes, 128)
    tags = _read(path, _TAGS, 64 + 128 * 64)
    size, count = struct.unpack_from("<HI", tags, 10)
    found = {"flushes": 0, "flush_ns": 0, "flushed": 0}
    for i in range(min(count, (len(tags) - 64) // size)):
        entry = struct.unpack_from("<II13Q", tags, 64 + size * i)
        found["flushes"] += entry[4]
        found["flush_ns"] += entry[7]
        found["flushed"] += entry[11]
    return {**found, "written": struct.unpack_from("<Q", causes, 40)[0],
            "checkpoints": struct.unpack_from("<Q", causes, 72)[0],
            **dict(zip(_CAUSE_NAMES, programmed, strict=True))}


def difference(after: dict[str, Any], before: dict[str, Any]) -> dict[str, Any]:
    """Return the differences of the counters."""
    return {name: after[name] - before[name] for name in after}
