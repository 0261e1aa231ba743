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
    :param requests_per_s: read and write requests per second; None: not known yet
    :param read_bytes: bytes that it read
    :param hit_bytes: the part of them that did not come from the origin
    """

    flushes: Counts
    reads: Counts
    reads_per_s: float | None
    requests_per_s: float | None = None
    read_bytes: int = 0
    hit_bytes: int = 0


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


def hit_ratio(items: Iterable[Lately]) -> float | None:
    """Return the part of the read bytes that did not come from the origin; None: no reads."""
    found = list(items)
    read = sum(item.read_bytes for item in found)
    return min(1.0, sum(item.hit_bytes for item in found) / read) if read else None


def _lately(now: Stats, before: Tag | None, seconds: float) -> Lately:
    if before is None or recreated(now, before.stats):
        return Lately(now.flush_hist, now.read_hist, None, None, now.read_bytes, _hits(now))
    old = before.stats
    known = seconds > 0
    return Lately(
        less(now.flush_hist, old.flush_hist), less(now.read_hist, old.read_hist),
        (now.reads - old.reads) / seconds if known else None,
        (now.reads + now.writes - old.reads - old.writes) / seconds if known else None,
        now.read_bytes - old.read_bytes, _hits(now) - _hits(old))


def _hits(stats: Stats) -> int:
    return stats.read_hit_bytes + stats.cache_hit_bytes
