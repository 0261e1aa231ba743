# SPDX-License-Identifier: Apache-2.0
"""The activity of tags between two samples: a pure function."""

import dataclasses
import operator
from collections.abc import Callable

from vcache_agent import histogram
from vcache_agent.model import HISTOGRAMS, VOLUME_COUNTERS, Stats, Tag
from vcache_agent.observe.sample import Sample

Counts = tuple[int, ...]

# All tags of a host are compared each second, so their counters are read all at once.
_COUNTERS = tuple(name for name in Stats.__dataclass_fields__ if name not in HISTOGRAMS)
_counters: Callable[[Stats], tuple[int, ...]] = operator.attrgetter(*_COUNTERS)
_of_tag: Callable[[Stats], tuple[int, ...]] = operator.attrgetter(
    *(name for name in Stats.__dataclass_fields__ if name not in (*VOLUME_COUNTERS, *HISTOGRAMS)))
_histograms: Callable[[Stats], tuple[Counts, ...]] = operator.attrgetter(*HISTOGRAMS)


@dataclasses.dataclass(frozen=True)
class Activity:
    """The activity of a tag between two samples.

    Rates are per second. Latencies are in ns; None: there was no such request.

    :param hit_ratio: part of the read bytes that did not come from the origin; None: no reads
    """

    tag: Tag
    reads: float
    writes: float
    flushes: float
    read_bytes: float
    write_bytes: float
    hit_ratio: float | None
    flush_p50_ns: float | None
    flush_p99_ns: float | None
    read_p99_ns: float | None
    write_p99_ns: float | None

    @property
    def iops(self) -> float:
        """Reads and writes per second."""
        return self.reads + self.writes


def between(before: Sample, after: Sample) -> list[Activity]:
    """Return the activity of each tag of `after`.

    Of a tag that `before` does not have, or that was recreated, all counters count.

    :param before: an earlier sample of the same boot
    :raises ValueError: if it is not earlier
    """
    seconds = after.monotonic - before.monotonic
    if seconds <= 0:
        raise ValueError(f"the second sample is not later than the first, but {-seconds:g} s "
                         "earlier")
    found = []
    for key, tag in after.by_key.items():
        old = before.by_key.get(key)
        found.append(_activity(tag, difference(tag.stats, old.stats if old else Stats()), seconds))
    return found


def difference(now: Stats, before: Stats) -> Stats:
    """Return the growth of all counters; `now` itself if the tag was recreated in between.

    A counter of the volume begins at 0 again when the volume is loaded, which does not concern
    the others.
    """
    if recreated(now, before):
        return now
    new = _counters(now)
    grown = list(map(operator.sub, new, _counters(before)))
    if min(grown) < 0:
        grown = [growth if growth >= 0 else count for growth, count in zip(grown, new, strict=True)]
    return Stats(**dict(zip(_COUNTERS, grown, strict=True)),
                 flush_hist=less(now.flush_hist, before.flush_hist),
                 read_hist=less(now.read_hist, before.read_hist),
                 write_hist=less(now.write_hist, before.write_hist))


def recreated(now: Stats, before: Stats) -> bool:
    """Return True if counters have decreased, because the tag was recreated."""
    if any(map(operator.lt, _of_tag(now), _of_tag(before))):
        return True
    return any(old and (len(new) != len(old) or any(map(operator.lt, new, old)))
               for new, old in zip(_histograms(now), _histograms(before), strict=True))


def less(now: Counts, before: Counts) -> Counts:
    """Return the difference of two histograms; an empty one has no counts."""
    return tuple(map(operator.sub, now, before)) if before else now


def _activity(tag: Tag, grown: Stats, seconds: float) -> Activity:
    hits = grown.read_hit_bytes + grown.cache_hit_bytes
    return Activity(
        tag=tag, reads=grown.reads / seconds, writes=grown.writes / seconds,
        flushes=grown.flushes / seconds, read_bytes=grown.read_bytes / seconds,
        write_bytes=grown.write_bytes / seconds,
        hit_ratio=min(1.0, hits / grown.read_bytes) if grown.read_bytes else None,
        flush_p50_ns=histogram.percentile(grown.flush_hist, 0.50),
        flush_p99_ns=histogram.percentile(grown.flush_hist, 0.99),
        read_p99_ns=histogram.percentile(grown.read_hist, 0.99),
        write_p99_ns=histogram.percentile(grown.write_hist, 0.99))
