# SPDX-License-Identifier: Apache-2.0
"""Which lanes of a pool tags have for themselves: a pure function of who asks for how much.

``vcache:isolation`` of a flavor says how:

``dedicated``
    As many lanes as hold what it is guaranteed, one at least, and nothing elsewhere:
    that is hard isolation.
``shared``
    None.
``auto``
    OC-Cache's Algorithm 1 (section III), with what it is guaranteed as the request: the
    whole lanes that this fills, and one more if the rest fills at least the watermark
    of one; a smaller rest it has of the shared lanes. So a flavor without
    ``vcache:min_mb`` has none.

Where lanes are short the algorithm gives what there is, and the rest is shared.

Lane 0 stays everybody's: a pool has a shared lane at least, and its metadata is there.
"""

import dataclasses
from collections.abc import Iterable, Sequence

from nova_vcache.extra_specs import Isolation
from vcache_agent.model import lanes_of

#: W_u of OC-Cache: the least part of a lane that whoever has it is to fill.
WATERMARK = 0.5


@dataclasses.dataclass(frozen=True)
class Claim:
    """What a tag asks for.

    :param isolation: its flavor's
    :param least: bytes that it is guaranteed
    :param held: lanes that it has now, a bit each
    """

    isolation: Isolation
    least: int = 0
    held: int = 0


def assign(sizes: Sequence[int], claims: Sequence[Claim], taken: int = 0) -> list[int]:
    """Return the lanes of each tag, a bit each.

    Who has lanes keeps them, of lanes of a size: what is in them would have to go. Only a
    dedicated tag takes some from one that is ``auto``.

    :param sizes: bytes that each lane of the pool holds, from lane 0 on
    :param taken: lanes that are others', a bit each
    """
    found = [0] * len(claims)
    free = ((1 << len(sizes)) - 1) & ~1 & ~taken
    strict = [at for at, claim in enumerate(claims) if claim.isolation is Isolation.DEDICATED]
    others = [at for at, claim in enumerate(claims) if claim.isolation is not Isolation.DEDICATED]
    lent = 0
    for at in others:
        lent |= claims[at].held
    for group in (strict, others):
        at_first = free
        for at in sorted(group, key=lambda at: not claims[at].held & at_first):
            found[at] = _chosen(sizes, claims[at], free, lent)
            free &= ~found[at]
    return found


def capacity(sizes: Sequence[int], lanes: int) -> int:
    """Return the bytes that some lanes hold."""
    return sum(size for lane, size in enumerate(sizes) if lanes >> lane & 1)


def _chosen(sizes: Sequence[int], claim: Claim, free: int, lent: int) -> int:
    own = claim.held & free
    if claim.isolation is Isolation.SHARED:
        return 0
    if claim.isolation is Isolation.AUTO:
        # By size first: what it has decides only among lanes that are as large, or lanes
        # of different sizes would have it take others the second time.
        return _fill(sizes, claim.least, sorted(
            lanes_of(free), key=lambda lane: (-sizes[lane], not own >> lane & 1)), WATERMARK)
    found = _fill(sizes, max(claim.least, 1), sorted(
        lanes_of(free), key=lambda lane: (not own >> lane & 1, lent >> lane & 1)))
    # A lane that it had, and that is not needed beside a larger one.
    return _fill(sizes, max(claim.least, 1), sorted(
        lanes_of(found), key=lambda lane: -sizes[lane]))


def _fill(sizes: Sequence[int], left: int, order: Iterable[int], watermark: float = 0.0) -> int:
    """Return the lanes, of those in their order, that so many bytes need."""
    lanes = 0
    for lane in order:
        if left > 0 and left >= watermark * sizes[lane]:
            lanes |= 1 << lane
            left -= sizes[lane]
    return lanes
