# SPDX-License-Identifier: Apache-2.0
"""Applications and a dm-cache share an elastic SSD: the real target, host, guest and socket."""

import contextlib
import os
import select
import socket
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.box.steps import at_end
from tests.kernel import stack
from tests.kernel.disk import Disk, pattern
from tests.kernel.test_vssd import status
from tests.kernel.test_vssd_guest import Load, Pair, need_dm_cache, pair
from vcache_guest import app_protocol
from vcache_guest.app_protocol import Forced, Give, Grant, Reclaim, Register
from vcache_guest.app_server import AppServer
from vcache_guest.blocks import count
from vcache_guest.daemon import Daemon
from vcache_guest.protocol import Range
from vcache_guest.shared import Disk as Discards
from vcache_guest.shared import Shared, SharedGuest
from vcache_guest.shares import Claim

pytestmark = pytest.mark.box

BLOCK = 2048


@pytest.fixture(autouse=True, scope="module")
def _dm_cache() -> None:
    need_dm_cache()


class App:
    """An application that writes each block that it has.

    :param path: of the socket
    :param disk: the elastic SSD
    """

    def __init__(self, path: Path, disk: str, name: str) -> None:
        self.socket = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        self.socket.connect(str(path))
        self.disk, self.blocks, self.keep = disk, set[int](), 1 << 30
        self.forced: list[Range] = []
        self.socket.send(app_protocol.encode(Register(name, 100, 0)))

    def turn(self) -> None:
        """Handle what has arrived, and give up the first blocks if asked to."""
        while select.select([self.socket], [], [], 0)[0]:
            message = app_protocol.decode(self.socket.recv(1 << 16))
            match message:
                case Grant(ranges):
                    self._write(ranges)
                case Reclaim(_, keep, _):
                    self.keep = keep
                case Forced(ranges):
                    self.forced += ranges
        if len(self.blocks) > self.keep:
            given = sorted(self.blocks)[:len(self.blocks) - self.keep]
            self.blocks -= set(given)
            self.socket.send(app_protocol.encode(Give(0, tuple(Range(one, 1) for one in given))))
        if len(self.blocks) <= self.keep:
            self.keep = 1 << 30

    def _write(self, ranges: tuple[Range, ...]) -> None:
        with Disk(self.disk) as disk:
            for first, blocks in ranges:
                for block in range(first, first + blocks):
                    # Nothing of an earlier consumer.
                    assert disk.read(block * BLOCK, BLOCK) == bytes(BLOCK * 512), block
                    disk.write(block * BLOCK + 64, pattern(block, 8))
                    self.blocks.add(block)

    def check(self) -> None:
        """Check that all its blocks have what it has written."""
        with Disk(self.disk) as disk:
            for block in self.blocks:
                assert disk.read(block * BLOCK + 64, 8) == pattern(block, 8), block


@contextlib.contextmanager
def shared(both: Pair, path: Path) -> Iterator[Shared]:
    """Run the guest's daemon with a socket."""
    host, guest = socket.socketpair()
    disk = Discards()
    made = Shared(both.cache, Claim(100), disk)
    apps = AppServer(made, str(path))
    with guest:
        both.server.connect(host, "vssd-1")
        daemon = Daemon(SharedGuest(made, lambda serial: both.vssd.path, os.urandom(16)),
                        guest.fileno(), apps.wait)
        reader, writer = os.pipe()
        thread = threading.Thread(target=daemon.run, args=(reader,))
        thread.start()
        with at_end(thread.join), at_end(os.write, writer, b"x"):
            both.until(lambda: both.cache.size == both.server.session.size)
            yield made
    apps.close()
    disk.close()
    both.server.disconnect()


def until(both: Pair, apps: list[App], parts: list[int]) -> None:
    """Let all work until the cache and the applications have so many blocks."""
    def done() -> bool:
        for app in apps:
            app.turn()
        return [both.cache.size, *(len(app.blocks) for app in apps)] == parts

    both.until(done)
    for app in apps:
        app.check()


def test_they_follow_the_host(tmp_path: Path) -> None:
    path = tmp_path / "socket"
    with pair() as both, shared(both, path):
        assert both.cache.size == 30
        load = Load(both.path, both.data)
        load.start()
        with at_end(load.join), at_end(load.stop.set):
            one = App(path, both.vssd.path, "one")
            until(both, [one], [15, 15])
            two = App(path, both.vssd.path, "two")
            until(both, [one, two], [10, 10, 10])
            both.server.resize(21, time.monotonic(), 600)
            until(both, [one, two], [7, 7, 7])
            both.until(lambda: not both.server.session.busy)
            assert status(both.vssd).owned <= 21
            both.server.resize(39, time.monotonic(), 600)
            until(both, [one, two], [13, 13, 13])
            two.socket.close()
            until(both, [one], [19, 20] if both.cache.size == 19 else [20, 19])
            one.socket.close()
            until(both, [], [39])
            assert load.turns > 10
        assert not load.error
        assert not one.forced
        now = status(both.vssd)
        # Nobody was refused a block, and none was taken.
        assert (now.errors, now.refused, now.taken) == (0, 0, 0)


def test_an_application_that_does_not_answer_loses_blocks(tmp_path: Path) -> None:
    path = tmp_path / "socket"
    with pair() as both, shared(both, path) as made:
        app = App(path, both.vssd.path, "one")
        until(both, [app], [15, 15])
        both.server.resize(10, time.monotonic(), 0.5)
        both.until(lambda: not both.server.session.busy and both.cache.size == 5)
        assert status(both.vssd).owned <= 10
        app.keep = 1 << 30
        held = count(made.sharing.apps[1].held)
        assert held == 5
        assert stack.wait_until(lambda: bool(select.select([app.socket], [], [], 0)[0]))
        app.keep = 1 << 30
        while select.select([app.socket], [], [], 0)[0]:
            message = app_protocol.decode(app.socket.recv(1 << 16))
            if isinstance(message, Forced):
                app.forced += message.ranges
        lost = {block for first, blocks in app.forced for block in range(first, first + blocks)}
        assert len(lost) == 10
        app.blocks -= lost
        app.check()
