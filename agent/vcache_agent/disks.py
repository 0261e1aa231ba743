# SPDX-License-Identifier: Apache-2.0
"""Find a virtual disk's data on the vcache devices.

Only the image to which a domain writes counts. The backing images of a qcow2 image
are shared and read-only, and QEMU's reads of them need no tag.
"""

import os
import stat
import time
from typing import NamedTuple

from vcache_agent import fiemap
from vcache_agent.blockstack import BlockStack, NotOnVcache, follow
from vcache_agent.model import Device, DeviceNumber, DiskSource, Extent, Extents, Location
from vcache_agent.netlink import spec

# Largest fraction of the time that reading the extents of one file may take.
_FIEMAP_PART = 0.05

# Nanoseconds after its last change during which the extents of a file may still change
# without a change of its times or blocks. A file system sets the time and allocates the
# blocks when a write begins, and marks the extents as written when it ends. The value is
# above the block layer's timeout of a request (30 s).
_SETTLE_NS = 60 * 10**9


class _Seen(NamedTuple):
    """The extents of a file.

    :param state: size, blocks and times of the file before the extents were read
    :param settled: no write can have been in progress at that time
    :param extents: the extents, in sectors of the file system's device
    :param again: monotonic time from which on they may be read again
    """

    state: tuple[int, ...]
    settled: bool
    extents: Extents
    again: float


class DiskFinder:
    """Finds disks. Caches the extents of files that have not changed."""

    def __init__(self) -> None:
        self._seen: dict[tuple[int, int], _Seen] = {}
        self._used: set[tuple[int, int]] = set()

    def locate(self, source: DiskSource, stack: BlockStack, *, extents: bool = True,
               fresh: bool = False) -> Location:
        """Return the location of a disk.

        :param stack: the block devices
        :param extents: include the extents of a file
        :param fresh: read the extents even if the file has not changed
        :raises NotOnVcache: if the disk cannot have a tag; the text says why
        """
        if source.readonly:
            raise NotOnVcache("it is read-only")
        if source.kind not in ("file", "block"):
            raise NotOnVcache(f"its type is {source.kind!r}, must be 'file' or 'block'")
        if source.path is None:
            raise NotOnVcache("it has no source")
        try:
            # The path comes from libvirt, not from the guest, so symbolic links are
            # followed. O_NONBLOCK, because a FIFO or a removed medium must not block.
            fd = os.open(source.path, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK | os.O_NOCTTY)
        except OSError as error:
            raise NotOnVcache(f"{source.path}: {error.strerror}") from None
        try:
            status = os.fstat(fd)
            if stat.S_ISBLK(status.st_mode):
                return _block(status, stack)
            return self._file(fd, status, stack, extents, fresh)
        finally:
            os.close(fd)

    def _file(self, fd: int, status: os.stat_result, stack: BlockStack, extents: bool,
              fresh: bool) -> Location:
        number = DeviceNumber(os.major(status.st_dev), os.minor(status.st_dev))
        segments = stack.segments(number)
        device, _ = follow(segments, ())
        if device.scope == spec.Scope.VOLUME:
            return _volume(device)
        key = f"file:{device.name}:{number}:{status.st_ino}"
        if segments[0].device.number == number:
            key = f"file:{device.name}:{status.st_ino}"
        if not extents:
            return Location(key, device.number)
        try:
            found = self._extents(fd, status, fresh)
        except fiemap.FiemapError as error:
            raise NotOnVcache(str(error)) from None
        return Location(key, device.number, fiemap.join(follow(segments, found)[1]))

    def _extents(self, fd: int, status: os.stat_result, fresh: bool) -> Extents:
        file = (status.st_dev, status.st_ino)
        self._used.add(file)
        # The first write to a preallocated extent changes neither size nor blocks, but
        # it changes the times.
        state = (status.st_size, status.st_blocks, status.st_mtime_ns, status.st_ctime_ns)
        seen = self._seen.get(file)
        start = time.monotonic()
        if seen and not fresh and (start < seen.again or (seen.settled and seen.state == state)):
            return seen.extents
        changed = max(status.st_mtime_ns, status.st_ctime_ns)
        settled = time.time_ns() - changed > _SETTLE_NS
        found = fiemap.written_extents(fd)
        end = time.monotonic()
        self._seen[file] = _Seen(state, settled, found, end + (end - start) / _FIEMAP_PART)
        return found

    def prune(self) -> None:
        """Forget the files that were not located since the last call."""
        self._seen = {file: seen for file, seen in self._seen.items() if file in self._used}
        self._used.clear()


def _block(status: os.stat_result, stack: BlockStack) -> Location:
    number = DeviceNumber(os.major(status.st_rdev), os.minor(status.st_rdev))
    segments = stack.segments(number)
    whole = [Extent(segment.start, segment.length) for segment in segments]
    device, extents = follow(segments, whole)
    if device.scope == spec.Scope.VOLUME:
        return _volume(device)
    joined = fiemap.join(extents)
    return Location(f"block:{device.name}:{joined[0].start}", device.number, joined)


def _volume(device: Device) -> Location:
    return Location(f"volume:{device.name}", device.number)
