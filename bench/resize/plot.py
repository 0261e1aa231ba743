# SPDX-License-Identifier: Apache-2.0
"""Plot the seconds per reclaimed GiB, and the sizes of tags after a change of weights."""

from pathlib import Path
from typing import Any

import matplotlib as mpl

mpl.use("Agg")
from matplotlib import pyplot as plt

from bench.resize import settings


def _label(one: dict[str, Any]) -> str:
    ssd = "SSD of 0 us" if not one["ssd_us"] else "neighbour" if one["neighbour"] else "idle"
    return f"{one['state']},\n{ssd}"


def draw(shown: dict[str, Any], path: Path) -> None:
    """Draw everything to a PNG file."""
    figure, (left, right) = plt.subplots(1, 2, figsize=(12, 4), layout="constrained")
    bars = left.bar([_label(one) for one in shown["deflations"]],
                    [one["s_per_gib"] for one in shown["deflations"]])
    left.bar_label(bars, fmt="%.2f")
    left.set_yscale("log")
    left.margins(y=0.1)  # space for the figure above the highest bar
    left.tick_params(axis="x", labelsize="x-small")
    left.set_title("a tag gets smaller: seconds a GiB that goes")
    over = shown["shares"]["over"]
    for number, weight in enumerate(settings.WEIGHTS):
        right.plot([at for at, _ in over], [100 * errors[number] for _, errors in over],
                   label=f"weight {weight}")
    right.axhspan(-100 * settings.NEAR, 100 * settings.NEAR, alpha=0.15)
    right.set_title("from equal shares to shares by weight")
    right.set_xlabel("seconds since the weights were changed")
    right.set_ylabel("% over or under its share")
    right.legend()
    figure.savefig(path, dpi=100)
    plt.close(figure)
