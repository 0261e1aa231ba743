# SPDX-License-Identifier: Apache-2.0
"""Plot the misses above the optimum, and online against one shared LRU."""

from pathlib import Path
from typing import Any

import matplotlib as mpl

mpl.use("Agg")
from matplotlib import pyplot as plt

_MARKS = {"mrc": ("o", "#1b6ca8"), "hull": ("+", "#0b3d63"), "shared": ("x", "#b2560d"),
          "equal": ("_", "#888888")}


def draw(divisions: list[dict[str, Any]], runs: list[dict[str, Any]], path: Path) -> None:
    """Draw everything to a PNG file."""
    figure, (left, right) = plt.subplots(1, 2, figsize=(13, 5), layout="constrained")
    for name, (marker, color) in _MARKS.items():
        left.scatter(range(len(divisions)), [row["excess_pct"][name] for row in divisions],
                     marker=marker, color=color, label=name)
    left.set_xticks(range(len(divisions)), [f"{row['mix']} 1/{1 / row['part']:.0f}"
                                            for row in divisions], rotation=90, fontsize="small")
    left.set_yscale("symlog", linthresh=0.1)
    left.set_ylabel("misses above the optimum, %")
    left.legend(fontsize="small")
    for kind, color in (("steady", "#1b6ca8"), ("phased", "#b2560d")):
        mine = [row for row in runs if row["kind"] == kind]
        right.scatter(range(len(mine)), [row["mrc_vs_shared_pct"] for row in mine], color=color,
                      label=kind)
        right.set_xticks(range(len(mine)), [f"{row['mix']} 1/{1 / row['part']:.0f}"
                                            for row in mine], rotation=90, fontsize="small")
    right.axhline(0, color="#888888", linewidth=0.8)
    right.set_ylabel("misses of mrc against one shared LRU, %")
    right.legend(fontsize="small")
    figure.savefig(path, dpi=110)
    plt.close(figure)


def draw_ratios(run: list[dict[str, Any]], path: Path) -> None:
    """Draw the throughput of the tenants for their weights over time, as SymFlex's figure 8."""
    figure, axes = plt.subplots(figsize=(9, 4), layout="constrained")
    for tenant in range(len(run[0]["weights"])):
        axes.plot([row["per_second"][tenant] for row in run], label=f"tenant {tenant + 1}")
    for number, row in enumerate(run):
        if row["period"] == 0:
            axes.axvline(number, color="#888888", linewidth=0.8)
            axes.text(number, axes.get_ylim()[1], " " + ":".join(
                str(weight // 100) for weight in row["weights"]), va="top", fontsize="small")
    axes.set_yscale("log")
    axes.set_xlabel("control period")
    axes.set_ylabel("reads a second")
    axes.legend(fontsize="small")
    figure.savefig(path, dpi=110)
    plt.close(figure)
