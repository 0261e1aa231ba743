# SPDX-License-Identifier: Apache-2.0
"""Plot throughput and fsync latency of each tenant, by stack."""

from __future__ import annotations

from typing import TYPE_CHECKING

import matplotlib as mpl

mpl.use("Agg")
from matplotlib import pyplot as plt

from bench.cache import figures

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from bench.peers.result import Result

_PANELS = (("reads", "all read"), ("mixed", "tenant 1 writes and syncs"),
           ("neighbours", "tenant 1: 1,000 reads a second"))


def draw(runs: Sequence[Result], path: Path) -> None:
    """Draw the runs with the most tenants to a PNG file."""
    of = max(run.of for run in runs)
    stacks = list(dict.fromkeys(run.stack for run in runs))
    figure, axes = plt.subplots(1, len(_PANELS), figsize=(12, 4), layout="constrained")
    for panel, (load, title) in zip(axes, _PANELS, strict=True):
        for place, stack in enumerate(stacks):
            run = figures.find(runs, stack, load, of)
            at = [number + (place - (len(stacks) - 1) / 2) * 0.2 for number in range(of)]
            panel.bar(at, [figures.operations(one) for one in run.tenants], 0.18, label=stack)
        panel.set_title(title)
        panel.set_yscale("log")
        panel.set_xticks(range(of), [str(number + 1) for number in range(of)])
        panel.set_xlabel("tenant")
    axes[0].set_ylabel("reads and writes a second")
    figure.legend(*axes[0].get_legend_handles_labels(), loc="outside upper center", ncols=4)
    figure.savefig(path, dpi=110)
    plt.close(figure)
