# SPDX-License-Identifier: Apache-2.0
"""The summary of all hosts, fetched in the background.

One thread of each scheduler process fetches it periodically with one request.
Filter and weigher use the last summary and do not wait for the network. Only the
first request after a start waits, for at most 2 s.
"""

import dataclasses
import logging
import os
import random
import threading
import time
from collections.abc import Callable, Mapping
from typing import Any

from oslo_config import cfg

from nova_vcache import conf as vcache_conf
from nova_vcache.summary import PATH, HostSummary, Summary

LOG = logging.getLogger(__name__)

# Seconds that the first request of a process waits for the first summary.
_FIRST_WAIT = 2.0

_NO_HOSTS: Mapping[str, HostSummary] = {}


@dataclasses.dataclass(frozen=True, slots=True)
class View:
    """The state at one moment.

    :param hosts: the hosts by name of the compute node; empty if there is no summary
    :param age_limit: largest ``age_s`` of a fresh host, in seconds; negative if the summary
        itself is too old
    :param problem: why there is no summary or no newer one, or empty
    """

    hosts: Mapping[str, HostSummary]
    age_limit: float
    problem: str

    def fresh(self, node: str) -> HostSummary | None:
        """Return a host's summary; None if there is none or it is stale."""
        host = self.hosts.get(node)
        if host is None or host.age_s is None or host.age_s > self.age_limit:
            return None
        return host


class SummaryCache:
    """Fetches summaries in its own thread.

    :param fetch: returns the document; may raise any exception; only the thread calls it
    :param interval: seconds between two fetches
    :param max_age: age in seconds from which on a host's data is stale
    """

    def __init__(self, fetch: Callable[[], Any], interval: float, max_age: float) -> None:
        self._fetch = fetch
        self._interval = interval
        self._max_age = max_age
        self._lock = threading.Lock()
        self._pid = 0
        self._first = threading.Event()
        self._stopping = threading.Event()
        # One tuple, so that readers see both values of the same summary.
        self._last: tuple[Mapping[str, HostSummary], float] = (_NO_HOSTS, 0.0)
        self._problem = "no summary has been fetched yet"

    def view(self) -> View:
        """Return the current state; the first call of a process starts the thread."""
        if self._pid != os.getpid():
            self._start()
        hosts, taken = self._last
        return View(hosts, self._max_age - (time.monotonic() - taken), self._problem)

    def stop(self) -> None:
        """Stop the thread; for tests."""
        self._stopping.set()

    def _start(self) -> None:
        with self._lock:
            # The scheduler forks its workers, and threads do not survive a fork.
            if self._pid != os.getpid():
                self._first.clear()
                threading.Thread(
                    target=self._run, name="vcache-summary", daemon=True).start()
                self._pid = os.getpid()
        self._first.wait(_FIRST_WAIT)

    def _run(self) -> None:
        while not self._stopping.is_set():
            self._fetch_once()
            self._first.set()
            # Jitter, so that schedulers that started together do not send requests together.
            self._stopping.wait(self._interval * random.uniform(0.9, 1.1))  # noqa: S311

    def _fetch_once(self) -> None:
        asked = time.monotonic()
        try:
            hosts = Summary.parse(self._fetch()).hosts
        except Exception as error:
            # Catch everything: the next attempt may succeed, and the scheduler continues.
            problem = f"{type(error).__name__}: {error}"
            if problem != self._problem:
                LOG.warning("Cannot fetch the summary of vcache hosts: %s. For stale hosts, "
                            "[vcache] stale_policy decides.", problem)
            self._problem = problem
            return
        if self._problem:
            LOG.info("Fetched the summary of vcache hosts, with %d hosts.", len(hosts))
        self._last = (hosts, asked)
        self._problem = ""


class NotConfigured(Exception):
    """The client of vcache-api is not configured."""


def fetcher(conf: cfg.ConfigOpts) -> Callable[[], Any]:
    """Return a function that fetches the document with the configured client."""
    adapter: list[Any] = []

    def fetch() -> Any:
        if not adapter:
            adapter.append(vcache_conf.load_adapter(conf))
        if adapter[0] is None:
            raise NotConfigured("[vcache] has neither credentials nor endpoint_override")
        return adapter[0].get(PATH, headers={"Accept": "application/json"}).json()

    return fetch


_shared: SummaryCache | None = None
_shared_lock = threading.Lock()


def shared(conf: cfg.ConfigOpts) -> SummaryCache:
    """Return the cache of this process, which filter and weigher share."""
    global _shared
    if _shared is None:
        with _shared_lock:
            if _shared is None:
                group = conf[vcache_conf.GROUP]
                _shared = SummaryCache(
                    fetcher(conf), group.summary_interval, group.summary_max_age)
    return _shared


def replace_shared(cache: SummaryCache | None) -> None:
    """Replace the shared cache; None: create a new one; for tests and benchmarks."""
    global _shared
    if _shared is not None and _shared is not cache:
        _shared.stop()
    _shared = cache
