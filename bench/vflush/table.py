# SPDX-License-Identifier: Apache-2.0
"""Print the figures beside the published ones."""

from collections.abc import Mapping
from typing import Any

from bench.vflush import settings

_NAMES = {
    "flush_latency_reduction_pct": "flush latency, reduction %",
    "flushed_data_reduction_pct": "data flushed, reduction %",
    "map_pages_reduction_pct": "map pages, reduction %",
    "neighbour_loss_pct_max": "VM1's worst loss %",
}


def met(name: str, value: float, aim: float) -> bool:
    """Return whether a value of the summary meets its aim."""
    return value <= aim if name == "neighbour_loss_pct_max" else value >= aim


def _summary(result: Mapping[str, Any]) -> list[str]:
    lines = [f"{'':34}{'ours':>8}{'paper':>8}{'aim':>8}"]
    for system, values in result["summary"].items():
        for name, value in values.items():
            aim = settings.AIMS[system][name]
            lines.append(f"{system + ': ' + _NAMES[name]:34}{value:8.1f}"
                         f"{settings.PUBLISHED[name]:8.1f}{aim:8.1f}  "
                         f"{'met' if met(name, value, aim) else 'NOT MET'}")
    return lines


def _systems(title: str, systems: Mapping[str, Any]) -> list[str]:
    lines = ["", title,
             f"{'':24}{'every':>6}{'VM1 MB/s':>10}{'VM2 MB/s':>10}{'flush ms':>10}"
             f"{'KiB/flush':>10}{'map pages':>10}"]
    for name, found in systems.items():
        for every, one in found["points"].items():
            lines.append(f"{name:24}{every or 'never':>6}{one['vm1_mb_s']:10.2f}"
                         f"{one['vm2_mb_s']:10.2f}{one['flush_ms']:10.2f}{one['flushed_kib']:10.0f}"
                         f"{one['map_pages']:10.1f}")
    return lines


def _macro(rows: list[dict[str, Any]]) -> list[str]:
    lines = ["", "simulation, real loads: operations/s with tags, Baseline = 1"]
    for row in rows:
        pairs = [f"{load} {ratio:.2f}"
                 for load, ratio in zip(row["loads"], row["ratio"], strict=True)]
        lines.append("  " + " + ".join(pairs))
    return lines


def _attribution(found: Mapping[str, Any]) -> list[str]:
    each = ", ".join(f"{every}: {value:.0f}" for every, value in found["by_interval_pct"].items())
    return ["", f"tags against namespaces, mean flush: -{found['mean_pct']:.1f} % "
                f"(aim -{found['aim_pct']:.0f}); by interval: {each}"]


def text(result: Mapping[str, Any]) -> str:
    """Return the whole table."""
    return "\n".join([
        *_systems("simulation", result["simulation"]["systems"]),
        *_attribution(result["simulation"]["tags_against_namespaces"]),
        *_macro(result["simulation"]["macro"]),
        *_systems("box (per fdatasync of VM2)", result["box"]["systems"]),
        "", *_summary(result)])
