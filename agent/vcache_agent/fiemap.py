# SPDX-License-Identifier: Apache-2.0
"""Read the extents of a file by the FIEMAP ioctl.

An extent counts only if it is allocated, written, and not shared with another
file. A write to any other extent is an allocating write: the file system must
commit it by its journal, so it belongs to the host tag.

The extents are read without FIEMAP_FLAG_SYNC, which would write back the file's
dirty pages and wait. Images are opened with O_DIRECT. Data that is delayed in
the page cache has no extent yet.
"""

import errno
import fcntl
import os
import stat
import struct
from collections.abc import Callable, Iterable, Iterator
from typing import NamedTuple

from vcache_agent.model import SECTOR_BYTES, Extent, Extents

_FS_IOC_FIEMAP = 0xC020660B
_FS_IOC_FSGETXATTR = 0x801C581F
_FS_XFLAG_REALTIME = 0x1

_HEADER = struct.Struct("=QQIIII")
_EXTENT = struct.Struct("=QQQ16xI12x")
_BATCH = 1024
_MAX_OFFSET = 2**64 - 1

FLAG_LAST = 0x1
#: Flags of extents that do not count: no final location, not plain data, or not written.
FLAGS_SKIPPED = {
    0x2: "unknown", 0x4: "delalloc", 0x8: "encoded", 0x80: "encrypted", 0x100: "not aligned",
    0x200: "inline", 0x400: "tail", 0x800: "unwritten", 0x2000: "shared"}
_SKIP = sum(FLAGS_SKIPPED)
# Unwritten, or delayed in the page cache.
_UNWRITTEN = 0x800 | 0x4


class FiemapError(Exception):
    """The extents of a file cannot be read."""


class FiemapFailed(FiemapError):
    """The extents of a file could not be read this time."""


class Found(NamedTuple):
    """The extents of a file.

    :param extents: the written extents, in sectors of the file system's device, sorted and
        joined
    :param unwritten: sectors that a write makes written without allocating them
    """

    extents: Extents
    unwritten: int


def read(fd: int, progress: Callable[[], object] = lambda: None) -> Found:
    """Return the extents of a file.

    :param progress: called now and then, because a file may have many extents
    :raises FiemapError: if the file system does not report them
    :raises FiemapFailed: if it failed to
    """
    if not stat.S_ISREG(os.fstat(fd).st_mode):
        raise FiemapError("not a regular file")
    if _is_realtime(fd):
        raise FiemapError("it is an XFS realtime file, which is not on the main device")
    found: list[Extent] = []
    unwritten = 0
    try:
        for batch in _read(fd):
            found += _usable(batch)
            unwritten += sum(length for _, length, flags in batch
                             if flags & _UNWRITTEN) // SECTOR_BYTES
            progress()
    except OSError as error:
        if error.errno in (errno.EOPNOTSUPP, errno.ENOTTY, errno.EINVAL):
            raise FiemapError("its file system does not support FIEMAP") from None
        raise FiemapFailed(f"FIEMAP: {error.strerror}") from None
    return Found(join(found), unwritten)


def written_extents(fd: int) -> Extents:
    """Return the written extents of a file; see :func:`read`."""
    return read(fd).extents


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


def _read(fd: int) -> Iterator[list[tuple[int, int, int]]]:
    """Yield (physical, length, flags) of the extents, in bytes, in batches."""
    offset = 0
    buffer = bytearray(_HEADER.size + _BATCH * _EXTENT.size)
    while True:
        _HEADER.pack_into(buffer, 0, offset, _MAX_OFFSET - offset, 0, 0, _BATCH, 0)
        fcntl.ioctl(fd, _FS_IOC_FIEMAP, buffer, True)
        mapped = _HEADER.unpack_from(buffer)[3]
        if mapped == 0:
            return
        found = memoryview(buffer)[_HEADER.size:_HEADER.size + mapped * _EXTENT.size]
        batch = list(_EXTENT.iter_unpack(found))
        yield [extent[1:] for extent in batch]
        logical, _, length, flags = batch[-1]
        if flags & FLAG_LAST:
            return
        offset = logical + length


def _usable(extents: Iterable[tuple[int, int, int]]) -> Iterator[Extent]:
    """Yield the extents without a flag of :data:`FLAGS_SKIPPED`, shrunk to whole sectors."""
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
        return False  # the file system has no realtime files
    return bool(int.from_bytes(attributes[:4], "little") & _FS_XFLAG_REALTIME)
