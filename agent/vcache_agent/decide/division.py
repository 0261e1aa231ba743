# SPDX-License-Identifier: Apache-2.0
"""Divide one pool: the policy, the guarantees, and the floors of objectives.

In each policy, guarantees come first, then the least sizes that objectives need. If the sum of
both exceeds the pool, what objectives need is reduced in proportion.

``static`` and ``weighted`` see weights and ranges only. ``throughput`` and ``mrc`` see what was
measured, too, and compute a quota for each tag: a lower bound, since the kernel takes chunks only
of tags above theirs.
"""

import dataclasses
from collections.abc import Callable, Mapping, Sequence

from vcache_agent import policies
from vcache_agent.decide import mrc, natural, slo, steady, throughput
from vcache_agent.decide.history import History, Known
from vcache_agent.decide.learn import tenant
from vcache_agent.decide.restraint import Means
from vcache_agent.decide.tenant import MIB, Tenant
from vcache_agent.observe.claim import Claim
from vcache_agent.policies import Demand, Range


@dataclasses.dataclass(frozen=True)
class Settings:
    """Settings of the policies.

    :param cost: of `mrc`; its `common` part is also what `throughput` leaves without a quota
    :param steps: hysteresis and bounded steps
    :param unite: part of the cost that quotas must save over one LRU list; below it, a pool
        becomes one list
    :param divide: part from which the pool has quotas again, more than `unite`
    :param means: what may limit neighbours, see restrain.py, in the order of their use
    """

    cost: mrc.Settings = dataclasses.field(default_factory=mrc.Settings)
    steps: steady.Settings = dataclasses.field(default_factory=steady.Settings)
    unite: float = 0.08
    divide: float = 0.10
    means: tuple[Means, ...] = ()


@dataclasses.dataclass(frozen=True)
class Situation:
    """A pool in a decision.

    :param policy: name of the policy
    :param claims: the claims of its tags, without those that use only dedicated lanes
    :param size: bytes; 0: unknown
    :param hosts: weights of the host tags
    :param united: it is one LRU list now
    :param period: a control period has passed; otherwise quotas stay
    """

    policy: str
    claims: tuple[Claim, ...]
    size: int
    hosts: tuple[int, ...]
    history: History
    united: bool
    period: bool

    def known(self, claim: Claim) -> Known:
        """Return what is known about a tag."""
        return self.history.tags.get(claim.key, Known())


@dataclasses.dataclass(frozen=True)
class Division:
    """The result; all lists have the order of the claims.

    :param ranges: the range of each tag
    :param quotas: the quota of each tag in bytes, for the next decision
    :param reasons: why
    :param feasible: False: no size is predicted to meet the tag's objective
    :param united: the pool is one LRU list
    """

    ranges: Sequence[Range]
    quotas: Sequence[int]
    reasons: Sequence[tuple[str, ...]]
    feasible: Sequence[bool]
    united: bool = False


def divide(now: Situation, settings: Settings) -> Division:
    """Divide a pool."""
    count = len(now.claims)
    asked = [Range(claim.least, claim.most) for claim in now.claims]
    policy = policies.POLICIES[now.policy]
    if not count or (policy.sized and not now.size):
        return Division(asked, [one.least for one in asked],
                        [("the size of the pool is unknown: as the flavor requests",)] * count,
                        [True] * count)
    tenants = [tenant(claim, now.known(claim), now.history.times.get(claim.device))
               for claim in now.claims]
    floors = [_floor(one, claim, now) for one, claim in zip(tenants, now.claims, strict=True)]
    found = _FUNCTIONS[now.policy](now, tenants, _fitting(now, floors), settings)
    reasons = [(*reason, *_floor_reason(claim, floor)) for reason, claim, floor in
               zip(found.reasons, now.claims, floors, strict=True)]
    return dataclasses.replace(found, reasons=reasons,
                               feasible=[floor.feasible for floor in floors])


def _floor(one: Tenant, claim: Claim, now: Situation) -> slo.Floor:
    """Return the least size of a tag: its guarantee, or what its objective needs."""
    if not now.size or not claim.cached or not (claim.read_s or claim.iops):
        return slo.Floor(claim.least)
    level = slo.Level(claim.read_s or None, claim.iops or None)
    return slo.floor(one, level, now.known(claim).slo, now.size)


def _fitting(now: Situation, floors: Sequence[slo.Floor]) -> list[int]:
    """Return the least sizes, which do not exceed the pool as long as the guarantees do not."""
    least = [claim.least if claim.cached else 0 for claim in now.claims]
    more = [max(0, floor.size - low) for floor, low in zip(floors, least, strict=True)]
    left = max(0, int(now.size * _QUOTAS) - sum(least))
    if sum(more) > left:
        more = [extra * left // sum(more) // MIB * MIB for extra in more]
    return [low + extra for low, extra in zip(least, more, strict=True)]


def _floor_reason(claim: Claim, floor: slo.Floor) -> tuple[str, ...]:
    if not floor.feasible:
        return ("no size of its cache is predicted to meet its objective",)
    if floor.size > claim.least:
        return (f"its objective needs {floor.size} bytes",)
    return ()


#: Part of the limit that quotas must gain by the curves of the last period alone.
_RECENT = 0.25
#: Part of a pool that quotas may claim; the kernel keeps the rest as a common reserve.
_QUOTAS = 0.9


def _weighted(now: Situation, _tenants: Sequence[Tenant], least: Sequence[int],
              _settings: Settings) -> Division:
    ranges = [_within(Range(claim.least, claim.most), low)
              for claim, low in zip(now.claims, least, strict=True)]
    return _plain(ranges, "weighted: by weight between the flavor's minimum and maximum")


def _static(now: Situation, _tenants: Sequence[Tenant], least: Sequence[int],
            _settings: Settings) -> Division:
    using = [(at, Demand(claim.weight, _within(Range(claim.least, claim.most), low)))
             for at, (claim, low) in enumerate(zip(now.claims, least, strict=True)) if claim.cached]
    # The host tags take part in the division, but get no limits.
    parts = policies.static([demand for _, demand in using]
                            + [Demand(weight) for weight in now.hosts], now.size)
    ranges = [Range(claim.least, claim.most) for claim in now.claims]
    for (at, _), part in zip(using, parts, strict=False):
        ranges[at] = part
    return _plain(ranges, "static: a fixed part by weight")


def _plain(ranges: list[Range], reason: str) -> Division:
    return Division(ranges, [one.least for one in ranges], [(reason,)] * len(ranges),
                    [True] * len(ranges))


def _mrc(now: Situation, tenants: Sequence[Tenant], least: Sequence[int],
         settings: Settings) -> Division:
    using = _Using(now, tenants, least)
    if not now.period:
        return using.result(using.kept(), now.united, "the quota of the last period")
    wanted = mrc.divide(using.tenants, now.size, settings.cost)
    united = _unites(using, wanted, now, settings)
    if united:
        return using.result(list(using.least), True, (
            "mrc: quotas would save less than "
            f"{100 * settings.unite:g} % of the time at the origins over one LRU list, so the "
            "pool is one list above the guarantees"))
    quotas = steady.move(using.tenants, wanted, using.least, now.size, settings.steps)
    return using.result(quotas, False, "mrc: the least weighted time at the origins")


def _unites(using: "_Using", wanted: Sequence[int], now: Situation, settings: Settings) -> bool:
    """Return True if a pool is better one LRU list.

    Quotas follow load with a delay. Where they gain little, one list is better as soon as tags
    come and go, because it follows at once. So they must gain by the curves of all periods, and,
    since these may be outdated, something by those of the last period alone.
    """
    limit = settings.divide if now.united else settings.unite
    gains = _gains(using.tenants, wanted, now.size, limit)
    if gains is None:
        return now.united  # no load, or nothing is known yet
    if not gains:
        return True
    # Only what costs depend on.
    recent = [Tenant(one.weight, rates=now.known(claim).recent, times=one.times,
                     writeback=one.writeback, idle=one.idle)
              for one, claim in zip(using.tenants, using.claims, strict=True)]
    return _gains(recent, wanted, now.size, _RECENT * limit) is False


def _gains(tenants: Sequence[Tenant], wanted: Sequence[int], size: int,
           limit: float) -> bool | None:
    """Return True if quotas save more than a part of the cost of one LRU list; None: no load."""
    free = natural.sizes(tenants, size)
    before = sum(one.cost(size) for one, size in zip(tenants, free, strict=True))
    after = sum(one.cost(size) for one, size in zip(tenants, wanted, strict=True))
    return before - after > limit * before if before else None


def _throughput(now: Situation, tenants: Sequence[Tenant], least: Sequence[int],
                settings: Settings) -> Division:
    using = _Using(now, tenants, least)
    if not now.period:
        return using.result(using.kept(), False, "the quota of the last period", capped=True)
    corrections = [now.known(claim).correction for claim in using.claims]
    found = throughput.divide(using.tenants, int(now.size * (1 - settings.cost.common)),
                              corrections)
    stays = throughput.in_proportion(using.tenants, found, corrections) \
        and not steady.must_move(using.tenants, using.least, now.size)
    quotas = using.kept() if stays else steady.limited(
        using.tenants, found.quotas, using.least, now.size, settings.steps)
    bound = {using.claims[at].key for at in found.bound}
    result = using.result(quotas, False, (
        f"throughput: {found.factor:.3g} blocks a second for each unit of weight"), capped=True)
    return dataclasses.replace(result, reasons=[
        (*reason, "its origin or its own load limits it: more cache would not help")
        if claim.key in bound else reason
        for claim, reason in zip(now.claims, result.reasons, strict=True)])


_FUNCTIONS: Mapping[str, Callable[
    [Situation, Sequence[Tenant], Sequence[int], Settings], Division]] = {
    "static": _static, "weighted": _weighted, "throughput": _throughput, "mrc": _mrc}


class _Using:
    """The tags of a pool whose mode uses the cache, with their least sizes as guarantees.

    :param least: the least sizes of all tags
    """

    def __init__(self, now: Situation, tenants: Sequence[Tenant], least: Sequence[int]) -> None:
        self._now = now
        at = [number for number, claim in enumerate(now.claims) if claim.cached]
        self.claims = [now.claims[number] for number in at]
        self.least = [least[number] for number in at]
        self.tenants = [_at_least(tenants[number], least[number]) for number in at]

    def kept(self) -> list[int]:
        """Return the last quotas, within the ranges and the pool, for the tags that there are."""
        size = self._now.size
        quotas = []
        for one, low in zip(self.tenants, self.least, strict=True):
            quotas.append(min(max(one.quota, low), one.bounds(size)[1]))
        return steady.fitted(quotas, self.least, int(size * _QUOTAS))

    def result(self, quotas: Sequence[int], united: bool, reason: str, *,
               capped: bool = False) -> Division:
        """Return the division of the pool.

        :param capped: a tag with load gets no more than its quota
        """
        ranges = [Range(claim.least, claim.most) for claim in self._now.claims]
        all_quotas = [claim.least for claim in self._now.claims]
        reasons: list[tuple[str, ...]] = [("its mode does not use the cache",)] * len(ranges)
        given = {claim.key: (quota, one) for claim, quota, one in
                 zip(self.claims, quotas, self.tenants, strict=True)}
        for at, claim in enumerate(self._now.claims):
            if claim.key not in given:
                continue
            quota, one = given[claim.key]
            most = claim.most
            if capped and one.rates is not None and not one.idle:
                most = min(max(quota, MIB), claim.most or self._now.size)
            ranges[at] = Range(min(quota, most) if most else quota, most)
            all_quotas[at] = quota
            reasons[at] = (reason if one.rates is not None else
                           f"{reason}; its curve is not known yet",
                           *(("it was idle, so it lends its share",) if one.idle else ()))
        return Division(ranges, all_quotas, reasons, [True] * len(ranges), united)


def _at_least(one: Tenant, least: int) -> Tenant:
    """Return a tag with another guarantee."""
    if one.least == least:
        return one
    return dataclasses.replace(one, least=least, most=max(one.most, least) if one.most else 0)


def _within(asked: Range, least: int) -> Range:
    """Return a range whose lower bound is at least `least`, as far as its maximum allows."""
    low = max(asked.least, least)
    return Range(min(low, asked.most) if asked.most else low, asked.most)
