# SPDX-License-Identifier: Apache-2.0
"""The order of writes of one block to the origin: destage, and writes of a tag in another mode."""

import threading
import time
from collections.abc import Iterator
from typing import NamedTuple

import pytest

from tests.kernel import stack
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
