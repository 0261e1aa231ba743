# SPDX-License-Identifier: Apache-2.0
"""The decision function: how the pools of a host are divided, from samples and claims.

:func:`decide` is pure: the agent, ``vcache replay`` and the tests call it with the same inputs
and have the same result. A new survey is one control period. Between two surveys, quotas stay,
but claims of tags that come, go or change take effect at once.
"""

import dataclasses
from collections import defaultdict
from collections.abc import Mapping, Sequence

from vcache_agent import lanes as lanes_of_pool
from vcache_agent import policies
from vcache_agent.decide import blame, division, placing, restrain
from vcache_agent.decide.blame import Verdict
from vcache_agent.decide.history import History, Known
from vcache_agent.decide.learn import learn, tenant
from vcache_agent.observe.claim import Claim, PoolSize
from vcache_agent.observe.sample import Sample, TagKey
from vcache_agent.policies import Range


@dataclasses.dataclass(frozen=True)
class Config:
    """What was configured, and what there is.

    :param policy: name of the policy, see policies.py
    :param claims: the claims of all tags
    :param pools: the pools by number; without an entry: nothing is known about one
    :param settings: settings of the policies
    """

    policy: str
    claims: tuple[Claim, ...]
    pools: Mapping[str, PoolSize] = dataclasses.field(default_factory=dict)
    settings: division.Settings = dataclasses.field(default_factory=division.Settings)


@dataclasses.dataclass(frozen=True)
class Share:
    """What a tag gets.

    :param limits: its range in the pool
    :param lanes: bit mask of its dedicated lanes
    :param alone: it uses only its dedicated lanes
    :param reasons: why, one sentence each
    :param feasible: False: no size of its cache is predicted to meet its objective
    """

    limits: Range
    lanes: int = 0
    alone: bool = False
    reasons: tuple[str, ...] = ()
    feasible: bool = True


@dataclasses.dataclass(frozen=True)
class Decision:
    """The decision.

    :param shares: what each tag gets
    :param history: for the next decision
    :param missed: why objectives are missed, of the tags that miss one; judged when a period
        ends
    """

    shares: Mapping[TagKey, Share]
    history: History
    missed: Mapping[TagKey, tuple[Verdict, ...]] = dataclasses.field(default_factory=dict)


def decide(sample: Sample | None, history: History, config: Config) -> Decision:
    """Divide the pools.

    :param sample: the newest survey; None: there is none yet. If the history has it already,
        no period has passed.
    """
    period = sample is not None and sample.curves != () and (
        history.sample is None or sample.monotonic != history.sample.monotonic)
    if sample is not None and period:
        history = learn(history, sample, config.claims, config.pools)
    of_pool: dict[str, list[Claim]] = defaultdict(list)
    for claim in config.claims:
        of_pool[claim.pool].append(claim)
    shares: dict[TagKey, Share] = {}
    tags: dict[TagKey, Known] = dict(history.tags)
    united = set(history.united)
    for number, claims in of_pool.items():
        pool = config.pools.get(number, PoolSize(number))
        found = _pool(claims, pool, history, config, period=period)
        shares |= found.shares
        tags |= found.tags
        united = united - {number} | ({number} if found.united else set())
    missed, restraints = history.missed, history.restraints
    if period:
        missed = _missed(history, config, of_pool)
        restraints = restrain.step(restraints, restrain.Scene(
            missed, tags, config.claims, config.settings.means))
    return Decision(shares, dataclasses.replace(
        history, tags=tags, united=frozenset(united), missed=missed, restraints=restraints),
        missed)


def _missed(history: History, config: Config,
            of_pool: Mapping[str, Sequence[Claim]]) -> dict[TagKey, tuple[Verdict, ...]]:
    """Return the verdicts about the period that has just ended."""
    found = {}
    for number, claims in of_pool.items():
        members = frozenset(claim.key for claim in claims)
        size = config.pools[number].size if number in config.pools else 0
        for claim in claims:
            known = history.tags.get(claim.key)
            if not claim.objective or known is None:
                continue
            verdicts = blame.verdicts(blame.Evidence(
                claim, known, tenant(claim, known, history.usual.get(claim.device)), size,
                blame.neighbours(claim, history.tags, members), history.restraints.spent))
            if verdicts:
                found[claim.key] = verdicts
    return found


@dataclasses.dataclass(frozen=True)
class _Pool:
    """The result for one pool."""

    shares: Mapping[TagKey, Share]
    tags: Mapping[TagKey, Known]
    united: bool


def _pool(claims: Sequence[Claim], pool: PoolSize, history: History, config: Config, *,
          period: bool) -> _Pool:
    strict = placing.dedicated(claims, pool)
    alone = {claim.key: size for claim in claims
             if (size := placing.alone(claim, pool, strict.get(claim.key, 0)))}
    # A tag that uses only dedicated lanes gets no part of the rest.
    others = [claim for claim in claims if claim.key not in alone]
    found = division.divide(division.Situation(
        config.policy, tuple(others), max(0, pool.size - sum(alone.values())), pool.hosts,
        history, pool.number in history.united, period), config.settings)
    tags = {}
    for claim, quota in zip(others, found.quotas, strict=True):
        known = history.tags.get(claim.key, Known())
        tags[claim.key] = known if known.quota == quota else \
            dataclasses.replace(known, quota=quota)
    placed = placing.automatic(others, pool, strict, tags, period=period,
                               measured=policies.POLICIES[config.policy].measured)
    shares = {}
    for claim, limits, reasons, feasible in zip(
            others, found.ranges, found.reasons, found.feasible, strict=True):
        shares[claim.key] = Share(
            limits, placed.lanes[claim.key], False,
            (*reasons, *placed.reasons.get(claim.key, ())), feasible)
    for claim in claims:
        if claim.key in alone:
            size = alone[claim.key]
            shares[claim.key] = Share(
                Range(min(claim.least, size), min(claim.most or size, size)),
                strict[claim.key], True,
                (f"it uses only its {strict[claim.key].bit_count()} dedicated lanes, of "
                 f"{lanes_of_pool.capacity(pool.lanes, strict[claim.key])} bytes",))
    return _Pool(shares, {**tags, **placed.tags}, found.united)
