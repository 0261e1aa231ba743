# SPDX-License-Identifier: Apache-2.0
"""How a pool is divided among its tags: pure functions of the demands of all tags.

A policy gives each tag a minimum and a maximum in bytes. The kernel
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

``throughput`` and ``mrc``
    Shares that follow what was measured; :mod:`vcache_agent.decide` has them.
"""

import dataclasses
from collections.abc import Mapping, Sequence
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


def static(demands: Sequence[Demand], size: int) -> list[Range]:
    """Return fixed parts of a pool, by weight, within the flavors' ranges.

    If the sum of the minima exceeds the pool, the pool is divided in proportion
    to the minima. Parts are whole MiB, at least 1 MiB.

    :param size: size of the pool in bytes
    """
    return [Range(part, part) for part in (
        max(MIB, int(part) // MIB * MIB) for part in parts_of(demands, size))]


def parts_of(demands: Sequence[Demand], size: int) -> list[float]:
    """Return the parts by weight, in bytes, with the minima and maxima respected.

    If the sum of the minima exceeds the size, the parts are in proportion to the minima.
    """
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
    """A policy; decide/division.py has its function.

    :param sized: it needs the pool's size; while the size is unknown, the flavors' ranges are
        used
    :param measured: it needs what was measured
    :param meaning: one line for operators
    """

    sized: bool
    measured: bool
    meaning: str


#: All policies, by name.
POLICIES: Mapping[str, Policy] = {
    "static": Policy(True, False,
                     "fixed parts by weight; other tags cannot use an unused part"),
    "weighted": Policy(False, False, "soft shares by weight, between the flavor's minimum and "
                       "maximum; other tags may use an unused part"),
    "throughput": Policy(True, True, "shares that give throughput in proportion to the weights, "
                         "by miss-ratio curves and measured times; a tag with load gets no more"),
    "mrc": Policy(True, True, "soft shares with the least weighted time at the origins, by "
                  "miss-ratio curves; an idle tag lends its share"),
}
DEFAULT = "weighted"
