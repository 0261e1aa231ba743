# SPDX-License-Identifier: Apache-2.0
"""The metrics: values, completeness, Prometheus' own checks, and the HTTP listener."""

import dataclasses
import shutil
import socket
import subprocess
import time
import urllib.request
from collections.abc import Iterator
from typing import Any

import pytest
from prometheus_client import CollectorRegistry, generate_latest
from prometheus_client.parser import text_string_to_metric_families

from tests.unit.fake_kernel import POOL, UUID, counts, device, info, lane, tag
from tests.unit.plan_model import disk
from tests.unit.test_observe import until
from vcache_agent import histogram, outcome_events
from vcache_agent.decide.blame import Cause, Verdict
from vcache_agent.decide.history import History
from vcache_agent.decide.restraint import Means, Rates
from vcache_agent.drive.tag_shares import TagShare
from vcache_agent.drive.watch import Reading
from vcache_agent.drive.weights import Drive
from vcache_agent.events import EventLog
from vcache_agent.inventory import Entry, Snapshot
from vcache_agent.metrics import buckets, definitions, pool_watch, server
from vcache_agent.metrics.collector import MAX_AGE, AgentCollector, State
from vcache_agent.metrics.server import AddressError, MetricsServer
from vcache_agent.model import (
    FLUSH_CAUSES,
    REFUSAL_CAUSES,
    SSD_CAUSES,
    Device,
    DeviceNumber,
    Domain,
    Lane,
    Phase,
    Stats,
    Tag,
)
from vcache_agent.netlink import spec
from vcache_agent.observe.sample import Sample
from vcache_agent.plan.state import DiskReport, Orphan, Plan, PoolDecision
from vcache_agent.pools import Pool
from vcache_agent.records import RowChanges
from vcache_agent.restraints import InForce
from vcache_agent.worker import Outcome

DOMAIN = Domain(UUID, "vm", {}, (), "project-7")
LISTED = Snapshot((Entry(DOMAIN, Phase.RUNNING, 0.0),), True, frozenset({UUID}))
PROMTOOL = shutil.which("promtool")


def full(age: float = 0.0) -> Sample:
    return Sample(1000.5, time.monotonic() - age, (
        device(), device(number=DeviceNumber(254, 4), name="old", broken=True, suspended=True,
                         isolation=spec.Isolation.DEGRADED, pool="", cache_broken=True)),
        (tag(0), tag(9)), lanes=(lane(), lane(1, volume=3, tag=7)))


def reading(age: float = 0.0, problem: str = "") -> Reading:
    """Return what a drive has reported of the host tag and of tag 9."""
    return Reading(Drive("nvme0", "259:0", True, {0: "", 9: f"{UUID}:vda"}),
                   time.monotonic() - age, (
                       TagShare(0, 0, 0, 2, 30, 4, 0, 5_000_000, 0),
                       TagShare(9, 300, 512, 8, 20, 3, 1_500_000_000, 7_000_000, 9_000_000)),
                   problem)


def state(**values: Any) -> State:
    plan = Plan((), RowChanges(), (DiskReport(disk(1), None, disk(1).specs.mode),),
                (Orphan(None, 5, "x", 4096, "why"),))
    return State(**{
        "sample": full(), "outcome": Outcome(plan, LISTED, "", {(device().number, 9): "x"}),
        "passes": {True: 5, False: 2}, "passed": 2000.25, "events": {"disk": 3}, "gaps": 7,
        "sample_seconds": 0.25, "record_dropped": 1, "pools": (POOL,), "drives": (reading(),),
        **values})


def exposed(instance_labels: bool = False, **values: Any) -> str:
    registry = CollectorRegistry()
    made = state(**values)
    registry.register(AgentCollector(lambda: made, "1.2.3", instance_labels))
    return generate_latest(registry).decode()


def series(text: str) -> dict[tuple[str, tuple[tuple[str, str], ...]], float]:
    """Return the values by name and labels."""
    return {(one.name, tuple(sorted(one.labels.items()))): one.value
            for family in text_string_to_metric_families(text) for one in family.samples}


def value(text: str, name: str, **labels: str) -> float:
    return series(text)[name, tuple(sorted(labels.items()))]


def test_devices() -> None:
    text = exposed()
    assert value(text, "vcache_device_size_bytes", device="images") == 1 << 30
    assert value(text, "vcache_device_broken", device="images") == 0
    assert value(text, "vcache_device_broken", device="old") == 1
    assert value(text, "vcache_device_isolation_degraded", device="old") == 1
    assert value(text, "vcache_device_isolation_degraded", device="images") == 0
    assert value(text, "vcache_device_info", device="images", mode="writeback",
                 scope="filesystem", isolation="fua", pool="254:2") == 1


def test_tags() -> None:
    text = exposed()
    where = {"device": "images", "tag": "9", "disk": "vda"}
    assert value(text, "vcache_tag_reads_total", **where) == 100
    assert value(text, "vcache_tag_wait_seconds_total", **where) == 1.5
    assert value(text, "vcache_tag_cache_lanes", **where) == 2
    assert value(text, "vcache_tag_flush_duration_seconds_count", **where) == 3
    assert value(text, "vcache_tag_flush_duration_seconds_sum", **where) == 0.009
    assert value(text, "vcache_tag_extents_bytes", **where) == 1 << 20
    assert value(text, "vcache_tag_weight", device="images", tag="0", disk="") == 250
    assert "project-7" not in text
    assert UUID not in text


def test_causes_are_labels() -> None:
    fields = {"flush_wait_seconds": ("flush_{}_ns", FLUSH_CAUSES, 1e9),
              "ssd_written_bytes": ("ssd_{}_bytes", SSD_CAUSES, 1),
              "refused_bytes": ("refused_{}_bytes", REFUSAL_CAUSES, 1)}
    for name, (field, causes, unit) in fields.items():
        stats = Stats(**{field.format(cause): int(at * unit)  # type: ignore[arg-type]
                         for at, cause in enumerate(causes, 1)})
        text = exposed(sample=dataclasses.replace(full(), tags=(tag(9, stats=stats),)))
        found = {dict(labels)["cause"]: at for (what, labels), at in series(text).items()
                 if what == f"vcache_tag_{name}_total"}
        assert found == {cause: at for at, cause in enumerate(causes, 1)}


def test_lanes() -> None:
    text = exposed()
    assert value(text, "vcache_lane_busy_seconds_total", pool="lab", lane="1") == 0.012
    assert value(text, "vcache_lane_reads_total", pool="lab", lane="0") == 10
    assert value(text, "vcache_lane_info", pool="lab", lane="0", volume="", tag="") == 1
    assert value(text, "vcache_lane_info", pool="lab", lane="1", volume="3", tag="7") == 1
    assert value(exposed(pools=()), "vcache_lane_free_bytes", pool="254:2", lane="0") == 3 << 20


def test_tags_of_drives() -> None:
    text = exposed()
    where = {"drive": "nvme0", "tag": "9", "disk": "vda"}
    for name, expected in {
            "weight": 300, "buffer_share_bytes": 2 << 20, "buffered_bytes": 32768,
            "writes_total": 20, "flushes_total": 3, "buffer_wait_seconds_total": 1.5,
            "bank_seconds_total": 0.007, "bank_wait_seconds_total": 0.009}.items():
        assert value(text, f"vcache_drive_tag_{name}", **where) == pytest.approx(expected)
    assert value(text, "vcache_drive_tag_buffered_bytes", drive="nvme0", tag="0", disk="") == 8192
    assert value(text, "vcache_drive_success", drive="nvme0") == 1
    assert value(exposed(drives=(reading(problem="x"),)), "vcache_drive_success",
                 drive="nvme0") == 0
    assert value(exposed(True), "vcache_drive_tag_weight", **where, instance_uuid=UUID,
                 project_id="project-7") == 300
    assert "vcache_drive_tag_weight{" not in exposed(drives=(reading(MAX_AGE + 1),))
    # A drive does not depend on the kernel's sample.
    assert value(exposed(sample=None), "vcache_drive_tag_weight", **where) == 300


def test_a_tag_and_a_lane_have_as_many_series_as_documented() -> None:
    names = [(name, dict(labels)) for name, labels in series(exposed())]
    assert len([1 for name, labels in names if name.startswith("vcache_tag_")
                and labels["tag"] == "9" and not name.endswith("_created")]) == 123
    assert len([1 for name, labels in names if name.startswith("vcache_lane_")
                and labels["lane"] == "0" and not name.endswith("_created")]) == 7
    assert len([1 for name, labels in names if name.startswith("vcache_drive_tag_")
                and labels["tag"] == "9" and not name.endswith("_created")]) == 8


def test_a_missed_objective_has_a_series_with_its_cause() -> None:
    made = state().outcome
    assert made.plan is not None
    assert "vcache_tag_slo_missed{" not in exposed()
    missed = {(device().number, 9): (Verdict("read", Cause.DEVICE, 0.01, 0.002),)}
    plan = dataclasses.replace(made.plan, pools=PoolDecision(history=History(missed=missed)))
    text = exposed(outcome=dataclasses.replace(made, plan=plan))
    assert value(text, "vcache_tag_slo_missed", device="images", tag="9", disk="vda",
                 objective="read", cause="device") == 1


def test_a_limit_has_a_series_for_each_direction() -> None:
    assert "vcache_tag_limit_bytes_per_second{" not in exposed()
    limits = [InForce((device().number, 9), frozenset(), means, rates, problem)
              for means, rates, problem in (
                  (Means.IO, Rates(5e6, 7e6), ""), (Means.DESTAGE, Rates(0, 3e6), ""))]
    text = exposed(outcome=dataclasses.replace(state().outcome, restraints=tuple(limits)))
    for means, direction, rate in (("io", "read", 5e6), ("io", "write", 7e6),
                                   ("destage", "write", 3e6)):
        assert value(text, "vcache_tag_limit_bytes_per_second", device="images", tag="9",
                     disk="vda", means=means, direction=direction) == rate
    failed = [dataclasses.replace(item, problem="no cgroup") for item in limits]
    assert "vcache_tag_limit_bytes_per_second{" not in exposed(
        outcome=dataclasses.replace(state().outcome, restraints=tuple(failed)))


def test_labels_of_the_instance_are_optional() -> None:
    text = exposed(instance_labels=True)
    assert value(text, "vcache_tag_weight", device="images", tag="9", disk="vda",
                 instance_uuid=UUID, project_id="project-7") == 250
    assert value(text, "vcache_tag_weight", device="images", tag="0", disk="", instance_uuid="",
                 project_id="") == 250


def test_pools() -> None:
    text = exposed()
    assert value(text, "vcache_pool_size_bytes", pool="lab") == 1000 << 20
    assert value(text, "vcache_pool_free_bytes", pool="lab") == 400 << 20
    assert value(text, "vcache_pool_dirty_bytes", pool="lab") == 50 << 20
    assert value(text, "vcache_pool_read_bytes", pool="lab") == 300 << 20
    assert value(text, "vcache_pool_lanes", pool="lab") == 2
    assert value(text, "vcache_pool_cache_errors_total", pool="lab") == 7
    assert value(text, "vcache_pool_info", pool="lab", state="ok",
                 cache_device=POOL["cache_device"]) == 1
    assert "vcache_pool" not in exposed(pools=())


class FakeDm:
    """Device mapper without devices, which may fail."""

    problem: OSError | None = None

    def __enter__(self) -> "FakeDm":
        if self.problem is not None:
            raise self.problem
        return self

    def __exit__(self, *_: object) -> None: ...


def test_the_pools_are_watched(monkeypatch: pytest.MonkeyPatch,
                               caplog: pytest.LogCaptureFixture) -> None:
    calls: list[int] = []

    def listed(_: object) -> list[Pool]:
        calls.append(1)
        return [Pool(info("lab", 2), DeviceNumber(7, 0), "ok")]

    monkeypatch.setattr(pool_watch, "Dm", FakeDm)
    monkeypatch.setattr("vcache_agent.pools.pools", listed)
    monkeypatch.setattr("vcache_agent.pools.members", lambda *_: [])
    watch = pool_watch.PoolWatch(0.005)

    def names() -> list[str]:
        return [row["name"] for row in watch.rows]

    assert names() == []
    watch.start()
    until(lambda: len(calls) > 2)
    assert names() == ["lab"]
    monkeypatch.setattr(FakeDm, "problem", OSError(5, "device mapper fails"))
    until(lambda: "device mapper fails" in caplog.text)
    assert names() == ["lab"], "the last known state"
    monkeypatch.setattr(pool_watch, "_MAX_AGE", -1.0)
    assert names() == []
    watch.stop()
    assert caplog.text.count("device mapper fails") == 1


def test_the_agent() -> None:
    text = exposed()
    assert value(text, "vcache_agent_build_info", version="1.2.3") == 1
    assert value(text, "vcache_agent_reconcile_success") == 1
    assert value(text, "vcache_agent_reconcile_timestamp_seconds") == 2000.25
    assert value(text, "vcache_agent_reconcile_passes_total", result="failure") == 2
    assert value(text, "vcache_agent_failed_tags") == 1
    assert value(text, "vcache_agent_libvirt_connected") == 1
    assert value(text, "vcache_agent_domains") == 1
    assert value(text, "vcache_agent_disks", state="untagged") == 1
    assert value(text, "vcache_agent_disks", state="failed") == 0, "so that alerts see the change"
    assert value(text, "vcache_agent_orphan_dirty_bytes") == 4096
    assert value(text, "vcache_agent_events_total", kind="disk") == 3
    assert value(text, "vcache_agent_events_total", kind="cache-lost") == 0, "before the first"
    assert value(text, "vcache_agent_sample_gaps_total") == 7
    assert value(text, "vcache_agent_store_success") == 1
    assert value(exposed(store_problem="full"), "vcache_agent_store_success") == 0
    text = exposed(outcome=Outcome(problem="bad"), sample=None, passed=0.0)
    assert value(text, "vcache_agent_reconcile_success") == 0
    assert value(text, "vcache_agent_libvirt_connected") == 0
    assert value(text, "vcache_agent_sample_timestamp_seconds") == 0
    assert "vcache_tag" not in text


def test_an_outdated_sample_is_not_shown() -> None:
    text = exposed(sample=full(MAX_AGE + 1))
    assert "vcache_tag" not in text
    assert "vcache_device" not in text
    assert value(text, "vcache_agent_sample_timestamp_seconds") == 1000.5


def test_everything_that_the_kernel_reports_is_a_metric() -> None:
    """A new field of the model fails here until it has a metric, or a reason for none."""
    seen: set[str] = set()

    class Spy:
        def __init__(self, item: Any) -> None:
            self._item = item

        def __getattr__(self, name: str) -> Any:
            seen.add(name)
            found = getattr(self._item, name)
            return Spy(found) if isinstance(found, Stats) else found

    for item, group in ((tag(), definitions.TAGS), (device(), definitions.DEVICES),
                        (lane(), definitions.LANES)):
        for metric in group:
            if metric.value is not None:
                metric.value(Spy(item))
    fields = {field.name for kind in (Tag, Stats, Device, Lane)
              for field in dataclasses.fields(kind)}
    labels = {"device", "number", "name", "id", "pool", "scope", "lane", "tag"}
    # The number of flushes is the count of the histogram. cgroups are ids. mode is in
    # vcache_device_info; the origin and the volume are in "vcache status".
    without = {"flushes", "cgroups", "mode", "origin", "volume"}
    assert fields - labels - without == seen


def test_the_buckets_are_exact_sums_of_the_kernels() -> None:
    every = [1] * spec.HISTOGRAM_BUCKETS
    found = buckets.cumulative(every)
    assert found[-1] == ("+Inf", 128)
    for bound, below in found[:-1]:
        assert below == sum(1 for bucket in range(spec.HISTOGRAM_BUCKETS)
                            if histogram.lower(bucket + 1) <= round(float(bound) * 1e9))
    assert [float(bound) for bound, _ in found] == sorted(float(bound) for bound, _ in found)
    assert buckets.cumulative(()) == [(bound, 0) for bound, _ in found]
    # A value in the last bucket, which has no bound, is only in +Inf.
    last = buckets.cumulative(counts(b127=1))
    assert (last[-2][1], last[-1][1]) == (0, 1)


def test_names_and_texts() -> None:
    metrics = [metric for _, _, group in definitions.GROUPS for metric in group]
    names = [metric.name for metric in metrics]
    assert len(names) == len(set(names))
    for metric in metrics:
        assert (metric.kind is definitions.Kind.COUNTER) == metric.name.endswith("_total")
        assert metric.help.endswith(".")
    families = {family.name for family in text_string_to_metric_families(exposed())}
    # The parser leaves out the ending of a counter.
    assert families == {name.removesuffix("_total") for name in names}


@pytest.mark.skipif(PROMTOOL is None, reason="promtool is missing (package prometheus)")
def test_promtool_accepts_the_metrics() -> None:
    for labels in (False, True):
        done = subprocess.run([str(PROMTOOL), "check", "metrics"],
                              input=exposed(instance_labels=labels), capture_output=True,
                              text=True, timeout=60, check=False)
        assert (done.returncode, done.stdout, done.stderr) == (0, "", "")


@pytest.mark.parametrize(("text", "address"), [
    ("127.0.0.1:9587", ("127.0.0.1", 9587)), ("[::1]:9587", ("::1", 9587)),
    ("[::]:0", ("::", 0)), ("metrics.example:80", ("metrics.example", 80))])
def test_addresses(text: str, address: tuple[str, int]) -> None:
    assert server.parse(text) == address


@pytest.mark.parametrize("text", ["9587", ":9587", "127.0.0.1", "127.0.0.1:", "127.0.0.1:65536",
                                  "::1:9587", "[::1]", "127.0.0.1:x"])
def test_a_bad_address_is_refused(text: str) -> None:
    with pytest.raises(AddressError, match=r"must be an address and a port .* or empty"):
        server.parse(text)


@pytest.fixture
def listener() -> Iterator[MetricsServer]:
    made = MetricsServer("127.0.0.1:0", AgentCollector(state, "1", False))
    made.start()
    yield made
    made.stop()


def test_the_listener_serves_the_metrics(listener: MetricsServer) -> None:
    url = f"http://127.0.0.1:{listener.port}/metrics"
    with urllib.request.urlopen(url, timeout=60) as answer:  # noqa: S310
        text = answer.read().decode()
    assert value(text, "vcache_agent_sample_gaps_total") == 7
    assert "process_resident_memory_bytes" in text


def test_a_silent_client_loses_its_connection(
        listener: MetricsServer, monkeypatch: pytest.MonkeyPatch) -> None:
    assert listener._running is not None
    handler = listener._running[0].RequestHandlerClass
    assert handler.timeout == server._CLIENT_SECONDS  # type: ignore[attr-defined]
    monkeypatch.setattr(handler, "timeout", 0.2)
    with socket.create_connection(("127.0.0.1", listener.port or 0), 60) as client:
        assert client.recv(1) == b""


def test_an_address_in_use_is_logged_and_empty_serves_nothing(
        listener: MetricsServer, caplog: pytest.LogCaptureFixture) -> None:
    second = MetricsServer(f"127.0.0.1:{listener.port}", AgentCollector(state, "1", False))
    second.start()
    assert second.port is None
    assert "there are no metrics" in caplog.text
    second.stop()
    off = MetricsServer("", AgentCollector(state, "1", False))
    off.start()
    assert off.port is None
    off.stop()


def test_the_journal_and_the_log_are_sources(monkeypatch: pytest.MonkeyPatch) -> None:
    log = EventLog()
    journal = outcome_events.Journal(log)
    journal.passed(Outcome(), Outcome(problem="bad"))
    text = exposed(passes=journal.counts, events=log.counts, passed=journal.ended)
    assert value(text, "vcache_agent_reconcile_passes_total", result="failure") == 1
    assert value(text, "vcache_agent_events_total", kind="pass-failed") == 1
    assert value(text, "vcache_agent_reconcile_timestamp_seconds") == journal.ended
