# SPDX-License-Identifier: Apache-2.0
"""The table line and the status line."""

from pathlib import Path

import pytest

from tests.box.disks import null_block
from tests.kernel import stack
from tests.kernel.conftest import KernelLog
from tests.kernel.disk import Disk, pattern, read
from tests.kernel.dm import DmError
from tests.kernel.nofua import loop_device
from tests.kernel.stack import StackError, mapped, null_blk, vcache, vcache_table

# The arguments after "<start> <length> vcache ", and the message in the kernel's log.
BAD_LINES = [
    ("", "mode must be flush-only, writeback, writethrough or none"),
    ("write-back {origin} volume 7", "mode must be flush-only, writeback, writethrough or none"),
    ("writeback {origin} volume 7", "need 'pool <device> <volume>'"),
    ("writethrough {origin} volume 7 2 age_ms 5", "need 'pool <device> <volume>'"),
    ("writeback {origin} volume 7 3 pool {origin} 0", "the volume must be 1..4294967295"),
    ("writeback {origin} volume 7 3 pool {origin} 1", "is not an active vcache-pool"),
    ("writeback {origin} volume 7 3 pool /dev/no-such-device 1", "cannot open the device of the"),
    ("flush-only", "no origin device given"),
    ("flush-only {origin}", "scope must be 'volume <tag>' or 'filesystem'"),
    ("flush-only {origin} both", "scope must be 'volume <tag>' or 'filesystem'"),
    ("flush-only {origin} volume", "tag must be 1..65535"),
    ("flush-only {origin} volume 0", "tag must be 1..65535"),
    ("flush-only {origin} volume 65536", "tag must be 1..65535"),
    ("flush-only {origin} volume -1", "tag must be 1..65535"),
    ("flush-only {origin} volume 7x", "tag must be 1..65535"),
    ("flush-only {origin} volume 99999999999999999999", "tag must be 1..65535"),
    ("flush-only {origin} volume 7 6 age_ms 1 2 3", "number of optional arguments must be 0..11"),
    ("flush-only {origin} volume 7 -2", "number of optional arguments must be 0..11"),
    ("flush-only {origin} volume 7 2 age_ms", "number of optional arguments must be 0..11"),
    ("flush-only {origin} volume 7 1 age_ms", "optional arguments: age_ms <n>, destage_mib <n>"),
    ("flush-only {origin} volume 7 2 age 100", "optional arguments: age_ms <n>, destage_mib <n>"),
    ("flush-only {origin} volume 7 2 age_ms 0", "age_ms must be 1..600000"),
    ("flush-only {origin} volume 7 2 age_ms 600001", "age_ms must be 1..600000"),
    ("flush-only {origin} volume 7 2 age_ms ten", "age_ms must be 1..600000"),
    ("flush-only {origin} volume 7 2 age_ms 10 more", "too many arguments"),
    ("flush-only {origin} filesystem 0 more", "too many arguments"),
    ("flush-only {origin} filesystem 7", "number of optional arguments must be 0..11"),
    ("flush-only /dev/no-such-device volume 7", "cannot open the origin device"),
]


def test_bad_lines_are_refused(origin: str, kmsg: KernelLog) -> None:
    with mapped(stack.linear(origin)) as device:
        before = device.table()
        for line, text in BAD_LINES:
            logged = len(kmsg.read())
            with pytest.raises(DmError):
                device.load(f"0 1024 vcache {line.format(origin=origin)}")
            assert text in kmsg.read()[logged:], line
        assert device.table() == before


def test_origin_too_small(origin: str, kmsg: KernelLog) -> None:
    with pytest.raises(DmError), vcache(origin, size=stack.sectors(origin) + 8):
        pass
    assert "too small for target" in kmsg.read()


def test_other_targets_beside_it_are_refused(origin: str, kmsg: KernelLog) -> None:
    table = (f"0 1024 vcache flush-only {origin} volume 7\n1024 1024 linear {origin} 1024")
    with pytest.raises(DmError), mapped(table):
        pass
    assert "must appear alone in table" in kmsg.read()


@pytest.mark.box
def test_zoned_origin_is_refused(kmsg: KernelLog) -> None:
    with null_block(stack.unique("zoned"), size=64, zoned=1, zone_size=4,
                    memory_backed=1) as zoned, pytest.raises(DmError), vcache(zoned):
        pass
    assert "zoned" in kmsg.read()


#: Arguments as given, and as shown.
GOOD_LINES = [
    ("flush-only {origin} volume 7", "flush-only {number} volume 7"),
    ("flush-only {origin} volume 65535 0", "flush-only {number} volume 65535"),
    ("FLUSH-ONLY {origin} VOLUME 1 2 AGE_MS 1", "flush-only {number} volume 1 2 age_ms 1"),
    ("flush-only {origin} filesystem", "flush-only {number} filesystem"),
    ("flush-only {number} filesystem 2 age_ms 600000",
     "flush-only {number} filesystem 2 age_ms 600000"),
]


def test_table_is_shown_as_given(origin: str) -> None:
    number = Path(f"/sys/block/{Path(origin).name}/dev").read_text().strip()
    with mapped(vcache_table(origin)) as device:
        for line, shown in GOOD_LINES:
            device.swap(f"0 1024 vcache {line.format(origin=origin, number=number)}")
            assert device.table() == f"0 1024 vcache {shown.format(number=number)}"
            # The shown table can be loaded again.
            device.swap(device.table())
            assert device.table() == f"0 1024 vcache {shown.format(number=number)}"


@pytest.mark.parametrize(("cache", "isolation"), [(True, "fua"), (False, "write-through")])
def test_status_of_a_volume(cache: bool, isolation: str) -> None:
    with null_blk(cache=cache) as origin, vcache(origin) as device, Disk(device.path) as disk:
        words = device.status()
        assert words[:5] == ["flush-only", "volume", isolation, "0", "2"]
        host, tag = words[5:11], words[11:17]
        assert host[:3] == ["0", "100", "0"]
        assert tag[:3] == ["7", "100", "0"]
        # The only tag has all of the default buffer memory.
        assert int(tag[3]) == 128 << 11
        disk.write(8, pattern(1, 24))
        assert device.status()[3] == "24"
        assert device.status()[13] == "24"
        disk.flush()
        words = device.status()
        assert words[3] == "0"
        assert (words[13], words[15]) == ("0", "1")


def test_status_counts_each_sector_once(origin: str) -> None:
    with vcache(origin) as device, Disk(device.path) as disk:
        for _ in range(3):
            disk.write(3, pattern(2, 10))
        disk.write(5, pattern(3, 2))
        assert device.status()[3] == "10"


def test_status_of_degraded_isolation(origin: str, kmsg: KernelLog) -> None:
    """A disk with a volatile cache and no FUA."""
    with loop_device(origin) as below, vcache(below) as device:
        assert device.status()[2] == "degraded"
        assert "isolation=degraded" in kmsg.read()


@pytest.mark.box
def test_two_devices_at_once() -> None:
    with (null_blk() as one, null_blk() as two, vcache(one) as a, vcache(two, "filesystem") as b,
          Disk(a.path) as disk_a, Disk(b.path) as disk_b):
        disk_a.write(0, pattern(1, 8))
        disk_b.write(0, pattern(2, 8))
        disk_a.flush()
        assert a.status()[3] == "0"
        assert b.status()[3] == "8"
        assert disk_b.read(0, 8) == pattern(2, 8)
        assert disk_a.read(0, 8) == pattern(1, 8)


def test_one_origin_can_be_split() -> None:
    """Two volumes on one disk, like logical volumes."""
    with null_blk() as disk:
        half = stack.sectors(disk) // 2
        with (mapped(f"0 {half} linear {disk} 0") as low,
              mapped(f"0 {half} linear {disk} {half}") as high,
              vcache(low.path, "volume 1") as a, vcache(high.path, "volume 2") as b,
              Disk(a.path) as disk_a, Disk(b.path) as disk_b):
            disk_a.write(0, pattern(1, 8))
            disk_b.write(0, pattern(2, 8))
            disk_a.flush()
            disk_b.flush()
            assert read(disk, 0, 8) == pattern(1, 8)
            assert read(disk, half, 8) == pattern(2, 8)


def test_device_in_use_is_not_removed(origin: str) -> None:
    with vcache(origin) as device:
        with Disk(device.path), pytest.raises(DmError, match="busy"):
            device.remove()
        with pytest.raises(StackError, match="in use"):
            stack.run("rmmod", "dm_vcache")


def test_messages_are_refused(origin: str) -> None:
    with vcache(origin) as device, pytest.raises(DmError):
        device.message("hello")


def test_table_line_without_options_ages_by_default(origin: str) -> None:
    table = vcache_table(origin, age_ms=None)
    with mapped(table) as device:
        assert "age_ms" not in device.table()
