# SPDX-License-Identifier: Apache-2.0
"""Plot the exact and the sampled curve of each trace."""

from pathlib import Path
from typing import Any

import matplotlib as mpl

mpl.use("Agg")
from matplotlib import pyplot as plt

_COLUMNS = 5


def draw(found: dict[str, Any], path: Path) -> None:
    """Draw everything to a PNG file."""
    rows = -(-len(found) // _COLUMNS)
    figure, axes = plt.subplots(rows, _COLUMNS, figsize=(3 * _COLUMNS, 2.4 * rows),
                                layout="constrained", squeeze=False, sharey=True)
    for panel in axes.flat[len(found):]:
        panel.set_axis_off()
    for panel, (name, one) in zip(axes.flat, found.items(), strict=False):
        blocks = [size / 256 for size in one["points"]]
        panel.plot(blocks, one["exact"], "-", label="exact", color="#1b6ca8", linewidth=3)
        panel.plot(blocks, one["sampled"], "--", label="8,192 samples", color="#b2560d")
        panel.set_title(name, fontsize="small")
        panel.set_ylim(0, 1.02)
    for panel in axes[:, 0]:
        panel.set_ylabel("miss ratio")
    for panel in axes[-1]:
        panel.set_xlabel("cache, MiB")
    axes[0][0].legend(fontsize="x-small")
    figure.savefig(path, dpi=110)
    plt.close(figure)
