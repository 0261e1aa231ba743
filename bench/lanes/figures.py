# SPDX-License-Identifier: Apache-2.0
"""Figures computed from the measurements. Pure functions."""

import itertools
import statistics
from typing import Any

from bench.lanes import settings

_MIB = 1 << 20

DEFINITIONS = {
    "hot": "blocks of what tag 1 has in shared lanes that were read twice or more since they came "
           "there, of all that it has there; hot_mean over the phase, hot_end at its end",
    "under_s": "seconds from the beginning of the load until the ratio is under the watermark "
               "for good; null: never. Between two phases fio ends and begins: a second or so "
               "that belongs to neither",
    "hot_own": "blocks of tag 1 that were read twice or more since they came where they are, "
               "hot; of these, those in its own lane",
    "hits_own": "of what tag 1 has read from the cache, what came from its own lane: by what the "
                "SSD of that lane has read, while nothing was copied; null: always something was",
    "migrated_mb": "copied between own and shared lanes",
    "cost": "p50 and p99 of waits while blocks change places, against the same phase of the load "
            "shift where none do",
}


def ratio(sample: dict[str, float], name: str = "owner") -> float:
    """Return the hot part of a tag's data in shared lanes."""
    return sample[f"{name}_hot"] / max(sample[f"{name}_shared"], 1)


def under_since(over: list[dict[str, float]], watermark: float) -> float | None:
    """Return the time since which the ratio of tag 1 has been below a watermark.

    :param watermark: percent
    :returns: seconds; None: it is not
    """
    since = None
    for sample in over:
        if ratio(sample) * 100 > watermark:
            since = None
        elif since is None:
            since = sample["at"]
    return since


def own_part(over: list[dict[str, float]]) -> float | None:
    """Return the part of tag 1's hits that its dedicated lane served.

    Copies are read from there too, so reads during a migration are not counted.

    :returns: None: there is no such time, or there were no reads
    """
    hits = read = 0.0
    for before, after in itertools.pairwise(over):
        if after["owner_migrated"] == before["owner_migrated"]:
            hits += after["owner_hits"] - before["owner_hits"]
            read += after["own_lane_read"] - before["own_lane_read"]
    return min(read / hits, 1) if hits else None


def add(run: dict[str, Any]) -> None:
    """Add to a run and its phases the figures derived from the samples."""
    over = run["over"]
    run["under_s"] = under_since(over, settings.WATERMARK)
    for phase in run["phases"]:
        part = over[phase["from"]:phase["to"] + 1]
        first, last = part[0], part[-1]

        def more(name: str, first: dict[str, float] = first,
                 last: dict[str, float] = last) -> float:
            return last[name] - first[name]

        hits, copied = more("owner_hits"), more("owner_migrated")
        phase |= {
            "hot_mean": statistics.mean(map(ratio, part)), "hot_end": ratio(last),
            "hot_max": max(map(ratio, part)), "migrated_mb": copied / _MIB,
            "hit": hits / more("owner_read"),
            "neighbour_hit": more("neighbour_hits") / more("neighbour_read"),
            "hits_own": own_part(part),
            "seconds": more("at"), "written_mb": (more("own_lane_written") +
                                                  more("shared_lane_written")) / _MIB}


def _waits(phase: dict[str, Any]) -> dict[str, float]:
    return {f"{who}_{name}": phase[part][f"{name}_us"]
            for who, part in (("owner", "owner"), ("neighbour", "neighbour"),
                              ("owner", "owner_fsync"), ("neighbour", "neighbour_fsync"))
            for name in (("fsync_p50", "fsync_p99") if part.endswith("fsync") else
                         ("read_p50", "read_p99"))}


def summary(runs: list[dict[str, Any]]) -> dict[str, Any]:
    """Return the main figures."""
    found: dict[str, Any] = {"watermark": settings.WATERMARK}
    for run in runs:
        last = run["phases"][-1]
        found.setdefault(run["load"], {})[
            "migrating" if run["watermark"] == settings.WATERMARK else "not"] = {
                "under_s": run["under_s"], "hot_end": last["hot_end"],
                "hot_max": max(phase["hot_max"] for phase in run["phases"]),
                "hits_own": last["hits_own"], "hit": last["hit"],
                "reads_per_s": last["owner"]["per_s"],
                "neighbour_reads_per_s": last["neighbour"]["per_s"],
                "migrated_mb": (run["over"][-1]["owner_migrated"] -
                                run["over"][0]["owner_migrated"]) / _MIB}
    shift = {run["watermark"]: run for run in runs if run["load"] == "shift"}
    if shift:
        found["cost"] = {
            name: _waits(next(phase for phase in shift[watermark]["phases"]
                              if phase["name"] == "while"))
            for name, watermark in (("migrating", settings.WATERMARK), ("not", settings.NEVER))}
    return found
