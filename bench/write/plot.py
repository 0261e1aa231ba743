# SPDX-License-Identifier: Apache-2.0
"""Plot throughput and fsync latency, by stack and number of tenants."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import matplotlib as mpl

mpl.use("Agg")
from matplotlib import pyplot as plt

if TYPE_CHECKING:
    from bench.peers.result import Result

_PANELS = (("sync", "4 KiB writes, each with fsync"), ("mixed", "7 reads to 3 writes"),
           ("sequential", "256 KiB in a row"))


def draw(runs: list[Result], path: Path) -> None:
    """Draw all runs to a PNG file."""
    figure, axes = plt.subplots(2, len(_PANELS), figsize=(12, 6.5), layout="constrained")
    stacks = list(dict.fromkeys(run.stack for run in runs))
    for column, (load, title) in enumerate(_PANELS):
        for position, stack in enumerate(stacks):
            mine = [run for run in runs if run.stack == stack and run.load == load]
            at = [index + (position - len(stacks) / 2) * 0.2 for index in range(len(mine))]
            axes[0][column].bar(at, [sum(one.writes for one in run.tenants) for run in mine],
                                0.18, label=stack)
            axes[1][column].bar(at, [max(one.fsync_us.get("p99", 0) for one in run.tenants)
                                     for run in mine], 0.18)
        axes[0][column].set_title(title)
        axes[1][column].set_yscale("symlog")
        for row in axes:
            row[column].set_xticks(range(3), ["1", "2", "4"])
        axes[1][column].set_xlabel("tenants")
    axes[0][0].set_ylabel("writes a second, all tenants")
    axes[1][0].set_ylabel("p99 of fsync, slowest tenant, us")
    figure.legend(*axes[0][0].get_legend_handles_labels(), loc="outside upper center", ncols=4)
    figure.savefig(path, dpi=110)
    plt.close(figure)
