# SPDX-License-Identifier: Apache-2.0
"""Periodic passes that have nothing to decide, and what ends that."""

import dataclasses
import math
import time
from collections.abc import Callable

import pytest

from tests.unit.test_worker import Host, host
from vcache_agent import settled, worker
from vcache_agent.inventory import Snapshot
from vcache_agent.locate import Located
from vcache_agent.migration.moves import Move, Role
from vcache_agent.model import DeviceNumber, DiskId, Domain, Phase, Stats, Tag
from vcache_agent.outcome_events import Journal
from vcache_agent.overrides import Override
from vcache_agent.plan.actions import DeleteTag
from vcache_agent.plan.state import Orphan, Plan
from vcache_agent.records import DiskRow, LayerRow, RowChanges
from vcache_agent.swap import CachedDisk, Swapped

__all__ = ["host"]


@dataclasses.dataclass
class Quiet:
    """A host whose worker has found nothing to do, with passes in quick succession."""

    host: Host
    domain: Domain
    decisions: int = 0
    passes: int = 0

    def until(self, condition: Callable[[], bool]) -> None:
        """Wait for a condition; nothing asks for a pass."""
        limit = time.monotonic() + 60
        while not condition():
            assert time.monotonic() < limit
            time.sleep(0.01)

    def settle(self) -> None:
        """Wait for passes in a row without a decision."""
        while True:
            before, passes = self.decisions, self.passes
            self.until(lambda passes=passes: self.passes >= passes + 3)  # type: ignore[misc]
            if self.decisions == before:
                return

    @property
    def tag(self) -> Tag:
        return self.host.tag(self.domain)

    def change(self, **values: object) -> None:
        """Change the kernel's tag by hand."""
        with self.host.kernel.lock:
            self.host.kernel.table[self.number] = dataclasses.replace(
                self.host.kernel.table[self.number], **values)  # type: ignore[arg-type]

    @property
    def number(self) -> int:
        return next(iter(self.host.store.disks().values())).tag


@pytest.fixture
def quiet(host: Host, monkeypatch: pytest.MonkeyPatch) -> Quiet:
    host.cgroups["a"] = 77
    made = Quiet(host, host.tell("a", host.image("a", 4)))
    decide, devices = worker.decide, host.kernel.devices  # type: ignore[attr-defined]

    def counted(*arguments: object) -> Plan:
        made.decisions += 1
        return decide(*arguments)  # type: ignore[arg-type]

    def looked() -> list[object]:
        made.passes += 1
        return devices()  # type: ignore[return-value]

    monkeypatch.setattr(worker, "decide", counted)
    monkeypatch.setattr(host.kernel, "devices", looked)
    host.inventory.listed([made.domain], [made.domain.uuid], time.monotonic())
    host.worker._settings = dataclasses.replace(
        host.worker._settings, refresh_interval=0.01, forget_after=2.0)
    host.look()
    # Its threads see that a file is new. Here, nothing shall ask for a pass.
    monkeypatch.setattr(host.worker.locator, "_tell", lambda: None)
    made.settle()
    return made


def test_a_pass_without_a_change_decides_nothing(quiet: Quiet) -> None:
    decisions, outcome = quiet.decisions, quiet.host.worker.outcome
    quiet.change(stats=Stats(reads=5), dirty_bytes=4096, cached_bytes=8192)
    passes = quiet.passes
    quiet.until(lambda: quiet.passes >= passes + 3)
    assert quiet.decisions == decisions
    assert quiet.host.worker.outcome is outcome
    quiet.host.look()
    assert quiet.decisions > decisions, "a pass that something asks for decides"


@pytest.mark.parametrize("values", [{"weight": 7}, {"cgroups": frozenset({5})}, {"name": "x"}])
def test_what_the_kernel_has_is_put_right(quiet: Quiet, values: dict[str, object]) -> None:
    quiet.change(**values)
    quiet.until(lambda: (quiet.tag.weight, quiet.tag.cgroups) == (40, {77})
                if quiet.host.kernel.table[quiet.number].name != "x" else False)


def test_a_tag_that_was_removed_returns(quiet: Quiet) -> None:
    number = quiet.number
    quiet.host.kernel.tag_del(quiet.host.kernel.device.number, number)
    quiet.until(lambda: number in quiet.host.kernel.table)
    quiet.until(lambda: quiet.tag.extents_sectors == 32)


def test_the_store_is_followed(quiet: Quiet) -> None:
    quiet.host.store.set_override(quiet.domain.uuid, Override(weight=123))
    quiet.until(lambda: quiet.tag.weight == 123)


def test_the_domains_are_followed(quiet: Quiet) -> None:
    quiet.host.tell("b", quiet.host.image("b"), Phase.PREPARING)
    quiet.until(lambda: len(quiet.host.kernel.table) == 2)


def test_the_devices_and_what_is_below_others_are_followed(
        quiet: Quiet, monkeypatch: pytest.MonkeyPatch) -> None:
    decisions = quiet.decisions
    quiet.host.kernel.device = dataclasses.replace(quiet.host.kernel.device, broken=True)
    quiet.until(lambda: quiet.decisions > decisions)
    quiet.settle()
    decisions = quiet.decisions
    monkeypatch.setattr("vcache_agent.blockstack.BlockStack.segments", lambda *_: [])
    quiet.until(lambda: quiet.decisions > decisions)


def test_locations_are_followed(quiet: Quiet) -> None:
    decisions = quiet.decisions
    quiet.host.worker.locator.version += 1
    quiet.until(lambda: quiet.decisions > decisions)


def test_time_passes(quiet: Quiet) -> None:
    """The number of an instance that was deleted is free after a while."""
    (quiet.host.folder / "a").rename(quiet.host.folder / "b")
    (quiet.host.folder / "a").write_bytes(b"")
    quiet.host.inventory.listed([], [], time.monotonic())
    quiet.until(lambda: not quiet.host.kernel.table)
    assert quiet.host.store.disks()
    quiet.settle()
    quiet.until(lambda: not quiet.host.store.disks())


DISK = DiskId("d", "vda")
AT = CachedDisk("k", "a")


def row(released: float | None) -> DiskRow:
    return DiskRow(*DISK, 1, "a", "/a", "file:a", "images", "vda", released=released)


def layer(released: float | None) -> LayerRow:
    return LayerRow("k", "/base", "images", tag=2, released=released)


def test_until() -> None:
    assert settled.until({}, {}, 50.0, 10.0) == math.inf
    assert settled.until({DISK: row(None)}, {"k": layer(None)}, 50.0, 10.0) == math.inf
    assert settled.until({DISK: row(45.0)}, {"k": layer(43.0)}, 50.0, 10.0, 100.0) == 53.0
    assert settled.until({DISK: row(45.0)}, {"k": layer(43.0)}, 54.0, 10.0, 100.0) == 55.0
    assert settled.until({DISK: row(45.0)}, {}, 60.0, 10.0, 100.0) == 145.0


def swapped(state: str) -> Swapped:
    return Swapped(AT, None, 1, state)  # type: ignore[arg-type]


FILES = DeviceNumber(254, 3)
NOTHING = Plan((), RowChanges(), (), ())


@pytest.mark.parametrize(("plan", "located", "states", "rests"), [
    (NOTHING, [Located(None, "it is read-only")], ["listed", "released", "swapped out"], True),
    (dataclasses.replace(NOTHING, actions=(DeleteTag(FILES, 1),)), [], [], False),
    (dataclasses.replace(NOTHING, rows=RowChanges(forgotten=(DISK,))), [], [], False),
    (dataclasses.replace(NOTHING, orphans=(Orphan(None, 1, "a", 0, "kept"),)), [], [], True),
    (dataclasses.replace(NOTHING, orphans=(Orphan(FILES, 1, "a", 0, "dirty"),)), [], [], False),
    (NOTHING, [Located(None, "it does not answer", unknown=True)], [], False),
    *((NOTHING, [], [state], False) for state in ("copying", "kept", "releasing", "loading",
                                                 "failed")),
])
def test_what_rests(plan: Plan, located: list[Located], states: list[str], rests: bool) -> None:
    assert settled.rests(plan, {}, located, map(swapped, states)) is rests
    assert not settled.rests(plan, {"d": Move(Role.LEFT, 0.0)}, located, map(swapped, states))


def test_a_pass_without_a_decision_is_counted_and_has_no_events(
        monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*_: object) -> None:
        raise AssertionError

    journal = Journal(None)  # type: ignore[arg-type]
    monkeypatch.setattr("vcache_agent.outcome_events.between", fail)
    outcome = worker.Outcome(NOTHING, Snapshot((), True, None), "")
    journal.passed(outcome, outcome)
    assert journal.counts == {True: 1, False: 0}
    assert journal.ended > 0
