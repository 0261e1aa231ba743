# SPDX-License-Identifier: Apache-2.0
"""The dedicated lanes of tags: those that flavors require, then those of Algorithm 1."""

import dataclasses
from collections.abc import Iterable, Mapping, Sequence

from nova_vcache.extra_specs import Isolation
from vcache_agent import lanes as lanes_of_pool
from vcache_agent.decide import algorithm1
from vcache_agent.decide.algorithm1 import Grant, Request
from vcache_agent.decide.history import Known
from vcache_agent.observe.claim import Claim, PoolSize
from vcache_agent.observe.sample import TagKey

#: Periods in a row in which Algorithm 1 must grant the same number of lanes, before a tag that
#: had another number gets it: a change of lanes discards cached data.
STABLE = 3
Lanes = Mapping[TagKey, int]


@dataclasses.dataclass(frozen=True)
class Placed:
    """The result.

    :param lanes: bit masks of the dedicated lanes
    :param tags: what is known about the tags, with the state of Algorithm 1
    :param reasons: why a tag has lanes, or none
    """

    lanes: Lanes
    tags: Mapping[TagKey, Known]
    reasons: Mapping[TagKey, tuple[str, ...]]


def _isolation(claim: Claim) -> Isolation:
    return claim.isolation if claim.cached else Isolation.SHARED


def dedicated(claims: Sequence[Claim], pool: PoolSize) -> dict[TagKey, int]:
    """Return the lanes of the tags that must have some, or whose lanes an operator has set.

    If the lanes of the pool are unknown, every tag keeps its lanes.
    """
    fixed = {claim.key: claim.lanes for claim in claims if claim.fixed}
    if not pool.lanes:
        return {claim.key: claim.lanes for claim in claims}
    taken = pool.taken
    for mask in fixed.values():
        taken |= mask
    open_to = [claim for claim in claims if not claim.fixed]
    # An ``auto`` tag must give up its lanes for one that must have them.
    assigned = lanes_of_pool.assign(pool.lanes, [
        lanes_of_pool.Claim(_isolation(claim), claim.least, claim.lanes) for claim in open_to],
        taken)
    return fixed | {claim.key: mask for claim, mask in zip(open_to, assigned, strict=True)
                    if _isolation(claim) is Isolation.DEDICATED}


def alone(claim: Claim, pool: PoolSize, mask: int) -> int:
    """Return the bytes of a tag's dedicated lanes if it uses only those, otherwise 0."""
    if claim.isolation is not Isolation.DEDICATED or not mask:
        return 0
    size = lanes_of_pool.capacity(pool.lanes, mask)
    return size if size >= claim.least else 0


def automatic(claims: Sequence[Claim], pool: PoolSize, strict: Lanes,
              tags: Mapping[TagKey, Known], *, period: bool, measured: bool) -> Placed:
    """Return the lanes of all tags, those of ``auto`` by Algorithm 1.

    The request of a tag is its quota, at which its curve gives R_e. A tag without a curve
    requests its guarantee, and is assumed to miss nothing with it. If the policy measures, it also
    requests the lanes that it has: after a restart of the agent, no curve is known for a while.

    :param claims: of the tags that do not use only dedicated lanes
    :param strict: lanes of other tags
    :param tags: what is known, with the quotas of this period
    :param period: a control period has passed
    :param measured: the policy computes quotas from what was measured
    """
    found = {claim.key: strict.get(claim.key, 0) for claim in claims}
    autos = [claim for claim in claims if claim.key not in strict
             and _isolation(claim) is Isolation.AUTO]
    if not pool.lanes or not autos:
        return Placed(found, {}, {})
    taken = pool.taken | _union(strict.values())
    free = [lane for lane in range(1, len(pool.lanes)) if not taken >> lane & 1]
    size = max((pool.lanes[lane] for lane in free), default=0)
    requests = [_request(claim, tags[claim.key], lanes_of_pool.capacity(
        pool.lanes, claim.lanes & ~taken), measured=measured) for claim in autos]
    grants = algorithm1.allocate(requests, len(free) + 1, size, common=1) if size else \
        [Grant() for _ in autos]
    kept = {claim.key: _steady(tags[claim.key], grant.lanes, claim, period=period)
            for claim, grant in zip(autos, grants, strict=True)}
    masks = lanes_of_pool.assign(pool.lanes, [
        lanes_of_pool.Claim(Isolation.AUTO, kept[claim.key].lanes * size, claim.lanes)
        for claim in autos], taken)
    reasons = {}
    for claim, grant, mask, request in zip(autos, grants, masks, requests, strict=True):
        found[claim.key] = mask
        reasons[claim.key] = _reasons(grant, kept[claim.key], request)
    return Placed(found, kept, reasons)


def _union(masks: Iterable[int]) -> int:
    found = 0
    for mask in masks:
        found |= mask
    return found


def _request(claim: Claim, known: Known, held: int, *, measured: bool) -> Request:
    """Return S_r and R_e of a tag.

    :param held: bytes of the dedicated lanes that it has and can keep
    """
    size = max(claim.least, known.quota)
    if known.rates is None or known.rates.quiet:
        keeps = held if measured and known.rates is None else 0
        return Request(max(claim.least, keeps), 0.0, bool(held))
    reads, writes = known.rates.at(size)
    most_reads, most_writes = known.rates.at(0)
    return Request(size, (reads + writes) / (most_reads + most_writes), bool(held))


def _steady(known: Known, granted: int, claim: Claim, *, period: bool) -> Known:
    """Return a tag with the lanes that it may have now.

    A grant for the guarantee alone takes effect at once: nothing was measured that could change.
    """
    if known.rates is None:
        return dataclasses.replace(known, lanes=granted, wanted=granted, stable=0)
    stable = known.stable
    if period:
        stable = known.stable + 1 if granted == known.wanted else 1
    lanes = granted if stable >= STABLE else known.lanes
    if (lanes, granted, min(stable, STABLE)) == (known.lanes, known.wanted, known.stable):
        return known
    return dataclasses.replace(known, lanes=lanes, wanted=granted, stable=min(stable, STABLE))


def _reasons(grant: Grant, known: Known, request: Request) -> tuple[str, ...]:
    if not request.size:
        return ()
    text = (f"Algorithm 1: it requests {request.size} bytes, with which it misses "
            f"{100 * request.miss_ratio:.1f} %")
    if grant.removed:
        return (f"{text}; the request does not fit into the lanes and is removed",)
    if known.wanted != known.lanes:
        return (f"{text}; {known.wanted} lanes after {STABLE} equal periods, so far "
                f"{known.stable}",)
    return (f"{text}; {known.lanes} lanes",)
