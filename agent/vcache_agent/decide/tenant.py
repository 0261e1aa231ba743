# SPDX-License-Identifier: Apache-2.0
"""The input of the policies: one tag of a pool."""

import dataclasses
from collections.abc import Sequence
from typing import Any

from vcache_agent.decide.arrays import np
from vcache_agent.decide.rates import Rates

MIB = 1 << 20
BLOCK_BYTES = 4096


@dataclasses.dataclass(frozen=True)
class Times:
    """Seconds that a block of 4 KiB takes, as measured in the last periods.

    :param hit: read from the cache device
    :param miss: read from the origin
    :param write: write to the cache device
    :param origin_write: write to the origin
    """

    hit: float
    miss: float
    write: float
    origin_write: float


@dataclasses.dataclass(frozen=True)
class Tenant:
    """A tag and what is known about it.

    :param weight: 1 to 1000
    :param least: guaranteed bytes
    :param most: upper bound in bytes; 0: no limit
    :param quota: bytes of its last quota
    :param cached: bytes that it has now
    :param rates: its misses per second; None: unknown, for example because it is new
    :param times: None: unknown
    :param writeback: its writes stay in the cache, so a write that hits saves one of the origin
    :param depth: mean number of its requests in flight
    :param demand: blocks per second that it asks for at most; 0: as many as it gets
    :param idle: it had no accesses in the last period, so it lends its quota
    """

    weight: int
    least: int = 0
    most: int = 0
    quota: int = 0
    cached: int = 0
    rates: Rates | None = None
    times: Times | None = None
    writeback: bool = True
    depth: float = 1.0
    demand: float = 0.0
    idle: bool = False

    def bounds(self, size: int) -> tuple[int, int]:
        """Return the least and the largest quota in bytes, in a pool of `size` bytes."""
        most = min(self.most or size, size)
        return min(self.least, most), most

    def cost(self, size: int) -> float:
        """Return the weighted seconds at the origin per second, with `size` bytes of cache.

        0 if the curve or the times are unknown, or it is idle.
        """
        if self.rates is None or self.times is None or self.idle:
            return 0.0
        # An array of one size takes ten times as long.
        reads, writes = self.rates.at(size)
        return float(self._saved(reads, writes))

    def costs(self, sizes: "np.ndarray[Any, Any]") -> Any:
        """Return the same for an array of sizes."""
        if self.rates is None or self.times is None or self.idle:
            return np.zeros(len(sizes))
        return self._saved(*self.rates.many(sizes))

    def _saved(self, reads: Any, writes: Any) -> Any:
        """Return the weighted time of misses per second."""
        assert self.times is not None  # noqa: S101 - for mypy
        saved = reads * max(0.0, self.times.miss - self.times.hit)
        if self.writeback:
            saved = saved + writes * max(0.0, self.times.origin_write - self.times.write)
        return self.weight * saved


def floors(tenants: Sequence[Tenant], size: int) -> list[int]:
    """Return the guaranteed bytes; if their sum exceeds the pool, in proportion to them."""
    least = [tenant.bounds(size)[0] for tenant in tenants]
    asked = sum(least)
    return [size * one // asked for one in least] if asked > size else least
