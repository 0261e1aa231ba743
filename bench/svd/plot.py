# SPDX-License-Identifier: Apache-2.0
"""Plot programmed blocks by cause, erases and throughput, by case."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import matplotlib

matplotlib.use("Agg")
from matplotlib import pyplot  # noqa: E402
from matplotlib.axes import Axes  # noqa: E402

from bench.svd import settings  # noqa: E402

_COLOURS = {"direct": "#7f7f7f", "vcache": "#2ca02c"}
_CAUSES = {"host": "data, records of vcache", "padding": "padding", "gc": "collection",
           "merge": "merges", "log": "SSD's logs", "map": "SSD's map"}
_WIDTH = 0.36


def _bars(axes: Axes, cases: Sequence[Mapping[str, Any]], key: str, title: str) -> None:
    for side, place in enumerate(settings.PLACES):
        at = [index + (side - 0.5) * (_WIDTH + 0.04) for index in range(len(cases))]
        axes.bar(at, [case[place][key] for case in cases], _WIDTH, label=place,
                 color=_COLOURS[place])
    axes.set_title(title)
    axes.legend(fontsize=8)


def _causes(axes: Axes, cases: Sequence[Mapping[str, Any]],
            runs: Sequence[Mapping[str, Any]]) -> None:
    by = {(run["place"], run["mapping"], run["format"]): run for run in runs}
    order = [(index + (side - 0.5) * (_WIDTH + 0.04),
              by[place, case["mapping"], case["format"]])
             for index, case in enumerate(cases) for side, place in enumerate(settings.PLACES)]
    bottom = [0.0] * len(order)
    for cause, label in _CAUSES.items():
        values = [run["drive"][cause] / run["writes"] for _, run in order]
        if any(values):
            axes.bar([at for at, _ in order], values, _WIDTH, bottom=bottom, label=label)
        bottom = [low + value for low, value in zip(bottom, values, strict=True)]
    axes.set_title("blocks programmed for each guest write\n(left: direct, right: vcache)")
    axes.legend(fontsize=8)


def draw(result: Mapping[str, Any], path: Path) -> None:
    """Draw all loads to a PNG file."""
    loads = list(result["means"])
    figure, rows = pyplot.subplots(len(loads), 3, figsize=(14, 3.8 * len(loads)),
                                   layout="constrained", squeeze=False)
    for row, load in zip(rows, loads, strict=True):
        cases = [case for case in result["cases"] if case["load"] == load]
        _bars(row[0], cases, "erases", f"{load}: erases")
        _causes(row[1], cases, [run for run in result["runs"] if run["load"] == load])
        _bars(row[2], cases, "writes_s", f"{load}: guest writes/s")
        for axes in row:
            axes.set_xticks(range(len(cases)),
                            [f"{case['mapping']}, {case['format']}" for case in cases])
    figure.savefig(path, dpi=110)
    pyplot.close(figure)
