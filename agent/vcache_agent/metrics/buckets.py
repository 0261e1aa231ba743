# SPDX-License-Identifier: Apache-2.0
"""Convert the kernel's latency histograms to Prometheus' buckets.

The kernel has 128 buckets, four for each power of two. For each tag that would be 256 time
series. So the exporter has one bucket for each power of two, from 8.2 us to 4.3 s. The
bounds are bounds of the kernel's buckets, so no count is estimated.
"""

from collections.abc import Sequence

from vcache_agent import histogram

_FIRST, _LAST = 13, 32
#: Upper bounds of the buckets in ns, without the last one, which has no bound.
BOUNDS_NS = tuple(1 << power for power in range(_FIRST, _LAST + 1))


def cumulative(counts: Sequence[int]) -> list[tuple[str, float]]:
    """Return (upper bound in seconds, count of values below it), with ``+Inf`` at the end.

    :param counts: the kernel's buckets; empty: no value
    """
    found: list[tuple[str, float]] = []
    bucket = total = 0
    for bound in BOUNDS_NS:
        while bucket < len(counts) and histogram.lower(bucket + 1) <= bound:
            total += counts[bucket]
            bucket += 1
        found.append((repr(bound / 1e9), float(total)))
    return [*found, ("+Inf", float(total + sum(counts[bucket:])))]
