# SPDX-License-Identifier: Apache-2.0
"""Reserve the guarantees of domains that start: space of a pool, and dedicated lanes.

A domain is admitted before the planner knows it. So its guarantee is reserved from its admission
until the planner has it, and of two domains that start at once, only as many are admitted as fit.

The limit is that of Placement (nova_vcache/placement/capacity.py): nine tenths of a pool can be
guaranteed, and a disk that uses only dedicated lanes counts with the size of its lanes. So
Placement, the scheduler's filter and the agent do not disagree.
"""

import dataclasses
import threading
from collections import defaultdict
from collections.abc import Callable, Collection, Mapping, Sequence

from nova_vcache.extra_specs import Isolation
from vcache_agent.decide import placing
from vcache_agent.observe.claim import Claim, PoolSize

_MIB = 1 << 20
Claims = Sequence[Claim]


@dataclasses.dataclass(frozen=True)
class Present:
    """What is promised already.

    :param claims: the claims of the tags that the planner knows, by UUID of the domain; empty
        UUID: of no single domain
    :param alive: UUIDs of the domains that run or are about to
    :param pools: the pools by number, without those whose size is unknown
    """

    claims: Mapping[str, Claims]
    alive: Collection[str]
    pools: Mapping[str, PoolSize]


def shortage(wanted: Claims, promised: Claims, pools: Mapping[str, PoolSize]) -> list[str]:
    """Return what the claims of a domain request and the pools do not have; a pure function.

    :param wanted: the claims of the domain
    :param promised: the claims of all others
    """
    of_pool: dict[str, list[Claim]] = defaultdict(list)
    for claim in wanted:
        if claim.cached and (claim.least or claim.isolation is Isolation.DEDICATED):
            of_pool[claim.pool].append(claim)
    notes = []
    for number, claims in of_pool.items():
        if number not in pools:
            notes.append(f"the size of pool {number} is unknown, so nothing can be guaranteed")
        else:
            others = [claim for claim in promised if claim.pool == number and claim.cached]
            notes += _short(claims, others, pools[number])
    return notes


def _short(claims: Claims, others: Claims, pool: PoolSize) -> list[str]:
    """Return what one pool does not have."""
    strict = placing.dedicated([*others, *claims], pool)
    own = {claim.key: placing.alone(claim, pool, strict.get(claim.key, 0))
           for claim in (*others, *claims)}
    lacking = [claim for claim in claims
               if claim.isolation is Isolation.DEDICATED and not own[claim.key]]
    if lacking:
        return [f"pool {pool.number} has too few free lanes for {len(lacking)} of its disks with "
                "vcache:isolation=dedicated"]
    # The same number as Placement's inventory has.
    most = pool.size * 9 // 10 // _MIB
    taken = sum(own[claim.key] or claim.least for claim in others) // _MIB
    needed = sum(own[claim.key] or claim.least for claim in claims) // _MIB
    if needed > most - taken:
        return [f"pool {pool.number} can guarantee {max(0, most - taken)} MiB more, but it needs "
                f"{needed} MiB"]
    return []


@dataclasses.dataclass
class _Held:
    """The reservation of one domain.

    :param settled: the inventory has the domain, so the reservation ends when that drops it
    """

    claims: Claims
    settled: bool = False


class Reservations:
    """The reservations of the domains that the planner does not know yet. Thread-safe.

    :param present: returns what is promised already; called with the lock held, must not block
    """

    def __init__(self, present: Callable[[], Present]) -> None:
        self._present = present
        self._lock = threading.Lock()
        self._held: dict[str, _Held] = {}

    def reserve(self, domain: str, wanted: Claims) -> list[str]:
        """Reserve what a domain requests, or return why it does not fit.

        Nothing is reserved then. An earlier reservation of the domain is replaced.

        :param domain: its UUID
        """
        with self._lock:
            present = self._present()
            self._held = {uuid: held for uuid, held in self._held.items()
                          if uuid != domain and uuid not in present.claims
                          and (not held.settled or uuid in present.alive)}
            promised = [claim for uuid, claims in present.claims.items()
                        if uuid != domain and (not uuid or uuid in present.alive)
                        for claim in claims]
            promised += [claim for held in self._held.values() for claim in held.claims]
            notes = shortage(wanted, promised, present.pools)
            if not notes:
                self._held[domain] = _Held(wanted)
            return notes

    def settle(self, domain: str) -> None:
        """Record that the inventory has a domain now."""
        with self._lock:
            if domain in self._held:
                self._held[domain].settled = True

    def release(self, domain: str) -> None:
        """Drop the reservation of a domain that does not start."""
        with self._lock:
            self._held.pop(domain, None)
