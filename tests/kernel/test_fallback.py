# SPDX-License-Identifier: Apache-2.0
"""Reads that the cache device fails: clean data comes from the origin, dirty data is missing."""

import random
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.box.steps import at_end, each
from tests.kernel import dm, stack
from tests.kernel.conftest import KernelLog
from tests.kernel.disk import SECTOR, Disk, pattern
from tests.kernel.stack import Mapped, linear, mapped
from tests.kernel.test_pool_failure import fails
from tests.kernel.test_reads import as_after_a_crash, hits, promote
from vcache_agent.netlink.client import Client, EventListener
from vcache_agent.netlink.spec import EventKind, Mode

BLOCK = 8
TAG = 7


def places(path: str, data: bytes) -> list[int]:
    """Return the sectors of a device where there is a block with this data."""
    found = []
    with Disk(path, readonly=True) as disk:
        for start in range(0, stack.sectors(path), 2048):
            part = disk.read(start, 2048)
            found += [start + at // SECTOR for at in range(0, len(part), BLOCK * SECTOR)
                      if part[at:at + BLOCK * SECTOR] == data]
    return found


class Cache:
    """A cache device, of which parts can be made unreadable."""

    def __init__(self, path: str, below: Mapped) -> None:
        self.raw = path
        self.path = below.path
        self.below = below

    def spoil(self, data: bytes) -> None:
        """Make all blocks with this data fail. A promotion may have left a second copy."""
        table, end = [], 0
        for place in [*places(self.raw, data), stack.sectors(self.raw)]:
            if place > end:
                table.append(f"{end} {place - end} linear {self.raw} {end}")
            table.append(f"{place} {BLOCK} error")
            end = place + BLOCK
        assert len(table) > 2
        self.below.swap("\n".join(table[:-1]))

    def fail(self) -> None:
        """Make all requests fail."""
        self.below.swap(f"0 {stack.sectors(self.raw)} error")

    def mend(self) -> None:
        """Make all requests work again."""
        self.below.swap(linear(self.raw))


@pytest.fixture
def cache() -> Iterator[Cache]:
    """Provide an empty cache device of 64 MiB."""
    with stack.null_blk(discard=True) as path, mapped(linear(path)) as below:
        yield Cache(path, below)


def of_block(data: bytes, number: int) -> bytes:
    """Return one block of some data."""
    return data[number * BLOCK * SECTOR:(number + 1) * BLOCK * SECTOR]


def is_clean(device: Mapped) -> bool:
    """Return whether a volume has no dirty data."""
    return stack.cache_status(device).dirty == 0


def errors(device: Mapped) -> int:
    """Return how many errors of the cache device a volume has met."""
    return stack.cache_status(device).cache_errors


@pytest.mark.parametrize(("how", "mode"), [("written", "writeback"), ("written", "writethrough"),
                                           ("promoted", "writeback")])
def test_a_clean_block_on_a_bad_sector_is_read_from_the_origin(
        cache: Cache, origin: str, client: Client, kmsg: KernelLog, events: EventListener,
        how: str, mode: str) -> None:
    data = pattern(1, 64)
    with (stack.pool(cache.path) as pool, stack.cached(origin, pool, mode=mode) as device,
          Disk(device.path) as disk, Disk(origin) as below):
        if how == "written":
            disk.write(0, data)
            disk.flush()
            assert stack.wait_until(lambda: is_clean(device))
        else:
            below.write(0, data)
            promote(device, disk, 0, 64)
        # What the cache has and the origin has can be told apart.
        other = pattern(2, 64)
        below.write(0, other)
        cache.spoil(of_block(data, 3))
        assert disk.read(24, 8) == of_block(other, 3)
        assert errors(device) == 1
        before = hits(client, device)
        assert disk.read(0, 64) == data[:24 * SECTOR] + of_block(other, 3) + data[32 * SECTOR:]
        assert hits(client, device) == before + 56
        assert errors(device) == 1
        assert stack.pool_status(pool).state == "ok"
        assert "tag 7: the cache cannot read sectors 24 to 31" in kmsg.read()
        assert stack.wait_until(lambda: (EventKind.CACHE_ERROR, device.number, TAG)
                                in events.receive(0.2))
        # It can be written, and is cached again.
        cache.mend()
        disk.write(24, pattern(3, 8), fua=True)
        assert disk.read(24, 8) == pattern(3, 8)
        assert errors(device) == 1


def test_all_clean_blocks_of_a_failed_request_are_read_from_the_origin(
        cache: Cache, origin: str) -> None:
    data = pattern(1, 64)
    with (stack.pool(cache.path) as pool, stack.cached(origin, pool) as device,
          Disk(device.path) as disk):
        disk.write(0, data, fua=True)
        assert stack.wait_until(lambda: is_clean(device))
        cache.spoil(of_block(data, 3))
        for _ in range(8):
            assert disk.read(3, 57) == data[3 * SECTOR:60 * SECTOR]
        assert errors(device) == 1
        assert stack.pool_status(pool).state == "ok"


def test_what_could_not_be_read_does_not_come_back_after_a_crash(
        cache: Cache, origin: str, client: Client) -> None:
    """The log has a record of it, so later writes and discards need a record, too."""
    data, new = pattern(1, 64), pattern(2, 8)
    with (stack.pool(cache.path) as pool, stack.cached(origin, pool) as device,
          Disk(device.path) as disk):
        disk.write(0, data, fua=True)
        assert stack.wait_until(lambda: is_clean(device))
        cache.spoil(of_block(data, 3))
        assert disk.read(24, 16) == data[24 * SECTOR:40 * SECTOR]
        client.tag_set(device.number, TAG, mode=Mode.FLUSH_ONLY)
        disk.write(24, new)
        disk.flush()
        disk.discard(32, 8)
        assert disk.read(24, 16) == new + bytes(8 * SECTOR)
    with (as_after_a_crash(cache.raw) as after, stack.pool(after) as pool,
          stack.cached(origin, pool) as device, Disk(device.path) as disk):
        assert disk.read(24, 16) == new + bytes(8 * SECTOR)


def test_a_bad_block_can_be_read_again_and_again(cache: Cache, origin: str) -> None:
    """It does not fail the pool, also if it is dirty, and there is no other read."""
    with (mapped(linear(origin)) as below, stack.pool(cache.path, chunk_kib=64) as pool,
          stack.cached(below.path, pool) as device, Disk(device.path) as disk):
        below.swap(f"0 {stack.sectors(origin)} flakey {origin} 0 0 3600 1 error_writes")
        data = pattern(1, 24)
        disk.write(0, data, fua=True)
        cache.spoil(of_block(data, 1))
        for number in range(1, 9):
            fails(lambda: disk.read(8, 8))
            # It is tried once more each time.
            assert errors(device) == 2 * number
        assert disk.read(0, 8) == of_block(data, 0)
        assert disk.read(16, 8) == of_block(data, 2)
        fails(lambda: disk.read(0, 24))
        assert stack.pool_status(pool).state == "ok"
        # New data in its place is fine.
        disk.write(8, pattern(2, 8), fua=True)
        assert disk.read(0, 24) == of_block(data, 0) + pattern(2, 8) + of_block(data, 2)
        cache.mend()
        below.swap(linear(origin))
        device.message("drain")
        assert stack.wait_until(lambda: is_clean(device))


def test_a_cache_device_that_reads_nothing_is_bypassed(cache: Cache, origin: str,
                                                      kmsg: KernelLog) -> None:
    """Its readers get no error, and the right data."""
    blocks, refused = 2048, []
    stop = threading.Event()
    with (stack.pool(cache.path, chunk_kib=64) as pool, stack.cached(origin, pool) as device):
        with Disk(device.path) as disk:
            for at in range(0, blocks, 16):
                disk.write(at * BLOCK, pattern(at, 16 * BLOCK))
            disk.flush()
        assert stack.wait_until(lambda: is_clean(device))

        def read(seed: int) -> None:
            dice = random.Random(seed)
            with Disk(device.path, readonly=True) as disk:
                while not stop.is_set():
                    at, n = dice.randrange(blocks - 16), dice.randint(1, 16)
                    try:
                        got = disk.read(at * BLOCK, n * BLOCK)
                    except OSError as error:
                        refused.append(f"{at}: {error}")
                        return
                    first = at - at % 16
                    want = pattern(first, 16 * BLOCK) + pattern(first + 16, 16 * BLOCK)
                    if got != want[(at - first) * BLOCK * SECTOR:][:len(got)]:
                        refused.append(f"{at}: wrong data")
                        return

        readers = [threading.Thread(target=read, args=(seed,)) for seed in range(4)]
        for reader in readers:
            reader.start()
        with at_end(each, threading.Thread.join, readers), at_end(stop.set):
            time.sleep(0.5)
            cache.fail()
            assert stack.wait_until(lambda: stack.pool_status(pool).state == "failed")
            assert stack.wait_until(lambda: stack.cache_status(device).state == "bypassed")
            time.sleep(0.5)
        assert not refused
        assert "the cache device has failed" in kmsg.read()
        with Disk(device.path) as disk:
            disk.write(0, pattern(1, 8), fua=True)
            assert disk.read(0, 8) == pattern(1, 8)
        with Disk(origin) as raw:
            assert raw.read(0, 8) == pattern(1, 8)


def test_lost_volume_reads_its_clean_data(cache: Cache, origin: str, kmsg: KernelLog) -> None:
    """Only reads of its dirty data fail, at once, and say so."""
    clean, dirty = pattern(1, 64), pattern(2, 64)
    with (mapped(linear(origin)) as below, stack.pool(cache.path) as pool,
          stack.cached(below.path, pool) as device, Disk(device.path) as disk):
        disk.write(0, clean, fua=True)
        assert stack.wait_until(lambda: is_clean(device))
        below.swap(f"0 {stack.sectors(origin)} flakey {origin} 0 0 3600 1 error_writes")
        disk.write(64, dirty, fua=True)
        cache.fail()

        def lost() -> bool:
            fails(lambda: disk.write(4096, bytes(8 * SECTOR), fua=True))
            return stack.cache_status(device).state == "lost"

        assert stack.wait_until(lost)
        before = errors(device)
        assert disk.read(0, 64) == clean
        fails(lambda: disk.read(64, 8))
        fails(lambda: disk.read(56, 16))
        # These reads were not sent to the cache device.
        assert errors(device) == before
        assert "tag 7: cannot read the only copy of sectors 64 to 71" in kmsg.read()
        # What is in the buffer can be read.
        disk.write(64, pattern(3, 8))
        assert disk.read(56, 16) == clean[56 * SECTOR:] + pattern(3, 8)
        below.swap(linear(origin))


def test_a_read_of_clean_dirty_and_bad_blocks(cache: Cache, origin: str) -> None:
    """Each part comes from where it is; what is buffered is laid over the result."""
    data = pattern(1, 192 * BLOCK)
    limit = 128 * BLOCK
    with (mapped(linear(origin)) as below, stack.pool(cache.path) as pool,
          stack.cached(below.path, pool) as device, Disk(device.path) as disk):
        # Windows of 128 blocks are destaged, but records end elsewhere.
        size = stack.sectors(origin)
        below.swap(f"0 {limit} linear {origin} 0\n"
                   f"{limit} {size - limit} flakey {origin} {limit} 0 3600 1 error_writes")
        disk.write(0, data[:64 * BLOCK * SECTOR], fua=True)
        disk.write(64 * BLOCK, data[64 * BLOCK * SECTOR:], fua=True)
        assert stack.wait_until(lambda: stack.cache_status(device).dirty == 64 * BLOCK)
        cache.spoil(of_block(data, 120))
        # The record of both is read with one request.
        first, end = 110, 150
        want = data[first * BLOCK * SECTOR:end * BLOCK * SECTOR]

        def read() -> bytes:
            return disk.read(first * BLOCK, (end - first) * BLOCK)

        # Parts of the bad block, of a clean and of a dirty one are newer in the buffer.
        for sector in (120 * BLOCK + 2, 115 * BLOCK, 140 * BLOCK + 7):
            at = (sector - first * BLOCK) * SECTOR
            want = want[:at] + pattern(sector, 1) + want[at + SECTOR:]
            disk.write(sector, pattern(sector, 1))
        assert errors(device) == 0
        assert read() == want
        assert errors(device) == 1
        assert read() == want
        assert errors(device) == 1

        # A dirty block can only be replaced, as a whole.
        cache.mend()
        cache.spoil(of_block(data, 130))
        fails(read)
        disk.write(130 * BLOCK, pattern(3, BLOCK - 1))
        fails(read)
        disk.write(130 * BLOCK + 7, pattern(4, 1))
        at = (130 - first) * BLOCK * SECTOR
        want = (want[:at] + pattern(3, BLOCK - 1) + pattern(4, 1)
                + want[at + BLOCK * SECTOR:])
        assert read() == want
        assert stack.pool_status(pool).state == "ok"
        cache.mend()
        below.swap(linear(origin))


def test_a_cache_on_a_partition(origin: str) -> None:
    """A dirty block is read again from its place in the partition."""
    data, start = pattern(1, 16), 4096
    with stack.null_blk(discard=True) as path, mapped(linear(origin)) as below:
        stack.run("addpart", path, "1", str(start), str(stack.sectors(path) - start))
        with (at_end(stack.run, "delpart", path, "1"), stack.pool(f"{path}p1") as pool,
              stack.cached(below.path, pool) as device, Disk(device.path) as disk):
            below.swap(f"0 {stack.sectors(origin)} flakey {origin} 0 0 3600 1 error_writes")
            disk.write(0, data, fua=True)
            bad, = places(path, of_block(data, 1))
            marks = Path("/sys/kernel/config/nullb") / Path(path).name / "badblocks"
            marks.write_text(f"+{bad}-{bad + 7}")
            fails(lambda: disk.read(0, 16))
            disk.write(8, pattern(2, 8))
            assert disk.read(0, 16) == of_block(data, 0) + pattern(2, 8)
            marks.write_text(f"-{bad}-{bad + 7}")
            below.swap(linear(origin))


@pytest.mark.parametrize("flags", [0, dm.NOFLUSH | dm.SKIP_LOCKFS])
def test_suspend_waits_for_a_read_that_fell_back(cache: Cache, origin: str, flags: int) -> None:
    data, got = pattern(1, 64), []
    with (mapped(linear(origin)) as below, stack.pool(cache.path) as pool,
          stack.cached(below.path, pool) as device, Disk(device.path) as disk):
        disk.write(0, data, fua=True)
        assert stack.wait_until(lambda: is_clean(device))
        cache.spoil(of_block(data, 3))
        below.swap(f"0 {stack.sectors(origin)} delay {origin} 0 2000 {origin} 0 0")

        def read() -> None:
            with Disk(device.path, readonly=True) as other:
                got.append(other.read(0, 64))

        reader = threading.Thread(target=read)
        reader.start()
        with at_end(reader.join, 60):
            assert stack.wait_until(lambda: errors(device) == 1)
            assert not got
            device.suspend(flags)
            with at_end(device.resume):
                assert stack.wait_until(lambda: bool(got), 1)
        assert got == [data]
        below.swap(linear(origin))
