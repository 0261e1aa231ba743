# SPDX-License-Identifier: Apache-2.0
"""Plot requests per second by the number of requests in flight, and recovery times."""

from pathlib import Path
from typing import Any

import matplotlib as mpl

mpl.use("Agg")
from matplotlib import pyplot as plt

from bench.scale import settings


def draw(shown: dict[str, Any], path: Path) -> None:
    """Draw everything to a PNG file."""
    figure, axes = plt.subplots(1, 3, figsize=(13, 4), layout="constrained")
    for panel, load in zip(axes, settings.LOADS, strict=False):
        for stack in settings.STACKS:
            for kind, style in (("depth", "-o"), ("jobs", "--s")):
                mine = [one for one in shown["widths"]
                        if (one["stack"], one["load"], one["kind"]) == (stack, load, kind)]
                panel.plot([one["width"] for one in mine], [one["per_s"] for one in mine], style,
                           label=f"{stack}, {kind}")
        panel.set_xscale("log", base=2)
        panel.set_xticks(settings.WIDTHS, [str(width) for width in settings.WIDTHS])
        panel.set_ylim(bottom=0)
        panel.set_title(f"4 KiB {load}")
        panel.set_xlabel("requests under way")
        panel.legend(fontsize="small")
    axes[0].set_ylabel("requests a second")
    for size in settings.RECOVERED_MB:
        mine = [one for one in shown["recovery"] if one["cache_mb"] == size]
        axes[2].plot([one["dirty_mb"] for one in mine],
                     [one["pool_ms"] + one["volume_ms"] for one in mine], "-o",
                     label=f"cache of {size} MiB")
    axes[2].set_title("back after a crash")
    axes[2].set_xlabel("dirty MiB")
    axes[2].set_ylabel("ms")
    axes[2].set_ylim(bottom=0)
    axes[2].legend(fontsize="small")
    figure.savefig(path, dpi=110)
    plt.close(figure)
