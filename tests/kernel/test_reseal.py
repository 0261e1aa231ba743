# SPDX-License-Identifier: Apache-2.0
"""Chunks that cannot be sealed again do not stop the reclaim of other logs."""

from collections.abc import Callable

import pytest

from tests.kernel import stack
from tests.kernel.conftest import Cgroup
from tests.kernel.disk import SECTOR, Disk, pattern
from tests.kernel.stack import Mapped, linear
from tests.kernel.test_fallback import Cache, cache, fails, is_clean
from tests.kernel.test_reads import as_after_a_crash
from vcache_agent.model import Extent
from vcache_agent.netlink.client import Client

__all__ = ["cache"]

BLOCK = 8
CHUNK_KIB = 64
CHUNK = CHUNK_KIB * 2  # sectors

#: What tag 1 writes, and what the others write. Together more than the cache has.
ONE, OTHERS, AMOUNT = 0, 4096, 90_000


def refuse_writes(cache: Cache, first: int, length: int, period: int) -> None:
    """Let the cache refuse writes of `length` sectors at the end of each `period`.

    :param first: the first sector where that is so; the metadata is before it
    """
    size, lines, at = stack.sectors(cache.raw), [], 0
    for end in range(first + period, size + 1, period):
        bad = end - length
        lines.append(f"{at} {bad - at} linear {cache.raw} {at}")
        lines.append(f"{bad} {length} flakey {cache.raw} {bad} 0 3600 1 error_writes")
        at = end
    if at < size:
        lines.append(f"{at} {size - at} linear {cache.raw} {at}")
    cache.below.swap("\n".join(lines))


def first_chunk(cache: Cache, pool: Mapped) -> int:
    """Return the sector of the first chunk for data."""
    at = stack.pool_status(pool)
    size = stack.sectors(cache.raw)
    return size - size % at.chunk_sectors - at.chunks * at.chunk_sectors


def write_much(disk: Disk) -> None:
    """Write more than the cache can hold, so that chunks have to be reclaimed."""
    for sector in range(OTHERS, OTHERS + AMOUNT, 512):
        disk.write(sector, pattern(sector, 512))
    disk.flush()


@pytest.mark.parametrize("what", ["record", "seals"])
def test_a_failed_write_of_one_log_does_not_stop_the_others(
        cache: Cache, origin: str, client: Client, cgroup: Callable[[str], Cgroup],
        what: str) -> None:
    """A record of tag 1, or all seals, cannot be written; then the host overwrites its data."""
    one, old, new = cgroup("one"), pattern(1, 8 * BLOCK), pattern(2, BLOCK)
    with (stack.null_blk(24, discard=True) as small, stack.mapped(linear(small)) as below):
        cache = Cache(small, below)
        with (stack.pool(cache.path, chunk_kib=CHUNK_KIB) as pool,
              stack.cached(origin, pool, scope="filesystem") as device,
              Disk(device.path) as disk):
            client.tag_set(device.number, 1, cgroups=[one.id])
            client.set_extents(device.number, 1, [Extent(ONE, 2048)])
            if what == "seals":
                refuse_writes(cache, first_chunk(cache, pool), 2 * BLOCK, CHUNK)
            one.run(lambda: disk.write_and_flush(ONE, old))
            if what == "record":
                below.swap(f"0 {stack.sectors(small)} flakey {small} 0 0 3600 1 error_writes")
                one.run(lambda: disk.write(ONE + 1024, pattern(3, BLOCK)))
                fails(lambda: one.run(disk.flush))
                assert stack.cache_status(device).cache_errors == 1
                cache.mend()
                one.run(disk.flush)
            # The host supersedes an entry of the chunk without a seal.
            disk.write(ONE + BLOCK, new)
            disk.flush()
            with stack.buffer_mb(4):
                write_much(disk)
            assert stack.pool_status(pool).state == "ok"
            assert disk.read(ONE, 8 * BLOCK) == (old[:BLOCK * SECTOR] + new
                                                 + old[2 * BLOCK * SECTOR:])
        with (as_after_a_crash(small) as after, stack.pool(after) as pool,
              stack.cached(origin, pool, scope="filesystem") as device,
              Disk(device.path) as disk):
            assert stack.cache_status(device).damaged == 0
            assert disk.read(ONE, 8 * BLOCK) == (old[:BLOCK * SECTOR] + new
                                                 + old[2 * BLOCK * SECTOR:])
            if what == "record":
                assert disk.read(ONE + 1024, BLOCK) == pattern(3, BLOCK)
            device.message("drain")
            assert stack.wait_until(lambda: is_clean(device))
