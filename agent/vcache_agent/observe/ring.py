# SPDX-License-Identifier: Apache-2.0
"""The samples of the last minutes, in bounded memory."""

import threading
from collections import deque

from vcache_agent.observe.sample import Sample


class Ring:
    """Keeps recent samples. Thread-safe.

    All samples of the last `fine` seconds are kept, and one for each `step` seconds before
    that. A sample of a busy tag takes about 6 KiB, so with the defaults a busy tag takes
    about 0.7 MiB. Samples share the memory of tags that do not change.

    :param seconds: age of the oldest sample
    :param fine: age up to which all samples are kept, in seconds
    :param step: least distance of older samples, in seconds
    """

    def __init__(self, seconds: float = 900.0, fine: float = 60.0, step: float = 15.0) -> None:
        self._seconds = seconds
        self._fine = fine
        self._step = step
        self._lock = threading.Lock()
        self._recent: deque[Sample] = deque()
        self._older: deque[Sample] = deque()

    def append(self, sample: Sample) -> None:
        """Add the newest sample; remove those that are too old."""
        now = sample.monotonic
        with self._lock:
            self._recent.append(sample)
            while now - self._recent[0].monotonic > self._fine:
                moved = self._recent.popleft()
                if not self._older \
                        or moved.monotonic - self._older[-1].monotonic >= self._step:
                    self._older.append(moved)
            while self._older and now - self._older[0].monotonic > self._seconds:
                self._older.popleft()

    @property
    def newest(self) -> Sample | None:
        """The newest sample; None: there is none yet."""
        with self._lock:
            return self._recent[-1] if self._recent else None

    def samples(self) -> tuple[Sample, ...]:
        """Return all samples, the oldest first."""
        with self._lock:
            return (*self._older, *self._recent)

    def start_of(self, seconds: float, now: float) -> Sample | None:
        """Return the start of a period: the newest sample that is at least as old.

        :param seconds: length of the period
        :param now: monotonic time in seconds of its end
        :return: the oldest sample if none is old enough; None without a sample
        """
        found = None
        for sample in self.samples():
            if found is not None and now - sample.monotonic < seconds:
                break
            found = sample
        return found
