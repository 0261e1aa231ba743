# SPDX-License-Identifier: Apache-2.0
"""Evaluate the kernel's latency histograms, with four buckets for each power of two."""

from collections.abc import Sequence

from vcache_agent.netlink import spec


def lower(bucket: int) -> int:
    """Return the lower bound of a bucket, in ns."""
    if bucket < 4:
        return bucket
    return (4 + bucket % 4) << (bucket // 4 - 1)


def percentile(counts: Sequence[int], part: float) -> float | None:
    """Return a percentile in ns, assuming an even distribution within each bucket.

    :param counts: number of values in each bucket
    :param part: the percentile, from 0 to 1
    :return: None if there is no value
    """
    total = sum(counts)
    if not total:
        return None
    rank = part * total
    seen = 0
    for bucket, count in enumerate(counts):
        if count and seen + count >= rank:
            low = lower(bucket)
            if bucket >= spec.HISTOGRAM_BUCKETS - 1:
                return float(low)  # the last bucket has no upper bound
            return low + (lower(bucket + 1) - low) * max(0.0, rank - seen) / count
        seen += count
    return float(lower(len(counts) - 1))
