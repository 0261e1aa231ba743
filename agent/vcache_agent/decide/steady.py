# SPDX-License-Identifier: Apache-2.0
"""Hysteresis and bounded steps: which part of a wanted change happens in this period."""

import dataclasses
from collections.abc import Sequence

from vcache_agent.decide.tenant import BLOCK_BYTES, MIB, Tenant


@dataclasses.dataclass(frozen=True)
class Settings:
    """How willingly quotas change.

    :param gain: fraction of the cost that a change must save, 0 to 1
    :param step: largest fraction of the pool that changes its tag in a period, 0 to 1
    :param horizon: seconds in which a change must save more than it costs to fill the moved
        space again
    """

    gain: float = 0.01
    step: float = 0.25
    horizon: float = 120.0


def move(tenants: Sequence[Tenant], wanted: Sequence[int], floors: Sequence[int], size: int,
         settings: Settings | None = None) -> list[int]:
    """Return the quotas of this period in bytes.

    Quotas below a guarantee or a level's floor, or above the pool together, always change.
    Otherwise, the change must save more than it costs. A change that moves much is divided into
    several periods.

    :param wanted: quotas that the policy has chosen
    :param floors: bytes that a tag has in any case
    :param size: size of the pool in bytes
    """
    settings = settings or Settings()
    before = [tenant.quota for tenant in tenants]
    must = any(quota < floor for quota, floor in zip(before, floors, strict=True)) \
        or sum(before) > size \
        or any(quota > tenant.bounds(size)[1] for quota, tenant in
               zip(before, tenants, strict=True))
    if not must and not _pays(tenants, wanted, settings):
        return before
    moved = sum(max(0, new - old) for new, old in zip(wanted, before, strict=True))
    part = min(1.0, settings.step * size / moved) if moved else 1.0
    return [new if part == 1.0 else max(min(new, floor), _between(old, new, part))
            for old, new, floor in zip(before, wanted, floors, strict=True)]


def _pays(tenants: Sequence[Tenant], wanted: Sequence[int], settings: Settings) -> bool:
    """Return True if a change saves more time at the origins than it takes to fill the space."""
    now = sum(tenant.cost(tenant.quota) for tenant in tenants)
    then = sum(tenant.cost(quota) for tenant, quota in zip(tenants, wanted, strict=True))
    fill = sum(tenant.weight * tenant.times.miss * (quota - tenant.quota) / BLOCK_BYTES
               for tenant, quota in zip(tenants, wanted, strict=True)
               if tenant.times is not None and quota > tenant.quota)
    return now - then > max(settings.gain * now, fill / settings.horizon)


def _between(old: int, new: int, part: float) -> int:
    """Return `old` moved by a part of the way to `new`, rounded down to 1 MiB."""
    return int(old + (new - old) * part) // MIB * MIB
