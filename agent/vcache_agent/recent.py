# SPDX-License-Identifier: Apache-2.0
"""What the kernel's histograms, which only grow, have counted lately."""

import operator
import threading
from collections import deque
from collections.abc import Iterable, Mapping

from vcache_agent.model import DeviceNumber, Tag

TagKey = tuple[DeviceNumber, int]
Counts = tuple[int, ...]


class Recent:
    """Latencies of flushes in about the last minute; used from several threads.

    :param seconds: how far it looks back
    """

    def __init__(self, seconds: float = 60.0) -> None:
        self._seconds = seconds
        self._lock = threading.Lock()
        self._kept: deque[tuple[float, Mapping[TagKey, Counts]]] = deque()

    def update(self, tags: Iterable[Tag], now: float) -> dict[TagKey, Counts]:
        """Take what the kernel says; return by tag what is newer than the time looked back.

        At the first call, all there is: since the tags were made.

        :param now: monotonic
        """
        current = {(tag.device, tag.id): tag.stats.flush_hist for tag in tags}
        with self._lock:
            # The first one kept is the newest that is as old as what is looked back to.
            while len(self._kept) > 1 and now - self._kept[1][0] >= self._seconds:
                self._kept.popleft()
            before = self._kept[0][1] if self._kept else {}
            if not self._kept or now - self._kept[-1][0] >= self._seconds / 10:
                self._kept.append((now, current))
        return {key: _newer(counts, before.get(key, ())) for key, counts in current.items()}


def merged(counts: Iterable[Counts]) -> Counts:
    """Return the sum of histograms."""
    return tuple(map(sum, zip(*(item for item in counts if item), strict=True)))


def _newer(now: Counts, before: Counts) -> Counts:
    if len(now) != len(before) or any(map(operator.lt, now, before)):
        return now  # the tag was made anew
    return tuple(map(operator.sub, now, before))
