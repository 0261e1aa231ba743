# SPDX-License-Identifier: Apache-2.0
"""Files with the data of a disk's cached blocks, for a stopped instance.

A file alone does not say whether its data is current: it has the token of a session of the
kernel, which forgets a block when somebody writes it (``cache-saved`` of the netlink family).
So an outdated file, also after a reboot or on another host, is only refused.

The format is little-endian: a head of fixed size, the key of the disk, the runs, the CRC-32 of
each block; then, at a multiple of 4096, the blocks. The head is written last, when everything
else is durable, so an incomplete file has no valid head. A file belongs to the agent's user, and
only this user can write it.
"""

import contextlib
import dataclasses
import os
import stat
import struct
import zlib
from array import array
from collections.abc import Iterator
from pathlib import Path
from types import TracebackType
from typing import Self

from vcache_agent import mapfile
from vcache_agent.mapfile import RUNS_MAX, MapFileError
from vcache_agent.model import BLOCK_BYTES, SECTOR_BYTES
from vcache_agent.netlink.spec import CachedRun

_MAGIC = b"VCACHDAT"
_VERSION = 1
# Magic, version, number of runs, sectors of the device, volume number, tag, token, time of the
# stop, bytes of the key, number of blocks; then the CRC-32 of everything before the blocks
# except itself.
_HEAD = struct.Struct("<8sIIQIIQdIQI")
_CRC = struct.Struct("<I")
_RUN = struct.Struct("<QII")
_KEY_MAX = 4096
_SECTORS_MAX = 2**63
#: Most blocks in a file: 1 TiB.
BLOCKS_MAX = 1 << 28


@dataclasses.dataclass(frozen=True)
class Content:
    """What a file has, apart from the data.

    :param key: identity of the disk on its device
    :param sectors: size of the mapped device
    :param volume: volume number of the device in its pool
    :param tag: tag of the disk on the device
    :param token: session of the kernel that the blocks belong to
    :param released: Unix time since which no domain uses the disk
    :param runs: the blocks, in the order of their data
    """

    key: str
    sectors: int
    volume: int
    tag: int
    token: int
    released: float
    runs: tuple[CachedRun, ...]

    @property
    def blocks(self) -> int:
        """Number of blocks."""
        return sum(run.len for run in self.runs) * SECTOR_BYTES // BLOCK_BYTES

    @property
    def size(self) -> int:
        """Bytes of data."""
        return self.blocks * BLOCK_BYTES


def _data_at(key: bytes, runs: int, blocks: int) -> int:
    """Return where the data of a file begins."""
    end = _HEAD.size + len(key) + runs * _RUN.size + blocks * _CRC.size
    return -(-end // BLOCK_BYTES) * BLOCK_BYTES


def size_of(content: Content) -> int:
    """Return the bytes of a whole file."""
    return _data_at(content.key.encode(), len(content.runs), content.blocks) + content.size


class Writer:
    """Writes a file; it has its name only after :meth:`commit`.

    :raises MapFileError: if that is not possible
    """

    def __init__(self, path: Path, content: Content) -> None:
        self._path = path
        self._content = content
        self._temporary = path.with_name(path.name + mapfile.NEW)
        self._at = _data_at(content.key.encode(), len(content.runs), content.blocks)
        self._crcs = array("I")
        try:
            path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
            with contextlib.suppress(FileNotFoundError):
                self._temporary.unlink()
            self._fd = os.open(self._temporary, os.O_WRONLY | os.O_CREAT | os.O_EXCL
                               | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600)
        except OSError as error:
            raise MapFileError(f"{path}: {error.strerror}") from None

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, value: BaseException | None,
                 trace: TracebackType | None) -> None:
        if self._fd >= 0:
            os.close(self._fd)
            with contextlib.suppress(OSError):
                self._temporary.unlink()

    def add(self, data: bytes | memoryview) -> None:
        """Add the next whole blocks."""
        for at in range(0, len(data), BLOCK_BYTES):
            self._crcs.append(zlib.crc32(data[at:at + BLOCK_BYTES]))
        self._write(self._at, data)
        self._at += len(data)

    def commit(self) -> None:
        """Make the file durable, then give it its name."""
        content = self._content
        if len(self._crcs) != content.blocks:
            raise MapFileError(f"{self._path}: {len(self._crcs)} of {content.blocks} blocks")
        key = content.key.encode()
        body = key + b"".join(_RUN.pack(*run) for run in content.runs) + struct.pack(
            f"<{len(self._crcs)}I", *self._crcs)
        head = _HEAD.pack(_MAGIC, _VERSION, len(content.runs), content.sectors, content.volume,
                          content.tag, content.token, content.released, len(key),
                          content.blocks, 0)[:-_CRC.size]
        self._write(_HEAD.size, body)
        try:
            os.fsync(self._fd)
            self._write(0, head + _CRC.pack(zlib.crc32(body, zlib.crc32(head))))
            os.fsync(self._fd)
            os.close(self._fd)
            self._fd = -1
            os.replace(self._temporary, self._path)
            mapfile.sync_folder(self._path.parent)
        except OSError as error:
            raise MapFileError(f"{self._path}: {error.strerror}") from None

    def _write(self, at: int, data: bytes | memoryview) -> None:
        view = memoryview(data)
        try:
            while view:
                done = os.pwrite(self._fd, view, at)
                view, at = view[done:], at + done
        except OSError as error:
            raise MapFileError(f"{self._path}: {error.strerror}") from None


class Reader:
    """A file that was opened and verified, except for the blocks.

    :raises MapFileError: if it cannot be read or is invalid
    """

    def __init__(self, path: Path) -> None:
        self._path = path
        try:
            self._fd = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
        except OSError as error:
            raise MapFileError(f"{path}: {error.strerror}") from None
        try:
            self._read()
        except BaseException as error:
            os.close(self._fd)
            if isinstance(error, OSError):
                raise MapFileError(f"{path}: {error.strerror}") from None
            raise

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, value: BaseException | None,
                 trace: TracebackType | None) -> None:
        os.close(self._fd)

    def _fail(self, text: str) -> MapFileError:
        return MapFileError(f"{self._path}: {text}")

    def _read(self) -> None:
        status = os.fstat(self._fd)
        if not stat.S_ISREG(status.st_mode):
            raise self._fail("it is not a regular file")
        if status.st_uid != os.geteuid() or status.st_mode & 0o022:
            raise self._fail("it belongs to another user, or others may write it")
        head = os.pread(self._fd, _HEAD.size, 0)
        if len(head) < _HEAD.size:
            raise self._fail("it is too short")
        (magic, version, runs, sectors, volume, tag, token, released, length, blocks,
         crc) = _HEAD.unpack(head)
        if magic != _MAGIC:
            raise self._fail("it has no data of cached blocks, or is not complete")
        if version != _VERSION:
            raise self._fail(f"its version is {version}, must be {_VERSION}")
        if length > _KEY_MAX or runs > RUNS_MAX or blocks > BLOCKS_MAX or sectors > _SECTORS_MAX:
            raise self._fail("a length in its head is too large")
        self._start = _data_at(bytes(length), runs, blocks)
        if status.st_size != self._start + blocks * BLOCK_BYTES:
            raise self._fail("its length differs from the length in its head")
        body = self._all(_HEAD.size, length + runs * _RUN.size + blocks * _CRC.size)
        if zlib.crc32(body, zlib.crc32(head[:-_CRC.size])) != crc:
            raise self._fail("the checksum of its head is wrong")
        self._parse(body, length, runs, blocks,
                    Content("", sectors, volume, tag, token, released, ()))

    def _parse(self, body: bytes, length: int, runs: int, blocks: int, head: Content) -> None:
        try:
            key = body[:length].decode()
        except UnicodeDecodeError:
            raise self._fail("its key is not UTF-8") from None
        end = length + runs * _RUN.size
        found = tuple(map(CachedRun._make, _RUN.iter_unpack(body[length:end])))
        try:
            mapfile.check_runs(found, head.sectors)
        except MapFileError as error:
            raise self._fail(str(error)) from None
        self.content = dataclasses.replace(head, key=key, runs=found)
        if self.content.blocks != blocks:
            raise self._fail("its runs have another number of blocks than its head")
        self._crcs = struct.unpack(f"<{blocks}I", body[end:])

    def _all(self, at: int, length: int) -> bytes:
        parts = []
        while length:
            part = os.pread(self._fd, min(length, 1 << 24), at)
            if not part:
                raise self._fail("it was cut while it was read")
            parts.append(part)
            at, length = at + len(part), length - len(part)
        return b"".join(parts)

    def pieces(self, runs: tuple[CachedRun, ...], most: int) -> Iterator[tuple[CachedRun, bytes]]:
        """Yield (run, data) of pieces of runs that are within the runs of the file.

        :param runs: sorted
        :param most: blocks of a piece
        :raises MapFileError: if a block is damaged
        """
        mine = iter(self.content.runs)
        first, current = 0, next(mine, None)
        for run in runs:
            while current and current.start + current.len <= run.start:
                first += current.len * SECTOR_BYTES // BLOCK_BYTES
                current = next(mine, None)
            if current is None or run.start < current.start \
                    or run.start + run.len > current.start + current.len:
                raise self._fail("it does not have all of these blocks")
            at = first + (run.start - current.start) * SECTOR_BYTES // BLOCK_BYTES
            left = run.len * SECTOR_BYTES // BLOCK_BYTES
            start = run.start
            while left:
                count = min(left, most)
                data = self._verified(at, count)
                sectors = len(data) // SECTOR_BYTES
                yield CachedRun(start, sectors, run.heat), data
                at, left, start = at + count, left - count, start + sectors

    def _verified(self, first: int, count: int) -> bytes:
        try:
            data = self._all(self._start + first * BLOCK_BYTES, count * BLOCK_BYTES)
        except OSError as error:
            raise self._fail(str(error.strerror)) from None
        for block in range(count):
            piece = data[block * BLOCK_BYTES:(block + 1) * BLOCK_BYTES]
            if zlib.crc32(piece) != self._crcs[first + block]:
                raise self._fail(f"block {first + block} of its data is damaged")
        return data
