# SPDX-License-Identifier: Apache-2.0
"""Whether an origin was written without its cache.

A stamp is a hash of the parts of a device that each mount and each repair of a file system
changes: the superblock, and for xfs the begin of its log, of the device and of its partitions. It
is taken when a device is no longer attached, and compared before the next attach.

After a crash there is no stamp, because the last writes of the cache are not known. Then a file
system of ext2, ext3 or ext4 still has the time of the last write to it, which must not be later
than the start of the host.
"""

import hashlib
import os
import struct
import time
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

_SECTOR = 512
# Bytes at the begin of a device, of a partition, and at the end of a device.
_HEAD, _PART, _END = 2 << 20, 128 << 10, 64 << 10
_PARTITIONS_MAX = 128
# Difference of clocks between two writers that is no evidence, in seconds.
_SLACK = 5

_EXT = struct.Struct("<44xIIH2xH6xI")  # s_mtime, s_wtime, s_mnt_count, s_magic, s_lastcheck
_EXT_MAGIC = 0xEF53
_XFS = struct.Struct(">4sI40xQ")  # magic, block size, first block of the log
_XFS_AG = struct.Struct(">84xI")  # blocks of an allocation group
_XFS_LOG = 1 << 20


class Extent(NamedTuple):
    """A part of a device, in bytes."""

    start: int
    size: int


def stamp(path: str) -> str:
    """Return the stamp of a device, 16 hexadecimal digits.

    :raises OSError: if it cannot be read
    """
    found = hashlib.sha256()
    fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    try:
        size = os.lseek(fd, 0, os.SEEK_END)
        # The page cache may be older than the device.
        os.posix_fadvise(fd, 0, 0, os.POSIX_FADV_DONTNEED)
        found.update(str(size).encode())
        for part in _extents(fd, size):
            found.update(os.pread(fd, part.size, part.start))
    finally:
        os.close(fd)
    return found.hexdigest()[:16]


def changed(path: str, old: str, booted: float | None = None) -> str:
    """Return how a device was changed without its cache; empty if that is not known.

    :param old: its stamp; empty: there is none, because of a crash
    :param booted: time of the start of the host in seconds since 1970; None: that of this host
    :raises OSError: if the device cannot be read
    """
    if old:
        return "" if stamp(path) == old else \
            "its superblock differs from that at the last stop of the host"
    written = _ext_written(path)
    booted = _boot_time() if booted is None else booted
    if written > booted + _SLACK:
        when = time.strftime("%Y-%m-%d %H:%M:%S", time.localtime(written))
        return f"its file system was written at {when}, after the start of the host"
    return ""


def _boot_time() -> float:
    for line in Path("/proc/stat").read_text().splitlines():
        if line.startswith("btime "):
            return float(line.split()[1])
    return time.time()


def _ext_written(path: str) -> int:
    """Return the time of the last write to an ext file system; 0 if it is none."""
    with open(path, "rb", buffering=0) as file:
        file.seek(1024)
        data = file.read(1024)
    if len(data) < 1024:
        return 0
    mounted, written, _count, magic, checked = _EXT.unpack_from(data)
    return max(mounted, written, checked) if magic == _EXT_MAGIC else 0


def _extents(fd: int, size: int) -> Iterator[Extent]:
    yield Extent(0, min(size, _HEAD))
    if size > _HEAD + _END:
        yield Extent(size - _END, _END)
    for start in (0, *_partitions(fd)):
        if start:
            yield Extent(start, _PART)
        log = _xfs_log(os.pread(fd, _SECTOR, start))
        if log:
            yield Extent(start + log, _XFS_LOG)


def _xfs_log(data: bytes) -> int:
    """Return where the log of an xfs begins, in bytes from its own begin; 0: there is none."""
    if len(data) < _SECTOR or data[:4] != b"XFSB":
        return 0
    _, block, log = _XFS.unpack_from(data)
    (group_blocks,) = _XFS_AG.unpack_from(data)
    bits = data[124]  # the logarithm of the blocks of a group, rounded up
    return int(((log >> bits) * group_blocks + (log & ((1 << bits) - 1))) * block) if log else 0


def _partitions(fd: int) -> list[int]:
    """Return where partitions begin, in bytes."""
    head = os.pread(fd, 2 * _SECTOR, 0)
    if len(head) < 2 * _SECTOR or head[510:512] != b"\x55\xaa":
        return []
    if head[_SECTOR:_SECTOR + 8] == b"EFI PART":
        at, count, step = struct.unpack_from("<QII", head, _SECTOR + 72)
        if not 128 <= step <= 4096:
            return []
        table = os.pread(fd, min(count, _PARTITIONS_MAX) * step, at * _SECTOR)
        starts = [struct.unpack_from("<Q", table, entry + 32)[0]
                  for entry in range(0, len(table) - step + 1, step)
                  if any(table[entry:entry + 16])]
    else:
        starts = [struct.unpack_from("<I", head, 446 + 16 * entry + 8)[0]
                  for entry in range(4) if head[446 + 16 * entry + 4]]
    return [start * _SECTOR for start in starts]
