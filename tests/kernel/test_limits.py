# SPDX-License-Identifier: Apache-2.0
"""What an operator limits of destage: the rate, the dirty parts of a share, and a pause."""

import time
from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from tests.kernel import stack
from tests.kernel.conftest import KernelLog
from tests.kernel.disk import Disk, pattern
from tests.kernel.dm import DmError

MIB = 2048
NEVER = "age_ms 600000"


@contextmanager
def volume(options: str = "", *, ssd_mb: int = 64) -> Iterator[tuple[stack.Mapped, str]]:
    """Make a volume of 64 MiB with options in a pool. Yield it and its origin."""
    with stack.null_blk(64) as origin, stack.null_blk(ssd_mb) as ssd, stack.pool(ssd) as pool:
        words = f"{NEVER} {options} pool {pool.path} 1".split()
        line = (f"0 {stack.sectors(origin)} vcache writeback {origin} volume 7 "
                f"{len(words)} {' '.join(words)}")
        with stack.mapped(line) as device:
            yield device, origin


def fill(disk: Disk, mib: int, *, seed: int = 0) -> None:
    for at in range(mib):
        disk.write_and_flush(at * MIB, pattern(seed + at, MIB))


def dirty_mib(device: stack.Mapped) -> float:
    return stack.cache_status(device).dirty / MIB


def is_clean(device: stack.Mapped) -> bool:
    return not stack.cache_status(device).dirty


def destaged_mib(device: stack.Mapped, seconds: float) -> tuple[float, float]:
    """Return what is destaged in some time, and the time that passed."""
    start, before = time.monotonic(), stack.cache_status(device).destaged
    time.sleep(seconds)
    done = stack.cache_status(device).destaged
    return (done - before) / MIB, time.monotonic() - start


def test_rate_bounds_what_the_origin_receives() -> None:
    """A drain observes it, too, and ends; without a limit the same takes no time."""
    with volume("destage_mib 4") as (device, origin), Disk(device.path) as disk:
        fill(disk, 16)
        start, before = time.monotonic(), stack.cache_status(device).destaged
        device.message("drain")
        assert stack.wait_until(lambda: is_clean(device), 120)
        passed = time.monotonic() - start
        done = (stack.cache_status(device).destaged - before) / MIB
        assert done > 8
        # The first window of 512 KiB does not wait, and 20 ms may have been saved up.
        assert done <= 4 * passed + 0.75, (done, passed)
        with Disk(origin) as below:
            for at in range(16):
                assert below.read(at * MIB, MIB) == pattern(at, MIB), at


def test_rate_can_be_changed_during_a_drain() -> None:
    with volume("destage_mib 1") as (device, _), Disk(device.path) as disk:
        fill(disk, 24)
        device.message("drain")
        done, passed = destaged_mib(device, 2)
        assert done <= passed + 0.75
        device.message("destage_mib 0")
        assert "destage_mib" not in device.table()
        start, before = time.monotonic(), dirty_mib(device)
        assert stack.wait_until(lambda: is_clean(device), 120)
        # Faster than the old rate.
        assert before > time.monotonic() - start


def test_pause_stops_destage_and_ends() -> None:
    with volume() as (device, _), Disk(device.path) as disk:
        device.message("pause 3600")
        fill(disk, 12)
        # Longer than the two seconds after which an idle log is destaged.
        done, _ = destaged_mib(device, 4)
        assert done == 0
        assert dirty_mib(device) == 12
        assert 3500 < stack.cache_status(device).paused <= 3600
        device.message("pause 0")
        assert stack.wait_until(lambda: is_clean(device))
        assert stack.cache_status(device).paused == 0


def test_pause_ends_by_itself() -> None:
    with volume() as (device, _), Disk(device.path) as disk:
        fill(disk, 4)
        device.message("pause 3")
        assert stack.wait_until(lambda: is_clean(device))
        assert stack.cache_status(device).paused == 0


def test_drain_ends_a_pause() -> None:
    with volume() as (device, _), Disk(device.path) as disk:
        device.message("pause 3600")
        fill(disk, 4)
        device.message("drain")
        assert stack.wait_until(lambda: is_clean(device))


def test_paused_volume_can_be_suspended_and_removed() -> None:
    with volume() as (device, _), Disk(device.path) as disk:
        fill(disk, 4)
        device.message("pause 3600")
        device.suspend()
        device.resume()
        assert dirty_mib(device) == 4


def test_pause_does_not_keep_space_from_others() -> None:
    """A tag below its share gets the chunks that a paused one has beyond its own."""
    with stack.null_blk(64) as first, stack.null_blk(64) as second, stack.null_blk(48) as ssd, \
            stack.pool(ssd) as pool, stack.cached(first, pool) as paused, \
            Disk(paused.path) as disk:
        paused.message("pause 3600")
        fill(disk, 34)
        assert dirty_mib(paused) > 30
        with stack.cached(second, pool, 2, "volume 8") as other, Disk(other.path) as beside:
            fill(beside, 18, seed=100)
            for at in range(18):
                assert beside.read(at * MIB, MIB) == pattern(100 + at, MIB), at
        assert dirty_mib(paused) < 34
        for at in range(34):
            assert disk.read(at * MIB, MIB) == pattern(at, MIB), at


@pytest.mark.parametrize(("low", "destaged"), [(20, True), (70, False)])
def test_dirty_part_from_which_destage_begins(low: int, destaged: bool) -> None:
    """A third of the share is dirty."""
    with volume(f"destage_low {low}") as (device, _), Disk(device.path) as disk:
        fill(disk, 20)
        end = time.monotonic() + 5
        # A log that is written to is not idle.
        while time.monotonic() < end and not stack.cache_status(device).destaged:
            disk.write_and_flush(0, pattern(1, 8))
            time.sleep(0.05)
        assert (stack.cache_status(device).destaged > 0) == destaged


def test_options_are_in_the_table_and_change_by_messages() -> None:
    with volume("destage_high 60 destage_low 10 destage_mib 7") as (device, _):
        line = device.table()
        assert "11 age_ms 600000 destage_mib 7 destage_low 10 destage_high 60 pool " in line
        device.message("destage_low 25")
        device.message("DESTAGE_MIB 9")
        assert "9 age_ms 600000 destage_mib 9 destage_high 60 pool " in device.table()
        device.swap(device.table())
        assert "9 age_ms 600000 destage_mib 9 destage_high 60 pool " in device.table()


def test_bad_options_are_refused(kmsg: KernelLog) -> None:
    with volume() as (device, _):
        line = device.table()
        assert " 5 age_ms" in line
        for words, text in (("destage_mib 1048577", "destage_mib must be 0..1048576"),
                            ("destage_mib x", "destage_mib must be 0..1048576"),
                            ("destage_low 81", "destage_low must be 0..80"),
                            ("destage_high 0", "destage_high must be 1..80"),
                            ("destage_high 81", "destage_high must be 1..80"),
                            ("destage_low 76", "destage_low must not be greater than")):
            logged = len(kmsg.read())
            with pytest.raises(DmError):
                device.load(line.replace(" 5 age_ms", f" 7 {words} age_ms"))
            assert text in kmsg.read()[logged:], words
            logged = len(kmsg.read())
            with pytest.raises(DmError):
                device.message(words)
            assert text in kmsg.read()[logged:], words
        for words in ("pause", "pause -1", "pause 86401", "pause 1 2", "destage_mib", "drain now",
                      "no-such-message"):
            with pytest.raises(DmError):
                device.message(words)
        assert device.table() == line


def test_device_without_a_cache_has_nothing_to_limit(kmsg: KernelLog) -> None:
    with stack.null_blk(8) as origin, stack.vcache(origin) as device:
        for words in ("destage_mib 1", "pause 1", "drain"):
            logged = len(kmsg.read())
            with pytest.raises(DmError):
                device.message(words)
            assert "the device has no cache" in kmsg.read()[logged:], words
