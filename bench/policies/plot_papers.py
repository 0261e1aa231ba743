# SPDX-License-Identifier: Apache-2.0
"""Plots like the papers' figures: SymFlex, figure 9; OC-Cache, figures 3 and 4; objectives."""

from pathlib import Path
from typing import Any

import matplotlib as mpl

mpl.use("Agg")
from matplotlib import pyplot as plt

_COLORS = {"cold": "#888888", "list": "#b2560d", "swapped": "#1b6ca8", "kept": "#0b3d63",
           "shared": "#b2560d", "dedicated": "#888888", "algorithm1": "#0b3d63",
           "ours": "#1b6ca8"}


def draw_persistence(found: dict[str, Any], path: Path) -> None:
    """Draw the hit ratio over time after each restart."""
    rows = found["restarts"]
    figure, axes = plt.subplots(1, len(rows), figsize=(4.5 * len(rows), 3.6), sharey=True,
                                squeeze=False, layout="constrained")
    for ax, row in zip(axes[0], rows, strict=True):
        for scheme in ("cold", "list", "swapped", "kept"):
            ax.plot([10 * at for at in range(len(row[scheme]["series"]))], row[scheme]["series"],
                    color=_COLORS[scheme], label=scheme)
        ax.set_title(f"restart after {row['after']:.0f} s", fontsize="small")
        ax.set_xlabel("seconds after the restart")
    axes[0][0].set_ylabel("hit ratio")
    axes[0][0].legend(fontsize="small")
    figure.savefig(path, dpi=110)
    plt.close(figure)


def draw_occache(found: dict[str, Any], path: Path) -> None:
    """Draw the throughput of all tenants over time, and the three figures, for each scheme."""
    schemes = ("shared", "dedicated", "algorithm1", "ours")
    figure, axes = plt.subplots(len(found), len(schemes) + 1, figsize=(20, 4 * len(found)),
                                squeeze=False, layout="constrained")
    for row, (name, one) in zip(axes, found.items(), strict=True):
        for ax, scheme in zip(row, schemes, strict=False):
            for tenant, series in enumerate(one["runs"][0]["schemes"][scheme]["series"]):
                ax.plot([5 * at for at in range(len(series))], series, linewidth=0.8,
                        label=f"tenant {tenant}")
            ax.set_yscale("symlog", linthresh=100)
            ax.set_title(f"{name}: {scheme}", fontsize="small")
            ax.set_xlabel("seconds")
        row[0].set_ylabel("requests a second")
        row[0].legend(fontsize="x-small")
        for at, scheme in enumerate(schemes):
            total = one["schemes"][scheme]
            best = {key: max(each[key] for each in one["schemes"].values())
                    for key in ("space", "bandwidth")}
            values = [total["isolation"], total["space"] / best["space"],
                      total["bandwidth"] / best["bandwidth"]]
            row[-1].bar([place + 0.2 * at for place in range(3)], values, 0.2,
                        color=_COLORS[scheme], label=scheme)
        row[-1].set_xticks([0.3, 1.3, 2.3], ["isolation", "space", "bandwidth"])
        row[-1].set_title("space and bandwidth: relative to the best", fontsize="small")
        row[-1].legend(fontsize="x-small")
    figure.savefig(path, dpi=110)
    plt.close(figure)


def draw_slo(found: dict[str, Any], path: Path) -> None:
    """Draw the victim's p99 over the periods, for each scenario and scheme, with its objective."""
    colors = {"none": "#888888", "shares": "#b2560d", "means": "#1b6ca8"}
    figure, axes = plt.subplots(1, len(found), figsize=(4.2 * len(found), 3.6), squeeze=False,
                                layout="constrained")
    for ax, (name, one) in zip(axes[0], found.items(), strict=True):
        for scheme, color in colors.items():
            ax.plot(one["schemes"][scheme]["runs"][0]["p99_ms"], color=color, label=scheme,
                    linewidth=1.0)
        ax.axhline(1e3 * one["objective"][1], color="black", linestyle="--", linewidth=0.8)
        ax.set_yscale("log")
        ax.set_title(name, fontsize="small")
        ax.set_xlabel("control period")
    axes[0][0].set_ylabel("p99 of reads or flushes, ms")
    axes[0][0].legend(fontsize="small")
    figure.savefig(path, dpi=110)
    plt.close(figure)
