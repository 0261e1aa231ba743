# SPDX-License-Identifier: Apache-2.0
"""Files with the list of a disk's cached blocks, and the heat of each.

A file has positions and no data. Clean data is on the disk's own storage, and the
kernel reads it from there when the blocks are loaded. So an outdated file is
harmless: it only causes useless blocks to be loaded. A file is nevertheless
verified completely, like any untrusted input.

The format is little-endian: the header, the key of the disk, the runs. Runs are
sorted, disjoint, and consist of whole blocks.
"""

import contextlib
import dataclasses
import hashlib
import os
import stat
import struct
import zlib
from collections.abc import Iterable, Sequence
from pathlib import Path

from vcache_agent.model import BLOCK_BYTES, SECTOR_BYTES, Extents
from vcache_agent.netlink import spec
from vcache_agent.netlink.spec import CachedRun

#: Largest number of runs in a file (16 MiB); if there are more, the hottest are kept.
RUNS_MAX = 1 << 20

_MAGIC = b"VCACHMAP"
_VERSION = 1
# Magic, version, number of runs, sectors of the device, volume number, bytes of the key,
# time of the stop; then the CRC-32 of everything except itself.
_HEADER = struct.Struct("<8sIIQIIdI")
_CRC = struct.Struct("<I")
_RUN = struct.Struct("<QII")
_KEY_MAX = 4096
_BYTES_MAX = _HEADER.size + _KEY_MAX + RUNS_MAX * _RUN.size
#: Suffix of a file that is being written.
NEW = ".new"
_BLOCK = BLOCK_BYTES // SECTOR_BYTES
_SECTORS_MAX = 2**63


class MapFileError(Exception):
    """The file is invalid, or cannot be read or written; the text says why."""


@dataclasses.dataclass(frozen=True)
class SavedMap:
    """The content of a file.

    :param key: identity of the disk; see :class:`vcache_agent.model.Location`
    :param sectors: size of the mapped device
    :param volume: volume number of the device in its pool
    :param released: Unix time since which no domain uses the disk; 0: saved by an operator
    :param runs: the cached blocks
    """

    key: str
    sectors: int
    volume: int
    released: float
    runs: tuple[CachedRun, ...]

    @property
    def size(self) -> int:
        """Bytes of all runs."""
        return sum(run.len for run in self.runs) * SECTOR_BYTES


def tidy(runs: Iterable[CachedRun], limit: int = RUNS_MAX) -> tuple[CachedRun, ...]:
    """Return the runs sorted and disjoint; if there are more than `limit`, the hottest.

    If several runs contain a block, the first one counts. The kernel lists a block twice
    if the block moves during the dump.
    """
    found: list[CachedRun] = []
    end = 0
    for run in sorted(runs):
        start = max(run.start, end)
        length = run.start + run.len - start
        if length <= 0:
            continue
        end = start + length
        last = found[-1] if found else None
        if last and last.heat == run.heat and last.start + last.len == start \
                and last.len + length < 2**32:
            found[-1] = CachedRun(last.start, last.len + length, last.heat)
        else:
            found.append(CachedRun(start, length, run.heat))
    if len(found) > limit:
        hottest = sorted(found, key=lambda run: -run.heat)[:limit]
        found = sorted(hottest)
    return tuple(found)


def within(runs: Iterable[CachedRun], extents: Extents) -> tuple[CachedRun, ...]:
    """Return the whole blocks of sorted runs that are inside of sorted extents."""
    found = []
    at = 0
    extents = tuple(extents)  # random access to a packed list is slow
    for run in runs:
        end = run.start + run.len
        while at < len(extents) and extents[at].start + extents[at].length <= run.start:
            at += 1
        look = at
        while look < len(extents) and extents[look].start < end:
            low = -(-max(run.start, extents[look].start) // _BLOCK) * _BLOCK
            high = min(end, extents[look].start + extents[look].length) // _BLOCK * _BLOCK
            if low < high:
                found.append(CachedRun(low, high - low, run.heat))
            look += 1
    return tuple(found)


def batches(runs: Sequence[CachedRun]) -> list[tuple[CachedRun, ...]]:
    """Return the runs as the kernel accepts them: the hottest first, each batch sorted."""
    by_heat: dict[int, list[CachedRun]] = {}
    for run in runs:
        by_heat.setdefault(run.heat, []).append(run)
    found = []
    for heat in sorted(by_heat, reverse=True):
        group = by_heat[heat]
        found += [tuple(group[at:at + spec.PREFETCH_RUNS_MAX])
                  for at in range(0, len(group), spec.PREFETCH_RUNS_MAX)]
    return found


def pack(saved: SavedMap) -> bytes:
    """Return the bytes of a file."""
    key = saved.key.encode()
    body = key + b"".join(_RUN.pack(*run) for run in saved.runs)
    fields = (_MAGIC, _VERSION, len(saved.runs), saved.sectors, saved.volume, len(key),
              saved.released)
    head = _HEADER.pack(*fields, 0)[:-_CRC.size]
    return head + _CRC.pack(zlib.crc32(body, zlib.crc32(head))) + body


def parse(data: bytes) -> SavedMap:
    """Return the content of a file from its bytes.

    :raises MapFileError: if they are invalid
    """
    if len(data) < _HEADER.size:
        raise MapFileError("it is too short")
    magic, version, count, sectors, volume, length, released, crc = _HEADER.unpack_from(data)
    if magic != _MAGIC:
        raise MapFileError("it is not a list of cached blocks")
    if version != _VERSION:
        raise MapFileError(f"its version is {version}, must be {_VERSION}")
    if length > _KEY_MAX or count > RUNS_MAX or sectors > _SECTORS_MAX:
        raise MapFileError("a length in its header is too large")
    if len(data) != _HEADER.size + length + count * _RUN.size:
        raise MapFileError("its length differs from the length in its header")
    head, body = data[:_HEADER.size - _CRC.size], data[_HEADER.size:]
    if zlib.crc32(body, zlib.crc32(head)) != crc:
        raise MapFileError("its checksum is wrong")
    try:
        key = body[:length].decode()
    except UnicodeDecodeError:
        raise MapFileError("its key is not UTF-8") from None
    runs = tuple(map(CachedRun._make, _RUN.iter_unpack(body[length:])))
    check_runs(runs, sectors)
    return SavedMap(key, sectors, volume, released, runs)


def check_runs(runs: Sequence[CachedRun], sectors: int) -> None:
    """Check that runs are sorted whole blocks on a device.

    :raises MapFileError: if not
    """
    end = 0
    for run in runs:
        if not run.len or run.len % _BLOCK or run.start % _BLOCK or run.start < end \
                or run.heat > spec.HEAT_MAX:
            raise MapFileError("its runs are not sorted whole blocks")
        end = run.start + run.len
    if end > sectors:
        raise MapFileError("its runs are beyond the end of its device")


def write(path: Path, saved: SavedMap) -> None:
    """Write a file atomically and durably.

    :raises MapFileError: if that is not possible
    """
    temporary = path.with_name(path.name + NEW)
    try:
        # Remove the remains of a killed process, and never follow a link.
        with contextlib.suppress(FileNotFoundError):
            temporary.unlink()
        fd = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW
                     | os.O_CLOEXEC, 0o600)
        with open(fd, "wb") as file:
            file.write(pack(saved))
            file.flush()
            os.fsync(file.fileno())
        os.replace(temporary, path)
        sync_folder(path.parent)
    except OSError as error:
        raise MapFileError(f"{path}: {error.strerror}") from None


def sync_folder(folder: Path) -> None:
    """Make the names in a directory durable."""
    fd = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        os.fsync(fd)
    finally:
        os.close(fd)


def read(path: Path) -> SavedMap:
    """Read a file.

    :raises MapFileError: if it cannot be read or is invalid
    """
    try:
        fd = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
        with open(fd, "rb") as file:
            status = os.fstat(fd)
            if not stat.S_ISREG(status.st_mode):
                raise MapFileError(f"{path}: it is not a regular file")
            if status.st_size > _BYTES_MAX:
                raise MapFileError(f"{path}: it has more than {_BYTES_MAX} bytes")
            data = file.read(_BYTES_MAX + 1)
    except OSError as error:
        raise MapFileError(f"{path}: {error.strerror}") from None
    try:
        return parse(data)
    except MapFileError as error:
        raise MapFileError(f"{path}: {error}") from None


def stem(key: str) -> str:
    """Return the name of a disk's files without their suffix."""
    return hashlib.sha256(key.encode()).hexdigest()[:40]


class MapFolder:
    """The directory of the files, one for each disk.

    :param path: the directory; created when the first file is saved
    """

    def __init__(self, path: Path) -> None:
        self._path = path

    def path(self, key: str) -> Path:
        """Return the path of a disk's file."""
        return self._path / f"{stem(key)}.map"

    def names(self) -> frozenset[str]:
        """Return the names of all files."""
        try:
            return frozenset(name for name in os.listdir(self._path) if name.endswith(".map"))
        except FileNotFoundError:
            return frozenset()

    def save(self, saved: SavedMap) -> None:
        """Write the file of a disk."""
        try:
            self._path.mkdir(mode=0o700, parents=True, exist_ok=True)
        except OSError as error:
            raise MapFileError(f"{self._path}: {error.strerror}") from None
        write(self.path(saved.key), saved)

    def load(self, key: str) -> SavedMap:
        """Read the file of a disk."""
        saved = read(self.path(key))
        if saved.key != key:
            raise MapFileError(f"{self.path(key)}: it belongs to another disk")
        return saved

    def sweep(self) -> None:
        """Remove incomplete files, which a killed process has left."""
        with contextlib.suppress(OSError):
            for path in self._path.glob(f"*.map{NEW}"):
                path.unlink()

    def remove(self, name: str) -> None:
        """Remove a file, if it exists."""
        with contextlib.suppress(FileNotFoundError):
            (self._path / name).unlink()
