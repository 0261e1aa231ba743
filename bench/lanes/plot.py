# SPDX-License-Identifier: Apache-2.0
"""Plot the hot part of the shared lane and the source of tag 1's hits over time."""

import math
from pathlib import Path
from typing import Any

import matplotlib as mpl

mpl.use("Agg")
from matplotlib import pyplot as plt

from bench.lanes import figures, settings

_NAMES = {settings.WATERMARK: f"watermark {settings.WATERMARK} %", settings.NEVER: "no migration"}


def _served(over: list[dict[str, float]], span: int = 5) -> tuple[list[float], list[float]]:
    """Return the times and the part of tag 1's hits from its dedicated lane, over some samples."""
    parts = [figures.own_part(over[at - span:at + 1]) for at in range(span, len(over))]
    return ([sample["at"] for sample in over[span:]],
            [math.nan if part is None else 100 * part for part in parts])


def draw(runs: list[dict[str, Any]], path: Path) -> None:
    """Draw everything to a PNG file."""
    loads = list(dict.fromkeys(run["load"] for run in runs))
    figure, axes = plt.subplots(3, len(loads), figsize=(4 * len(loads), 9), sharex="col",
                                squeeze=False, layout="constrained")
    for column, load in enumerate(loads):
        hot, served, moved = axes[:, column]
        hot.set_title(load)
        hot.axhline(settings.WATERMARK, color="black", linewidth=0.8, linestyle="--")
        for run in (run for run in runs if run["load"] == load):
            over, name = run["over"], _NAMES[run["watermark"]]
            at = [sample["at"] for sample in over]
            line, = hot.plot(at, [100 * figures.ratio(sample) for sample in over],
                             label=f"tag with a lane, {name}")
            hot.plot(at, [100 * figures.ratio(sample, "neighbour") for sample in over],
                     color=line.get_color(), linewidth=0.8, linestyle=":",
                     label=f"tag without, {name}")
            served.plot(*_served(over), color=line.get_color(), label=name)
            moved.plot(at, [sample["owner_migrated"] / (1 << 20) for sample in over],
                       color=line.get_color(), label=name)
            for phase in run["phases"][1:]:
                for axis in (hot, served, moved):
                    axis.axvline(over[phase["from"]]["at"], color="grey", linewidth=0.5)
        hot.set_ylim(-3, 103)
        served.set_ylim(-3, 103)
        moved.set_xlabel("seconds")
    axes[0][0].set_ylabel("hot, % of what a tag has\nin the shared lane")
    axes[1][0].set_ylabel("% of the hits that come\nfrom the tag's own lane")
    axes[2][0].set_ylabel("migrated, MiB")
    axes[0][0].legend(fontsize="x-small")
    figure.savefig(path, dpi=100)
    plt.close(figure)
