# SPDX-License-Identifier: Apache-2.0
"""Build the metrics from the newest sample and the agent's state, at each scrape.

Nothing here asks the kernel, libvirt or the store, so a scrape is fast and never blocks.
"""

import dataclasses
import time
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, HistogramMetricFamily
from prometheus_client.metrics_core import Metric as Family
from prometheus_client.registry import Collector

from vcache_agent import events, view
from vcache_agent.drive.watch import Reading
from vcache_agent.metrics import buckets, definitions
from vcache_agent.metrics.definitions import Kind, Metric
from vcache_agent.model import Tag
from vcache_agent.netlink import spec
from vcache_agent.observe.sample import Sample

if TYPE_CHECKING:
    from vcache_agent.worker import Outcome

#: Age in seconds from which a sample is outdated. Then devices and tags have no metrics, so
#: that Prometheus does not take old values for current ones. The same applies to drives.
MAX_AGE = 15.0

_NO_EVENTS = {events.kind_of(kind): 0 for kind in spec.EventKind}
_FAMILIES: Mapping[Kind, Callable[..., Family]] = {
    Kind.COUNTER: CounterMetricFamily, Kind.GAUGE: GaugeMetricFamily,
    Kind.HISTOGRAM: HistogramMetricFamily}


@dataclasses.dataclass(frozen=True)
class State:
    """The state of the agent at a scrape.

    :param sample: the newest sample; None: there is none yet
    :param outcome: the result of the last pass
    :param passes: number of passes by success
    :param passed: Unix time in seconds of the end of the last pass; 0: none
    :param events: number of events by kind
    :param gaps: number of samples that failed
    :param sample_seconds: duration of the newest sample
    :param pools: the pools, as rows of pools.py
    :param drives: the drives with tags
    :param record_dropped: number of samples that could not be recorded
    :param pass_seconds: processor time of all passes in seconds
    :param store_problem: why the store cannot be changed, or empty
    """

    sample: Sample | None
    outcome: "Outcome"
    passes: Mapping[bool, int]
    passed: float
    events: Mapping[str, int]
    gaps: int
    sample_seconds: float
    record_dropped: int
    pools: Sequence[dict[str, Any]] = ()
    drives: Sequence[Reading] = ()
    store_problem: str = ""
    pass_seconds: float = 0.0


class AgentCollector(Collector):
    """Collects the metrics of definitions.py.

    :param state: returns the state of the agent
    :param version: version of the agent
    :param instance_labels: add the labels of the instance to the metrics of tags
    """

    def __init__(self, state: Callable[[], State], version: str, instance_labels: bool) -> None:
        self._state = state
        self._version = version
        self._instance_labels = instance_labels

    def describe(self) -> Iterable[Family]:
        """Return nothing: then the registry does not collect at registration."""
        return ()

    def collect(self) -> Iterator[Family]:
        """Yield all metrics."""
        state = self._state()
        sample = state.sample
        if sample is not None and time.monotonic() - sample.monotonic <= MAX_AGE:
            yield from _devices(sample)
            yield from self._tags(sample, state.outcome)
            yield from _lanes(sample, state.pools)
        if state.pools:
            yield from _pools(state.pools)
        yield from self._drives(state)
        yield from self._agent(state)

    def _tags(self, sample: Sample, outcome: "Outcome") -> Iterator[Family]:
        labels = self._labels(definitions.TAG_LABELS)
        projects = _projects(outcome)
        rows = [(self._values(_name(sample, tag.device), tag.id, tag.name, projects), tag)
                for tag in sample.tags]
        yield from _families(definitions.TAGS, labels, rows)
        yield _objectives(labels, rows, outcome)
        yield _limits(labels, rows, outcome)

    def _drives(self, state: State) -> Iterator[Family]:
        now = time.monotonic()
        current = [item for item in state.drives if now - item.at <= MAX_AGE]
        yield from _families(definitions.DRIVES, definitions.DRIVE_LABELS,
                             [([item.drive.name], item) for item in current])
        projects = _projects(state.outcome)
        yield from _families(definitions.DRIVE_TAGS, self._labels(definitions.DRIVE_TAG_LABELS), [
            (self._values(item.drive.name, share.tag, item.drive.names[share.tag], projects), share)
            for item in current for share in item.shares])

    def _labels(self, labels: tuple[str, ...]) -> tuple[str, ...]:
        """Return the labels of a group of metrics of tags."""
        return labels + definitions.INSTANCE_LABELS if self._instance_labels else labels

    def _values(self, place: str, tag: int, name: str, projects: Mapping[str, str]) -> list[str]:
        """Return the values of the labels of a tag.

        :param place: name of its device or drive
        :param name: of the tag
        """
        uuid, disk = _parts(name)
        values = [place, str(tag), disk]
        return [*values, uuid, projects.get(uuid, "")] if self._instance_labels else values

    def _agent(self, state: State) -> Iterator[Family]:
        outcome = state.outcome
        orphans = outcome.plan.orphans if outcome.plan else ()
        tags = list(state.sample.tags) if state.sample else []
        states = Counter(row["state"] for row in view.disks(outcome, tags))
        single: Mapping[str, float] = {
            "reconcile_success": not outcome.problem,
            "reconcile_timestamp_seconds": state.passed,
            "reconcile_cpu_seconds_total": state.pass_seconds,
            "store_success": not state.store_problem,
            "failed_tags": len(outcome.errors),
            "libvirt_connected": outcome.snapshot.complete,
            "domains": outcome.snapshot.instances,
            "orphans": len(orphans),
            "orphan_dirty_bytes": sum(orphan.dirty_bytes for orphan in orphans),
            "sample_timestamp_seconds": state.sample.wall if state.sample else 0.0,
            "sample_duration_seconds": state.sample_seconds,
            "sample_gaps_total": state.gaps,
            "record_dropped_total": state.record_dropped}
        labelled: Mapping[str, Mapping[str, float]] = {
            "build_info": {self._version: 1},
            "reconcile_passes_total": {"success": state.passes.get(True, 0),
                                       "failure": state.passes.get(False, 0)},
            "disks": {name: states[name] for name in view.DISK_STATES},
            # A series must exist before its first event, or increase() does not see that event.
            "events_total": {**_NO_EVENTS, **state.events}}
        for metric in definitions.AGENT:
            name = metric.name.removeprefix("vcache_agent_")
            family = _family(metric, metric.labels)
            if name in labelled:
                for label, value in labelled[name].items():
                    family.add_metric([label], value)  # type: ignore[attr-defined]
            else:
                family.add_metric([], float(single[name]))  # type: ignore[attr-defined]
            yield family


def _projects(outcome: "Outcome") -> dict[str, str]:
    """Return the projects of the instances."""
    return {entry.domain.uuid: entry.domain.project for entry in outcome.snapshot.entries}


def _objectives(labels: Sequence[str], rows: Sequence[tuple[list[str], Tag]],
                outcome: "Outcome") -> Family:
    """Return the metric of the objectives that tags miss."""
    metric, _ = definitions.OBJECTIVES
    family = GaugeMetricFamily(metric.name, metric.help, labels=(*labels, *metric.labels))
    missed = outcome.plan.pools.history.missed if outcome.plan else {}
    for values, tag in rows:
        for verdict in missed.get((tag.device, tag.id), ()):
            family.add_metric([*values, verdict.objective, verdict.cause], 1)
    return family


def _limits(labels: Sequence[str], rows: Sequence[tuple[list[str], Tag]],
            outcome: "Outcome") -> Family:
    """Return the metric of the limits that are in force."""
    _, metric = definitions.OBJECTIVES
    family = GaugeMetricFamily(metric.name, metric.help, labels=(*labels, *metric.labels))
    for values, tag in rows:
        for item in outcome.restraints:
            if item.neighbour == (tag.device, tag.id) and not item.problem:
                for direction, rate in zip(("read", "write"), item.limit, strict=True):
                    if rate:
                        family.add_metric([*values, item.means, direction], rate)
    return family


def _devices(sample: Sample) -> Iterator[Family]:
    rows = [([_name(sample, device.number)], device) for device in sample.devices]
    yield _info(definitions.DEVICES[0], definitions.DEVICE_LABELS, [
        [*labels, view.word(device.mode), view.word(device.scope), view.word(device.isolation),
         device.pool] for labels, device in rows])
    yield from _families(definitions.DEVICES, definitions.DEVICE_LABELS, rows)


def _pools(pools: Sequence[dict[str, Any]]) -> Iterator[Family]:
    yield _info(definitions.POOLS[0], definitions.POOL_LABELS, [
        [pool["name"], pool["cache_device"], pool["state"]] for pool in pools])
    yield from _families(definitions.POOLS, definitions.POOL_LABELS,
                         [([pool["name"]], pool) for pool in pools])


def _lanes(sample: Sample, pools: Sequence[dict[str, Any]]) -> Iterator[Family]:
    """Yield the metrics of the lanes; a pool that is not listed yet has its number as its name."""
    names = {pool["device"]: pool["name"] for pool in pools}
    rows = [([names.get(str(lane.pool), str(lane.pool)), str(lane.lane)], lane)
            for lane in sample.lanes]
    yield _info(definitions.LANES[0], definitions.LANE_LABELS, [
        [*values, *((str(lane.volume), str(lane.tag)) if lane.volume else ("", ""))]
        for values, lane in rows])
    yield from _families(definitions.LANES, definitions.LANE_LABELS, rows)


def _info(metric: Metric, labels: tuple[str, ...], rows: Sequence[list[str]]) -> Family:
    """Return a metric that has only labels; its value is always 1."""
    family = GaugeMetricFamily(metric.name, metric.help, labels=labels + metric.labels)
    for row in rows:
        family.add_metric(row, 1)
    return family


def _families(metrics: Sequence[Metric], labels: Sequence[str],
              rows: Sequence[tuple[list[str], Any]]) -> Iterator[Family]:
    """Yield the metrics of devices, tags, pools or lanes whose definition has a value."""
    for metric in metrics:
        if metric.value is None:
            continue
        family = _family(metric, (*labels, *metric.labels))
        for values, item in rows:
            found = metric.value(item)
            if metric.kind is Kind.HISTOGRAM:
                counts, total_ns = found
                family.add_metric(  # type: ignore[attr-defined]
                    values, buckets.cumulative(counts), total_ns / 1e9)
            elif metric.labels:
                for label, value in found.items():
                    family.add_metric([*values, label], value)  # type: ignore[attr-defined]
            else:
                family.add_metric(values, float(found))  # type: ignore[attr-defined]
        yield family


def _family(metric: Metric, labels: Sequence[str]) -> Family:
    return _FAMILIES[metric.kind](metric.name, metric.help, labels=labels)


def _name(sample: Sample, number: object) -> str:
    """Return the name of a device, or its number while it has none."""
    return sample.device_names.get(number) or str(number)  # type: ignore[call-overload]


def _parts(name: str) -> tuple[str, str]:
    """Return (UUID, target) of the name of a tag that an agent created, else empty texts."""
    uuid, colon, target = name.partition(":")
    return (uuid, target) if colon else ("", "")
