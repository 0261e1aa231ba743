# SPDX-License-Identifier: Apache-2.0
"""Coordinates of the charts, which templates draw as SVG: pure functions.

The server draws them, so they need no script, and a page that is printed has them.
"""

import dataclasses
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

Json = Mapping[str, Any]

#: Size of the plot of a curve in the units of its SVG, without the labels.
WIDTH, HEIGHT = 480, 200

_STEPS = 4


@dataclasses.dataclass(frozen=True)
class Label:
    """A label of an axis, and its place on it.

    :param value: the value at this place, a size in bytes or a ratio
    """

    at: float
    value: float


@dataclasses.dataclass(frozen=True)
class Line:
    """One line of a plot.

    :param kind: reads or writes
    :param points: in the format of the attribute of a polyline
    """

    kind: str
    points: str


@dataclasses.dataclass(frozen=True)
class Plot:
    """The miss-ratio curve of a disk.

    :param disk: name of the disk
    :param lines: the curves of reads and of writes, if there were any
    :param share: place of the disk's share on the horizontal axis; None: beyond its end
    :param share_bytes: the share
    :param here: part of the reads that a cache of this size would miss; None: unknown
    :param across: labels of the horizontal axis, in bytes
    :param up: labels of the vertical axis, in percent
    :param rows: the points, for a table
    """

    disk: str
    lines: tuple[Line, ...]
    share: float | None
    share_bytes: int
    here: float | None
    across: tuple[Label, ...]
    up: tuple[Label, ...]
    rows: tuple[Json, ...]


@dataclasses.dataclass(frozen=True)
class Bar:
    """One part of a bar.

    :param kind: what it is, for its colour and its text
    :param at: where it begins, in percent of the bar
    :param width: in percent of the bar
    :param amount: in bytes
    """

    kind: str
    at: float
    width: float
    amount: int


def curve(found: Json) -> Plot:
    """Return the plot of a curve.

    :param found: a curve of vcache-api
    """
    points = found["points"]
    most = max((point["size_bytes"] for point in points), default=0)
    share = found.get("share_bytes") or 0

    def across(size: float) -> float:
        return round(size / most * WIDTH, 1) if most else 0.0

    lines = []
    for kind in ("read", "write"):
        line = [(across(point["size_bytes"]), HEIGHT * (1 - ratio)) for point in points
                if (ratio := point[f"{kind}_miss_ratio"]) is not None]
        if line:
            lines.append(Line(kind, " ".join(f"{x:g},{y:.1f}" for x, y in line)))
    return Plot(
        found["disk"], tuple(lines), across(share) if 0 < share <= most else None, share,
        _ratio_at(points, share),
        tuple(Label(WIDTH * step / _STEPS, most * step / _STEPS) for step in range(_STEPS + 1)),
        tuple(Label(HEIGHT * (1 - step / _STEPS), 100 * step / _STEPS)
              for step in range(_STEPS + 1)),
        tuple(points[::max(1, len(points) // 8)]))


def _ratio_at(points: Sequence[Json], size: int) -> float | None:
    """Return the miss ratio of reads in percent at the largest point that is not above a size."""
    known = [point["read_miss_ratio"] for point in points if point["size_bytes"] <= size
             and point["read_miss_ratio"] is not None]
    return round(100 * known[-1], 1) if known else None


def bars(total: int, parts: Iterable[tuple[str, int]]) -> tuple[Bar, ...]:
    """Return the parts of a bar.

    :param total: what the whole bar stands for
    :param parts: kinds and amounts, from left to right; what exceeds the total is cut off
    """
    found, at = [], 0.0
    for kind, amount in parts:
        width = min(100 - at, 100 * max(0, amount) / total) if total else 0.0
        found.append(Bar(kind, round(at, 2), round(width, 2), amount))
        at += width
    return tuple(found)


def pool(found: Json) -> tuple[Bar, ...]:
    """Return the bar of a pool: its dirty, its other used, and its free space."""
    dirty, used = found.get("dirty_bytes") or 0, found.get("used_bytes") or 0
    return bars(found["size_bytes"], (
        ("dirty", dirty), ("clean", max(0, used - dirty)), ("free", found.get("free_bytes") or 0)))


def lane(found: Json) -> tuple[Bar, ...]:
    """Return the bar of a lane."""
    size, free = found["size_bytes"], found["free_bytes"]
    if free is None:
        return bars(size, (("unknown", size),))
    return bars(size, (("clean", size - free), ("free", free)))


def objective(found: Json) -> tuple[float | None, float]:
    """Return where a bar of a measured value ends and where the objective is, in percent.

    The bar ends at twice the objective.
    """
    measured, promised = found["measured"], found["promised"]
    if measured is None:
        return None, 50.0
    return round(min(100.0, 50.0 * measured / promised), 1), 50.0
