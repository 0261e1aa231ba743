# SPDX-License-Identifier: Apache-2.0
"""The activity of tags in about the last minute, from the kernel's growing counters."""

import operator
import threading
from collections import deque
from collections.abc import Iterable, Mapping
from typing import NamedTuple

from vcache_agent.model import DeviceNumber, Stats, Tag

TagKey = tuple[DeviceNumber, int]
Counts = tuple[int, ...]


class Lately(NamedTuple):
    """The activity of a tag in about the last minute.

    :param flushes: histogram of its flush latencies
    :param reads: histogram of its read latencies
    :param reads_per_s: read requests per second; None: not known yet
    """

    flushes: Counts
    reads: Counts
    reads_per_s: float | None


class Recent:
    """Computes the recent activity of tags. Thread-safe.

    :param seconds: length of the period
    """

    def __init__(self, seconds: float = 60.0) -> None:
        self._seconds = seconds
        self._lock = threading.Lock()
        self._kept: deque[tuple[float, Mapping[TagKey, Stats]]] = deque()

    def update(self, tags: Iterable[Tag], now: float) -> dict[TagKey, Lately]:
        """Record the counters of the tags; return the activity in the period by tag.

        The first call returns the activity since the tags were created.

        :param tags: the kernel's tags
        :param now: monotonic time in seconds
        """
        current = {(tag.device, tag.id): tag.stats for tag in tags}
        with self._lock:
            # Keep one sample that is older than the period; it is the start of the period.
            while len(self._kept) > 1 and now - self._kept[1][0] >= self._seconds:
                self._kept.popleft()
            began, before = self._kept[0] if self._kept else (now, {})
            if not self._kept or now - self._kept[-1][0] >= self._seconds / 10:
                self._kept.append((now, current))
        return {key: _lately(stats, before.get(key), now - began)
                for key, stats in current.items()}


def merged(counts: Iterable[Counts]) -> Counts:
    """Return the sum of histograms, bucket by bucket."""
    return tuple(map(sum, zip(*(item for item in counts if item), strict=True)))


def _lately(now: Stats, before: Stats | None, seconds: float) -> Lately:
    if before is None or _fell(now, before):
        return Lately(now.flush_hist, now.read_hist, None)
    return Lately(_less(now.flush_hist, before.flush_hist), _less(now.read_hist, before.read_hist),
                  (now.reads - before.reads) / seconds if seconds > 0 else None)


def _fell(now: Stats, before: Stats) -> bool:
    """Return True if counters have decreased, because the tag was recreated."""
    return now.reads < before.reads or any(
        len(new) != len(old) or any(map(operator.lt, new, old))
        for new, old in ((now.flush_hist, before.flush_hist), (now.read_hist, before.read_hist)))


def _less(now: Counts, before: Counts) -> Counts:
    return tuple(map(operator.sub, now, before))
