# SPDX-License-Identifier: Apache-2.0
"""Bounded memory: which writes wait when the buffer is full."""

import threading
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.box import limits
from tests.kernel import stack
from tests.kernel.conftest import Cgroup
from tests.kernel.disk import Disk, pattern
from tests.kernel.stack import null_blk, vcache
from vcache_agent.model import Extent
from vcache_agent.netlink.client import Client, EventListener
from vcache_agent.netlink.spec import EventKind

PAGE = 4096
MIB = 2048


def timed(work: Callable[[], None]) -> float:
    """Return the duration of `work` in seconds."""
    start = time.monotonic()
    work()
    return time.monotonic() - start


@pytest.mark.smp
def test_a_full_buffer_makes_only_its_owner_wait(
        client: Client, events: EventListener, cgroup: Callable[[str], Cgroup]) -> None:
    one, two = cgroup("one"), cgroup("two")
    with (null_blk(completion_us=1_000_000) as origin, stack.buffer_mb(3),
          vcache(origin, "filesystem") as device, Disk(device.path) as disk):
        client.tag_set(device.number, 1, cgroups=[one.id])
        client.tag_set(device.number, 2, cgroups=[two.id])
        client.set_extents(device.number, 1, [Extent(0, 65536)])
        client.set_extents(device.number, 2, [Extent(65536, 4096)])
        limit = client.tag(device.number, 1).limit_bytes
        assert limit == 1 << 20
        most, slowest, end = 0, 0.0, time.monotonic() + 10
        writer = threading.Thread(target=lambda: one.run(lambda: _flood_for(disk, 10)))
        writer.start()
        while time.monotonic() < end:
            most = max(most, client.tag(device.number, 1).dirty_bytes)
            slowest = max(slowest, timed(
                lambda: two.run(lambda: disk.write(65536, pattern(2, 8)))))
        # A flush does not wait for the other's data either, which takes many seconds.
        flush = timed(lambda: two.run(disk.flush))
        writer.join()
        first, second = client.tag(device.number, 1), client.tag(device.number, 2)
        assert first.stats.waits > 0
        assert first.stats.wait_ns > 0
        assert most <= limit, "more is buffered than the share"
        assert second.stats.waits == 0
        assert slowest < limits.limit(3)
        assert flush < limits.limit(4)
        kinds = {(kind, tag) for kind, number, tag in _drain(events) if number == device.number}
        assert (EventKind.PRESSURE, 1) in kinds
        assert (EventKind.PRESSURE, 2) not in kinds


def _flood_for(disk: Disk, seconds: float) -> None:
    # With gaps, so that no two are written out in one request.
    data, at, limit = pattern(1, 64), 0, time.monotonic() + seconds
    while time.monotonic() < limit:
        disk.write(at, data)
        at = (at + 72) % 65520


def _drain(events: EventListener) -> list[tuple[EventKind, object, int]]:
    found: list[tuple[EventKind, object, int]] = []
    while some := events.receive(0.3):
        found += some
    return found


@pytest.mark.box
def test_a_large_write_gets_its_room_at_once(origin: str, client: Client) -> None:
    """It needs more space than half of the dirty data has, and no data is written by age."""
    with stack.buffer_mb(1), vcache(origin, "filesystem") as device, Disk(device.path) as disk:
        for tag in range(1, 4):
            client.tag_set(device.number, tag)
        assert client.tag(device.number, 0).limit_bytes == 64 * PAGE
        for dirty in (1, 20, 31, 32, 33, 50):
            for page in range(dirty):
                disk.write(8192 + page * 16, pattern(page, 8))
            assert timed(lambda: disk.write(0, pattern(1, 512))) < limits.limit(5)
            disk.flush()
        # The same without alignment: one page more than the share, past the buffer.
        disk.write(4096, pattern(1, 8))
        assert timed(lambda: disk.write(1, pattern(2, 512))) < limits.limit(5)
        assert disk.read(1, 512) == pattern(2, 512)


def test_what_a_flush_would_wait_for_is_written_before(origin: str, client: Client) -> None:
    """A fast cache is written as soon as the data would take two milliseconds."""
    with (stack.null_blk(64) as cache, stack.pool(cache) as pool,
          stack.cached(origin, pool) as device, Disk(device.path) as disk):
        def is_low() -> bool:
            return client.tag(device.number, 7).dirty_bytes < 4 * MIB * 512

        def is_written() -> bool:
            """Try again: on a busy machine the cache may have looked slow."""
            _learn_rate(disk)
            for number in range(8):
                disk.write(number * MIB, pattern(number, MIB))
            return stack.wait_until(is_low, 1)

        assert client.tag(device.number, 7).limit_bytes > 32 * MIB * 512
        assert stack.wait_until(is_written)


def test_a_slow_cache_gets_no_more_than_a_flush_can_wait_for(client: Client) -> None:
    """Writers wait instead. What is written at once may be more."""
    with (stack.null_blk(64) as origin, stack.null_blk(64) as below,
          stack.mapped(stack.linear(below)) as cache, stack.pool(cache.path) as pool,
          stack.cached(origin, pool) as device, Disk(device.path) as disk):
        cache.swap(f"0 {stack.sectors(below)} delay {below} 0 0 {below} 0 200")
        _learn_rate(disk)
        for number in range(8):
            disk.write(number * MIB, pattern(number, MIB))
            assert client.tag(device.number, 7).dirty_bytes <= MIB * 512


def test_a_write_larger_than_a_share_has_become_waits(client: Client) -> None:
    """It does not fail, because nothing is refused."""
    with (stack.null_blk(64) as origin, stack.null_blk(64) as below, stack.buffer_mb(8),
          stack.mapped(stack.linear(below)) as cache, stack.pool(cache.path) as pool,
          stack.cached(origin, pool) as device, Disk(device.path) as disk):
        cache.swap(f"0 {stack.sectors(below)} delay {below} 0 0 {below} 0 500")
        done: list[int] = []

        def write() -> None:
            for number in range(10):
                disk.write(number * MIB + 1, pattern(number, MIB))
                done.append(number)

        writer = threading.Thread(target=write)
        writer.start()
        assert stack.wait_until(lambda: client.tag(device.number, 7).stats.waits > 0)
        with stack.buffer_mb(1):
            assert client.tag(device.number, 7).limit_bytes < MIB * 512 + PAGE
            writer.join()
        assert len(done) == 10
        for number in done:
            assert disk.read(number * MIB + 1, MIB) == pattern(number, MIB)


def test_a_slow_origin_is_not_written_before_a_flush(client: Client) -> None:
    """Overwrites are absorbed instead."""
    with (stack.null_blk(64) as below, stack.mapped(stack.linear(below)) as origin,
          stack.vcache(origin.path) as device, Disk(device.path) as disk):
        origin.swap(f"0 {stack.sectors(below)} delay {below} 0 0 {below} 0 200")
        _learn_rate(disk)
        for number in range(8):
            disk.write(number * MIB, pattern(number, MIB))
        assert client.tag(device.number, 7).dirty_bytes == 8 * MIB * 512


def _learn_rate(disk: Disk) -> None:
    disk.write(0, pattern(9, MIB))
    disk.flush()


@pytest.mark.smp
def test_writers_go_on_when_the_share_changes(origin: str, client: Client) -> None:
    """Shrunk and grown under load, down to the minimum."""
    stop = threading.Event()
    problems: list[str] = []

    def work(path: str, number: int) -> None:
        turn = 0
        with Disk(path) as disk:
            while not stop.is_set():
                turn += 1
                at = number * 8192 + turn * 40 % 4096
                data = pattern(turn, 256)
                disk.write(at, data)
                if disk.read(at, 256) != data:
                    problems.append(f"writer {number}, turn {turn}")

    with vcache(origin, "filesystem") as device:
        threads = [threading.Thread(target=work, args=(device.path, n)) for n in range(3)]
        for thread in threads:
            thread.start()
        for turn in range(12):
            with stack.buffer_mb((1, 64, 2, 1024)[turn % 4]):
                client.tag_set(device.number, 0, weight=1 + turn * 80)
                if turn % 3 == 0:
                    client.tag_set(device.number, 1 + turn, weight=1000)
                time.sleep(0.25)
        stop.set()
        for thread in threads:
            thread.join(30)
            assert not thread.is_alive()
        assert not problems


def test_memory_runs_out(client: Client) -> None:
    """The page cache of the device fills the memory; nothing hangs, no data is lost."""
    available = _meminfo("MemAvailable")
    size_mb = 96
    with null_blk(size_mb, cache=True) as origin, stack.buffer_mb(1024):
        with vcache(origin, age_ms=5000) as device:
            # This leaves less memory than the data needs twice, in the RAM disk and in the buffer.
            hog = _Hog(max(0, available - (size_mb + 160)))
            try:
                with open(device.path, "r+b", buffering=0) as file:
                    for at in range(0, size_mb - 16):
                        file.seek(at << 20)
                        file.write(pattern(at, 2048))
                with Disk(device.path) as disk:
                    disk.flush()
            finally:
                hog.release()
        with Disk(origin, readonly=True) as below:
            for at in range(0, size_mb - 16, 7):
                assert below.read(at * 2048, 2048) == pattern(at, 2048)


def _meminfo(name: str) -> int:
    """Return a line of /proc/meminfo in MiB."""
    for line in Path("/proc/meminfo").read_text().splitlines():
        if line.startswith(f"{name}:"):
            return int(line.split()[1]) >> 10
    raise KeyError(name)


class _Hog:
    """Allocates memory that cannot be reclaimed.

    :param megabytes: amount
    """

    def __init__(self, megabytes: int) -> None:
        self._path = Path("/dev/shm") / stack.unique("hog")
        with open(self._path, "wb") as file:
            block = b"\1" * (1 << 20)
            for _ in range(megabytes):
                try:
                    file.write(block)
                except OSError:
                    break  # tmpfs has its own limit, half of the memory

    def release(self) -> None:
        """Free it."""
        self._path.unlink()


@pytest.mark.smp
def test_readers_never_go_back(origin: str) -> None:
    """Reads while their blocks are written out and leave the buffer."""
    stop = threading.Event()
    problems: list[str] = []
    complete = [0] * 8  # for each part, the last completed write

    def reader(path: str) -> None:
        with Disk(path) as disk:
            while not stop.is_set():
                before = list(complete)
                data = disk.read(0, 512)
                for part in range(8):
                    oldest = min(data[part * 64 * 512:(part + 1) * 64 * 512:512])
                    if oldest < before[part]:
                        problems.append(f"part {part}: {oldest} after {before[part]}")

    with vcache(origin, age_ms=20) as device:
        threads = [threading.Thread(target=reader, args=(device.path,)) for _ in range(2)]
        with Disk(device.path) as disk:
            disk.write(0, bytes(512 * 512))
            for thread in threads:
                thread.start()
            for turn in range(1, 250):
                disk.write(turn % 8 * 64, bytes([turn]) * 64 * 512)
                complete[turn % 8] = turn
                if turn % 8 == 7:
                    disk.flush()
        stop.set()
        for thread in threads:
            thread.join()
        assert not problems
