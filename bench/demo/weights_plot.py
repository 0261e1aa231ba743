# SPDX-License-Identifier: Apache-2.0
"""The plot's part on weights: what each VM has of the cache, and finds in it, over time."""

from typing import Any

from matplotlib.axes import Axes

# Distinguishable without colour vision and in grey, as in plot.py.
_COLOURS = {"small": "#b2560d", "large": "#1b6ca8"}


def _mark(axes: Axes, part: dict[str, Any]) -> None:
    """Mark when the maximum was asked for."""
    axes.axvline(part["moments"]["asked"], color="#404040", linewidth=1, linestyle="--")
    axes.annotate(f"maximum of {part['most_mib']:g} MiB\nfor the one with weight "
                  f"{part['weights']['large']}", (part["moments"]["asked"], 1),
                  xycoords=("data", "axes fraction"), xytext=(4, -2),
                  textcoords="offset points", va="top", fontsize=8)


def _finish(axes: Axes, part: dict[str, Any]) -> None:
    axes.set_xlabel("seconds since both began to read and write")
    axes.set_xlim(0, part["series"]["small"]["t"][-1])
    axes.legend(loc="upper center", bbox_to_anchor=(0.5, -0.16), ncols=5, frameon=False)
    axes.yaxis.grid(True, color="#d0d0d0", linewidth=0.6)
    axes.spines[["top", "right"]].set_visible(False)
    _mark(axes, part)


def draw(sizes: Axes, hits: Axes, part: dict[str, Any]) -> None:
    """Draw sizes and hit ratios.

    :param part: what weights_report.build() returns
    """
    host = part["series"]["host"]
    for role in part["weights"]:
        lines = part["series"][role]
        name = f"weight {part['weights'][role]}"
        sizes.plot(lines["t"], lines["cached_mib"], color=_COLOURS[role], label=name)
        sizes.plot(lines["t"], lines["share_mib"], color=_COLOURS[role], linewidth=0.8,
                   linestyle=":", label="its share")
        # At the first sample nothing was read yet.
        known = [(t, 100 * ratio) for t, ratio in zip(lines["t"], lines["hit_ratio"], strict=True)
                 if ratio is not None]
        hits.plot(*zip(*known, strict=True), color=_COLOURS[role], label=name)
    sizes.plot(host["t"], host["cached_mib"], color="#808080", linewidth=0.8, label="the host")
    sizes.set_title("Two VMs with weights 1:3 share a cache: what each has of it", fontsize=11)
    sizes.set_ylabel("MiB in the cache")
    # Room for the note at the top.
    sizes.set_ylim(0, 1.15 * part["size_mib"])
    hits.set_title("How much of what it reads is in the cache, last 5 s", fontsize=11)
    hits.set_ylabel("% of the bytes read")
    hits.set_ylim(0, 115)
    hits.set_yticks(range(0, 101, 20))
    for axes in (sizes, hits):
        _finish(axes, part)
