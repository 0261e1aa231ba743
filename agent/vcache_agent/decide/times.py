# SPDX-License-Identifier: Apache-2.0
"""The times of hits and misses, from histograms of all reads.

The kernel measures the latency of all reads of a tag, and knows which bytes came from the origin.
Misses are the slowest reads: of n reads of which the part m missed, the slowest m × n are the
misses. This is not exact where a miss can be faster than a hit.
"""

import dataclasses
from collections.abc import Sequence

from vcache_agent import histogram
from vcache_agent.decide.tenant import Times

#: Until both were measured: a flash cache over a slower origin.
UNKNOWN = Times(hit=0.0001, miss=0.001, write=0.0001, origin_write=0.001)
#: Weight of the period before.
_KEEP = 0.7
#: Fewer reads say too little.
_LEAST = 20


@dataclasses.dataclass(frozen=True)
class Reads:
    """The reads of a period.

    :param counts: histogram of their latencies
    :param missed: part of their bytes that came from the origin, 0 to 1
    """

    counts: Sequence[int]
    missed: float


def learn(old: Times | None, reads: Reads) -> Times | None:
    """Return the times after a period; the old ones where the period says nothing.

    A write is assumed to take as long as a read, on both devices: the kernel acknowledges writes
    from its buffer, so that their own latency says nothing about a device.

    :param old: None: unknown
    """
    total = sum(reads.counts)
    slow = round(total * reads.missed)
    before = old or UNKNOWN
    hit = miss = None
    if total - slow >= _LEAST:
        hit = _mean(reads.counts, 0, total - slow)
    if slow >= _LEAST:
        miss = _mean(reads.counts, total - slow, total)
    if hit is None and miss is None:
        return old
    hit = _blend(old, before.hit, hit)
    # A cache is never worse than its origin; when the two are equal, a hit saves nothing.
    miss = max(hit, _blend(old, before.miss, miss))
    return Times(hit, miss, hit, miss)


def mean(old: Times, new: Times, keep: float) -> Times:
    """Return the mean of two measurements.

    :param keep: weight of `old`, 0 to 1
    """
    return Times(*(keep * getattr(old, name) + (1 - keep) * getattr(new, name)
                   for name in ("hit", "miss", "write", "origin_write")))


def _blend(old: Times | None, before: float, new: float | None) -> float:
    if new is None:
        return before
    return new if old is None else _KEEP * before + (1 - _KEEP) * new


def _mean(counts: Sequence[int], first: int, end: int) -> float:
    """Return the mean in seconds of the values from rank `first` to before `end`."""
    seen, total = 0, 0.0
    for bucket, count in enumerate(counts):
        used = min(end, seen + count) - max(first, seen)
        if used > 0:
            low = histogram.lower(bucket)
            high = histogram.lower(bucket + 1) if bucket + 1 < len(counts) else low
            total += used * (low + high) / 2
        seen += count
    return total / (end - first) / 1e9
