# SPDX-License-Identifier: Apache-2.0
"""Assign dedicated lanes of a pool to its tags: a pure function of the tags' requests.

``vcache:isolation`` of the flavor selects the method:

``dedicated``
    As many lanes as the guaranteed bytes need, at least one, and no space in shared
    lanes. This is hard isolation.
``shared``
    No dedicated lanes.
``auto``
    The whole lanes that the request fills, and one more if the rest fills at least the
    watermark of a lane. A smaller rest comes from the shared lanes. OC-Cache's Algorithm 1
    computes the request (decide/placing.py).

If there are too few lanes, the algorithm assigns those that are free, and the rest comes
from the shared lanes.

Lane 0 is never dedicated, because a pool needs a shared lane and its metadata is there.
"""

import dataclasses
from collections.abc import Iterable, Sequence

from nova_vcache.extra_specs import Isolation
from vcache_agent.model import lanes_of

#: W_u of OC-Cache: the smallest fraction of a dedicated lane that its tag must fill.
WATERMARK = 0.5


@dataclasses.dataclass(frozen=True)
class Claim:
    """The request of one tag.

    :param isolation: isolation of its flavor
    :param least: guaranteed bytes; of an ``auto`` tag, its request
    :param held: bit mask of its current lanes
    """

    isolation: Isolation
    least: int = 0
    held: int = 0


def assign(sizes: Sequence[int], claims: Sequence[Claim], taken: int = 0) -> list[int]:
    """Return the lanes of each tag, as bit masks.

    Among lanes of equal size a tag keeps its current ones, because a change of lanes
    discards cached data. Only a ``dedicated`` tag takes lanes from an ``auto`` tag. No
    tag takes a lane that another one of the same isolation keeps. So the result does not
    change when the function is applied to it again.

    :param sizes: bytes of each lane of the pool, from lane 0 on
    :param claims: the requests
    :param taken: bit mask of lanes that are not available
    """
    found = [0] * len(claims)
    free = ((1 << len(sizes)) - 1) & ~1 & ~taken
    strict = [at for at, claim in enumerate(claims) if claim.isolation is Isolation.DEDICATED]
    others = [at for at, claim in enumerate(claims) if claim.isolation is Isolation.AUTO]
    lent = 0
    for at in others:
        lent |= claims[at].held
    for group in (strict, others):
        for at in group:
            found[at] = claims[at].held & free
            free &= ~found[at]
        # A tag that gives up a lane may make room for a tag before it. This ends: after its
        # first step, a tag only adds lanes or exchanges them for larger ones.
        changed = True
        while changed:
            changed = False
            for at in group:
                lanes = _chosen(sizes, claims[at], found[at], free, lent)
                changed |= lanes != found[at]
                free = (free | found[at]) & ~lanes
                found[at] = lanes
    return found


def capacity(sizes: Sequence[int], lanes: int) -> int:
    """Return the bytes of the lanes in a bit mask."""
    return sum(size for lane, size in enumerate(sizes) if lanes >> lane & 1)


def _chosen(sizes: Sequence[int], claim: Claim, own: int, free: int, lent: int) -> int:
    """Return the lanes that a tag with the lanes `own` chooses of them and of the free ones."""
    if claim.isolation is Isolation.AUTO:
        # Sort by size first, and prefer current lanes only among lanes of equal size.
        # Otherwise the result would change when the function is applied again.
        return _fill(sizes, claim.least, sorted(
            lanes_of(own | free), key=lambda lane: (-sizes[lane], not own >> lane & 1)), WATERMARK)
    found = _fill(sizes, max(claim.least, 1), sorted(
        lanes_of(own | free), key=lambda lane: (not own >> lane & 1, lent >> lane & 1)))
    # Drop current lanes that are not needed beside larger ones.
    return _fill(sizes, max(claim.least, 1), sorted(
        lanes_of(found), key=lambda lane: -sizes[lane]))


def _fill(sizes: Sequence[int], left: int, order: Iterable[int], watermark: float = 0.0) -> int:
    """Return the bit mask of the lanes, taken in `order`, that `left` bytes need."""
    lanes = 0
    for lane in order:
        if left > 0 and left >= watermark * sizes[lane]:
            lanes |= 1 << lane
            left -= sizes[lane]
    return lanes
