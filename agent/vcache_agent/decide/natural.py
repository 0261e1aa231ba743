# SPDX-License-Identifier: Apache-2.0
"""The sizes that tags would have in one LRU list for all.

A cache of s bytes that misses m(s) blocks per second replaces its oldest block after the time
T(s), and dT/ds = 1 / m(s) (Denning's working set). In one list, all tags have the same T. So the
sizes follow from the curves, without a simulation.
"""

from collections.abc import Sequence
from typing import Any

from vcache_agent.decide.arrays import np
from vcache_agent.decide.tenant import BLOCK_BYTES, Tenant

#: Misses per second that count as none.
_NOTHING = 1e-6
#: Ages at which sizes are computed; between two of them, sizes are linear.
_AGES = 100


def sizes(tenants: Sequence[Tenant], size: int) -> list[int]:
    """Return the bytes of each tag in a full cache of `size` bytes.

    An idle tag has 0: its blocks become the oldest. So has a tag whose curve is unknown. If all
    blocks of all tags fit, the sum is less than `size`.
    """
    ages = [_ages(tenant, size) for tenant in tenants]
    known = [one for one in ages if one is not None]
    if not known:
        return [0] * len(tenants)
    first = min(float(times[1]) for _, times in known)
    last = max(float(times[-1]) for _, times in known)
    grid = np.concatenate([[0.0], np.geomspace(first, max(first, last), _AGES)])
    each = [None if one is None else np.interp(grid, one[1], one[0]) for one in ages]
    total = sum(one for one in each if one is not None)
    age = float(np.interp(size, total, grid))
    return [0 if one is None else int(np.interp(age, grid, one)) for one in each]


def _ages(tenant: Tenant, size: int) -> tuple[Any, Any] | None:
    """Return sizes up to `size` and their replacement times; None: no accesses are known."""
    if tenant.rates is None or tenant.idle or tenant.rates.quiet:
        return None
    grain, missed = tenant.rates.grain, tenant.rates.total
    points = min(len(missed), size // grain + 1)
    steps = grain * np.arange(points + 1, dtype=float)
    steps[-1] = max(size, steps[-1])  # behind the last point, the rate is constant
    # A size at which nothing is missed is never full.
    each = np.diff(steps) / BLOCK_BYTES / np.maximum(missed[:points], _NOTHING)
    times = np.empty(points + 1)
    times[0] = 0.0
    np.cumsum(each, out=times[1:])
    return steps, times
