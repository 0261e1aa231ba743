# SPDX-License-Identifier: Apache-2.0
"""``vcache why``: each decision with its inputs."""

import dataclasses
from typing import Any

from nova_vcache.extra_specs import Mode
from tests.unit.fake_kernel import AT, device, tag
from tests.unit.plan_model import FILES, disk, uuid
from vcache_agent import why
from vcache_agent.cmd import why_cli
from vcache_agent.decide.blame import Cause, Verdict
from vcache_agent.decide.decision import Share
from vcache_agent.decide.history import Known, Load
from vcache_agent.decide.restraint import Means, Rates
from vcache_agent.model import FLUSH_CAUSES, DiskState
from vcache_agent.netlink import spec
from vcache_agent.plan.state import DiskReport, Nesting
from vcache_agent.policies import Range
from vcache_agent.restraints import InForce
from vcache_agent.why import Inputs, Operator


def state(number: int = 1, **specs: str) -> DiskState:
    made = disk(number, mode=Mode.WRITEBACK)
    return dataclasses.replace(made, domain=dataclasses.replace(
        made.domain, extra_specs={f"vcache:{key}": value for key, value in specs.items()}
        | {"hw:cpu_policy": "shared"}, project="p7"))


def inputs(*states: DiskState, **values: Any) -> Inputs:
    reports = tuple(DiskReport(item, 9, Mode.WRITEBACK, 250, "a note") for item in states)
    return Inputs(**{"reports": reports, "device": device(), "tag": tag(9), "policy": "weighted",
                     "pool_bytes": 1 << 30, **values})


def decision(found: dict[str, Any], what: str) -> tuple[Any, list[str]]:
    (item,) = (item for item in found["decisions"] if item["what"] == what)
    return item["value"], item["because"]


def test_the_flavor_decides() -> None:
    found = why.explain(9, inputs(state(mode="writeback", weight="250", min_mb="5")))
    assert decision(found, "mode") == ("writeback", [
        "flavor of vm1: vcache:mode=writeback", "device images is in mode writeback"])
    assert decision(found, "weight") == (250, ["flavor of vm1: vcache:weight=250"])
    share, because = decision(found, "share")
    assert share == {"min_bytes": 0, "max_bytes": None, "share_bytes": 10 << 20,
                     "cached_bytes": 5 << 20}
    assert because == ["flavor of vm1: vcache:min_mb=5",
                       "flavor of vm1: vcache:max_mb=unlimited (default)", "policy weighted",
                       "the pool has 1073741824 bytes"]
    assert decision(found, "lanes") == ([1, 2], ["flavor of vm1: vcache:isolation=auto (default)"])
    assert decision(found, "isolation")[0] == "fua"
    assert found["notes"] == ["a note"]
    (one,) = found["disks"]
    assert (one["domain"], one["uuid"], one["project"]) == ("vm1", uuid(1), "p7")
    assert "hw:cpu_policy" not in one["flavor"]


def test_operators_and_draining_are_named_in_their_order() -> None:
    found = why.explain(9, inputs(
        state(1), state(2), operator=Operator(300, "flush-only", "1,2"), draining=True,
        overrides={uuid(2): {"weight": 700}}, error="SetTag: refused"))
    assert decision(found, "weight")[1] == [
        "flavor of vm1: vcache:weight=100 (default)", "flavor of vm2: vcache:weight=100 (default)",
        "instance vm2: an operator set weight 700",
        "several domains use the disk: the largest weight", "vcache tag set --weight 300"]
    assert decision(found, "mode")[1][2:] == [
        "the host is being drained: writeback becomes writethrough",
        "vcache tag set --mode flush-only", "device images is in mode writeback"]
    assert decision(found, "lanes")[1][-1] == "vcache tag set --lanes 1,2"
    assert found["disks"][1]["override"] == {"weight": 700}
    assert found["notes"] == ["a note", "the kernel refused a change: SetTag: refused"]


def test_a_share_has_the_reasons_of_the_policy_and_what_was_measured() -> None:
    share = Share(Range(5 << 20, 0), reasons=("mrc: the least weighted time at the origins",))
    load = Load(requests=120.0, missed=0.25, read_p99=0.008, flush_p99=0.0011,
                flush_wait="space", flush_wait_part=0.75)
    _, because = decision(why.explain(9, inputs(
        state(), policy="mrc", share=share, known=Known(load=load))), "share")
    assert because[-7:] == [
        "the pool has 1073741824 bytes", "mrc: the least weighted time at the origins",
        "in the last period it had 120 requests a second",
        "25.0 % of the bytes that it read came from the origin",
        "99 % of its reads took at most 8 ms", "99 % of its flushes took at most 1.1 ms",
        "75 % of the time that its flushes waited was for space in its log"]
    _, because = decision(why.explain(9, inputs(state(), share=share, known=Known())), "share")
    assert because[-1] == "in the last period it had no requests"


def test_every_cause_of_a_wait_has_a_text() -> None:
    assert set(why._FLUSH_WAITS) == set(FLUSH_CAUSES)


def test_a_missed_objective_is_a_note_with_its_cause() -> None:
    found = why.explain(9, inputs(state(), missed=(
        Verdict("flush", Cause.OWN_BURST, 0.02, 0.005),)))
    assert found["notes"] == ["a note", "an objective is missed: the p99 of its flushes is 20 ms, "
                              "the objective 5 ms: it has much more load than usual"]


def test_a_limit_is_a_note_for_the_neighbour_and_for_its_victim() -> None:
    limit = InForce((FILES, 2), frozenset({(FILES, 1), (FILES, 9)}), Means.IO,
                    Rates(4 << 20, 9 << 20))
    found = why.explain(9, inputs(state(), key=(FILES, 9), restraints=(limit,)))
    assert found["notes"][1:] == ["for its objective, tag 2 on device 254:0 is limited: reads to "
                                  "4.0 MiB/s and writes to 9.0 MiB/s"]
    found = why.explain(2, inputs(state(), key=(FILES, 2), restraints=(limit,)))
    assert found["notes"][1:] == [
        "limited because of an objective of tag 1 on device 254:0, 9 on device 254:0: reads to "
        "4.0 MiB/s and writes to 9.0 MiB/s"]
    assert why.explain(3, inputs(state(), key=(FILES, 3), restraints=(limit,)))["notes"] == [
        "a note"]


def test_a_nested_weight_names_the_project() -> None:
    _, because = decision(why.explain(9, inputs(
        state(), nesting=Nesting(True, {"p7": 300}))), "weight")
    assert because[-1] == "nested shares: project p7 has weight 300 for all its instances"


def test_without_a_pool_there_is_no_share() -> None:
    found = why.explain(9, inputs(state(), device=device(pool="", mode=spec.Mode.FLUSH_ONLY)))
    assert {item["what"] for item in found["decisions"]} == {"mode", "weight", "isolation"}


def test_what_is_unknown_is_said() -> None:
    found = why.explain(9, Inputs((), device(), None, pool_bytes=None))
    assert decision(found, "mode")[0] is None
    assert "the size of the pool is unknown" in decision(found, "share")[1]
    assert found["notes"] == ["the kernel has no such tag now", "no running domain uses the tag"]
    # The kernel still has the tag: its values are shown.
    found = why.explain(9, Inputs((), device(), tag(9, cache_lanes=0)))
    assert decision(found, "weight")[0] == 250
    assert decision(found, "lanes") == ([], ["no dedicated lane: it uses the shared lanes"])
    assert why.explain(9, Inputs((), None, None))["device"] is None


def test_the_text() -> None:
    text = why_cli.text(why.explain(9, inputs(state(weight="250")))).splitlines()
    assert text[0] == f"tag 9 on device images ({AT})"
    assert text[1] == f"  disk vda of vm1 ({uuid(1)}, project p7): /file:dm0:1"
    assert "weight: 250" in text
    assert "  - flavor of vm1: vcache:weight=250" in text
    assert "share: 10.0 MiB, from 0 B to no limit; 5.0 MiB are cached" in text
    assert "lanes: 1, 2" in text
    assert text[-1] == "  - a note"
