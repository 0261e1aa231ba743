# SPDX-License-Identifier: Apache-2.0
"""The views of an agent's answer for Placement, the scheduler and the API."""

import json

import pytest

from nova_vcache.extra_specs import Mode
from nova_vcache.host.view import HostView, silent
from nova_vcache.placement import names
from nova_vcache.rpc.report import BadReport, HostReport
from tests.openstack.agents import FakeAgent, uuid_of

ALL = frozenset({Mode.WRITEBACK, Mode.WRITETHROUGH, Mode.FLUSH_ONLY})


@pytest.fixture
def agent() -> FakeAgent:
    return FakeAgent()


def view(agent: FakeAgent) -> HostView:
    return HostView("n1", agent.ask({"op": "host"}))


def test_a_host_without_instances(agent):
    capacity = view(agent).capacity({})
    assert (capacity.tags, capacity.tags_reserved) == (65535, 0)
    assert (capacity.cache_mb, capacity.largest_mb, capacity.cache_reserved_mb) == (9216, 9216, 0)
    assert capacity.modes == ALL
    assert capacity.elastic and capacity.flush_isolation and not capacity.tagged_ssd
    summary = view(agent).report(2.0).summary
    assert (summary.node, summary.age_s, summary.modes) == ("n1", 2.0, ALL)
    assert (summary.cache_mb, summary.cache_free_mb, summary.largest_free_mb) == (9216,) * 3
    assert (summary.tags_free, summary.weight, summary.lanes_free) == (65535, 0, 0)


def test_what_no_allocation_stands_for_is_reserved(agent):
    first, second, third = agent.add(1, min_mb=100), agent.add(2, min_mb=200), agent.add(3)
    agent.answer["tags_of"] |= {first: 3, "kept": 1}
    allocations = {first: {names.TAG: 1, names.CACHE_MB: 100}, second: {names.TAG: 1},
                   "another": {names.TAG: 1}}
    capacity = view(agent).capacity(allocations)
    # Two further disks of the first, the third, the one that is kept.
    assert capacity.tags_reserved == 4
    assert capacity.cache_reserved_mb == 200
    summary = view(agent).report(0.0).summary
    assert (summary.tags_free, summary.cache_free_mb) == (65535 - 6, 9216 - 300)
    assert summary.weight == 300
    assert summary.idle_mb == 3 * 768
    assert third in view(agent).instances


def test_lanes_that_one_has_for_itself_are_nobody_elses(agent):
    agent.answer["pools"][0] |= {"lanes_bytes": [5 << 30, 5 << 30], "lanes_free": 1}
    assert view(agent).report(0.0).summary.lanes_free == 1
    uuid = agent.add(1, min_mb=100, isolation="dedicated")
    agent.answer["disks"][0] ["lanes_bytes"] = 5 << 30
    agent.answer["pools"][0]["lanes_free"] = 0
    summary = view(agent).report(0.0).summary
    assert (summary.lanes_free, summary.cache_free_mb) == (0, 9216 - 5120)
    # Placement knows of what the flavor asks for, not of what a lane holds.
    for allocated, reserved in ((0, 5120), (100, 5020), (5120, 0), (6000, 0)):
        capacity = view(agent).capacity({uuid: {names.CACHE_MB: allocated, names.TAG: 1}})
        assert capacity.cache_reserved_mb == reserved
    agent.answer["draining"] = True
    agent.answer["pools"][0]["lanes_free"] = 1
    assert view(agent).report(0.0).summary.lanes_free == 0


def test_guarantees_count_in_the_pool_where_they_are(agent):
    agent.answer["pools"].append({**agent.answer["pools"][0], "name": "b", "device": "254:8",
                                  "size_bytes": 1 << 30})
    agent.add(1, min_mb=9000)
    summary = view(agent).report(0.0).summary
    assert (summary.cache_mb, summary.cache_free_mb, summary.largest_free_mb) == (
        9216 + 921, 216 + 921, 921)
    assert view(agent).capacity({}).largest_mb == 9216
    assert [pool.guaranteed_bytes >> 20 for pool in view(agent).report(0.0).pools] == [9000, 0]


def test_elastic_ssds_count_in_their_pools(agent):
    """That of a flavor with its guarantee, another one with its size."""
    agent.add(1, min_mb=1000, vssd_max_mb=4000, vssd_mb=500)
    uuid, pool = uuid_of(1), agent.answer["pools"][0]["device"]
    agent.answer["vssds"] = [
        {"name": "a", "uuid": uuid, "pool": pool, "size_bytes": 900 << 20},
        {"name": "b", "uuid": None, "pool": pool, "size_bytes": 300 << 20}]
    found = view(agent)
    assert found.report(0.0).summary.cache_free_mb == 9216 - 1800
    assert found.capacity({}).cache_reserved_mb == 1800
    assert found.capacity({uuid: {names.CACHE_MB: 1500}}).cache_reserved_mb == 300
    assert [one.guaranteed_bytes >> 20 for one in found.report(0.0).pools] == [1800]


@pytest.mark.parametrize(("change", "modes"), [
    ({"pools": []}, ALL),  # devices that have a cache still work
    ({"pools": [], "devices": []}, frozenset()),
    ({"devices": []}, ALL),
])
def test_modes(agent, change, modes):
    agent.answer |= change
    assert view(agent).report(0.0).summary.modes == modes


def test_a_device_or_a_pool_that_has_failed_offers_less(agent):
    agent.answer["pools"][0]["state"] = "failed"
    agent.answer["devices"][0]["cache"]["broken"] = True
    agent.answer["devices"][0]["isolation"] = "degraded"
    capacity = view(agent).capacity({})
    assert capacity.modes == {Mode.FLUSH_ONLY}
    assert capacity.cache_mb == 0 and not capacity.flush_isolation and not capacity.elastic
    agent.answer["devices"][0]["broken"] = True
    assert view(agent).capacity({}).modes == frozenset()


def test_a_host_that_drains_has_nothing_to_give(agent):
    agent.add(1, min_mb=100)
    agent.answer["draining"] = True
    allocations = {uuid_of(1): {names.TAG: 1, names.CACHE_MB: 100}}
    inventories = view(agent).capacity(allocations).inventories(allocations)
    assert all(item["reserved"] == item["total"] for item in inventories.values())
    assert set(inventories) == set(names.RESOURCE_CLASSES)
    summary = view(agent).report(0.0).summary
    assert summary.modes == frozenset()
    assert (summary.tags_free, summary.cache_free_mb, summary.largest_free_mb) == (0, 0, 0)


def test_objectives(agent):
    agent.add(1, slo_flush_ms=1.0)
    agent.add(2, slo_flush_ms=0.5)
    agent.add(3, slo_iops=100.0)
    agent.answer["disks"][2]["requests_per_s"] = 5.0
    agent.answer |= {"flush_p99_us": 900.0, "loss_per_gb": 12.5}
    report = view(agent).report(0.0)
    assert (report.summary.slo_tags, report.summary.slo_missed) == (3, 1)
    assert (report.summary.flush_p99_ms, report.summary.loss_per_gb) == (0.9, 12.5)
    assert [item.slo_missed for item in report.instances] == [False, True, None]


@pytest.mark.parametrize(("flush_ms", "read_us", "missed"), [
    (None, 200.0, False), (None, 199.0, True), (1.0, 300.0, False), (0.5, 300.0, True),
    (1.0, 100.0, True)])
def test_an_instance_misses_what_one_of_its_disks_misses(agent, flush_ms, read_us, missed):
    agent.add(1, slo_flush_ms=flush_ms, slo_read_us=read_us)
    agent.answer["read_p99_us"] = agent.answer["disks"][0]["read_p99_us"] = 200.0
    report = view(agent).report(0.0)
    assert report.summary.read_p99_us == 200.0
    (instance,) = report.instances
    assert instance.slo_missed is missed
    assert instance.disks[0].read_p99_us == 200.0
    agent.answer["disks"][0] |= {"read_p99_us": None, "flush_p99_us": None}
    (instance,) = view(agent).report(0.0).instances
    assert instance.slo_missed is None


def test_a_kernel_without_the_module(agent):
    agent.answer |= {"agent": {"problem": "load the module"}, "devices": [], "pools": []}
    report = view(agent).report(1.0)
    assert report.problem == "load the module"
    assert report.summary.modes == frozenset() and not report.summary.flush_isolation


def test_a_report_is_read_as_it_was_written(agent):
    agent.add(1, min_mb=100, slo_flush_ms=0.5)
    for report in (view(agent).report(1.5, "gone"), silent("n2", "never")):
        assert HostReport.parse(json.loads(json.dumps(report.to_json()))) == report


@pytest.mark.parametrize(("change", "text"), [
    (lambda doc: doc.clear(), "summary has no 'node'"),
    (lambda doc: doc.update(policy=5), "host 'n1': policy '5'"),
    (lambda doc: doc.update(pools=5), "host 'n1': pools is not a list"),
    (lambda doc: doc["instances"][0].pop("uuid"), "instance None: a field is missing"),
    (lambda doc: doc["instances"][0]["disks"][0].update(tag=True), "disk: tag 'True'"),
    (lambda doc: doc["instances"].append(5), "is not an object"),
])
def test_a_report_that_is_none_is_refused(agent, change, text):
    agent.add(1)
    document = json.loads(json.dumps(view(agent).report(0.0).to_json()))
    change(document)
    with pytest.raises(BadReport, match=text):
        HostReport.parse(document)


def test_what_a_newer_host_adds_is_ignored(agent):
    document = view(agent).report(0.0).to_json()
    document["colour"] = document["summary"]["colour"] = document["pools"][0]["colour"] = "red"
    assert HostReport.parse(document) == view(agent).report(0.0)
