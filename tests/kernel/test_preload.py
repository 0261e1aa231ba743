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


def check_after_power_cut(cache: str, origin: str, expected: bytes,
                          mode: str = "writeback") -> None:
    """Start with a copy of what is on the devices now, and read from sector 0 on."""
    with copied(cache) as other_cache, copied(origin) as other_origin, \
            stack.pool(other_cache) as pool, \
            stack.cached(other_origin, pool, mode=mode) as after, Disk(after.path) as there:
        assert there.read(0, len(expected) // 512) == expected


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
        check_after_power_cut(cache, origin, expected)
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
        check_after_power_cut(cache, origin, expected)


@pytest.mark.parametrize(("old", "new"), [("writeback", "writethrough"),
                                            ("writethrough", "writeback")])
def test_a_preloaded_mode_becomes_active(cache: str, origin: str, old: str, new: str) -> None:
    """A power cut before the resume leaves the old mode, one after it the new mode."""
    with stack.pool(cache) as pool, stack.cached(origin, pool, mode=old) as device, \
            Disk(device.path) as disk:
        disk.write_and_flush(0, pattern(1, SECTORS))
        device.message("drain")
        assert stack.wait_until(lambda: stack.cache_status(device).state == "clean")
        device.load(stack.cached_table(origin, pool, mode=new))
        disk.write(32, pattern(2, 8))
        expected = pattern(1, SECTORS)[:32 * 512] + pattern(2, 8) + pattern(1, SECTORS)[40 * 512:]
        if old == "writeback":
            # Dirty data would be refused.
            disk.flush()
            device.message("drain")
            assert stack.wait_until(lambda: stack.cache_status(device).state == "clean")
        device.suspend()
        check_after_power_cut(cache, origin, expected, old)
        device.resume()
        assert f" vcache {new} " in device.table()
        check_after_power_cut(cache, origin, expected, new)
        disk.write_and_flush(16, pattern(3, 8))
        assert (stack.cache_status(device).dirty > 0) == (new == "writeback")
        expected = expected[:16 * 512] + pattern(3, 8) + expected[24 * 512:]
        assert disk.read(0, SECTORS) == expected
        check_after_power_cut(cache, origin, expected, new)


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
