# SPDX-License-Identifier: Apache-2.0
"""The activity of tags in about the last minute, from the observer's samples."""

from collections.abc import Iterable
from typing import NamedTuple

from vcache_agent.model import Stats, Tag
from vcache_agent.observe.activity import Counts, less, recreated
from vcache_agent.observe.sample import Sample, TagKey

#: Length of the period in seconds.
PERIOD = 60.0


class Lately(NamedTuple):
    """The activity of a tag in about the last minute.

    :param flushes: histogram of its flush latencies
    :param reads: histogram of its read latencies
    :param reads_per_s: read requests per second; None: not known yet
    """

    flushes: Counts
    reads: Counts
    reads_per_s: float | None


def lately(tags: Iterable[Tag], now: float, start: Sample | None) -> dict[TagKey, Lately]:
    """Return the activity since a sample, by tag.

    :param tags: the kernel's tags now
    :param now: monotonic time in seconds
    :param start: the start of the period; None: the activity since the tags were created
    """
    before = start.by_key if start else {}
    seconds = now - start.monotonic if start else 0.0
    return {(tag.device, tag.id): _lately(tag.stats, before.get((tag.device, tag.id)), seconds)
            for tag in tags}


def merged(counts: Iterable[Counts]) -> Counts:
    """Return the sum of histograms, bucket by bucket."""
    return tuple(map(sum, zip(*(item for item in counts if item), strict=True)))


def _lately(now: Stats, before: Tag | None, seconds: float) -> Lately:
    if before is None or recreated(now, before.stats):
        return Lately(now.flush_hist, now.read_hist, None)
    old = before.stats
    return Lately(less(now.flush_hist, old.flush_hist), less(now.read_hist, old.read_hist),
                  (now.reads - old.reads) / seconds if seconds > 0 else None)
