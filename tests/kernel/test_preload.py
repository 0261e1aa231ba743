# SPDX-License-Identifier: Apache-2.0
"""A table that is loaded long before it is resumed: what it finds then is what counts."""

from collections.abc import Iterator

import pytest

from tests.kernel import dm, stack
from tests.kernel.disk import Disk, pattern
from tests.kernel.test_fill_race import SECTORS, TAG, copied
from vcache_agent.netlink.client import Client
from vcache_agent.netlink.spec import Mode

# Of a tag of a device in writeback mode.
MODES = [None, Mode.WRITETHROUGH, Mode.FLUSH_ONLY]


@pytest.fixture
def cache() -> Iterator[str]:
    with stack.null_blk(24, discard=True) as path:
        yield path


@pytest.fixture
def origin() -> Iterator[str]:
    with stack.null_blk(24, discard=True) as path:
        yield path


@pytest.mark.parametrize("mode", MODES)
def test_a_power_cut_after_a_preload(cache: str, origin: str, client: Client,
                                     mode: Mode | None) -> None:
    """What is written through the old table, in any mode, is there after the power cut."""
    with stack.pool(cache) as pool, stack.cached(origin, pool) as device, \
            Disk(device.path) as disk:
        disk.write_and_flush(0, pattern(1, SECTORS))
        device.load(stack.cached_table(origin, pool, age_ms=900))
        if mode is not None:
            client.tag_set(device.number, TAG, mode=mode)
        disk.write_and_flush(16, pattern(2, SECTORS))
        expected = pattern(1, SECTORS)[:16 * 512] + pattern(2, SECTORS)
        with copied(cache) as other_cache, copied(origin) as other_origin, \
                stack.pool(other_cache) as other_pool, \
                stack.cached(other_origin, other_pool) as after, Disk(after.path) as there:
            assert there.read(0, SECTORS + 16) == expected
        dm.clear(device.name)
        assert disk.read(0, SECTORS + 16) == expected


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("times", [1, 2])
def test_a_preloaded_table_takes_what_was_written_since(cache: str, origin: str, client: Client,
                                                        mode: Mode | None, times: int) -> None:
    """Also if it was loaded twice, and had been cleared before."""
    with stack.pool(cache) as pool, stack.cached(origin, pool) as device, \
            Disk(device.path) as disk:
        for number in range(times):
            disk.write_and_flush(0, pattern(number, SECTORS))
            device.load(stack.cached_table(origin, pool, age_ms=1000 + number))
            if not number:
                dm.clear(device.name)
                device.load(stack.cached_table(origin, pool, age_ms=900))
        if mode is not None:
            client.tag_set(device.number, TAG, mode=mode)
        disk.write_and_flush(16, pattern(5, SECTORS))
        disk.write(32, pattern(6, 8))
        expected = (pattern(times - 1, SECTORS)[:16 * 512] + pattern(5, SECTORS)[:16 * 512]
                    + pattern(6, 8) + pattern(5, SECTORS)[24 * 512:])
        device.suspend()
        device.resume()
        assert f"age_ms {1001 if times == 2 else 900}" in device.table()
        assert disk.read(0, SECTORS + 16) == expected
        disk.flush()
        with copied(cache) as other_cache, copied(origin) as other_origin, \
                stack.pool(other_cache) as other_pool, \
                stack.cached(other_origin, other_pool) as after, Disk(after.path) as there:
            assert there.read(0, SECTORS + 16) == expected


def test_another_mode_is_refused_while_there_is_dirty_data(cache: str, origin: str) -> None:
    with stack.pool(cache) as pool, stack.cached(origin, pool) as device, \
            Disk(device.path) as disk:
        disk.write_and_flush(0, pattern(1, SECTORS))
        with pytest.raises(dm.DmError, match="busy"):
            device.load(stack.cached_table(origin, pool, mode="writethrough"))
        assert disk.read(0, SECTORS) == pattern(1, SECTORS)


def test_a_preloaded_mode_is_refused_when_data_is_dirty_since(cache: str, origin: str) -> None:
    """The load found none. Nothing is lost, and the old mode can be resumed."""
    with stack.pool(cache) as pool, stack.cached(origin, pool) as device, \
            Disk(device.path) as disk:
        device.load(stack.cached_table(origin, pool, mode="writethrough"))
        disk.write_and_flush(0, pattern(1, SECTORS))
        assert stack.cache_status(device).dirty == SECTORS
        device.suspend()
        with pytest.raises(dm.DmError, match="busy"):
            device.resume()
        device.load(stack.cached_table(origin, pool))
        device.resume()
        assert disk.read(0, SECTORS) == pattern(1, SECTORS)
        disk.write(8, pattern(2, 8), fua=True)
        assert disk.read(0, 16) == pattern(1, 8) + pattern(2, 8)
