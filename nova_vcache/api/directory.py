# SPDX-License-Identifier: Apache-2.0
"""The hosts and their last reports, in the memory of one API process.

The hosts are those with the owner trait in Placement, and those that report. Nothing is
stored persistently: a new process requests a report from all hosts.
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

# Seconds that a clock may be ahead without a warning.
_CLOCK_S = 5.0

# Seconds after which missing details of a host are requested again.
_ASK_S = 30.0


@dataclasses.dataclass(frozen=True, slots=True)
class Entry:
    """One host.

    :param node: name of the compute node
    :param report: its last report; None: it has never reported
    :param since: seconds since the last report was sent, by the clocks of both hosts
    :param details_since: seconds since its instances were sent; None: never
    :param delay: seconds from when it was sent until it arrived; negative: the clock of the host
        is ahead
    :param stale_after: age in seconds from which on the host is stale
    """

    node: str
    report: HostReport | None
    since: float
    stale_after: float
    delay: float = 0.0
    details_since: float | None = None

    @property
    def age_s(self) -> float | None:
        """Seconds since the last answer of its agent; None: it has never answered."""
        if self.report is None or self.report.summary.age_s is None:
            return None
        return round(self.report.summary.age_s + self.since, 3)

    @property
    def state(self) -> str:
        """State of the host: ``up``, ``stale`` or ``unknown``."""
        if self.age_s is None:
            return UNKNOWN
        return UP if self.age_s <= self.stale_after else STALE

    @property
    def problem(self) -> str:
        """Why the agent's data is not up to date, or empty."""
        if self.report is None:
            return ("the host is in Placement, but it has never reported; check that vcache-host "
                    "is running there")
        if self.delay > self.stale_after:
            return (f"its newest report arrived {self.delay:.0f} s after it was sent; the message "
                    "bus or vcache-api is overloaded, or the clocks differ")
        if self.since > self.stale_after:
            return (f"no report for {self.since:.0f} s; check that vcache-host is running on the "
                    "host")
        if self.delay < -_CLOCK_S and not self.report.problem:
            return (f"the clock of the host is {-self.delay:.0f} s ahead of the clock of "
                    "vcache-api, so the age of its data is not known exactly")
        return self.report.problem

    @property
    def summary(self) -> HostSummary:
        """Summary of the host for the scheduler."""
        if self.report is None:
            return HostSummary(node=self.node)
        return dataclasses.replace(self.report.summary, age_s=self.age_s)


@dataclasses.dataclass(frozen=True, slots=True)
class _Known:
    """What a host has reported; times are of time.monotonic().

    :param report: its newest report, with the details of the last one that had some
    :param at: when the newest one was sent
    :param delay: how long that one took to arrive, in seconds
    :param details: the last report with details; None: there was none
    :param details_at: when that one was sent
    """

    report: HostReport
    at: float
    delay: float
    details: HostReport | None
    details_at: float


class Directory:
    """All hosts. Thread-safe.

    :param known: returns the names of the hosts in Placement; may raise any exception
    :param stale_after: age in seconds from which on a host is stale
    """

    def __init__(self, known: Callable[[], set[str]], stale_after: float) -> None:
        self._known = known
        self._stale_after = stale_after
        self._lock = threading.Lock()
        self._nodes: frozenset[str] = frozenset()
        self._reports: dict[str, _Known] = {}
        self._asked: dict[str, float] = {}
        self._where: dict[str, set[str]] = {}
        self._problem = ""
        self._came = threading.Condition(self._lock)

    def took(self, report: HostReport) -> None:
        """Store a report, unless a newer one of the host is known.

        The age of its data counts from when it was sent, so reports that wait in a slow
        message bus do not look fresh. The clocks of the hosts must be synchronized.
        """
        at, delay = _sent(report)
        with self._lock:
            known = self._reports.get(report.node)
            if known and known.details and report.precedes(known.details):
                return
            self._forget_instances(report.node)
            if known and report.precedes(known.report):
                found = dataclasses.replace(
                    known, report=known.report.with_details_of(report), details=report,
                    details_at=at)
            else:
                found = _Known(report, at, delay, report, at)
            self._reports[report.node] = found
            self._asked.pop(report.node, None)
            for item in report.instances:
                self._where.setdefault(item.uuid, set()).add(report.node)
            self._came.notify_all()

    def beat(self, report: HostReport) -> bool:
        """Store a report without details, unless a newer one of the host is known.

        :return: True if a report with details must be requested, because the last one is missing
        """
        at, delay = _sent(report)
        with self._lock:
            known = self._reports.get(report.node)
            if known and report.precedes(known.report):
                return False
            details = known.details if known else None
            found = report if details is None else report.with_details_of(details)
            self._reports[report.node] = _Known(
                found, at, delay, details, known.details_at if known else at)
            if details and details.boot_id == report.boot_id and details.sequence >= report.base:
                return False
            now = time.monotonic()
            if now - self._asked.get(report.node, -_ASK_S) < _ASK_S:
                return False
            self._asked[report.node] = now
            return True

    def refresh(self) -> None:
        """Read the list of hosts from Placement; keep the old list if that fails."""
        try:
            nodes = frozenset(self._known())
        except Exception as error:
            # Catch everything: the next attempt may succeed.
            if str(error) != self._problem:
                LOG.warning("cannot read the list of hosts from Placement: %s; using the last "
                            "known list and the hosts that report", error)
            self._problem = str(error)
            return
        self._problem = ""
        with self._lock:
            self._nodes = nodes
            limit = time.monotonic() - self._stale_after
            for node in [node for node, known in self._reports.items()
                         if node not in nodes and known.at < limit]:
                self._forget_instances(node)
                del self._reports[node]
            self._came.notify_all()

    def wait(self, seconds: float) -> bool:
        """Wait until Placement has hosts and all of them have reported.

        :param seconds: time limit
        :return: False if the time limit expired
        """
        with self._lock:
            return self._came.wait_for(
                lambda: bool(self._nodes) and all(
                    node in self._reports and self._reports[node].details
                    for node in self._nodes), seconds)

    def hosts(self) -> list[Entry]:
        """Return all hosts, sorted by name."""
        now = time.monotonic()
        with self._lock:
            return [self._entry(node, now)
                    for node in sorted(self._nodes | self._reports.keys())]

    def host(self, node: str) -> Entry | None:
        """Return one host; None: it does not exist."""
        with self._lock:
            if node not in self._nodes and node not in self._reports:
                return None
            return self._entry(node, time.monotonic())

    def instance(self, uuid: str) -> tuple[Entry, InstanceReport] | None:
        """Return an instance and its host; None: no host reports it."""
        now = time.monotonic()
        with self._lock:
            entries = [self._entry(node, now) for node in self._where.get(uuid, ())]
        found = [(entry, item) for entry in entries if entry.report
                 for item in entry.report.instances if item.uuid == uuid]
        return max(found, key=_relevance, default=None)

    def instances(self, wanted: Callable[[InstanceReport], bool],
                  ) -> Iterator[tuple[Entry, InstanceReport]]:
        """Yield each matching instance and its host once, unsorted.

        :param wanted: returns True for a matching instance
        """
        for entry in self.hosts():
            for item in entry.report.instances if entry.report else ():
                if not wanted(item):
                    continue
                if len(self._where.get(item.uuid, ())) > 1:
                    # During a migration two hosts report the instance.
                    found = self.instance(item.uuid)
                    if found is None or found[0].node != entry.node:
                        continue
                yield entry, item

    def _entry(self, node: str, now: float) -> Entry:
        known = self._reports.get(node)
        if known is None:
            return Entry(node, None, 0.0, self._stale_after)
        return Entry(node, known.report, now - known.at, self._stale_after, known.delay,
                     now - known.details_at if known.details else None)

    def _forget_instances(self, node: str) -> None:
        old = self._reports.get(node)
        for item in old.report.instances if old else ():
            places = self._where.get(item.uuid)
            if places:
                places.discard(node)
                if not places:
                    del self._where[item.uuid]


def _sent(report: HostReport) -> tuple[float, float]:
    """Return when a report was sent, by time.monotonic(), and how long it took to arrive."""
    delay = 0.0 if report.sent_at is None else time.time() - report.sent_at
    return time.monotonic() - max(0.0, delay), delay


def _relevance(found: tuple[Entry, InstanceReport]) -> tuple[bool, bool, float]:
    """Return the sort key for hosts that report the same instance; the largest wins."""
    entry, item = found
    return item.phase == "running", entry.state == UP, -(entry.age_s or 0.0)


def node_of(provider: dict[str, Any]) -> str | None:
    """Return the compute node of a cache provider in Placement, from the provider's name.

    :return: None if the name was truncated, or is not that of a cache provider
    """
    name = str(provider["name"])
    node = name.removesuffix("_vcache")
    return node if node and names.provider_name(node) == name and \
        len(name) < names.PROVIDER_NAME_MAX else None
