# SPDX-License-Identifier: Apache-2.0
"""Why an objective is missed: the first cause that applies, in a fixed order.

1. ``no-load``: too few requests to have the objective's rate.
2. ``own-burst``: it has much more load than usual, or writes so fast that its buffer is full.
3. ``own-share``: with the usual times of its devices, a larger part of the cache would be enough.
4. ``neighbour``: another tag on the same origin or cache sends much more to them than usual.
5. ``host``: the host's own I/O does so.
6. ``device``: none of these; its origin or its cache is slow.

So a tenant's own load is excluded before a neighbour is blamed, and what the agent can see before
what it cannot.
"""

import dataclasses
import enum
from collections.abc import Collection, Mapping

from vcache_agent import tags as numbers
from vcache_agent.decide import slo
from vcache_agent.decide.history import BUSY, Known, Load
from vcache_agent.decide.tenant import Tenant
from vcache_agent.observe.claim import Claim
from vcache_agent.observe.sample import TagKey

#: A load of this many times the usual one is a burst.
_BURST = 2.0
#: Part of the added traffic that one tag must have caused.
_PART = 0.5
#: Mean number of writes that wait for buffer space, from which the buffer counts as full.
_FULL = 0.5
#: Traffic in bytes per second below which a tag disturbs nobody.
_LEAST = 1 << 20


class Cause(enum.StrEnum):
    """The causes, in their order."""

    NO_LOAD = "no-load"
    OWN_BURST = "own-burst"
    OWN_SHARE = "own-share"
    NEIGHBOUR = "neighbour"
    HOST = "host"
    DEVICE = "device"


@dataclasses.dataclass(frozen=True)
class Verdict:
    """Why an objective is missed.

    :param objective: ``read``, ``flush`` or ``iops``
    :param measured: in the objective's unit, seconds or requests per second
    :param promised: the objective
    :param tag: the neighbour; None for other causes
    """

    objective: str
    cause: Cause
    measured: float
    promised: float
    tag: TagKey | None = None

    @property
    def text(self) -> str:
        """The verdict as a sentence for operators."""
        what = f"{self.measured:.0f} of {self.promised:g} requests a second" \
            if self.objective == "iops" else (
                f"the p99 of its {_NOUNS[self.objective]} is {1e3 * self.measured:.3g} ms, the "
                f"objective {1e3 * self.promised:.3g} ms")
        if self.cause is Cause.NEIGHBOUR and self.tag is not None:
            return f"{what}: {_TEXTS[self.cause]} {self.tag[1]} on device {self.tag[0]}"
        return f"{what}: {_TEXTS[self.cause]}"


_NOUNS = {"read": "reads", "flush": "flushes"}
_TEXTS: Mapping[Cause, str] = {
    Cause.NO_LOAD: "it does not ask for more",
    Cause.OWN_BURST: "it has much more load than usual",
    Cause.OWN_SHARE: "its part of the cache is too small",
    Cause.NEIGHBOUR: "much more traffic than usual comes from tag",
    Cause.HOST: "much more traffic than usual comes from the host itself",
    Cause.DEVICE: "its origin or its cache is slow",
}


@dataclasses.dataclass(frozen=True)
class Evidence:
    """What is known when an objective is missed.

    :param claim: the claim of the tag
    :param known: what is known about it
    :param tenant: the tag as policies see it, with the usual times of its device
    :param size: bytes of its pool
    :param others: the other tags with the same origin or the same pool
    :param spent: those of them that are limited as far as possible: if they are blamed, so that
        nothing follows, another one may have escaped
    """

    claim: Claim
    known: Known
    tenant: Tenant
    size: int
    others: Mapping[TagKey, Known]
    spent: Collection[TagKey] = frozenset()


def verdicts(evidence: Evidence) -> tuple[Verdict, ...]:
    """Return a verdict for each missed objective of a tag."""
    claim, load = evidence.claim, evidence.known.load
    found = []
    if claim.read_s and load.read_p99 is not None and load.read_p99 > claim.read_s:
        found.append(_verdict("read", load.read_p99, claim.read_s, evidence))
    if claim.flush_s and load.flush_p99 is not None and load.flush_p99 > claim.flush_s:
        found.append(_verdict("flush", load.flush_p99, claim.flush_s, evidence))
    if claim.iops and load.requests < claim.iops:
        found.append(_verdict("iops", load.requests, claim.iops, evidence))
    return tuple(found)


def _verdict(objective: str, measured: float, promised: float, evidence: Evidence) -> Verdict:
    cause, tag = _cause(objective, evidence)
    return Verdict(objective, cause, measured, promised, tag)


def _cause(objective: str, evidence: Evidence) -> tuple[Cause, TagKey | None]:
    load, usual = evidence.known.load, evidence.known.usual
    if objective == "iops" and load.depth < BUSY:
        return Cause.NO_LOAD, None
    if objective != "iops" and usual is not None and _bursts(load, usual):
        return Cause.OWN_BURST, None
    if objective != "flush" and _would_help(objective, evidence):
        return Cause.OWN_SHARE, None
    guilty = _guilty({key: known for key, known in evidence.others.items()
                      if key not in evidence.spent}) or _guilty(evidence.others)
    if guilty is None:
        return Cause.DEVICE, None
    return (Cause.HOST, None) if guilty[1] == numbers.HOST_TAG else (Cause.NEIGHBOUR, guilty)


def _bursts(load: Load, usual: Load) -> bool:
    """Return True if a tag has much more load than usual."""
    if load.written > _BURST * usual.written and (
            load.waited >= _FULL or load.written > _LEAST):
        return True
    return load.blocks > _BURST * usual.blocks > 0 and load.depth > _BURST * usual.depth


def _would_help(objective: str, evidence: Evidence) -> bool:
    """Return True if a larger cache would meet the objective with the usual times."""
    claim, tenant = evidence.claim, evidence.tenant
    if tenant.rates is None or not evidence.size or not claim.cached:
        return False
    level = slo.Level(claim.read_s or None) if objective == "read" else slo.Level(iops=claim.iops)
    # The calibration and the bias follow what is measured, so they contain the present trouble.
    state = slo.State(calibration=1.0)
    if slo.meets(tenant, level, state, evidence.known.cached):
        return False  # it has enough
    return slo.floor(tenant, level, state, evidence.size).feasible


def _guilty(others: Mapping[TagKey, Known]) -> TagKey | None:
    """Return the tag that caused most of the added traffic, or None."""
    added = {key: max(0.0, _traffic(known.load) - _traffic(known.usual)) for key, known in
             others.items() if _traffic(known.load) > max(
                 _LEAST, _BURST * _traffic(known.usual))}
    if not added:
        return None
    worst = max(added, key=lambda key: added[key])
    total = sum(max(0.0, _traffic(known.load) - _traffic(known.usual))
                for known in others.values())
    return worst if added[worst] >= _PART * total else None


def _traffic(load: Load | None) -> float:
    """Return the bytes per second that a tag sends to origins and caches."""
    return load.fetched + load.destaged if load is not None else 0.0


def neighbours(claim: Claim, tags: Mapping[TagKey, Known],
               pool: Collection[TagKey]) -> dict[TagKey, Known]:
    """Return the other tags on the same device or in the same pool.

    :param pool: the tags in the pool
    """
    return {key: known for key, known in tags.items()
            if key != claim.key and (key[0] == claim.device or key in pool)}
