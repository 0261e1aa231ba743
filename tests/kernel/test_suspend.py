# SPDX-License-Identifier: Apache-2.0
"""Suspend, reload and resume, under I/O and with a failing origin."""

import contextlib
import threading
import time
from collections.abc import Callable, Iterator

import pytest

from tests.box.steps import at_end
from tests.kernel import stack
from tests.kernel.conftest import Cgroup, KernelLog
from tests.kernel.disk import SECTOR, Disk, pattern, read
from tests.kernel.dm import NOFLUSH, SKIP_LOCKFS, DmError
from tests.kernel.stack import (
    Mapped,
    StackError,
    linear,
    mapped,
    null_blk,
    vcache,
    vcache_table,
)
from vcache_agent.model import Extent
from vcache_agent.netlink.client import Client


@pytest.fixture
def below(origin: str) -> Iterator[Mapped]:
    """Provide an origin whose table can be replaced."""
    with mapped(linear(origin)) as device:
        yield device


def kill(device: Mapped, origin: str) -> None:
    """Make all writes to an origin fail; reads still work."""
    device.swap(f"0 {stack.sectors(origin)} flakey {origin} 0 0 3600 1 error_writes")


class Writer(threading.Thread):
    """Writes and flushes continuously, and checks its reads.

    :param path: the device
    :param base: first of its 256 sectors
    """

    def __init__(self, path: str, base: int = 0) -> None:
        super().__init__()
        self.disk = Disk(path)
        self.base = base
        self.turns = 0
        self.problem = ""
        self._stop_asked = threading.Event()

    def run(self) -> None:
        try:
            while not self._stop_asked.is_set():
                self._turn()
                self.turns += 1
        except (OSError, AssertionError) as error:
            self.problem = repr(error)

    def _turn(self) -> None:
        start = self.base + self.turns * 24 % 200
        data = pattern(self.base + self.turns, 40)
        self.disk.write(start, data, fua=self.turns % 10 == 9)
        assert self.disk.read(start, 40) == data, f"turn {self.turns}"
        if self.turns % 3 == 0:
            self.disk.flush()

    def goes_on(self) -> None:
        """Check that it makes progress."""
        before = self.turns
        assert stack.wait_until(lambda: self.turns > before + 1 or self.problem != "")
        assert not self.problem

    def finish(self) -> None:
        """Stop it, and check that there was no error."""
        self._stop_asked.set()
        self.join(30)
        self.disk.close()
        assert not self.is_alive(), "stuck"
        assert not self.problem


def test_suspend_writes_everything_out(origin: str) -> None:
    with vcache(origin) as device, Disk(device.path) as disk:
        disk.write(0, pattern(1, 1000))
        device.suspend()
        assert read(origin, 0, 1000) == pattern(1, 1000)
        assert device.status()[3] == "0"
        device.resume()
        assert disk.read(0, 1000) == pattern(1, 1000)


def test_requests_wait_while_suspended(origin: str) -> None:
    with vcache(origin) as device:
        writer = Writer(device.path)
        writer.start()
        writer.goes_on()
        device.suspend()
        time.sleep(0.3)
        turns = writer.turns
        time.sleep(0.5)
        assert writer.turns == turns
        device.resume()
        writer.goes_on()
        writer.finish()


@pytest.mark.smp
@pytest.mark.parametrize("flags", [0, NOFLUSH, NOFLUSH | SKIP_LOCKFS])
def test_reload_under_io(origin: str, client: Client, flags: int) -> None:
    with vcache(origin) as device:
        client.tag_set(device.number, 7, name="kept", weight=77)
        writers = [Writer(device.path, 256 * n) for n in range(3)]
        for writer in writers:
            writer.start()
        for turn in range(6):
            device.swap(vcache_table(origin, age_ms=200 + turn), flags)
            for writer in writers:
                writer.goes_on()
        for writer in writers:
            writer.finish()
        tag = client.tag(device.number, 7)
        assert (tag.name, tag.weight) == ("kept", 77)
        assert tag.stats.writes >= sum(writer.turns for writer in writers)


@pytest.mark.smp
def test_fio_verifies_over_reloads() -> None:
    with (null_blk(32) as disk, mapped(linear(disk)) as below,
          vcache(below.path, age_ms=200) as device):
        problems: list[BaseException] = []

        def fio() -> None:
            try:
                stack.run(
                    "fio", "--name=v", f"--filename={device.path}", "--direct=1", "--rw=randwrite",
                    "--bsrange=512-32k", "--blockalign=512", "--ioengine=libaio", "--iodepth=8",
                    "--size=8m", "--io_size=12m", "--fdatasync=20", "--verify=crc32c",
                    "--serialize_overlap=1", "--randseed=3", timeout=300)
            except StackError as error:
                problems.append(error)

        thread = threading.Thread(target=fio)
        thread.start()
        turn = 0
        while thread.is_alive():
            turn += 1
            device.swap(vcache_table(below.path, age_ms=200), NOFLUSH if turn % 2 else 0)
            below.swap(linear(disk))
            time.sleep(0.3)
        thread.join()
        assert not problems
        assert turn > 2


def test_noflush_with_a_dead_origin_loses_nothing(origin: str, below: Mapped) -> None:
    """Switch to another path to the same data, like multipath."""
    with vcache(below.path) as device, Disk(device.path) as disk:
        disk.write(0, pattern(1, 64))
        kill(below, origin)
        with pytest.raises(OSError, match="error"):
            disk.flush()
        disk.write(40, pattern(2, 64))
        device.suspend(NOFLUSH)
        device.load(vcache_table(origin))
        device.resume()
        expected = pattern(1, 64)[:40 * SECTOR] + pattern(2, 64)
        assert disk.read(0, 104) == expected
        disk.flush()
        assert read(origin, 0, 104) == expected


@pytest.mark.box
def test_noflush_gives_waiting_requests_back() -> None:
    """A flush, a write without buffer space and a parked write, with a slow origin."""
    done: list[str] = []
    with (null_blk(completion_us=1_500_000) as origin, stack.buffer_mb(1),
          vcache(origin) as device):
        disks = [Disk(device.path) for _ in range(3)]
        disks[0].write(0, pattern(1, 1024))

        def flush() -> None:
            disks[0].flush()
            done.append("flush")

        def wait_for_room() -> None:
            for at in range(4096, 4096 + 4 * 512, 512):
                disks[1].write(at, pattern(at, 512))
            done.append("write")

        def parked() -> None:
            disks[2].write(8, pattern(2, 4), fua=True)
            done.append("fua")

        threads = [threading.Thread(target=work) for work in (flush, wait_for_room, parked)]
        for thread in threads:
            thread.start()
            time.sleep(0.2)
        device.suspend(NOFLUSH)
        state = list(done)
        device.resume()
        for thread in threads:
            thread.join(60)
            assert not thread.is_alive()
        assert sorted(done) == ["flush", "fua", "write"]
        assert len(state) < 3
        expected = bytearray(pattern(1, 1024))
        expected[8 * SECTOR:12 * SECTOR] = pattern(2, 4)
        assert disks[0].read(0, 1024) == expected
        disks[0].flush()
        assert read(origin, 0, 1024) == expected
        for at in range(4096, 4096 + 4 * 512, 512):
            assert read(origin, at, 512) == pattern(at, 512)
        for disk in disks:
            disk.close()


def test_resume_that_fails(origin: str, below: Mapped, client: Client, kmsg: KernelLog) -> None:
    """The new origin cannot be flushed: dm stays suspended, and no data is lost."""
    with vcache(origin) as device, Disk(device.path) as disk, mapped(linear(origin)) as dead:
        client.tag_set(device.number, 7, name="kept")
        kill(dead, origin)
        disk.write(0, pattern(1, 8))
        for _ in range(3):
            device.load(vcache_table(dead.path))
            device.suspend()
            with pytest.raises(DmError):
                device.resume()
            assert "cannot flush the origin" in kmsg.read()
            # The former table is freed: it must not be accessed.
            assert client.devices() == []
            assert client.tags() == []
            device.status()
            device.load(vcache_table(below.path))
            device.resume()
            assert client.tag(device.number, 7).name == "kept"
        disk.write(8, pattern(2, 8))
        disk.flush()
        assert read(origin, 0, 16) == pattern(1, 8) + pattern(2, 8)


def test_remove_after_a_resume_that_failed(origin: str, client: Client) -> None:
    with vcache(origin) as device, mapped(linear(origin)) as dead:
        kill(dead, origin)
        with Disk(device.path) as disk:
            disk.write(0, pattern(1, 8))
        device.load(vcache_table(dead.path))
        device.suspend()
        with pytest.raises(DmError):
            device.resume()
        assert client.devices() == []
        device.remove()
        assert read(origin, 0, 8) == pattern(1, 8)


def test_first_resume_that_fails(origin: str, client: Client) -> None:
    with mapped(linear(origin)) as dead:
        kill(dead, origin)
        with pytest.raises(DmError), vcache(dead.path):
            pass
        assert client.devices() == []


def test_odd_size_with_refused_data(origin: str) -> None:
    """The last page of a device may be incomplete; it is not behind the end."""
    size = 4096 + 3
    with (mapped(linear(origin, size)) as below, vcache(below.path) as device,
          Disk(device.path) as disk):
        disk.write(size - 3, pattern(1, 3))
        below.swap(f"0 {size} flakey {origin} 0 0 3600 1 error_writes")
        with pytest.raises(OSError, match="error"):
            disk.flush()
        device.suspend(NOFLUSH)
        device.load(vcache_table(origin, size=size))
        device.resume()
        assert disk.read(size - 3, 3) == pattern(1, 3)
        disk.flush()
        assert read(origin, size - 3, 3) == pattern(1, 3)


def test_shrinking_below_refused_data(origin: str, below: Mapped, kmsg: KernelLog) -> None:
    with vcache(below.path) as device, Disk(device.path) as disk:
        disk.write(8192, pattern(1, 8))
        kill(below, origin)
        with pytest.raises(OSError, match="error"):
            disk.flush()
        device.suspend(NOFLUSH)
        for size in (8192, 8193, 8199):
            logged = len(kmsg.read())
            device.load(vcache_table(origin, size=size))
            with pytest.raises(DmError):
                device.resume()
            assert "is behind the end of the new table" in kmsg.read()[logged:]
        device.load(vcache_table(origin, size=8200))
        device.resume()
        disk.flush()
        assert read(origin, 8192, 8) == pattern(1, 8)


def test_out_of_the_way_without_flush(origin: str, below: Mapped) -> None:
    """The next table is not ours: accepted data must be on the origin by then."""
    with vcache(below.path) as device, Disk(device.path) as disk:
        for turn in range(3):
            disk.write(0, pattern(turn, 64))
            device.swap(linear(below.path), NOFLUSH)
            assert disk.read(0, 64) == pattern(turn, 64)
            disk.write(0, pattern(turn + 100, 32))
            device.swap(vcache_table(below.path))
            assert disk.read(0, 32) == pattern(turn + 100, 32)
            time.sleep(0.2)
            assert read(origin, 0, 32) == pattern(turn + 100, 32)


def test_tags_survive_a_reload_not_a_removal(origin: str, client: Client) -> None:
    name = stack.unique("again")
    with vcache(origin, "filesystem", name=name) as device:
        client.tag_set(device.number, 5, name="five", weight=50, cgroups=[99])
        client.set_extents(device.number, 5, [Extent(0, 8)])
        before = client.tag(device.number, 5)
        device.swap(vcache_table(origin, "filesystem", age_ms=1))
        assert client.tag(device.number, 5) == before
        device.swap(vcache_table(origin, "filesystem"), NOFLUSH)
        assert client.tag(device.number, 5) == before
    with vcache(origin, "filesystem", name=name) as device:
        assert [tag.id for tag in client.tags(device.number)] == [0]


def test_scope_and_tag_change_by_reload(origin: str, client: Client,
                                        cgroup: Callable[[str], Cgroup]) -> None:
    group = cgroup("vm")
    with vcache(origin, "filesystem") as device, Disk(device.path) as disk:
        client.tag_set(device.number, 5, cgroups=[group.id])
        client.set_extents(device.number, 5, [Extent(0, 64)])
        group.run(lambda: disk.write(0, pattern(1, 8)))
        device.swap(vcache_table(origin, "volume 7"))
        assert stack.wait_until(lambda: [t.id for t in client.tags(device.number)] == [0, 7])
        disk.write(8, pattern(2, 8))
        assert client.tag(device.number, 7).dirty_bytes == 8 * SECTOR
        device.swap(vcache_table(origin, "volume 8"), NOFLUSH)
        assert [t.id for t in client.tags(device.number)] == [0, 8]
        disk.flush()
        assert read(origin, 0, 16) == pattern(1, 8) + pattern(2, 8)
        device.swap(vcache_table(origin, "filesystem"))
        assert {t.id for t in client.tags(device.number)} == {0, 8}
        group.run(lambda: disk.write(0, pattern(3, 8)))
        assert client.tag(device.number, 0).dirty_bytes == 8 * SECTOR


@pytest.mark.quick
@pytest.mark.box
def test_inserted_under_a_device_in_use() -> None:
    """No new path: the device's own table is replaced, and later restored."""
    with null_blk() as disk, mapped(linear(disk)) as volume, mapped(linear(disk)) as hidden:
        writer = Writer(volume.path)
        writer.start()
        writer.goes_on()
        for _ in range(3):
            volume.swap(vcache_table(hidden.path, "volume 3"))
            writer.goes_on()
            volume.swap(linear(disk))
            writer.goes_on()
        writer.finish()


def in_thread(work: Callable[[], None]) -> threading.Thread:
    thread = threading.Thread(target=work, daemon=True)
    thread.start()
    return thread


def in_time(work: Callable[[], None], seconds: float = 30) -> None:
    """Do something that must not wait for an origin that hangs."""
    thread = in_thread(work)
    assert stack.wait_until(lambda: not thread.is_alive(), seconds), "it hangs"


@contextlib.contextmanager
def hanging(device: Mapped) -> Iterator[Callable[[], None]]:
    """Make an origin hang: its requests wait until the end, or until the function is called."""
    device.suspend(NOFLUSH | SKIP_LOCKFS)
    hangs = [True]

    def answer() -> None:
        if hangs.pop():
            device.resume()
        hangs.append(False)

    with at_end(answer):
        yield answer


def test_noflush_while_the_origin_hangs(origin: str, below: Mapped, kmsg: KernelLog) -> None:
    """A table of the same origin takes over; the write-outs under way are not sent again."""
    with vcache(below.path) as device, Disk(device.path) as disk, Disk(device.path) as other:
        disk.write(0, pattern(1, 64))
        disk.flush()
        with hanging(below) as answer:
            disk.write(0, pattern(2, 64))
            flush = in_thread(disk.flush)
            time.sleep(0.3)
            # These have to wait for their older versions, and are in the buffer only.
            other.write(32, pattern(3, 64))
            in_time(lambda: device.suspend(NOFLUSH | SKIP_LOCKFS))
            assert "suspended, but the origin hangs" in kmsg.read()
            device.load(vcache_table(below.path, age_ms=100))
            in_time(device.resume)
            expected = pattern(2, 64)[:32 * SECTOR] + pattern(3, 64)
            assert other.read(0, 96) == expected
            other.write(200, pattern(4, 8))
            assert flush.is_alive()
            # And once more, with the table as it is.
            in_time(lambda: device.suspend(NOFLUSH | SKIP_LOCKFS))
            answer()
            in_time(device.resume)
            flush.join(30)
            assert not flush.is_alive()
        disk.flush()
        assert read(origin, 0, 96) == expected
        assert read(origin, 200, 8) == pattern(4, 8)


def test_another_origin_waits_for_one_that_hangs(origin: str, below: Mapped,
                                                 kmsg: KernelLog) -> None:
    """It may be a path to the same disk, so late writes could overwrite newer ones."""
    with vcache(below.path) as device, Disk(device.path) as disk:
        with hanging(below) as answer:
            disk.write(0, pattern(1, 64))
            flush = in_thread(disk.flush)
            time.sleep(0.3)
            in_time(lambda: device.suspend(NOFLUSH | SKIP_LOCKFS))
            device.load(vcache_table(origin))
            with pytest.raises(DmError):
                device.resume()
            assert "the previous origin hangs" in kmsg.read()
            # No table refers to it any more, but the requests need it.
            with pytest.raises(DmError):
                below.remove()
            answer()
            device.load(vcache_table(origin))
            in_time(device.resume)
            flush.join(30)
            assert not flush.is_alive()
        below.remove()
        assert disk.read(0, 64) == pattern(1, 64)
        assert read(origin, 0, 64) == pattern(1, 64)


def test_removal_waits_for_an_origin_that_hangs(origin: str, below: Mapped) -> None:
    """Its memory is in use."""
    with vcache(below.path) as device:
        with hanging(below) as answer:
            with Disk(device.path) as disk:
                disk.write(0, pattern(1, 64))
                flush = in_thread(disk.flush)
                time.sleep(0.3)
                in_time(lambda: device.suspend(NOFLUSH | SKIP_LOCKFS))
                device.load(f"0 {stack.sectors(origin)} error")
                resume = in_thread(device.resume)
                flush.join(30)
                assert not flush.is_alive()
            time.sleep(0.3)
            assert resume.is_alive()
            answer()
            resume.join(30)
            assert not resume.is_alive()
        assert read(origin, 0, 64) == pattern(1, 64)


@pytest.mark.parametrize("mode", ["writeback", "writethrough"])
def test_noflush_while_the_origin_of_a_volume_hangs(origin: str, below: Mapped,
                                                    mode: str) -> None:
    """A round of destage, or write-through, is at the origin."""
    with (null_blk() as ssd, stack.pool(ssd) as pool,
          stack.cached(below.path, pool, mode=mode) as device, Disk(device.path) as disk):
        table = stack.cached_table(below.path, pool, mode=mode)
        disk.write(0, pattern(1, 256))
        with hanging(below) as answer:
            flush = in_thread(disk.flush)
            if mode == "writeback":
                flush.join(30)
                assert not flush.is_alive()
                # Destage begins when nothing has been written for two seconds.
                time.sleep(4)
            else:
                time.sleep(0.5)
            in_time(lambda: device.suspend(NOFLUSH | SKIP_LOCKFS))
            device.load(table)
            in_time(device.resume)
            assert disk.read(0, 256) == pattern(1, 256)
            disk.write(64, pattern(2, 64))
            expected = bytearray(pattern(1, 256))
            expected[64 * SECTOR:128 * SECTOR] = pattern(2, 64)
            if mode == "writeback":
                in_time(disk.flush)
            assert disk.read(0, 256) == expected
            in_time(lambda: device.suspend(NOFLUSH | SKIP_LOCKFS))
            device.load(table)
            in_time(device.resume)
            answer()
            flush.join(30)
            assert not flush.is_alive()
        disk.flush()
        device.message("drain")
        assert stack.wait_until(lambda: stack.cache_status(device).state == "clean")
        assert disk.read(0, 256) == expected
        assert read(origin, 0, 256) == expected


def test_tags_change_while_suspended(origin: str, client: Client) -> None:
    with vcache(origin, "filesystem") as device, Disk(device.path) as disk:
        client.tag_set(device.number, 1)
        device.suspend()
        client.tag_set(device.number, 2, weight=5)
        client.tag_del(device.number, 1)
        client.set_extents(device.number, 2, [Extent(0, 8)])
        device.resume()
        assert [tag.id for tag in client.tags(device.number)] == [0, 2]
        disk.write(0, pattern(1, 8))
        disk.flush()
        assert read(origin, 0, 8) == pattern(1, 8)
