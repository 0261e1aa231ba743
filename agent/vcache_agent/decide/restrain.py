# SPDX-License-Identifier: Apache-2.0
"""Limits a neighbour while others miss their objectives because of it.

A pure function of the verdicts of a period. An operator allows the means, none by default.

* A tag must blame the same neighbour in two periods in a row. Then the neighbour is limited to 0.7
  of its rate, and to 0.7 of that in each further period in which it is to blame, but never below
  its usual rate. When that is not enough, the next means is added.
* After three periods in which it is not to blame, there is one step back, and one in each three
  further ones. If a step back was too much, the next one takes twice as long, 48 periods at most.
  So while the neighbour insists, objectives are rarely missed by an attempt to release it.
* After the last step back, it is watched for as long as the last step took. If it is to blame once
  in that time, it is limited again.
* If it does not use even half of what it is allowed, its burst is over, and it is released.
"""

import dataclasses
from collections.abc import Collection, Iterable, Mapping, Sequence

from vcache_agent.decide.blame import Cause, Verdict
from vcache_agent.decide.history import Known, Load
from vcache_agent.decide.restraint import PATIENCE, Means, Rates, Restraint, Restraints
from vcache_agent.decide.tenant import BLOCK_BYTES
from vcache_agent.observe.claim import Claim
from vcache_agent.observe.sample import TagKey

#: Periods in a row in which a tag must blame the same neighbour.
_BLAMED = 2
_STEP = 0.7
_PATIENCE_MAX = 48
#: Bytes per second that a neighbour has in any case: about what an idle operating system needs.
_LEAST = 4 << 20
#: Part of the added traffic from which a direction is limited.
_DIRECTION = 0.25
#: Part of a limit below which a neighbour does not need it.
_UNUSED = 0.5

Verdicts = Mapping[TagKey, tuple[Verdict, ...]]


@dataclasses.dataclass(frozen=True)
class Scene:
    """What is known at the end of a period.

    :param missed: why objectives were missed
    :param tags: what is known about the tags
    :param claims: the claims of the tags; a tag without one cannot be limited
    :param means: the means that an operator allows, in the order of their use
    """

    missed: Verdicts
    tags: Mapping[TagKey, Known]
    claims: Sequence[Claim]
    means: Sequence[Means]


def step(state: Restraints, scene: Scene) -> Restraints:
    """Return the restraints after a period."""
    blamed = _blamed(state, scene.missed)
    claims = {claim.key: claim for claim in scene.claims}
    active: dict[TagKey, Restraint] = {}
    for neighbour in sorted({*state.active, *(named for named, _ in blamed.values())}):
        if neighbour not in claims or not scene.means:
            continue
        old = state.active.get(neighbour)
        accusers = _accusers(neighbour, old, blamed, scene.missed)
        load = scene.tags.get(neighbour, Known()).load
        if old is None:
            new = _begun(neighbour, accusers, scene, claims)
        elif accusers:
            new = _tightened(old, accusers, _usable(neighbour, accusers | old.victims, scene))
        elif old.victims & blamed.keys():
            new = old  # others are to blame now, so it is no time to release this one
        else:
            new = _eased(old, load)
        if new is not None:
            active[neighbour] = new
    return Restraints(blamed, active)


def _blamed(state: Restraints, missed: Verdicts) -> dict[TagKey, tuple[TagKey, int]]:
    """Return whom each tag blames, and for how many periods."""
    found = {}
    for victim, verdicts in missed.items():
        named = next((verdict.tag for verdict in verdicts
                      if verdict.cause is Cause.NEIGHBOUR and verdict.tag is not None), None)
        if named is not None:
            before, periods = state.blamed.get(victim, (named, 0))
            found[victim] = (named, periods + 1 if before == named else 1)
    return found


def _accusers(neighbour: TagKey, old: Restraint | None,
              blamed: Mapping[TagKey, tuple[TagKey, int]], missed: Verdicts) -> frozenset[TagKey]:
    """Return the tags for which a neighbour must be limited, or limited further.

    Once it is limited, its traffic may be too little to be blamed, and still too much: then a slow
    device is what remains as the cause.
    """
    enough = _BLAMED if old is None else 1
    found = {victim for victim, (named, periods) in blamed.items()
             if named == neighbour and periods >= enough}
    if old is not None and old.parts and not old.spent:
        found |= {victim for victim in old.victims
                  if any(verdict.cause is Cause.DEVICE for verdict in missed.get(victim, ()))}
    return frozenset(found)


def _begun(neighbour: TagKey, accusers: frozenset[TagKey], scene: Scene,
           claims: Mapping[TagKey, Claim]) -> Restraint | None:
    """Return a first restraint; None: there is no reason for one, or no means."""
    usable = _usable(neighbour, accusers, scene)
    if not accusers or not usable:
        return None
    known = scene.tags[neighbour]
    began, usual = _rates(known.load), _rates(known.usual or Load())
    added = Rates(*(max(0.0, now - was) for now, was in zip(
        _traffic(known.load), _traffic(known.usual or Load()), strict=True)))
    limited = [rate if one >= _DIRECTION * sum(added) else 0.0
               for rate, one in zip(began, added, strict=True)]
    least = max(_LEAST, _promised(claims[neighbour], known.load))
    bounds = Rates(*(max(least, rate) for rate in usual))
    # Its load may be over already.
    if all(rate <= bound for rate, bound in zip(limited, bounds, strict=True)):
        return None
    return _next_means(Restraint(accusers, Rates(*limited), bounds, ()), usable)


def _next_means(old: Restraint, usable: Iterable[Means]) -> Restraint | None:
    """Return a restraint with a further means; None: there is none."""
    used = {means for means, _ in old.parts}
    for means in usable:
        if means not in used and (means is Means.IO or old.began.write):
            return dataclasses.replace(old, parts=(*old.parts, (means, _STEP)))
    return None


def _tightened(old: Restraint, accusers: frozenset[TagKey],
               usable: Sequence[Means]) -> Restraint:
    """Return a restraint after a period in which the neighbour was to blame."""
    patience = min(_PATIENCE_MAX, 2 * old.patience) if old.eased else old.patience
    old = dataclasses.replace(old, victims=old.victims | accusers, good=0, patience=patience,
                              eased=False)
    if not old.parts or old.spent:
        return _next_means(old, usable) or old
    means, part = old.parts[-1]
    return dataclasses.replace(old, parts=(*old.parts[:-1], (means, part * _STEP)))


def _eased(old: Restraint, load: Load) -> Restraint | None:
    """Return a restraint after a period in which it was not to blame; None: it ends."""
    good = old.good + 1
    if old.parts and good >= PATIENCE and _unused(old, load):
        return None
    if good < old.patience:
        return dataclasses.replace(old, good=good)
    if not old.parts:
        return None
    means, part = old.parts[-1]
    parts = (*old.parts[:-1], (means, part / _STEP)) if part / _STEP < 1 - 1e-9 \
        else old.parts[:-1]
    return dataclasses.replace(old, parts=parts, good=0, eased=True)


def _unused(old: Restraint, load: Load) -> bool:
    """Return True if the neighbour uses little of what it is allowed."""
    rates = _rates(load)
    return all(rate < _UNUSED * allowed for _, limit in old.limits()
               for rate, allowed in zip(rates, limit, strict=True) if allowed)


def _usable(neighbour: TagKey, victims: Collection[TagKey], scene: Scene) -> list[Means]:
    """Return the means that limit a neighbour and none of its victims, in the order of use.

    The limit of destage applies to all tags of a device. It is of use only if the neighbour has
    the device for itself, and disturbs a tag of another one, by the SSD or the disk below both.
    """
    alone = all(claim.device != neighbour[0] or claim.key == neighbour for claim in scene.claims)
    writeback = any(claim.key == neighbour and claim.cached and claim.writeback
                    for claim in scene.claims)
    apart = alone and writeback and all(victim[0] != neighbour[0] for victim in victims)
    return [means for means in scene.means if means is Means.IO or apart]


def _promised(claim: Claim, load: Load) -> float:
    """Return the bytes per second that a tag needs for its own objective of requests."""
    if not claim.iops or not load.requests:
        return 0.0
    return claim.iops * load.blocks * BLOCK_BYTES / load.requests


def _rates(load: Load) -> Rates:
    """Return what a guest reads and writes."""
    return Rates(max(0.0, load.blocks * BLOCK_BYTES - load.written), load.written)


def _traffic(load: Load) -> Rates:
    """Return what a tag sends to origins and caches; see blame.py."""
    return Rates(load.fetched, load.destaged)
