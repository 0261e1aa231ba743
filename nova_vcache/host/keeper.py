# SPDX-License-Identifier: Apache-2.0
"""Keep Placement up to date: report each change of the host, and periodically."""

import logging
import random
import threading
import time

from nova_vcache.host.view import HostView
from nova_vcache.placement.capacity import Capacity
from nova_vcache.placement.client import PlacementError
from nova_vcache.placement.reporter import CLOSED, NoComputeNode, Reporter

LOG = logging.getLogger(__name__)

# Seconds until the first retry; doubled with each failure, up to the interval.
_RETRY = 2.0

# Range of a random factor of all pauses, so that hosts that started together, or that lost
# Placement together, do not send their requests together.
_JITTER = (0.8, 1.2)


class Keeper:
    """Runs a reporter in its own thread.

    :param reporter: the reporter
    :param interval: seconds between two periodic reports
    :param close_after: seconds without a valid answer of the agent after which the host's
        inventory is empty
    """

    def __init__(self, reporter: Reporter, *, interval: float,
                 close_after: float) -> None:
        self._reporter = reporter
        self._interval = interval
        self._close_after = close_after
        self._wake = threading.Condition()
        self._view: HostView | None = None
        self._seen = time.monotonic()
        self._asked = False
        self._told: tuple[frozenset[str], Capacity] | None = None
        self._problem = ""
        self._over: dict[str, int] = {}

    def seen(self, view: HostView | None) -> None:
        """Record the agent's answer.

        :param view: the answer; None, or one with a problem: the host's state is unknown
        """
        with self._wake:
            if view is not None and not view.problem:
                self._view, self._seen = view, time.monotonic()
                changed = self._told is None or self._told != (view.instances, view.capacity({}))
            else:
                # Report the empty inventory once when it is due; then only periodically.
                changed = self._closed() and self._told != (frozenset(), CLOSED)
            if changed:
                self._asked = True
                self._wake.notify_all()

    def wake(self) -> None:
        """Wake up :meth:`run`, so that it checks whether to stop."""
        with self._wake:
            self._asked = True
            self._wake.notify_all()

    def run(self, stopping: threading.Event) -> None:
        """Report until `stopping` is set."""
        pause, retry = 0.0, _RETRY
        while not stopping.is_set():
            with self._wake:
                self._wake.wait_for(lambda: self._asked, pause * _jitter())
                self._asked = False
            if stopping.is_set():
                return
            if self._try():
                pause, retry = self._interval, _RETRY
            else:
                # The retry includes changes that arrive meanwhile.
                stopping.wait(retry * _jitter())
                pause, retry = 0.0, min(self._interval, retry * 2)

    def _try(self) -> bool:
        """Report once; return True if that succeeded."""
        try:
            self.report()
        except (NoComputeNode, PlacementError) as error:
            self._say(str(error))
        except Exception as error:
            LOG.exception("report to Placement failed")
            self._say(repr(error))
        else:
            self._say("")
            return True
        return False

    def report(self) -> None:
        """Update Placement to the state of the host.

        :raises NoComputeNode: if the compute node has no provider
        :raises PlacementError: if a request fails
        """
        with self._wake:
            view, closed = self._view, self._closed()
        if view is None and not closed:
            return  # after a start, the old data in Placement is better than none
        if view is None or closed:
            told: tuple[frozenset[str], Capacity] = (frozenset(), CLOSED)
            self._reporter.report(CLOSED)
            over: dict[str, int] = {}  # what the host has now is unknown
        else:
            # The next answer is compared with `told`, so it must not depend on allocations,
            # which change independently.
            told = (view.instances, view.capacity({}))
            over = self._reporter.report(view.capacity).overcommitted
        with self._wake:
            self._told = told
        if over != self._over and over:
            LOG.warning("more is promised to instances than the host has: %s; guarantees are "
                        "reduced in proportion, and Placement allocates nothing more here until "
                        "instances move away",
                        ", ".join(f"{amount} of {name}" for name, amount in sorted(over.items())))
        self._over = over

    def _closed(self) -> bool:
        return time.monotonic() - self._seen > self._close_after

    def _say(self, problem: str) -> None:
        if problem and problem != self._problem:
            LOG.warning("cannot report to Placement: %s; retrying", problem)
        elif self._problem and not problem:
            LOG.info("reporting to Placement works again")
        self._problem = problem


def _jitter() -> float:
    return random.uniform(*_JITTER)  # noqa: S311 # not for secrets
