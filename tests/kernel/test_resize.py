# SPDX-License-Identifier: Apache-2.0
"""A pool grows and shrinks under I/O: no data is lost, no old data reappears."""

import contextlib
import random
import threading
import time
from collections.abc import Iterator

import pytest

from tests.box.steps import at_end
from tests.kernel import stack
from tests.kernel.conftest import KernelLog
from tests.kernel.disk import Disk, pattern
from tests.kernel.dm import NOFLUSH, SKIP_LOCKFS, DmError
from tests.kernel.stack import Mapped

MIB = 2048  # sectors
BLOCK = 8


@pytest.fixture
def ssd() -> Iterator[str]:
    """Give an empty SSD of 256 MiB."""
    with stack.null_blk(256, discard=True) as path:
        yield path


@contextlib.contextmanager
def volume_of(ssd: str, megabytes: int) -> Iterator[Mapped]:
    """Provide a part of it, like LVM."""
    with stack.mapped(stack.linear(ssd, megabytes * MIB)) as lv:
        yield lv


class Churn(threading.Thread):
    """Writes, flushes and reads blocks in random order, and checks each.

    :param device: the device, all of it
    :param seed: seed of the order and of the data
    """

    def __init__(self, device: Mapped, seed: int) -> None:
        super().__init__()
        self.path, self.random = device.path, random.Random(seed)
        self.blocks = stack.sectors(device.path) // BLOCK
        self.seed, self.written = seed << 32, dict[int, int]()
        self.done, self.rounds, self.error = threading.Event(), 0, ""

    def run(self) -> None:
        with Disk(self.path) as disk:
            while not self.done.is_set() and not self.error:
                self.step(disk)

    def step(self, disk: Disk) -> None:
        """Write some blocks, flush sometimes, and check some others."""
        start = self.random.randrange(self.blocks - 64)
        blocks = range(start, start + self.random.randrange(1, 64))
        seeds = range(self.seed, self.seed + len(blocks))
        disk.write(start * BLOCK, b"".join(pattern(seed, BLOCK) for seed in seeds))
        self.written.update(zip(blocks, seeds, strict=True))
        self.seed = seeds.stop
        if not self.rounds % 4:
            disk.flush()
        for block in self.random.sample(list(self.written), 4):
            self.look(disk, block)
        self.rounds += 1

    def look(self, disk: Disk, block: int) -> None:
        if disk.read(block * BLOCK, BLOCK) != pattern(self.written[block], BLOCK):
            self.error = f"block {block} is not what was written to it"

    def check(self, path: str) -> None:
        """Check all blocks."""
        with Disk(path) as disk:
            for block in self.written:
                self.look(disk, block)
        assert not self.error
        assert self.rounds > 20


@contextlib.contextmanager
def churning(*devices: Mapped) -> Iterator[list[Churn]]:
    """Run I/O on devices for a while; then check all written data."""
    threads = [Churn(device, number) for number, device in enumerate(devices, 1)]
    for thread in threads:
        thread.start()
    try:
        assert stack.wait_until(lambda: all(thread.rounds > 20 for thread in threads), 60)
        yield threads
    finally:
        for thread in threads:
            thread.done.set()
        for thread in threads:
            thread.join()
    for thread, device in zip(threads, devices, strict=True):
        thread.check(device.path)


def size(pool: Mapped) -> tuple[int, int]:
    """Return the chunks of a pool, and the number still to be reclaimed."""
    status = stack.pool_status(pool)
    return status.chunks, status.leaving


def settled(pool: Mapped, chunks: int) -> bool:
    """Wait for a size."""
    return stack.wait_until(lambda: size(pool) == (chunks, 0), 60)


@pytest.mark.box
def test_a_pool_grows_and_shrinks_under_io(ssd: str, origin: str, kmsg: KernelLog) -> None:
    """Together with its device; its data is still available after it is loaded again."""
    with stack.null_blk() as second, volume_of(ssd, 32) as lv:
        with (stack.pool(lv.path) as pool, stack.cached(origin, pool) as device,
              stack.cached(second, pool, 2, "volume 8") as other):
            with churning(device, other) as threads:
                lv.swap(stack.linear(ssd, 100 * MIB))
                assert size(pool) == (30, 0)
                pool.message("resize 0")
                assert size(pool) == (98, 0)
                assert stack.wait_until(lambda: stack.pool_status(pool).used > 40, 60)
                pool.message(f"resize {24 * MIB}")
                assert settled(pool, 22)
                assert "the pool uses 22 chunks now" in kmsg.read()
                lv.swap(stack.linear(ssd, 24 * MIB))
                before = [thread.rounds for thread in threads]
                assert stack.wait_until(lambda: all(
                    thread.rounds > was + 20
                    for thread, was in zip(threads, before, strict=True)), 60)
        with (stack.pool(lv.path) as pool, stack.cached(origin, pool) as device,
              stack.cached(second, pool, 2, "volume 8") as other):
            assert size(pool) == (22, 0)
            for thread, path in zip(threads, (device.path, other.path), strict=True):
                thread.check(path)


@contextlib.contextmanager
def shrinking_while_dirty(ssd: str, origin: str) -> Iterator[tuple[Mapped, Mapped, Disk]]:
    """Provide a pool of 62 chunks that cannot shrink to 30: its origin refuses dirty data.

    Also provide the origin, which another table repairs, and the disk; 40 MiB are written.
    """
    length = stack.sectors(origin)
    with (volume_of(ssd, 64) as lv, stack.mapped(stack.linear(origin)) as below,
          stack.pool(lv.path) as pool, stack.cached(below.path, pool) as device,
          Disk(device.path) as disk):
        below.swap(f"0 {length} flakey {origin} 0 0 3600 1 error_writes")
        for mb in range(40):
            disk.write(mb * MIB, pattern(mb, MIB))
            disk.flush()
        pool.message(f"resize {32 * MIB}")
        assert stack.wait_until(lambda: size(pool)[1] > 0)
        yield pool, below, disk


def test_what_is_only_in_the_cache_stays_until_it_is_on_the_origin(ssd: str, origin: str) -> None:
    """A pool does not shrink while the origin refuses; it stores no new data behind the new end."""
    with shrinking_while_dirty(ssd, origin) as (pool, below, disk):
        assert not stack.wait_until(lambda: size(pool)[1] == 0, 2)
        below.swap(stack.linear(origin))
        assert settled(pool, 30)
        for mb in range(40):
            assert disk.read(mb * MIB, MIB) == pattern(mb, MIB)


def test_a_shrink_is_taken_back(ssd: str, origin: str) -> None:
    """Before it has completed: chunks that were to be reclaimed are used again."""
    with shrinking_while_dirty(ssd, origin) as (pool, below, disk):
        pool.message("resize 0")
        assert size(pool) == (62, 0)
        before = stack.pool_status(pool).used
        for mb in range(40, 50):
            disk.write(mb * MIB, pattern(mb, MIB))
            disk.flush()
        assert stack.pool_status(pool).used > before
        below.swap(stack.linear(origin))
        for mb in range(50):
            assert disk.read(mb * MIB, MIB) == pattern(mb, MIB)


def test_what_was_read_leaves(ssd: str, origin: str) -> None:
    """At once, wherever it is; then only as much remains as fits."""
    with Disk(origin) as disk:
        for mb in range(50):
            disk.write(mb * MIB, pattern(mb, MIB))
    with (volume_of(ssd, 64) as lv, stack.pool(lv.path) as pool,
          stack.cached(origin, pool) as device, Disk(device.path) as disk):
        for at in range(0, 50 * MIB, 64):
            for _ in range(2):
                disk.read(at * 37 % (50 * MIB), 64)
        assert stack.pool_status(pool).reads > 40
        pool.message(f"resize {20 * MIB}")
        assert settled(pool, 18)
        assert 0 < stack.pool_status(pool).reads <= 18
        for mb in range(50):
            assert disk.read(mb * MIB, MIB) == pattern(mb, MIB)


def test_nothing_comes_back_where_a_pool_was_as_large_before(ssd: str, origin: str) -> None:
    """Added chunks are dead, whatever their part of the chunk table contained.

    In between, the pool is loaded again from its device, and the unused part of the device is
    restored to its earlier contents.
    """
    with volume_of(ssd, 64) as lv:
        with (stack.pool(lv.path, chunk_kib=64) as pool, stack.cached(origin, pool) as device,
              Disk(device.path) as disk):
            for mb in range(40):
                disk.write(mb * MIB, pattern(mb, MIB))
                disk.flush()
            with Disk(ssd, readonly=True) as raw:
                old = [raw.read(mb * MIB, MIB) for mb in range(32, 64)]
            pool.message(f"resize {32 * MIB}")
            assert stack.wait_until(lambda: size(pool)[1] == 0, 60)
        with Disk(ssd) as raw:
            for mb, data in enumerate(old, 32):
                raw.write(mb * MIB, data)
        with (stack.pool(lv.path) as pool, stack.cached(origin, pool) as device,
              Disk(device.path) as disk):
            # The data that was written last before is written first: the cache reclaims it soon.
            for mb in reversed(range(40)):
                disk.write(mb * MIB, pattern(100 + mb, MIB))
                disk.flush()
            device.message("drain")
            assert stack.wait_until(lambda: stack.cache_status(device).dirty == 0)
            pool.message("resize 0")
        with (stack.pool(lv.path) as pool, stack.cached(origin, pool) as device,
              Disk(device.path) as disk):
            for mb in range(40):
                assert disk.read(mb * MIB, MIB) == pattern(100 + mb, MIB), mb


def test_what_cannot_be_is_refused(ssd: str, origin: str, kmsg: KernelLog) -> None:
    with volume_of(ssd, 32) as lv, stack.pool(lv.path) as pool, stack.cached(origin, pool):
        for text, error in (
                (f"resize {32 * MIB + 1}", "the cache device is smaller than the new size"),
                (f"resize {4 * MIB - 1}", "a pool can shrink to"),
                (f"resize {7 * MIB}", "a pool can shrink to a quarter of its first size"),
                ("resize", "messages are:"), ("resize 1 2", "messages are:"),
                ("resize -1", "messages are:"), ("resize half", "messages are:")):
            logged = len(kmsg.read())
            with pytest.raises(DmError):
                pool.message(text)
            assert error in kmsg.read()[logged:], text
        lv.swap(stack.linear(ssd, 129 * MIB))
        with pytest.raises(DmError):
            pool.message("resize 0")
        assert "a pool can grow to four times its first size" in kmsg.read()
        assert size(pool) == (30, 0)
        pool.message(f"resize {128 * MIB}")
        pool.message(f"resize {128 * MIB}")
        assert size(pool) == (126, 0)


def test_a_volume_that_is_suspended_stays_so(ssd: str, origin: str) -> None:
    with (volume_of(ssd, 32) as lv, stack.pool(lv.path) as pool,
          stack.cached(origin, pool) as device, Disk(device.path) as disk):
        disk.write(0, pattern(1, MIB))
        disk.flush()
        device.suspend()
        lv.swap(stack.linear(ssd, 64 * MIB))
        pool.message("resize 0")
        assert size(pool) == (62, 0)
        late = threading.Thread(target=disk.write, args=(MIB, pattern(2, BLOCK)))
        late.start()
        late.join(0.5)
        assert late.is_alive()
        device.resume()
        late.join(20)
        assert not late.is_alive()
        assert disk.read(0, MIB) == pattern(1, MIB)
        assert disk.read(MIB, BLOCK) == pattern(2, BLOCK)


@pytest.mark.parametrize("busy_with", [pytest.param("destage", marks=pytest.mark.box), "read"])
def test_an_origin_that_hangs_does_not_freeze_others(ssd: str, origin: str, kmsg: KernelLog,
                                                     busy_with: str) -> None:
    """All volumes are suspended for a larger map; if one cannot be, the others go on."""
    with (stack.null_blk() as second, stack.mapped(stack.linear(origin)) as below,
          volume_of(ssd, 32) as lv, stack.pool(lv.path) as pool,
          stack.cached(second, pool, 2, "volume 8") as other,
          stack.cached(below.path, pool) as device, Disk(device.path) as disk):
        lv.swap(stack.linear(ssd, 100 * MIB))
        disk.write(0, pattern(1, 64))
        disk.flush()
        below.suspend(NOFLUSH | SKIP_LOCKFS)
        with at_end(resume_if_suspended, below):
            read = threading.Thread(target=lambda: disk.read(4096, 8))
            if busy_with == "read":
                read.start()
                time.sleep(0.5)
            else:
                # Destage begins when nothing has been written for two seconds.
                time.sleep(4)
            errors: list[DmError] = []

            def resize() -> None:
                try:
                    pool.message("resize 0")
                except DmError as error:
                    errors.append(error)

            with churning(other) as threads:
                thread = threading.Thread(target=resize, daemon=True)
                thread.start()
                assert stack.wait_until(lambda: not thread.is_alive(), 60), "it hangs"
                assert len(errors) == 1
                assert "the origin of a volume does not answer" in kmsg.read()
                rounds = threads[0].rounds
                assert stack.wait_until(lambda: threads[0].rounds > rounds + 20, 60)
            assert size(pool) == (30, 0)
            below.resume()
            if busy_with == "read":
                read.join(60)
                assert not read.is_alive()
        disk.write(64, pattern(2, 64))
        disk.flush()
        assert stack.wait_until(lambda: resized(pool), 30)
        assert size(pool) == (98, 0)
        assert disk.read(0, 128) == pattern(1, 64) + pattern(2, 64)
        device.message("drain")
        assert stack.wait_until(lambda: stack.cache_status(device).state == "clean", 60)
        with Disk(origin) as raw:
            assert raw.read(0, 128) == pattern(1, 64) + pattern(2, 64)


def resume_if_suspended(device: Mapped) -> None:
    with contextlib.suppress(DmError):
        device.resume()


def resized(pool: Mapped) -> bool:
    """Try to use the whole device."""
    try:
        pool.message("resize 0")
    except DmError:
        return False
    return True
