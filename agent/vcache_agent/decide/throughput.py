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

from vcache_agent.decide.arrays import np
from vcache_agent.decide.tenant import MIB, Tenant, floors

#: The common factor is found in rounds, each of which tries some factors.
_ROUNDS, _FACTORS = 2, 129
#: Limits of a correction.
CORRECTION = (0.25, 4.0)
#: Difference of throughput from the wanted one that changes no quota.
TOLERANCE = 0.015
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
    if tenant.rates is None or tenant.times is None or tenant.idle or tenant.rates.quiet:
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

    weights = [tenant.weight for tenant in tenants]

    def needed(factors: Any) -> Any:
        """Return the sizes of all tags for each factor."""
        return np.array([option.sizes_for(factors * weight)
                         for weight, option in zip(weights, options, strict=True)])

    # The factor of the tag that can have most for its weight is an upper limit.
    low, high = 0.0, max((option.best / weight for option, weight in
                          zip(options, weights, strict=True)), default=0.0)
    for _ in range(_ROUNDS if tenants else 0):
        factors = np.linspace(low, high, _FACTORS)
        fits = int(np.flatnonzero(needed(factors).sum(axis=0) <= size).max(initial=0))
        low, high = float(factors[fits]), float(factors[min(fits + 1, _FACTORS - 1)])
    quotas = needed(np.array([low]))[:, 0].tolist() if tenants else []
    return Division(quotas, low, frozenset(
        at for at, (tenant, option) in enumerate(zip(tenants, options, strict=True))
        if 0 < option.best < low * tenant.weight * (1 - 1e-9)))


def in_proportion(tenants: Sequence[Tenant], found: Division,
                  corrections: Sequence[float]) -> bool:
    """Return True if the present quotas give throughput that is near enough to a division's.

    Smaller changes do not pay. Tags without load and those that are bound do not count.
    """
    for at, (tenant, correction) in enumerate(zip(tenants, corrections, strict=True)):
        speed = predicted(tenant, tenant.quota, correction)
        wanted = found.factor * tenant.weight
        if speed and at not in found.bound and abs(speed - wanted) > TOLERANCE * wanted:
            return False
    return True


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

    def sizes_for(self, speeds: Any) -> Any:
        """Return the least sizes, in MiB above the lower bound, for speeds or the best one."""
        wanted = np.minimum(speeds, self.best)
        at = np.searchsorted(self.speeds, wanted)
        before = np.maximum(at - 1, 0)
        low, high = self.sizes[before], self.sizes[at]
        below, rise = self.speeds[before], self.speeds[at] - self.speeds[before]
        sizes = low + (high - low) * (wanted - below) / np.where(rise > 0, rise, 1)
        steps = np.ceil((np.where(at > 0, sizes, low) - self.sizes[0]) / MIB).astype(int)
        return np.minimum(self.sizes[-1], self.sizes[0] + steps * MIB)
