# SPDX-License-Identifier: Apache-2.0
"""An origin that supports tags: the emulated SSD, by the Linux NVMe/TCP host."""

import contextlib
import ctypes
import dataclasses
import errno
import fcntl
import os
import random
import struct
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.box import disks
from tests.box.ssd import Ssd, image_folder, ssd
from tests.box.steps import at_end
from tests.kernel import stack
from tests.kernel.disk import SECTOR, Disk, pattern, read
from tests.kernel.stack import Mapped, vcache
from vcache_agent.drive.tagged import TaggedDrive, read_drive
from vcache_agent.netlink import spec
from vcache_agent.netlink.client import Client, EventListener
from vcache_agent.netlink.errors import NetlinkError
from vcache_agent.nvme import Drives

_BLOCK = 8  # sectors
_TAG_LOG, _ADMIN = 0xC1, 0xC0484E41


def _device(client: Client, device: Mapped) -> spec.Isolation:
    return next(found for found in client.devices() if found.number == device.number).isolation


def _use(client: Client, device: Mapped) -> None:
    """Do the work of the agent."""
    problems = Drives().use_tags(client, client.devices(), 60.0)
    assert problems == []
    assert _device(client, device) is spec.Isolation.TAGGED


def _set(client: Client, device: Mapped, path: str, **changes: int) -> None:
    drive = read_drive(path)
    assert drive
    found = dataclasses.replace(drive, **changes)
    client.device_set(device.number, nsid=found.nsid, tag_max=found.tag_max,
                      instance=found.instance)


@dataclasses.dataclass(frozen=True)
class TagLog:
    """Counters of a tag, from the drive's log page C1h."""

    writes: int
    flushes: int
    sectors: int


def _tag_log(path: str) -> dict[int, TagLog]:
    """Return the drive's counters of its tags."""
    page = (ctypes.c_char * (64 + 128 * 64))()
    command = bytearray(struct.pack(
        "=BBHIIIQQII6III", 0x02, 0, 0, 0xFFFFFFFF, 0, 0, 0, ctypes.addressof(page), 0, len(page),
        _TAG_LOG | (len(page) // 4 - 1) << 16, 0, 0, 0, 0, 0, 2000, 0))
    descriptor = os.open(path, os.O_RDONLY)
    try:
        assert fcntl.ioctl(descriptor, _ADMIN, command) == 0
    finally:
        os.close(descriptor)
    size, count = struct.unpack_from("<HI", page.raw, 10)
    entries = [struct.unpack_from("<I4x5Q", page.raw, 64 + size * i) for i in range(count)]
    return {e[0]: TagLog(writes=e[2], flushes=e[3], sectors=e[5]) for e in entries}


@pytest.fixture
def image() -> Path:
    """Give the name of an image file, in memory."""
    return image_folder() / "image"


@pytest.fixture
def drive(image: Path) -> Iterator[Ssd]:
    """Provide a drive that survives a power loss."""
    with ssd("--image", str(image), "--size", "64M", "--namespaces", "2") as found:
        yield found


@pytest.mark.box
def test_agent_finds_the_tags(drive: Ssd, client: Client) -> None:
    path = drive.namespace()
    with vcache(path) as device:
        assert _device(client, device) is spec.Isolation.FUA
        _use(client, device)
        assert device.status()[2] == "tagged"
        client.device_set(device.number, nsid=0)
        assert _device(client, device) is spec.Isolation.FUA
        assert device.status()[2] == "fua"


@pytest.mark.box
def test_flush_is_a_tagged_flush(drive: Ssd, client: Client) -> None:
    path = drive.namespace()
    with vcache(path) as device, Disk(device.path) as disk:
        _use(client, device)
        before = _tag_log(path)
        for turn in range(10):
            for block in range(5):
                disk.write(_BLOCK * (turn * 100 + block * 7), pattern(turn * 5 + block, _BLOCK))
            disk.flush()
        found = _tag_log(path)
        assert found[7].writes == 50
        assert found[7].sectors == 50 * _BLOCK
        assert found[7].flushes == 10
        # No FLUSH of the whole drive among them.
        assert found[0].flushes == before[0].flushes
        assert client.tag(device.number, 7).stats.tagged_flushes == 10
        drive.cut_power()
        drive.power_on()
    for turn in range(10):
        for block in range(5):
            assert read(path, _BLOCK * (turn * 100 + block * 7), _BLOCK) == \
                pattern(turn * 5 + block, _BLOCK)


def test_flush_without_anything_to_do_asks_nothing(drive: Ssd, client: Client) -> None:
    path = drive.namespace()
    with vcache(path) as device, Disk(device.path) as disk:
        _use(client, device)
        disk.flush()
        disk.write(0, pattern(1, 64))
        disk.flush()
        disk.flush()
        assert client.tag(device.number, 7).stats.tagged_flushes == 1


def test_large_write_outs(drive: Ssd, client: Client) -> None:
    """A tagged write cannot be split below the target; it must not be too large."""
    path = drive.namespace()
    data = pattern(5, 12 << 11)
    with vcache(path) as device, Disk(device.path) as disk:
        _use(client, device)
        for part in range(12):
            disk.write(part << 11, data[part << 20:(part + 1) << 20])
        disk.flush()
        assert _device(client, device) is spec.Isolation.TAGGED
        stats = client.tag(device.number, 7).stats
        assert stats.writeout_bytes == 12 << 20
        assert _tag_log(path)[7].sectors == 12 << 11
        drive.cut_power()
        drive.power_on()
    assert read(path, 0, 12 << 11) == data


def test_sectors_of_512_bytes(image: Path, client: Client) -> None:
    """Runs of sectors that begin and end within a page."""
    with ssd("--image", str(image), "--size", "32M", "--block-size", "512") as drive:
        path = drive.namespace()
        with vcache(path) as device, Disk(device.path) as disk:
            _use(client, device)
            disk.write(101, pattern(1, 3))
            disk.write(106, pattern(2, 1))
            disk.write(1000, pattern(3, 501))
            disk.flush()
            assert _device(client, device) is spec.Isolation.TAGGED
        assert read(path, 96, 16) == bytes(5 * SECTOR) + pattern(1, 3) + bytes(2 * SECTOR) + \
            pattern(2, 1) + bytes(5 * SECTOR)
        assert read(path, 1000, 501) == pattern(3, 501)


def test_partition(drive: Ssd, client: Client) -> None:
    """Passthrough uses the drive's sectors, not the partition's."""
    path = drive.namespace()
    stack.run("addpart", path, "1", "8192", "16384")
    part = f"{path}p1"
    # udev may still have it open.
    with at_end(_remove_partition, path):
        assert stack.wait_until(lambda: Path(part).is_block_device())
        with vcache(part) as device, Disk(device.path) as disk:
            _use(client, device)
            disk.write(800, pattern(4, _BLOCK))
            disk.flush()
            assert client.tag(device.number, 7).stats.tagged_flushes == 1
    assert read(path, 8192 + 800, _BLOCK) == pattern(4, _BLOCK)
    assert read(path, 800, _BLOCK) == bytes(_BLOCK * SECTOR)


def _remove_partition(path: str) -> None:
    assert stack.wait_until(lambda: _delete_partition(path)), f"{path}p1 is still in use"


def _delete_partition(path: str) -> bool:
    try:
        stack.run("delpart", path, "1")
    except stack.StackError:
        return False
    return True


def test_two_volumes_have_their_own_flushes(drive: Ssd, client: Client) -> None:
    """A flush of one tag does not write the other's data from the drive's cache."""
    first, second = drive.namespace(1), drive.namespace(2)
    with vcache(first, "volume 7") as one, vcache(second, "volume 8") as two, \
            Disk(one.path) as disk_one, Disk(two.path) as disk_two:
        _use(client, one)
        assert _device(client, two) is spec.Isolation.TAGGED
        for turn in range(20):
            disk_one.write(turn * 80, pattern(turn, _BLOCK))
            disk_two.write(turn * 80, pattern(100 + turn, _BLOCK))
            disk_one.flush()
        found = _tag_log(first)
        assert found[7].flushes == 20
        assert 8 not in found, "data that nobody asked for was written out"


def test_drive_that_lost_its_power_between_write_and_flush(
        drive: Ssd, client: Client, events: EventListener) -> None:
    """The drive's cache was lost, the host's buffer was not: no data is lost."""
    path = drive.namespace()
    with vcache(path) as device, Disk(device.path) as disk:
        _use(client, device)
        old = read_drive(path)
        drive.cut_power()
        drive.power_on()
        assert old and read_drive(path) != old
        # The host does not know yet. The write is accepted, the flush fails.
        disk.write(0, pattern(1, _BLOCK))
        disk.flush()
        assert _device(client, device) is spec.Isolation.FUA
        assert (spec.EventKind.TAGS_LOST, device.number, 7) in events.receive(5)
        drive.cut_power()
        drive.power_on()
        _use(client, device)
        disk.write(80, pattern(2, _BLOCK))
        disk.flush()
        assert _device(client, device) is spec.Isolation.TAGGED
        drive.cut_power()
        drive.power_on()
    assert read(path, 0, _BLOCK) == pattern(1, _BLOCK)
    assert read(path, 80, _BLOCK) == pattern(2, _BLOCK)


def test_drive_that_forgets_its_tags(client: Client, events: EventListener) -> None:
    """Another drive at the same address refuses tagged commands, but not FUA."""
    with ssd("--size", "32M") as drive:
        path = drive.namespace()
        with vcache(path) as device, Disk(device.path) as disk:
            _use(client, device)
            disk.write(0, pattern(1, _BLOCK))
            disk.flush()
            drive.cut_power()
            drive.power_on("--personality", "baseline")
            for turn in range(5):
                disk.write(80 * turn, pattern(10 + turn, 64))
            disk.flush()
            assert _device(client, device) is spec.Isolation.FUA
            assert (spec.EventKind.TAGS_LOST, device.number, 7) in events.receive(5)
            assert client.tag(device.number, 7).stats.writeout_errors == 0
            assert Drives().use_tags(client, client.devices(), 60.0) == []
            assert _device(client, device) is spec.Isolation.FUA
        for turn in range(5):
            assert read(path, 80 * turn, 64) == pattern(10 + turn, 64)


@pytest.mark.smp
def test_power_cuts_under_load(drive: Ssd, client: Client) -> None:
    """Flushed data survives each of many power losses of the drive.

    Four threads write and flush their own ranges, many blocks per flush, so that power losses
    occur between tagged writes, and between them and their flush. Sometimes the host driver
    detects the loss only when it sends a request. Then it cancels the write, and the flush reports
    an error and guarantees nothing.
    """
    path = drive.namespace()
    stop = threading.Event()
    promised, failed = [0] * 4, [0] * 4
    blocks = 48

    def work(me: int, device: Mapped) -> None:
        with Disk(device.path) as disk:
            turn = 0
            while not stop.is_set():
                turn += 1
                for block in range(blocks):
                    disk.write(_place(me, block), _stamp(me, block, turn))
                try:
                    disk.flush()
                    promised[me] = turn
                except OSError:
                    failed[me] += 1

    with vcache(path) as device, contextlib.ExitStack() as after:
        _use(client, device)
        after.callback(stop.set)
        threads = [threading.Thread(target=work, args=(me, device), daemon=True)
                   for me in range(4)]
        for thread in threads:
            thread.start()
        chance = random.Random(1)
        tagged = 0
        for _ in range(12):
            time.sleep(chance.uniform(0.2, 1.2))
            drive.cut_power()
            drive.power_on()
            assert stack.wait_until(
                lambda: not Drives().use_tags(client, client.devices(), 60.0)
                and _device(client, device) is spec.Isolation.TAGGED)
            tagged = client.tag(device.number, 7).stats.tagged_flushes
        time.sleep(0.5)
        drive.cut_power()
        sure = list(promised)
        drive.power_on()
        stop.set()
        for thread in threads:
            thread.join()
        assert tagged > 12
        # A flush has reported every refusal.
        assert any(failed) or not client.tag(device.number, 7).stats.writeout_errors
    drive.cut_power()
    drive.power_on()
    assert min(sure) > 0
    for me in range(4):
        for block in range(blocks):
            found = read(path, _place(me, block), _BLOCK)
            turn = int.from_bytes(found[:8], "little")
            assert turn >= sure[me], f"thread {me} block {block}: {turn}, promised {sure[me]}"
            assert found == _stamp(me, block, turn)


def _place(me: int, block: int) -> int:
    return _BLOCK * (me * 1000 + block * 5)


def _stamp(me: int, block: int, turn: int) -> bytes:
    return (turn.to_bytes(8, "little") + me.to_bytes(2, "little") +
            block.to_bytes(2, "little") + bytes(500)) * _BLOCK


def test_drive_that_hangs_delays_and_loses_nothing(drive: Ssd, client: Client) -> None:
    path = drive.namespace()
    with vcache(path) as device, Disk(device.path) as disk:
        _use(client, device)
        disk.write(0, pattern(1, 800))
        drive.pause()
        done = threading.Event()

        def flush() -> None:
            disk.flush()
            done.set()

        thread = threading.Thread(target=flush)
        thread.start()
        assert not done.wait(1)
        drive.resume()
        thread.join()
        assert done.is_set()
    drive.cut_power()
    drive.power_on()
    assert read(path, 0, 800) == pattern(1, 800)


def test_suspend_waits_for_what_the_drive_has(drive: Ssd, client: Client) -> None:
    path = drive.namespace()
    with vcache(path) as device, Disk(device.path) as disk:
        _use(client, device)
        disk.write(0, pattern(1, 2000))
        device.suspend()
        drive.cut_power()
        drive.power_on()
        assert read(path, 0, 2000) == pattern(1, 2000)
        device.resume()
        # The same origin still has the tags of the previous power-on.
        disk.write(0, pattern(2, 80))
        disk.flush()
        assert read(path, 0, 80) == pattern(2, 80)


def test_another_origin_is_not_sent_tags(drive: Ssd, client: Client, origin: str) -> None:
    path = drive.namespace()
    with vcache(path) as device:
        _use(client, device)
        device.swap(stack.vcache_table(origin, size=stack.sectors(path)))
        assert _device(client, device) is spec.Isolation.FUA
        with Disk(device.path) as disk:
            disk.write(0, pattern(1, _BLOCK))
            disk.flush()
        assert read(origin, 0, _BLOCK) == pattern(1, _BLOCK)


def test_refusals(drive: Ssd, client: Client, origin: str) -> None:
    """A drive that has not shown support for tags gets no tagged commands."""
    path = drive.namespace()

    def refused(device: Mapped, number: int, **changes: int) -> str:
        with pytest.raises(NetlinkError) as found:
            _set(client, device, path, **changes)
        assert found.value.errno == number
        assert _device(client, device) is spec.Isolation.FUA
        return str(found.value.strerror)

    with vcache(origin) as device:
        assert refused(device, errno.EOPNOTSUPP) == \
            "the origin is not a namespace of one NVMe controller"
    with stack.mapped(stack.linear(path)) as linear, vcache(linear.path) as device:
        assert "not a namespace" in refused(device, errno.EOPNOTSUPP)
    with vcache(path) as device:
        assert "refused a tagged flush" in refused(device, errno.EIO, instance=12345)
        assert "tag-max and instance are required" in refused(device, errno.EINVAL, instance=0)
        device.suspend()
        assert refused(device, errno.EBUSY) == "the device is suspended"
        device.resume()
        _set(client, device, path)
        assert _device(client, device) is spec.Isolation.TAGGED


def test_tag_above_the_drives_largest_is_the_hosts(drive: Ssd, client: Client) -> None:
    path = drive.namespace()
    with vcache(path, "volume 900") as device, Disk(device.path) as disk:
        _set(client, device, path, tag_max=899)
        before = _tag_log(path)[0]
        disk.write(0, pattern(1, _BLOCK))
        disk.flush()
        found = _tag_log(path)
        assert 900 not in found
        assert (found[0].writes - before.writes, found[0].flushes - before.flushes) == (1, 1)
        assert _device(client, device) is spec.Isolation.TAGGED


def test_multipath_drive_is_used_with_fua(client: Client) -> None:
    """Its block device is a bio-based one over the paths, without passthrough."""
    with ssd("--size", "32M", "--multipath", "on") as drive:
        path = drive.namespace()
        with vcache(path) as device, Disk(device.path) as disk:
            problems = Drives().use_tags(client, client.devices(), 60.0)
            assert len(problems) == 1
            assert "not a namespace of one NVMe controller" in problems[0]
            disk.write(0, pattern(1, _BLOCK))
            disk.flush()
            assert _device(client, device) is spec.Isolation.FUA
        # When it is closed after a write, udev reads it. If udev were its last user when the drive
        # is removed, lockdep would report Linux's own multipath code: it waits for a scan of the
        # partitions under the mutex that the scan takes.
        disks.settle()


def test_drive_without_tags_is_asked_once(client: Client) -> None:
    with ssd("--size", "32M", "--personality", "baseline") as drive:
        asked = []

        def ask(path: str) -> TaggedDrive | None:
            asked.append(path)
            return read_drive(path)

        with vcache(drive.namespace()) as device:
            drives = Drives(ask=ask)
            for _ in range(3):
                assert drives.use_tags(client, client.devices(), 60.0) == []
            assert len(asked) == 1
            assert _device(client, device) is spec.Isolation.FUA
