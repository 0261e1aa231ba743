# SPDX-License-Identifier: Apache-2.0
"""A failing origin: errors are reported, data stays and is retried."""

import contextlib
import errno
import random
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass

import pytest

from tests.box.steps import at_end
from tests.kernel import stack
from tests.kernel.conftest import Cgroup, KernelLog
from tests.kernel.disk import SECTOR, Disk, pattern, read
from tests.kernel.dm import NOFLUSH
from tests.kernel.stack import Mapped, linear, mapped, vcache, with_bad_sectors
from vcache_agent.model import Extent
from vcache_agent.netlink.client import Client, EventListener
from vcache_agent.netlink.spec import EventKind

BAD, LENGTH = 4096, 64  # failing sectors


@dataclass
class Origin:
    """An origin that can be broken and repaired under the target.

    :param below: the mapped device
    :param path: the RAM disk under it
    """

    below: Mapped
    path: str

    def fail_range(self, start: int = BAD, length: int = LENGTH) -> None:
        """Make requests to a range fail."""
        self.below.swap(with_bad_sectors(self.path, start, length))

    def fail_writes(self) -> None:
        """Make all writes fail; reads still work."""
        self.below.swap(f"0 {stack.sectors(self.path)} flakey {self.path} 0 0 3600 1 error_writes")

    def repair(self) -> None:
        """Make all requests work again."""
        self.below.swap(linear(self.path))


@pytest.fixture
def failing(origin: str) -> Iterator[Origin]:
    """Provide an origin, initially not broken."""
    with mapped(linear(origin)) as below:
        yield Origin(below, origin)


def fails(work: Callable[[], object]) -> None:
    """Check that `work` gets an I/O error."""
    with pytest.raises(OSError) as refused:  # noqa: PT011 - the number is checked
        work()
    assert refused.value.errno == errno.EIO


def wait_for(events: EventListener, kind: EventKind, device: Mapped, tag: int,
             seconds: float = 10) -> None:
    """Wait for an event."""
    limit = time.monotonic() + seconds
    seen = []
    while time.monotonic() < limit:
        seen += events.receive(1)
        if (kind, device.number, tag) in seen:
            return
    raise AssertionError(f"no {kind.name} of tag {tag}: {seen}")


@pytest.mark.quick
@pytest.mark.box
def test_write_out_fails(failing: Origin, client: Client, events: EventListener) -> None:
    with vcache(failing.below.path) as device, Disk(device.path) as disk:
        failing.fail_range()
        disk.write(BAD + 8, pattern(1, 16))
        disk.write(0, pattern(2, 8))
        fails(disk.flush)
        wait_for(events, EventKind.ORIGIN_ERROR, device, 7)
        # Writable data is written. The rest stays, is readable, and is reported.
        assert read(failing.path, 0, 8) == pattern(2, 8)
        assert disk.read(BAD + 8, 16) == pattern(1, 16)
        tag = client.tag(device.number, 7)
        assert tag.broken
        assert tag.dirty_bytes == 16 * SECTOR
        assert tag.stats.writeout_errors >= 1
        assert client.devices()[0].broken
        # Each further flush tries again, and reports the error again.
        fails(disk.flush)
        failing.repair()
        disk.flush()
        assert read(failing.path, BAD + 8, 16) == pattern(1, 16)
        wait_for(events, EventKind.ORIGIN_OK, device, 7)
        tag = client.tag(device.number, 7)
        assert not tag.broken
        assert tag.dirty_bytes == 0
        assert not client.devices()[0].broken


def test_what_is_refused_is_tried_at_most_twice_a_flush(origin: str, client: Client) -> None:
    """No endless retries while another request of the flush hangs.

    A flush writes out all data when it starts, and once more when it begins to wait for a tag.
    Otherwise it would wait in vain for data that was refused in between.
    """
    with mapped(linear(origin)) as slow, mapped(
            with_bad_sectors(slow.path, BAD, LENGTH)) as below, vcache(
            below.path) as device, Disk(device.path) as disk:
        answers: list[int | None] = []

        def flush() -> None:
            try:
                disk.flush()
                answers.append(None)
            except OSError as error:
                answers.append(error.errno)

        def errors() -> int:
            return client.tag(device.number, 7).stats.writeout_errors

        slow.suspend(NOFLUSH)
        with at_end(slow.resume):
            disk.write(0, pattern(1, 8))
            disk.write(BAD, pattern(2, 8))
            for _ in range(3):
                threading.Thread(target=flush, daemon=True).start()
                time.sleep(0.3)
            tried = errors()
        assert 3 <= tried <= 6
        # The two flushes that waited behind the first get another try, together.
        assert stack.wait_until(lambda: len(answers) == 3, 10)
        assert answers == [errno.EIO] * 3
        assert errors() == tried + 1
        assert read(origin, 0, 8) == pattern(1, 8)


def test_error_nobody_waited_for_is_not_forgotten(failing: Origin) -> None:
    """The error occurred in a write-out by age; the next flush must report it."""
    with vcache(failing.below.path, age_ms=100) as device, Disk(device.path) as disk:
        failing.fail_range()
        disk.write(BAD, pattern(1, 8))
        time.sleep(0.5)
        fails(disk.flush)
        failing.repair()
        # After the repair, it is written by age as well.
        assert stack.wait_until(lambda: read(failing.path, BAD, 8) == pattern(1, 8), 5)
        disk.flush()


def test_overwritten_while_refused(failing: Origin) -> None:
    with vcache(failing.below.path) as device, Disk(device.path) as disk:
        failing.fail_range()
        disk.write(BAD, pattern(1, 8))
        fails(disk.flush)
        disk.write(BAD + 2, pattern(2, 2))
        fails(disk.flush)
        expected = bytearray(pattern(1, 8))
        expected[2 * SECTOR:4 * SECTOR] = pattern(2, 2)
        assert disk.read(BAD, 8) == expected
        failing.repair()
        disk.flush()
        assert read(failing.path, BAD, 8) == expected


def test_reads_of_a_range_that_fails(failing: Origin) -> None:
    with vcache(failing.below.path) as device, Disk(device.path) as disk:
        failing.fail_range()
        disk.write(BAD + 8, pattern(1, 8))
        assert disk.read(BAD + 8, 8) == pattern(1, 8)
        fails(lambda: disk.read(BAD + 8, 16))
        fails(lambda: disk.read(BAD, 8))
        failing.repair()
        assert disk.read(BAD, 16) == bytes(8 * SECTOR) + pattern(1, 8)


def test_fua_write_fails_at_once(failing: Origin) -> None:
    with vcache(failing.below.path) as device, Disk(device.path) as disk:
        failing.fail_range()
        fails(lambda: disk.write(BAD, pattern(1, 8), fua=True))
        disk.write(BAD + 16, pattern(2, 8))
        fails(disk.flush)
        # A write over refused data: one more try, then the error.
        fails(lambda: disk.write(BAD + 16, pattern(3, 8), fua=True))
        failing.repair()
        disk.write(BAD + 16, pattern(4, 8), fua=True)
        assert read(failing.path, BAD + 16, 8) == pattern(4, 8)


def test_discard_of_refused_data(failing: Origin) -> None:
    with vcache(failing.below.path) as device, Disk(device.path) as disk:
        disk.write(BAD, pattern(1, 8))
        failing.fail_writes()
        fails(disk.flush)
        failing.repair()
        disk.discard(BAD, 8)
        assert disk.read(BAD, 8) == bytes(8 * SECTOR)
        disk.flush()


def test_one_tag_fails_the_other_does_not(failing: Origin, client: Client,
                                          cgroup: Callable[[str], Cgroup]) -> None:
    one, two = cgroup("one"), cgroup("two")
    with vcache(failing.below.path, "filesystem") as device, Disk(device.path) as disk:
        client.tag_set(device.number, 1, cgroups=[one.id])
        client.tag_set(device.number, 2, cgroups=[two.id])
        client.set_extents(device.number, 1, [Extent(BAD, LENGTH)])
        client.set_extents(device.number, 2, [Extent(0, BAD)])
        failing.fail_range()
        one.run(lambda: disk.write(BAD, pattern(1, 8)))
        for turn in range(3):
            two.run(lambda seed=turn: disk.write(0, pattern(seed, 8)))  # type: ignore[misc]
            with pytest.raises(OSError, match="error"):
                one.run(disk.flush)
            two.run(disk.flush)
            assert read(failing.path, 0, 8) == pattern(turn, 8)
        assert client.tag(device.number, 1).broken
        assert not client.tag(device.number, 2).broken
        failing.repair()
        one.run(disk.flush)
        assert read(failing.path, BAD, 8) == pattern(1, 8)


def test_one_bad_sector_fails_no_other_writes(failing: Origin) -> None:
    """The buffer is full repeatedly, and space becomes free again."""
    with (stack.buffer_mb(1), vcache(failing.below.path) as device, Disk(device.path) as disk):
        failing.fail_range(BAD, 8)
        disk.write(BAD, pattern(1, 8))
        fails(disk.flush)
        for turn in range(3):
            for at in range(8192, 8192 + 4096, 256):
                disk.write(at, pattern(turn + at, 256))
        for at in range(8192, 8192 + 4096, 256):
            assert disk.read(at, 256) == pattern(2 + at, 256)
        assert disk.read(BAD, 8) == pattern(1, 8)
        failing.repair()
        disk.flush()
        assert read(failing.path, BAD, 8) == pattern(1, 8)


@pytest.mark.box
def test_full_buffer_on_a_dead_origin(failing: Origin) -> None:
    """Writes get the error and do not wait forever; accepted data is kept."""
    accepted: dict[int, int] = {}
    with stack.buffer_mb(1), vcache(failing.below.path) as device, Disk(device.path) as disk:
        failing.fail_writes()
        for at in range(0, 8192, 64):
            try:
                disk.write(at, pattern(at, 64))
            except OSError:
                continue
            accepted[at] = at
        assert 16 <= len(accepted) <= 32, "1 MiB of 32 KiB writes"
        for at in accepted:
            assert disk.read(at, 64) == pattern(at, 64)
        fails(disk.flush)
        failing.repair()
        disk.flush()
        for at in accepted:
            assert read(failing.path, at, 64) == pattern(at, 64)


def test_suspend_with_refused_data(failing: Origin, kmsg: KernelLog) -> None:
    with vcache(failing.below.path) as device, Disk(device.path) as disk:
        disk.write(BAD, pattern(1, 8))
        failing.fail_writes()
        fails(disk.flush)
        device.suspend()
        assert "suspended with buffered data that its origin refuses" in kmsg.read()
        device.resume()
        assert disk.read(BAD, 8) == pattern(1, 8)
        fails(disk.flush)
        failing.repair()
        disk.flush()
        assert read(failing.path, BAD, 8) == pattern(1, 8)


def test_remove_after_repair_loses_nothing(failing: Origin, kmsg: KernelLog) -> None:
    with vcache(failing.below.path) as device:
        with Disk(device.path) as disk:
            disk.write(BAD, pattern(1, 8))
            failing.fail_writes()
            fails(disk.flush)
        failing.repair()
        device.remove()
    assert read(failing.path, BAD, 8) == pattern(1, 8)
    assert "sectors lost" not in kmsg.read()


def test_remove_while_the_origin_fails(failing: Origin, kmsg: KernelLog) -> None:
    with vcache(failing.below.path) as device:
        with Disk(device.path) as disk:
            failing.fail_range()
            disk.write(BAD, pattern(1, 10))
            disk.write(0, pattern(2, 8))
        device.remove()
    assert read(failing.path, 0, 8) == pattern(2, 8), "what could be written is"
    assert "10 sectors lost" in kmsg.read()


def test_remove_with_dirty_data(origin: str, kmsg: KernelLog) -> None:
    with vcache(origin) as device:
        with Disk(device.path) as disk:
            disk.write(0, pattern(1, 4096))
        device.remove()
    assert read(origin, 0, 4096) == pattern(1, 4096)
    assert "lost" not in kmsg.read()


def test_origin_that_fails_now_and_then(failing: Origin) -> None:
    """Writers and flushers while the origin fails intermittently; no accepted data is lost."""
    stop = threading.Event()
    expected = [bytearray(64 * SECTOR) for _ in range(4)]
    problems: list[str] = []

    def work(path: str, number: int) -> None:
        rng = random.Random(number)  # noqa: S311 - test data
        base, turn = number * 64, 0
        with Disk(path) as disk:
            while not stop.is_set():
                turn += 1
                start = rng.randrange(60)
                length = rng.randrange(1, 64 - start)
                data = pattern(number * 100000 + turn, length)
                disk.write(base + start, data)
                expected[number][start * SECTOR:(start + length) * SECTOR] = data
                with contextlib.suppress(OSError):  # from the flush, or from reads below it
                    if rng.random() < 0.3:
                        disk.flush()
                        if read(failing.path, base, 64) != expected[number]:
                            problems.append(f"{number}: flushed, but not there (turn {turn})")
                    if disk.read(base, 64) != expected[number]:
                        problems.append(f"{number}: read differs (turn {turn})")

    with vcache(failing.below.path, age_ms=100) as device:
        threads = [threading.Thread(target=work, args=(device.path, n)) for n in range(4)]
        for thread in threads:
            thread.start()
        for _ in range(4):
            failing.fail_range(0, 128)
            time.sleep(0.3)
            failing.fail_writes()
            time.sleep(0.3)
            failing.repair()
            time.sleep(0.3)
        stop.set()
        for thread in threads:
            thread.join()
        assert not problems
        with Disk(device.path) as disk:
            disk.flush()
        for number in range(4):
            assert read(failing.path, number * 64, 64) == expected[number]
