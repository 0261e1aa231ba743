# SPDX-License-Identifier: Apache-2.0
"""Copies of the data of stopped instances: what is copied, what returns, what is refused."""

import dataclasses
import errno
import os
import shutil
import threading
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import NamedTuple

import pytest

from tests.unit.plan_model import VOLUME, device
from vcache_agent import swapdata
from vcache_agent.datafile import Reader
from vcache_agent.mapfile import MapFileError
from vcache_agent.model import Device, DeviceNumber, Extent
from vcache_agent.netlink import spec
from vcache_agent.netlink.errors import NetlinkError
from vcache_agent.netlink.spec import CachedRun
from vcache_agent.swapdata import DataSettings, DataSwap

KEY, TAG, MIB = "disk:dm0:uuid:vda", 5, 1 << 20
SECTORS = 1 << 14
ON_FILES = dataclasses.replace(device(mode=spec.Mode.WRITEBACK), pool="254:9", volume=3,
                               sectors=SECTORS)
ON_VOLUME = dataclasses.replace(device(VOLUME, spec.Scope.VOLUME, spec.Mode.WRITEBACK),
                                pool="254:9", volume=3, sectors=SECTORS)


class Kernel:
    """The device with its cache; replaces netlink.client.Client.

    :param path: the device's data
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        self.path.write_bytes(os.urandom(SECTORS * 512))
        self.cache: dict[int, bytes] = {}
        self.heat: dict[int, int] = {}
        self.token = 0
        self.saved_blocks: set[int] = set()
        self.refuse: list[int] = []
        self.order: list[int] = []
        self.gate = threading.Event()
        self.gate.set()

    def __enter__(self) -> "Kernel":
        return self

    def __exit__(self, *_: object) -> None: ...

    def block(self, number: int) -> bytes:
        with self.path.open("rb") as file:
            file.seek(number * 4096)
            return file.read(4096)

    def read(self, numbers: Sequence[int], heat: int = 0) -> None:
        """Read blocks, so they are cached."""
        self.cache |= {number: self.block(number) for number in numbers}
        self.heat |= dict.fromkeys(numbers, heat)

    def write(self, number: int) -> bytes:
        data = os.urandom(4096)
        with self.path.open("r+b") as file:
            file.seek(number * 4096)
            file.write(data)
        self.saved_blocks.discard(number)
        return data

    def cached(self, _device: DeviceNumber, _tag: int) -> list[CachedRun]:
        return [CachedRun(number * 8, 8, self.heat[number]) for number in self.cache]

    def saved(self, _device: DeviceNumber, _tag: int, runs: Sequence[CachedRun] = (), *,
              begin: bool = False) -> int:
        assert list(runs) == sorted(runs) and len(runs) <= spec.PREFETCH_RUNS_MAX
        if begin:
            self.token = int.from_bytes(os.urandom(8), "little") | 1 if runs else 0
            self.saved_blocks.clear()
        for run in runs:
            self.saved_blocks |= set(range(run.start // 8, (run.start + run.len) // 8))
        return self.token

    def fill(self, _device: DeviceNumber, _tag: int, token: int, start: int, heat: int,
             data: bytes) -> None:
        self.gate.wait()
        if self.refuse:
            raise NetlinkError(self.refuse.pop(), "refused")
        if not token or token != self.token:
            raise NetlinkError(errno.ESTALE, "not known any more")
        assert len(data) <= spec.FILL_BLOCKS_MAX * 4096
        for at in range(0, len(data), 4096):
            number = (start * 512 + at) // 4096
            self.order.append(heat)
            if number in self.saved_blocks and number not in self.cache:
                self.cache[number] = data[at:at + 4096]


class World(NamedTuple):
    kernel: Kernel
    swap: DataSwap
    folder: Path


Make = Callable[..., World]


@pytest.fixture
def make(tmp_path: Path) -> Make:
    def made(**fields: object) -> World:
        kernel = Kernel(tmp_path / "device")
        folder = tmp_path / "swap"
        settings = dataclasses.replace(DataSettings(folder, 64 * MIB), **fields)  # type: ignore[arg-type]
        return World(kernel, DataSwap(
            settings, lambda: kernel,  # type: ignore[arg-type, return-value]
            lambda _: os.open(kernel.path, os.O_RDONLY)), folder)
    return made


def until(call: Callable[[], tuple[object, ...]], *ends: str) -> tuple[object, ...]:
    """Repeat a pass until it returns one of some states."""
    limit = time.monotonic() + 60
    while (found := call())[0] not in ends:
        assert time.monotonic() < limit, found
        time.sleep(0.005)
    return found


def out(world: World, on: Device = ON_FILES, released: float = 1.0) -> tuple[object, ...]:
    return until(lambda: world.swap.out(KEY, on, TAG, released), "copied", "refused", "off")


def back(world: World, extents: tuple[Extent, ...] | None = None) -> tuple[object, ...]:
    return until(lambda: world.swap.back(KEY, ON_FILES, TAG, extents), "ended", "none")


def test_data_returns_hottest_first_except_what_was_written(make: Make) -> None:
    world = make()
    world.kernel.read(range(300), 2)
    world.kernel.read(range(1000, 1100), 9)
    assert out(world) == ("copied", 400 * 4096, "")
    assert out(world) == ("copied", 400 * 4096, "")
    world.kernel.cache.clear()
    expected = {number: world.kernel.block(number) for number in world.kernel.heat}
    world.kernel.write(7)
    world.kernel.write(1050)
    assert back(world) == ("ended", 400 * 4096, 400 * 4096)
    assert world.kernel.cache == {number: data for number, data in expected.items()
                                  if number not in (7, 1050)}
    assert world.kernel.order == sorted(world.kernel.order, reverse=True)
    # The file and the kernel's session are not needed any more.
    assert list(world.folder.iterdir()) == [] and not world.kernel.token
    assert back(world) == ("none", 0, 0)


def test_only_blocks_of_the_disk_return(make: Make) -> None:
    world = make()
    world.kernel.read(range(100))
    out(world)
    world.kernel.cache.clear()
    back(world, (Extent(0, 80), Extent(404, 84)))
    assert world.kernel.cache.keys() == {*range(10), *range(51, 61)}


def test_after_a_restart_of_the_agent(make: Make) -> None:
    world = make()
    world.kernel.read(range(50))
    out(world)
    token, size = world.kernel.token, len(list(world.folder.iterdir()))
    again = make()._replace(kernel=world.kernel)
    fresh = DataSwap(DataSettings(world.folder, 64 * MIB), lambda: world.kernel,  # type: ignore[arg-type, return-value]
                     lambda _: os.open(world.kernel.path, os.O_RDONLY))
    again = again._replace(swap=fresh)
    assert out(again) == ("copied", 50 * 4096, "")
    assert world.kernel.token == token and size == 1
    # The next stop has its own file.
    out(again, released=2.0)
    assert world.kernel.token != token


def test_another_session_is_refused(make: Make, caplog: pytest.LogCaptureFixture) -> None:
    """As after a reboot, or on another host."""
    world = make()
    world.kernel.read(range(50))
    out(world)
    world.kernel.cache.clear()
    world.kernel.token = 0
    assert back(world)[:2] == ("ended", 0)
    assert "no longer knows which of its blocks were written" in caplog.text
    assert not world.kernel.cache and list(world.folder.iterdir()) == []


def test_a_session_that_ends_meanwhile(make: Make) -> None:
    world = make()
    world.kernel.read(range(50))
    out(world)
    world.kernel.cache.clear()
    world.kernel.refuse = [errno.ESTALE]
    assert back(world)[:2] == ("ended", 0)
    assert not world.kernel.cache


def test_a_damaged_file_of_another_disk_or_of_others(
        make: Make, caplog: pytest.LogCaptureFixture) -> None:
    world = make()
    path = world.swap.path(KEY)

    def refused(says: str) -> None:
        world.kernel.cache.clear()
        caplog.clear()
        assert back(world)[0] == "ended"
        assert says in caplog.text
        assert not world.kernel.cache and not path.exists()
        world.kernel.read(range(50))
        out(world, released=time.monotonic())

    world.kernel.read(range(50))
    out(world)
    os.truncate(path, 4096)
    refused("its length differs")
    with path.open("r+b") as file:
        file.seek(path.stat().st_size - 10)
        file.write(b"x" * 10)
    world.kernel.cache.clear()
    # Blocks before the damaged one are valid.
    back(world)
    assert "of its data is damaged" in caplog.text
    assert all(data == world.kernel.block(number) for number, data in world.kernel.cache.items())
    world.kernel.read(range(50))
    out(world, released=time.monotonic())
    shutil.copy(path, path.with_name(world.swap.path("disk:dm0:uuid:vdb").name))
    path.chmod(0o666)
    refused("others may write it")
    until(lambda: world.swap.back("disk:dm0:uuid:vdb", ON_FILES, TAG, None), "ended")
    assert "it belongs to another disk" in caplog.text


def test_limits(make: Make, monkeypatch: pytest.MonkeyPatch) -> None:
    world = make(most=0)
    world.kernel.read(range(50))
    assert out(world) == ("off", 0, "")
    world = make(most=MIB)
    world.kernel.read(range(50))
    out(world)
    world.kernel.read(range(100, 300))
    _, _, why = until(lambda: world.swap.out("disk:dm0:uuid:vdb", ON_FILES, 6, 1.0), "refused")
    assert why == "its 0 MiB do not fit beside the 0 MiB of other files; swap_mb is 1"
    world = make()
    world.kernel.read(range(50))
    usage = shutil.disk_usage("/")
    monkeypatch.setattr(shutil, "disk_usage", lambda _: usage._replace(
        free=usage.total // 20 + 4096))
    assert "less than a twentieth" in str(out(world, released=7.0)[2])
    assert [path.suffix for path in world.folder.iterdir()] == [".data"]


@pytest.mark.parametrize("volumes", [False, True])
def test_block_devices_only_if_allowed(make: Make, volumes: bool) -> None:
    world = make(volumes=volumes)
    world.kernel.read(range(50))
    assert out(world, ON_VOLUME)[0] == ("copied" if volumes else "off")


def test_a_stop_while_data_returns_and_a_start_while_it_is_copied(make: Make) -> None:
    world = make()
    world.kernel.read(range(600))
    out(world)
    world.kernel.cache.clear()
    world.kernel.gate.clear()
    assert world.swap.back(KEY, ON_FILES, TAG, None)[0] == "loading"
    # It is stopped: the return ends, and a new copy begins after it.
    world.swap.keep_only({KEY}, ())
    assert world.swap.out(KEY, ON_FILES, TAG, 2.0)[0] == "copying"
    world.kernel.gate.set()

    def passed() -> tuple[object, ...]:
        world.swap.keep_only({KEY}, ())
        return world.swap.out(KEY, ON_FILES, TAG, 2.0)

    until(passed, "copied")
    with Reader(world.swap.path(KEY)) as reader:
        assert reader.content.released == 2.0
    # It starts while another copy runs.
    world.swap._turn.acquire()
    assert world.swap.out(KEY, ON_FILES, TAG, 3.0)[0] == "copying"
    world.swap.keep_only((), {KEY})
    assert world.swap.back(KEY, ON_FILES, TAG, None) == ("loading", 0, 0)
    world.swap._turn.release()

    def started() -> tuple[object, ...]:
        world.swap.keep_only((), {KEY})
        return world.swap.back(KEY, ON_FILES, TAG, None)

    assert until(started, "ended")[0] == "ended"
    assert all(data == world.kernel.block(number) for number, data in world.kernel.cache.items())


def test_without_space_the_rest_is_given_up(make: Make, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(swapdata, "_PAUSE", 0.0)
    world = make()
    world.kernel.read(range(60))
    out(world)
    world.kernel.cache.clear()
    world.kernel.refuse = [errno.ENOSPC] * 3 + [errno.EBUSY] * 3
    assert back(world)[1] == 60 * 4096
    world.kernel.read(range(60))
    out(world, released=2.0)
    world.kernel.cache.clear()
    world.kernel.refuse = [errno.ENOSPC] * 1000
    assert back(world)[:2] == ("ended", 0)


def test_remains_are_removed(make: Make) -> None:
    world = make()
    world.folder.mkdir()
    for name in ("a.data", "b.data", "c.data.new"):
        (world.folder / name).touch()
    world.swap.sweep(frozenset({"a.map"}))
    assert [path.name for path in world.folder.iterdir()] == ["a.data"]
    world.swap.forget("a.map")
    world.swap.forget("a.map")
    assert list(world.folder.iterdir()) == []


def test_the_device_is_checked(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "open", lambda *_: os.dup(0))
    with pytest.raises(MapFileError, match="is not the device"):
        swapdata.open_device(ON_FILES)
