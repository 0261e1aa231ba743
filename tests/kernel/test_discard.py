# SPDX-License-Identifier: Apache-2.0
"""Discards and zeroes."""

from pathlib import Path

import pytest

from tests.kernel.disk import SECTOR, Disk, pattern, read
from tests.kernel.logwrites import log_writes
from tests.kernel.stack import null_blk, vcache
from vcache_agent.model import Extent
from vcache_agent.netlink.client import Client


@pytest.mark.quick
@pytest.mark.box
def test_discard_of_durable_and_buffered_data(origin: str, client: Client) -> None:
    with vcache(origin) as device, Disk(device.path) as disk:
        disk.write(0, pattern(1, 64))
        disk.flush()
        disk.write(64, pattern(2, 64))
        disk.discard(32, 64)
        assert disk.read(0, 32) == pattern(1, 64)[:32 * SECTOR]
        # null_blk returns zeroes for discarded blocks.
        assert disk.read(32, 64) == bytes(64 * SECTOR)
        assert disk.read(96, 32) == pattern(2, 64)[32 * SECTOR:]
        disk.flush()
        assert read(origin, 32, 64) == bytes(64 * SECTOR)
        assert read(origin, 96, 32) == pattern(2, 64)[32 * SECTOR:]
        assert client.tag(device.number, 7).stats.discards == 1


def test_write_after_discard_stays(origin: str) -> None:
    with vcache(origin) as device, Disk(device.path) as disk:
        for turn in range(10):
            disk.write(8, pattern(turn, 8))
            disk.discard(0, 64)
            disk.write(16, pattern(turn, 8))
            assert disk.read(8, 8) == bytes(8 * SECTOR)
            assert disk.read(16, 8) == pattern(turn, 8)
            disk.flush()
            assert read(origin, 16, 8) == pattern(turn, 8)


def test_discard_sends_no_flush(origin: str) -> None:
    with log_writes(origin) as log:
        with vcache(log.path) as device, Disk(device.path) as disk:
            log.mark("begin")
            disk.write(0, pattern(1, 8))
            disk.discard(0, 8)
        log.settle()
        log.mark("end")
    *entries, own = log.between("begin", "end")
    assert own.flush
    assert [entry.discard for entry in entries] == [False, True]
    assert not any(entry.flush for entry in entries)


def test_origin_without_discard() -> None:
    with null_blk() as origin, vcache(origin) as device, Disk(device.path) as disk:
        name = Path(device.path).name
        assert Path(f"/sys/block/{name}/queue/discard_max_bytes").read_text().strip() == "0"
        disk.write(0, pattern(1, 8))
        with pytest.raises(OSError, match="not supported"):
            disk.discard(0, 8)
        assert disk.read(0, 8) == pattern(1, 8)


@pytest.mark.parametrize("cache", [True, False])
def test_zeroes_are_durable_after_a_flush(cache: bool) -> None:
    with null_blk(cache=cache) as origin, vcache(origin) as device, Disk(device.path) as disk:
        disk.write(0, pattern(1, 256))
        disk.flush()
        disk.write(100, pattern(2, 8))
        disk.zero_out(8, 200)
        assert disk.read(8, 200) == bytes(200 * SECTOR)
        disk.flush()
        assert read(origin, 8, 200) == bytes(200 * SECTOR)
        assert read(origin, 0, 8) == pattern(1, 256)[:8 * SECTOR]
        assert read(origin, 208, 48) == pattern(1, 256)[208 * SECTOR:]


def test_zeroes_on_a_volatile_cache_have_fua(origin: str) -> None:
    """There, zeroes are written as data, since WRITE ZEROES has no FUA."""
    with log_writes(origin) as log, vcache(log.path) as device, Disk(device.path) as disk:
        disk.write(0, pattern(1, 64))
        disk.flush()
        log.mark("begin")
        disk.zero_out(0, 64)
        disk.flush()
        log.mark("end")
    entries = [entry for entry in log.between("begin", "end") if entry.sectors]
    assert sum(entry.sectors for entry in entries) == 64
    assert all(entry.fua and not entry.data.strip(b"\0") for entry in entries)


def test_discard_punches_extents(origin: str, client: Client) -> None:
    with vcache(origin, "filesystem") as device, Disk(device.path) as disk:
        client.tag_set(device.number, 1)
        client.tag_set(device.number, 2)
        client.set_extents(device.number, 1, [Extent(0, 100), Extent(200, 100)])
        client.set_extents(device.number, 2, [Extent(100, 100)])

        def extents() -> list[tuple[int, int]]:
            tags = [client.tag(device.number, number) for number in (1, 2)]
            return [(tag.extents_count, tag.extents_sectors) for tag in tags]

        assert extents() == [(2, 200), (1, 100)]
        disk.discard(48, 8)
        assert extents() == [(3, 192), (1, 100)]
        disk.discard(96, 160)
        assert extents() == [(3, 48 + 40 + 44), (0, 0)]
        disk.discard(0, 4096)
        assert extents() == [(0, 0), (0, 0)]


def test_discard_of_many_buffered_pieces(origin: str, client: Client) -> None:
    with vcache(origin, "filesystem") as device, Disk(device.path) as disk:
        for sector in range(0, 512, 16):
            disk.write(sector, pattern(sector, 8))
        disk.discard(0, 256)
        assert disk.read(0, 256) == bytes(256 * SECTOR)
        for sector in range(256, 512, 16):
            assert disk.read(sector, 8) == pattern(sector, 8)
        disk.flush()
        assert client.tag(device.number, 0).dirty_bytes == 0
        for sector in range(256, 512, 16):
            assert read(origin, sector, 8) == pattern(sector, 8)
