# SPDX-License-Identifier: Apache-2.0
"""What one process of the API knows: which hosts there are, and their last reports.

Hosts are those that Placement has with our trait; reports come by themselves. Nothing is
stored: a process that has just started asks all hosts to report, and soon knows all.
"""

import dataclasses
import logging
import threading
import time
from collections.abc import Callable, Iterator
from typing import Any

from nova_vcache.placement import names
from nova_vcache.rpc.report import HostReport, InstanceReport
from nova_vcache.summary import HostSummary

LOG = logging.getLogger(__name__)

UP, STALE, UNKNOWN = "up", "stale", "unknown"


@dataclasses.dataclass(frozen=True, slots=True)
class Entry:
    """One host.

    :param report: its last one; None: it has never reported
    :param since: seconds since it came
    :param stale_after: seconds after which it is stale
    """

    node: str
    report: HostReport | None
    since: float
    stale_after: float

    @property
    def age_s(self) -> float | None:
        """Return the seconds since its agent has answered; None: it has never."""
        if self.report is None or self.report.summary.age_s is None:
            return None
        return round(self.report.summary.age_s + self.since, 3)

    @property
    def state(self) -> str:
        """Return in a word how new that is."""
        if self.age_s is None:
            return UNKNOWN
        return UP if self.age_s <= self.stale_after else STALE

    @property
    def problem(self) -> str:
        """Return why there is nothing newer; empty: all is well."""
        if self.report is None:
            return "Placement has it, but it has not reported; is vcache-host running there?"
        if self.since > self.stale_after:
            return f"no report for {self.since:.0f} s; is vcache-host running there?"
        return self.report.problem

    @property
    def summary(self) -> HostSummary:
        """Return what the scheduler gets of it."""
        if self.report is None:
            return HostSummary(node=self.node)
        return dataclasses.replace(self.report.summary, age_s=self.age_s)


class Directory:
    """All hosts; used from several threads.

    :param known: returns the names of the hosts that Placement has; may raise
    :param stale_after: seconds after which a report is stale
    """

    def __init__(self, known: Callable[[], set[str]], stale_after: float) -> None:
        self._known = known
        self._stale_after = stale_after
        self._lock = threading.Lock()
        self._nodes: frozenset[str] = frozenset()
        self._reports: dict[str, tuple[HostReport, float]] = {}
        self._where: dict[str, set[str]] = {}
        self._problem = ""
        self._came = threading.Condition(self._lock)

    def took(self, report: HostReport) -> None:
        """Take a report."""
        with self._lock:
            self._forget_instances(report.node)
            self._reports[report.node] = (report, time.monotonic())
            for item in report.instances:
                self._where.setdefault(item.uuid, set()).add(report.node)
            self._came.notify_all()

    def refresh(self) -> None:
        """Ask Placement which hosts there are; what was known stays if it does not answer."""
        try:
            nodes = frozenset(self._known())
        except Exception as error:
            # Whatever it is, the next try may work.
            if str(error) != self._problem:
                LOG.warning("Placement is not asked which hosts there are: %s; those known so "
                            "far, and those that report, are listed", error)
            self._problem = str(error)
            return
        self._problem = ""
        with self._lock:
            self._nodes = nodes
            limit = time.monotonic() - self._stale_after
            for node in [node for node, (_, at) in self._reports.items()
                         if node not in nodes and at < limit]:
                self._forget_instances(node)
                del self._reports[node]
            self._came.notify_all()

    def wait(self, seconds: float) -> bool:
        """Wait until there are hosts and all of them have reported; tell whether they have."""
        with self._lock:
            return self._came.wait_for(
                lambda: bool(self._nodes) and self._nodes <= self._reports.keys(), seconds)

    def hosts(self) -> list[Entry]:
        """Return all hosts by name."""
        now = time.monotonic()
        with self._lock:
            return [self._entry(node, now)
                    for node in sorted(self._nodes | self._reports.keys())]

    def host(self, node: str) -> Entry | None:
        """Return one host; None: there is none of that name."""
        with self._lock:
            if node not in self._nodes and node not in self._reports:
                return None
            return self._entry(node, time.monotonic())

    def instance(self, uuid: str) -> tuple[Entry, InstanceReport] | None:
        """Return an instance and its host; None: no host has it."""
        now = time.monotonic()
        with self._lock:
            entries = [self._entry(node, now) for node in self._where.get(uuid, ())]
        found = [(entry, item) for entry in entries if entry.report
                 for item in entry.report.instances if item.uuid == uuid]
        return max(found, key=_relevance, default=None)

    def instances(self, wanted: Callable[[InstanceReport], bool],
                  ) -> Iterator[tuple[Entry, InstanceReport]]:
        """Yield the instances that are wanted, each once, in no order."""
        for entry in self.hosts():
            for item in entry.report.instances if entry.report else ():
                if not wanted(item):
                    continue
                if len(self._where.get(item.uuid, ())) > 1:
                    # While it migrates two hosts have it.
                    found = self.instance(item.uuid)
                    if found is None or found[0].node != entry.node:
                        continue
                yield entry, item

    def _entry(self, node: str, now: float) -> Entry:
        report, at = self._reports.get(node, (None, now))
        return Entry(node, report, now - at, self._stale_after)

    def _forget_instances(self, node: str) -> None:
        old = self._reports.get(node)
        for item in old[0].instances if old else ():
            places = self._where.get(item.uuid)
            if places:
                places.discard(node)
                if not places:
                    del self._where[item.uuid]


def _relevance(found: tuple[Entry, InstanceReport]) -> tuple[bool, bool, float]:
    """Return by what one of several hosts that have an instance is chosen."""
    entry, item = found
    return item.phase == "running", entry.state == UP, -(entry.age_s or 0.0)


def node_of(provider: dict[str, Any]) -> str | None:
    """Return the compute node that a provider of ours in Placement is of.

    None where the name does not tell: one so long that it was cut off.
    """
    name = str(provider["name"])
    node = name.removesuffix("_vcache")
    return node if node and names.provider_name(node) == name and \
        len(name) < names.PROVIDER_NAME_MAX else None
