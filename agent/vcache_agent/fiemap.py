# SPDX-License-Identifier: Apache-2.0
"""Read the extents of a file by the FIEMAP ioctl.

An extent counts only if it is allocated, written, and not shared with another
file. A write to any other extent is an allocating write: the file system must
commit it by its journal, so it belongs to the host tag.

The extents are read without FIEMAP_FLAG_SYNC, which would write back the file's
dirty pages and wait. Images are opened with O_DIRECT. Data that is delayed in
the page cache has no extent yet.

Helper processes (locate_helper.py) import this, so it needs few modules.
"""

import errno
import fcntl
import os
import stat
import struct
from collections.abc import Callable, Iterator
from itertools import compress
from operator import add

from vcache_agent.runs import joined

_SECTOR = 512
_FS_IOC_FIEMAP = 0xC020660B
_FS_IOC_FSGETXATTR = 0x801C581F
_FS_XFLAG_REALTIME = 0x1

_HEADER = struct.Struct("=QQIIII")
# 64-bit numbers: logical and physical offset, length, two reserved ones; then 32-bit numbers:
# the flags, three reserved ones.
_EXTENT_BYTES = 56
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


def read(fd: int, progress: Callable[[], object] = lambda: None) -> tuple[bytes, int]:
    """Return the written extents of a file, and its sectors that only a write makes written.

    :param progress: called now and then, because a file may have many extents
    :return: first sector and length of each extent on the file system's device, in 8 bytes each,
        sorted and joined; number of sectors that are allocated, but not written
    :raises FiemapError: if the file system does not report them
    :raises FiemapFailed: if it failed to
    """
    if not stat.S_ISREG(os.fstat(fd).st_mode):
        raise FiemapError("not a regular file")
    if _is_realtime(fd):
        raise FiemapError("it is an XFS realtime file, which is not on the main device")
    starts: list[int] = []
    ends: list[int] = []
    unwritten = 0
    try:
        for physical, lengths, flags in _read(fd):
            _use(physical, lengths, flags, starts, ends)
            unwritten += sum(compress(lengths, [flag & _UNWRITTEN for flag in flags]))
            progress()
    except OSError as error:
        if error.errno in (errno.EOPNOTSUPP, errno.ENOTTY, errno.EINVAL):
            raise FiemapError("its file system does not support FIEMAP") from None
        raise FiemapFailed(f"FIEMAP: {error.strerror}") from None
    return joined(starts, ends).tobytes(), unwritten // _SECTOR


def _use(physical: list[int], lengths: list[int], flags: list[int], starts: list[int],
         ends: list[int]) -> None:
    """Add the sectors of the extents without a flag of :data:`FLAGS_SKIPPED`.

    Sectors of which only a part belongs to an extent do not count, so a run may be empty.

    :param physical: offsets in bytes
    :param lengths: bytes
    :param starts: receives the first sectors
    :param ends: receives the sectors after the last ones
    """
    usable = [not flag & _SKIP for flag in flags]
    starts += [-(-offset // _SECTOR) for offset in compress(physical, usable)]
    ends += [end // _SECTOR for end in compress(map(add, physical, lengths), usable)]


def _read(fd: int) -> Iterator[tuple[list[int], list[int], list[int]]]:
    """Yield physical offsets, lengths and flags of the extents, in bytes, in batches."""
    offset = 0
    buffer = bytearray(_HEADER.size + _BATCH * _EXTENT_BYTES)
    while True:
        _HEADER.pack_into(buffer, 0, offset, _MAX_OFFSET - offset, 0, 0, _BATCH, 0)
        fcntl.ioctl(fd, _FS_IOC_FIEMAP, buffer, True)
        mapped = _HEADER.unpack_from(buffer)[3]
        if mapped == 0:
            return
        found = memoryview(buffer)[_HEADER.size:_HEADER.size + mapped * _EXTENT_BYTES]
        # Each column at once takes a third of the time of one extent after another.
        words, halves = found.cast("Q"), found.cast("I")
        lengths, flags = words[2::7].tolist(), halves[10::14].tolist()
        yield words[1::7].tolist(), lengths, flags
        if flags[-1] & FLAG_LAST:
            return
        offset = words[7 * (mapped - 1)] + lengths[-1]


def _is_realtime(fd: int) -> bool:
    attributes = bytearray(28)
    try:
        fcntl.ioctl(fd, _FS_IOC_FSGETXATTR, attributes, True)
    except OSError:
        return False  # the file system has no realtime files
    return bool(int.from_bytes(attributes[:4], "little") & _FS_XFLAG_REALTIME)
