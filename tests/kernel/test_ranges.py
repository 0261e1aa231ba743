# SPDX-License-Identifier: Apache-2.0
"""The order of writes of one block to the origin: destage, and writes of a tag in another mode."""

import contextlib
import os
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import pytest

from tests.box.steps import at_end
from tests.kernel import dm, stack
from tests.kernel.disk import Disk, pattern
from vcache_agent.netlink.client import Client
from vcache_agent.netlink.spec import Mode

BLOCK = 8
BLOCKS = 64
SLOW_MS = 60


class Slow(NamedTuple):
    """A device whose writes can be delayed.

    :param device: the device
    :param below: the disk below it
    """

    device: stack.Mapped
    below: str

    def slower(self, milliseconds: int) -> None:
        """Delay each write."""
        self.device.swap(f"0 {stack.sectors(self.below)} delay "
                         f"{self.below} 0 0 {self.below} 0 {milliseconds}")

    def fast(self) -> None:
        """Delay nothing."""
        self.device.swap(stack.linear(self.below))


@pytest.fixture
def cache() -> Iterator[Slow]:
    """Provide a cache device that can be made slow."""
    with stack.null_blk(discard=True) as path, stack.mapped(stack.linear(path)) as device:
        yield Slow(device, path)


def clean(device: stack.Mapped) -> bool:
    """Tell whether a volume has no dirty data."""
    return stack.cache_status(device).dirty == 0


class Writers:
    """Threads that write blocks, each its own ones, with FUA; at any time, some are under way.

    :param path: the device
    :param seed: seed of the data
    """

    def __init__(self, path: str, seed: int) -> None:
        self._path = path
        self._seed = seed
        self._threads = [threading.Thread(target=self._write, args=(n,)) for n in range(8)]
        for thread in self._threads:
            thread.start()

    def _write(self, number: int) -> None:
        time.sleep(number * SLOW_MS / 1000 / len(self._threads))
        with Disk(self._path) as disk:
            for block in range(number, BLOCKS, len(self._threads)):
                disk.write(block * BLOCK, pattern(self._seed + block, BLOCK), fua=True)

    def join(self) -> None:
        """Wait for their end."""
        for thread in self._threads:
            thread.join()


def expected(seed: int) -> list[bytes]:
    """Return the data of all blocks."""
    return [pattern(seed + block, BLOCK) for block in range(BLOCKS)]


def blocks(path: str) -> list[bytes]:
    """Read all blocks of a device."""
    with Disk(path, readonly=True) as disk:
        data = disk.read(0, BLOCKS * BLOCK)
    return [data[at:at + BLOCK * 512] for at in range(0, len(data), BLOCK * 512)]


@pytest.mark.parametrize("mode", [Mode.WRITETHROUGH, Mode.FLUSH_ONLY])
def test_destage_does_not_overwrite_newer_data(
        cache: Slow, origin: str, client: Client, mode: Mode) -> None:
    """The tag's mode changes while it has dirty data, and the data is written again."""
    with stack.pool(cache.device.path) as pool, stack.cached(origin, pool) as device:
        for turn in range(5):
            client.tag_set(device.number, 7, mode=Mode.WRITEBACK)
            # The drain of the last turn ends with a suspend.
            device.suspend()
            device.resume()
            with Disk(device.path) as disk:
                for block, data in enumerate(expected(1000 * turn)):
                    disk.write(block * BLOCK, data)
                disk.flush()
            assert not clean(device)
            cache.slower(SLOW_MS)
            client.tag_set(device.number, 7, mode=mode)
            writers = Writers(device.path, 1000 * turn + 500)
            time.sleep(SLOW_MS / 4000)
            device.message("drain")
            writers.join()
            assert stack.wait_until(lambda: clean(device))
            cache.fast()
            assert blocks(origin) == expected(1000 * turn + 500), turn
            assert blocks(device.path) == expected(1000 * turn + 500)


def test_data_that_the_origin_refuses_is_dirty(origin: str, client: Client) -> None:
    """A tag in writethrough mode writes to a bad origin: the cache has the only copy."""
    data = pattern(2, 8 * BLOCK)
    with (stack.null_blk(discard=True) as cache, stack.mapped(stack.linear(origin)) as below):
        with (stack.pool(cache) as pool, stack.cached(below.path, pool) as device,
              Disk(device.path) as disk):
            client.tag_set(device.number, 7, mode=Mode.WRITETHROUGH)
            disk.write(0, pattern(1, 8 * BLOCK), fua=True)
            assert clean(device)
            below.swap(f"0 {stack.sectors(origin)} flakey {origin} 0 0 3600 1 error_writes")
            disk.write(0, data)
            with pytest.raises(OSError, match="Input/output error"):
                disk.flush()
            assert stack.cache_status(device).dirty == 8 * BLOCK
        below.swap(stack.linear(origin))
        # The data in the buffer is gone, that in the cache is destaged.
        with stack.pool(cache) as pool, stack.cached(below.path, pool) as device:
            with Disk(device.path) as disk:
                assert disk.read(0, 8 * BLOCK) == data
            device.message("drain")
            assert stack.wait_until(lambda: clean(device))
    with Disk(origin, readonly=True) as raw:
        assert raw.read(0, 8 * BLOCK) == data


def test_a_discard_does_not_wait_for_another_one(cache: Slow, origin: str) -> None:
    """One hangs at the origin. Two devices, since the kernel serialises discards of one."""
    half = stack.sectors(origin) // 2
    with (stack.mapped(f"0 {half} linear {origin} 0") as low,
          stack.mapped(f"0 {half} linear {low.path} 0\n{half} {half} linear {origin} {half}")
          as both, stack.pool(cache.device.path) as pool,
          stack.cached(both.path, pool) as device,
          stack.mapped(f"0 {half} linear {device.path} 0") as first,
          stack.mapped(f"0 {half} linear {device.path} {half}") as second,
          Disk(first.path) as one, Disk(second.path) as two):
        one.write(0, pattern(1, 64))
        two.write(0, pattern(2, 64))
        two.flush()
        device.message("drain")
        assert stack.wait_until(lambda: clean(device))
        low.suspend(dm.NOFLUSH | dm.SKIP_LOCKFS)
        hanging = threading.Thread(target=one.discard, args=(0, 64))
        hanging.start()
        with at_end(hanging.join), at_end(low.resume):
            time.sleep(0.2)
            assert hanging.is_alive()
            other = threading.Thread(target=two.discard, args=(0, 64))
            other.start()
            assert stack.wait_until(lambda: not other.is_alive(), 20)
            assert two.read(0, 64) == bytes(64 * 512)
            assert hanging.is_alive()
        assert one.read(0, 64) == bytes(64 * 512)


def _has_taken(device: stack.Mapped, requests: int) -> bool:
    """Wait until a device has taken so many requests and completed none of them."""
    inflight = Path("/sys/block", Path(os.path.realpath(device.path)).name, "inflight")
    return stack.wait_until(
        lambda: sum(map(int, inflight.read_text().split())) == requests)


def test_overlapping_writes_behind_a_discard_end(origin: str) -> None:
    """They wait for the discard, and not for each other."""
    with (stack.mapped(stack.linear(origin)) as below, stack.null_blk(discard=True) as cache,
          stack.pool(cache) as pool, stack.cached(below.path, pool) as device,
          Disk(device.path) as disk):
        disk.write(0, pattern(1, 64))
        disk.flush()
        device.message("drain")
        assert stack.wait_until(lambda: clean(device))
        below.suspend(dm.NOFLUSH | dm.SKIP_LOCKFS)
        # The kernel orders a discard and writes of one opener, so these have their own.
        with (Disk(device.path) as one, Disk(device.path) as two,
              stack.mapped(stack.linear(device.path)) as above, Disk(above.path) as third):
            threads = [threading.Thread(target=third.discard, args=(0, 64)),
                       threading.Thread(target=one.write, args=(0, pattern(2, BLOCK))),
                       threading.Thread(target=two.write, args=(0, pattern(2, BLOCK)))]
            with at_end(lambda: [thread.join() for thread in threads if thread.ident]), \
                    at_end(below.resume):
                for waiting, thread in enumerate(threads, 1):
                    thread.start()
                    assert _has_taken(device, waiting)
            assert one.read(0, BLOCK) == pattern(2, BLOCK)


@contextlib.contextmanager
def _clean_block(cache: Slow, origin: str, client: Client
                 ) -> Iterator[tuple[stack.Mapped, Disk, Disk]]:
    """Provide a device whose cache has block 0, clean, and whose tag writes through now.

    Also the device and its origin as disks.
    """
    with (stack.pool(cache.device.path) as pool, stack.cached(origin, pool) as device,
          Disk(device.path) as disk, Disk(origin) as raw):
        disk.write(0, pattern(1, BLOCK))
        disk.flush()
        device.message("drain")
        assert stack.wait_until(lambda: clean(device))
        # A suspend ends the drain.
        device.suspend()
        device.resume()
        client.tag_set(device.number, 7, mode=Mode.WRITETHROUGH)
        yield device, disk, raw


def test_a_write_through_reaches_the_origin_after_its_record(
        cache: Slow, origin: str, client: Client) -> None:
    """If the cache has an older version that is clean: a crash must not bring that back."""
    with _clean_block(cache, origin, client) as (device, disk, raw):
        cache.device.suspend(dm.NOFLUSH | dm.SKIP_LOCKFS)
        writer = threading.Thread(target=disk.write, args=(0, pattern(2, BLOCK)),
                                  kwargs={"fua": True})
        with at_end(writer.join), at_end(cache.device.resume):
            writer.start()
            time.sleep(0.5)
            assert raw.read(0, BLOCK) == pattern(1, BLOCK)
        assert raw.read(0, BLOCK) == pattern(2, BLOCK)
        assert clean(device)


def test_a_write_through_whose_record_fails_does_not_reach_the_origin(
        cache: Slow, origin: str, client: Client) -> None:
    """The cache still has the older version."""
    with _clean_block(cache, origin, client) as (_, disk, raw):
        below = f"0 {stack.sectors(cache.below)} flakey {cache.below} 0 0 3600 1 error_writes"
        cache.device.swap(below)
        disk.write(0, pattern(2, BLOCK))
        with pytest.raises(OSError, match="Input/output error"):
            disk.flush()
        assert raw.read(0, BLOCK) == pattern(1, BLOCK)
        cache.fast()
        disk.flush()
        assert raw.read(0, BLOCK) == pattern(2, BLOCK)
