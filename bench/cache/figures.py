# SPDX-License-Identifier: Apache-2.0
"""Figures computed from the runs. Pure functions."""

from collections.abc import Sequence

from bench.peers import result
from bench.peers.result import Result, Tenant

US = "vcache"
#: The same with shares by the policy mrc.
WITH_MRC = "vcache-mrc"
STACKS = (US, WITH_MRC, *(stack for stack in result.STACKS if stack != US))
# The load and the number of tenants of the summary.
_LOAD, _TENANTS = "mixed", 4

DEFINITIONS = {
    "total_vs_best_peer": "mixed, four tenants: reads and writes a second of all, over those of "
                          "the peer that has most",
    "worst_tenant_vs_best_peer": "reads, mixed, two and four tenants: the least that a tenant has "
                                 "of what it has under the peer that is best for it",
    "neighbour_loss_pct": "four tenants: what tenant 1, whose working set fits into its part, "
                          "loses when the others read and sync more than fits",
    "missed": "requests that the slow disk gets for reading, by reads of the tenants",
}


def operations(tenant: Tenant) -> float:
    """Return reads and writes per second."""
    return tenant.reads + tenant.writes


def total(run: Result) -> float:
    """Return reads and writes per second of all tenants."""
    return sum(operations(one) for one in run.tenants)


def missed(run: Result) -> float:
    """Return the number of read requests to the slow disk per read of a tenant."""
    return run.disk_reads / max(1.0, sum(one.reads for one in run.tenants) * run.seconds)


def find(runs: Sequence[Result], stack: str, load: str, tenants: int) -> Result:
    """Return one run."""
    return next(run for run in runs
                if (run.stack, run.load, run.of) == (stack, load, tenants))


def loss(runs: Sequence[Result], stack: str, tenants: int) -> float:
    """Return the loss of tenant 1 with neighbours, in percent; negative: a gain."""
    alone = find(runs, stack, "alone", tenants)
    among = find(runs, stack, "neighbours", tenants)
    return 100 * (1 - among.tenants[0].reads / alone.tenants[0].reads)


def summary(runs: Sequence[Result], us: str = US) -> dict[str, object]:
    """Return the figures that have an aim, and those of the peers.

    :param runs: our runs, and those of at least one peer
    :param us: one of ours
    """
    stacks = list(dict.fromkeys(run.stack for run in runs))
    peers = [stack for stack in stacks if stack not in (US, WITH_MRC)]
    ours = total(find(runs, us, _LOAD, _TENANTS))
    totals = {peer: total(find(runs, peer, _LOAD, _TENANTS)) for peer in peers}
    worst = min(
        operations(mine) / max(operations(find(runs, peer, run.load, run.of).tenants[i])
                               for peer in peers)
        for run in runs if run.stack == us and run.load in ("reads", "mixed")
        for i, mine in enumerate(run.tenants))
    found = {
        "total_vs_best_peer": ours / max(totals.values()),
        "worst_tenant_vs_best_peer": worst,
        "neighbour_loss_pct": loss(runs, us, _TENANTS),
        "best_peer": max(totals, key=lambda peer: totals[peer]),
        "neighbour_loss_pct_of_peers": {peer: loss(runs, peer, _TENANTS) for peer in peers},
    }
    if us == US and WITH_MRC in stacks:
        found["with_mrc"] = {name: value for name, value in summary(runs, WITH_MRC).items()
                             if "peers" not in name}
    return found
