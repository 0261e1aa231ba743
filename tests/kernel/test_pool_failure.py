# SPDX-License-Identifier: Apache-2.0
"""A failing cache or origin, and a full cache, affect only the volumes concerned."""

import errno
import random
import threading
import time
from collections.abc import Callable, Iterator

import pytest

from tests.box.steps import at_end
from tests.kernel import dm, stack
from tests.kernel.conftest import KernelLog
from tests.kernel.disk import Disk, pattern
from tests.kernel.stack import Mapped, linear, mapped
from vcache_agent.netlink.client import EventListener
from vcache_agent.netlink.spec import EventKind

MB = 2048  # sectors


@pytest.fixture
def cache_below() -> Iterator[Mapped]:
    """Provide a cache device that can be broken: a linear mapping of a RAM disk."""
    with stack.null_blk(discard=True) as path, mapped(linear(path)) as below:
        below.whole = linear(path)  # type: ignore[attr-defined]
        yield below


@pytest.fixture
def second() -> Iterator[str]:
    """Provide a second origin."""
    with stack.null_blk() as path:
        yield path


def _break(device: Mapped) -> None:
    """Make all requests fail."""
    device.swap(f"0 {stack.sectors(device.path)} error")


def fails(work: Callable[[], object]) -> None:
    """Check that `work` gets an I/O error."""
    with pytest.raises(OSError) as refused:  # noqa: PT011 - the number is checked
        work()
    assert refused.value.errno == errno.EIO


@pytest.mark.box
def test_cache_is_lost(cache_below: Mapped, origin: str, second: str, kmsg: KernelLog,
                       events: EventListener) -> None:
    """A volume without dirty data continues with its origin; one with dirty data gets errors."""
    with stack.pool(cache_below.path) as pool, stack.cached(origin, pool, 1) as clean, \
            stack.cached(second, pool, 2) as dirty, \
            Disk(clean.path) as of_clean, Disk(dirty.path) as of_dirty:
        of_clean.write(0, pattern(1, 64))
        clean.message("drain")
        assert stack.wait_until(lambda: stack.cache_status(clean).state == "clean")
        of_dirty.write(0, pattern(2, 64), fua=True)
        assert stack.cache_status(dirty).dirty == 64
        _break(cache_below)

        # A few refusals are required.
        assert stack.wait_until(lambda: _tries(of_clean) and
                                stack.pool_status(pool).state == "failed")
        assert stack.cache_status(clean).state == "bypassed"
        assert stack.cache_status(dirty).state == "lost"
        of_clean.write(64, pattern(4, 64), fua=True)
        assert of_clean.read(0, 128) == pattern(3, 64) + pattern(4, 64)
        fails(lambda: of_dirty.write(1024, pattern(5, 8), fua=True))
        fails(lambda: of_dirty.read(0, 8))
        assert of_dirty.read(4096, 8) == bytes(8 * 512)
        assert "continues without its cache" in kmsg.read()
        assert "its writes fail" in kmsg.read()
        assert stack.wait_until(lambda: _is_told(events))
    with Disk(origin) as below:
        assert below.read(0, 128) == pattern(3, 64) + pattern(4, 64)


def test_cache_that_comes_back_has_nothing_old(cache_below: Mapped, origin: str,
                                               kmsg: KernelLog) -> None:
    """It refused requests behind its metadata, so the metadata could be updated."""
    size = stack.sectors(cache_below.path)
    whole = cache_below.table()
    with stack.pool(cache_below.path) as pool:
        with stack.cached(origin, pool) as device, Disk(device.path) as disk:
            disk.write(0, pattern(1, 2048), fua=True)
            device.message("drain")
            assert stack.wait_until(lambda: stack.cache_status(device).state == "clean")
            at = stack.pool_status(pool)
            first = size - size % at.chunk_sectors - at.chunks * at.chunk_sectors
            backing = whole.split()[3]
            cache_below.swap(f"0 {first} linear {backing} 0\n{first} {size - first} error")
            assert stack.wait_until(lambda: _tries(disk) and
                                    stack.pool_status(pool).state == "failed")
            disk.write(64, pattern(4, 64), fua=True)
            assert disk.read(0, 128) == pattern(3, 64) + pattern(4, 64)
        assert "continues without its cache\n" in kmsg.read()
    cache_below.swap(whole)
    with stack.pool(cache_below.path) as pool, stack.cached(origin, pool) as device, \
            Disk(device.path) as disk:
        assert stack.cache_status(device).state == "clean"
        assert disk.read(0, 128) == pattern(3, 64) + pattern(4, 64)


def _is_told(events: EventListener) -> bool:
    """Return whether the loss is among the received events; others may come first."""
    return EventKind.CACHE_LOST in {kind for kind, _, _ in events.receive(0.2)}


def _tries(disk: Disk) -> bool:
    try:
        disk.write(0, pattern(3, 64), fua=True)
    except OSError:
        return False
    return True


def test_origin_fails_while_the_cache_has_room(cache_below: Mapped, origin: str,
                                               kmsg: KernelLog) -> None:
    with mapped(linear(origin)) as below, stack.pool(cache_below.path) as pool, \
            stack.cached(below.path, pool) as device, Disk(device.path) as disk:
        disk.write(0, pattern(1, MB))
        disk.flush()
        _break(below)
        device.message("drain")
        assert stack.wait_until(lambda: stack.cache_status(device).state == "failing")
        assert stack.wait_until(lambda: "its dirty data stays in the cache" in kmsg.read())
        assert disk.read(0, MB) == pattern(1, MB)
        below.swap(linear(origin))
        assert stack.wait_until(lambda: stack.cache_status(device).state == "clean")
        with Disk(origin) as raw:
            assert raw.read(0, MB) == pattern(1, MB)


def test_what_an_unused_volume_has_clean_makes_room(cache_below: Mapped, origin: str,
                                                    second: str) -> None:
    """Also if the volume was not used since the pool was loaded."""
    with stack.pool(cache_below.path) as pool, stack.cached(origin, pool, 1) as first, \
            Disk(first.path) as disk:
        for number in range(50):
            disk.write(number * MB, pattern(number, MB))
        disk.flush()
        first.message("drain")
        assert stack.wait_until(lambda: stack.cache_status(first).state == "clean")
        assert stack.pool_status(pool).used > 40
    with stack.pool(cache_below.path) as pool, mapped(linear(second)) as below, \
            stack.cached(below.path, pool, 2) as device:
        assert stack.pool_status(pool).volumes == 2
        _break(below)
        with Disk(device.path) as disk, stack.buffer_mb(4):
            for number in range(40):
                disk.write(number * MB, pattern(100 + number, MB))
            disk.flush()
            assert disk.read(20 * MB, MB) == pattern(120, MB)
        below.swap(linear(second))
        device.message("drain")
        assert stack.wait_until(lambda: stack.cache_status(device).state == "clean")


def test_a_full_cache_holds_up_only_who_filled_it(origin: str, second: str) -> None:
    """One origin hangs, and its volume fills the cache. The other volume is not affected."""
    with stack.null_blk(24, discard=True) as cache, stack.pool(cache, chunk_kib=64) as pool, \
            mapped(linear(origin)) as below, stack.cached(below.path, pool, 1) as slow, \
            stack.cached(second, pool, 2) as other:
        _break(below)
        stop = threading.Event()
        written: list[int] = []

        def fill() -> None:
            with Disk(slow.path) as disk:
                for number in range(48):
                    if stop.is_set():
                        return
                    disk.write(number * MB, pattern(number, MB))
                    written.append(number)

        with stack.buffer_mb(4):
            thread = threading.Thread(target=fill)
            thread.start()
            with (at_end(stop.set), at_end(thread.join, 120),
                  at_end(below.swap, linear(origin))):
                # Its writes wait when it has its maximum.
                assert stack.wait_until(lambda: _stands_still(written), 60)
                stuck = len(written)
                assert 8 < stuck < 40
                with Disk(other.path) as disk:
                    for number in range(64):
                        disk.write(number * 64, pattern(number, 64))
                        disk.flush()
                    assert disk.read(0, 64) == pattern(0, 64)
                assert len(written) == stuck
        assert len(written) == 48
        with Disk(slow.path) as disk:
            assert disk.read(20 * MB, MB) == pattern(20, MB)


def test_a_log_whose_data_fits_does_not_wait_for_the_origin(
        origin: str) -> None:
    """Live blocks of the oldest chunks are relocated, which frees the rest."""
    blocks = 800
    dice = random.Random(8)
    with stack.null_blk(12, discard=True) as cache, stack.pool(cache, chunk_kib=64) as pool, \
            mapped(linear(origin)) as below:
        expected = dict.fromkeys(range(blocks), 0)
        with stack.cached(below.path, pool) as device, Disk(device.path) as disk:
            below.swap(f"0 {stack.sectors(origin)} flakey {origin} 0 0 3600 1 error_writes")
            for number in range(1, 5001):
                at = dice.randrange(blocks)
                expected[at] = number
                disk.write(at * 8, pattern(number, 8), fua=number % 3 == 0)
            disk.flush()
            # These took 6,600 blocks of a cache with 3,072.
            status = stack.pool_status(pool)
            assert status.state == "ok"
            assert status.relocated > 200
            disk.check_blocks(expected)
        below.swap(linear(origin))
        with stack.cached(below.path, pool) as device:
            with Disk(device.path) as disk:
                disk.check_blocks(expected)
            device.message("drain")
            assert stack.wait_until(lambda: stack.cache_status(device).state == "clean")
        with Disk(origin) as raw:
            raw.check_blocks(expected)


def test_a_write_that_hangs_at_the_origin_holds_nobody_up(origin: str) -> None:
    """Data being destaged can be relocated too; its chunk need not stay."""
    blocks = 800
    dice = random.Random(9)
    with stack.null_blk(12, discard=True) as cache, stack.pool(cache, chunk_kib=64) as pool, \
            mapped(linear(origin)) as below, \
            stack.cached(below.path, pool) as device, Disk(device.path) as disk:
        expected = dict.fromkeys(range(blocks), 0)
        below.suspend(dm.NOFLUSH | dm.SKIP_LOCKFS)
        done: list[int] = []

        def write() -> None:
            for number in range(1, 5001):
                at = dice.randrange(blocks)
                disk.write(at * 8, pattern(number, 8), fua=number % 3 == 0)
                expected[at] = number
                done.append(number)

        writer = threading.Thread(target=write)
        writer.start()
        with at_end(writer.join, 60), at_end(below.resume):
            assert stack.wait_until(lambda: len(done) == 5000, 120), len(done)
        disk.flush()
        disk.check_blocks(expected)
        # The data in flight is older than the later writes.
        device.message("drain")
        assert stack.wait_until(lambda: stack.cache_status(device).state == "clean", 60)
        with Disk(origin) as raw:
            raw.check_blocks(expected)


def test_a_reader_holds_up_writers_only_while_it_reads(origin: str) -> None:
    """The reader of a chunk to be reclaimed wakes the writers that wait for it."""
    blocks, written = 3400, []
    with stack.null_blk(12, discard=True) as cache, mapped(linear(cache)) as slow, \
            stack.pool(slow.path, chunk_kib=64) as pool, mapped(linear(origin)) as below, \
            stack.cached(below.path, pool) as device:
        with Disk(device.path) as disk:
            for number in range(0, blocks, 8):
                disk.write(number * 8, pattern(number, 64))
            disk.flush()
        assert stack.wait_until(lambda: stack.cache_status(device).state == "clean", 60)
        # From now on, destage frees no space and gives no reason to look for it.
        below.swap(f"0 {stack.sectors(origin)} flakey {origin} 0 0 3600 1 error_writes")
        slow.swap(f"0 {stack.sectors(cache)} delay {cache} 0 3000 {cache} 0 0")

        def read() -> None:
            with Disk(device.path) as disk:
                disk.read((blocks - 2400) * 8, 2400 * 8)

        def write() -> None:
            with Disk(device.path) as disk:
                for number in range(700):
                    disk.write(number * 8, pattern(number, 8), fua=True)
                    written.append(number)

        reader, writer = threading.Thread(target=read), threading.Thread(target=write)
        reader.start()
        time.sleep(0.5)
        writer.start()
        reader.join(60)
        with at_end(writer.join, 60), at_end(below.swap, linear(origin)):
            assert len(written) < 600, "the cache had more room than was meant"
            slow.swap(linear(cache))
            assert stack.wait_until(lambda: len(written) == 700, 60)


def _stands_still(written: list[int]) -> bool:
    before = len(written)
    time.sleep(3)
    return len(written) == before


def _fill(disk: Disk) -> None:
    for number in range(40):
        disk.write(number * MB, pattern(number, MB), fua=True)


def test_metadata_that_cannot_be_written_stops_the_pool(origin: str, kmsg: KernelLog) -> None:
    """A chunk not recorded as dead is not reused: in the end, writes get errors."""
    with stack.null_blk(24, discard=True) as cache:
        # The metadata of a pool of this size and chunk size is before this sector.
        head = 1280
        good = linear(cache)
        bad = (f"0 {head} flakey {cache} 0 0 3600 1 error_writes\n"
               f"{head} {stack.sectors(cache) - head} linear {cache} {head}")
        with mapped(good) as below, stack.pool(below.path, chunk_kib=64) as pool, \
                stack.cached(origin, pool) as device, Disk(device.path) as disk:
            disk.write(0, pattern(1, 64), fua=True)
            below.swap(bad)
            with stack.buffer_mb(4):
                fails(lambda: _fill(disk))
            assert stack.pool_status(pool).state == "read-only"
            assert "cannot write metadata" in kmsg.read()
            assert disk.read(0, 64) == pattern(0, MB)[:64 * 512]
            below.swap(good)


def test_damaged_logs_of_one_volume_do_not_touch_another(origin: str, second: str,
                                                         kmsg: KernelLog) -> None:
    with stack.null_blk(discard=True) as cache:
        with stack.pool(cache, chunk_kib=64) as pool, stack.cached(origin, pool, 1) as a, \
                stack.cached(second, pool, 2) as b, Disk(a.path) as of_a, Disk(b.path) as of_b:
            of_a.write(0, pattern(1, 512), fua=True)
            of_b.write(0, pattern(2, 512), fua=True)
        with Disk(cache) as raw:
            whole = raw.read(0, stack.sectors(cache))
            for sector in range(0, stack.sectors(cache), 8):
                block = whole[sector * 512:sector * 512 + 4096]
                # Records and seals of volume 1.
                if block[:4] == b"CVCL" and int.from_bytes(block[32:36], "little") == 1:
                    raw.write(sector, b"\xff" * 4096)
        with stack.pool(cache) as pool, stack.cached(second, pool, 2) as b, Disk(b.path) as of_b:
            assert of_b.read(0, 512) == pattern(2, 512)
            with stack.cached(origin, pool, 1) as a, Disk(a.path) as of_a:
                of_a.write(0, pattern(3, 64), fua=True)
                assert of_a.read(0, 64) == pattern(3, 64)
