# SPDX-License-Identifier: Apache-2.0
"""Blocks that cannot be destaged: they stay dirty, and everything else goes on."""

from collections.abc import Iterator

import pytest

from tests.kernel import stack
from tests.kernel.conftest import KernelLog
from tests.kernel.disk import Disk, pattern

BLOCK = 8


@pytest.fixture
def cache() -> Iterator[str]:
    """Provide an empty cache device of 64 MiB."""
    with stack.null_blk(discard=True) as path:
        yield path


def write(path: str, blocks: range, seed: int = 0) -> None:
    """Write blocks and flush."""
    with Disk(path) as disk:
        for block in blocks:
            disk.write(block * BLOCK, pattern(seed + block, BLOCK))
        disk.flush()


def wrong(path: str, blocks: range, seed: int = 0) -> list[int]:
    """Return the blocks that do not have the data of write()."""
    with Disk(path, readonly=True) as disk:
        return [block for block in blocks
                if disk.read(block * BLOCK, BLOCK) != pattern(seed + block, BLOCK)]


def dirty_blocks(device: stack.Mapped) -> int:
    """Return how many blocks are dirty in the cache."""
    return stack.cache_status(device).dirty // BLOCK


def place_of(cache: str, block: int) -> int:
    """Return where a cache device has a block of write(), in sectors."""
    with Disk(cache, readonly=True) as disk:
        return next(at for at in range(0, stack.sectors(cache), BLOCK)
                    if disk.read(at, BLOCK) == pattern(block, BLOCK))


@pytest.mark.parametrize(("first", "bad"), [(100, 1), (0, 1), (200, 56), (50, 20), (0, 255)])
def test_a_bad_block_of_the_origin_affects_only_itself(
        cache: str, origin: str, kmsg: KernelLog, first: int, bad: int) -> None:
    table = stack.with_bad_sectors(origin, first * BLOCK, bad * BLOCK)
    with (stack.mapped(table) as below, stack.pool(cache) as pool,
          stack.cached(below.path, pool) as device):
        write(device.path, range(256))
        device.message("drain")
        assert stack.wait_until(lambda: dirty_blocks(device) == bad), dirty_blocks(device)
        others = [n for n in range(256) if not first <= n < first + bad]
        assert [n for n in others if wrong(origin, range(n, n + 1))] == []
        assert wrong(device.path, range(256)) == []
        assert stack.cache_status(device).state == "failing"
        assert "cannot be destaged" in kmsg.read()
        # It is tried again.
        below.swap(stack.linear(origin))
        assert stack.wait_until(lambda: stack.cache_status(device).state == "clean")
        assert wrong(origin, range(256)) == []


def test_a_bad_block_does_not_stop_the_log(origin: str) -> None:
    """Its tag writes much more than the cache has."""
    table = stack.with_bad_sectors(origin, 7 * BLOCK, BLOCK)
    with (stack.mapped(table) as below, stack.null_blk(8, discard=True) as cache,
          stack.pool(cache, chunk_kib=64) as pool, stack.cached(below.path, pool) as device):
        write(device.path, range(64))
        for turn in range(8):
            write(device.path, range(64, 1088), turn * 10000)
        assert wrong(device.path, range(64)) == []
        assert wrong(device.path, range(64, 1088), 70000) == []
        device.message("drain")
        assert stack.wait_until(lambda: dirty_blocks(device) == 1), dirty_blocks(device)


def test_chunks_of_bad_blocks_do_not_stop_their_log(origin: str) -> None:
    """The oldest chunks have more bad blocks than a round has blocks."""
    table = stack.with_bad_sectors(origin, 0, 3000 * BLOCK)
    with (stack.mapped(table) as below, stack.null_blk(discard=True) as cache,
          stack.pool(cache) as pool, stack.cached(below.path, pool) as device):
        write(device.path, range(3500))
        device.message("drain")
        assert stack.wait_until(lambda: dirty_blocks(device) == 3000), dirty_blocks(device)
        assert wrong(origin, range(3000, 3500)) == []
        assert wrong(device.path, range(3500)) == []


def test_a_suspend_does_not_wait_for_a_bad_block(cache: str, origin: str) -> None:
    with (stack.mapped(stack.with_bad_sectors(origin, 7 * BLOCK, BLOCK)) as below,
          stack.pool(cache) as pool, stack.cached(below.path, pool) as device):
        write(device.path, range(64))
        device.message("drain")
        device.suspend()
        device.resume()
        assert stack.wait_until(lambda: dirty_blocks(device) == 1), dirty_blocks(device)
        assert wrong(device.path, range(64)) == []


def test_a_bad_block_of_the_cache_affects_only_itself(origin: str, kmsg: KernelLog) -> None:
    """It is dirty, so nobody has its data."""
    with (stack.null_blk(discard=True) as disk, stack.mapped(stack.linear(disk)) as cache,
          stack.pool(cache.path) as pool, stack.cached(origin, pool) as device):
        write(device.path, range(64))
        cache.swap(stack.with_bad_sectors(disk, place_of(disk, 33), BLOCK))
        device.message("drain")
        assert stack.wait_until(lambda: dirty_blocks(device) == 1), dirty_blocks(device)
        assert wrong(origin, range(33)) == [] == wrong(origin, range(34, 64))
        assert "cannot be destaged" in kmsg.read()
        # New data takes its place.
        write(device.path, range(33, 34), 500)
        assert stack.wait_until(lambda: stack.cache_status(device).state == "clean")
        assert wrong(origin, range(33, 34), 500) == []


def test_a_bad_block_of_the_cache_does_not_stop_its_log(origin: str) -> None:
    """Its tag writes much more than the cache has. Chunks behind that of the block are full."""
    with (stack.null_blk(8, discard=True) as disk, stack.mapped(stack.linear(disk)) as cache,
          stack.pool(cache.path, chunk_kib=64) as pool, stack.cached(origin, pool) as device):
        write(device.path, range(64))
        cache.swap(stack.with_bad_sectors(disk, place_of(disk, 33), BLOCK))
        for turn in range(3):
            write(device.path, range(64, 3136), turn * 10000)
        assert wrong(device.path, range(64, 3136), 20000) == []
        device.message("drain")
        assert stack.wait_until(lambda: dirty_blocks(device) == 1), dirty_blocks(device)
        assert wrong(origin, range(64, 3136), 20000) == []
        with Disk(device.path, readonly=True) as reader, pytest.raises(OSError, match="Input/out"):
            reader.read(33 * BLOCK, BLOCK)
