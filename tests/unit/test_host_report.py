# SPDX-License-Identifier: Apache-2.0
"""What an agent tells vcache-host of instances: figures, verdicts, lanes, curves, reasons."""

import dataclasses
from collections.abc import Callable
from typing import Any

import pytest

from tests.unit.test_worker import (  # noqa: F401 # fixtures
    Host,
    Kernel,
    admin,
    host,
)
from vcache_agent import curves, report
from vcache_agent.decide.blame import Cause, Verdict
from vcache_agent.model import Curve, DeviceNumber, Domain, Lane, Stats
from vcache_agent.observe.sample import Sample

MIB = 1 << 20
# In the bucket that begins at 2048 ns, and in that at 16384 ns.
QUICK, SLOW = 40, 52


def counts(**buckets: int) -> tuple[int, ...]:
    found = [0] * 200
    for name, count in buckets.items():
        found[{"quick": QUICK, "slow": SLOW}[name]] = count
    return tuple(found)


def grows(host: Host, domain: Domain, before: Stats, now: Stats) -> None:  # noqa: F811
    """Have a tag's counters grow between the start of the last minute and now."""
    tag = host.tag(domain)
    host.ring.append(Sample(0.0, 1000.0, (), (dataclasses.replace(tag, stats=before),)))
    host.kernel.table[tag.id] = dataclasses.replace(tag, stats=now, cached_bytes=3 * MIB)


@pytest.fixture
def at(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    found = [1050.0]
    monkeypatch.setattr("vcache_agent.admin_server.time.monotonic", lambda: found[0])
    return found


def test_figures_of_the_last_minute(
        host: Host, admin: Callable[..., dict], at: list[float]) -> None:  # noqa: F811
    domain = host.tell("a", host.image("a", 4))
    host.look()
    grows(host, domain,
          Stats(reads=10, writes=10, read_bytes=1000, cache_hit_bytes=900,
                flush_hist=counts(slow=7)),
          Stats(reads=60, writes=110, read_bytes=5000, cache_hit_bytes=3700, read_hit_bytes=200,
                flush_hist=counts(quick=98, slow=9)))
    answer = admin("host")
    (disk,), (instance,) = answer["disks"], answer["domains"]
    assert disk["hit_ratio"] == instance["hit_ratio"] == 0.75
    assert disk["requests_per_s"] == 3.0, "150 in 50 seconds"
    for row in (disk, instance):
        assert 2.0 < row["flush_p50_us"] < 2.6 and 16 < row["flush_p99_us"] < 21
    assert disk["missed"] == []


def test_without_requests_there_are_no_figures(
        host: Host, admin: Callable[..., dict], at: list[float]) -> None:  # noqa: F811
    domain = host.tell("a", host.image("a", 4))
    host.look()
    grows(host, domain, Stats(reads=10, read_bytes=1000), Stats(reads=10, read_bytes=1000))
    answer = admin("host")
    for row in (*answer["disks"], *answer["domains"]):
        assert (row["hit_ratio"], row["flush_p50_us"], row["flush_p99_us"]) == (None, None, None)
    assert answer["disks"][0]["requests_per_s"] == 0


def test_verdicts_are_in_the_units_of_the_flavor(
        host: Host, admin: Callable[..., dict]) -> None:  # noqa: F811
    domain = host.tell("a", host.image("a", 4))
    outcome = host.look()
    tag = host.tag(domain)
    found = (Verdict("flush", Cause.NEIGHBOUR, 0.0125, 0.005, (DeviceNumber(254, 3), 8)),
             Verdict("read", Cause.DEVICE, 0.00125, 0.001), Verdict("iops", Cause.NO_LOAD, 5, 90))
    assert outcome.plan
    history = dataclasses.replace(outcome.plan.pools.history,
                                  missed={(tag.device, tag.id): found})
    host.worker._outcome = dataclasses.replace(outcome, plan=dataclasses.replace(
        outcome.plan, pools=dataclasses.replace(outcome.plan.pools, history=history)))
    (disk,) = admin("host")["disks"]
    assert [(one["objective"], one["cause"], one["measured"], one["promised"])
            for one in disk["missed"]] == [
        ("slo_flush_ms", "neighbour", 12.5, 5.0), ("slo_read_us", "device", 1250.0, 1000.0),
        ("slo_iops", "no-load", 5.0, 90.0)]
    assert "comes from tag 8 on device 254:3" in disk["missed"][0]["text"]


def test_the_instance_that_has_a_lane_is_named() -> None:
    from tests.unit.fake_kernel import AT, device, tag

    pool = {"device": "254:9", "lanes_bytes": [MIB, 2 * MIB, 3 * MIB, 4 * MIB]}
    rows = [{"device": str(AT), "tag": 5, "uuid": "u"}]
    tags = [dataclasses.replace(tag(number), cache_lanes=mask)
            for number, mask in ((5, 0b0010), (6, 0b1000))]
    found = report._lanes(pool, [device(pool="254:9")], tags, rows, [
        Lane(DeviceNumber(254, 9), 1, free_bytes=7), Lane(DeviceNumber(254, 8), 2, free_bytes=8)])
    assert [(lane["size_bytes"] // MIB, lane["free_bytes"], lane["dedicated"], lane["uuid"])
            for lane in found] == [
        (1, None, False, ""), (2, 7, True, "u"), (3, None, False, ""), (4, None, True, "")]
    assert not any(lane["dedicated"]
                   for lane in report._lanes(pool, [device(pool="254:8")], tags, rows, []))


def test_points_of_a_curve() -> None:
    curve = Curve(4096, 8 * 4096, 1000, 0, (1000, 500, 250, 125, 100, 90, 80, 70, 60), (0,) * 9)
    found = curves.points(curve)
    assert [point["size_bytes"] // 4096 for point in found] == list(range(9))
    assert [point["read_miss_ratio"] for point in found][:3] == [1.0, 0.5, 0.25]
    assert {point["write_miss_ratio"] for point in found} == {None}, "nothing was written"
    large = Curve(4096, 1 << 30, 10, 10, tuple(range(10, 0, -1)), (10,) * 10)
    assert len(curves.points(large)) == 65
    assert curves.points(large)[-1]["size_bytes"] == 1 << 30


def test_curves_and_reasons_of_one_instance(
        host: Host, admin: Callable[..., dict], at: list[float]) -> None:  # noqa: F811
    first, second = (host.tell(name, host.image(name, 4)) for name in "ab")
    host.look()
    for domain in (first, second):
        tag = host.tag(domain)
        host.kernel.table[tag.id] = dataclasses.replace(tag, cached_bytes=MIB)
        host.kernel.curves[tag.id] = Curve(MIB, 2 * MIB, 100 + tag.id, 0, (100, 40), (0, 0))
    (curve,) = admin("instance-curves", uuid=first.uuid)["curves"]
    assert (curve["disk"], curve["reads"]) == ("vda", 100 + host.tag(first).id)
    assert (curve["footprint_bytes"], curve["cached_bytes"]) == (2 * MIB, MIB)
    asked: list[Any] = []
    for domain in (first, second):
        host.kernel.curves[host.tag(domain).id] = Curve(MIB, 2 * MIB, 1, 0, (1, 1), (0, 0))
        asked += admin("instance-curves", uuid=domain.uuid)["curves"]
    assert [item["reads"] > 100 for item in asked] == [True, True], "the kernel is not asked again"
    (why,) = admin("instance-why", uuid=second.uuid)["disks"]
    assert (why["disk"], why["tag"]) == ("vda", host.tag(second).id)
    assert {item["what"] for item in why["decisions"]} >= {"mode", "weight", "isolation"}
    assert any("flavor of b:" in text for item in why["decisions"] for text in item["because"])


@pytest.mark.parametrize("uuid", ["00000000-0000-4000-8000-000000000000", None, 5, ["a"]])
@pytest.mark.parametrize("name", ["instance-curves", "instance-why"])
def test_an_instance_that_is_elsewhere(
        host: Host, admin: Callable[..., dict], name: str, uuid: Any) -> None:  # noqa: F811
    host.look()
    answer = admin(name, uuid=uuid)
    assert (answer["ok"], answer["kind"]) == (False, "not-here")
