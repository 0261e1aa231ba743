# SPDX-License-Identifier: Apache-2.0
"""Figures computed from the runs. Pure functions."""

from collections.abc import Callable, Iterable, Sequence

from bench.peers.result import Result, slowest_fsync

US = "vcache"
# What the SSD holds, by number of tenants; and what it does not hold.
FITS = ("sync", "mixed", "sequential", "neighbour")
OUTRUN = "outrun"

DEFINITIONS = {
    "fsync_p99_vs_best_peer": "the most of sync, mixed and sequential with one, two and four "
                              "tenants: p99 of fsync of the tenant for which it is highest, over "
                              "that of the best peer",
    "longest_fsync_ms": "the longest fsync of any tenant, of all loads that the SSD holds",
    "longest_fsync_outrun_ms": "outrun: the longest fsync of either tenant",
    "sequential_vs_best_peer": "the least of sequential with one, two and four tenants: writes per "
                               "second of all, over those of the peer that has most",
    "neighbour_loss_pct": "neighbour: loss of tenant 1, which never syncs, by one and by three "
                          "others that do",
}


def writes(run: Result) -> float:
    """Return writes per second of all tenants."""
    return sum(one.writes for one in run.tenants)


def p99(run: Result) -> float:
    """Return the p99 of fsync of the tenant for which it is highest, in microseconds."""
    return slowest_fsync(run).get("p99", 0)


def longest(runs: Iterable[Result]) -> float:
    """Return the longest fsync in milliseconds."""
    return max(one.fsync_us.get("max", 0) for run in runs for one in run.tenants) / 1000


def loss(runs: Sequence[Result], stack: str) -> dict[int, float]:
    """Return the loss of a tenant that never syncs by others that do, in percent.

    :returns: by the number of tenants
    """
    alone, *others = [run for run in runs if run.stack == stack and run.load == "neighbour"]
    return {len(run.tenants): 100 * (1 - run.tenants[0].writes / alone.tenants[0].writes)
            for run in others}


def _ratios(runs: Sequence[Result], load: str, figure: Callable[[Result], float],
            best: Callable[[Iterable[float]], float]) -> list[float]:
    """Return our figure over that of the best peer, for each number of tenants.

    A peer that is so slow that it came to no fsync does not count.
    """
    return [figure(ours) / best(filter(None, (figure(run) for run in runs
                                              if run.stack != US and run.load == load
                                              and len(run.tenants) == len(ours.tenants))))
            for ours in runs if ours.stack == US and ours.load == load]


def summary(runs: Sequence[Result]) -> dict[str, object]:
    """Return the figures that have an aim.

    :param runs: our runs, and those of at least one peer
    """
    ours = [run for run in runs if run.stack == US]
    return {
        "fsync_p99_vs_best_peer": max(ratio for load in ("sync", "mixed", "sequential")
                                      for ratio in _ratios(runs, load, p99, min)),
        "longest_fsync_ms": longest(run for run in ours if run.load != OUTRUN),
        "longest_fsync_outrun_ms": longest(run for run in ours if run.load == OUTRUN),
        "sequential_vs_best_peer": min(_ratios(runs, "sequential", writes, max)),
        "neighbour_loss_pct": loss(runs, US),
    }
