# SPDX-License-Identifier: Apache-2.0
"""The commands attach, detach, mode and pool: devices in use, kills, a bad cache."""

import contextlib
import io
import json
import os
import signal
import threading
import traceback
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.box.steps import at_end
from tests.kernel import dm as test_dm
from tests.kernel import stack
from tests.kernel.disk import SECTOR, Disk, pattern
from tests.kernel.stack import Mapped, linear, mapped, null_blk, vcache_table
from tests.kernel.test_filesystems import check_filesystem, make_filesystem, mounted
from tests.kernel.test_suspend import Writer
from vcache_agent import attach, pools
from vcache_agent.cmd import cli
from vcache_agent.dm import Dm
from vcache_agent.netlink.client import Client
from vcache_agent.netlink.spec import Mode
from vcache_agent.pools import PoolError
from vcache_agent.store import Store

POOL = "fast"


@pytest.fixture
def dm() -> Iterator[Dm]:
    """Give the agent's device mapper."""
    with Dm() as made:
        yield made


@pytest.fixture
def store(tmp_path: Path) -> Iterator[Store]:
    """Give a store."""
    made = Store(tmp_path / "s.sqlite")
    yield made
    made.close()


@pytest.fixture
def volume() -> Iterator[Mapped]:
    """Give a "logical volume" on two disks."""
    with null_blk(32) as one, null_blk(32) as two:
        size = stack.sectors(one)
        with mapped(f"0 {size} linear {one} 0\n{size} {size} linear {two} 0",
                    stack.unique("vg-lv")) as device:
            yield device


def read_from_device(path: Path) -> bytes:
    """Return a file's data on its device, not in the page cache."""
    with path.open("rb") as file:
        os.fsync(file.fileno())
        os.posix_fadvise(file.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)
        return file.read()


@contextlib.contextmanager
def pool_on(dm: Dm, path: str) -> Iterator[Mapped]:
    """Create a pool with the functions of the agent; all users must be gone at the end."""
    pools.create(dm, POOL, path, 64)
    with at_end(pools.remove, dm, POOL):
        yield Mapped(POOL)


@pytest.fixture
def pool(dm: Dm) -> Iterator[Mapped]:
    """Give an empty pool."""
    with null_blk(discard=True) as path, pool_on(dm, path) as made:
        yield made


@contextlib.contextmanager
def writing(path: str) -> Iterator[Writer]:
    """Write to and read from a device all the time; an error fails the test."""
    writer = Writer(path)
    writer.start()
    try:
        writer.goes_on()
        yield writer
    except BaseException:
        writer._stop_asked.set()
        raise
    writer.goes_on()
    writer.finish()


def silent(text: str) -> None:
    """Ignore messages."""


def hidden_names() -> list[str]:
    return [name for name in test_dm.names() if name.endswith(attach.SUFFIX)]


def vcache(folder: Path, *arguments: str, status: int = 0) -> str:
    """Run the command; return its output."""
    state = ["--state", str(folder / "cli.sqlite")] if arguments[0] != "pool" else []
    out, errors = io.StringIO(), io.StringIO()
    # In this process: Python takes most of a minute to start in the box.
    with contextlib.redirect_stdout(out), contextlib.redirect_stderr(errors):
        ended = cli.main([*arguments, *state])
    assert ended == status, (arguments, ended, out.getvalue(), errors.getvalue())
    return errors.getvalue() if status else out.getvalue()


class FileWriter(threading.Thread):
    """Writes files on a file system, syncs them, and stores their required contents."""

    def __init__(self, folder: Path) -> None:
        super().__init__()
        self._folder = folder
        self.files: dict[Path, bytes] = {}
        self.problem = ""
        self.stop = threading.Event()

    def run(self) -> None:
        turn = 0
        try:
            while not self.stop.is_set():
                path = self._folder / f"file{turn % 7}"
                data = pattern(turn, 200 + turn % 100)
                with open(path, "wb") as file:
                    file.write(data)
                    file.flush()
                    os.fsync(file.fileno())
                self.files[path] = data
                turn += 1
        except OSError as error:
            self.problem = repr(error)

    def goes_on(self) -> None:
        before = dict(self.files)
        assert stack.wait_until(lambda: self.problem != "" or self.files != before)
        assert not self.problem

    def finish(self) -> None:
        self.stop.set()
        self.join(60)
        assert not self.is_alive(), "stuck"
        assert not self.problem


def test_the_commands_under_a_mounted_file_system(volume: Mapped, tmp_path: Path) -> None:
    before = volume.table()
    make_filesystem("ext4", volume.path)
    with null_blk(discard=True) as cache:
        assert "62 chunks" in vcache(tmp_path, "pool", "create", POOL, cache)
        with mounted(volume, "ext4") as folder:
            writer = FileWriter(folder)
            writer.start()
            writer.goes_on()
            assert "volume 1" in vcache(tmp_path, "attach", volume.path, "--pool", POOL,
                                        "--filesystem")
            assert volume.table().split()[2:4] == ["vcache", "writeback"]
            writer.goes_on()
            shown = json.loads(vcache(tmp_path, "pool", "list", "--json"))["pools"][0]
            assert (shown["name"], shown["state"]) == (POOL, "ok")
            assert shown["members"][0]["name"] == volume.name
            assert volume.name in vcache(tmp_path, "pool", "list")
            assert "detach them first" in vcache(tmp_path, "pool", "remove", POOL, status=1)
            vcache(tmp_path, "mode", volume.name, "writethrough")
            assert volume.table().split()[3] == "writethrough"
            writer.goes_on()
            vcache(tmp_path, "mode", volume.name, "writeback")
            writer.goes_on()
            vcache(tmp_path, "detach", volume.name)
            assert volume.table() == before
            writer.goes_on()
            writer.finish()
            for path, data in writer.files.items():
                assert read_from_device(path) == data
        vcache(tmp_path, "pool", "remove", POOL)
    assert hidden_names() == []
    check_filesystem("ext4", volume.path)


@pytest.mark.parametrize(("options", "sizes"), [
    (("--lanes", "1"), [62]), (("--lanes", "3"), [21, 21, 20]),
    (("--lane", "16M", "--lane", "8M"), [16, 8, 38]), ((), [62])])
def test_a_pool_has_the_lanes_that_are_asked_for(
        volume: Mapped, client: Client, tmp_path: Path, options: tuple[str, ...],
        sizes: list[int]) -> None:
    """Each has its reported size, for a tag without other chunks."""
    with null_blk(discard=True) as cache:
        vcache(tmp_path, "pool", "create", POOL, cache, *options)
        (row,) = json.loads(vcache(tmp_path, "pool", "list", "--json"))["pools"]
        assert [size >> 20 for size in row["lanes_bytes"]] == sizes
        vcache(tmp_path, "attach", volume.path, "--pool", POOL, "--tag", "5")
        if len(sizes) > 1:
            lane, size = len(sizes) - 1, row["lanes_bytes"][-1]
            client.tag_set(volume.number, 5, cache_lanes=1 << lane, cache_max=size)
            with Disk(volume.path) as disk:
                for at in range(0, 48 << 11, 1 << 11):
                    disk.write(at, pattern(at, 1 << 11))
                disk.flush()
            (tag,) = (tag for tag in client.tags(volume.number) if tag.id == 5)
            assert size // 2 < tag.cached_bytes == tag.cache_own_bytes <= size
        vcache(tmp_path, "detach", volume.name)
        vcache(tmp_path, "pool", "remove", POOL)


def test_lanes_that_are_too_small_are_refused(tmp_path: Path) -> None:
    with null_blk(discard=True) as cache:
        said = vcache(tmp_path, "pool", "create", POOL, cache, "--lanes", "40", status=1)
        assert "a lane must have at least four chunks" in said
        assert json.loads(vcache(tmp_path, "pool", "list", "--json")) == {"pools": []}


@pytest.mark.smp
def test_again_and_again_under_io(dm: Dm, store: Store, volume: Mapped, pool: Mapped,
                                  client: Client) -> None:
    before = volume.table()
    with writing(volume.path) as writer:
        for mode in ("writeback", "writethrough", "writeback"):
            attach.attach(dm, store, volume.path, POOL, mode=mode, scope="volume 7")
            writer.goes_on()
            assert client.tag(volume.number, 7).mode is Mode[mode.upper()]
            attach.detach(dm, store, volume.path, silent)
            assert volume.table() == before
            assert stack.pool_status(pool).volumes == 0
            writer.goes_on()
        assert hidden_names() == []


def test_what_only_the_cache_has_is_on_the_origin_after_a_detach(
        dm: Dm, store: Store, volume: Mapped, pool: Mapped) -> None:
    attach.attach(dm, store, volume.name, POOL, scope="volume 7")
    data = pattern(5, 16384)
    with Disk(volume.path) as disk:
        disk.write(0, data)
        disk.flush()
        assert stack.cache_status(volume).dirty
        attach.detach(dm, store, volume.name, silent)
        assert disk.read(0, 16384) == data
    assert "vcache" not in volume.table()


@pytest.mark.box
def test_a_flush_only_device_gets_a_cache_and_keeps_its_tags(
        dm: Dm, store: Store, origin: str, pool: Mapped, client: Client) -> None:
    with stack.vcache(origin, "filesystem", age_ms=1000) as device, writing(device.path) as writer:
        before = device.table()
        client.tag_set(device.number, 5, name="five", weight=50)
        attach.attach(dm, store, device.name, POOL)
        assert client.tag(device.number, 5).name == "five"
        client.tag_set(device.number, 5, mode=Mode.WRITETHROUGH)
        for mode in ("writethrough", "writeback"):
            attach.change_mode(dm, device.name, mode, silent)
            writer.goes_on()
        attach.detach(dm, store, device.name, silent)
        assert device.table() == before
        assert client.tag(device.number, 5).name == "five"


def break_all(device: Mapped) -> None:
    """Make all requests fail."""
    device.swap(f"0 {stack.sectors(device.path)} error")


@contextlib.contextmanager
def cache_below(dm: Dm) -> Iterator[Mapped]:
    """Provide a cache device that can be broken, with a pool on it."""
    with null_blk(discard=True) as path, mapped(linear(path)) as below, pool_on(dm, below.path):
        yield below


def test_a_write_through_cache_that_fails_is_no_error(dm: Dm, store: Store,
                                                      volume: Mapped) -> None:
    before = volume.table()
    with cache_below(dm) as below, writing(volume.path) as writer:
        attach.attach(dm, store, volume.name, POOL, mode="writethrough", scope="volume 7")
        writer.goes_on()
        break_all(below)
        assert stack.wait_until(lambda: stack.cache_status(volume).state == "bypassed")
        writer.goes_on()
        with pytest.raises(PoolError, match="has failed"):
            attach.change_mode(dm, volume.name, "writeback", silent)
        attach.detach(dm, store, volume.name, silent)
        assert volume.table() == before
        assert hidden_names() == []


def test_a_write_back_cache_that_fails_is_not_given_up_unasked(dm: Dm, store: Store,
                                                               volume: Mapped) -> None:
    before = volume.table()
    with cache_below(dm) as below:
        attach.attach(dm, store, volume.name, POOL, scope="volume 7")
        with Disk(volume.path) as disk:
            disk.write(0, pattern(1, 64), fua=True)
            break_all(below)

            def lost() -> bool:
                with contextlib.suppress(OSError):
                    disk.write(1024, pattern(2, 8), fua=True)
                return stack.cache_status(volume).state == "lost"

            assert stack.wait_until(lost)
            with pytest.raises(PoolError, match="--force"):
                attach.detach(dm, store, volume.name, silent)
            assert volume.table().split()[2] == "vcache"
            attach.detach(dm, store, volume.name, silent, force=True)
            assert volume.table() == before
            disk.write(0, pattern(3, 64), fua=True)
            assert disk.read(0, 64) == pattern(3, 64)
    assert hidden_names() == []


def test_a_cache_that_is_broken_already(dm: Dm, store: Store, volume: Mapped) -> None:
    """The resume fails: the former table is active again, and no request has failed."""
    before = volume.table()
    with cache_below(dm) as below, writing(volume.path) as writer:
        break_all(below)
        for _ in range(3):
            with pytest.raises(PoolError):
                attach.attach(dm, store, volume.name, POOL, scope="volume 7")
            assert volume.table() == before
            writer.goes_on()
        assert hidden_names() == []


def test_a_detach_waits_for_an_origin_that_refuses(dm: Dm, store: Store, pool: Mapped, origin: str,
                                                   monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(attach, "_STALL", 2.0)
    with mapped(linear(origin)) as below, mapped(linear(below.path)) as device:
        before = device.table()
        attach.attach(dm, store, device.name, POOL, scope="volume 7")
        with Disk(device.path) as disk:
            disk.write(0, pattern(1, 64), fua=True)
        break_all(below)
        with pytest.raises(PoolError, match="refuses writes"):
            attach.detach(dm, store, device.name, silent)
        assert stack.cache_status(device).dirty == 64
        below.swap(linear(origin))
        attach.detach(dm, store, device.name, silent)
        assert device.table() == before
        with Disk(origin) as disk:
            assert disk.read(0, 64) == pattern(1, 64)


class Deadly(Dm):
    """Kills its own process at a call."""

    left = 0

    def _call(self, *arguments: Any, **options: Any) -> Any:
        Deadly.left -= 1
        if Deadly.left < 0:
            os.kill(os.getpid(), signal.SIGKILL)
        return super()._call(*arguments, **options)


def killed_at(step: int, work: Callable[[Dm, Store], object], path: Path) -> bool:
    """Run a function in a process that is killed at a step; return whether it was."""
    child = os.fork()
    if not child:
        status = 1
        try:
            Deadly.left = step
            store = Store(path)
            with Deadly() as deadly:
                work(deadly, store)
            status = 0
        except BaseException:
            traceback.print_exc()
        finally:
            os._exit(status)
    _, status = os.waitpid(child, 0)
    assert os.WIFSIGNALED(status) or os.WEXITSTATUS(status) == 0
    return os.WIFSIGNALED(status)


def do_attach(dm: Dm, store: Store, volume: Mapped) -> None:
    attach.attach(dm, store, volume.name, POOL, scope="volume 7")


def do_detach(dm: Dm, store: Store, volume: Mapped) -> None:
    attach.detach(dm, store, volume.name, silent)


def test_attach_killed_at_every_step(dm: Dm, store: Store, volume: Mapped, pool: Mapped,
                                     tmp_path: Path) -> None:
    before = volume.table()
    with writing(volume.path) as writer:
        for step in range(1, 200):
            went = killed_at(step, lambda a, b: do_attach(a, b, volume), tmp_path / "s.sqlite")
            writer.goes_on()
            do_attach(dm, store, volume)
            assert volume.table().split()[2] == "vcache"
            assert len(hidden_names()) == 1
            do_detach(dm, store, volume)
            assert volume.table() == before
            assert hidden_names() == []
            if not went:
                break
        assert 15 < step < 199


def test_detach_killed_at_every_step(dm: Dm, store: Store, volume: Mapped, pool: Mapped,
                                     tmp_path: Path) -> None:
    before = volume.table()
    with writing(volume.path) as writer:
        for step in range(1, 200):
            do_attach(dm, store, volume)
            went = killed_at(step, lambda a, b: do_detach(a, b, volume), tmp_path / "s.sqlite")
            if hidden_names():
                do_detach(dm, store, volume)
            assert volume.table() == before
            assert hidden_names() == []
            writer.goes_on()
            if not went:
                break
        assert 15 < step < 199


def test_a_cache_goes_on_after_a_restart(dm: Dm, store: Store, volume: Mapped) -> None:
    """As after a power cut of the host: the device is attached before it is opened."""
    data = pattern(9, 64)
    before = volume.table()
    with null_blk(discard=True) as cache:
        with pool_on(dm, cache):
            do_attach(dm, store, volume)
            with Disk(volume.path) as disk:
                disk.write(0, data, fua=True)
            # The device loses its table without a drain, like in a power cut.
            volume.swap(before)
            test_dm.remove(hidden_names()[0])
        with pool_on(dm, cache):
            with Disk(volume.path) as disk:
                assert disk.read(0, 64) == bytes(64 * SECTOR)
                with pytest.raises(PoolError, match="close it first"):
                    do_attach(dm, store, volume)
            do_attach(dm, store, volume)
            with Disk(volume.path) as disk:
                assert disk.read(0, 64) == data
            do_detach(dm, store, volume)
            with Disk(volume.path) as disk:
                assert disk.read(0, 64) == data


def test_what_is_refused(dm: Dm, store: Store, volume: Mapped, pool: Mapped, origin: str) -> None:
    before = volume.table()
    with mapped(f"0 {stack.sectors(origin)} delay {origin} 0 0") as slow:
        with pytest.raises(PoolError, match="delay, must be one of linear, striped"):
            attach.attach(dm, store, slow.name, POOL, scope="volume 7")
        with pytest.raises(PoolError, match="not a mapped device"):
            attach.attach(dm, store, origin, POOL, scope="volume 7")
    with mapped(vcache_table(origin, "volume 7")) as other, \
            pytest.raises(PoolError, match=f"the tag of {other.name}"):
        attach.attach(dm, store, volume.name, POOL, scope="volume 7")
    with Disk(origin) as disk:
        disk.write(0, b"\1" * SECTOR)
    with pytest.raises(PoolError, match="no pool on .*zeroes"):
        pools.create(dm, "other", origin, None)
    with pytest.raises(PoolError, match="already exists"):
        pools.create(dm, POOL, origin, None)
    with pytest.raises(PoolError, match="no volume 5"):
        pools.drop(dm, store, POOL, 5, force=False)
    assert volume.table() == before
    assert sorted(test_dm.names()) == sorted([POOL, volume.name])
