# SPDX-License-Identifier: Apache-2.0
"""What the kernel's histograms, which only grow, have counted lately."""

import operator
import threading
from collections import deque
from collections.abc import Iterable, Mapping
from typing import NamedTuple

from vcache_agent.model import DeviceNumber, Stats, Tag

TagKey = tuple[DeviceNumber, int]
Counts = tuple[int, ...]


class Lately(NamedTuple):
    """What a tag did in about the last minute.

    :param flushes: latencies of its flushes, a histogram
    :param reads: the same of its reads
    :param reads_per_s: read requests; None: not known yet
    """

    flushes: Counts
    reads: Counts
    reads_per_s: float | None


class Recent:
    """What tags did in about the last minute; used from several threads.

    :param seconds: how far it looks back
    """

    def __init__(self, seconds: float = 60.0) -> None:
        self._seconds = seconds
        self._lock = threading.Lock()
        self._kept: deque[tuple[float, Mapping[TagKey, Stats]]] = deque()

    def update(self, tags: Iterable[Tag], now: float) -> dict[TagKey, Lately]:
        """Take what the kernel says; return by tag what is newer than the time looked back.

        At the first call, all there is: since the tags were made.

        :param now: monotonic
        """
        current = {(tag.device, tag.id): tag.stats for tag in tags}
        with self._lock:
            # The first one kept is the newest that is as old as what is looked back to.
            while len(self._kept) > 1 and now - self._kept[1][0] >= self._seconds:
                self._kept.popleft()
            began, before = self._kept[0] if self._kept else (now, {})
            if not self._kept or now - self._kept[-1][0] >= self._seconds / 10:
                self._kept.append((now, current))
        return {key: _lately(stats, before.get(key), now - began)
                for key, stats in current.items()}


def merged(counts: Iterable[Counts]) -> Counts:
    """Return the sum of histograms."""
    return tuple(map(sum, zip(*(item for item in counts if item), strict=True)))


def _lately(now: Stats, before: Stats | None, seconds: float) -> Lately:
    if before is None or _fell(now, before):
        return Lately(now.flush_hist, now.read_hist, None)
    return Lately(_less(now.flush_hist, before.flush_hist), _less(now.read_hist, before.read_hist),
                  (now.reads - before.reads) / seconds if seconds > 0 else None)


def _fell(now: Stats, before: Stats) -> bool:
    """Tell whether the tag was made anew."""
    return now.reads < before.reads or any(
        len(new) != len(old) or any(map(operator.lt, new, old))
        for new, old in ((now.flush_hist, before.flush_hist), (now.read_hist, before.read_hist)))


def _less(now: Counts, before: Counts) -> Counts:
    return tuple(map(operator.sub, now, before))
