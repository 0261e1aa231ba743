# SPDX-License-Identifier: Apache-2.0
"""The fill of a cache miss against a request that passes the cache.

The fill has read old data from the origin. A request makes that outdated, and is complete, before
the fill has written what it read to the cache. bcache had a bug of this kind. See test_reads.py for
requests that come while the fill reads.
"""

import contextlib
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass

import pytest

from tests.box.steps import at_end
from tests.kernel import stack
from tests.kernel.disk import Disk, pattern
from tests.kernel.stack import Mapped
from vcache_agent.netlink.client import Client
from vcache_agent.netlink.spec import Mode

SECTORS = 64
TAG = 7
# How long one write of the fill is held.
HELD_MS = 1500


@dataclass
class Disks:
    """A cache device, on a mapped device that can be made slow, and an origin."""

    cache_below: str
    cache: Mapped
    origin: str

    @contextlib.contextmanager
    def held(self) -> Iterator[None]:
        """Delay writes of the cache."""
        below = self.cache_below
        self.cache.swap(f"0 {stack.sectors(below)} delay {below} 0 0 {below} 0 {HELD_MS}")
        with at_end(self.cache.swap, stack.linear(below)):
            yield

    def is_held(self) -> bool:
        """Return whether a write of the cache is being delayed."""
        # Requests that are delayed: reads, writes, flushes.
        return int(self.cache.status()[1]) > 0


@pytest.fixture
def disks() -> Iterator[Disks]:
    with (stack.null_blk(24, discard=True) as cache, stack.null_blk(24, discard=True) as origin,
          stack.mapped(stack.linear(cache)) as over_cache):
        yield Disks(cache, over_cache, origin)


def flush_only(device: Mapped, disk: Disk, client: Client) -> None:
    """Write past the log, and flush."""
    client.tag_set(device.number, TAG, mode=Mode.FLUSH_ONLY)
    disk.write_and_flush(0, pattern(2, SECTORS))


def through(device: Mapped, disk: Disk, client: Client) -> None:
    """Write to the origin and to the log."""
    client.tag_set(device.number, TAG, mode=Mode.WRITETHROUGH)
    disk.write_and_flush(0, pattern(2, SECTORS))


def discard(device: Mapped, disk: Disk, client: Client) -> None:
    """Discard, and write past the log what was discarded."""
    client.tag_set(device.number, TAG, mode=Mode.FLUSH_ONLY)
    disk.discard(0, SECTORS)
    disk.write_and_flush(0, pattern(2, SECTORS))


@contextlib.contextmanager
def copied(path: str) -> Iterator[str]:
    """Provide a device with the present contents of another one."""
    with stack.null_blk(24, discard=True) as after:
        with Disk(path) as disk, Disk(after) as copy:
            for sector in range(0, stack.sectors(path), 2048):
                copy.write(sector, disk.read(sector, min(2048, stack.sectors(path) - sector)))
        yield after


@pytest.mark.parametrize("change", [flush_only, through, discard])
def test_a_fill_does_not_hide_a_later_write(
        disks: Disks, client: Client, change: Callable[[Mapped, Disk, Client], None]) -> None:
    """Neither at once, nor after a power cut in the window."""
    new = pattern(2, SECTORS)
    with Disk(disks.origin) as below:
        below.write(0, pattern(1, SECTORS))
    with (stack.pool(disks.cache.path) as pool,
          stack.cached(disks.origin, pool) as device, Disk(device.path) as disk):
        reader = threading.Thread(target=disk.read, args=(0, SECTORS))
        with disks.held():
            reader.start()
            with at_end(reader.join):
                assert stack.wait_until(disks.is_held)
                change(device, disk, client)
                with copied(disks.cache_below) as cache, copied(disks.origin) as origin:
                    check_after_power_cut(cache, origin, new)
                assert disk.read(0, SECTORS) == new
        client.tag_set(device.number, TAG, mode=Mode.WRITEBACK)
        for _ in range(3):
            # The first may promote, the last may hit.
            assert disk.read(0, SECTORS) == new
            time.sleep(0.1)


def check_after_power_cut(cache: str, origin: str, expected: bytes) -> None:
    """Start with what was on the devices, and read."""
    with stack.pool(cache) as pool, stack.cached(origin, pool) as device, \
            Disk(device.path) as disk:
        assert disk.read(0, SECTORS) == expected
