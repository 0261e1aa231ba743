# SPDX-License-Identifier: Apache-2.0
"""Block-device stacks as context managers: null_blk, device mapper, the target."""

import contextlib
import itertools
import os
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import NamedTuple

from tests.box import disks
from tests.box.inside import InsideError
from tests.box.inside import run as run
from tests.box.limits import Deadline
from tests.box.steps import at_end, on_error
from tests.kernel import dm
from vcache_agent.model import DeviceNumber

SECTOR = 512

# Nothing is written out by age unless a test is about that.
NEVER_MS = 600000

_numbers = itertools.count()

#: What run() raises.
StackError = InsideError


def wait_until(what: Callable[[], bool], seconds: float = 60, every: float = 0.02) -> bool:
    """Wait until `what` holds; tell whether it did.

    :param seconds: time limit; limits.py adapts it to the machine
    """
    deadline = Deadline(seconds)
    while not what():
        if deadline.passed():
            return False
        time.sleep(every)
    return True


def sectors(path: str) -> int:
    """Return the size of a block device in sectors."""
    fd = os.open(path, os.O_RDONLY)
    try:
        return os.lseek(fd, 0, os.SEEK_END) // SECTOR
    finally:
        os.close(fd)


def writing(path: str) -> bool:
    """Return whether a write to a block device is in flight."""
    name = Path(path).resolve().name
    return int(Path("/sys/block", name, "inflight").read_text().split()[1]) > 0


def unique(prefix: str) -> str:
    """Return a name that no device has had before."""
    return f"{prefix}{next(_numbers)}"


def null_blk(mb: int = 64, *, cache: bool = True, discard: bool = False, block: int = 512,
             completion_us: int = 0, depth: int = 128) -> contextlib.AbstractContextManager[str]:
    """Make a RAM disk.

    :param mb: its size
    :param cache: it has a volatile cache, and FUA
    :param discard: it supports discard
    :param block: logical block size
    :param completion_us: time that each request takes
    :param depth: how many it has under way, on each of two queues; 1: on one
    """
    settings = {"size": mb, "memory_backed": 1, "blocksize": block, "discard": int(discard),
                "submit_queues": min(depth, 2), "hw_queue_depth": depth}
    if cache:
        settings["cache_size"] = mb
    if completion_us:
        settings |= {"irqmode": 2, "completion_nsec": completion_us * 1000}
    return disks.null_block(unique("nullb"), **settings)


class Mapped:
    """A mapped device.

    :param name: its name
    """

    def __init__(self, name: str) -> None:
        self.name = name
        self.number = DeviceNumber(*dm.number(name))
        self.path = f"/dev/dm-{self.number.minor}"
        self.removed = False

    def suspend(self, flags: int = 0) -> None:
        """Suspend it; flags as of dm."""
        dm.suspend(self.name, flags)

    def load(self, table: str) -> None:
        """Load a table, which is inactive until resume()."""
        dm.load(self.name, table)

    def resume(self) -> None:
        """Resume it, with the table that was loaded."""
        dm.resume(self.name)

    def swap(self, table: str, flags: int = 0) -> None:
        """Replace its table."""
        self.load(table)
        self.suspend(flags)
        self.resume()

    def status(self) -> list[str]:
        """Return the words of the status line behind the target's name."""
        return dm.lines(self.name, table=False)[0].split()[3:]

    def table(self) -> str:
        """Return the table."""
        return "\n".join(dm.lines(self.name, table=True))

    def message(self, text: str) -> None:
        """Send a message to its target."""
        dm.message(self.name, text)

    def remove(self) -> None:
        """Remove it now."""
        dm.remove(self.name)
        self.removed = True


@contextlib.contextmanager
def mapped(table: str, name: str = "") -> Iterator[Mapped]:
    """Make a mapped device; it is removed at the end."""
    name = name or unique("test")
    dm.create(name)
    with on_error(dm.remove, name):
        dm.load(name, table)
        dm.resume(name)
    device = Mapped(name)
    with at_end(_end, device):
        yield device


def _end(device: Mapped) -> None:
    """Remove a device, if it is still there."""
    if device.removed:
        return
    # A test that failed may have left it suspended.
    with contextlib.suppress(dm.DmError):
        dm.resume(device.name)
    if not wait_until(lambda: _removed(device.name), 10):
        raise StackError(f"{device.name} is still in use; it cannot be removed")


def _removed(name: str) -> bool:
    try:
        dm.remove(name)
    except dm.DmError as error:
        # A child that has not quite ended may still have it open.
        if dm.is_busy(error):
            return False
        raise
    return True


def linear(path: str, size: int | None = None) -> str:
    """Return the table line that maps all of a device."""
    return f"0 {size or sectors(path)} linear {path} 0"


def with_bad_sectors(path: str, start: int, length: int) -> str:
    """Return a table that maps a device but for a range that fails."""
    end, size = start + length, sectors(path)
    lines = [f"0 {start} linear {path} 0"] if start else []
    lines.append(f"{start} {length} error")
    if end < size:
        lines.append(f"{end} {size - end} linear {path} {end}")
    return "\n".join(lines)


def vcache_table(origin: str, scope: str = "volume 7", *, age_ms: int | None = NEVER_MS,
                 size: int | None = None) -> str:
    """Return a table line of the target."""
    options = "" if age_ms is None else f" 2 age_ms {age_ms}"
    return f"0 {size or sectors(origin)} vcache flush-only {origin} {scope}{options}"


@contextlib.contextmanager
def vcache(origin: str, scope: str = "volume 7", *, age_ms: int | None = NEVER_MS,
           size: int | None = None, name: str = "") -> Iterator[Mapped]:
    """Make a device of the target."""
    with mapped(vcache_table(origin, scope, age_ms=age_ms, size=size),
                name or unique("vc")) as device:
        yield device


@contextlib.contextmanager
def buffer_mb(megabytes: int) -> Iterator[None]:
    """Change the buffer memory of the host for a while."""
    parameter = Path("/sys/module/dm_vcache/parameters/buffer_mb")
    before = parameter.read_text()
    with at_end(parameter.write_text, before):
        parameter.write_text(str(megabytes))
        yield


class PoolStatus(NamedTuple):
    """The status line of a pool."""

    state: str
    chunk_sectors: int
    chunks: int
    free: int
    used: int
    dirty: int
    volumes: int
    attached: int
    needs_check: int
    bytes_per_block: float
    relocated: int
    reads: int
    kept: int
    reads_percent: int
    leaving: int
    lanes: int
    foreign: int
    hot_percent: int


def pool_status(pool: Mapped) -> PoolStatus:
    """Return what a pool says of itself."""
    words = pool.status()
    return PoolStatus._make([words[0], *map(int, words[1:9]), float(words[9]),
                             *map(int, words[10:18])])


class CacheStatus(NamedTuple):
    """What the status line of a volume says of its cache."""

    volume: int
    state: str
    dirty: int
    destaged: int
    cache_errors: int
    damaged: int
    promoted: int
    paused: int


def cache_status(device: Mapped) -> CacheStatus:
    """Return what a volume says of its cache; sizes in sectors."""
    words = device.status()
    at = words.index("cache")
    return CacheStatus._make([int(words[at + 1]), words[at + 2], *map(int, words[at + 3:at + 9])])


def pool_table(cache: str, chunk_kib: int | None = None, lanes: Sequence[int] = ()) -> str:
    """Return the table line of a pool on a cache device; the lanes are in sectors."""
    options = [] if chunk_kib is None else [f"chunk_kib {chunk_kib}"]
    options += [f"lane {size}" for size in lanes]
    words = f" {2 * len(options)} {' '.join(options)}" if options else ""
    return f"0 {sectors(cache)} vcache-pool {cache}{words}"


@contextlib.contextmanager
def pool(cache: str, *, chunk_kib: int | None = None, lanes: Sequence[int] = (),
         name: str = "") -> Iterator[Mapped]:
    """Make a pool on a cache device."""
    with mapped(pool_table(cache, chunk_kib, lanes), name or unique("pool")) as device:
        yield device


def cached_table(origin: str, pool: Mapped, volume: int = 1, scope: str = "volume 7", *,
                 mode: str = "writeback", age_ms: int = NEVER_MS) -> str:
    """Return a table line of a volume of a pool."""
    return (f"0 {sectors(origin)} vcache {mode} {origin} {scope} "
            f"5 age_ms {age_ms} pool {pool.path} {volume}")


@contextlib.contextmanager
def cached(origin: str, pool: Mapped, volume: int = 1, scope: str = "volume 7", *,
           mode: str = "writeback", age_ms: int = NEVER_MS, name: str = "") -> Iterator[Mapped]:
    """Make a device that is a volume of a pool."""
    with mapped(cached_table(origin, pool, volume, scope, mode=mode, age_ms=age_ms),
                name or unique("vc")) as device:
        yield device
