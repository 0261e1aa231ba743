# SPDX-License-Identifier: Apache-2.0
"""The log of events, the events of passes, and ``vcache events``."""

import dataclasses
import json
import threading
from types import SimpleNamespace
from typing import Any

import pytest

from tests.unit.fake_kernel import AT, UUID, tag
from tests.unit.plan_model import FILES, disk
from tests.unit.plan_model import device as mapped
from tests.unit.test_observe import sample
from vcache_agent import outcome_events
from vcache_agent.admin_client import AgentNotRunning
from vcache_agent.cmd import events_cli
from vcache_agent.decide.blame import Cause, Verdict
from vcache_agent.decide.history import History
from vcache_agent.decide.restraint import Means, Rates
from vcache_agent.events import EventLog
from vcache_agent.inventory import Snapshot
from vcache_agent.netlink import spec
from vcache_agent.observe.ring import Ring
from vcache_agent.outcome_events import Journal
from vcache_agent.packed_extents import pack
from vcache_agent.plan.actions import DeleteTag, SetExtents, SetLanes, SetTag
from vcache_agent.plan.decide import decide
from vcache_agent.plan.state import Observed, Orphan, PoolDecision
from vcache_agent.restraints import InForce
from vcache_agent.service import Agent
from vcache_agent.worker import Outcome

LISTED = Snapshot((), True, frozenset())


def outcome(*disks: Any, snapshot: Snapshot = LISTED, **world: Any) -> Outcome:
    made = decide(Observed(disks=disks, devices=(mapped(),), tags=(), **world))
    return Outcome(made, snapshot, "")


def events(*outcomes: Outcome) -> list[tuple[str, str]]:
    """Return (kind, text) of the events of passes in a row."""
    log = EventLog()
    journal = Journal(log)
    before = Outcome()
    for after in outcomes:
        journal.passed(before, after)
        before = after
    found, lost = log.after(0)
    assert lost == 0
    return [(event.kind, event.text) for event in found]


def test_the_log_is_bounded_and_numbers_events() -> None:
    log = EventLog(most=3)
    for number in range(1, 6):
        log.add("a" if number % 2 else "b", str(number))
    found, lost = log.after(0)
    assert [(event.sequence, event.text) for event in found] == [(3, "3"), (4, "4"), (5, "5")]
    assert lost == 2
    assert log.after(3)[0][0].sequence == 4
    assert log.after(5) == ([], 0)
    assert log.after(99) == ([], 0)
    assert log.counts == {"a": 3, "b": 2}
    assert log.id != EventLog().id


def test_a_disk_appears_changes_and_goes() -> None:
    one = disk(1, weight=250)
    heavier = disk(1, weight=300)
    found = events(outcome(one), outcome(one), outcome(heavier), outcome())
    kinds = [kind for kind, _ in found]
    assert kinds == ["pass-ok", "libvirt-ok", "tag-set", "disk", "tag-set", "disk", "disk-gone"]
    assert "weight 250" in found[2][1]
    assert "tag 1, mode flush-only, weight 250" in found[3][1]
    assert "weight 300" in found[5][1]


def test_extents_are_no_event_and_are_not_hashed() -> None:
    many = SetExtents(FILES, 1, pack([(8, 8), (32, 8)]))
    moved = SetExtents(FILES, 1, pack([(8, 8), (64, 8)]))
    plans = [dataclasses.replace(decided, actions=actions) for decided, actions in (
        (outcome(disk(1)).plan, (many,)), (outcome(disk(1)).plan, (moved, DeleteTag(FILES, 9))))
        if decided]
    kinds = [kind for kind, _ in events(*(Outcome(plan, LISTED, "") for plan in plans))]
    assert kinds == ["pass-ok", "libvirt-ok", "disk", "tag-removed"]


def test_an_event_names_tag_device_and_disk() -> None:
    log = EventLog()
    state = disk(1)
    Journal(log).passed(Outcome(), outcome(state))
    event = next(event for event in log.after(0)[0] if event.kind == "disk")
    assert (event.device, event.tag, event.disk) == (str(FILES), 1, state.label)


def test_a_lasting_failure_is_one_event() -> None:
    good = outcome(disk(1))
    failed = dataclasses.replace(good, errors={(FILES, 1): "SetTag: refused"})
    found = events(good, failed, failed, good)
    assert found.count(("tag-failed", "SetTag: refused")) == 1


def test_passes_that_fail_are_told_once_and_the_plan_is_remembered() -> None:
    good = outcome(disk(1))
    bad = Outcome(snapshot=Snapshot((), False, None), problem="no module")
    found = events(good, bad, bad, good)
    assert found[-4:] == [
        ("pass-failed", "no module"), ("libvirt-lost", found[-3][1]), ("pass-ok", found[-2][1]),
        ("libvirt-ok", found[-1][1])], "no disk event: the disk is as before"


def test_lanes_removal_and_orphans() -> None:
    plan = outcome(disk(1)).plan
    assert plan is not None
    after = Outcome(dataclasses.replace(
        plan, actions=(SetLanes(FILES, 3, 0b1010), DeleteTag(FILES, 4),
                       SetExtents(FILES, 5, ())),
        orphans=(Orphan(FILES, 6, "x", 5, "why it stays"),)), LISTED, "")
    found = events(outcome(disk(1)), after, after)
    assert found[-3:] == [("tag-lanes", "dedicated lanes 1, 3"),
                          ("tag-removed", "no domain uses it"), ("orphan", "why it stays")]


def test_a_missed_objective_is_one_event_until_its_cause_changes() -> None:
    def missing(*causes: Cause) -> Outcome:
        made = outcome(disk(1))
        assert made.plan is not None
        history = History(missed={(FILES, 1): tuple(
            Verdict("read", cause, 0.01 * (at + 1), 0.002) for at, cause in enumerate(causes))}
            if causes else {})
        return dataclasses.replace(made, plan=dataclasses.replace(
            made.plan, pools=PoolDecision(history=history)))

    found = [(kind, text) for kind, text in events(
        missing(), missing(Cause.OWN_SHARE), missing(Cause.OWN_SHARE), missing(Cause.DEVICE),
        missing()) if kind.startswith("slo")]
    assert [kind for kind, _ in found] == ["slo-missed", "slo-missed", "slo-met"]
    assert "too small" in found[0][1]
    assert "is slow" in found[1][1]


def test_a_limited_neighbour_is_an_event_when_it_begins_and_ends() -> None:
    def limited(rate: float, problem: str = "") -> Outcome:
        found = (InForce((FILES, 2), frozenset({(FILES, 1)}), Means.IO, Rates(0, rate), problem),)
        return dataclasses.replace(outcome(disk(1)), restraints=found if rate else ())

    found = [(kind, text) for kind, text in events(
        limited(0), limited(70 << 20), limited(49 << 20), limited(49 << 20, "gone wrong"),
        limited(0)) if kind.startswith("slo")]
    assert found == [
        ("slo-limited", "writes to 70.0 MiB/s, because of an objective of tag 1 on device 254:0"),
        ("slo-limited", "writes to 49.0 MiB/s, not in force: gone wrong, because of an objective "
                        "of tag 1 on device 254:0"),
        ("slo-released", "it has no limit any more")]
    # A failed pass changes no limit.
    failed = dataclasses.replace(limited(70 << 20), plan=None, problem="no module")
    assert [kind for kind, _ in events(limited(70 << 20), failed, limited(70 << 20))
            if kind.startswith("slo")] == ["slo-limited"]


def test_the_journal_counts_passes_and_survives_its_own_errors(
        monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture) -> None:
    journal = Journal(EventLog())
    assert (journal.ended, journal.counts) == (0.0, {True: 0, False: 0})
    journal.passed(Outcome(), outcome())
    journal.passed(Outcome(), Outcome(problem="bad"))
    assert journal.counts == {True: 1, False: 1}
    assert journal.ended > 0

    def broken(*_: object) -> None:
        raise KeyError("x")

    monkeypatch.setattr(outcome_events, "between", broken)
    journal.passed(Outcome(), outcome())
    assert "incomplete" in caplog.text
    assert journal.counts[True] == 2


class Listener:
    """Returns some events of the kernel, then lets the agent stop."""

    def __init__(self, agent: Agent, *events: tuple[spec.EventKind, Any, int]) -> None:
        self._agent, self._events = agent, list(events)

    def receive(self, _seconds: float) -> list[tuple[spec.EventKind, Any, int]]:
        self._agent._stopping.set()
        return self._events


def test_the_kernels_events_are_logged_and_start_passes(
        monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture) -> None:
    agent = Agent.__new__(Agent)
    kicks: list[bool] = []
    disowned: list[int] = []
    monkeypatch.setattr("vcache_agent.service._PRESSURE_PAUSE", 3600.0)
    monkeypatch.setattr(Agent, "_disown", lambda _: disowned.append(1))
    agent._stopping, agent.events = threading.Event(), EventLog()
    agent.observer = SimpleNamespace(ring=Ring())  # type: ignore[assignment]
    agent.observer.ring.append(sample(1.0, tag(9)))
    agent.worker = SimpleNamespace(  # type: ignore[assignment]
        kick=lambda fresh=False: kicks.append(fresh))
    kinds = [*spec.EventKind, spec.EventKind.PRESSURE]
    agent._follow(Listener(agent, *((kind, AT, 9) for kind in kinds)))  # type: ignore[arg-type]
    found = agent.events.after(0)[0]
    assert [event.kind for event in found] == [
        "pressure", "origin-error", "origin-ok", "extents-lost", "tags-lost", "cache-lost",
        "cache-error"], "pressure lasts: one event in each pause"
    assert {(event.device, event.tag, event.disk) for event in found} == {
        (str(AT), 9, f"{UUID}:vda")}
    # Pressure, lost extents, lost tags, lost cache.
    assert kicks == [False, True, False, False]
    assert len(disowned) == 2, "at the start, and when a cache is lost"
    assert "tag 9: its cache device has failed" in caplog.text


def answer(*numbers: int, **values: Any) -> dict[str, Any]:
    return {"log": "l", "lost": 0, "restarted": False, "next": max(numbers, default=0),
            "events": [{"sequence": number, "wall": 0.0, "kind": "disk", "text": f"text {number}",
                        "device": "254:3", "tag": 9, "disk": "u:vda"} for number in numbers],
            **values}


def follow(monkeypatch: pytest.MonkeyPatch, answers: list[Any], **options: Any) -> list[Any]:
    """Run the command with some answers, then Ctrl-C; return its requests."""
    requests: list[Any] = []

    def ask(_path: object, request: dict[str, Any]) -> Any:
        requests.append(dict(request))
        found = answers.pop(0) if answers else KeyboardInterrupt()
        if isinstance(found, BaseException):
            raise found
        return found

    monkeypatch.setattr(events_cli, "ask", ask)
    monkeypatch.setattr("vcache_agent.cmd.events_cli.time.sleep", lambda _: None)
    events_cli._events(SimpleNamespace(socket=None, **{  # type: ignore[arg-type]
        "follow": False, "json": False, **options}))
    return requests


def test_events_are_printed(monkeypatch: pytest.MonkeyPatch,
                            capsys: pytest.CaptureFixture[str]) -> None:
    follow(monkeypatch, [answer(3, 4, lost=2)])
    shown = capsys.readouterr()
    assert shown.out.splitlines()[0].endswith(
        "  disk          device 254:3 tag 9 u:vda: text 3")
    assert shown.err == "2 older events are no longer kept\n"
    follow(monkeypatch, [answer(3)], json=True)
    assert json.loads(capsys.readouterr().out)["text"] == "text 3"


def test_follow_survives_a_restart_of_the_agent(
        monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(KeyboardInterrupt):
        follow(monkeypatch, [answer(1, 2), answer(), AgentNotRunning("gone"),
                             answer(1, restarted=True, log="m")], follow=True)
    shown = capsys.readouterr()
    assert [text[-1] for text in shown.out.splitlines()] == ["1", "2", "1"]
    assert shown.err == "the agent was restarted\n"
    with pytest.raises(AgentNotRunning):
        follow(monkeypatch, [AgentNotRunning("never there")], follow=True)


def test_modes_are_named_as_in_flavors() -> None:
    (news,) = outcome_events._action(SetTag(
        FILES, 1, "u:vda", 5, (7,), spec.Mode.FLUSH_ONLY, 1, 0))
    assert news.text == "weight 5, mode flush-only, cache 1 to any bytes, 1 cgroups"
