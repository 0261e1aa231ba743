# SPDX-License-Identifier: Apache-2.0
"""A guest's dm-cache on an elastic SSD: the real target, cache, protocol, host and guest.

Host and guest run in one kernel here, and a pair of sockets stands for the virtio-serial port.
"""

import contextlib
import os
import random
import socket
import subprocess
import threading
import time
from collections.abc import Callable, Iterator

import pytest

from tests.box.steps import at_end
from tests.kernel import dm, stack
from tests.kernel.disk import SECTOR, Disk, pattern
from tests.kernel.stack import Mapped
from tests.kernel.test_vssd import settle, status, table
from vcache_agent.dm import Dm as HostDm
from vcache_agent.vssd.device import Device
from vcache_agent.vssd.serve import Server
from vcache_guest.cache import Cache
from vcache_guest.daemon import Daemon
from vcache_guest.dm import Dm
from vcache_guest.guest import Guest

pytestmark = pytest.mark.box


def need_dm_cache() -> None:
    """Skip a test if the kernel has no dm-cache."""
    if subprocess.run(["modprobe", "-a", "dm-cache", "dm-cache-smq"], check=False).returncode:
        pytest.skip("this kernel has no dm-cache")


@pytest.fixture(autouse=True, scope="module")
def _dm_cache() -> None:
    need_dm_cache()


class Pair:
    """A host and a guest with an elastic SSD of 40 blocks.

    :param device: the elastic SSD
    :param origin: the guest's slow disk
    :param writeback: mode of the cache
    """

    def __init__(self, device: Mapped, origin: str, *, writeback: bool) -> None:
        self.vssd, self._mapper = device, Dm()
        self.name = stack.unique("cached")
        self.cache = Cache(self._mapper, self.name, origin, writeback=writeback)
        self.cache.open()
        self.server = Server(Device(HostDm(), device.name))
        #: What the loads have written, by place.
        self.data: dict[int, int] = {}

    @property
    def path(self) -> str:
        """Path of the cached disk."""
        return self._mapper.path(self.name)

    @contextlib.contextmanager
    def daemon(self) -> Iterator[None]:
        """Run the guest's daemon, until it has the size that it may have."""
        host, guest = socket.socketpair()
        with guest:
            self.server.connect(host, "vssd-1")
            daemon = Daemon(Guest(self.cache, lambda serial: self.vssd.path, os.urandom(16)),
                            guest.fileno())
            reader, writer = os.pipe()
            thread = threading.Thread(target=daemon.run, args=(reader,))
            thread.start()
            with at_end(thread.join), at_end(os.write, writer, b"x"):
                self.until(lambda: self.cache.size == self.server.session.size)
                yield
        self.server.disconnect()

    def until(self, done: Callable[[], bool]) -> None:
        """Let the host work until something holds."""
        def step() -> bool:
            self.server.step(time.monotonic())
            return done()

        assert stack.wait_until(step, 120), (status(self.vssd), self.cache.size)

    def resize(self, blocks: int, deadline: float = 600) -> None:
        """Change the size, and wait for the end of it on both sides."""
        self.server.resize(blocks, time.monotonic(), deadline)
        self.until(lambda: not self.server.session.busy)
        self.until(lambda: self.cache.size == blocks)

    def close(self) -> None:
        """Remove the guest's devices."""
        self.cache.close()
        self._mapper.close()


@contextlib.contextmanager
def pair(*, writeback: bool = False, persist: bool = False) -> Iterator[Pair]:
    """Make a pool, an elastic SSD, an origin, and a cache on them."""
    with (stack.null_blk(64, discard=True) as ssd, stack.null_blk(64) as origin,
          stack.pool(ssd) as pool,
          stack.mapped(table(pool, 40, 30, persist=persist)) as device):
        settle(device)
        # All that it owns has data, as in a cache that was used for long. Block 0 has the
        # superblock of dm-cache, which must be zero at first.
        with Disk(device.path) as disk:
            for block in range(30):
                disk.write(block * 2048 + 64, pattern(block, 8))
        both = Pair(device, origin, writeback=writeback)
        with at_end(both.close):
            yield both


class Load(threading.Thread):
    """Writes and reads the cached disk at random, and checks each read.

    :param path: the disk
    :param data: what it has, by place; the rest is zero
    """

    def __init__(self, path: str, data: dict[int, int]) -> None:
        super().__init__()
        self.path, self.data, self.random = path, data, random.Random(1)
        self.stop, self.error, self.turns = threading.Event(), "", 0

    def run(self) -> None:
        with Disk(self.path) as disk:
            while not self.stop.is_set() and not self.error:
                self.turns += 1
                try:
                    self.step(disk, self.random.randrange(400))
                except (OSError, AssertionError) as error:
                    self.error = str(error) or "wrong data"

    def step(self, disk: Disk, place: int) -> None:
        """Write or read one of 400 blocks of 64 KiB."""
        if self.random.random() < 0.5:
            disk.write(place * 128, pattern(self.turns, 128))
            self.data[place] = self.turns
        else:
            seed = self.data.get(place)
            want = pattern(seed, 128) if seed else bytes(128 * SECTOR)
            assert disk.read(place * 128, 128) == want, place

    def ahead(self) -> Callable[[], bool]:
        """Return a function that tells whether it has gone on from here, or has failed."""
        goal = self.turns + 5
        return lambda: self.turns > goal or bool(self.error)

    def check(self) -> None:
        """Check everything."""
        assert not self.error
        with Disk(self.path) as disk:
            for place, seed in self.data.items():
                assert disk.read(place * 128, 128) == pattern(seed, 128), place


@contextlib.contextmanager
def load(both: Pair) -> Iterator[Load]:
    """Run a load, and check it at the end."""
    work = Load(both.path, both.data)
    work.start()
    with at_end(work.join), at_end(work.stop.set):
        yield work
        assert stack.wait_until(lambda: work.turns > 100 or bool(work.error), 120)
    work.join()
    work.check()


@contextlib.contextmanager
def hanging(cache: Cache) -> Iterator[None]:
    """Let a change of a cache's size hang."""
    hang, resize = threading.Event(), cache.resize

    def late(size: int, seconds: float = float("inf")) -> None:
        hang.wait()
        resize(size, seconds)

    cache.resize = late  # type: ignore[method-assign]
    with at_end(hang.set):
        yield
        cache.resize = resize  # type: ignore[method-assign]


@pytest.mark.parametrize("writeback", [False, True])
def test_the_cache_follows_the_size_under_load(writeback: bool) -> None:
    with pair(writeback=writeback) as both, both.daemon():
        with load(both) as work:
            assert stack.wait_until(lambda: both.cache.status().used > 20, 120)
            for size in (20, 35, 8, 40, 0, 30):
                both.resize(size)
                assert status(both.vssd).owned == size
                fast = both.cache.status().blocks if size > 6 else 0
                assert fast == max(size - 5, 0) * 16
                assert stack.wait_until(work.ahead(), 120)
                assert not work.error, size
        assert both.server.session.taken == 0


def test_writes_succeed_while_the_cache_is_about_to_shrink() -> None:
    """Until the guest has shrunk its cache, dm-cache may use blocks that have no data yet."""
    with pair(writeback=True) as both:
        both.vssd.message("release 1 29")
        with both.daemon():
            with hanging(both.cache), load(both) as work:
                both.server.resize(8, time.monotonic(), 600)
                assert stack.wait_until(
                    lambda: both.cache.status().used > 150 or bool(work.error), 120)
            both.until(lambda: both.cache.size == 8 and not both.server.session.busy)
            assert not both.server.session.taken
        assert not status(both.vssd).refused


def test_a_guest_that_is_silent_loses_blocks_but_no_data() -> None:
    """Without a daemon the host takes blocks; the daemon then drops what was in them."""
    with pair() as both:
        with both.daemon(), load(both):
            assert stack.wait_until(lambda: both.cache.status().used > 20, 120)
        both.server.resize(10, time.monotonic(), 600)
        both.until(lambda: not both.server.session.busy)
        assert status(both.vssd).owned == 10
        assert both.server.session.taken == 20
        with both.daemon():
            assert both.cache.size == 10
            # The guest has given up what was taken, so it can have it again.
            both.until(lambda: status(both.vssd).taken == 0)
            both.resize(30)
            with load(both):
                pass


def test_a_late_guest_is_told_what_was_taken() -> None:
    with pair() as both, both.daemon():
        with load(both):
            assert stack.wait_until(lambda: both.cache.status().used > 20, 120)
        with hanging(both.cache):
            both.server.resize(10, time.monotonic(), 0)
            both.until(lambda: not both.server.session.busy)
        assert both.server.session.taken == 20
        both.until(lambda: both.cache.size == 10)
        with load(both):
            pass


def test_persist_keeps_a_warm_cache_over_a_restart_of_both() -> None:
    with pair(persist=True) as both:
        with both.daemon(), Disk(both.path) as disk:
            for place in range(64):
                disk.write(place * 128, pattern(place, 128))

            def warmed() -> bool:
                for place in range(64):
                    disk.read(place * 128, 128)
                return both.cache.status().used > 0

            # dm-cache promotes blocks in the background.
            for _ in range(8):
                warmed()
            assert stack.wait_until(warmed, 120)
            used = both.cache.status().used
        both.cache.close()
        dm.remove(both.vssd.name)
        dm.create(both.vssd.name)
        (pool,) = (name for name in dm.names() if name.startswith("pool"))
        dm.load(both.vssd.name, table(stack.Mapped(pool), 40, 30, persist=True))
        dm.resume(both.vssd.name)
        both.cache.open()
        with both.daemon(), Disk(both.path) as disk:
            assert both.cache.status().used == used
            before = both.cache.status().read_hits
            for place in range(64):
                assert disk.read(place * 128, 128) == pattern(place, 128)
            assert both.cache.status().read_hits - before >= used / 2


def test_dirty_blocks_are_written_before_they_are_given_up() -> None:
    with pair(writeback=True) as both, both.daemon():
        with Disk(both.path) as disk:
            for place in range(400):
                disk.write(place * 128, pattern(place, 128))
        both.resize(12)
        assert both.server.session.taken == 0
        with Disk(both.path) as disk:
            for place in range(400):
                assert disk.read(place * 128, 128) == pattern(place, 128)
