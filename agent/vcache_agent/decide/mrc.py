# SPDX-License-Identifier: Apache-2.0
"""Policy ``mrc``: quotas with the least weighted time at the origins.

The cost of a tag is weight × (missed reads × time that a hit saves + missed writes × time that
a write-back saves). Quotas are lower bounds of shares: the kernel takes chunks only of tags above
theirs. A part of the pool has no quota, since hard partitions are worse than one shared LRU as
soon as tenants come and go. An idle tag has its guarantee only; its data stays until others need
the space.
"""

import dataclasses
from collections.abc import Sequence
from typing import Any

from vcache_agent.decide import optimum
from vcache_agent.decide.arrays import np
from vcache_agent.decide.tenant import MIB, Tenant, floors

#: Steps into which a pool is divided.
GRAINS = 256
#: Steps of the exact division, about 10 ms of processor time for each million; more take the
#: convex hulls. Of many tags, the hulls divide nearly as well: only one tag gets less than a
#: whole segment of its hull.
EXACT_STEPS = 3_000_000


@dataclasses.dataclass(frozen=True)
class Settings:
    """Settings of the policy.

    :param common: fraction of the pool without a quota, 0 to 1
    :param grains: steps into which a pool is divided
    """

    common: float = 0.1
    grains: int = GRAINS


def divide(tenants: Sequence[Tenant], size: int, settings: Settings | None = None) -> list[int]:
    """Return the quota of each tag in bytes, a multiple of 1 MiB above its guarantee.

    :param size: size of the pool in bytes
    """
    settings = settings or Settings()
    least = floors(tenants, size)
    left = max(0, int(size * (1 - settings.common)) - sum(least))
    grain = max(MIB, -(-size // settings.grains // MIB) * MIB)
    costs = [_cost(tenant, low, size, grain, left) for tenant, low in
             zip(tenants, least, strict=True)]
    total = left // grain
    best = optimum.exact if len(tenants) * total * total <= EXACT_STEPS else optimum.hull
    return [low + given * grain for low, given in
            zip(least, best(costs, total), strict=True)]


def _cost(tenant: Tenant, low: int, size: int, grain: int, left: int) -> Any:
    """Return the cost for 0, 1, 2 ... grains above the guarantee."""
    most = min(tenant.bounds(size)[1] - low, left)
    return tenant.costs(low + grain * np.arange(most // grain + 1))
