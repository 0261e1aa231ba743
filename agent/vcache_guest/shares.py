# SPDX-License-Identifier: Apache-2.0
"""How blocks are divided among consumers by weight. Pure.

It is the division of the kernel's caches (``native/dm/reclaim/share.c``): each consumer gets its
minimum, and the rest is divided by weight. If the minima exceed what there is, they are scaled
down in proportion. An instance has its part by the host's division, so the parts of consumers are
nested shares (SymFlex, section 5.4).
"""

from collections.abc import Sequence
from typing import NamedTuple

#: Least and largest weight, as of a flavor, and the default.
WEIGHTS = (1, 1000)
WEIGHT = 100


class Claim(NamedTuple):
    """What a consumer asks for.

    :param weight: 1 to 1000
    :param least: minimum in blocks
    """

    weight: int = WEIGHT
    least: int = 0


def divide(blocks: int, claims: Sequence[Claim]) -> list[int]:
    """Return the parts of all consumers in whole blocks; their sum is `blocks`.

    What rounding leaves goes to the consumers that lose most by it, the first ones first.
    """
    if not claims:
        return []
    least = sum(claim.least for claim in claims)
    if least > blocks:
        return _rounded(blocks, [claim.least for claim in claims])
    rest = _rounded(blocks - least, [claim.weight for claim in claims])
    return [claim.least + part for claim, part in zip(claims, rest, strict=True)]


def _rounded(blocks: int, weights: Sequence[int]) -> list[int]:
    total = sum(weights)
    parts = [blocks * weight // total for weight in weights]
    order = sorted(range(len(weights)), key=lambda at: -(blocks * weights[at] % total))
    for at in order[:blocks - sum(parts)]:
        parts[at] += 1
    return parts
