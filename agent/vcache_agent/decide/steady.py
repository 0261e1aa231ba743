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
    horizon: float = 900.0


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
    if not must_move(tenants, floors, size) and not _pays(tenants, wanted, settings):
        return before
    return limited(tenants, wanted, floors, size, settings)


def must_move(tenants: Sequence[Tenant], floors: Sequence[int], size: int) -> bool:
    """Return True if the quotas cannot stay."""
    return any(tenant.quota < floor or tenant.quota > tenant.bounds(size)[1]
               for tenant, floor in zip(tenants, floors, strict=True)) \
        or sum(tenant.quota for tenant in tenants) > size


def limited(tenants: Sequence[Tenant], wanted: Sequence[int], floors: Sequence[int], size: int,
            settings: Settings | None = None) -> list[int]:
    """Return the quotas of this period if they change: a large change takes several periods.

    The parameters are those of :func:`move`.
    """
    settings = settings or Settings()
    before = [tenant.quota for tenant in tenants]
    moved = sum(max(0, new - old) for new, old in zip(wanted, before, strict=True))
    part = min(1.0, settings.step * size / moved) if moved else 1.0
    found = [new if part == 1.0 else max(min(new, floor), _between(old, new, part))
             for old, new, floor in zip(before, wanted, floors, strict=True)]
    # Floors are reached at once, although others have given up only a part.
    least = [min(one, floor) for one, floor in zip(found, floors, strict=True)]
    return fitted(found, least, max(sum(wanted), min(sum(before), size)))


def fitted(quotas: Sequence[int], least: Sequence[int], most: int) -> list[int]:
    """Return quotas whose sum is at most `most`, or the least ones if these are more.

    What exceeds the least quotas is reduced in proportion, in whole MiB.
    """
    spare = sum(quotas) - sum(least)
    over = sum(quotas) - max(most, sum(least))
    if over <= 0 or not spare:
        return list(quotas)
    return [low + (quota - low) * (spare - over) // spare // MIB * MIB
            for quota, low in zip(quotas, least, strict=True)]


def _pays(tenants: Sequence[Tenant], wanted: Sequence[int], settings: Settings) -> bool:
    """Return True if a change saves more time at the origins than it takes to fill the space."""
    now = sum(tenant.cost(tenant.quota) for tenant in tenants)
    then = sum(tenant.cost(quota) for tenant, quota in zip(tenants, wanted, strict=True))
    # What a tag has already needs no filling.
    fill = sum(tenant.weight * tenant.times.miss * (quota - had) / BLOCK_BYTES
               for tenant, quota in zip(tenants, wanted, strict=True)
               if tenant.times is not None and quota > (had := max(tenant.quota, tenant.cached)))
    return now - then > max(settings.gain * now, fill / settings.horizon)


def _between(old: int, new: int, part: float) -> int:
    """Return `old` moved by a part of the way to `new`, rounded down to 1 MiB."""
    return int(old + (new - old) * part) // MIB * MIB
