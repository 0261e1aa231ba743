# SPDX-License-Identifier: Apache-2.0
"""Plot the miss ratios of each trace and size."""

from pathlib import Path
from typing import Any

import matplotlib as mpl

mpl.use("Agg")
from matplotlib import pyplot as plt

_MARKS = {"lru": ("LRU", "_", "#888888"), "s3fifo": ("S3-FIFO", "x", "#b2560d"),
          "vcache_as_reads": ("vcache, all as reads", "o", "#1b6ca8"),
          "vcache": ("vcache", "+", "#0b3d63")}


def draw(found: list[dict[str, Any]], path: Path) -> None:
    """Draw everything to a PNG file."""
    figure, axes = plt.subplots(figsize=(11, 4.5), layout="constrained")
    places = range(len(found))
    for key, (label, marker, color) in _MARKS.items():
        axes.scatter(places, [one[key] for one in found], label=label, marker=marker, color=color)
    axes.set_xticks(list(places), [f"{one['trace']} {one['fraction']:.0%}" for one in found],
                    rotation=60, ha="right", fontsize="small")
    axes.set_ylabel("miss ratio")
    axes.set_ylim(0, 1.02)
    axes.grid(axis="x", alpha=0.3)
    axes.legend(fontsize="small", loc="lower left")
    figure.savefig(path, dpi=110)
    plt.close(figure)
