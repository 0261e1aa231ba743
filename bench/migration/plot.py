# SPDX-License-Identifier: Apache-2.0
"""Plot the latency of flushes over time."""

from pathlib import Path
from typing import Any

import matplotlib as mpl

mpl.use("Agg")
from matplotlib import pyplot as plt


def draw(runs: list[dict[str, Any]], path: Path) -> None:
    """Draw all runs to a PNG file."""
    figure, axes = plt.subplots(len(runs), 1, figsize=(9, 2.6 * len(runs)), sharex=True,
                                sharey=True, layout="constrained", squeeze=False)
    for run, (axis,) in zip(runs, axes, strict=True):
        axis.axvspan(*run["migration_s"], color="0.9", label="migration")
        for name, style in (("p50_ms", "."), ("p99_ms", "x"), ("max_ms", "_")):
            axis.plot([sample["at_s"] for sample in run["samples"]],
                      [sample[name] for sample in run["samples"]], style,
                      label=name.removesuffix("_ms"))
        axis.axhline(10, color="0.6", linewidth=0.8)
        axis.set_yscale("log")
        axis.set_ylabel(f"{run['mode']}\nfdatasync, ms")
    axes[-1][0].set_xlabel("seconds")
    figure.legend(*axes[0][0].get_legend_handles_labels(), loc="outside upper center", ncols=4)
    figure.savefig(path, dpi=110)
    plt.close(figure)
