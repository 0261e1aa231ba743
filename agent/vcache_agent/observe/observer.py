# SPDX-License-Identifier: Apache-2.0
"""The observer thread, which samples the kernel once a second.

It asks the kernel only, by its own netlink socket with a time limit. So it continues while
libvirt, an image's path or the agent's store blocks.
"""

import contextlib
import threading
import time
from collections.abc import Callable

from oslo_log import log as logging

from vcache_agent.netlink.bulk import TagDecoder
from vcache_agent.netlink.client import Client
from vcache_agent.observe.ring import Ring
from vcache_agent.observe.sample import Sample, take
from vcache_agent.observe.survey import PERIOD, Surveyor

LOG = logging.getLogger(__name__)

#: Seconds between two samples.
INTERVAL = 1.0
# With very many tags a dump takes long. Observing must leave most of a processor free.
_PAUSE_FACTOR = 4.0


class Observer:
    """Samples the kernel into a ring.

    :param timeout: time limit of one netlink request in seconds
    :param listener: called with each sample, in the observer's thread; must not block; None: none
    :param interval: seconds between two samples
    :param survey_period: seconds between two samples that have the curves, too
    """

    def __init__(self, timeout: float, listener: Callable[[Sample], None] | None = None,
                 interval: float = INTERVAL, survey_period: float = PERIOD) -> None:
        self.ring = Ring()
        self._surveyor = Surveyor(survey_period)
        self._survey: Sample | None = None
        self._timeout = timeout
        self._listener = listener
        self._interval = interval
        self._client: Client | None = None
        self._decoder = TagDecoder()
        self._stopping = threading.Event()
        self._gaps = 0
        self._seconds = 0.0
        self._failing_since: float | None = None
        self._thread = threading.Thread(target=self._run, name="observer", daemon=True)

    @property
    def survey(self) -> Sample | None:
        """The newest sample with curves; None: there is none yet."""
        return self._survey

    @property
    def gaps(self) -> int:
        """Number of samples that failed."""
        return self._gaps

    @property
    def seconds(self) -> float:
        """Duration of the last sample, in seconds."""
        return self._seconds

    def start(self) -> None:
        """Start the thread."""
        self._thread.start()

    def stop(self) -> None:
        """Stop the thread; wait for it at most for the time limit of a request."""
        self._stopping.set()
        self._thread.join(self._timeout)

    def _run(self) -> None:
        due = time.monotonic()
        while True:
            began = time.monotonic()
            self._once()
            ended = time.monotonic()
            # After a delay, do not catch up: the samples would only be close together.
            due = max(due + self._interval, ended + (ended - began) * _PAUSE_FACTOR)
            if self._stopping.wait(due - ended):
                self._disconnect()
                return

    def _once(self) -> None:
        """Take one sample, or count a gap."""
        try:
            if self._client is None:
                self._client = Client(self._timeout)
            began = time.monotonic()
            sample = take(self._client, self._decoder)
            survey = self._surveyor.survey(self._client, sample)
            self._seconds = time.monotonic() - began
        except (OSError, ValueError) as error:
            self._failed(error)
            return
        if self._failing_since is not None:
            LOG.warning("sampling the kernel works again after %.0f s",
                        sample.monotonic - self._failing_since)
            self._failing_since = None
        # The ring keeps many samples, so none of them has curves.
        self.ring.append(sample)
        if survey is not None:
            self._survey = survey
        if self._listener is not None:
            self._listener(survey or sample)

    def _failed(self, error: Exception) -> None:
        """Count a gap, and log the first of several in a row."""
        self._gaps += 1
        # The answer to the failed request may still come. A new socket does not receive it.
        self._disconnect()
        if self._failing_since is None:
            self._failing_since = time.monotonic()
            LOG.warning("sampling the kernel failed: %s; metrics and recent latencies have a gap",
                        getattr(error, "strerror", None) or error)

    def _disconnect(self) -> None:
        if self._client is not None:
            with contextlib.suppress(OSError):
                self._client.close()
            self._client = None
