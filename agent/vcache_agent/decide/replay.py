# SPDX-License-Identifier: Apache-2.0
"""Replay a recording: which shares a policy would have given, period by period."""

import dataclasses
from collections.abc import Iterable, Iterator

from vcache_agent.decide import natural
from vcache_agent.decide.decision import Config, Decision, decide
from vcache_agent.decide.division import Settings
from vcache_agent.decide.history import History, Known
from vcache_agent.decide.learn import tenant
from vcache_agent.observe.sample import Sample


@dataclasses.dataclass(frozen=True)
class Step:
    """One control period.

    :param sample: the survey at its end
    :param policy: name of the policy
    :param decision: the decision
    :param missed: blocks per second that the tags would miss, by the curves of the last periods:
        each has its lower bound, or its part of one LRU list if that is more and its pool has no
        quotas
    """

    sample: Sample
    policy: str
    decision: Decision
    missed: float


def replay(samples: Iterable[Sample], policy: str,
           settings: Settings | None = None) -> Iterator[Step]:
    """Yield the decision of a policy after each survey of a recording.

    The curves do not depend on the shares that were in force. Latencies do, so under objectives
    a replay is an estimate.

    :param policy: name of the policy
    """
    history = History()
    held: dict[object, int] = {}
    for sample in samples:
        if not sample.curves:
            continue
        # The lanes of the replay, and not those that were recorded.
        claims = tuple(claim if claim.fixed else dataclasses.replace(
            claim, lanes=held.get(claim.key, 0)) for claim in sample.claims)
        decision = decide(sample, history, Config(
            policy, claims, {pool.number: pool for pool in sample.pools}, settings or Settings()))
        history = decision.history
        held = {key: share.lanes for key, share in decision.shares.items()}
        yield Step(sample, policy, decision, _missed(sample, policy, decision))


def _missed(sample: Sample, policy: str, decision: Decision) -> float:
    history = decision.history
    total = 0.0
    for pool in sample.pools:
        claims = [claim for claim in sample.claims if claim.pool == pool.number and claim.cached]
        tenants = [tenant(claim, history.tags.get(claim.key, Known()),
                          history.times.get(claim.device)) for claim in claims]
        listed = natural.sizes(tenants, pool.size) if policy == "weighted" \
            or pool.number in history.united else [0] * len(claims)
        for claim, one, size in zip(claims, tenants, listed, strict=True):
            if one.rates is not None and not one.idle:
                total += sum(one.rates.at(max(size, decision.shares[claim.key].limits.least)))
    return total
