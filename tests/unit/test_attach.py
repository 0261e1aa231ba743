# SPDX-License-Identifier: Apache-2.0
"""Attach, detach and mode against a model of device mapper, killed at every step."""

import contextlib
import dataclasses
import errno
import itertools
import json
from collections.abc import Iterable, Iterator
from pathlib import Path

import pytest

from vcache_agent import attach, pools, tables
from vcache_agent.cmd import cli, pool_cli
from vcache_agent.dm import Dm as RealDm
from vcache_agent.dm import DmError, Info, Line, Lines, _reason
from vcache_agent.model import DeviceNumber
from vcache_agent.pools import Mapping, PoolError
from vcache_agent.store import Store

MAJOR = 999  # no such device on this host
TABLE = (Line(0, 100, "linear", "8:16 2048"), Line(100, 50, "linear", "8:32 0"))
MIB = 1 << 20


class Killed(BaseException):
    """The command was killed: nothing of it runs any more."""


@dataclasses.dataclass
class Device:
    """A mapped device of the model."""

    number: DeviceNumber
    uuid: str = ""
    live: Lines = ()
    loaded: Lines | None = None
    suspended: bool = False
    users: int = 0
    drain: bool = False
    state: str = ""
    unloadable: bool = False


class Kernel:
    """Mapped devices, pools and what is dirty in them."""

    def __init__(self) -> None:
        self.devices: dict[str, Device] = {}
        self.numbers = itertools.count()
        #: sectors that only the cache has, by volume
        self.volumes: dict[int, int] = {}
        self.refuse_resume: str = ""
        self.refuse_load: str = ""
        self.pool_status = "ok 2048 62 60 2 0 1 1 0 18.01 0 1 0 75 0 1 0 20"
        self.resized: int | None = None

    def add(self, name: str, *lines: Line, uuid: str = "", users: int = 0) -> Device:
        self.devices[name] = Device(DeviceNumber(MAJOR, next(self.numbers)), uuid, lines,
                                    users=users)
        return self.devices[name]

    def mapping(self, name: str) -> Mapping | None:
        live = self.devices[name].live
        return Mapping.parse(live[0]) if live and live[0].target == "vcache" else None


class Dm:
    """Stands in for dm.Dm; dies at a call."""

    def __init__(self, kernel: Kernel, die_at: int = 0) -> None:
        self.kernel = kernel
        self.calls = 0
        self.die_at = die_at

    def _step(self) -> None:
        self.calls += 1
        if self.die_at and self.calls >= self.die_at:
            raise Killed

    def _get(self, name: str) -> Device:
        self._step()
        if name not in self.kernel.devices:
            raise DmError(errno.ENXIO, "none")
        return self.kernel.devices[name]

    def _opened(self, device: Device) -> int:
        word = str(device.number)
        return device.users + sum(
            word in line.arguments.split() for other in self.kernel.devices.values()
            for line in (*other.live, *(other.loaded or ())))

    def names(self) -> list[str]:
        self._step()
        return list(self.kernel.devices)

    def info(self, device: str | DeviceNumber) -> Info | None:
        self._step()
        for name, found in self.kernel.devices.items():
            if device in (name, found.number):
                return Info(name, found.uuid, found.number, self._opened(found), found.suspended,
                            bool(found.live), found.loaded is not None, False)
        return None

    def create(self, name: str, uuid: str = "") -> None:
        self._step()
        self.kernel.add(name, uuid=uuid)

    def remove(self, name: str, event: int = 0) -> None:
        if self._opened(self._get(name)):
            raise DmError(errno.EBUSY, "busy")
        del self.kernel.devices[name]

    def load(self, name: str, lines: Iterable[Line]) -> None:
        device, lines = self._get(name), tuple(lines)
        if self.kernel.refuse_load and lines[0].target == self.kernel.refuse_load:
            raise DmError(errno.EINVAL, "refused")
        mapping = self.kernel.mapping(name)
        if mapping and mapping.mode == "writeback" and lines[0].target == "vcache" \
                and self.kernel.volumes[mapping.volume] and not device.drain \
                and Mapping.parse(lines[0]).mode != "writeback":
            raise DmError(errno.EBUSY, "send 'drain' first")
        device.loaded = lines

    def clear(self, name: str) -> None:
        self._get(name).loaded = None

    def suspend(self, name: str) -> None:
        self._settle(name)
        self._get(name).suspended = True

    def _settle(self, name: str) -> None:
        mapping = self.kernel.mapping(name)
        if mapping and mapping.pool and self._get(name).drain:
            self.kernel.volumes[mapping.volume] = 0

    def resume(self, name: str, event: int = 0) -> None:
        device = self._get(name)
        if device.loaded is not None:
            self._settle(name)
            self._put_in_force(name, device, device.loaded)
        elif device.unloadable:
            raise DmError(errno.EIO, "resume fails")
        device.suspended = False

    def _put_in_force(self, name: str, device: Device, lines: Lines) -> None:
        before = self.kernel.mapping(name)
        device.suspended, device.live, device.loaded = True, lines, None
        device.unloadable = lines[0].target == self.kernel.refuse_resume
        if device.unloadable:
            raise DmError(errno.EIO, "resume fails")
        after = self.kernel.mapping(name)
        if after and after.pool:
            self.kernel.volumes.setdefault(after.volume, 0)
        elif before and before.pool and device.state not in ("lost", "bypassed"):
            assert not self.kernel.volumes.get(before.volume), "data is only in the cache"
        device.drain = False

    def table(self, name: str, *, inactive: bool = False) -> Lines:
        device = self._get(name)
        return (device.loaded or ()) if inactive else device.live

    def status(self, name: str) -> Lines:
        device = self._get(name)
        if device.live[0].target == "vcache-pool":
            return (Line(0, 1, "vcache-pool", self.kernel.pool_status),)
        mapping = self.kernel.mapping(name)
        assert mapping
        text = f"{mapping.mode} volume fua 0 1 7 100 0 100 0 0"
        if mapping.pool and not device.unloadable:
            dirty = self.kernel.volumes[mapping.volume]
            if device.drain and device.state not in ("failing", "lost"):
                self.kernel.volumes[mapping.volume] = dirty // 4
            state = device.state or ("dirty" if dirty else "clean")
            text += f" cache {mapping.volume} {state} {dirty} 0 0 0"
        return (Line(0, 1, "vcache", text),)

    def message(self, name: str, text: str) -> None:
        device = self._get(name)
        verb, *words = text.split()
        if verb == "drain":
            device.drain = True
            return
        if at := {"reads_percent": 13, "hot_percent": 17}.get(verb):
            said = self.kernel.pool_status.split()
            self.kernel.pool_status = " ".join([*said[:at], words[0], *said[at + 1:]])
            return
        if verb == "resize":
            self.kernel.resized = int(words[0])
            return
        volume = int(words[0])
        if volume not in self.kernel.volumes:
            raise DmError(errno.ENOENT, "there is no such volume")
        users = [mapping for other in self.kernel.devices
                 if (mapping := self.kernel.mapping(other)) and mapping.volume == volume]
        if users or (self.kernel.volumes[volume] and len(words) == 1):
            raise DmError(errno.EBUSY, "the volume may have data that is only in the cache")
        del self.kernel.volumes[volume]


@pytest.fixture
def kernel(monkeypatch: pytest.MonkeyPatch) -> Kernel:
    monkeypatch.setattr("vcache_agent.attach._flush", lambda info: None)
    monkeypatch.setattr("vcache_agent.attach._memory_locked", contextlib.nullcontext)
    monkeypatch.setattr("vcache_agent.attach._LOOK", 0.0)
    monkeypatch.setattr("vcache_agent.attach._STALL", 0.05)
    monkeypatch.setattr("vcache_agent.attach._REMOVE", 0.05)
    made = Kernel()
    made.add("fast", Line(0, 1000, "vcache-pool", "8:48"))
    made.add("lv", *TABLE, uuid="LVM-abc", users=1)
    return made


@pytest.fixture
def store(tmp_path: Path) -> Iterator[Store]:
    made = Store(tmp_path / "s.sqlite")
    yield made
    made.close()


def as_dm(dm: Dm) -> RealDm:
    return dm  # type: ignore[return-value]


def do_attach(kernel: Kernel, store: Store, dm: Dm | None = None, device: str = "lv",
              scope: str | None = "volume 7", **options: object) -> str:
    return attach.attach(as_dm(dm or Dm(kernel)), store, device, "fast", scope=scope,
                         **options)  # type: ignore[arg-type]


def do_detach(kernel: Kernel, store: Store, dm: Dm | None = None, *, force: bool = False,
              said: list[str] | None = None) -> str:
    say = [] if said is None else said
    return attach.detach(as_dm(dm or Dm(kernel)), store, "lv", say.append, force=force)


def check_plain(kernel: Kernel) -> None:
    lv = kernel.devices["lv"]
    assert (lv.live, lv.loaded, lv.suspended) == (TABLE, None, False)
    assert list(kernel.devices) == ["fast", "lv"]


def check_attached(kernel: Kernel, mode: str = "writeback") -> None:
    lv, hidden = kernel.devices["lv"], kernel.devices["lv-vcorigin"]
    assert (lv.loaded, lv.suspended) == (None, False)
    assert lv.live == (Line(0, 150, "vcache", f"{mode} {hidden.number} volume 7 3 pool "
                            f"{kernel.devices['fast'].number} 1"),)
    assert hidden.live == TABLE
    assert not hidden.suspended


def test_there_and_back(kernel: Kernel, store: Store) -> None:
    assert "volume 1" in do_attach(kernel, store)
    check_attached(kernel)
    assert store.volumes("fast") == {"LVM-abc": 1}
    assert "already" in do_attach(kernel, store)
    kernel.volumes[1] = 4 * 2048
    said: list[str] = []
    do_detach(kernel, store, said=said)
    assert said == ["lv: 4.0 MiB left"]
    check_plain(kernel)
    assert not kernel.volumes
    assert not store.volumes("fast")
    with pytest.raises(PoolError, match="only a device that was attached"):
        do_detach(kernel, store)


def test_a_flush_only_device_needs_no_second_one(kernel: Kernel, store: Store) -> None:
    line = Line(0, 150, "vcache", "flush-only 8:16 filesystem 2 age_ms 100")
    kernel.devices["lv"].live = (line,)
    do_attach(kernel, store, scope=None, mode="writethrough")
    assert kernel.devices["lv"].live[0].arguments == (
        f"writethrough 8:16 filesystem 5 age_ms 100 pool {kernel.devices['fast'].number} 1")
    do_detach(kernel, store)
    assert kernel.devices["lv"].live == (line,)
    with pytest.raises(PoolError, match="keeps that"):
        do_attach(kernel, store, scope="volume 7")


def test_the_mode_changes_and_drains(kernel: Kernel, store: Store) -> None:
    do_attach(kernel, store)
    kernel.volumes[1] = 2048
    for mode in ("writethrough", "writeback", "writeback"):
        attach.change_mode(as_dm(Dm(kernel)), "lv", mode, lambda text: None)
        check_attached(kernel, mode)
    do_detach(kernel, store)
    with pytest.raises(PoolError, match="attach it to a pool first"):
        attach.change_mode(as_dm(Dm(kernel)), "lv", "writeback", lambda text: None)


@pytest.mark.parametrize(("lines", "options", "words"), [
    ([Line(0, 9, "crypt", "x")], {}, "crypt: allowed are linear, striped"),
    ([Line(0, 9, "vcache-pool", "8:48")], {}, "vcache-pool: allowed are"),
    (TABLE, {"scope": None}, "--tag N"),
    ([Line(0, 9, "vcache", "none 8:16 volume 7")], {}, "mode none"),
    (TABLE, {"device": "/nonexistent"}, "not a mapped device"),
    (TABLE, {"scope": "volume 9"}, "is that of other"),
])
def test_what_is_refused_leaves_all_as_it_was(kernel: Kernel, store: Store, lines: list[Line],
                                              options: dict[str, str], words: str) -> None:
    kernel.add("other", Line(0, 9, "vcache", "flush-only 8:64 volume 9"))
    kernel.devices["lv"].live = tuple(lines)
    with pytest.raises(PoolError, match=words):
        do_attach(kernel, store, **options)  # type: ignore[arg-type]
    assert kernel.devices["lv"].live == tuple(lines)
    assert "lv-vcorigin" not in kernel.devices
    assert not store.volumes("fast")


@pytest.mark.parametrize("which", ["refuse_load", "refuse_resume"])
def test_a_table_that_the_kernel_refuses(kernel: Kernel, store: Store, which: str) -> None:
    setattr(kernel, which, "vcache")
    with pytest.raises(PoolError, match="lv is as it was"):
        do_attach(kernel, store)
    check_plain(kernel)


def test_a_hidden_device_of_others_is_left_alone(kernel: Kernel, store: Store) -> None:
    kernel.add("lv-vcorigin", Line(0, 1, "linear", "8:16 0"))
    with pytest.raises(PoolError, match="not of this command"):
        do_attach(kernel, store)
    assert kernel.devices["lv"].live == TABLE


def test_what_another_program_does_is_left_alone(kernel: Kernel, store: Store) -> None:
    kernel.devices["lv"].loaded = (Line(0, 150, "linear", "8:80 0"),)
    with pytest.raises(PoolError, match="another program"):
        do_attach(kernel, store)
    kernel.devices["lv"].loaded = None
    kernel.devices["lv"].suspended = True
    with pytest.raises(PoolError, match="by another program"):
        do_attach(kernel, store)
    assert kernel.devices["lv"].suspended


def test_a_number_with_data_of_another_device_is_not_given(kernel: Kernel, store: Store) -> None:
    kernel.volumes = {1: 8, 3: 0}  # dirty, and of nobody that is known; clean
    store.remember_volume("fast", "LVM-other", 2)
    do_attach(kernel, store)
    assert store.volumes("fast") == {"LVM-other": 2, "LVM-abc": 3}
    do_detach(kernel, store)
    with pytest.raises(PoolError, match="noted for LVM-other"):
        do_attach(kernel, store, volume=2)
    with pytest.raises(PoolError, match="is not known.*--recover"):
        do_attach(kernel, store, volume=1)
    check_plain(kernel)
    do_attach(kernel, store, volume=1, recover=True)
    assert kernel.volumes[1] == 8


def test_after_a_start_of_the_host_a_device_has_its_cache_again(kernel: Kernel,
                                                                store: Store) -> None:
    store.remember_volume("fast", "LVM-abc", 5)
    kernel.volumes = {5: 16}
    with pytest.raises(PoolError, match="while nobody has it open"):
        do_attach(kernel, store)
    kernel.devices["lv"].users = 0
    do_attach(kernel, store)
    assert kernel.volumes == {5: 16}
    kernel.devices["lv"].users = 1
    do_detach(kernel, store)
    check_plain(kernel)


def test_a_detach_at_an_origin_that_refuses(kernel: Kernel, store: Store) -> None:
    do_attach(kernel, store)
    kernel.volumes[1] = 2048
    kernel.devices["lv"].state = "failing"
    with pytest.raises(PoolError, match=r"refuses writes, 1\.0 MiB"):
        do_detach(kernel, store)
    check_attached(kernel)
    kernel.devices["lv"].state = ""
    do_detach(kernel, store)
    check_plain(kernel)


@pytest.mark.parametrize("flush_only", [False, True])
def test_a_detach_from_a_cache_that_has_failed(kernel: Kernel, store: Store,
                                               flush_only: bool) -> None:
    plain: Lines = TABLE
    if flush_only:
        plain = (Line(0, 150, "vcache", "flush-only 8:16 volume 7"),)
        kernel.devices["lv"].live = plain
    do_attach(kernel, store)
    kernel.volumes[1] = 2048
    kernel.devices["lv"].state = "lost"
    with pytest.raises(PoolError, match=r"failed with 1\.0 MiB.*--force"):
        do_detach(kernel, store)
    do_detach(kernel, store, force=True)
    assert kernel.devices["lv"].live == plain
    assert list(kernel.devices) == ["fast", "lv"]
    # It is not the device's any more, should the cache come back.
    assert not store.volumes("fast")


def test_a_bypassed_volume_is_not_the_devices_any_more(kernel: Kernel, store: Store) -> None:
    """The cache comes back after a restart of the host: its old data is not taken."""
    do_attach(kernel, store)
    assert pools.disown_bypassed(as_dm(Dm(kernel)), store) == []
    kernel.devices["lv"].state = "bypassed"
    assert pools.disown_bypassed(as_dm(Dm(kernel)), store) == [("lv", "fast", 1)]
    assert not store.volumes("fast")
    assert pools.disown_bypassed(as_dm(Dm(kernel)), store) == []
    # Until it has been looked at, it may have data.
    kernel.volumes[1] = 8
    kernel.devices["lv"].state = ""
    kernel.devices["lv"].live = TABLE
    do_attach(kernel, store)
    assert store.volumes("fast") == {"LVM-abc": 2}


def test_a_pool_that_lies_on_the_device(kernel: Kernel, store: Store) -> None:
    kernel.devices["fast"].live = (Line(0, 9, "vcache-pool", str(kernel.devices["lv"].number)),)
    with pytest.raises(PoolError, match="lies on lv"):
        do_attach(kernel, store)


@pytest.mark.parametrize("then", ["attach", "detach"])
def test_attach_is_killed_at_each_step(kernel: Kernel, store: Store, then: str) -> None:
    for step in range(1, 200):
        dm = Dm(kernel, step)
        try:
            do_attach(kernel, store, dm)
            done = True
        except Killed:
            done = False
        assert not kernel.devices["lv"].suspended
        if then == "attach":
            do_attach(kernel, store)
            check_attached(kernel)
        attached = kernel.mapping("lv") is not None
        if attached or then == "attach":
            do_detach(kernel, store)
        else:
            # Nothing is attached: it says so, and clears away what was left.
            left = "lv-vcorigin" in kernel.devices
            if left:
                assert "removed" in do_detach(kernel, store)
            else:
                with pytest.raises(PoolError, match="no cache"):
                    do_detach(kernel, store)
        check_plain(kernel)
        if done:
            break
    assert 15 < step < 199


def test_a_table_that_does_not_resume_and_a_kill(kernel: Kernel, store: Store) -> None:
    """The one moment at which a kill leaves the device suspended: the next call wakes it."""
    suspended = 0
    for step in range(1, 200):
        kernel.refuse_resume = "vcache"
        try:
            do_attach(kernel, store, Dm(kernel, step))
        except PoolError:
            break
        except Killed:
            pass
        suspended += kernel.devices["lv"].suspended
        if kernel.mapping("lv"):
            # It still does not resume: the former table is put back.
            with pytest.raises(PoolError):
                do_attach(kernel, store)
            check_plain(kernel)
        kernel.refuse_resume = ""
        do_attach(kernel, store)
        check_attached(kernel)
        do_detach(kernel, store)
    assert suspended
    check_plain(kernel)


@pytest.mark.parametrize("then", ["attach", "detach"])
def test_detach_is_killed_at_each_step(kernel: Kernel, store: Store, then: str) -> None:
    for step in range(1, 200):
        do_attach(kernel, store)
        kernel.volumes[1] = 2048
        try:
            do_detach(kernel, store, Dm(kernel, step))
            break
        except Killed:
            pass
        if then == "attach":
            do_attach(kernel, store)
            check_attached(kernel)
        elif kernel.mapping("lv") or "lv-vcorigin" in kernel.devices:
            do_detach(kernel, store)
            check_plain(kernel)
    assert 15 < step < 199
    check_plain(kernel)


def test_a_mode_change_is_killed_at_each_step(kernel: Kernel, store: Store) -> None:
    do_attach(kernel, store)
    for step in range(1, 100):
        kernel.volumes[1] = 2048
        try:
            attach.change_mode(as_dm(Dm(kernel, step)), "lv", "writethrough", lambda text: None)
            break
        except Killed:
            pass
        for mode in ("writethrough", "writeback"):
            attach.change_mode(as_dm(Dm(kernel)), "lv", mode, lambda text: None)
            check_attached(kernel, mode)
    assert 5 < step < 99


def test_a_line_is_read_as_the_kernel_shows_it() -> None:
    for text in ("flush-only 8:0 filesystem", "none 8:0 volume 7", "flush-only 8:0 volume 9 2 "
                 "age_ms 5", "writeback 8:0 filesystem 3 pool 254:1 4294967295",
                 "writethrough 8:0 volume 7 5 age_ms 100 pool 254:1 3"):
        line = Line(0, 8, "vcache", text)
        assert Mapping.parse(line).line() == line


@pytest.mark.parametrize(("text", "reason"), [
    ("device-mapper: table: 254:9: vcache-pool: preresume failed, error = -22", ""),
    ("device-mapper: table: 254:0: vcache: cannot open the origin device (-ENOENT)",
     "cannot open the origin device"),
    ("device-mapper: vcache: lv: cannot flush the origin: error -5",
     "cannot flush the origin: error -5"),
    ("device-mapper: ioctl: error adding target to table", "")])
def test_the_kernels_reason(text: str, reason: str) -> None:
    assert _reason(text) == reason


def test_no_pool_and_its_users(kernel: Kernel, store: Store) -> None:
    with pytest.raises(PoolError, match="pools of this host: fast"):
        attach.attach(as_dm(Dm(kernel)), store, "lv", "lv", scope="volume 7")
    do_attach(kernel, store)
    with pytest.raises(PoolError, match="used by lv"):
        pools.remove(as_dm(Dm(kernel)), "fast")
    (found,) = pools.pools(as_dm(Dm(kernel)))
    assert (found.state, found.chunk_bytes, found.chunks) == ("ok", MIB, 62)
    (member,) = pools.members(as_dm(Dm(kernel)), found)
    assert member.cache and member.cache.volume == 1
    do_detach(kernel, store)
    assert "as it was" in pools.remove(as_dm(Dm(kernel)), "fast")


def test_a_pool_is_tuned(kernel: Kernel, monkeypatch: pytest.MonkeyPatch,
                         capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setattr(pool_cli, "_mapper", lambda: contextlib.nullcontext(Dm(kernel)))
    (found,) = pools.pools(as_dm(Dm(kernel)))
    assert (found.reads, found.reads_percent) == (1, 75)
    assert cli.main(["pool", "set", "fast", "--reads-percent", "20"]) == 0
    assert capsys.readouterr().out == "pool fast: reads_percent 20, was 75\n"
    assert cli.main(["pool", "list", "--json"]) == 0
    (row,) = json.loads(capsys.readouterr().out)["pools"]
    assert (row["read_bytes"], row["reads_percent"]) == (MIB, 20)
    assert cli.main(["pool", "set", "fast", "--reads-percent", "30", "--hot-percent", "100"]) == 0
    assert capsys.readouterr().out == \
        "pool fast: reads_percent 30, was 20; hot_percent 100, was 20\n"
    (found,) = pools.pools(as_dm(Dm(kernel)))
    assert (found.reads_percent, found.hot_percent) == (30, 100)
    assert cli.main(["pool", "set", "slow", "--reads-percent", "20"]) != 0
    assert "pools of this host: fast" in capsys.readouterr().err


def test_a_pool_is_resized(kernel: Kernel, monkeypatch: pytest.MonkeyPatch,
                           capsys: pytest.CaptureFixture[str]) -> None:
    """To shrink takes a while: the command says what is left, and waits if it is to."""
    def look(_seconds: float) -> None:
        said = kernel.pool_status.split()
        kernel.pool_status = " ".join([*said[:14], str(max(int(said[14]) - 3, 0))])

    monkeypatch.setattr(pool_cli, "_mapper", lambda: contextlib.nullcontext(Dm(kernel)))
    monkeypatch.setattr("vcache_agent.pools.time.sleep", look)
    assert cli.main(["pool", "resize", "fast"]) == 0
    assert (kernel.resized, capsys.readouterr().out) == (
        0, "pool fast: 62 chunks of 1024 KiB, was 62\n")
    kernel.pool_status = " ".join([*kernel.pool_status.split()[:14], "5"])
    assert cli.main(["pool", "resize", "fast", "3G", "--no-wait"]) == 0
    assert kernel.resized == 6 << 20
    assert capsys.readouterr().out.endswith("; 5 have still to go\n")
    assert cli.main(["pool", "list", "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["pools"][0]["leaving_bytes"] == 5 * MIB
    assert cli.main(["pool", "resize", "fast", "1000000"]) == 0
    assert kernel.resized == 1953
    first, second, last = capsys.readouterr().out.splitlines()
    assert "5 chunks have to go" in first
    assert "2 chunks have to go" in second
    assert last == "pool fast: 62 chunks of 1024 KiB, was 62"
    assert cli.main(["pool", "resize", "fast", "511"]) != 0
    assert "at least a sector" in capsys.readouterr().err


def test_volumes_that_are_not_in_use_can_hold_up_a_shrink(kernel: Kernel) -> None:
    said: list[str] = []
    kernel.pool_status = "ok 2048 62 60 2 0 3 1 0 18.01 0 1 0 75 4"

    def say(text: str) -> None:
        said.append(text)
        kernel.pool_status = kernel.pool_status[:-1] + "0"

    pools.resize(as_dm(Dm(kernel)), "fast", None, say)
    assert "2 volumes that are not in use" in said[0]


def test_an_older_module_does_not_resize(kernel: Kernel) -> None:
    kernel.pool_status = "ok 2048 62 60 2 0 1 1 0 18.01 0 1 0 75"
    with pytest.raises(PoolError, match="too old"):
        pools.resize(as_dm(Dm(kernel)), "fast", None, print)
    assert kernel.resized is None


def test_an_older_module_is_told_nothing_when_it_does_not_know_all(kernel: Kernel) -> None:
    kernel.pool_status = "ok 2048 62 60 2 0 1 1 0 18.01 0 1 0 75"
    with pytest.raises(PoolError, match="too old to change hot_percent"):
        pools.tune(as_dm(Dm(kernel)), "fast", {"reads_percent": 10, "hot_percent": 10})
    assert kernel.pool_status.endswith(" 75")


def test_a_module_that_does_not_say_what_is_read(kernel: Kernel) -> None:
    kernel.pool_status = "ok 2048 62 60 2 0 1 1 0 18.01"
    (found,) = pools.pools(as_dm(Dm(kernel)))
    assert (found.free, found.reads, found.reads_percent) == (60, None, None)


@pytest.mark.parametrize("arguments", [
    "attach lv", "attach lv --pool fast --mode none", "attach lv --pool fast --tag 0",
    "attach lv --pool fast --tag 7 --filesystem", "attach lv --pool fast --volume 4294967296",
    "pool", "pool create fast", "pool create fast sdb --chunk-kib 100", "pool set fast",
    "pool set fast --reads-percent 101", "pool resize", "pool resize fast 0",
    "pool resize fast -1", "pool resize fast 5X", "pool resize fast G",
    "pool resize fast 10000000000000000000", "pool resize fast 9999999999T",
    "pool create fast sdb --reads-percent -1", "pool set fast --hot-percent 101",
    "pool create fast sdb --chunk-kib 32", "pool drop fast 0", "mode lv flush-only", "detach"])
def test_wrong_usage(arguments: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as ended:
        cli.main(arguments.split())
    assert ended.value.code == 2
    assert "usage: vcache" in capsys.readouterr().err


@pytest.mark.parametrize("arguments", [
    "attach lv --pool fast --tag 7", "pool create fast sdb", "pool list", "detach lv",
    "mode lv writeback", "pool drop fast 1", "pool set fast --reads-percent 0"])
def test_without_the_module(arguments: str, capsys: pytest.CaptureFixture[str],
                            monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr("vcache_agent.cmd.pool_cli._MODULE", tmp_path / "none")
    assert cli.main(arguments.split()) == 3
    assert "modprobe dm-vcache" in capsys.readouterr().err


def test_one_command_at_a_time(tmp_path: Path) -> None:
    with pool_cli._store(tmp_path / "s.sqlite"), \
            pytest.raises(PoolError, match="another attach"), \
            pool_cli._store(tmp_path / "s.sqlite"):
        pass


def test_pools_for_people() -> None:
    member = {"name": "lv", "device": "254:1", "volume": 3, "mode": "writeback", "state": "dirty",
              "dirty_bytes": 5 << 20, "cache_errors": 0}
    text = tables.pools([{
        "name": "fast", "device": "254:0", "cache_device": "nvme0n1", "state": "ok",
        "chunk_bytes": MIB, "size_bytes": 62 * MIB, "free_bytes": 60 * MIB, "used_bytes": 2 * MIB,
        "dirty_bytes": 2 * MIB, "lanes_bytes": [40 * MIB, 22 * MIB], "volumes": 1,
        "members": [member]}])
    assert [line.split()[-2:] for line in text.splitlines()[:2]] == [
        ["LANES", "VOLUMES"], ["2", "1"]]
    assert "nvme0n1" in text and "62.0 MiB" in text and "5.0 MiB" in text
    assert tables.pools([]) == "no pool"
