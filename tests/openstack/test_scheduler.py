# SPDX-License-Identifier: Apache-2.0
"""VCacheFilter, VCacheWeigher and the summary that they share."""

import logging
import os
import threading
import time
import uuid
from types import SimpleNamespace
from typing import Any

import pytest
from nova.scheduler import filters, weights

from nova_vcache.extra_specs import Mode, parse
from nova_vcache.placement import names
from nova_vcache.placement.flavor import placement_keys
from nova_vcache.scheduler import filter as filter_module
from nova_vcache.scheduler import snapshot, weigher
from nova_vcache.scheduler.snapshot import SummaryCache
from nova_vcache.summary import HostSummary, Summary
from tests.openstack.hosts import host_state, request

CACHED = frozenset({Mode.WRITEBACK, Mode.WRITETHROUGH, Mode.FLUSH_ONLY})
GOLD = {"vcache:mode": "writeback", "vcache:min_mb": "1000", "vcache:required": "true"}
SOFT = {"vcache:mode": "writeback"}
OURS = {names.TAG: 1, names.CACHE_MB: 1000}


def summary(node: str, **fields: Any) -> HostSummary:
    values: dict[str, Any] = {
        "age_s": 1.0, "modes": CACHED, "flush_isolation": True, "tags_free": 9,
        "cache_mb": 9000, "cache_free_mb": 8000, "largest_free_mb": 8000, "weight": 100}
    return HostSummary(node, **values | fields)


class Known:
    """A summary that is simply there."""

    def __init__(self, *hosts: HostSummary, age_limit: float = 60.0, problem: str = "") -> None:
        self._view = snapshot.View({host.node: host for host in hosts}, age_limit, problem)

    def view(self) -> snapshot.View:
        return self._view

    def stop(self) -> None:
        pass


def know(*hosts: HostSummary, **options: Any) -> None:
    snapshot.replace_shared(Known(*hosts, **options))  # type: ignore[arg-type]


@pytest.fixture(autouse=True)
def _fresh():
    filter_module.CONF([], default_config_files=[])
    yield
    snapshot.replace_shared(None)
    filter_module.CONF.reset()
    filter_module.CONF.clear_override("stale_policy", "vcache")


def passing(flavor: dict[str, str], *hosts: Any, **fields: Any) -> list[str]:
    found = filter_module.VCacheFilter().filter_all(list(hosts), request(flavor, **fields))
    return [host.nodename for host in found]


def stale_policy(value: str) -> None:
    filter_module.CONF.set_override("stale_policy", value, "vcache")


def test_who_can_passes_who_cannot_does_not_and_the_log_says_why(caplog):
    caplog.set_level(logging.INFO)
    know(summary("a"), summary("b", largest_free_mb=10), summary("c", modes=frozenset()),
         *(summary(f"d{i}", tags_free=0) for i in range(5)))
    hosts = [host_state(node, OURS) for node in ("a", "b", "c", "d0", "d1", "d2", "d3", "d4")]
    assert passing(GOLD, *hosts) == ["a"]
    (line,) = [r.getMessage() for r in caplog.records if r.name.startswith("nova_vcache")]
    assert "rejected 7 of 8 hosts" in line
    assert "cache full, 1 (b: 1000 MiB to be guaranteed, 10 MiB free)" in line
    assert "no free tag, 5 (d0: all tags are in use; d1" in line and "and 2 more" in line


@pytest.mark.parametrize("flavor", [
    {}, SOFT, {"vcache:mode": "writeback", "vcache:min_mb": "9"},
    {"vcache:mode": "none", "vcache:required": "true"}, {"vcache:mode": "nonsense"}])
@pytest.mark.parametrize("policy", ["pass", "fail"])
def test_without_required_any_host_will_do(flavor, policy, caplog):
    caplog.set_level(logging.INFO)
    stale_policy(policy)
    know(problem="down")
    assert passing(flavor, host_state("a"), host_state("b")) == ["a", "b"]
    assert not [r for r in caplog.records if r.name.startswith("nova_vcache")]


def test_bad_specs_that_are_required_are_refused_with_the_schema_s_message(caplog):
    caplog.set_level(logging.INFO)
    know(summary("a"))
    assert passing(GOLD | {"vcache:max_mb": "1"}, host_state("a", OURS)) == []
    assert "invalid extra specs" in caplog.text and "vcache:max_mb" in caplog.text


@pytest.mark.parametrize("known", [
    [], [summary("a", age_s=None)], [summary("a", age_s=61.0)]],
    ids=["missing", "never", "stale"])
def test_the_stale_policy(known, caplog):
    caplog.set_level(logging.INFO)
    know(*known, problem="ConnectFailure: down")
    assert passing(GOLD, host_state("a", OURS)) == ["a"]
    # Placement has nothing of ours there: nobody vouches for the host.
    assert passing(GOLD, host_state("a")) == []
    stale_policy("fail")
    assert passing(GOLD, host_state("a", OURS)) == []
    assert "summary" in caplog.text and "ConnectFailure: down" in caplog.text


def test_a_rebuild_and_an_instance_that_is_there_need_no_room():
    know(summary("a", tags_free=0, largest_free_mb=0))
    assert passing(GOLD, host_state("a", OURS)) == []
    rebuild = request(GOLD)
    rebuild.scheduler_hints = {"_nova_check_type": ["rebuild"]}
    assert filter_module.VCacheFilter().host_passes(host_state("a"), rebuild)
    host, spec = host_state("a", OURS), request(GOLD)
    host.instances = {spec.instance_uuid: object()}
    assert filter_module.VCacheFilter().host_passes(host, spec)


KEYS = GOLD | placement_keys(parse(GOLD))


@pytest.mark.parametrize("old", [
    {"tags_free": 0}, {"cache_free_mb": 0, "largest_free_mb": 0}, {"modes": frozenset()},
    {"flush_isolation": False}], ids=str)
def test_what_placement_has_granted_is_not_refused_by_an_older_summary(old):
    know(summary("a", **old), summary("b"))
    assert passing(KEYS, host_state("a", OURS)) == ["a"]
    assert weigh(KEYS, "b", allocated=OURS)["b"] >= 0.5
    assert weigh(KEYS, "a", allocated=OURS)["a"] >= 0.5
    # Not granted: another amount, nothing of ours, or keys that do not demand it.
    assert passing(KEYS, host_state("a", {names.TAG: 1, names.CACHE_MB: 999})) == []
    assert passing(KEYS, host_state("a", {names.CACHE_MB: 1000})) == []
    assert passing(KEYS, host_state("a")) == []
    assert passing(GOLD, host_state("a", OURS)) == []


def test_a_key_of_a_newer_release_is_a_warning(caplog):
    know(summary("a"))
    for _ in range(2):
        assert passing(KEYS | {"vcache:colour": "red"}, host_state("a", OURS)) == ["a"]
    assert caplog.text.count("does not know are ignored: vcache:colour") == 1
    assert weigh(KEYS | {"vcache:colour": "red"}, "a")["a"] >= 0.5


def test_what_placement_does_not_know_is_still_checked():
    know(summary("a", flush_p99_ms=4.6, lanes_free=0), summary("b", largest_free_mb=999))
    assert passing(KEYS, host_state("b", OURS)) == [], "enough, but in several pools"
    assert passing(KEYS | {"vcache:slo_flush_ms": "5"}, host_state("a", OURS)) == []
    assert passing(KEYS | {"vcache:isolation": "dedicated"}, host_state("a", OURS)) == []


def test_the_instances_of_one_request_share_the_free_lanes(caplog):
    caplog.set_level(logging.INFO)
    know(summary("a", lanes_free=2), summary("b", lanes_free=1))
    hosts = [host_state("a", OURS), host_state("b", OURS)]
    one = vcache_filter()
    spec = request(KEYS | {"vcache:isolation": "dedicated"}, pci_requests=None)
    spec.flavor.update({"root_gb": 1, "ephemeral_gb": 0, "memory_mb": 1, "vcpus": 1})

    def placed(spec: Any) -> list[str]:
        found = []
        for index in range(9):
            spec.instance_uuid = str(uuid.uuid4())
            left = handler.get_filtered_objects([one], hosts, spec, index)
            if not left:
                break
            left[0].consume_from_request(spec)
            found.append(left[0].nodename)
        return found

    handler = filters.HostFilterHandler()
    assert placed(spec) == ["a", "a", "b"]
    assert "1 lanes are free, and other instances of the request take 1" in caplog.text
    # The next request counts from the next summary.
    assert placed(request(spec.flavor.extra_specs, pci_requests=None))[:1] == ["a"]


def vcache_filter() -> filter_module.VCacheFilter:
    return filter_module.VCacheFilter()


def test_objectives_with_head_room():
    know(summary("a", flush_p99_ms=4.4), summary("b", flush_p99_ms=4.6))
    flavor = GOLD | {"vcache:slo_flush_ms": "5"}
    assert passing(flavor, host_state("a", OURS), host_state("b", OURS)) == ["a"]


def weigh(flavor: dict[str, str], *nodes: str, aggregates: Any = (),
          allocated: dict[str, int] | None = None) -> dict[str, float]:
    hosts = [host_state(node, allocated) for node in nodes]
    for host in hosts:
        host.aggregates = list(aggregates)
    found = weigher.VCacheWeigher().weigh_objects(
        [weights.WeighedHost(host, 0.0) for host in hosts], request(flavor))
    return dict(zip(nodes, found, strict=True))


def test_a_host_that_can_is_before_one_that_cannot():
    know(summary("worst", loss_per_gb=1e6, slo_tags=1, slo_missed=1, cache_free_mb=0),
         summary("cannot", modes=frozenset({Mode.FLUSH_ONLY})), summary("old", age_s=99.0))
    found = weigh(SOFT, "worst", "cannot", "old", "unknown")
    assert found["worst"] >= 0.5
    assert found["cannot"] == found["old"] == found["unknown"] == 0


@pytest.mark.parametrize(("better", "worse"), [
    ({"cache_free_mb": 8000}, {"cache_free_mb": 2000}),
    ({"weight": 100}, {"weight": 1000}),
    ({"loss_per_gb": 1.0}, {"loss_per_gb": 100.0}),
    ({"loss_per_gb": 9.0, "idle_mb": 9000}, {"loss_per_gb": 9.0}),
    ({"slo_tags": 4, "slo_missed": 0}, {"slo_tags": 4, "slo_missed": 3}),
])
def test_the_better_host_weighs_more(better, worse):
    know(summary("better", **better), summary("worse", **worse))
    found = weigh(SOFT, "better", "worse")
    assert 1 >= found["better"] > found["worse"] >= 0.5


def test_a_guarantee_goes_where_it_leaves_least():
    know(summary("tight", largest_free_mb=1000), summary("wide", largest_free_mb=8000))
    found = weigh(GOLD, "tight", "wide")
    assert found["tight"] > found["wide"]


def test_a_flavor_of_others_weighs_nothing():
    know(summary("a"))
    assert weigh({}, "a", "b") == weigh({"vcache:mode": "bad"}, "a", "b") == {"a": 0, "b": 0}


def test_hosts_that_differ_by_little_get_weights_that_do():
    know(summary("a", cache_free_mb=8000), summary("b", cache_free_mb=7990))
    hosts = [host_state("a"), host_state("b")]
    ordered = weights.HostWeightHandler().get_weighed_objects(
        [weigher.VCacheWeigher()], hosts, request(SOFT))
    assert [item.obj.nodename for item in ordered] == ["a", "b"]
    assert ordered[0].weight - ordered[1].weight < 0.01


def test_an_aggregate_overrides_multipliers():
    know(summary("a", loss_per_gb=1.0), summary("b", loss_per_gb=100.0))
    plain = weigh(SOFT, "a", "b")
    none = SimpleNamespace(metadata={"vcache_gain_multiplier": "0"})
    found = weigh(SOFT, "a", "b", aggregates=[none])
    assert plain["a"] > plain["b"] and found["a"] == found["b"]
    host = host_state("a")
    host.aggregates = [SimpleNamespace(metadata={"vcache_weight_multiplier": "7"})]
    assert weigher.VCacheWeigher().weight_multiplier(host) == 7
    assert weigher.VCacheWeigher().weight_multiplier(host_state("a")) == 1


DOCUMENT = Summary({"a": summary("a")}).to_json()


def wait_for(condition: Any) -> None:
    limit = time.monotonic() + 20
    while not condition():
        assert time.monotonic() < limit
        time.sleep(0.01)


def test_the_summary_is_fetched_by_one_thread_and_not_by_who_looks():
    asked: list[str] = []

    def fetch() -> Any:
        asked.append(threading.current_thread().name)
        return DOCUMENT

    cache = SummaryCache(fetch, interval=600, max_age=60)
    try:
        for _ in range(100):
            view = cache.view()
        assert view.fresh("a") is not None and view.fresh("b") is None and not view.problem
        assert asked == ["vcache-summary"]
    finally:
        cache.stop()


def test_what_was_known_stays_until_it_is_too_old_and_an_error_is_logged_once(caplog):
    answers: list[Any] = [DOCUMENT]

    def fetch() -> Any:
        if answers:
            return answers.pop()
        raise OSError("no route")

    cache = SummaryCache(fetch, interval=0.01, max_age=3)
    try:
        cache.view()
        wait_for(lambda: cache.view().problem)
        time.sleep(0.1)
        assert cache.view().problem == "OSError: no route"
        assert cache.view().fresh("a") is not None
        assert len([r for r in caplog.records if "no route" in r.getMessage()]) == 1
        # Age in the API and here together.
        wait_for(lambda: cache.view().fresh("a") is None)
        answers.append(DOCUMENT)
        wait_for(lambda: cache.view().fresh("a") is not None)
        assert cache.view().hosts
    finally:
        cache.stop()


def test_a_document_that_is_none_keeps_the_last(caplog):
    answers: list[Any] = [{"hosts": 5}, DOCUMENT]
    cache = SummaryCache(lambda: answers.pop() if answers else {}, interval=0.01, max_age=60)
    try:
        cache.view()
        wait_for(lambda: cache.view().problem)
        assert cache.view().fresh("a") is not None and "BadSummary" in cache.view().problem
    finally:
        cache.stop()


def test_a_forked_worker_has_a_thread_of_its_own(monkeypatch):
    calls: list[int] = []
    cache = SummaryCache(lambda: calls.append(1) or DOCUMENT, interval=600, max_age=60)
    try:
        cache.view()
        pid = os.getpid()
        monkeypatch.setattr(os, "getpid", lambda: pid + 1)
        cache.view()
        cache.view()
        assert len(calls) == 2
    finally:
        cache.stop()


def test_without_a_configuration_there_is_nothing_to_ask():
    cache = snapshot.shared(filter_module.CONF)
    assert snapshot.shared(filter_module.CONF) is cache
    assert "NotConfigured" in cache.view().problem


def test_a_client_is_made_of_the_options(requests_mock):
    conf = filter_module.CONF
    requests_mock.get("http://api.invalid/v1/hosts?view=summary", json=DOCUMENT)
    conf.set_override("endpoint_override", "http://api.invalid", "vcache")
    try:
        assert Summary.parse(snapshot.fetcher(conf)()).hosts["a"].tags_free == 9
        assert requests_mock.last_request.timeout == 10
    finally:
        conf.clear_override("endpoint_override", "vcache")
