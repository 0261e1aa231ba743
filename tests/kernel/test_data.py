# SPDX-License-Identifier: Apache-2.0
"""A read returns the data that was written last, wherever it is."""

import random
import threading

import pytest

from tests.kernel import stack
from tests.kernel.disk import SECTOR, Disk, pattern, read
from tests.kernel.stack import null_blk, vcache
from vcache_agent.netlink.client import Client

MIB = 2048  # sectors


@pytest.mark.quick
@pytest.mark.box
def test_read_after_write(origin: str) -> None:
    """Sizes from a sector to 4 MiB, at all alignments within a page."""
    with vcache(origin) as device, Disk(device.path) as disk:
        for length in [1, 2, 7, 8, 9, 15, 64, 255, 256, 1000, MIB, 4 * MIB]:
            for offset in (0, 1, 7) if length > 1000 else range(8):
                start, margin = 4096 + offset, bytes(8 * SECTOR)
                disk.write(start, pattern(length + offset, length))
                # A margin on both sides shows that no other data changed.
                assert (disk.read(start - 8, length + 16) ==
                        margin + pattern(length + offset, length) + margin), (offset, length)
                disk.write(start, bytes(length * SECTOR))
            disk.write(start, pattern(length, length))
            disk.flush()
            assert read(origin, start, length) == pattern(length, length)
            assert disk.read(start, length) == pattern(length, length)
            disk.write(start, bytes(length * SECTOR))


def test_read_that_is_partly_buffered(origin: str) -> None:
    with Disk(origin) as below:
        below.write(0, pattern(1, 4 * MIB))
    expected = bytearray(pattern(1, 4 * MIB))
    with vcache(origin) as device, Disk(device.path) as disk:
        for number, (start, length) in enumerate(
                [(0, 1), (15, 2), (24, 8), (100, 300), (MIB - 1, 2), (3 * MIB + 5, 64)]):
            data = pattern(100 + number, length)
            disk.write(start, data)
            expected[start * SECTOR:(start + length) * SECTOR] = data
        for start, length in [(0, 4 * MIB), (0, 8), (14, 4), (16, 8), (23, 400), (MIB - 8, 16),
                              (1, 4 * MIB - 2), (5, 1)]:
            assert (disk.read(start, length) ==
                    bytes(expected[start * SECTOR:(start + length) * SECTOR]))
        # The origin does not have the data yet.
        assert read(origin, 0, 4 * MIB) == pattern(1, 4 * MIB)
        disk.flush()
        assert read(origin, 0, 4 * MIB) == bytes(expected)


def test_read_of_many_single_sectors(origin: str) -> None:
    """More blocks than a read can reference without an allocation, each with holes."""
    with vcache(origin) as device, Disk(device.path) as disk:
        expected = bytearray(256 * SECTOR)
        for sector in range(0, 256, 3):
            data = pattern(sector, 1)
            disk.write(sector, data)
            expected[sector * SECTOR:(sector + 1) * SECTOR] = data
        assert disk.read(0, 256) == bytes(expected)
        disk.flush()
        assert read(origin, 0, 256) == bytes(expected)
        assert disk.read(0, 256) == bytes(expected)


def test_overwrites_are_absorbed(origin: str, client: Client) -> None:
    with vcache(origin) as device, Disk(device.path) as disk:
        for seed in range(50):
            disk.write(16, pattern(seed, 16))
        tag = client.tag(device.number, 7)
        assert tag.stats.writes == 50
        assert tag.stats.write_bytes == 50 * 16 * SECTOR
        assert tag.stats.absorbed_bytes == 49 * 16 * SECTOR
        assert tag.dirty_bytes == 16 * SECTOR
        assert tag.stats.writeouts == 0
        disk.flush()
        tag = client.tag(device.number, 7)
        assert tag.stats.writeouts == 1, "neighbours go out as one request"
        assert tag.stats.writeout_bytes == 16 * SECTOR
        assert tag.dirty_bytes == 0
        assert read(origin, 16, 16) == pattern(49, 16)


def test_neighbours_are_written_as_one_request(origin: str, client: Client) -> None:
    with vcache(origin) as device, Disk(device.path) as disk:
        order = list(range(64))
        random.Random(1).shuffle(order)  # noqa: S311 - test data
        for page in order:
            disk.write(page * 8, pattern(page, 8))
        disk.flush()
        stats = client.tag(device.number, 7).stats
        assert stats.writeout_bytes == 64 * 4096
        assert stats.writeouts == 1


def test_read_hits_are_counted(origin: str, client: Client) -> None:
    with vcache(origin) as device, Disk(device.path) as disk:
        disk.write(0, pattern(1, 8))
        disk.read(0, 8)
        disk.read(0, 32)
        stats = client.tag(device.number, 7).stats
        assert stats.reads == 2
        assert stats.read_bytes == 40 * SECTOR
        assert stats.read_hit_bytes == 16 * SECTOR


@pytest.mark.parametrize("block", [512, 4096])
@pytest.mark.parametrize("seed", [1, 2])
def test_random_operations(block: int, seed: int) -> None:
    """Random requests, compared with a model in memory."""
    rng = random.Random(seed)  # noqa: S311 - test data
    unit, size = block // SECTOR, 4 * MIB
    model = bytearray(size * SECTOR)
    with (null_blk(8, block=block) as origin, vcache(origin, age_ms=50) as device,
          Disk(device.path) as disk):
        for step in range(400):
            length = unit * min(rng.choice([1, 1, 2, 3, 8, 16, 100, 600]), size // unit // 2)
            start = unit * rng.randrange(0, min(size, 2 * MIB) // unit)
            length = min(length, size - start)
            where = slice(start * SECTOR, (start + length) * SECTOR)
            kind = rng.choices(["write", "fua", "read", "flush", "zero"], [50, 8, 30, 8, 2])[0]
            if kind in ("write", "fua"):
                data = pattern(seed * 10000 + step, length)
                disk.write(start, data, fua=kind == "fua")
                model[where] = data
                if kind == "fua":
                    assert read(origin, start, length) == data
            elif kind == "read":
                assert disk.read(start, length) == model[where], step
            elif kind == "zero":
                disk.zero_out(start, length)
                model[where] = bytes(length * SECTOR)
            else:
                disk.flush()
        assert disk.read(0, size) == model
        disk.flush()
        assert read(origin, 0, size) == model


@pytest.mark.smp
def test_concurrent_writers_of_one_page(origin: str) -> None:
    """Each owns a sector of the same pages; versions and write-outs overlap."""
    rounds, pages = 60, 4
    problems: list[str] = []

    def work(device: stack.Mapped, sector: int) -> None:
        with Disk(device.path) as disk:
            for turn in range(rounds):
                for page in range(pages):
                    data = pattern(turn * 8 + sector, 1)
                    disk.write(page * 8 + sector, data, fua=turn % 7 == sector)
                    if disk.read(page * 8 + sector, 1) != data:
                        problems.append(f"sector {sector}, round {turn}")
                if turn % 5 == sector % 5:
                    disk.flush()

    with vcache(origin, age_ms=20) as device:
        threads = [threading.Thread(target=work, args=(device, s)) for s in range(8)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert not problems
        with Disk(device.path) as disk:
            disk.flush()
        for sector in range(8):
            for page in range(pages):
                assert read(origin, page * 8 + sector, 1) == pattern((rounds - 1) * 8 + sector, 1)


@pytest.mark.box
def test_last_sectors_of_an_odd_size() -> None:
    with (null_blk() as disk, stack.mapped(stack.linear(disk, 1003)) as odd,
          vcache(odd.path) as device, Disk(device.path) as top):
        top.write(990, pattern(1, 13))
        assert top.read(990, 13) == pattern(1, 13)
        top.flush()
        assert read(odd.path, 990, 13) == pattern(1, 13)
        with pytest.raises(OSError, match=r"short|No space|Invalid"):
            top.write(1000, pattern(1, 8))


@pytest.mark.parametrize("memory", [1, 128])
def test_fio_verifies(memory: int) -> None:
    """A heavy mix, verified by fio, with a buffer that is too small and with one that is not."""
    with null_blk(32) as origin, stack.buffer_mb(memory), vcache(origin, age_ms=500) as device:
        stack.run("fio", "--name=v", f"--filename={device.path}", "--direct=1", "--rw=randrw",
                  "--bsrange=512-64k", "--blockalign=512", "--ioengine=libaio", "--iodepth=16",
                  "--size=16m", "--io_size=24m", "--fsync=50", "--verify=crc32c",
                  "--verify_fatal=1", "--serialize_overlap=1", "--randseed=7", timeout=300)
