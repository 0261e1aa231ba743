# SPDX-License-Identifier: Apache-2.0
"""The table and the messages of a pool, and the effect of reads_percent."""

import random
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.kernel import stack
from tests.kernel.conftest import KernelLog
from tests.kernel.disk import Disk, pattern
from tests.kernel.dm import DmError
from tests.kernel.stack import Mapped, mapped

BLOCK = 8  # sectors

# The arguments after "<start> <length> vcache-pool ", and the message in the kernel's log.
BAD_LINES = [
    ("", "no cache device given"),
    ("/dev/no-such-device", "cannot open the cache device"),
    ("{cache} 134 chunk_kib 64", "number of optional arguments must be even, 0..132"),
    ("{cache} -2", "number of optional arguments must be even, 0..132"),
    ("{cache} 2 chunk_kib", "number of optional arguments must be even, 0..132"),
    ("{cache} 1 chunk_kib", "number of optional arguments must be even, 0..132"),
    ("{cache} 3 chunk_kib 64 reads_percent", "number of optional arguments must be even, 0..132"),
    ("{cache} 2 chunks 64", "optional arguments are: chunk_kib <n>, reads_percent"),
    ("{cache} 4 chunk_kib 64 reads 5", "optional arguments are: chunk_kib <n>, reads_percent"),
    ("{cache} 2 chunk_kib 32", "chunk_kib must be a power of two in 64..16384"),
    ("{cache} 2 chunk_kib 32768", "chunk_kib must be a power of two in 64..16384"),
    ("{cache} 2 chunk_kib 100", "chunk_kib must be a power of two in 64..16384"),
    ("{cache} 2 chunk_kib 64k", "chunk_kib must be a power of two in 64..16384"),
    ("{cache} 2 reads_percent 101", "reads_percent must be in 0..100"),
    ("{cache} 2 reads_percent -1", "reads_percent must be in 0..100"),
    ("{cache} 2 reads_percent many", "reads_percent must be in 0..100"),
    ("{cache} 2 hot_percent 101", "hot_percent must be in 0..100"),
    ("{cache} 2 hot_percent few", "hot_percent must be in 0..100"),
    ("{cache} 2 lane 0", "the size of a lane must be a number of sectors"),
    ("{cache} 2 lane half", "the size of a lane must be a number of sectors"),
    ("{cache} 128 " + "lane 8 " * 64, "there can be at most 64 lanes"),
    ("{cache} 0 chunk_kib 64", "too many arguments"),
    ("{cache} 2 chunk_kib 64 reads_percent 5", "too many arguments"),
]

BAD_MESSAGES = [
    ("reads_percent", "messages are: drop <volume> [tag <tag>] [force], reads_percent"),
    ("reads_percent 5 5", "messages are: drop <volume> [tag <tag>] [force], reads_percent"),
    ("reads 5", "messages are: drop <volume> [tag <tag>] [force], reads_percent"),
    ("reads_percent 101", "reads_percent must be in 0..100"),
    ("reads_percent -1", "reads_percent must be in 0..100"),
    ("reads_percent 5%", "reads_percent must be in 0..100"),
    ("hot_percent", "reads_percent <n>, hot_percent <n>, resize <sectors>"),
    ("hot_percent 101", "hot_percent must be in 0..100"),
    ("hot_percent -1", "hot_percent must be in 0..100"),
]

#: Options as given, and as shown.
GOOD_LINES = [
    ("", ""),
    (" 0", ""),
    (" 2 chunk_kib 64", " 2 chunk_kib 64"),
    (" 2 READS_PERCENT 0", " 2 reads_percent 0"),
    (" 4 reads_percent 100 chunk_kib 64", " 4 chunk_kib 64 reads_percent 100"),
    (" 2 reads_percent 75", ""),
    (" 6 lane 2000 hot_percent 0 reads_percent 9", " 6 reads_percent 9 hot_percent 0 lane 2000"),
    (" 4 chunk_kib 64 hot_percent 20", " 2 chunk_kib 64"),
    (" 6 lane 4096 chunk_kib 64 LANE 2000", " 6 chunk_kib 64 lane 4096 lane 2000"),
]


@pytest.fixture
def cache() -> Iterator[str]:
    with stack.null_blk(8, discard=True) as device:
        yield device


def test_bad_lines_are_refused(cache: str, kmsg: KernelLog) -> None:
    with mapped(stack.linear(cache)) as device:
        before = device.table()
        for line, text in BAD_LINES:
            logged = len(kmsg.read())
            with pytest.raises(DmError):
                device.load(f"0 1024 vcache-pool {line.format(cache=cache)}")
            assert text in kmsg.read()[logged:], line
        assert device.table() == before


@pytest.mark.box
def test_the_table_is_shown_as_given(cache: str) -> None:
    number = Path(f"/sys/block/{Path(cache).name}/dev").read_text().strip()
    begin = f"0 {stack.sectors(cache)} vcache-pool"
    with stack.pool(cache, chunk_kib=64) as pool:
        for given, shown in GOOD_LINES:
            pool.swap(f"{begin} {cache}{given}")
            assert pool.table() == f"{begin} {number}{shown}"
            pool.swap(pool.table())
            assert pool.table() == f"{begin} {number}{shown}"
            words = shown.split()
            said = dict(zip(words[1::2], words[2::2], strict=True))
            status = stack.pool_status(pool)
            assert status.reads_percent == int(said.get("reads_percent", 75))
            assert status.hot_percent == int(said.get("hot_percent", 20))


def test_a_message_lasts_over_a_suspend(cache: str, kmsg: KernelLog) -> None:
    with stack.pool(cache, chunk_kib=64) as pool:
        for text, error in BAD_MESSAGES:
            logged = len(kmsg.read())
            with pytest.raises(DmError):
                pool.message(text)
            assert error in kmsg.read()[logged:], text
        assert stack.pool_status(pool).reads_percent == 75
        assert stack.pool_status(pool).hot_percent == 20
        pool.message("reads_percent 20")
        pool.message("hot_percent 100")
        pool.suspend()
        pool.resume()
        assert stack.pool_status(pool).reads_percent == 20
        assert stack.pool_status(pool).hot_percent == 100
        assert pool.table().endswith(" 6 chunk_kib 64 reads_percent 20 hot_percent 100")


def write_clean(device: Mapped, disk: Disk, blocks: list[int]) -> None:
    """Write data that is then on the origin too."""
    for block in blocks:
        disk.write(block * BLOCK, pattern(block, BLOCK))
    disk.flush()
    device.message("drain")
    assert stack.wait_until(lambda: stack.cache_status(device).dirty == 0)


def read_twice(disk: Disk, blocks: list[int]) -> None:
    for at in range(0, len(blocks), 256):
        for _ in range(2):
            for block in blocks[at:at + 256]:
                disk.read(block * BLOCK, BLOCK)


def share_of_reads(pool: Mapped) -> float:
    """Return the percentage of read chunks among the used ones."""
    status = stack.pool_status(pool)
    return 100 * status.reads / status.used


def test_reads_percent_is_what_reads_get(cache: str, origin: str) -> None:
    """Whether more is read or more is written than fits."""
    new = list(range(8 * 256, 30 * 256))
    random.Random(10).shuffle(new)  # noqa: S311 - test data
    written = list(range(8 * 256))
    with (stack.pool(cache, chunk_kib=64) as pool, stack.cached(origin, pool) as device,
          Disk(device.path) as disk):
        pool.message("reads_percent 20")
        write_clean(device, disk, written)
        read_twice(disk, new[:1500])
        assert 10 < share_of_reads(pool) < 30, stack.pool_status(pool)
        pool.message("reads_percent 75")
        read_twice(disk, new[1500:4500])
        assert 60 < share_of_reads(pool) < 85, stack.pool_status(pool)
        # Written data displaces read data, down to a fifth.
        pool.message("reads_percent 20")
        write_clean(device, disk, written)
        assert share_of_reads(pool) < 30, stack.pool_status(pool)
