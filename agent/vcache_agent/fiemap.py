# SPDX-License-Identifier: Apache-2.0
"""Where a file's data is on its device: the FIEMAP ioctl.

Only extents that are allocated *and* written count, and that belong to this
file alone: a write to any other is an allocating write for the file system,
which has to be covered by its journal, and so is the host's.

The map is read without FIEMAP_FLAG_SYNC, which would write back the file's
dirty pages and wait for it: images are opened with O_DIRECT, and what is
delayed in the page cache is simply not there yet.
"""

import errno
import fcntl
import os
import stat
import struct
from collections.abc import Iterable, Iterator

from vcache_agent.model import SECTOR_BYTES, Extent, Extents

_FS_IOC_FIEMAP = 0xC020660B
_FS_IOC_FSGETXATTR = 0x801C581F
_FS_XFLAG_REALTIME = 0x1

_HEADER = struct.Struct("=QQIIII")
_EXTENT = struct.Struct("=QQQ16xI12x")
_BATCH = 1024
_MAX_OFFSET = 2**64 - 1

FLAG_LAST = 0x1
#: Not (yet) at a place of its own, not plain, or not written; with their names.
FLAGS_SKIPPED = {
    0x2: "unknown", 0x4: "delalloc", 0x8: "encoded", 0x80: "encrypted", 0x100: "not aligned",
    0x200: "inline", 0x400: "tail", 0x800: "unwritten", 0x2000: "shared"}
_SKIP = sum(FLAGS_SKIPPED)


class FiemapError(Exception):
    """The place of a file's data cannot be known."""


def written_extents(fd: int) -> Extents:
    """Return the written extents of a file, in sectors of its device.

    Sorted by their place on the device, neighbours joined.

    :raises FiemapError: if its file system does not tell
    """
    if not stat.S_ISREG(os.fstat(fd).st_mode):
        raise FiemapError("not a regular file")
    if _is_realtime(fd):
        raise FiemapError("an XFS realtime file is not on the file system's main device")
    try:
        return join(_usable(_read(fd)))
    except OSError as error:
        if error.errno in (errno.EOPNOTSUPP, errno.ENOTTY, errno.EINVAL):
            raise FiemapError("its file system has no FIEMAP") from None
        raise FiemapError(f"FIEMAP: {error.strerror}") from None


def join(extents: Iterable[Extent]) -> Extents:
    """Sort extents and join those that touch or overlap."""
    joined: list[Extent] = []
    for start, length in sorted(extents):
        if joined and start <= joined[-1].start + joined[-1].length:
            last = joined[-1]
            joined[-1] = Extent(last.start, max(last.length, start + length - last.start))
        else:
            joined.append(Extent(start, length))
    return tuple(joined)


def _read(fd: int) -> Iterator[tuple[int, int, int]]:
    """Yield (physical, length, flags) of each extent, in bytes."""
    offset = 0
    buffer = bytearray(_HEADER.size + _BATCH * _EXTENT.size)
    while True:
        _HEADER.pack_into(buffer, 0, offset, _MAX_OFFSET - offset, 0, 0, _BATCH, 0)
        fcntl.ioctl(fd, _FS_IOC_FIEMAP, buffer, True)
        mapped = _HEADER.unpack_from(buffer)[3]
        for number in range(mapped):
            logical, physical, length, flags = _EXTENT.unpack_from(
                buffer, _HEADER.size + number * _EXTENT.size)
            yield physical, length, flags
            if flags & FLAG_LAST:
                return
            offset = logical + length
        if mapped == 0:
            return


def _usable(extents: Iterable[tuple[int, int, int]]) -> Iterator[Extent]:
    """Leave out what is not written or not the file's own, round to whole sectors."""
    for physical, length, flags in extents:
        start = -(-physical // SECTOR_BYTES)
        end = (physical + length) // SECTOR_BYTES
        if not flags & _SKIP and start < end:
            yield Extent(start, end - start)


def _is_realtime(fd: int) -> bool:
    attributes = bytearray(28)
    try:
        fcntl.ioctl(fd, _FS_IOC_FSGETXATTR, attributes, True)
    except OSError:
        return False  # not a file system that knows of such
    return bool(int.from_bytes(attributes[:4], "little") & _FS_XFLAG_REALTIME)
