# SPDX-License-Identifier: Apache-2.0
"""A dm-cache of the stock kernel on an elastic SSD, and how its size changes.

Three devices: ``NAME-meta`` and ``NAME-fast`` are parts of the elastic SSD, the metadata of the
cache in front, then its blocks; ``NAME`` is the cache over the origin. Without an elastic SSD, or
with too small a one, ``NAME`` is the origin itself.

What a stock kernel allows
==========================

dm-cache can grow and shrink only at its end, and it shrinks only if no block behind the new end is
dirty. Which blocks are there has nothing to do with how hot they are: the policy smq does not move
blocks inside the cache. Messages that invalidate chosen blocks need the mode passthrough, in
which the cache serves nothing, and invalidate every block that is written meanwhile. So a shrink
drops the last blocks, and the hot ones among them are promoted again. That costs misses, never
data.

- In mode writethrough all blocks are clean, so a shrink is a reload of two tables.
- In mode writeback the policy ``cleaner`` first writes all dirty blocks to the origin. The mode is
  writethrough meanwhile, so no block becomes dirty again. This takes as long as the origin needs.
- After an unclean stop dm-cache takes all blocks for dirty, in both modes.

Blocks that the host takes by force fail. In mode writethrough the origin has all data, so the
cache can be dropped at any time. In mode writeback data may be lost: choose it only if the host
gives enough time.
"""

import logging
import os
import time
from collections.abc import Callable
from typing import NamedTuple, Protocol

from vcache_guest.dm import DmError, Line

LOG = logging.getLogger(__name__)

SECTOR = 512

#: Sectors of a block of the cache: 64 KiB, a part of each block of an elastic SSD.
CACHE_BLOCK = 128

# Metadata, after Documentation/admin-guide/device-mapper/cache.rst: 4 MiB and 16 bytes for each
# block of the cache; more, because smq keeps a hint of 4 bytes as well.
_META_BASE = 4 << 20
_META_EACH = 24

#: How often the progress of the cleaner is looked at, in seconds.
_LOOK = 0.05

#: How long dirty blocks may be written for the size at the start, which has no deadline, in s.
START_S = 60.0


class Mapper(Protocol):
    """What is used of :class:`vcache_guest.dm.Dm`."""

    def exists(self, name: str) -> bool:
        """Return whether there is such a device."""

    def path(self, name: str) -> str:
        """Return the node of a device."""

    def create(self, name: str) -> None:
        """Create a device without a table."""

    def remove(self, name: str) -> None:
        """Remove a device."""

    def load(self, name: str, length: int, target: str, arguments: str) -> None:
        """Load a table."""

    def suspend(self, name: str) -> None:
        """Suspend a device."""

    def resume(self, name: str) -> None:
        """Resume a device."""

    def status(self, name: str) -> Line:
        """Return the status."""

    def table(self, name: str) -> Line:
        """Return the table."""


class CacheError(Exception):
    """The cache cannot be set up or resized; the text has the reason."""


class Status(NamedTuple):
    """What dm-cache says of itself.

    :param blocks: how many blocks it has
    :param used: how many are in use
    :param dirty: how many the origin does not have
    """

    blocks: int
    used: int
    read_hits: int
    read_misses: int
    write_hits: int
    write_misses: int
    dirty: int


def parse_status(text: str) -> Status:
    """Parse the status of dm-cache.

    :raises CacheError: if the cache has failed
    """
    words = text.split()
    if len(words) < 11:
        raise CacheError(f"dm-cache has failed, its status is {text!r}")
    used, blocks = words[3].split("/")
    return Status._make(map(int, (blocks, used, *words[4:8], words[10])))


def _sectors(path: str) -> int:
    fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    try:
        return os.lseek(fd, 0, os.SEEK_END) // SECTOR
    finally:
        os.close(fd)


class Geometry(NamedTuple):
    """How a cache is laid out on an elastic SSD.

    :param block: sectors of a block of the elastic SSD
    :param meta: blocks of it for the metadata
    """

    block: int
    meta: int

    @classmethod
    def of(cls, block_bytes: int, most: int) -> "Geometry":
        """Compute the layout for an elastic SSD of up to `most` blocks; it never changes."""
        cached = most * block_bytes // (CACHE_BLOCK * SECTOR)
        meta = _META_BASE + cached * _META_EACH
        return cls(block_bytes // SECTOR, -(-meta // block_bytes))

    def fast(self, size: int) -> int:
        """Return the sectors for cached blocks if the guest may use `size` blocks."""
        return max(size - self.meta, 0) * self.block


class Cache:
    """A cache of one origin.

    :param mapper: device mapper
    :param name: name of the device to make
    :param origin: path of the origin, which nobody else uses
    :param writeback: see the module's comment
    """

    def __init__(self, mapper: Mapper, name: str, origin: str, *, writeback: bool = False) -> None:
        self._dm, self.name, self._origin, self._writeback = mapper, name, origin, writeback
        self._length = _sectors(origin)
        self._vssd, self._geometry = "", Geometry(0, 0)
        #: How many blocks of the elastic SSD it uses.
        self.size = 0

    def open(self) -> None:
        """Make the device, without a cache, if there is none."""
        if self._dm.exists(self.name) and self._dm.table(self.name).length:
            return
        if not self._dm.exists(self.name):
            self._dm.create(self.name)
        self._activate(self.name, self._length, "linear", f"{self._origin} 0")

    def attach(self, vssd: str, block_bytes: int, most: int, size: int) -> None:
        """Use an elastic SSD.

        What an elastic SSD with persist has from an earlier start is used again. If that is not
        possible, and the origin has all data, the cache starts empty.

        :param vssd: path of its disk
        :param block_bytes: size of its blocks
        :param most: how many blocks it has
        :param size: how many of them may be used
        :raises CacheError: if it is not possible
        """
        if block_bytes % (CACHE_BLOCK * SECTOR):
            raise CacheError(f"blocks of {block_bytes} bytes, must be a multiple of "
                             f"{CACHE_BLOCK * SECTOR}")
        self._vssd, self._geometry = vssd, Geometry.of(block_bytes, most)
        if self._dm.table(self.name).target == "cache":
            # An earlier daemon has made it: only the size may differ.
            self.size = self._geometry.meta + (
                self._dm.table(self._part("fast")).length // self._geometry.block)
            self.resize(size, START_S)
            return
        try:
            self._add(size)
        except DmError as error:
            self._recreate(size, error)

    def resize(self, size: int, seconds: float = float("inf")) -> None:
        """Use another number of blocks.

        :param size: how many
        :param seconds: how long dirty blocks may be written for a shrink
        :raises CacheError: if it is not possible; then the cache has the size that it had
        """
        was = self._geometry.fast(self.size)
        fast = self._geometry.fast(size)
        try:
            if not was:
                self._add(size)
            elif not fast:
                self._clean(seconds)
                self._remove()
            elif fast < was:
                self._clean(seconds)
                self._swap(fast, was)
            elif fast > was:
                self._swap(fast, was)
        except DmError as error:
            raise CacheError(f"{self.name}: cannot use {size} blocks: {error}") from None
        self.size = size

    def drop(self, *, wiped: bool) -> None:
        """Go on without a cache, because blocks of it were lost. The next one starts empty.

        :param wiped: the first block was lost, so the metadata will read as zeroes
        :raises CacheError: if the cache may have had the only copy of data
        """
        if self._writeback:
            raise CacheError(f"{self.name}: blocks of the cache were taken by force, and may have "
                             "had the only copy of data")
        try:
            self._remove()
            if self._vssd and not wiped:
                self._wipe()
        except DmError as error:
            raise CacheError(f"{self.name}: cannot drop the cache: {error}") from None

    def status(self) -> Status | None:
        """Return what the cache says of itself; None without a cache.

        :raises CacheError: if it has failed
        """
        line = self._dm.status(self.name)
        return parse_status(line.arguments) if line.target == "cache" else None

    def close(self) -> None:
        """Remove all devices; the cache is kept on an elastic SSD with persist."""
        self._dm.remove(self.name)
        self._remove_parts()
        self.size = 0

    def _part(self, part: str) -> str:
        return f"{self.name}-{part}"

    def _activate(self, name: str, length: int, target: str, arguments: str) -> None:
        """Load a table and resume. If that fails, the table that was active is so again."""
        before = self._dm.table(name)
        self._dm.load(name, length, target, arguments)
        try:
            self._dm.resume(name)
        except DmError:
            # dm leaves the device suspended, with the new table.
            if before.length:
                self._undo(lambda: self._again(name, before))
            raise

    def _again(self, name: str, line: Line) -> None:
        self._dm.load(name, line.length, line.target, line.arguments)
        self._dm.resume(name)

    def _arguments(self, *, cleaner: bool = False) -> str:
        mode = "writeback" if self._writeback and not cleaner else "writethrough"
        policy = "cleaner" if cleaner else "smq"
        return (f"{self._dm.path(self._part('meta'))} {self._dm.path(self._part('fast'))} "
                f"{self._origin} {CACHE_BLOCK} 2 metadata2 {mode} {policy} 0")

    def _add(self, size: int) -> None:
        fast = self._geometry.fast(size)
        if not fast:
            self.size = size
            return
        meta = self._geometry.meta * self._geometry.block
        try:
            for part, at, length in ("meta", 0, meta), ("fast", meta, fast):
                self._dm.create(self._part(part))
                self._activate(self._part(part), length, "linear", f"{self._vssd} {at}")
            self._activate(self.name, self._length, "cache", self._arguments())
        except DmError:
            self._remove_parts()
            raise
        self.size = size

    def _recreate(self, size: int, error: DmError) -> None:
        if self._writeback:
            raise CacheError(f"{self.name}: the cache of an earlier start cannot be used, and may "
                             f"have the only copy of data: {error}")
        LOG.warning("%s: the cache of an earlier start cannot be used, starting with an empty one: "
                    "%s", self.name, error)
        try:
            self._wipe()
            self._add(size)
        except DmError as again:
            raise CacheError(f"{self.name}: cannot use the elastic SSD: {again}") from None

    def _wipe(self) -> None:
        """Zero the superblock of the metadata: then dm-cache makes new metadata."""
        try:
            fd = os.open(self._vssd, os.O_WRONLY | os.O_CLOEXEC | os.O_SYNC)
            try:
                os.pwrite(fd, bytes(4096), 0)
            finally:
                os.close(fd)
        except OSError as error:
            raise DmError(error.errno, f"{self._vssd}: {error.strerror}") from None

    def _remove(self) -> None:
        """Go on without a cache, which has no dirty block."""
        if self._dm.table(self.name).target == "cache":
            self._activate(self.name, self._length, "linear", f"{self._origin} 0")
        self._remove_parts()
        self.size = 0

    def _remove_parts(self) -> None:
        for part in "meta", "fast":
            if self._dm.exists(self._part(part)):
                self._dm.remove(self._part(part))

    def _clean(self, seconds: float) -> None:
        """Write all dirty blocks to the origin, and prevent new ones."""
        if not self._dirty():
            return
        self._activate(self.name, self._length, "cache", self._arguments(cleaner=True))
        end = time.monotonic() + seconds
        while (dirty := self._dirty()):
            if time.monotonic() >= end:
                self._activate(self.name, self._length, "cache", self._arguments())
                raise CacheError(f"{self.name}: {dirty} blocks are still dirty after {seconds:g} s")
            time.sleep(_LOOK)

    def _dirty(self) -> int:
        status = self.status()
        return status.dirty if status else 0

    def _swap(self, fast: int, was: int) -> None:
        """Change the size of the fast device below the suspended cache."""
        self._dm.suspend(self.name)
        try:
            self._resize_fast(fast)
            # dm-cache reads the size of its device when a table is loaded.
            self._restart()
        except DmError:
            self._undo(lambda: self._resize_fast(was))
            self._undo(self._restart)
            raise

    def _restart(self) -> None:
        self._dm.load(self.name, self._length, "cache", self._arguments())
        self._dm.resume(self.name)

    def _resize_fast(self, length: int) -> None:
        meta = self._geometry.meta * self._geometry.block
        self._activate(self._part("fast"), length, "linear", f"{self._vssd} {meta}")

    def _undo(self, step: Callable[[], None]) -> None:
        try:
            step()
        except DmError as error:
            LOG.error("%s: cannot go back: %s", self.name, error)
