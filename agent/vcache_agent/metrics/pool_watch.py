# SPDX-License-Identifier: Apache-2.0
"""A thread that reads the state of the pools, which device mapper reports.

Samples of the kernel's netlink family do not have it, and device mapper may block while a
pool is being suspended. So a scrape shows the last known state, if it is not too old.
"""

import threading
import time
from typing import Any

from oslo_log import log as logging

from vcache_agent import pools
from vcache_agent.dm import Dm

LOG = logging.getLogger(__name__)

_INTERVAL = 15.0
# Age in seconds from which the state is outdated.
_MAX_AGE = 60.0
_STOP_SECONDS = 1.0

Rows = tuple[dict[str, Any], ...]


class PoolWatch:
    """Reads the pools every 15 seconds.

    :param interval: seconds between two reads
    """

    def __init__(self, interval: float = _INTERVAL) -> None:
        self._interval = interval
        self._stopping = threading.Event()
        self._last: tuple[float, Rows] = (0.0, ())
        self._failing = False
        self._thread = threading.Thread(target=self._run, name="pools", daemon=True)

    @property
    def rows(self) -> Rows:
        """The pools as :func:`vcache_agent.pools.row` returns them; empty if outdated."""
        at, rows = self._last
        return rows if time.monotonic() - at <= _MAX_AGE else ()

    def start(self) -> None:
        """Start the thread."""
        self._thread.start()

    def stop(self) -> None:
        """Stop the thread, unless device mapper blocks."""
        self._stopping.set()
        self._thread.join(_STOP_SECONDS)

    def _run(self) -> None:
        while not self._stopping.is_set():
            began = time.monotonic()
            try:
                with Dm() as dm:
                    self._last = began, tuple(pools.row(pool, pools.members(dm, pool))
                                              for pool in pools.pools(dm))
                self._failing = False
            except (OSError, ValueError) as error:
                if not self._failing:
                    LOG.warning("metrics: cannot list the pools: %s",
                                getattr(error, "strerror", None) or error)
                self._failing = True
            self._stopping.wait(self._interval)
