# SPDX-License-Identifier: Apache-2.0
"""Failing memory allocations everywhere, and failing requests.

The kernel of User Mode Linux supports this, and the debug kernel of ``make test-debug``.
"""

import contextlib
import errno
import itertools
import os
import random
import traceback
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.box.steps import at_end
from tests.kernel import debug, dm, stack
from tests.kernel.disk import Disk, pattern
from tests.kernel.stack import Mapped
from vcache_agent.model import Extent
from vcache_agent.netlink.client import Client


def allocations_fail(work: Callable[[], None], undo: Callable[[bool], None]) -> int:
    """Run `work` repeatedly, with another of its allocations failing each time.

    First the first sixteen in order, then later ones at random, with increasing distance: a device
    needs hundreds of allocations, and each try takes seconds.

    :param work: may raise OSError
    :param undo: called after each try, with whether the work succeeded
    :returns: approximate number of allocations
    """
    number = 1
    while True:
        print("allocation", number)
        done = False
        with debug.failing_allocation(number) as failed:
            with contextlib.suppress(OSError, MemoryError):
                work()
                done = True
        undo(done)
        if not failed[0]:
            assert done
            return number - 1
        number += random.randint(1, 1 + number // 8) if number > 16 else 1


def make(name: str, table: str) -> Callable[[], None]:
    """Return a function that loads and activates a table."""
    def work() -> None:
        dm.load(name, table)
        dm.resume(name)
    return work


@contextlib.contextmanager
def device(name: str) -> Iterator[Callable[[bool], None]]:
    """Create an empty device; provide a function that empties it again."""
    def again(_done: bool) -> None:
        dm.remove(name)
        dm.create(name)

    dm.create(name)
    with at_end(dm.remove, name):
        yield again


def test_device_is_made_or_refused(origin: str) -> None:
    name = stack.unique("vc")
    with device(name) as again:
        assert allocations_fail(make(name, stack.vcache_table(origin)), again) > 20


def test_pool_is_made_or_refused(origin: str) -> None:
    with stack.null_blk() as cache:
        name = stack.unique("pool")
        with device(name) as again:
            assert allocations_fail(make(name, stack.pool_table(cache)), again) > 20
        # Remains of a failed try do not prevent the next one.
        with stack.pool(cache) as pool, stack.cached(origin, pool) as volume:
            assert stack.pool_status(pool).state == "ok"
            assert stack.cache_status(volume).state == "clean"


@pytest.mark.parametrize("mode", ["writeback", "writethrough"])
def test_volume_with_data_in_the_cache_is_made_or_refused(origin: str, mode: str) -> None:
    """Its log is replayed: whatever fails, dirty data stays and is found in the end.

    Data written through is on the origin; its copies are not used.
    """
    with stack.null_blk() as cache, stack.pool(cache) as pool:
        with stack.cached(origin, pool, mode=mode) as volume, Disk(volume.path) as disk:
            for part in range(8):
                disk.write(part * 512, pattern(part, 128), fua=True)
        name = stack.unique("vc")
        with device(name) as again:
            assert allocations_fail(
                make(name, stack.cached_table(origin, pool, mode=mode)), again) > 20
        with stack.cached(origin, pool, mode=mode) as volume, Disk(volume.path) as disk:
            for part in range(8):
                assert disk.read(part * 512, 128) == pattern(part, 128)


def test_tag_is_set_or_stays_as_it_was(origin: str, client: Client) -> None:
    with stack.vcache(origin, "filesystem") as volume:
        number = volume.number
        client.tag_set(number, 5, name="old", weight=100)
        client.set_extents(number, 5, [Extent(0, 8)])

        def work() -> None:
            client.tag_set(number, 5, name="new", weight=300)

        def check(done: bool) -> None:
            tag = client.tag(number, 5)
            assert (tag.name, tag.weight) in {("old", 100), ("new", 300)}
            if done:
                assert tag.name == "new"
            client.tag_set(number, 5, name="old", weight=100)

        assert allocations_fail(work, check) > 3
        wanted = [Extent(16 * n, 8) for n in range(100)]

        def extents() -> None:
            client.set_extents(number, 5, wanted)

        def all_or_none(done: bool) -> None:
            tag = client.tag(number, 5)
            found = tag.extents_count, tag.extents_sectors
            assert found == (100, 800) or (not done and found == (1, 8))
            client.set_extents(number, 5, [Extent(0, 8)])

        assert allocations_fail(extents, all_or_none) > 3

        def change() -> None:
            client.change_extents(number, 5, [Extent(4, 4)], wanted[1:])

        def changed_or_not(done: bool) -> None:
            tag = client.tag(number, 5)
            found = tag.extents_count, tag.extents_sectors
            assert found == (100, 796) or (not done and found == (1, 8))
            client.set_extents(number, 5, [Extent(0, 8)])

        assert allocations_fail(change, changed_or_not) > 3


@pytest.mark.parametrize("cached", [False, True])
def test_write_is_done_or_refused(origin: str, cached: bool) -> None:
    """A refused write may be present or not; a successful one is present."""
    with contextlib.ExitStack() as layers:
        if cached:
            cache = layers.enter_context(stack.null_blk())
            pool = layers.enter_context(stack.pool(cache))
            volume: Mapped = layers.enter_context(stack.cached(origin, pool))
        else:
            volume = layers.enter_context(stack.vcache(origin))
        disk = layers.enter_context(Disk(volume.path))
        seeds = itertools.count(1)
        # The allowed contents of each sector: the last write, and writes refused since then.
        allowed = [{bytes(512)} for _ in range(200)]
        wanted = b""

        def work() -> None:
            nonlocal wanted
            wanted = pattern(next(seeds), 200)
            disk.write(3, wanted)
            disk.flush()

        def check(done: bool) -> None:
            data = disk.read(3, 200)
            for sector, may in enumerate(allowed):
                part = slice(sector * 512, (sector + 1) * 512)
                if done:
                    may.clear()
                may.add(wanted[part])
                assert data[part] in may, f"sector {sector}"

        assert allocations_fail(work, check) > 3


@contextlib.contextmanager
def workers_short_of_memory(percent: int, *, only_nowait: bool = False) -> Iterator[None]:
    """Make a part of the allocations of the kernel's workers fail.

    :param percent: how many
    :param only_nowait: of those that do not wait for memory
    """
    tasks = [Path("/proc/2")]
    for task in Path("/proc").glob("[0-9]*"):
        with contextlib.suppress(OSError):  # it may have ended
            tasks += [task] * (task / "comm").read_text().startswith("kworker")
    # Set the probability last: before the filter is set, all allocations would fail, including
    # those of this process.
    knobs = {"times": -1, "task-filter": "Y", "verbose": 0,
             "ignore-gfp-wait": "Y" if only_nowait else "N", "probability": percent}
    for task in tasks:
        with contextlib.suppress(OSError):
            (task / "make-it-fail").write_text("1")
    for name, value in knobs.items():
        (debug.FAILSLAB / name).write_text(str(value))
    with (at_end(_spare, tasks), at_end((debug.FAILSLAB / "task-filter").write_text, "N"),
          at_end((debug.FAILSLAB / "probability").write_text, "0")):
        yield


def _spare(tasks: list[Path]) -> None:
    """Exempt the allocations of these tasks."""
    for task in tasks:
        with contextlib.suppress(OSError):
            (task / "make-it-fail").write_text("0")


def test_discard_without_memory_removes_all_extents(origin: str, client: Client) -> None:
    """A worker does the discard. The tags get their extents again from the agent."""
    with stack.vcache(origin, "filesystem") as volume, Disk(volume.path) as disk:
        number, wanted = volume.number, [Extent(16 * n, 8) for n in range(500)]
        for tag in (5, 6):
            client.tag_set(number, tag)
        client.set_extents(number, 5, wanted)
        client.set_extents(number, 6, [Extent(8, 8)])

        def counters() -> list[tuple[int, int]]:
            return [(tag.extents_count, tag.extents_sectors)
                    for tag in (client.tag(number, 5), client.tag(number, 6))]

        with workers_short_of_memory(100), contextlib.suppress(OSError):
            disk.discard(16 * 250, 8)
        assert counters() == [(0, 0), (0, 0)]
        client.set_extents(number, 5, wanted)
        disk.discard(16 * 250, 8)
        assert counters() == [(499, 3992), (0, 0)]


def random_io(disk: Disk, sectors: int, steps: int, seed: int) -> bytes:
    """Write, flush and read at random; the results must be those of a plain disk.

    :returns: the required contents of the disk
    """
    rng = random.Random(seed)
    expected = bytearray(disk.read(0, sectors))
    for step in range(steps):
        length = rng.choice((1, 8, 8, 64, 256))
        start = rng.randrange(sectors - length)
        if rng.random() < 0.6:
            data = pattern(seed * 10000 + step, length)
            disk.write(start, data, fua=rng.random() < 0.2)
            expected[start * 512:(start + length) * 512] = data
        else:
            assert disk.read(start, length) == expected[start * 512:(start + length) * 512]
        if rng.random() < 0.2:
            disk.flush()
    assert disk.read(0, sectors) == expected
    return bytes(expected)


def test_io_goes_on_while_workers_find_no_memory() -> None:
    """The pool's own work: records, seals, destage, reclaim."""
    sectors = 16 * 2048
    # A disk without further allocations, since it would fail itself.
    with stack.null_blk(16, cache=False) as origin, stack.null_blk(8, cache=False) as cache:
        for path in (origin, cache):
            with Disk(path) as whole:
                for at in range(0, stack.sectors(path), 2048):
                    whole.write(at, bytes(2048 * 512))
        with stack.pool(cache, chunk_kib=64) as pool, \
                stack.cached(origin, pool, age_ms=50) as volume, \
                Disk(volume.path) as disk:
            with workers_short_of_memory(20):
                expected = random_io(disk, sectors, 400, 1)
            volume.message("drain")
            assert stack.wait_until(lambda: stack.cache_status(volume).state == "clean")
            assert stack.pool_status(pool).state == "ok"
        with Disk(origin) as below:
            assert below.read(0, sectors) == expected


def as_victim(work: Callable[[], None]) -> None:
    """Call `work` in a child whose allocations may fail."""
    child = os.fork()
    if not child:
        status = 1
        try:
            Path("/proc/self/make-it-fail").write_text("1")
            work()
            status = 0
        except BaseException:
            traceback.print_exc()
        finally:
            os._exit(status)
    _, status = os.waitpid(child, 0)
    assert status == 0


@pytest.mark.parametrize("scope", ["volume 7", "filesystem"])
@pytest.mark.parametrize("mode", ["writeback", "writethrough", "flush-only"])
def test_writes_go_on_without_any_memory_for_blocks(mode: str, scope: str) -> None:
    """Neither blocks of the buffer nor nodes of its index can be allocated."""
    sectors = 8 * 2048
    with stack.null_blk(16, cache=False) as origin, stack.null_blk(8, cache=False) as cache:
        for path in (origin, cache):
            with Disk(path) as whole:
                for at in range(0, stack.sectors(path), 2048):
                    whole.write(at, bytes(2048 * 512))
        with contextlib.ExitStack() as layers:
            if mode == "flush-only":
                device = layers.enter_context(stack.vcache(origin, scope))
            else:
                pool = layers.enter_context(stack.pool(cache, chunk_kib=64))
                device = layers.enter_context(stack.cached(origin, pool, scope=scope, mode=mode))
            disk = layers.enter_context(Disk(device.path))

            def write() -> None:
                # Far apart, so that each page would need nodes of its own.
                for turn, at in enumerate(range(0, sectors, 1024)):
                    disk.write(at, pattern(turn, 8))
                for at in range(0, sectors, 2048):
                    disk.write(at + 3, pattern(at, 600))
                disk.flush()

            # The target does not wait for memory for these.
            with workers_short_of_memory(100, only_nowait=True):
                as_victim(write)
            for at in range(0, sectors, 2048):
                assert disk.read(at + 3, 600) == pattern(at, 600)
                assert disk.read(at + 1024, 8) == pattern(at // 1024 + 1, 8)


@contextlib.contextmanager
def failing_requests(path: str, percent: int) -> Iterator[None]:
    """Make a part of a disk's requests fail (fail_make_request)."""
    folder = Path("/sys/kernel/debug/fail_make_request")
    switch = Path("/sys/block") / Path(path).name / "make-it-fail"
    for name, value in {"times": -1, "verbose": 0, "probability": percent}.items():
        (folder / name).write_text(str(value))
    with (at_end((folder / "probability").write_text, "0"), at_end(switch.write_text, "0")):
        switch.write_text("1")
        yield


@pytest.mark.parametrize("which", ["origin", "cache"])
def test_requests_that_fail_now_and_then(origin: str, which: str) -> None:
    """Errors are reported; data reported durable is present, or there is another error."""
    sectors = 4096
    rng = random.Random(which)
    with stack.null_blk() as cache, stack.pool(cache, chunk_kib=64) as pool, \
            stack.cached(origin, pool, age_ms=50) as volume, Disk(volume.path) as disk:
        expected = bytearray(sectors * 512)
        unknown: set[int] = set()
        with failing_requests(origin if which == "origin" else cache, 5):
            for step in range(150):
                start, length = rng.randrange(sectors // 8) * 8, 8
                data = pattern(step + 1, length)
                try:
                    disk.write(start, data, fua=True)
                except OSError as error:
                    assert error.errno == errno.EIO
                    unknown.add(start)
                else:
                    expected[start * 512:(start + length) * 512] = data
                    unknown.discard(start)
        # A repaired origin gets the data that it refused.
        if which == "origin":
            volume.message("drain")
            assert stack.wait_until(lambda: stack.cache_status(volume).state == "clean", 60)
        for start in range(0, sectors, 8):
            if start in unknown:
                continue
            try:
                found = disk.read(start, 8)
            except OSError:
                # The cache has failed, and has data that is not on the origin.
                assert which == "cache"
                assert stack.pool_status(pool).state != "ok"
            else:
                assert found == expected[start * 512:(start + 8) * 512]
