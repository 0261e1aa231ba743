# SPDX-License-Identifier: Apache-2.0
"""Plot transactions per second and their p99, by load and stack."""

from __future__ import annotations

from statistics import median
from typing import TYPE_CHECKING

import matplotlib as mpl

mpl.use("Agg")
from matplotlib import pyplot as plt

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from bench.database.figures import Run


def draw(runs: Sequence[Run], path: Path) -> None:
    """Draw the medians of all runs to a PNG file: a column for each size of the SSD."""
    sizes = sorted({run.ssd_mib for run in runs})
    stacks = list(dict.fromkeys(run.stack for run in runs))
    loads = list(dict.fromkeys(run.load for run in runs))
    figure, axes = plt.subplots(2, len(sizes), figsize=(1 + 4 * len(sizes), 6.5), squeeze=False,
                                layout="constrained")
    for column, size in enumerate(sizes):
        for position, stack in enumerate(stacks):
            mine = [[run for run in runs
                     if (run.ssd_mib, run.stack, run.load) == (size, stack, load)]
                    for load in loads]
            at = [index + (position - (len(stacks) - 1) / 2) * 0.2 for index in range(len(loads))]
            axes[0][column].bar(at, [median(run.per_s for run in same) for same in mine], 0.18,
                                label=stack)
            axes[1][column].bar(at, [median(run.transaction_us["p99"] for run in same) / 1000
                                     for same in mine], 0.18)
        axes[0][column].set_title(f"{size} MiB of SSD for each tenant")
        axes[1][column].set_yscale("log")
        for row in axes:
            row[column].set_xticks(range(len(loads)), loads)
    axes[0][0].set_ylabel("transactions per second, tenant 1")
    axes[1][0].set_ylabel("p99 of a transaction, ms")
    figure.legend(*axes[0][0].get_legend_handles_labels(), loc="outside upper center",
                  ncols=len(stacks))
    figure.savefig(path, dpi=110)
    plt.close(figure)
