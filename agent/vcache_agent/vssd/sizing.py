# SPDX-License-Identifier: Apache-2.0
"""How much of a pool its elastic SSDs get beside the tags: pure functions.

Elastic SSDs and tags divide the pool by their weights, within their bounds (SymFlex, section 2.2).
One that does not fill its part gets what it uses and a little more, and the others get the rest.
"""

import dataclasses
from collections.abc import Sequence

from vcache_agent.policies import Demand, Range, parts_of

#: A part that is filled to this fraction is too small: the demand is not known to be limited.
_FULL = 0.9
# What a tenant that uses less gets, as a multiple of what it uses.
_ROOM = 1.25
# Largest and smallest change in one period, as a fraction of the disk. Blocks have to be given up
# and filled again, so small changes are not worth it.
_STEP, _IGNORED = 1 / 8, 1 / 32


@dataclasses.dataclass(frozen=True)
class Tenant:
    """A tag or an elastic SSD; sizes in bytes.

    :param weight: 1 to 1000
    :param least: what is guaranteed
    :param most: upper bound; 0: no limit
    :param size: what it may use now
    :param used: what it uses
    """

    weight: int
    least: int
    most: int
    size: int
    used: int


def _demand(one: Tenant) -> Demand:
    most = one.most
    if one.used < _FULL * one.size:
        wanted = max(one.least, int(one.used * _ROOM), 1)
        most = min(most, wanted) if most else wanted
    return Demand(one.weight, Range(one.least, max(most, one.least)))


def sizes(pool: int, tags: Sequence[Tenant], disks: Sequence[Tenant]) -> list[int]:
    """Return what each elastic SSD should have in the end, in bytes.

    :param pool: bytes to divide
    """
    if not disks:
        return []
    parts = parts_of([_demand(one) for one in (*disks, *tags)], pool)
    return [int(part) for part in parts[:len(disks)]]


def step(one: Tenant, wanted: int) -> int:
    """Return the size of the next period on the way to a size, in bytes.

    The guarantee is given at once.

    :param one: an elastic SSD, of which `most` is the size of the disk
    """
    if one.size < one.least:
        return one.least
    if abs(wanted - one.size) < one.most * _IGNORED and wanted != one.least:
        return one.size
    limit = int(one.most * _STEP)
    return max(one.least, one.size - limit, min(wanted, one.size + limit))
