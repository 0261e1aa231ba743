# SPDX-License-Identifier: Apache-2.0
"""Measure how a device makes data durable.

Each write writes back what has just been read, so the content of the device does not change.
Nobody else may use the device meanwhile, or a change of theirs could be lost. The devices are
therefore opened with O_EXCL, which the kernel refuses while a file system, device mapper or
another exclusive user has them.
"""

import contextlib
import dataclasses
import errno
import fcntl
import functools
import mmap
import os
import random
import statistics
import struct
import time
from collections.abc import Callable, Iterator

from vcache_agent.drive import nvme_admin

BLOCK = 4096
ROUNDS = 64
#: Bytes of the other device that are dirty during a flush, and how often this is repeated.
DIRTY = 16 << 20
DIRTY_ROUNDS = 9
_PART = 1 << 20
_BLKGETSIZE64 = 0x80081272
_BLKSSZGET = 0x1268


class MeasureError(Exception):
    """A device cannot be measured; the text says why."""


@dataclasses.dataclass(frozen=True)
class Latency:
    """Latencies in microseconds.

    :param p99: of ROUNDS requests, so it is the longest but one
    """

    p50: float
    p99: float


@dataclasses.dataclass(frozen=True)
class Measured:
    """Random requests of 4 KiB, one at a time.

    :param write: a write, which may stay in a volatile cache
    :param fua: a write with FUA; None: not an NVMe namespace
    :param flush: a FLUSH after one write
    """

    write: Latency
    fua: Latency | None
    flush: Latency


@dataclasses.dataclass(frozen=True)
class Neighbour:
    """Medians in microseconds of a FLUSH after one write of 4 KiB.

    :param alone: while the other device has no dirty data
    :param beside: while the other device has DIRTY bytes
    :param own: of the other device, with these bytes
    """

    alone: float
    beside: float
    own: float


class Device:
    """A device that nobody else uses.

    :param path: block device
    :raises MeasureError: if it is in use, or too small
    """

    def __init__(self, path: str) -> None:
        self.path = path
        try:
            self.descriptor = os.open(path, os.O_RDWR | os.O_DIRECT | os.O_EXCL | os.O_CLOEXEC)
        except OSError as error:
            why = "it is in use" if error.errno == errno.EBUSY else error.strerror
            raise MeasureError(f"{path}: cannot be measured: {why}; a measurement needs a device "
                               "that nobody uses") from error
        try:
            (self._size,) = struct.unpack("Q", self._ask(_BLKGETSIZE64, 8))
            (self._sector,) = struct.unpack("I", self._ask(_BLKSSZGET, 4))
            if self._size < DIRTY:
                raise MeasureError(f"{path}: too small to be measured: {self._size} bytes, at "
                                   f"least {DIRTY} are required")
            self._memory = mmap.mmap(-1, _PART)
            self._view = memoryview(self._memory)
        except BaseException:
            os.close(self.descriptor)
            raise

    def _ask(self, request: int, size: int) -> bytes:
        return fcntl.ioctl(self.descriptor, request, bytes(size))

    def close(self) -> None:
        """Close the device. The memory ends with the last view of it."""
        os.close(self.descriptor)

    def somewhere(self, source: random.Random) -> int:
        """Return the offset of a random block."""
        return source.randrange(self._size // BLOCK) * BLOCK

    def load(self, at: int, size: int = BLOCK) -> memoryview:
        """Read into memory, and return that memory."""
        part = self._view[:size]
        if os.preadv(self.descriptor, [part], at) != size:
            raise MeasureError(f"{self.path}: short read at {at}")
        return part

    def store(self, part: memoryview, at: int) -> None:
        """Write memory that :meth:`load` has returned."""
        if os.pwritev(self.descriptor, [part], at) != len(part):
            raise MeasureError(f"{self.path}: short write at {at}")

    def store_fua(self, at: int) -> None:
        """Write the block that was loaded, with FUA."""
        nvme_admin.write_fua(self.descriptor, nvme_admin.address_of(self._memory),
                             at // self._sector, BLOCK // self._sector)

    def flush(self) -> None:
        """Send a FLUSH."""
        os.fdatasync(self.descriptor)

    def dirty(self, size: int) -> None:
        """Write back the first bytes of the device, without a FLUSH."""
        for at in range(0, size, _PART):
            self.store(self.load(at, _PART), at)


@contextlib.contextmanager
def opened(path: str) -> Iterator[Device]:
    """Open a device, and close it at the end."""
    device = Device(path)
    try:
        yield device
    finally:
        device.close()


def _timed(action: Callable[[], None]) -> float:
    began = time.perf_counter_ns()
    action()
    return (time.perf_counter_ns() - began) / 1000


def _latency(found: list[float]) -> Latency:
    return Latency(round(statistics.median(found), 1), round(sorted(found)[-2], 1))


def measure(device: Device, *, nvme: bool, seed: int = 1) -> Measured:
    """Measure a device.

    :param nvme: it is an NVMe namespace, not a partition of one
    """
    source = random.Random(seed)  # noqa: S311 - places on a disk
    times: dict[str, list[float]] = {"write": [], "fua": [], "flush": []}
    for _ in range(ROUNDS):
        at = device.somewhere(source)
        part = device.load(at)
        times["write"].append(_timed(functools.partial(device.store, part, at)))
        times["flush"].append(_timed(device.flush))
        if nvme:
            at = device.somewhere(source)
            device.load(at)
            times["fua"].append(_timed(functools.partial(device.store_fua, at)))
    return Measured(_latency(times["write"]), _latency(times["fua"]) if nvme else None,
                    _latency(times["flush"]))


def beside(device: Device, other: Device, seed: int = 1) -> Neighbour:
    """Measure the FLUSH of a device while another one has dirty data."""
    source = random.Random(seed)  # noqa: S311 - places on a disk
    alone, dirty, own = [], [], []

    def one() -> float:
        at = device.somewhere(source)
        device.store(device.load(at), at)
        return _timed(device.flush)

    for _ in range(DIRTY_ROUNDS):
        other.flush()
        one()
        alone.append(one())
        other.dirty(DIRTY)
        dirty.append(one())
        other.flush()
        other.dirty(DIRTY)
        own.append(_timed(other.flush))
    return Neighbour(*(round(statistics.median(found), 1) for found in (alone, dirty, own)))
