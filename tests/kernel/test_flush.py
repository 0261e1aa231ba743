# SPDX-License-Identifier: Apache-2.0
"""The data that a flush makes durable, and the requests that it sends to the origin."""

import os
import threading
import time
from pathlib import Path

import pytest

from tests.box import limits
from tests.kernel import stack
from tests.kernel.disk import SECTOR, Disk, pattern, read
from tests.kernel.logwrites import log_writes
from tests.kernel.nofua import loop_device
from tests.kernel.stack import mapped, null_blk, vcache
from vcache_agent.netlink.client import Client
from vcache_agent.netlink.spec import HISTOGRAM_BUCKETS


@pytest.mark.quick
@pytest.mark.box
def test_flush_makes_buffered_data_durable(origin: str) -> None:
    with vcache(origin) as device, Disk(device.path) as disk:
        disk.write(8, pattern(1, 8))
        disk.write(101, pattern(2, 3))
        disk.write(1000, pattern(3, 500))
        assert read(origin, 8, 8) == bytes(8 * SECTOR), "a write reached the origin by itself"
        disk.flush()
        assert read(origin, 8, 8) == pattern(1, 8)
        assert read(origin, 101, 3) == pattern(2, 3)
        assert read(origin, 1000, 500) == pattern(3, 500)
        # Unwritten sectors of the same page do not change.
        assert read(origin, 96, 5) == bytes(5 * SECTOR)


def test_flushes_send_fua_and_no_flush(origin: str) -> None:
    """Each write-out has FUA, and the origin never sees a FLUSH."""
    with log_writes(origin) as log, vcache(log.path) as device, Disk(device.path) as disk:
        log.mark("begin")
        for turn in range(20):
            disk.write(turn * 3, pattern(turn, 40))
            disk.flush()
        disk.write(5000, pattern(99, 8), fua=True)
        disk.flush()
        log.mark("end")
    entries = log.between("begin", "end")
    assert len(entries) >= 21
    assert all(entry.fua for entry in entries)
    assert not any(entry.flush for entry in entries)


def test_origin_is_flushed_once_when_taken_over(origin: str) -> None:
    """None of our flushes would cover the earlier contents of its volatile cache."""
    with log_writes(origin) as log:
        log.mark("begin")
        with vcache(log.path) as device:
            log.mark("active")
            device.swap(device.table())
            log.mark("end")
    assert [entry.flush for entry in log.between("begin", "active")] == [True]
    assert not log.between("active", "end")


def test_fua_write_is_durable_and_flushes_nothing_else(origin: str, client: Client) -> None:
    with vcache(origin) as device, Disk(device.path) as disk:
        disk.write(0, pattern(1, 8))
        # O_DSYNC on a block device adds its own flush. File systems send requests of one sector
        # that the block layer marks FUA, like this.
        before = client.tag(device.number, 7).stats
        disk.write(64, pattern(2, 3), fua=True)
        after = client.tag(device.number, 7).stats
        assert after.fua_writes == before.fua_writes + 1
        assert read(origin, 64, 3) == pattern(2, 3)
        assert disk.read(0, 8) == pattern(1, 8)


def test_fua_write_over_buffered_data_wins(origin: str) -> None:
    """It waits for older data of its pages, which would overwrite it."""
    with vcache(origin) as device, Disk(device.path) as disk:
        for turn in range(20):
            disk.write(0, pattern(turn, 16))
            disk.write(4, pattern(1000 + turn, 6), fua=True)
            expected = bytearray(pattern(turn, 16))
            expected[4 * SECTOR:10 * SECTOR] = pattern(1000 + turn, 6)
            assert disk.read(0, 16) == expected
            assert read(origin, 4, 6) == pattern(1000 + turn, 6)
            disk.flush()
            assert read(origin, 0, 16) == expected


def test_fua_write_is_not_starved(origin: str) -> None:
    """Another process rewrites another sector of the page all the time."""
    stop = threading.Event()

    def hammer(path: str) -> None:
        with Disk(path) as disk:
            while not stop.is_set():
                disk.write(1, pattern(1, 1))

    with vcache(origin) as device, Disk(device.path) as disk:
        threads = [threading.Thread(target=hammer, args=(device.path,)) for _ in range(2)]
        for thread in threads:
            thread.start()
        try:
            done = threading.Event()

            def fua() -> None:
                disk.write(0, pattern(2, 1), fua=True)
                done.set()

            writer = threading.Thread(target=fua)
            writer.start()
            in_time = done.wait(20)
        finally:
            stop.set()
            for thread in threads:
                thread.join()
        writer.join()
        assert in_time, "overtaken for 20 s"


def test_write_larger_than_the_share_goes_past_the_buffer(origin: str, client: Client) -> None:
    with stack.buffer_mb(1), vcache(origin, "filesystem") as device, Disk(device.path) as disk:
        # Three tags share 1 MiB: a write of more than 341 KiB does not fit.
        client.tag_set(device.number, 1)
        client.tag_set(device.number, 2)
        limit = client.tag(device.number, 0).limit_bytes
        assert limit < 512 * 1024
        disk.write(0, pattern(1, 1024))
        assert disk.read(0, 1024) == pattern(1, 1024)
        assert read(origin, 0, 1024) == pattern(1, 1024)
        assert client.tag(device.number, 0).dirty_bytes == 0


def test_nothing_is_sent_when_nothing_is_dirty(origin: str) -> None:
    with (log_writes(origin) as log, vcache(log.path, age_ms=50) as device,
          Disk(device.path) as disk):
        disk.write(0, pattern(1, 8))
        disk.flush()
        log.mark("begin")
        for _ in range(5):
            disk.flush()
        time.sleep(0.5)
        log.mark("end")
    assert not log.between("begin", "end")


@pytest.mark.parametrize("age_ms", [300, 2000])
def test_data_is_written_out_by_age(origin: str, age_ms: int) -> None:
    with vcache(origin, age_ms=age_ms) as device, Disk(device.path) as disk:
        # At several points of the tick.
        for turn in range(3):
            disk.write(turn * 64, pattern(turn, 8))
            start = time.monotonic()
            assert stack.wait_until(
                lambda at=turn: read(origin, at * 64, 8) == pattern(at, 8))  # type: ignore[misc]
            took = time.monotonic() - start
            assert took < age_ms / 1000 + 0.7, "later than age_ms"
            time.sleep(age_ms * 0.3 / 1000)


def test_write_through_origin(client: Client) -> None:
    """Without a volatile cache, a completed write-out is durable."""
    with null_blk(cache=False) as origin, vcache(origin) as device, Disk(device.path) as disk:
        assert device.status()[2] == "write-through"
        disk.write(0, pattern(1, 64))
        assert read(origin, 0, 64) == bytes(64 * SECTOR)
        disk.flush()
        assert read(origin, 0, 64) == pattern(1, 64)
        disk.write(64, pattern(2, 8), fua=True)
        assert read(origin, 64, 8) == pattern(2, 8)
        assert client.tag(device.number, 7).stats.device_flushes == 0
        assert _flushes(origin) == 0


def test_degraded_origin_is_flushed(origin: str, client: Client) -> None:
    """With a volatile cache and no FUA, each flush ends with one FLUSH."""
    with loop_device(origin) as below, vcache(below) as device, Disk(device.path) as disk:
        assert device.status()[2] == "degraded"
        flushes = _flushes(below)
        disk.write(0, pattern(1, 64))
        disk.flush()
        assert read(below, 0, 64) == pattern(1, 64)
        assert client.tag(device.number, 7).stats.device_flushes == 1
        assert _flushes(below) == flushes + 1
        # Also without dirty data: write-outs by age have no FUA.
        disk.flush()
        assert client.tag(device.number, 7).stats.device_flushes == 2
        disk.write(100, pattern(2, 8), fua=True)
        assert read(below, 100, 8) == pattern(2, 8)


def _write_cache(device: stack.Mapped) -> Path:
    return Path(f"/sys/block/{Path(device.path).name}/queue/write_cache")


def _flushes(path: str) -> int:
    """Return the flush requests of a disk, the 16th number of its stat file."""
    return int(Path(f"/sys/block/{Path(path).name}/stat").read_text().split()[15])


def test_origin_counts_no_flush(origin: str) -> None:
    with vcache(origin) as device, Disk(device.path) as disk:
        before = _flushes(origin)
        for turn in range(10):
            disk.write(turn * 8, pattern(turn, 8))
            disk.flush()
        assert _flushes(origin) == before


@pytest.mark.box
def test_isolation_follows_sysfs(origin: str, client: Client) -> None:
    """An administrator can tell the kernel that a cache is not volatile."""
    with mapped(stack.linear(origin)) as below, vcache(below.path) as device:
        assert device.status()[2] == "fua"
        _write_cache(below).write_text("write through")
        assert device.status()[2] == "write-through"
        with Disk(device.path) as disk:
            disk.write(0, pattern(1, 8))
            disk.flush()
        assert read(origin, 0, 8) == pattern(1, 8)


def test_flushes_are_counted_with_their_latency(client: Client) -> None:
    with (null_blk(completion_us=20000) as origin, vcache(origin) as device,
          Disk(device.path) as disk):
        for turn in range(5):
            disk.write(turn, pattern(turn, 1))
            disk.flush()
        for _ in range(7):
            disk.flush()
        stats = client.tag(device.number, 7).stats
        assert stats.flushes == 12
        assert len(stats.flush_hist) == HISTOGRAM_BUCKETS
        assert sum(stats.flush_hist) == 12
        # Five took at least the origin's 20 ms: the bucket of 2^24 ns or higher.
        first = 4 * (24 - 1)
        assert sum(stats.flush_hist[first:]) >= 5
        assert stats.flush_ns >= 5 * 20_000_000
        assert int(device.status()[16]) == stats.flush_ns // 12 // 1000


def test_a_flush_waits_for_what_was_written_before_it_only() -> None:
    """A continuous writer does not delay a flush of the same tag forever."""
    stop = threading.Event()

    def writer(path: str) -> None:
        with Disk(path) as disk:
            sector = 0
            while not stop.is_set():
                sector = (sector + 8) % 8000
                disk.write(sector, pattern(1, 8))

    with null_blk(completion_us=1000) as origin, vcache(origin) as device:
        thread = threading.Thread(target=writer, args=(device.path,))
        thread.start()
        try:
            with Disk(device.path) as disk:
                slowest = 0.0
                for turn in range(20):
                    disk.write(16000 + turn * 8, pattern(turn, 8))
                    start = time.monotonic()
                    disk.flush()
                    slowest = max(slowest, time.monotonic() - start)
                    assert read(origin, 16000 + turn * 8, 8) == pattern(turn, 8)
        finally:
            stop.set()
            thread.join()
        assert slowest < limits.limit(10)


def test_many_flushes_at_once(origin: str) -> None:
    wrong: list[int] = []

    def work(path: str, number: int) -> None:
        with Disk(path) as disk:
            for turn in range(15):
                data = pattern(number * 100 + turn, 4)
                disk.write(number * 4, data)
                disk.flush()
                if read(origin, number * 4, 4) != data:
                    wrong.append(number)

    with vcache(origin) as device:
        threads = [threading.Thread(target=work, args=(device.path, n)) for n in range(12)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    assert not wrong


@pytest.mark.box
def test_page_cache_writes_become_durable(origin: str) -> None:
    """Without O_DIRECT, the kernel's own writeback submits the writes."""
    with vcache(origin) as device:
        fd = os.open(device.path, os.O_RDWR)
        try:
            os.pwrite(fd, pattern(1, 999), 12345)
            os.fsync(fd)
        finally:
            os.close(fd)
        with Disk(origin, readonly=True) as below:
            data = below.read(0, 2048)
        assert data[12345:12345 + 999 * SECTOR] == pattern(1, 999)
