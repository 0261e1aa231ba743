# SPDX-License-Identifier: Apache-2.0
"""Read the kernel's latency histograms: four buckets to each power of two."""

from collections.abc import Sequence

from vcache_agent.netlink import spec


def lower(bucket: int) -> int:
    """Return the smallest value that a bucket counts, in ns."""
    if bucket < 4:
        return bucket
    return (4 + bucket % 4) << (bucket // 4 - 1)


def percentile(counts: Sequence[int], part: float) -> float | None:
    """Return the value below which a part of the values lies, in ns.

    Values are taken to be spread evenly in their bucket.

    :param part: from 0 to 1
    :return: None without any value
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
                return float(low)  # the last bucket has no upper end
            return low + (lower(bucket + 1) - low) * max(0.0, rank - seen) / count
        seen += count
    return float(lower(len(counts) - 1))
