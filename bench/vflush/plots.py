# SPDX-License-Identifier: Apache-2.0
"""Plot the paper's figures from our points."""

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import matplotlib

matplotlib.use("Agg")
from matplotlib import pyplot  # noqa: E402
from matplotlib.axes import Axes  # noqa: E402

from bench.vflush import figures, settings  # noqa: E402
from bench.vflush.figures import Point  # noqa: E402
from bench.vflush.simulate import Run, random_loads  # noqa: E402

Points = Mapping[str, Mapping[int, Point]]
ALL = (settings.NEVER, *settings.INTERVALS)
_COLOURS = {"baseline": "#7f7f7f", "tagged": "#1f77b4", "tagged_overlapping": "#9ecae1",
            "baseline_overlapping": "#c7c7c7", "fua": "#ff7f0e", "full": "#2ca02c",
            "baseline_write_through": "#7f7f7f"}
_PARTS = {"map": "map pages", "vm2": "data of VM2 (syncs)", "vm1": "data of VM1",
          "host": "data of the host"}


def _names(intervals: Sequence[int]) -> list[str]:
    return [str(every) if every else "never" for every in intervals]


def _lines(axes: Axes, points: Points, systems: Sequence[str], key: str,
           intervals: Sequence[int] = ALL) -> None:
    for system in systems:
        # A system in which no sync completed has no latency.
        values = [points[system][every][key] or (float("nan") if key == "flush_ms" else 0.0)
                  for every in intervals]
        axes.plot(_names(intervals), values,
                  marker="o", label=system.replace("_", ", "), color=_COLOURS[system])
    axes.set_xlabel("VM2's writes between two fsyncs")
    axes.grid(axis="y", alpha=0.3)


def _save(path: Path, title: str, draw: Sequence[Callable[[Axes], None]],
          *, same: bool = False) -> None:
    figure, axes = pyplot.subplots(1, len(draw), figsize=(5.5 * len(draw), 4), squeeze=False,
                                   sharey=same)
    for one, function in zip(axes[0], draw, strict=True):
        function(one)
        if one.get_legend_handles_labels()[0]:
            one.legend(fontsize=8)
    # At the end, since it stops the scaling of all panels that share an axis.
    for one in axes[0]:
        if not one.yaxis_inverted():
            one.set_ylim(bottom=0)
    figure.suptitle(title)
    figure.tight_layout()
    figure.savefig(path, dpi=110)
    pyplot.close(figure)


def _bandwidth(points: Points, system: str, title: str) -> Callable[[Axes], None]:
    def draw(axes: Axes) -> None:
        for key, name, style in (("vm1_mb_s", "VM1 (no fsync)", "-"),
                                 ("vm2_mb_s", "VM2 (fsync)", "--")):
            axes.plot(_names(ALL), [points[system][every][key] for every in ALL], style,
                      marker="o", label=name, color=_COLOURS[system])
        axes.set_title(title, fontsize=10)
        axes.set_ylabel("MB/s")
        axes.set_xlabel("VM2's writes between two fsyncs")
        axes.grid(axis="y", alpha=0.3)
    return draw


def _compositions(points: Points, system: str, page_kib: int) -> Callable[[Axes], None]:
    def draw(axes: Axes) -> None:
        below = [0.0] * len(settings.INTERVALS)
        for part, name in _PARTS.items():
            heights = [points[system][every]["flush_ms"]
                       * figures.composition(points[system][every], page_kib)[part] / 100
                       for every in settings.INTERVALS]
            axes.bar(_names(settings.INTERVALS), heights, bottom=below, label=name)
            below = [a + b for a, b in zip(below, heights, strict=True)]
        axes.set_title(system, fontsize=10)
        axes.set_ylabel("mean FLUSH, ms, split as its bytes")
        axes.set_xlabel("VM2's writes between two fsyncs")
    return draw


def _normalised(points: Points) -> Callable[[Axes], None]:
    def draw(axes: Axes) -> None:
        for key, name in (("flushed_kib", "all data"), ("map_pages", "map pages"),
                          ("entries_all", "buffer entries")):
            ratios = [points["tagged"][every][key] / points["baseline"][every][key]
                      for every in settings.INTERVALS]
            axes.plot(_names(settings.INTERVALS), ratios, marker="o", label=name)
        axes.axhline(1, color="#7f7f7f", linestyle=":")
        axes.set_ylabel("tagged / Baseline, for each flush")
        axes.set_xlabel("VM2's writes between two fsyncs")
        axes.grid(axis="y", alpha=0.3)
    return draw


def _utilisation(runs: Sequence[Run], every: int) -> Callable[[Axes], None]:
    def draw(axes: Axes) -> None:
        for run in runs:
            if run["loads"] == random_loads(every) and run["system"] in ("baseline", "tagged"):
                use = [100 * sum(one) / settings.HARDWARE["buffer_blocks"]
                       for one in run["buffered"]]
                seconds = [i * settings.SAMPLE_MS / 1000 for i in range(len(use))]
                axes.plot(seconds, use, label=run["system"], color=_COLOURS[run["system"]])
        axes.set_title(f"VM2: an fsync every {every} writes", fontsize=10)
        axes.set_ylabel("write buffer in use, %")
        axes.set_xlabel("s")
        axes.set_ylim(0, 105)
    return draw


def _macro(rows: Sequence[Mapping[str, Any]], vms: int) -> Callable[[Axes], None]:
    def draw(axes: Axes) -> None:
        names, values = [], []
        for row in rows:
            if len(row["loads"]) == vms:
                for i, ratio in enumerate(row["ratio"]):
                    others = row["loads"][:i] + row["loads"][i + 1:]
                    names.append(row["loads"][i] + "".join(f" | {other}" for other in others))
                    values.append(ratio)
        axes.barh(range(len(values)), values, color=_COLOURS["tagged"])
        axes.set_yticks(range(len(values)), names, fontsize=8)
        axes.invert_yaxis()
        axes.axvline(1, color="#7f7f7f", linestyle=":")
        axes.set_title(f"{vms} VM{'s' if vms > 1 else ''}", fontsize=10)
        axes.set_xlabel("operations/s of the first, Baseline = 1")
    return draw


def draw_simulation(folder: Path, runs: Sequence[Run], points: Points) -> None:
    """Draw the results of the simulation."""
    page_kib = runs[0]["page_blocks"] * 4
    _save(folder / "figure1.png", "Figure 1: Baseline with and without write buffer",
          [_bandwidth(points, "baseline", "write buffer"),
           _bandwidth(points, "baseline_write_through", "write-through")])
    _save(folder / "figure2.png", "Figure 2: what a FLUSH waits for",
          [_compositions(points, "baseline", page_kib), _compositions(points, "tagged", page_kib)],
          same=True)

    def latency(axes: Axes) -> None:
        _lines(axes, points, ("baseline", "tagged"), "flush_ms", settings.INTERVALS)
        axes.set_ylabel("mean FLUSH, ms")

    _save(folder / "figure6.png", "Figure 6: flushed data and latency",
          [_normalised(points), latency])
    _save(folder / "figure7.png", "Figure 7: use of the write buffer",
          [_utilisation(runs, 8), _utilisation(runs, 1)])
    _save(folder / "figure8.png", "Figure 8: bandwidth",
          [_bandwidth(points, "baseline", "Baseline"), _bandwidth(points, "tagged", "tagged"),
           _bandwidth(points, "tagged_overlapping", "tagged, commands overlap")], same=True)
    _save(folder / "figure9.png", "Figure 9: real loads",
          [_macro(figures.macro(runs), vms) for vms in (1, 2, 3)])


def draw_box(folder: Path, points: Points) -> None:
    """Draw the results of the box."""
    systems = tuple(points)

    def panel(key: str, name: str, intervals: Sequence[int]) -> Callable[[Axes], None]:
        def draw(axes: Axes) -> None:
            _lines(axes, points, systems, key, intervals)
            axes.set_ylabel(name)
        return draw

    _save(folder / "box.png", "Linux, dm-vcache and vcache-ssd in virtual time",
          [panel("vm1_mb_s", "VM1 (no fsync), MB/s", ALL),
           panel("vm2_mb_s", "VM2 (fsync), MB/s", ALL),
           panel("flush_ms", "fdatasync of VM2, mean, ms", settings.INTERVALS)])
