# SPDX-License-Identifier: Apache-2.0
"""Which objectives are met, from latencies of the last minute and verdicts of a period."""

from typing import Any

import pytest

from nova_vcache.host.objectives import objectives
from nova_vcache.rpc.report import InstanceReport, ObjectiveReport
from tests.openstack.agents import SPECS


def verdict(name: str, cause: str = "device", measured: float = 7.0) -> dict[str, Any]:
    return {"objective": name, "cause": cause, "text": "a sentence", "measured": measured,
            "promised": 5.0}


def found(specs: dict[str, Any], *missed: dict[str, Any], **disk: Any) -> list[ObjectiveReport]:
    return list(objectives(SPECS | specs, {
        "disk": "vda", "tag": 1, "flush_p99_us": None, "read_p99_us": None,
        "requests_per_s": None, "missed": list(missed), **disk}))


@pytest.mark.parametrize(("p99", "verdicts", "state", "measured", "cause"), [
    (None, [], "unknown", None, ""), (5000.0, [], "met", 5.0, ""),
    (5001.0, [], "missed", 5.001, "unknown"),
    (5001.0, [verdict("slo_flush_ms")], "missed", 5.001, "device"),
    # The last minute is good, the last control period was not.
    (100.0, [verdict("slo_flush_ms")], "missed", 7.0, "device"),
    (None, [verdict("slo_flush_ms")], "missed", 7.0, "device"),
    (100.0, [verdict("slo_read_us")], "met", 0.1, ""),
])
def test_a_latency(p99, verdicts, state, measured, cause):
    (one,) = found({"slo_flush_ms": 5.0}, *verdicts, flush_p99_us=p99)
    assert (one.state, one.measured, one.cause, one.promised) == (state, measured, cause, 5.0)
    assert bool(one.text) is (cause == "device")


@pytest.mark.parametrize(("now", "verdicts", "state", "measured", "cause"), [
    (None, [], "unknown", None, ""), (90.0, [], "met", 90.0, ""), (89.0, [], "unknown", 89.0, ""),
    (10.0, [verdict("slo_iops", measured=12.0)], "missed", 12.0, "device"),
    (95.0, [verdict("slo_iops", measured=12.0)], "missed", 12.0, "device"),
    # It asks for no more: that is no miss.
    (10.0, [verdict("slo_iops", "no-load", 9.0)], "unknown", 9.0, "no-load"),
    (95.0, [verdict("slo_iops", "no-load", 9.0)], "met", 95.0, ""),
])
def test_a_rate(now, verdicts, state, measured, cause):
    (one,) = found({"slo_iops": 90.0}, *verdicts, requests_per_s=now)
    assert (one.state, one.measured, one.cause) == (state, measured, cause)


def test_all_objectives_of_a_disk():
    specs = {"slo_flush_ms": 1.0, "slo_read_us": 200.0, "slo_iops": 5.0}
    assert [(one.objective, one.state) for one in found(
        specs, flush_p99_us=2000.0, read_p99_us=200.0)] == [
        ("slo_flush_ms", "missed"), ("slo_read_us", "met"), ("slo_iops", "unknown")]
    assert not found(specs, tag=None), "nothing can be measured"
    assert not found({})


@pytest.mark.parametrize(("states", "state"), [
    ((), "none"), (("unknown",), "unknown"), (("unknown", "met"), "met"),
    (("met", "missed", "unknown"), "missed")])
def test_the_state_of_an_instance(states, state):
    assert InstanceReport("u", objectives=tuple(
        ObjectiveReport("vda", "slo_iops", 1.0, state=one) for one in states)).slo_state == state


@pytest.mark.parametrize(("missed", "state"), [(None, "unknown"), (True, "missed"),
                                               (False, "met")])
def test_the_report_of_an_older_host(missed, state):
    assert InstanceReport("u", specs={"slo_iops": 5.0}, slo_missed=missed).slo_state == state
    assert InstanceReport("u", specs={"slo_iops": None}).slo_state == "none"
