# SPDX-License-Identifier: Apache-2.0
"""Compute all of the paper's figures from the counters.

Both parts, simulation and box, provide points of the same form: one system in which VM1
never syncs and VM2 syncs after every k writes.
"""

import statistics
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from bench.vflush import settings
from bench.vflush.simulate import Run, random_loads

BLOCK = 4096
Point = dict[str, Any]
HOST, VM1, VM2 = 0, 1, 2


def _per(total: float, count: float) -> float:
    return total / count if count else 0.0


def point(run: Run) -> Point:
    """Return one run of the micro-benchmark, per second and per flush.

    Map pages are all pages programmed for the map in that time: map pages, roots and log
    pages, which the tagged firmware writes in place of map pages. They include checkpoints
    that a full log area caused outside of a flush.
    """
    seconds = run["ns"] / 1e9
    flushes = sum(one["count"] for one in run["flushes"])
    page = run["page_blocks"]
    entries = [_per(sum(one["entries"][owner] for one in run["flushes"]), flushes)
               for owner in range(len(run["written"]))]
    programmed = run["programmed"]
    map_pages = _per((programmed["map"] + programmed["log"]) / page, flushes)
    inside = _per(sum(one["map_pages"] + one["log_pages"] for one in run["flushes"]), flushes)
    return {
        "vm1_mb_s": run["written"][VM1] * BLOCK / 1e6 / seconds,
        "vm2_mb_s": run["written"][VM2] * BLOCK / 1e6 / seconds,
        "flushes_per_s": flushes / seconds,
        "flush_ms": _per(sum(one["ns"] for one in run["flushes"]), flushes) / 1e6,
        "flush_max_ms": max(one["max_ns"] for one in run["flushes"]) / 1e6,
        "fsync_ms": _per(run["fsync_ns"][VM2], run["fsyncs"][VM2]) / 1e6,
        "entries": {"host": entries[HOST], "vm1": entries[VM1], "vm2": entries[VM2]},
        "entries_all": sum(entries),
        "map_pages": map_pages,
        "map_pages_in_flushes": inside,
        "flushed_kib": sum(entries) * 4 + map_pages * page * 4,
        "buffered_blocks": _per(sum(sum(one) for one in run["buffered"]), len(run["buffered"])),
    }


def median(found: Sequence[Point]) -> Point:
    """Return the median of each value."""
    return {name: median([one[name] for one in found]) if isinstance(value, dict)
            else statistics.median(one[name] for one in found)
            for name, value in found[0].items()}


def points(runs: Iterable[Run]) -> dict[str, dict[int, Point]]:
    """Return the micro-benchmark's points by system and interval: medians of all seeds."""
    by_loads = {random_loads(every): every for every in (settings.NEVER, *settings.INTERVALS)}
    found: dict[str, dict[int, list[Point]]] = {}
    for run in runs:
        if run["loads"] in by_loads:
            found.setdefault(run["system"], {}).setdefault(
                by_loads[run["loads"]], []).append(point(run))
    return {system: {every: median(seeds) for every, seeds in each.items()}
            for system, each in found.items()}


def composition(found: Point, page_kib: int) -> dict[str, float]:
    """Return the composition of a flush, in per cent of its bytes (figure 2)."""
    parts = {"map": found["map_pages_in_flushes"] * page_kib,
             **{name: count * 4 for name, count in found["entries"].items()}}
    total = sum(parts.values())
    return {name: 100 * _per(part, total) for name, part in parts.items()}


def reduction(new: float, old: float) -> float:
    """Return the reduction from `old` to `new` in per cent."""
    return 100 * (1 - new / old) if old else 0.0


def against(new: Mapping[int, Point], old: Mapping[int, Point]) -> dict[int, dict[str, float]]:
    """Return the reductions at each interval for which a sync of VM2 has completed in both."""
    names = {"flush_latency_reduction_pct": "flush_ms",
             "flushed_data_reduction_pct": "flushed_kib",
             "map_pages_reduction_pct": "map_pages", "entries_reduction_pct": "entries_all"}
    return {every: {name: reduction(new[every][key], old[every][key])
                    for name, key in names.items()}
            for every in new if every != settings.NEVER and every in old
            and new[every]["flush_ms"] and old[every]["flush_ms"]}


def loss(found: Mapping[int, Point], key: str) -> dict[int, float]:
    """Return the loss of a VM by VM2's fsyncs; negative: a gain."""
    alone = found[settings.NEVER][key]
    return {every: reduction(one[key], alone) for every, one in found.items()
            if every != settings.NEVER}


def summary(new: Mapping[int, Point], old: Mapping[int, Point]) -> dict[str, float]:
    """Return the best reductions over the intervals, and the worst loss of VM1."""
    reductions = against(new, old)
    best = {name: max(one[name] for one in reductions.values())
            for name in ("flush_latency_reduction_pct", "flushed_data_reduction_pct",
                         "map_pages_reduction_pct")}
    return {**best, "neighbour_loss_pct_max": max(loss(new, "vm1_mb_s").values())}


def attribution(found: Mapping[str, Mapping[int, Point]]) -> dict[str, Any]:
    """Return what tags add to one namespace for each VM, by the mean of all flushes of a run.

    The mean over the intervals counts each of them once.
    """
    intervals = [every for every in found["tagged"] if every != settings.NEVER]
    old, new = ([found[system][every]["flush_ms"] for every in intervals]
                for system in ("namespaces", "tagged"))
    return {"by_interval_pct": {every: reduction(b, a) for every, a, b in
                                zip(intervals, old, new, strict=True)},
            "mean_pct": reduction(statistics.mean(new), statistics.mean(old)),
            "aim_pct": settings.NAMESPACES_AIM_PCT}


def macro(runs: Sequence[Run]) -> list[dict[str, Any]]:
    """Return figure 9: operations of each VM with tags, relative to Baseline."""
    by = {(run["system"], run["loads"]): run for run in runs}
    rows = []
    for mix in settings.MIXES:
        loads = ",".join(mix)
        old, new = by.get(("baseline", loads)), by.get(("tagged", loads))
        if old is None or new is None:
            continue
        vms = range(1, len(mix) + 1)
        before, after = ([run["operations"][vm] / (run["ns"] / 1e9) for vm in vms]
                         for run in (old, new))
        rows.append({"loads": list(mix), "baseline_per_s": before, "tagged_per_s": after,
                     "ratio": [_per(b, a) for a, b in zip(before, after, strict=True)]})
    return rows
