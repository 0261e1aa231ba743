# SPDX-License-Identifier: Apache-2.0
"""Large writes: their data goes to the cache device without a copy in memory."""

import contextlib
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.box.steps import at_end
from tests.kernel import stack
from tests.kernel.disk import Disk, pattern
from tests.kernel.nofua import loop_device
from tests.kernel.test_reads import as_after_a_crash

BLOCK = 8
LARGE = 512  # sectors: 256 KiB


@pytest.fixture
def cache() -> Iterator[str]:
    """Provide an empty cache device of 64 MiB."""
    with stack.null_blk(discard=True) as path:
        yield path


@contextlib.contextmanager
def large_write_kib(size: int) -> Iterator[None]:
    """Change for a while which writes are large; 0: none."""
    parameter = Path("/sys/module/dm_vcache/parameters/large_write_kib")
    with at_end(parameter.write_text, parameter.read_text()):
        parameter.write_text(str(size))
        yield


def after_a_crash(cache: str, origin: str, sectors: int) -> bytes:
    """Return what a volume has if the power fails now."""
    with (as_after_a_crash(cache) as after, stack.pool(after) as pool,
          stack.cached(origin, pool) as device, Disk(device.path, readonly=True) as disk):
        return disk.read(0, sectors)


def test_a_large_write_is_durable_when_it_completes(cache: str, origin: str) -> None:
    with stack.pool(cache) as pool:
        with stack.cached(origin, pool) as device, Disk(device.path) as disk:
            disk.write(0, pattern(1, LARGE))
            assert stack.cache_status(device).dirty == LARGE
            assert disk.read(0, LARGE) == pattern(1, LARGE)
        with stack.cached(origin, pool) as device, Disk(device.path) as disk:
            assert disk.read(0, LARGE) == pattern(1, LARGE)
            disk.write(0, pattern(2, LARGE))
            assert after_a_crash(cache, origin, LARGE) == pattern(2, LARGE)


@pytest.mark.parametrize(("kib", "first", "sectors"), [
    (0, 0, LARGE), (128, 0, 256 - BLOCK), (128, 4, LARGE), (128, 0, LARGE + 1)])
def test_other_writes_are_copied(cache: str, origin: str, kib: int, first: int,
                                 sectors: int) -> None:
    """Large writes may be switched off; small ones, and those with parts of blocks, never are."""
    with (large_write_kib(kib), stack.pool(cache) as pool, stack.cached(origin, pool) as device,
          Disk(device.path) as disk):
        disk.write(first, pattern(1, sectors))
        assert stack.cache_status(device).dirty == 0
        assert disk.read(first, sectors) == pattern(1, sectors)
        disk.flush()
        assert stack.cache_status(device).dirty > 0


def test_a_device_that_needs_flushes_gets_copies(cache: str, origin: str) -> None:
    """Without FUA, a write is durable after a FLUSH only."""
    with (loop_device(cache) as below, stack.pool(below) as pool,
          stack.cached(origin, pool) as device, Disk(device.path) as disk):
        disk.write(0, pattern(1, LARGE))
        assert stack.cache_status(device).dirty == 0
        assert disk.read(0, LARGE) == pattern(1, LARGE)
        disk.flush()
        assert stack.cache_status(device).dirty == LARGE


def test_the_last_write_wins(cache: str, origin: str) -> None:
    """Large and small writes of the same blocks, with and without a flush between them."""
    with (stack.pool(cache) as pool, stack.cached(origin, pool) as device,
          Disk(device.path) as disk):
        expected = bytearray(LARGE * 512)
        for turn in range(24):
            first, sectors = ((turn * 40 % 64, LARGE - 64) if turn % 3 == 0 else
                              (turn * 24 % 256, 16 + turn))
            data = pattern(100 + turn, sectors)
            disk.write(first, data)
            expected[first * 512:(first + sectors) * 512] = data
            if turn % 4 == 1:
                disk.flush()
            assert disk.read(0, LARGE) == expected
        disk.flush()
        assert after_a_crash(cache, origin, LARGE) == expected
        device.message("drain")
        assert stack.wait_until(lambda: stack.cache_status(device).state == "clean")
    with Disk(origin, readonly=True) as below:
        assert below.read(0, LARGE) == expected


def test_a_write_that_is_larger_than_a_chunk(cache: str, origin: str) -> None:
    """It is split: what fits into a chunk is one record."""
    with (large_write_kib(16), stack.pool(cache, chunk_kib=64) as pool,
          stack.cached(origin, pool) as device, Disk(device.path) as disk):
        disk.write(0, pattern(3, 2048))
        # The first free chunks have 13 blocks each; what comes before more are free is copied.
        assert stack.cache_status(device).dirty >= 13 * BLOCK
        assert disk.read(0, 2048) == pattern(3, 2048)
        disk.flush()
        assert after_a_crash(cache, origin, 2048) == pattern(3, 2048)


def test_a_discard_after_a_large_write(cache: str, origin: str) -> None:
    with (stack.pool(cache) as pool, stack.cached(origin, pool) as device,
          Disk(device.path) as disk):
        for turn in range(8):
            disk.write(0, pattern(turn + 1, LARGE))
            disk.discard(turn * BLOCK, LARGE // 2)
            expected = bytearray(pattern(turn + 1, LARGE))
            expected[turn * BLOCK * 512:(turn * BLOCK + LARGE // 2) * 512] = bytes(LARGE // 2 * 512)
            assert disk.read(0, LARGE) == expected


@pytest.mark.parametrize("kib", [128, 0])
def test_a_cache_that_fails(cache: str, origin: str, kib: int) -> None:
    """The data is copied after all. The pool fails, and the volume goes on with its origin."""
    with (large_write_kib(kib), stack.mapped(stack.linear(cache)) as below,
          stack.pool(below.path) as pool,
          stack.cached(origin, pool) as device, Disk(device.path) as disk):
        below.swap(f"0 {stack.sectors(cache)} error")
        disk.write(0, pattern(5, LARGE))
        assert disk.read(0, LARGE) == pattern(5, LARGE)

        def flushed() -> bool:
            try:
                disk.flush()
            except OSError:
                return False
            return True

        assert stack.wait_until(flushed)
        assert stack.pool_status(pool).state == "failed"
        assert disk.read(0, LARGE) == pattern(5, LARGE)
        with Disk(origin, readonly=True) as behind:
            assert behind.read(0, LARGE) == pattern(5, LARGE)
        below.swap(stack.linear(cache))


def test_a_bad_block_of_the_cache_under_a_large_write(cache: str, origin: str) -> None:
    """One write fails. Its data is copied, and later ones are not."""
    with (stack.mapped(stack.linear(cache)) as below, stack.pool(below.path) as pool,
          stack.cached(origin, pool) as device, Disk(device.path) as disk):
        disk.write_and_flush(4096, pattern(6, BLOCK))
        with Disk(cache, readonly=True) as raw:
            place = next(at for at in range(0, stack.sectors(cache), BLOCK)
                         if raw.read(at, BLOCK) == pattern(6, BLOCK))
        below.swap(stack.with_bad_sectors(cache, place + 4 * BLOCK, BLOCK))
        for turn in range(3):
            disk.write(0, pattern(turn, LARGE))
            assert disk.read(0, LARGE) == pattern(turn, LARGE)
        disk.flush()
        assert stack.pool_status(pool).state == "ok"
        assert stack.cache_status(device).cache_errors >= 1
        assert disk.read(4096, BLOCK) == pattern(6, BLOCK)
        assert disk.read(0, LARGE) == pattern(2, LARGE)
        below.swap(stack.linear(cache))
