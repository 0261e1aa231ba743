# SPDX-License-Identifier: Apache-2.0
"""Convert the counters of the box to points like those of the simulation.

The latency is that of VM2's fdatasync, measured by its load. With FUA, no FLUSH is sent,
so no other latency can be compared. Data is per fdatasync too, from the drive's log
pages, over the whole run including ramp and tail.
"""

from collections.abc import Iterable, Mapping
from typing import Any

from bench.vflush import settings
from bench.vflush.figures import BLOCK, Point

PAGE_BLOCKS = 4


def point(run: Mapping[str, Any]) -> Point:
    """Return one run of one system."""
    vm1, vm2 = run["vms"]
    drive, syncs = run["drive"], vm2["syncs"]
    # The counters include the ramp and the tail, with the same rate of syncs.
    total_ms = settings.BOX["ramp_ms"] + settings.BOX["time_ms"] + settings.BOX["tail_ms"]
    all_syncs = syncs["count"] * total_ms / settings.BOX["time_ms"]
    # With FUA, each block is written at once, and flushes write no data.
    entries = drive["host"] if run["system"] == "fua" else drive["flushed"]
    map_pages = (drive["map"] + drive["log"]) / PAGE_BLOCKS

    def per_sync(value: float) -> float:
        return value / all_syncs if all_syncs else 0.0

    return {
        "vm1_mb_s": vm1["writes"]["count"] * BLOCK / 1e6 / (vm1["ns"] / 1e9),
        "vm2_mb_s": vm2["writes"]["count"] * BLOCK / 1e6 / (vm2["ns"] / 1e9),
        "flush_ms": syncs["ns"] / syncs["count"] / 1e6 if syncs["count"] else 0.0,
        "flush_max_ms": syncs["max_ns"] / 1e6,
        "drive_flush_ms": (drive["flush_ns"] / drive["flushes"] / 1e6 if drive["flushes"]
                           else 0.0),
        "entries_all": per_sync(entries),
        "map_pages": per_sync(map_pages),
        "flushed_kib": per_sync(entries * 4 + map_pages * PAGE_BLOCKS * 4),
    }


def points(runs: Iterable[Mapping[str, Any]]) -> dict[str, dict[int, Point]]:
    """Return the points by system and interval."""
    found: dict[str, dict[int, Point]] = {}
    for run in runs:
        found.setdefault(run["system"], {})[run["every"]] = point(run)
    return found
