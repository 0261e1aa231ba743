# SPDX-License-Identifier: Apache-2.0
"""Caches of stopped disks: when they are released, and that they are restored unchanged."""

import dataclasses
import errno
import tempfile
from collections.abc import Sequence
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from nova_vcache.extra_specs import Mode
from tests.unit.plan_model import (
    FILES,
    VOLUME,
    Host,
    device,
    disk,
    layer,
    over,
    unknown,
    uuid,
)
from vcache_agent import swap
from vcache_agent.mapfile import MapFolder, SavedMap
from vcache_agent.model import Device, DeviceNumber, DiskState, Extent, Location, Tag
from vcache_agent.netlink import spec
from vcache_agent.netlink.errors import NetlinkError
from vcache_agent.netlink.spec import CachedRun

AFTER = 600.0
# The key of the list of vm().
LIST = f"disk:dm0:{uuid(1)}:vda"
MIB = 1 << 20
ON_FILES = dataclasses.replace(device(mode=spec.Mode.WRITEBACK), pool="254:9", volume=3)
ON_VOLUME = dataclasses.replace(device(VOLUME, spec.Scope.VOLUME, spec.Mode.WRITEBACK),
                                pool="254:9", volume=4)


class Killed(BaseException):
    """The agent was killed."""


class Cache:
    """The tags of the kernel; replaces netlink.client.Client.

    :param kill: number of calls until the agent is killed in one, before or after its effect
    """

    def __init__(self) -> None:
        self.clean: dict[int, int] = {}
        self.dirty: set[int] = set()
        self.waiting: list[CachedRun] = []
        self.refuses = 0
        self.asked: list[tuple[CachedRun, ...]] = []
        self.kill: int | None = None

    def __enter__(self) -> "Cache":
        return self

    def __exit__(self, *_: object) -> None: ...

    def _moment(self) -> None:
        if self.kill is not None:
            self.kill -= 1
            if self.kill < 0:
                self.kill = None
                raise Killed
        if self.refuses:
            raise NetlinkError(self.refuses, "refused")

    def cached(self, _device: DeviceNumber, _number: int) -> list[CachedRun]:
        self._moment()
        found = [CachedRun(block * 8, 8, heat) for block, heat in self.clean.items()]
        found += [CachedRun(block * 8, 8, 0) for block in self.dirty]
        self._moment()
        return found

    def cache_drop(self, _device: DeviceNumber, _number: int) -> tuple[int, int]:
        self._moment()
        for block in list(self.clean)[:3]:
            del self.clean[block]
        self._moment()
        return (len(self.clean) + len(self.dirty)) * 4096, len(self.dirty) * 4096

    def prefetch(self, _device: DeviceNumber, _number: int, runs: Sequence[CachedRun]) -> None:
        self._moment()
        assert list(runs) == sorted(runs) and 0 < len(runs) <= spec.PREFETCH_RUNS_MAX
        self.asked.append(tuple(runs))
        self.waiting += runs
        self._moment()

    def tag(self, at: DeviceNumber, number: int) -> Tag:
        self._moment()
        return Tag(at, number, prefetch_waiting_bytes=sum(run.len for run in self.waiting) * 512)

    def work(self) -> None:
        """Do the kernel's background work."""
        self.clean |= dict.fromkeys(self.dirty, 0)
        self.dirty.clear()
        for run in self.waiting:
            for sector in range(run.start, run.start + run.len, 8):
                self.clean.setdefault(sector // 8, run.heat // 2)
        self.waiting.clear()


class Agent:
    """Passes of the agent, with its own files."""

    def __init__(self, path: Path, on: Device = ON_FILES) -> None:
        self.host = Host(40)
        self.on = on
        self.host.use(spec.Mode.WRITEBACK, pool="254:9")
        self.folder = MapFolder(path / "maps")
        self.cache = Cache()
        self.swapper = self.fresh()

    def fresh(self) -> swap.Swapper:
        """Start the agent again."""
        self.swapper = swap.Swapper(self.folder, lambda: self.cache)  # type: ignore[arg-type,return-value]
        return self.swapper

    def plan(self, *disks: DiskState, complete: bool = True,
             defined: frozenset[str] | None = None) -> swap.SwapPlan:
        decided = self.host.step(*disks, complete=complete, defined=defined)
        return swap.plan(self.host.rows, self.host.layers, (self.on,), decided, self.folder,
                         self.folder.names(), complete=complete, now=self.host.now,
                         after=AFTER)

    def step(self, *disks: DiskState, **fields: object) -> bool:
        """Execute one pass."""
        return self.swapper.step(self.cache, self.plan(*disks, **fields))  # type: ignore[arg-type]

    def states(self) -> list[tuple[str, int]]:
        return [(report.state, report.size) for report in self.swapper.reports]


@pytest.fixture
def agent(tmp_path: Path) -> Agent:
    return Agent(tmp_path)


def vm(persist: bool = True, number: int = 1, extents: int = 1 << 20,
       on: DeviceNumber = FILES) -> DiskState:
    made = disk(number, cgroup=number, mode=Mode.WRITEBACK, on=on,
                extents=(Extent(0, extents),) if on == FILES else ())
    return dataclasses.replace(made, specs=dataclasses.replace(made.specs, persist=persist))


def at(made: DiskState, key: str, *extents: Extent) -> DiskState:
    """Return a disk whose active layer is at another place."""
    return dataclasses.replace(made, location=Location(key, FILES, extents))


@pytest.mark.parametrize("persist", [False, True])
def test_only_who_is_stopped_for_long_gives_up(agent: Agent, persist: bool) -> None:
    agent.cache.clean = dict.fromkeys(range(10), 1)
    assert agent.plan(vm(persist)) == swap.SwapPlan()
    agent.step()
    agent.host.now += AFTER - 1
    agent.step()
    assert len(agent.cache.clean) == 10
    # Other tags may take chunks before it is due, so it is listed at once.
    assert agent.states() == ([("listed", 40960)] if persist else [])
    agent.cache.clean.popitem()
    # While libvirt is unavailable, no domain is known to be stopped.
    agent.host.now += 1
    assert agent.plan(complete=False) == swap.SwapPlan()
    (out,) = agent.plan().out
    assert (out.tag, out.device, out.save, out.due) == (1, ON_FILES, persist, True)
    agent.step()
    assert agent.states() == [("swapped out", 40960) if persist else ("released", 0)]
    assert not agent.cache.clean
    assert len(agent.folder.names()) == persist
    # It was started again, as by a hard reboot.
    assert agent.plan(vm(persist)).out == ()


def test_what_was_there_is_back_hottest_first(agent: Agent) -> None:
    agent.cache.clean = {block: block % 4 for block in range(40)}
    agent.cache.dirty = {200, 201}
    agent.step(vm())
    agent.step()
    agent.host.now += AFTER
    agent.step()
    assert agent.states() == [("releasing", 42 * 4096)]
    assert agent.swapper.reports[0].note == "8 KiB are still dirty"
    assert agent.cache.dirty == {200, 201}
    agent.cache.work()
    assert not agent.step()
    assert agent.states() == [("swapped out", 42 * 4096)]
    assert agent.step(vm())
    assert agent.states() == [("loading", 42 * 4096)]
    assert [batch[0].heat for batch in agent.cache.asked] == [3, 2, 1, 0]
    agent.cache.work()
    assert not agent.step(vm())
    assert agent.cache.clean.keys() == {*range(40), 200, 201}
    assert agent.folder.names() == frozenset()
    assert agent.states() == []


def test_not_too_much_waits_in_the_kernel(agent: Agent) -> None:
    blocks = 3 * swap._WAITING_BYTES // 4096
    agent.folder.save(SavedMap(LIST, 1 << 20, 3, 1.0, tuple(
        CachedRun(block * 8, 8, block % 2) for block in range(blocks))))
    first = len(agent.cache.asked)
    while agent.step(vm()):
        waits = sum(run.len for run in agent.cache.waiting) * 512
        assert waits < swap._WAITING_BYTES + spec.PREFETCH_RUNS_MAX * 4096
        assert len(agent.cache.asked) > first
        first = len(agent.cache.asked)
        agent.cache.work()
        agent.cache.clean.clear()
    assert sum(map(len, agent.cache.asked)) == blocks
    assert agent.folder.names() == frozenset()


@pytest.mark.parametrize("changed", [{"sectors": 1 << 19}, {"volume": 5}])
def test_a_list_of_another_device_is_void(agent: Agent, changed: dict[str, int]) -> None:
    agent.folder.save(SavedMap(LIST, 1 << 20, 3, 1.0, (CachedRun(0, 8, 1),)))
    agent.on = dataclasses.replace(ON_FILES, **changed)  # type: ignore[arg-type]
    assert not agent.step(vm())
    assert agent.cache.asked == []
    assert agent.folder.names() == frozenset()


def test_only_what_is_still_the_disks_comes_back(agent: Agent) -> None:
    agent.folder.save(SavedMap(LIST, 1 << 20, 3, 1.0, (CachedRun(0, 80, 1),)))
    agent.step(vm(extents=20))
    assert agent.cache.asked == [(CachedRun(0, 16, 1),)]


def test_a_whole_volume(tmp_path: Path) -> None:
    agent = Agent(tmp_path, ON_VOLUME)
    agent.cache.clean = dict.fromkeys(range(7), 2)
    agent.step(vm(on=VOLUME))
    agent.step()
    agent.host.now += AFTER
    agent.step()
    assert agent.states() == [("swapped out", 7 * 4096)]
    agent.step(vm(on=VOLUME))
    assert agent.cache.asked == [(CachedRun(0, 56, 2),)]


def test_a_list_that_is_damaged_or_of_nobody_goes(agent: Agent) -> None:
    agent.step(vm())
    agent.folder.save(SavedMap("file:dm0:77", 1 << 20, 3, 1.0, (CachedRun(0, 8, 1),)))
    path = agent.folder.path(LIST)
    path.write_bytes(b"VCACHMAP" + bytes(500))
    agent.step(vm())
    assert agent.folder.names() == frozenset()
    # Damaged while the agent is stopped: the next start creates it again.
    agent.cache.clean = {5: 1}
    agent.step()
    path.write_bytes(b"")
    agent.fresh()
    agent.step()
    assert agent.folder.load(LIST).runs == (CachedRun(40, 8, 1),)


def test_a_list_goes_when_its_disk_is_forgotten(agent: Agent) -> None:
    agent.cache.clean = {5: 1}
    agent.step(vm())
    agent.step()
    agent.host.now += AFTER
    # libvirt's list may be a minute old: the domain may have been defined since.
    agent.step(defined=frozenset())
    assert len(agent.folder.names()) == 1
    agent.host.now += 86401
    agent.step(defined=frozenset())
    assert agent.folder.names() == frozenset()


def test_without_persist_any_more_its_list_goes(agent: Agent) -> None:
    agent.folder.save(SavedMap(LIST, 1 << 20, 3, 1.0, (CachedRun(0, 80, 8),)))
    agent.host.step(vm(persist=False))
    agent.step()
    assert agent.folder.names() == frozenset()


def test_without_room_for_the_list_nothing_is_given_up(
        agent: Agent, tmp_path: Path) -> None:
    agent.cache.clean = {5: 1}
    agent.step(vm())
    agent.plan()
    agent.host.now += AFTER
    (tmp_path / "maps").write_text("this is no folder")
    agent.folder = MapFolder(tmp_path / "maps" / "below")
    agent.folder.names = frozenset  # type: ignore[method-assign]
    agent.fresh().step(agent.cache, agent.plan())  # type: ignore[arg-type]
    assert agent.states() == [("failed", 0)]
    assert "Not a directory" in agent.swapper.problems[0]
    assert agent.cache.clean == {5: 1}


def test_who_is_stopped_before_all_is_back_keeps_the_rest(agent: Agent) -> None:
    agent.folder.save(SavedMap(LIST, 1 << 20, 3, 1.0, (CachedRun(0, 80, 8),)))
    agent.step(vm())
    agent.cache.waiting.clear()
    agent.cache.clean = {0: 5, 1000: 3}
    agent.step()
    agent.host.now += AFTER
    agent.step()
    saved = agent.folder.load(LIST)
    assert saved.released == agent.host.now - AFTER
    assert saved.size == 11 * 4096
    assert saved.runs[-1] == CachedRun(8000, 8, 3)


def test_a_mode_without_a_cache_makes_it_void(agent: Agent) -> None:
    agent.folder.save(SavedMap(LIST, 1 << 20, 3, 1.0, (CachedRun(0, 80, 8),)))
    agent.cache.tag = lambda at, number: Tag(at, number)  # type: ignore[method-assign]
    agent.cache.refuses = errno.EOPNOTSUPP
    assert not agent.step(vm())
    assert agent.folder.names() == frozenset()


@pytest.mark.parametrize("error", [errno.ENOENT, errno.ENODATA, errno.ENODEV])
def test_a_cache_that_has_nothing_of_it_is_given_up(agent: Agent, error: int) -> None:
    agent.step(vm())
    agent.step()
    agent.host.now += AFTER
    agent.cache.refuses = error
    assert not agent.step()
    assert agent.states() == [("released", 0)]


def test_a_stopped_disk_that_others_read_is_not_released(agent: Agent) -> None:
    """As a clone of it: its layer is their backing layer."""
    reader = over(vm(number=2, extents=10), layer("file:dm0:1", 1 << 19))
    agent.step(vm())
    agent.step(reader)
    agent.host.now += AFTER
    # Its list is saved; only the blocks stay.
    assert [(out.tag, out.save, out.due) for out in agent.plan(reader).out] == [(1, True, False)]
    agent.step()
    agent.host.now += AFTER
    tags = {row.tag for row in agent.host.rows.values()}
    tags |= {row.tag for row in agent.host.layers.values() if row.tag is not None}
    assert len(tags) == 3
    assert {(out.tag, out.due) for out in agent.plan().out} == {(tag, True) for tag in tags}


def test_a_snapshot_releases_nothing_of_its_base(agent: Agent) -> None:
    agent.cache.clean = dict.fromkeys(range(10), 1)
    agent.step(vm())
    after = over(at(vm(), "file:dm0:S", Extent(0, 10)), layer("file:dm0:1", 1 << 19))
    agent.step(after)
    agent.host.now += 2 * AFTER
    assert agent.plan(after).out == ()


def test_a_shared_base_is_released_without_a_list_after_its_last_user(agent: Agent) -> None:
    base = layer("base", 1 << 19)
    users = [over(at(vm(number=number), f"disk{number}", Extent(number * 50, 10)), base)
             for number in (1, 2)]
    agent.step(*users)
    tag = agent.host.layers["base"].tag
    agent.step(users[0])
    agent.step(users[0])
    agent.host.now += AFTER
    assert tag not in {out.tag for out in agent.plan(users[0]).out}
    agent.step()
    agent.step()
    agent.host.now += AFTER - 1
    assert tag not in {out.tag for out in agent.plan().out}
    agent.host.now += 1
    (out,) = (out for out in agent.plan().out if out.tag == tag)
    assert (out.disk.name, out.save, out.due) == ("base", False, True)


def test_what_comes_back_is_of_all_layers_of_the_disk(agent: Agent) -> None:
    agent.step(vm(extents=20))
    agent.folder.save(SavedMap(LIST, 1 << 20, 3, 1.0, (CachedRun(0, 80, 1),)))
    top = at(vm(), "S", Extent(64, 8))
    agent.step(over(top, layer("file:dm0:1", 0, 20)))
    assert agent.cache.asked == [(CachedRun(0, 16, 1), CachedRun(64, 8, 1))]


def test_nothing_comes_back_before_all_layers_are_known(agent: Agent) -> None:
    """At the hook's prepare, libvirt does not know the chain yet."""
    top = at(vm(), "S", Extent(64, 8))
    chain = over(top, layer("file:dm0:1", 0, 20))
    agent.step(vm(extents=20))
    agent.step(chain)
    agent.step()
    agent.step()
    agent.folder.save(SavedMap(LIST, 1 << 20, 3, agent.host.now, (CachedRun(0, 80, 1),)))
    agent.step(over(top, chain_known=False))
    assert agent.cache.asked == []
    agent.step(chain)
    assert agent.cache.asked == [(CachedRun(0, 16, 1), CachedRun(64, 8, 1))]


def test_nothing_comes_back_while_the_place_is_unknown(agent: Agent) -> None:
    agent.step(vm())
    agent.folder.save(SavedMap(LIST, 1 << 20, 3, 1.0, (CachedRun(0, 80, 1),)))
    agent.step(unknown(vm()))
    assert not agent.cache.asked and agent.folder.names()
    agent.step(vm())
    assert agent.cache.asked


def test_a_number_that_another_domain_still_uses_is_not_released(agent: Agent) -> None:
    """Two domains had one disk; one of them has stopped."""
    both = (vm(number=1), dataclasses.replace(vm(number=2), location=vm(number=1).location))
    agent.step(*both)
    agent.step(both[1])
    agent.host.now += AFTER
    assert agent.plan(both[1]).out == ()


MOMENTS = st.lists(st.one_of(
    st.sampled_from(["start", "stop", "later", "pass", "pass", "kernel", "restart"]),
    st.integers(0, 12)), max_size=40)


@settings(max_examples=200, deadline=None)
@given(MOMENTS)
def test_whatever_is_interrupted_the_cache_comes_back(moments: list[str | int]) -> None:
    """Killed at any call, stopped and started at any moment: the guest needs no more reads."""
    with tempfile.TemporaryDirectory() as path:
        agent = Agent(Path(path))
        agent.cache.clean = {block: block % 3 for block in range(40)}
        agent.cache.dirty = {50, 51}
        had = {*range(40), 50, 51}
        disks: tuple[DiskState, ...] = (vm(),)
        agent.step(*disks)
        for moment in moments:
            if moment in ("start", "stop"):
                disks = (vm(),) if moment == "start" else ()
                agent.host.step(*disks)
            elif moment == "later":
                agent.host.now += AFTER
            elif moment == "kernel":
                agent.cache.work()
            elif moment == "restart":
                agent.fresh()
            else:
                agent.cache.kill = moment if isinstance(moment, int) else None
                try:
                    agent.step(*disks)
                except Killed:
                    agent.fresh()
                agent.cache.kill = None
            assert agent.cache.dirty or agent.cache.clean.keys() >= {50, 51} or \
                agent.folder.names(), "nothing dirty is given up"
        while agent.step(vm()):
            agent.cache.work()
        assert agent.cache.clean.keys() | agent.cache.dirty == had
        assert agent.folder.names() == frozenset()
