# SPDX-License-Identifier: Apache-2.0
"""Limits of neighbours in the kernel: set, saved, restored, whatever ends the agent.

A folder replaces the mount point of the cgroups, and a short rule the kernel's ``io.max``; the
kernel's own is in tests/kernel/test_restraints.py.
"""

import dataclasses
import json
import os
import signal
import sqlite3
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.unit.plan_model import disk
from tests.unit.store_model import in_child
from tests.unit.test_store_kill import Deadly
from vcache_agent import cgroups, knobs, restraints
from vcache_agent.decide.restraint import Means, Rates, Restraint
from vcache_agent.knobs import DestageRate, Gone, IoMax, KnobError
from vcache_agent.model import Device, DeviceNumber
from vcache_agent.netlink import spec
from vcache_agent.observe.sample import TagKey
from vcache_agent.plan.state import DiskReport
from vcache_agent.restraints import InForce, Restrainer, wanted
from vcache_agent.store import Store

ON = DeviceNumber(254, 3)
NEIGHBOUR, VICTIM = (ON, 2), (ON, 1)
OTHERS = "8:0 rbps=5 wbps=max riops=max wiops=max"


class Groups:
    """A folder with cgroups; a write to ``io.max`` changes one device, as the kernel does."""

    def __init__(self, root: Path) -> None:
        self.root = root

    def make(self, name: str, lines: str = f"{OTHERS}\n") -> IoMax:
        """Create a cgroup."""
        folder = self.root / name
        folder.mkdir()
        (folder / "io.max").write_text(lines)
        return IoMax(f"/{name}", folder.stat().st_ino, "254:3")

    def value(self, name: str) -> str:
        """Return the limits of the device, or nothing."""
        for line in (self.root / name / "io.max").read_text().splitlines():
            if line.startswith("254:3 "):
                return line.partition(" ")[2]
        return ""


def io_max(path: Path, data: str) -> None:
    """Change a file as the kernel changes ``io.max``."""
    device, *fields = data.split()
    lines = dict(line.split(" ", 1) for line in path.read_text().splitlines())
    values = dict(field.split("=") for field in lines.pop(
        device, "rbps=max wbps=max riops=max wiops=max").split())
    values |= dict(field.split("=") for field in fields)
    if set(values.values()) != {"max"}:
        lines[device] = " ".join(f"{name}={value}" for name, value in values.items())
    # At once, as the kernel does: a reader must not see half of it.
    half = path.with_suffix(".new")
    half.unlink(missing_ok=True)
    with open(half, "w") as file:
        file.write("".join(f"{name} {value}\n" for name, value in lines.items()))
    os.rename(half, path)


@pytest.fixture
def groups(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Groups:
    root = tmp_path / "cgroup"
    root.mkdir()
    monkeypatch.setattr(cgroups, "root", lambda: root)
    write = Path.write_text

    def change(path: Path, data: str, *arguments: Any, **options: Any) -> int:
        if path.name == "io.max" and path.exists():
            io_max(path, data)
            return len(data)
        return write(path, data, *arguments, **options)

    monkeypatch.setattr(Path, "write_text", change)
    return Groups(root)


@pytest.fixture
def store(tmp_path: Path) -> Store:
    return Store(tmp_path / "s.sqlite")


def wish(knob: knobs.Knob, read: float = 0.0, write: float = 0.0) -> tuple[knobs.Knob, InForce]:
    """Return a wanted limit."""
    return knob, InForce(NEIGHBOUR, frozenset({VICTIM}), knob.means, Rates(read, write))


def test_a_limit_is_set_changed_and_removed(groups: Groups, store: Store) -> None:
    knob, restrainer = groups.make("vm"), Restrainer(store)
    (found,) = restrainer.step([wish(knob, write=50e6)])
    assert found.problem == ""
    assert groups.value("vm") == "rbps=max wbps=50000000 riops=max wiops=max"
    restrainer.step([wish(knob, 9e6, 35e6)])
    assert groups.value("vm") == "rbps=9000000 wbps=35000000 riops=max wiops=max"
    assert restrainer.step([]) == ()
    assert (groups.root / "vm" / "io.max").read_text() == f"{OTHERS}\n"
    assert store.limits() is None


def test_a_limit_of_an_operator_stays_in_force_and_returns(groups: Groups, store: Store) -> None:
    own = "rbps=max wbps=40000000 riops=100 wiops=max"
    knob, restrainer = groups.make("vm", f"254:3 {own}\n"), Restrainer(store)
    restrainer.step([wish(knob, write=50e6)])
    assert groups.value("vm") == own
    restrainer.step([wish(knob, write=20e6)])
    assert groups.value("vm") == "rbps=max wbps=20000000 riops=100 wiops=max"
    restrainer.step([])
    assert groups.value("vm") == own


def test_what_somebody_else_has_set_meanwhile_stays(groups: Groups, store: Store) -> None:
    knob, restrainer = groups.make("vm"), Restrainer(store)
    restrainer.step([wish(knob, write=50e6)])
    io_max(groups.root / "vm" / "io.max", "254:3 wbps=7")
    restrainer.step([])
    assert groups.value("vm") == "rbps=max wbps=7 riops=max wiops=max"
    assert store.limits() is None


def test_the_next_agent_removes_what_an_agent_has_left(groups: Groups, store: Store) -> None:
    one, two = groups.make("one"), groups.make("two")
    Restrainer(store).step([wish(one, write=50e6), wish(two, 1e6)])
    Restrainer(store).step([])
    assert groups.value("one") == groups.value("two") == ""
    assert store.limits() is None


def test_a_cgroup_that_is_gone_is_forgotten(groups: Groups, store: Store) -> None:
    knob, restrainer = groups.make("vm"), Restrainer(store)
    restrainer.step([wish(knob, write=50e6)])
    (groups.root / "vm" / "io.max").unlink()
    (groups.root / "vm").rmdir()
    restrainer.step([wish(knob, write=40e6)])
    assert store.limits() is None
    # Another one of that name has another id.
    (groups.root / "other").mkdir()
    again = groups.make("vm")
    if again.id != knob.id:
        restrainer.step([wish(knob, write=40e6)])
        assert groups.value("vm") == ""
    assert restrainer.problems == []


def test_after_a_boot_nothing_is_restored(groups: Groups, store: Store,
                                          monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    knob = groups.make("vm")
    Restrainer(store).step([wish(knob, write=50e6)])
    boot = tmp_path / "boot_id"
    boot.write_text("another\n")
    monkeypatch.setattr(restraints, "_BOOT", boot)
    Restrainer(store).step([])
    assert groups.value("vm") == "rbps=max wbps=50000000 riops=max wiops=max"


def test_two_disks_of_an_instance_have_the_lower_limit(groups: Groups, store: Store) -> None:
    knob = groups.make("vm")
    Restrainer(store).step([wish(knob, write=50e6), wish(knob, 9e6), wish(knob, write=30e6)])
    assert groups.value("vm") == "rbps=9000000 wbps=30000000 riops=max wiops=max"


def test_without_the_io_controller_the_problem_is_reported_and_nothing_saved(
        groups: Groups, store: Store) -> None:
    knob, restrainer = groups.make("vm"), Restrainer(store)
    (groups.root / "vm" / "io.max").unlink()
    (found,) = restrainer.step([wish(knob, write=50e6)])
    assert found.problem == (f"{groups.root}/vm has no io.max: its parent must have 'io' in "
                             "cgroup.subtree_control")
    assert restrainer.problems == [f"limits of neighbours: {found.problem}"]
    assert found.text == f"writes to 47.7 MiB/s, not in force: {found.problem}"
    assert store.limits() is None


def test_a_write_that_fails_is_tried_again(groups: Groups, store: Store,
                                           monkeypatch: pytest.MonkeyPatch) -> None:
    knob, restrainer = groups.make("vm"), Restrainer(store)

    def fail(_knob: IoMax, _value: str) -> None:
        raise KnobError("io.max: Read-only file system")

    with monkeypatch.context() as patch:
        patch.setattr(IoMax, "write", fail)
        for _ in range(2):
            (found,) = restrainer.step([wish(knob, write=50e6)])
            assert found.problem == "io.max: Read-only file system"
    restrainer.step([wish(knob, write=50e6)])
    assert "wbps=50000000" in groups.value("vm")
    with monkeypatch.context() as patch:
        patch.setattr(IoMax, "write", fail)
        restrainer.step([])
        assert store.limits() is not None
    restrainer.step([])
    assert groups.value("vm") == ""
    assert store.limits() is None


def test_without_a_saved_original_nothing_is_limited(groups: Groups, store: Store,
                                                     monkeypatch: pytest.MonkeyPatch) -> None:
    knob, restrainer = groups.make("vm"), Restrainer(store)

    def full(_store: Store, _text: str | None) -> None:
        error = sqlite3.OperationalError("database or disk is full")
        error.sqlite_errorcode = sqlite3.SQLITE_FULL
        raise error

    monkeypatch.setattr(Store, "set_limits", full)
    (found,) = restrainer.step([wish(knob, write=50e6)])
    assert found.problem == "the agent's state file: database or disk is full"
    assert groups.value("vm") == ""


def test_rows_of_a_newer_agent_are_left_alone(groups: Groups, store: Store,
                                              caplog: pytest.LogCaptureFixture) -> None:
    boot = Path("/proc/sys/kernel/random/boot_id").read_text().strip()
    for limits in ([["pace", ["x"], "0", ["1"]]], [["io", ["x"], "0", ["1"]]], 7):
        store.set_limits(json.dumps({"boot": boot, "limits": limits}))
        Restrainer(store).step([])
        assert "cannot be read" in caplog.text
        caplog.clear()


@pytest.mark.parametrize("end", ["set", "changed", "removed"])
def test_killed_at_each_step_the_next_agent_restores(
        groups: Groups, tmp_path: Path, end: str) -> None:
    """The agent is killed before each SQL statement and each change of a cgroup."""
    knob = groups.make("vm", f"254:3 rbps=max wbps=90000000 riops=9 wiops=max\n{OTHERS}\n")
    before = (groups.root / "vm" / "io.max").read_text()
    path = tmp_path / "s.sqlite"
    Store(path).close()
    work: dict[str, Callable[[Restrainer], object]] = {
        "set": lambda one: one.step([wish(knob, write=50e6)]),
        "changed": lambda one: [one.step([wish(knob, write=rate)]) for rate in (50e6, 35e6, 24e6)],
        "removed": lambda one: [one.step([wish(knob, write=50e6)]), one.step([])]}
    seen, step = set(), 0
    while True:
        def act(step: int = step) -> None:
            Deadly(step).arm()
            work[end](Restrainer(Store(path)))

        status = in_child(act)
        killed = os.WIFSIGNALED(status)
        assert os.WTERMSIG(status) == signal.SIGKILL if killed else status == 0
        seen.add(groups.value("vm"))
        store = Store(path)
        Restrainer(store).step([])
        assert sorted((groups.root / "vm" / "io.max").read_text().splitlines()) == \
            sorted(before.splitlines())
        assert store.limits() is None
        store.close()
        step += 1
        if not killed:
            break
    assert step > 8
    # The limit was in force at some of the kills, and not at others.
    assert len(seen) >= 2


def test_the_destage_rate_is_a_limit_in_whole_mib() -> None:
    knob = DestageRate("lv", "254:3")
    assert knob.lowered("0", Rates(0, 50 << 20)) == "50"
    assert knob.lowered("30", Rates(0, 50 << 20)) == "30"
    assert knob.lowered("0", Rates(0, 1000)) == "1"


def test_identities_survive_the_store() -> None:
    for knob in (IoMax("/vm", 7, "254:3"), DestageRate("lv", "254:3")):
        fields = json.loads(json.dumps(dataclasses.astuple(knob)))
        assert knobs.from_fields(str(knob.means), fields) == knob


def test_a_limit_is_for_the_cgroups_of_all_domains_with_the_tag() -> None:
    device = Device(ON, "lv", spec.Mode.WRITEBACK, spec.Scope.VOLUME, spec.Isolation.FUA, 1 << 20,
                    "8:0")
    disks = [DiskReport(dataclasses.replace(disk(number), cgroup=group), tag, disk(1).specs.mode,
                        device=ON)
             for number, group, tag in ((1, 11, 2), (2, 12, 2), (3, None, 2), (4, 14, 3))]
    paths = {item.state.domain.uuid: f"/vm{item.state.cgroup}" for item in disks}
    active: dict[TagKey, Restraint] = {NEIGHBOUR: Restraint(
        frozenset({VICTIM}), Rates(0, 100e6), Rates(4e6, 4e6),
        ((Means.DESTAGE, 0.04), (Means.IO, 0.7)))}
    found = wanted(active, disks, [device], paths)
    assert [knob for knob, _ in found] == [
        DestageRate("lv", "254:3"), IoMax("/vm11", 11, "254:3"), IoMax("/vm12", 12, "254:3")]
    assert [item.text for _, item in found] == [
        "destage to 3.8 MiB/s", "writes to 66.8 MiB/s", "writes to 66.8 MiB/s"]
    # A device or a domain that is gone needs no limit.
    assert wanted(active, (), (), {}) == []


def test_a_missing_mount_is_not_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    def missing() -> Path:
        raise cgroups.CgroupError("no cgroup v2 hierarchy is mounted")

    monkeypatch.setattr(cgroups, "root", missing)
    with pytest.raises(Gone):
        IoMax("/vm", 1, "254:3").read()
