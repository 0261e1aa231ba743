# SPDX-License-Identifier: Apache-2.0
"""Keeps Placement true: reports when the host has changed, and now and then anyway."""

import logging
import threading
import time

from nova_vcache.host.view import CLOSED, HostView
from nova_vcache.placement.capacity import Capacity
from nova_vcache.placement.client import Client, PlacementError
from nova_vcache.placement.reporter import NoComputeNode, Reporter

LOG = logging.getLogger(__name__)

# Seconds until the next try after a failure, doubled each time up to the interval.
_RETRY = 2.0


class Keeper:
    """Has a reporter report, in a thread of its own.

    :param interval: seconds between reports that only look whether all is still so
    :param close_after: seconds without a good answer of the agent after which the host
        has nothing to give
    """

    def __init__(self, reporter: Reporter, client: Client, *, interval: float,
                 close_after: float) -> None:
        self._reporter = reporter
        self._client = client
        self._interval = interval
        self._close_after = close_after
        self._wake = threading.Condition()
        self._view: HostView | None = None
        self._seen = time.monotonic()
        self._asked = False
        self._told: tuple[frozenset[str], Capacity] | None = None
        self._provider: str | None = None
        self._problem = ""
        self._over: dict[str, int] = {}

    def seen(self, view: HostView | None) -> None:
        """Take what the agent says; None, or with a problem: it says nothing of use."""
        with self._wake:
            if view is not None and not view.problem:
                self._view, self._seen = view, time.monotonic()
                changed = self._told is None or self._told != (view.instances, view.capacity({}))
            else:
                # Once, when it is due; then as often as everything.
                changed = self._closed() and self._told != (frozenset(), CLOSED)
            if changed:
                self._asked = True
                self._wake.notify_all()

    def wake(self) -> None:
        """Have :meth:`run` look whether it is to end."""
        with self._wake:
            self._asked = True
            self._wake.notify_all()

    def run(self, stopping: threading.Event) -> None:
        """Report until it is to end."""
        pause, retry = 0.0, _RETRY
        while not stopping.is_set():
            with self._wake:
                self._wake.wait_for(lambda: self._asked, pause)
                self._asked = False
            if stopping.is_set():
                return
            if self._try():
                pause, retry = self._interval, _RETRY
            else:
                # What changes meanwhile is in the next try; it is not one of its own.
                stopping.wait(retry)
                pause, retry = 0.0, min(self._interval, retry * 2)

    def _try(self) -> bool:
        """Report once; tell whether that worked."""
        try:
            self.report()
        except (NoComputeNode, PlacementError) as error:
            self._say(str(error))
        except Exception as error:
            LOG.exception("reporting to Placement failed")
            self._say(repr(error))
        else:
            self._say("")
            return True
        return False

    def report(self) -> None:
        """Make Placement say what the host has.

        :raises NoComputeNode: if the compute node has no provider
        :raises PlacementError: if it cannot be done now
        """
        with self._wake:
            view, closed = self._view, self._closed()
        if view is None and not closed:
            return  # a start: what Placement knows is better than nothing
        if view is None or closed:
            told, capacity = (frozenset[str](), CLOSED), CLOSED
        else:
            # Compared with what the next look says; allocations change on their own.
            told = (view.instances, view.capacity({}))
            capacity = view.capacity(self._allocations())
        result = self._reporter.report(capacity)
        with self._wake:
            self._told = told
        self._provider = result.provider
        if result.overcommitted != self._over and result.overcommitted:
            LOG.warning("more is allocated than the host has: %s; nothing new is placed here, and "
                        "guarantees are shortened in proportion until instances move away",
                        ", ".join(f"{amount} of {name}"
                                  for name, amount in sorted(result.overcommitted.items())))
        self._over = result.overcommitted

    def _closed(self) -> bool:
        return time.monotonic() - self._seen > self._close_after

    def _allocations(self) -> dict[str, dict[str, int]]:
        """Return what is allocated from our provider; nothing before there is one."""
        if self._provider is None:
            self._provider = self._reporter.provider()
        return self._client.allocations(self._provider) if self._provider else {}

    def _say(self, problem: str) -> None:
        if problem and problem != self._problem:
            LOG.warning("Placement is not told: %s; tried again", problem)
        elif self._problem and not problem:
            LOG.info("Placement is told again")
        self._problem = problem
