# SPDX-License-Identifier: Apache-2.0
"""Policy ``throughput``: throughput in proportion to the weights (SymFlex, sections 2.2 and 5.2).

A tag with `depth` requests in flight, of which the fraction h hits, completes
depth / (h × t_hit + (1 - h) × t_miss) blocks per second. Its curve gives h for each size. The
policy finds the largest factor f so that each tag can have f × weight blocks per second, and gives
each tag the least size for that.

A model is not exact. So each tag has a correction, the ratio of measured to predicted throughput,
which changes slowly (an integral controller).
"""

import dataclasses
from collections.abc import Sequence
from typing import Any

import numpy as np

from vcache_agent.decide.tenant import MIB, Tenant, floors

_STEPS = 40
#: Limits of a correction.
CORRECTION = (0.25, 4.0)
#: Part of the error that a correction takes over in a period.
GAIN = 0.7


@dataclasses.dataclass(frozen=True)
class Division:
    """The result.

    :param quotas: bytes of each tag
    :param factor: blocks per second for a weight of 1
    :param bound: tags that cannot have that at any size: the origin or their own demand limits
        them
    """

    quotas: list[int]
    factor: float
    bound: frozenset[int]


def predicted(tenant: Tenant, size: int, correction: float = 1.0) -> float:
    """Return the blocks per second that a tag completes with `size` bytes of cache.

    0 if its curve or its times are unknown, or it has no load.
    """
    return float(_speeds(tenant, np.array([size]), correction)[0])


def _speeds(tenant: Tenant, sizes: Any, correction: float) -> Any:
    """Return the same for an array of sizes."""
    if tenant.rates is None or tenant.times is None or tenant.rates.quiet:
        return np.zeros(len(sizes))
    (reads, writes), (most_reads, most_writes) = tenant.rates.many(sizes), tenant.rates.at(0)
    times = tenant.times
    busy = (most_reads - reads) * times.hit + reads * times.miss
    if tenant.writeback:
        # A write is complete when it is on the cache device. A miss makes another block leave.
        busy = busy + most_writes * times.write \
            + writes * max(0.0, times.origin_write - times.write)
    else:
        busy = busy + most_writes * times.origin_write
    speeds = correction * tenant.depth * (most_reads + most_writes) / busy
    return np.minimum(speeds, tenant.demand) if tenant.demand else speeds


def corrected(correction: float, measured: float, expected: float) -> float:
    """Return the correction of the next period.

    :param measured: blocks per second
    :param expected: :func:`predicted` with the old correction at the size that the tag had; 0:
        unknown, the correction stays
    """
    if not expected or not measured:
        return correction
    low, high = CORRECTION
    return min(high, max(low, correction * (measured / expected) ** GAIN))


def divide(tenants: Sequence[Tenant], size: int,
           corrections: Sequence[float] | None = None) -> Division:
    """Return quotas for throughput in proportion to the weights.

    Tags without load get their guarantee.

    :param size: size of the pool in bytes
    :param corrections: of each tag; None: 1
    """
    corrections = corrections or [1.0] * len(tenants)
    options = [_Options.of(tenant, low, max(low, tenant.bounds(size)[1]), correction)
               for tenant, low, correction in
               zip(tenants, floors(tenants, size), corrections, strict=True)]

    def needed(factor: float) -> list[int]:
        return [option.size_for(factor * tenant.weight)
                for tenant, option in zip(tenants, options, strict=True)]

    # The factor of the tag that can have most for its weight is an upper limit.
    low, high = 0.0, max((option.best / tenant.weight for option, tenant in
                          zip(options, tenants, strict=True)), default=0.0)
    if sum(needed(high)) <= size:
        low = high
    else:
        for _ in range(_STEPS):
            middle = (low + high) / 2
            low, high = (middle, high) if sum(needed(middle)) <= size else (low, middle)
    return Division(needed(low), low, frozenset(
        at for at, (tenant, option) in enumerate(zip(tenants, options, strict=True))
        if 0 < option.best < low * tenant.weight * (1 - 1e-9)))


@dataclasses.dataclass(frozen=True)
class _Options:
    """The speeds of a tag at some sizes, both ascending; between two of them, it is linear."""

    sizes: Any
    speeds: Any

    @classmethod
    def of(cls, tenant: Tenant, low: int, high: int, correction: float) -> "_Options":
        """Return the speeds at the points of the tag's curve in [low, high]."""
        points = np.array([low, high])
        if tenant.rates is not None:
            grain = tenant.rates.grain
            inner = grain * np.arange(low // grain + 1, -(-high // grain))
            inner = inner[inner < grain * len(tenant.rates.reads)]
            points = np.concatenate([[low], inner, [high]])
        return cls(points, np.maximum.accumulate(_speeds(tenant, points, correction)))

    @property
    def best(self) -> float:
        """The speed at the largest size."""
        return float(self.speeds[-1])

    def size_for(self, speed: float) -> int:
        """Return the least size, in MiB above the lower bound, for a speed or the best one."""
        at = int(np.searchsorted(self.speeds, min(speed, self.best)))
        if at == 0:
            return int(self.sizes[0])
        low, high = self.sizes[at - 1], self.sizes[at]
        below, above = self.speeds[at - 1], self.speeds[at]
        size = low + (high - low) * (min(speed, self.best) - below) / (above - below)
        steps = -(-(size - self.sizes[0]) // MIB)
        return min(int(self.sizes[-1]), int(self.sizes[0] + steps * MIB))
