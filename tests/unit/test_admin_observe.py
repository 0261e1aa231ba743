# SPDX-License-Identifier: Apache-2.0
"""The requests ``events`` and ``why`` of the admin socket."""

import dataclasses
import functools
import json
import time
from types import SimpleNamespace
from typing import Any

import pytest

from tests.unit import fake_kernel
from tests.unit.fake_kernel import AT, Kernel, device, tag
from vcache_agent.admin_server import AdminServer
from vcache_agent.events import EventLog
from vcache_agent.model import DeviceNumber
from vcache_agent.netlink import client
from vcache_agent.observe import codec
from vcache_agent.observe.claim import Claim, PoolSize
from vcache_agent.overrides import NONE
from vcache_agent.plan.decide import decide
from vcache_agent.plan.state import Nesting, Observed, PoolDecision
from vcache_agent.records import DiskRow
from vcache_agent.worker import Outcome, Worker

OTHER = DeviceNumber(254, 4)


@pytest.fixture
def agent(monkeypatch: pytest.MonkeyPatch) -> SimpleNamespace:
    """An agent with tag 9 on two devices, and tag 5 on one; an operator has set a weight."""
    kernel = Kernel((device(pool=""), device(number=OTHER, name="other", pool="")),
                    (tag(9), tag(9, device=OTHER), tag(5)))
    monkeypatch.setattr(client, "socket", fake_kernel.install(kernel))
    row = DiskRow("u", "vda", 5, "vm", "/p", "k", "d", "vda", weight=700)
    return SimpleNamespace(
        events=EventLog(), kernel=kernel,
        worker=SimpleNamespace(outcome=Outcome(problem=""), policy="weighted", nesting=Nesting()),
        store=SimpleNamespace(disks=lambda: {row.id: row}, overrides=lambda: {"u": NONE},
                              draining=lambda: False))


def ask(agent: SimpleNamespace, **request: Any) -> dict[str, Any]:
    return dict(json.loads(AdminServer(agent).handle(  # type: ignore[arg-type]
        json.dumps(request).encode())))


def test_events_are_returned_once(agent: SimpleNamespace) -> None:
    agent.events.add("disk", "one", device=AT, tag=9, disk="u:vda")
    first = ask(agent, op="events")
    assert [event["text"] for event in first["events"]] == ["one"]
    assert (first["next"], first["lost"], first["restarted"]) == (1, 0, False)
    again = ask(agent, op="events", after=first["next"], log=first["log"])
    assert (again["events"], again["next"]) == ([], 1)
    agent.events.add("disk", "two")
    later = ask(agent, op="events", after=again["next"], log=again["log"])
    assert [event["text"] for event in later["events"]] == ["two"]


def test_a_change_after_its_deadline_is_refused(agent: SimpleNamespace) -> None:
    saved: list[bool] = []
    waited: list[float] = []
    agent.store.set_draining = saved.append
    agent.worker.kick = lambda _fresh: 1
    agent.worker.wait = lambda _number, seconds: waited.append(seconds) or seconds > 5
    agent.worker.settle = functools.partial(Worker.settle, agent.worker)
    answer = ask(agent, op="drain-set", draining=True, deadline=time.monotonic())
    assert (answer["ok"], answer["kind"]) == (False, "unfinished")
    assert "nothing is changed: the request arrived after its deadline" in answer["error"]
    assert not saved and not agent.events.after(0)[0]
    # The kernel has until the deadline.
    answer = ask(agent, op="drain-set", draining=True, deadline=time.monotonic() + 3)
    assert "the change is saved, but was not applied to the kernel within" in answer["error"]
    assert saved == [True] and 0 < waited[0] <= 3
    assert agent.events.after(0)[0][0].text == 'drain-set: {"draining": true}'
    assert ask(agent, op="drain-set", draining=False)["ok"] and waited[1] == 20
    assert "'soon' must be a number" in ask(agent, op="drain-set", deadline="soon")["error"]


def test_after_a_restart_all_events_are_new(agent: SimpleNamespace) -> None:
    agent.events.add("disk", "one")
    found = ask(agent, op="events", after=500, log="of the agent before")
    assert found["restarted"]
    assert [event["text"] for event in found["events"]] == ["one"]
    assert (found["next"], found["log"], found["lost"]) == (1, agent.events.id, 0)
    agent.events = EventLog()
    found = ask(agent, op="events", after=500, log="of the agent before")
    assert (found["next"], found["restarted"]) == (0, True), "an empty log begins at 0"


@pytest.mark.parametrize("after", ["1", -1, True, 1.5, None])
def test_a_bad_number_is_refused(agent: SimpleNamespace, after: object) -> None:
    answer = ask(agent, op="events", after=after)
    assert not answer["ok"]
    assert "must be an integer of at least 0" in answer["error"]


def test_why(agent: SimpleNamespace) -> None:
    found = ask(agent, op="why", tag=5)["why"]
    assert (found["tag"], found["device"]) == (5, "254:3")
    weight = next(item for item in found["decisions"] if item["what"] == "weight")
    assert weight["because"] == ["vcache tag set --weight 700"]
    assert ask(agent, op="why", tag=9, device="254:4")["why"]["device_name"] == "other"


@pytest.mark.parametrize(("request_", "kind", "text"), [
    ({"tag": 0}, "", "tag 0 must be an integer from 1 to 65535"),
    ({"tag": "5"}, "", "tag '5' must be an integer"),
    ({}, "", "tag None must be an integer"),
    ({"tag": 7}, "not-here", "no device has a tag 7"),
    ({"tag": 5, "device": "254:4"}, "not-here", "device '254:4' has no tag 5"),
    ({"tag": 9}, "", "tag 9 is on several devices, name one of 254:3, 254:4")])
def test_a_tag_that_cannot_be_explained(agent: SimpleNamespace, request_: dict[str, Any],
                                        kind: str, text: str) -> None:
    answer = ask(agent, op="why", **request_)
    assert (answer["ok"], answer["kind"]) == (False, kind)
    assert text in answer["error"]


def test_without_the_kernel_the_reason_is_unknown(agent: SimpleNamespace) -> None:
    agent.kernel.loaded = False
    answer = ask(agent, op="why", tag=5)
    assert (answer["ok"], answer["kind"]) == (False, "unfinished")
    assert "modprobe dm-vcache" in answer["error"]


def test_what_the_last_pass_could_not_set_is_said(agent: SimpleNamespace) -> None:
    agent.worker.outcome = dataclasses.replace(
        agent.worker.outcome, errors={(AT, 5): "SetTag: refused"})
    notes = ask(agent, op="why", tag=5)["why"]["notes"]
    assert "the kernel refused a change: SetTag: refused" in notes


def test_claims_are_returned_for_recordings(agent: SimpleNamespace) -> None:
    assert ask(agent, op="claims") == {"ok": True, "claims": [], "pools": []}
    claim, pool = Claim(AT, 9, "254:2", 70, read_s=0.5), PoolSize("254:2", 5 << 20, (5 << 20,))
    plan = decide(Observed((), (), ()))
    agent.worker.outcome = Outcome(dataclasses.replace(
        plan, pools=PoolDecision(claims=(claim,), sizes=(pool,))), problem="")
    found = ask(agent, op="claims")
    assert codec.decode_parts(found["claims"], Claim, "claims") == (claim,)
    assert codec.decode_parts(found["pools"], PoolSize, "pools") == (pool,)
