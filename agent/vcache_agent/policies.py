# SPDX-License-Identifier: Apache-2.0
"""How a pool is divided among its tags: pure functions of the demands of all tags.

A policy returns a minimum and a maximum in bytes for each tag. The kernel
computes the shares from them: it grants the minima first and divides the rest
by weight. A tag may also use the unused part of other shares, up to its own
maximum.

``weighted``
    Soft shares: minimum and maximum are those of the flavor, and the weights
    decide in between. Other tags may use an unused part, so no space is wasted.

``static``
    Fixed parts by weight: minimum and maximum of a tag are equal, so the load
    of the other tags does not change them. For comparison, and for tenants
    that must not gain from an idle neighbour.
"""

import dataclasses
from collections.abc import Callable, Mapping, Sequence
from typing import NamedTuple

MIB = 1 << 20


class Range(NamedTuple):
    """Minimum and maximum of a tag's cache in one pool, in bytes.

    :param least: lower bound of the tag's share
    :param most: upper bound of its cached data; 0: no limit
    """

    least: int
    most: int


ANYTHING = Range(0, 0)


@dataclasses.dataclass(frozen=True)
class Demand:
    """The demand of one tag.

    :param weight: 1 to 1000
    :param asked: range that the flavors of its domains request
    :param cached: the tag's mode uses the cache
    """

    weight: int
    asked: Range = ANYTHING
    cached: bool = True


def weighted(demands: Sequence[Demand], _size: int) -> list[Range]:
    """Return the ranges that the flavors request."""
    return [demand.asked for demand in demands]


def static(demands: Sequence[Demand], size: int) -> list[Range]:
    """Return fixed parts of a pool, by weight, within the flavors' ranges.

    If the sum of the minima exceeds the pool, the pool is divided in proportion
    to the minima. Parts are whole MiB, at least 1 MiB.

    :param size: size of the pool in bytes
    """
    return [Range(part, part) for part in (
        max(MIB, int(part) // MIB * MIB) for part in _parts(demands, size))]


def _parts(demands: Sequence[Demand], size: int) -> list[float]:
    """Return the parts by weight, in bytes, with the minima and maxima respected."""
    least = sum(demand.asked.least for demand in demands)
    if least > size:
        return [size * demand.asked.least / least for demand in demands]
    held: dict[int, int] = {}
    while True:
        rest = size - sum(held.values())
        weights = sum(demand.weight for at, demand in enumerate(demands) if at not in held)
        parts = [held[at] if at in held else rest * demand.weight / weights
                 for at, demand in enumerate(demands)]
        low = {at: demand.asked.least for at, demand in enumerate(demands)
               if at not in held and parts[at] < demand.asked.least}
        high = {at: demand.asked.most for at, demand in enumerate(demands)
                if at not in held and 0 < demand.asked.most < parts[at]}
        if not low and not high:
            return parts
        # Fix the group that violates its bounds by more; then the other group may fit.
        lacking = sum(demands[at].asked.least - parts[at] for at in low)
        spare = sum(parts[at] - demands[at].asked.most for at in high)
        held |= low if lacking >= spare else high


class Policy(NamedTuple):
    """A policy.

    :param divide: returns the ranges of a pool's tags, from their demands and the pool's
        size in bytes
    :param sized: `divide` needs the size; while the size is unknown, the flavors' ranges
        are used
    :param meaning: one line for operators
    """

    divide: Callable[[Sequence[Demand], int], list[Range]]
    sized: bool
    meaning: str


#: All policies, by name.
POLICIES: Mapping[str, Policy] = {
    "static": Policy(static, True,
                     "fixed parts by weight; other tags cannot use an unused part"),
    "weighted": Policy(weighted, False, "soft shares by weight, between the flavor's minimum and "
                       "maximum; other tags may use an unused part"),
}
DEFAULT = "weighted"
