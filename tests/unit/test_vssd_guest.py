# SPDX-License-Identifier: Apache-2.0
"""The guest of an elastic SSD, on a model of device mapper.

The model has the rules of dm-cache that matter: the size is read when a table is loaded, a shrink
with dirty blocks is refused, and only the policy cleaner makes blocks clean.
"""

import contextlib
import errno
import os
import select
import socket
import threading
from pathlib import Path

import pytest

from vcache_guest.cache import Cache, CacheError, Geometry, parse_status
from vcache_guest.daemon import Daemon, find_disk
from vcache_guest.dm import DmError, Line
from vcache_guest.guest import Guest
from vcache_guest.protocol import (
    Call,
    Decoder,
    Deflate,
    Done,
    Forced,
    Give,
    Hello,
    Inflate,
    Message,
    Range,
    Welcome,
    encode,
)

MIB = 1 << 20
BLOCK = 2048  # sectors
MOST = 100


class Model:
    """Device mapper with dm-cache."""

    def __init__(self) -> None:
        self.tables: dict[str, Line] = {}
        self.loaded: dict[str, Line] = {}
        self.suspended: set[str] = set()
        self.dirty = 0
        self.metadata = 0  # blocks that the metadata has
        self.loaded_fast = 0
        self.refuse = ""
        self.vssd: Path | None = None

    def exists(self, name: str) -> bool:
        return name in self.tables

    def path(self, name: str) -> str:
        assert name in self.tables
        return f"/dev/{name}"

    def create(self, name: str) -> None:
        assert name not in self.tables
        self.tables[name] = Line(0, 0, "", "")

    def remove(self, name: str) -> None:
        used = [other for other, line in self.tables.items() if f"/dev/{name}" in line.arguments]
        assert not used, f"{name} is used by {used}"
        del self.tables[name]

    def load(self, name: str, length: int, target: str, arguments: str) -> None:
        self.loaded[name] = Line(0, length, target, arguments)
        if target == "cache":
            self.loaded_fast = self.fast()
            if self.vssd is not None and self.vssd.read_bytes()[:4096] == bytes(4096):
                self.metadata = self.dirty = 0  # it makes new metadata

    def suspend(self, name: str) -> None:
        self.suspended.add(name)

    def resume(self, name: str) -> None:
        line = self.loaded.pop(name, None)
        if line is not None:
            self.suspended.add(name)
            try:
                self.activate(name, line)
            finally:
                # Also one that is refused: the device stays suspended with it.
                self.tables[name] = line
        self.suspended.discard(name)

    def activate(self, name: str, line: Line) -> None:
        if self.refuse and self.refuse in name:
            self.refuse = ""
            raise DmError(errno.EINVAL, "refused")
        if line.target == "cache":
            blocks = self.fast() // 128
            assert self.loaded_fast == self.fast(), "the table was loaded before the size changed"
            if blocks < self.metadata and self.dirty:
                raise DmError(errno.EINVAL, "unable to shrink cache; a block is dirty")
            self.metadata = blocks
            if " cleaner " in line.arguments:
                assert " writethrough " in line.arguments
                self.dirty = max(self.dirty - 5, 0)
        elif name.endswith("-fast") and line.length < self.tables[name].length:
            assert "c" in self.suspended, "the cache runs on a device that shrinks"

    def fast(self) -> int:
        return self.tables["c-fast"].length

    def status(self, name: str) -> Line:
        line = self.tables[name]
        if " cleaner " in line.arguments:
            self.dirty = max(self.dirty - 5, 0)
        used = min(7, self.metadata)
        return line if line.target != "cache" else Line(
            0, line.length, "cache",
            f"8 33/1280 128 {used}/{self.metadata} 1 2 3 4 0 0 {self.dirty} 2 metadata2 "
            "writethrough 2 migration_threshold 2048 smq 0 rw - ")

    def table(self, name: str) -> Line:
        return self.tables[name]


@pytest.fixture
def model() -> Model:
    return Model()


@pytest.fixture
def disks(tmp_path: Path) -> tuple[str, str]:
    """Give an origin and an elastic SSD."""
    for name, size in ("origin", 64 * MIB), ("vssd", MOST * MIB):
        with (tmp_path / name).open("wb") as file:
            file.truncate(size)
    return str(tmp_path / "origin"), str(tmp_path / "vssd")


def cache_on(model: Model, disks: tuple[str, str], *, size: int = 50,
             writeback: bool = False) -> Cache:
    cache = Cache(model, "c", disks[0], writeback=writeback)
    cache.open()
    assert model.tables["c"].target == "linear"
    cache.attach(disks[1], MIB, MOST, size)
    return cache


def test_the_metadata_is_in_front_and_never_moves(model: Model, disks: tuple[str, str]) -> None:
    geometry = Geometry.of(MIB, MOST)
    assert geometry.meta == 5
    cache = cache_on(model, disks)
    for size in (50, 100, 6, 30):
        cache.resize(size)
        assert model.tables["c-meta"] == Line(0, 5 * BLOCK, "linear", f"{disks[1]} 0")
        assert model.tables["c-fast"] == Line(0, (size - 5) * BLOCK, "linear",
                                              f"{disks[1]} {5 * BLOCK}")
        assert model.metadata == (size - 5) * 16
        assert not model.suspended


def test_too_few_blocks_are_no_cache(model: Model, disks: tuple[str, str]) -> None:
    cache = cache_on(model, disks, size=5)
    assert cache.status() is None
    assert set(model.tables) == {"c"}
    cache.resize(20)
    assert cache.status() == (240, 7, 1, 2, 3, 4, 0)
    cache.resize(3)
    assert cache.status() is None
    assert set(model.tables) == {"c"}
    assert cache.size == 3


@pytest.mark.parametrize("writeback", [False, True])
def test_dirty_blocks_are_written_before_a_shrink(model: Model, disks: tuple[str, str],
                                                  writeback: bool) -> None:
    cache = cache_on(model, disks, writeback=writeback)
    model.dirty = 23
    cache.resize(20)
    assert model.dirty == 0
    mode = "writeback" if writeback else "writethrough"
    assert f"128 2 metadata2 {mode} smq 0" in model.tables["c"].arguments
    # To grow, nothing has to be clean.
    model.dirty = 23
    cache.resize(40)
    assert model.dirty == 23


def test_a_shrink_that_takes_too_long_changes_nothing(model: Model,
                                                      disks: tuple[str, str]) -> None:
    cache = cache_on(model, disks, writeback=True)
    model.dirty = 10_000
    with pytest.raises(CacheError, match="blocks are still dirty after 0.1 s"):
        cache.resize(20, 0.1)
    assert cache.size == 50
    assert model.fast() == 45 * BLOCK
    assert " writeback smq " in model.tables["c"].arguments
    assert not model.suspended


@pytest.mark.parametrize("size", [20, 80])
@pytest.mark.parametrize("device", ["c-fast", "c"])
def test_a_refused_change_is_undone(model: Model, disks: tuple[str, str], size: int,
                                    device: str) -> None:
    cache = cache_on(model, disks)
    model.refuse = device
    with pytest.raises(CacheError, match=f"cannot use {size} blocks"):
        cache.resize(size)
    assert cache.size == 50
    assert model.fast() == 45 * BLOCK
    assert model.tables["c"].target == "cache"
    assert not model.suspended
    cache.resize(size)
    assert cache.size == size


def test_a_new_daemon_finds_the_cache_of_the_last_one(model: Model,
                                                      disks: tuple[str, str]) -> None:
    cache_on(model, disks)
    again = Cache(model, "c", disks[0])
    again.open()
    again.attach(disks[1], MIB, MOST, 30)
    assert again.size == 30
    assert model.fast() == 25 * BLOCK


def test_a_cache_that_cannot_be_used_starts_empty_if_the_origin_has_all(
        model: Model, disks: tuple[str, str]) -> None:
    with Path(disks[1]).open("r+b") as file:
        file.write(b"x" * 8192)
    model.metadata, model.dirty, model.vssd = 95 * 16, 1, Path(disks[1])
    for writeback in (True, False):
        cache = Cache(model, "c", disks[0], writeback=writeback)
        cache.open()
        if writeback:
            with pytest.raises(CacheError, match="may have the only copy of data"):
                cache.attach(disks[1], MIB, MOST, 30)
            assert Path(disks[1]).read_bytes()[:4] == b"xxxx"
            continue
        cache.attach(disks[1], MIB, MOST, 30)
        assert cache.size == 30
        assert Path(disks[1]).read_bytes()[:8192] == bytes(4096) + b"x" * 4096


@pytest.mark.parametrize("text", ["Fail", "Error", "8 1/2 128"])
def test_a_failed_cache_is_an_error(text: str) -> None:
    with pytest.raises(CacheError, match="dm-cache has failed"):
        parse_status(text)


class Consumer:
    """Notes what a guest asks of its cache."""

    def __init__(self) -> None:
        self.size, self.calls, self.fails = 0, list[tuple[object, ...]](), False

    def attach(self, vssd: str, block_bytes: int, most: int, size: int) -> None:
        self.calls.append(("attach", vssd, block_bytes, most, size))
        self.size = size

    def resize(self, size: int, seconds: float = float("inf")) -> None:
        self.calls.append(("resize", size))
        if self.fails:
            raise CacheError("dirty")
        self.size = size

    def drop(self, *, wiped: bool) -> None:
        self.calls.append(("drop", wiped))
        self.size = 0


@pytest.fixture
def consumer() -> Consumer:
    return Consumer()


@pytest.fixture
def guest(consumer: Consumer) -> Guest:
    return Guest(consumer, lambda serial: f"/dev/{serial}", bytes(16))


WELCOME = Welcome(MIB, MOST, 50, False, "disk")
HELLO = Hello(1, 1, bytes(16))


def said(guest: Guest, message: Message) -> list[Message]:
    return list(guest.received(message))


def test_a_guest_does_nothing_before_it_is_welcome(guest: Guest, consumer: Consumer) -> None:
    assert guest.hello() == HELLO
    for message in Inflate(1, 5), Deflate(1, 5, 0), Forced(1, False, (Range(1, 1),)), Done(1, 1):
        assert said(guest, message) == []
    assert consumer.calls == []
    assert not guest.welcome
    # What is behind its size may have been taken before the host was restarted.
    assert said(guest, WELCOME) == [Give(0, False, (Range(50, 50),))]
    assert guest.welcome
    assert consumer.calls == [("attach", "/dev/disk", MIB, MOST, 50)]


def test_a_guest_follows_the_host(guest: Guest, consumer: Consumer) -> None:
    said(guest, WELCOME)
    assert said(guest, Inflate(1, 80)) == [Done(1, 80)]
    assert said(guest, Deflate(2, 30, 1000)) == [Give(2, False, (Range(30, 50),)), Done(2, 30)]
    assert said(guest, Deflate(3, 30, 1000)) == [Done(3, 30)]
    assert said(guest, Inflate(4, 101)) == []
    assert consumer.size == 30


def test_a_guest_that_cannot_shrink_gives_nothing(guest: Guest, consumer: Consumer) -> None:
    said(guest, WELCOME)
    consumer.fails = True
    assert said(guest, Deflate(1, 30, 0)) == []
    # It drops its cache when the host has taken the blocks, and gives them up.
    lost = (Range(30, 20),)
    assert said(guest, Forced(1, True, lost)) == []
    assert said(guest, Forced(1, False, (Range(90, 1),))) == [
        Give(0, False, (*lost, Range(90, 1))), HELLO]
    assert consumer.calls[-2:] == [("resize", 30), ("drop", False)]


@pytest.mark.parametrize("first", [0, 49])
def test_blocks_taken_from_the_middle_end_the_cache(guest: Guest, consumer: Consumer,
                                                    first: int) -> None:
    said(guest, WELCOME)
    lost = (Range(first, 1),)
    assert said(guest, Forced(1, False, lost)) == [Give(0, False, lost), HELLO]
    # The first block has the superblock, and reads as zeroes when it is given up.
    assert consumer.calls[-1] == ("drop", first == 0)
    assert not guest.welcome
    # The host answers when the blocks can be written again.
    said(guest, WELCOME)
    assert consumer.calls[-1] == ("attach", "/dev/disk", MIB, MOST, 50)


def test_a_second_welcome_is_a_change_of_the_size(guest: Guest, consumer: Consumer) -> None:
    said(guest, WELCOME)
    assert said(guest, Welcome(MIB, MOST, 20, False, "disk")) == [Give(0, False, (Range(20, 80),))]
    assert consumer.calls[-1] == ("resize", 20)


def test_nothing_is_given_up_before_the_cache_has_shrunk(guest: Guest,
                                                         consumer: Consumer) -> None:
    """What is given up reads as zeroes: the cache would return these as data."""
    said(guest, WELCOME)
    answers = guest.received(Welcome(MIB, MOST, 20, False, "disk"))
    assert isinstance(next(answers), Give)
    assert consumer.size == 20
    consumer.fails = True
    assert said(guest, Welcome(MIB, MOST, 10, False, "disk")) == []


def test_a_host_that_comes_back_is_greeted(guest: Guest, consumer: Consumer) -> None:
    assert said(guest, Call()) == [HELLO]
    said(guest, WELCOME)
    assert said(guest, Call()) == [HELLO]
    assert not guest.welcome
    assert said(guest, Inflate(1, 80)) == []
    said(guest, WELCOME)
    assert consumer.calls[1:] == [("resize", 50)]


def test_a_cache_that_is_dropped_starts_empty(model: Model, disks: tuple[str, str]) -> None:
    cache = cache_on(model, disks)
    with Path(disks[1]).open("r+b") as file:
        file.write(b"x" * 8192)
    for wiped in (True, False):
        cache.drop(wiped=wiped)
        assert set(model.tables) == {"c"}
        assert cache.size == 0
        assert Path(disks[1]).read_bytes()[:4096] == (b"x" if wiped else b"\0") * 4096
        cache.attach(disks[1], MIB, MOST, 30)
    with pytest.raises(CacheError, match="may have had the only copy of data"):
        Cache(model, "d", disks[0], writeback=True).drop(wiped=True)


def test_the_daemon_speaks_over_a_stream(guest: Guest) -> None:
    host, channel = socket.socketpair()
    reader, writer = os.pipe()
    with host, channel:
        thread = threading.Thread(target=Daemon(guest, channel.fileno()).run, args=(reader,))
        thread.start()
        decoder, found = Decoder(), list[Message]()

        def hear(count: int) -> None:
            while len(found) < count:
                assert select.select([host], [], [], 60)[0]
                found.extend(decoder.feed(host.recv(65536)))

        hear(1)
        data = encode(WELCOME) + encode(Deflate(1, 20, 5))
        host.sendall(b"VSSD old bytes" + data[:50])
        host.sendall(data[50:])
        hear(4)
        assert found == [Hello(1, 1, bytes(16)), Give(0, False, (Range(50, 50),)),
                         Give(1, False, (Range(20, 30),)), Done(1, 20)]
        os.write(writer, b"x")
        thread.join(60)
        assert not thread.is_alive()
    os.close(reader)
    os.close(writer)


def test_the_daemon_ends_with_the_channel(guest: Guest) -> None:
    host, channel = socket.socketpair()
    host.shutdown(socket.SHUT_WR)
    with host, channel:
        assert Daemon(guest, channel.fileno()).run()


def test_the_daemon_stops_while_nobody_reads(guest: Guest) -> None:
    """As at a port to which nothing is connected on the host."""
    host, channel = socket.socketpair()
    reader, writer = os.pipe()
    with host, channel:
        channel.setblocking(False)
        with contextlib.suppress(BlockingIOError):
            while True:
                channel.send(bytes(4096))
        os.write(writer, b"x")
        assert not Daemon(guest, channel.fileno()).run(reader)
    os.close(reader)
    os.close(writer)


def test_the_disk_is_found_by_its_serial_number(tmp_path: Path) -> None:
    for name, serial in ("vda", "one"), ("vdb", "two\n"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "serial").write_text(serial)
    (tmp_path / "loop0").mkdir()
    assert find_disk("two", tmp_path) == "/dev/vdb"
    with pytest.raises(CacheError, match="no disk has the serial number 'three'"):
        find_disk("three", tmp_path)
