# SPDX-License-Identifier: Apache-2.0
"""Who may have how much of a pool: pure functions of what all of its tags ask for.

A policy says of each tag the least and the most bytes that it has of the
cache; the kernel does the rest: minima first, what they leave by weight, what
one does not use is lent to others, nobody passes a maximum.

``weighted``
    Shares are soft: the flavor's minimum and maximum, and weights between. A
    tag whose owner is idle lends its cache; so no space is wasted.

``static``
    Fixed parts by weight: nobody has more or less, whatever the others do.
    For comparison, and for who must not gain from an idle neighbour.
"""

import dataclasses
from collections.abc import Callable, Mapping, Sequence
from typing import NamedTuple

MIB = 1 << 20


class Range(NamedTuple):
    """What a tag may have of a pool, in bytes.

    :param least: its share is at least that
    :param most: and it never has more; 0: no limit
    """

    least: int
    most: int


ANYTHING = Range(0, 0)


@dataclasses.dataclass(frozen=True)
class Demand:
    """What a tag asks for.

    :param weight: 1 ... 1000
    :param asked: what its flavor, or flavors, say
    :param cached: its mode has it use the cache at all
    """

    weight: int
    asked: Range = ANYTHING
    cached: bool = True


def weighted(demands: Sequence[Demand], _size: int) -> list[Range]:
    """Return what the flavors say."""
    return [demand.asked for demand in demands]


def static(demands: Sequence[Demand], size: int) -> list[Range]:
    """Return fixed parts of a pool, by weight, within what the flavors say.

    Where the minima are more than there is, each has its part of that in
    proportion to them. In whole MiB, one at least.

    :param size: of the pool in bytes
    """
    return [Range(part, part) for part in (
        max(MIB, int(part) // MIB * MIB) for part in _parts(demands, size))]


def _parts(demands: Sequence[Demand], size: int) -> list[float]:
    """Return the parts by weight, the minima and maxima kept."""
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
        # Those that are further off decide: the others may fit without them.
        lacking = sum(demands[at].asked.least - parts[at] for at in low)
        spare = sum(parts[at] - demands[at].asked.most for at in high)
        held |= low if lacking >= spare else high


class Policy(NamedTuple):
    """A policy.

    :param divide: what the tags of a pool have, of its size in bytes
    :param sized: the size matters; without, what the flavors say is in force
    :param meaning: a line for operators
    """

    divide: Callable[[Sequence[Demand], int], list[Range]]
    sized: bool
    meaning: str


#: By the name an operator gives.
POLICIES: Mapping[str, Policy] = {
    "static": Policy(static, True, "fixed parts by weight; what one does not use is nobody's"),
    "weighted": Policy(weighted, False, "soft shares by weight, between the flavor's minimum and "
                       "maximum; what one does not use is lent"),
}
DEFAULT = "weighted"
