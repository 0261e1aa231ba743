# SPDX-License-Identifier: Apache-2.0
"""nginx as a consumer: the file system on a model of device mapper, and what nginx itself does."""

import errno
import os
import signal
import time
from collections.abc import Sequence
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.box.limits import Deadline
from tests.libvssd import build
from tests.unit.nginx_server import web
from vcache_guest import nginx
from vcache_guest.blocks import Ranges, count, normal, without
from vcache_guest.dm import DmError, Line
from vcache_guest.libvssd import Info
from vcache_guest.nginx import WITHOUT, Nginx, WebCache, guarded
from vcache_guest.protocol import Range
from vcache_guest.volume import FullError, Volume, VolumeError

MIB = 1 << 20
BLOCK = 2048


class Mapper:
    """Device mapper, and the file system on it."""

    def __init__(self) -> None:
        self.tables: dict[str, list[Line]] = {}
        self.loaded: dict[str, list[Line]] = {}
        self.calls: list[tuple[str, ...]] = []
        #: Size of the file system in bytes, and what it needs at least.
        self.size, self.need = 0, 0
        self.busy: set[str] = set()
        self.refuse = ""

    def path(self, name: str) -> str:
        return f"/dev/{name}"

    def names(self) -> list[str]:
        return list(self.tables)

    def create(self, name: str) -> None:
        assert name not in self.tables
        self.tables[name] = []

    def remove(self, name: str, *, deferred: bool = False) -> None:
        assert deferred
        if name not in self.busy:
            del self.tables[name]

    def load_lines(self, name: str, lines: Sequence[Line]) -> None:
        if self.refuse:
            raise DmError(errno.ENOMEM, self.refuse)
        self.loaded[name] = list(lines)

    def suspend(self, name: str, *, sync: bool = True) -> None:
        # A file system that has lost blocks must not write first.
        assert sync == (self.loaded[name][0].target == "linear")

    def resume(self, name: str) -> None:
        self.tables[name] = self.loaded.pop(name)
        if self.tables[name][0].target == "linear" and self.size:
            assert self.length(name) >= self.size, "the file system is larger than its device"

    def length(self, name: str) -> int:
        return sum(line.length for line in self.tables[name]) * 512

    def run(self, *words: str) -> None:
        self.calls.append(words)
        if words[0] == "mkfs.btrfs":
            self.size = self.length(words[-1].removeprefix("/dev/"))
        elif words[0] == "umount":
            self.size = 0

    def resize(self, folder: str, size: str) -> None:
        [name] = [name for name, lines in self.tables.items() if lines[0].target == "linear"]
        if size != "max" and int(size) < self.need:
            raise OSError(errno.ENOSPC, "No space left on device")
        self.size = self.length(name) if size == "max" else int(size)

    def reachable(self) -> Ranges:
        """Return the blocks that requests can reach."""
        found = []
        for lines in self.tables.values():
            at = 0
            for line in lines:
                assert line.start == at
                at += line.length
                if line.target == "linear":
                    disk, first = line.arguments.split()
                    assert disk == "/dev/vdb"
                    found.append(Range(int(first) // BLOCK, line.length // BLOCK))
        assert count(normal(found)) == sum(one.blocks for one in found)
        return normal(found)


@pytest.fixture
def mapper() -> Mapper:
    return Mapper()


def volume_on(mapper: Mapper, tmp_path: Path) -> Volume:
    made = Volume(mapper, "web", str(tmp_path / "cache"), mapper.run, mapper.resize)
    made.disk("/dev/vdb", MIB)
    return made


def test_a_file_system_begins_when_there_is_room_for_it(mapper: Mapper, tmp_path: Path) -> None:
    volume = volume_on(mapper, tmp_path)
    volume.grow((Range(800, 200),))
    assert not volume.mounted
    assert mapper.calls == []
    volume.grow((Range(700, 56), Range(790, 10)))
    assert volume.mounted
    assert [words[0] for words in mapper.calls] == ["mkfs.btrfs", "mount"]
    assert mapper.reachable() == (Range(700, 56), Range(790, 210))
    volume.grow((Range(0, 100),))
    assert mapper.size == 366 * MIB
    assert len(mapper.calls) == 2


def test_what_is_given_up_cannot_be_reached(mapper: Mapper, tmp_path: Path) -> None:
    volume = volume_on(mapper, tmp_path)
    volume.grow((Range(700, 300),))
    volume.grow((Range(100, 50), Range(200, 50)))
    given = volume.shrink(70)
    assert given == (Range(130, 20), Range(200, 50))
    assert mapper.reachable() == (Range(100, 30), Range(700, 300))
    assert mapper.size == 330 * MIB
    # With too much data, nothing changes.
    mapper.need = 320 * MIB
    with pytest.raises(FullError, match="cannot shrink to 310 blocks: No space left"):
        volume.shrink(20)
    assert volume.size == 330
    # With too few blocks there is no file system.
    assert count(volume.shrink(100)) == 100
    assert not volume.mounted
    assert mapper.reachable() == ()
    assert volume.size == 230
    volume.grow((Range(100, 50),))
    assert volume.mounted


@pytest.mark.parametrize("busy", [True, False])
def test_a_file_system_that_loses_blocks_begins_again(mapper: Mapper, tmp_path: Path,
                                                      busy: bool) -> None:
    volume = volume_on(mapper, tmp_path)
    volume.grow((Range(600, 400),))
    if busy:
        mapper.busy.add("web-0")
    volume.lose((Range(900, 100),))
    assert mapper.reachable() == (Range(600, 300),)
    assert ("umount", "--lazy", volume.folder) in mapper.calls
    if busy:
        # Somebody still reads files of the old one, which fails.
        assert [line.target for line in mapper.tables["web-0"]] == ["error"]
        assert "web-1" in mapper.tables
    volume.lose((Range(600, 290),))
    assert not volume.mounted
    assert volume.size == 10
    volume.clean()
    assert mapper.reachable() == ()


def test_blocks_that_may_still_be_written_are_kept(mapper: Mapper, tmp_path: Path) -> None:
    volume, server = volume_on(mapper, tmp_path), Server()
    cache = WebCache(volume, server)
    cache.grant((Range(600, 400),))
    mapper.refuse = "no memory"
    with pytest.raises(VolumeError, match="web-0: .*no memory"):
        cache.forced((Range(900, 100),))
    assert volume.mounted
    with pytest.raises(VolumeError, match="web-0: .*no memory"):
        cache.close()
    mapper.refuse = ""
    cache.close()
    assert mapper.reachable() == ()


def test_the_rest_is_kept_without_a_file_system_if_there_cannot_be_one(
        mapper: Mapper, tmp_path: Path, caplog: pytest.LogCaptureFixture,
        monkeypatch: pytest.MonkeyPatch) -> None:
    volume = volume_on(mapper, tmp_path)
    volume.grow((Range(600, 400),))

    def refuse(name: str) -> None:
        raise DmError(errno.ENOMEM, name)

    monkeypatch.setattr(mapper, "create", refuse)
    # Nothing uses the lost blocks, so this is not an error.
    volume.lose((Range(900, 100),))
    assert "cannot use 300 blocks" in caplog.text
    assert volume.size == 300
    assert not volume.mounted
    assert mapper.reachable() == ()


def test_what_cannot_be_removed_does_not_keep_the_rest(mapper: Mapper, tmp_path: Path,
                                                       monkeypatch: pytest.MonkeyPatch) -> None:
    volume, load = volume_on(mapper, tmp_path), mapper.load_lines
    for number in range(3):
        mapper.tables[f"web-{number}"] = [Line(0, BLOCK, "linear", f"/dev/vdb {number * BLOCK}")]

    def refuse(name: str, lines: Sequence[Line]) -> None:
        if name != "web-2":
            raise DmError(errno.ENOMEM, "busy")
        load(name, lines)

    monkeypatch.setattr(mapper, "load_lines", refuse)
    with pytest.raises(VolumeError, match="web-0: .*busy; web-1: .*busy"):
        volume.clean()
    assert mapper.reachable() == (Range(0, 2),)


def test_an_error_of_device_mapper_is_reported(mapper: Mapper, tmp_path: Path) -> None:
    volume = volume_on(mapper, tmp_path)
    volume.grow((Range(600, 400),))
    mapper.refuse = "no memory"
    with pytest.raises(VolumeError, match="no memory"):
        volume.shrink(10)
    # The file system is smaller, and the blocks are kept.
    assert volume.size == 400
    with pytest.raises(VolumeError, match="cannot use 410 blocks: .*no memory"):
        volume.grow((Range(0, 10),))


@settings(max_examples=60)
@given(st.lists(st.tuples(st.sampled_from(("grow", "shrink", "lose")), st.integers(0, 999),
                          st.integers(1, 400)), max_size=12))
def test_only_what_is_held_can_be_reached(steps: list[tuple[str, int, int]]) -> None:
    mapper = Mapper()
    volume = Volume(mapper, "web", "/nowhere/cache", mapper.run, mapper.resize)
    volume._run = lambda *words: None if words[0] == "mount" else mapper.run(*words)
    volume.folder = "/tmp"  # noqa: S108 - it exists
    volume.disk("/dev/vdb", MIB)
    held: Ranges = ()
    for kind, first, blocks in steps:
        one = (Range(first, blocks),)
        if kind == "grow":
            new = without(one, held)
            held = normal((*held, *new))
            volume.grow(new)
        elif kind == "shrink":
            given = volume.shrink(min(blocks, volume.size))
            assert count(given) == min(blocks, count(held))
            held = without(held, given)
        else:
            held = without(held, one)
            volume.lose(one)
        assert normal(volume.order) == held
        assert mapper.reachable() == (held if volume.mounted else ())
        assert volume.mounted == (count(held) >= 256)


class Server:
    """Notes the limits."""

    def __init__(self) -> None:
        self.limits: list[int] = []

    def limit(self, mib: int) -> None:
        self.limits.append(mib)


def test_nginx_evicts_before_blocks_are_given_up(mapper: Mapper, tmp_path: Path,
                                                 monkeypatch: pytest.MonkeyPatch) -> None:
    used, now = [390 * MIB], [100.0]
    monkeypatch.setattr(Volume, "used", lambda _: used[0])
    volume, server, given = volume_on(mapper, tmp_path), Server(), list[Ranges]()
    cache = WebCache(volume, server, lambda: now[0])
    cache.give = given.append
    cache.ready(Info(MIB, 1000, "/dev/vdb"))
    cache.grant((Range(600, 400),))
    assert server.limits == [280]
    cache.reclaim(100, 60)
    assert server.limits == [280, 210]
    assert not given
    # nginx evicts for some time. It is not told more while that goes on.
    for used[0] in range(390 * MIB, 240 * MIB, -10 * MIB):
        now[0] += 1
        cache.step()
    assert server.limits == [280, 210]
    used[0], mapper.need = 230 * MIB, 310 * MIB
    for _ in range(20):
        # Each second counts once.
        now[0] += 0.25
        cache.step()
        assert server.limits == [280, 210]
    now[0] += 1
    cache.step()
    # btrfs needs more than it uses: nginx has to evict more.
    assert server.limits == [280, 210, 189]
    assert cache.busy
    mapper.need = 0
    cache.step()
    assert not given
    now[0] += 1
    cache.step()
    assert given == [(Range(900, 100),)]
    assert server.limits == [280, 210, 189, 210]
    assert not cache.busy
    # A request that is over.
    used[0] = 290 * MIB
    cache.reclaim(40, None)
    cache.reclaim(0, None)
    assert server.limits[-2:] == [182, 210]
    cache.step()
    assert len(given) == 1
    # Too few blocks are left.
    cache.reclaim(100, 60)
    assert given[1:] == [(Range(800, 100),)]
    assert server.limits[-1] == WITHOUT
    cache.grant((Range(0, 100),))
    cache.forced((Range(50, 20),))
    assert server.limits[-1] == int(280 * 0.7)
    assert mapper.reachable() == (Range(0, 50), Range(70, 30), Range(600, 200))
    cache.close()
    assert server.limits[-1] == WITHOUT
    assert mapper.reachable() == ()


class Connection:
    """A connection on which nothing arrives."""

    def __init__(self) -> None:
        self._reader, self._writer = os.pipe()

    def fileno(self) -> int:
        return self._reader

    def give(self, ranges: Ranges) -> None:
        """Give up blocks."""


def _catches(process: int, number: signal.Signals) -> bool:
    """Return whether a process has a handler of a signal."""
    lines = Path(f"/proc/{process}/status").read_text().splitlines()
    caught = next(line.split()[1] for line in lines if line.startswith("SigCgt"))
    return bool(int(caught, 16) >> (number - 1) & 1)


@pytest.mark.parametrize(("number", "status"), [(signal.SIGTERM, 0), (signal.SIGKILL, 1)])
def test_a_process_that_is_killed_leaves_no_file_system(
        mapper: Mapper, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, number: signal.Signals,
        status: int) -> None:
    volume = volume_on(mapper, tmp_path)
    volume.grow((Range(600, 400),))
    cache = WebCache(volume, Server())
    children: list[int] = []
    real = os.fork

    def fork() -> int:
        child = real()
        if child:
            children.append(child)
            # Not before it listens to signals.
            deadline = Deadline(60)
            while not _catches(child, signal.SIGTERM):
                assert not deadline.passed()
                time.sleep(0.01)
            os.kill(child, number)
        return child

    monkeypatch.setattr(os, "fork", fork)
    before = {one: signal.getsignal(one) for one in (signal.SIGTERM, signal.SIGINT)}
    try:
        assert guarded(Connection(), cache, volume) == status  # type: ignore[arg-type]
    finally:
        for one, handler in before.items():
            signal.signal(one, handler)
    assert mapper.reachable() == ()


def test_it_does_not_end_before_nothing_can_write(
        mapper: Mapper, tmp_path: Path, monkeypatch: pytest.MonkeyPatch,
        caplog: pytest.LogCaptureFixture) -> None:
    """vcache-guest gives the blocks to others when the processes have ended."""
    volume = volume_on(mapper, tmp_path)
    volume.grow((Range(600, 400),))
    looks = []

    def wait(seconds: float) -> None:
        looks.append(seconds)
        assert mapper.reachable() == (Range(600, 400),)
        if len(looks) == 3:
            mapper.refuse = ""

    mapper.refuse = "no memory"
    monkeypatch.setattr(time, "sleep", wait)
    nginx._clean(volume)
    assert looks == [1.0] * 3
    assert len(caplog.records) == 1
    assert "no memory; trying again" in caplog.text
    assert mapper.reachable() == ()


def test_without_vcache_guest_it_ends_with_the_reason(
        mapper: Mapper, tmp_path: Path, monkeypatch: pytest.MonkeyPatch,
        caplog: pytest.LogCaptureFixture) -> None:
    monkeypatch.setattr(nginx, "Dm", lambda: mapper)
    mapper.tables["vcache-nginx-7"] = [Line(0, 9 * BLOCK, "linear", f"/dev/vdb {5 * BLOCK}")]
    words = [f"--{name}={tmp_path / name}" for name in ("folder", "config", "pid", "socket")]
    assert nginx.main([*words, "--library", str(build.library())]) == 1
    assert "No such file or directory" in caplog.text
    # What an earlier one has left is removed, and sites may refer to the cache.
    assert mapper.reachable() == ()
    assert f"max_size={WITHOUT}m" in (tmp_path / "config").read_text()


def test_without_nginx_its_configuration_waits(tmp_path: Path) -> None:
    server = Nginx(str(tmp_path / "vcache.conf"), str(tmp_path / "nginx.pid"), "/srv/cache")
    server.limit(77)
    text = (tmp_path / "vcache.conf").read_text()
    assert "proxy_cache_path /srv/cache levels=1:2 keys_zone=vcache:16m max_size=77m" in text
    (tmp_path / "nginx.pid").write_text("garbage")
    server.limit(78)


def test_nginx_keeps_what_fits_into_a_smaller_cache(tmp_path: Path) -> None:
    (tmp_path / "cache").mkdir()
    with web(tmp_path, tmp_path / "cache", 40) as server:
        assert server.hits(range(30)) == 0
        assert server.hits(range(30)) == 30
        server.nginx.limit(10)
        deadline = Deadline(120)
        while server.files() > 10:
            assert not deadline.passed()
            time.sleep(0.1)
        # The last ones that were used are there.
        assert server.hits(range(25, 30)) == 5
        server.nginx.limit(40)
        assert server.hits(range(25, 30)) == 5
        server.hits(range(100, 130))
        assert server.files() > 15
