# SPDX-License-Identifier: Apache-2.0
"""The demo's plot and its self-contained HTML page."""

import base64
import html
import json
import string
from pathlib import Path
from typing import Any

import matplotlib as mpl

mpl.use("Agg")
from matplotlib import pyplot as plt
from matplotlib.axes import Axes

from bench.demo import slow_report, weights_plot, weights_report
from bench.demo.figures import key
from bench.demo.report import HALVES, noise, table
from bench.demo.settings import INTERVALS

_PAGE = Path(__file__).with_name("report.html.in")
_NAMES = {"bare": "bare device", "vcache": "under vcache",
          "slow": "slow disk by itself", "cached": "with a cache on an SSD"}
# Distinguishable without colour vision and in grey.
_COLOURS = {"bare": "#b2560d", "vcache": "#1b6ca8", "slow": "#b2560d", "cached": "#1b6ca8"}


def _bars(axes: Axes, values: dict[str, dict[str, float]], form: str,
          intervals: tuple[int, ...]) -> None:
    """Draw one pair of bars for each setting, with its value; one half beside the other."""
    width = 0.38
    names = [key(k) for k in intervals]
    for number, half in enumerate(values):
        places = [x + (number - 0.5) * width for x in range(len(names))]
        heights = [values[half][name] for name in names]
        bars = axes.bar(places, heights, width, label=_NAMES[half], color=_COLOURS[half],
                        zorder=2)
        axes.bar_label(bars, [form.format(height) for height in heights], fontsize=8, padding=2)
    axes.set_xticks(range(len(names)), names)
    axes.set_xlabel("one VM fsyncs every k writes of 4 KiB")
    axes.legend(loc="upper center", bbox_to_anchor=(0.5, -0.14), ncols=2, frameon=False)
    axes.yaxis.grid(True, color="#d0d0d0", linewidth=0.6)
    axes.spines[["top", "right"]].set_visible(False)


def draw(report: dict[str, Any], path: Path) -> None:
    """Write the plot as PNG."""
    figure = plt.figure(figsize=(15, 9), layout="constrained")
    rows = figure.add_gridspec(2, 1)
    left, right, slow = figure.add_subfigure(rows[0]).subplots(1, 3, width_ratios=(6, 6, 4))
    sizes, hits = figure.add_subfigure(rows[1]).subplots(1, 2)
    weights_plot.draw(sizes, hits, report["weights"])
    _bars(left, report["neighbour_loss_pct"], "{:.0f}", INTERVALS)
    left.axhline(0, color="#404040", linewidth=0.8)
    left.set_title("What a VM that never fsyncs loses to its neighbour", fontsize=11)
    left.set_ylabel("throughput lost, % (below 0: gained)")
    means = {half: {k: value / 1000 for k, value in report["flush_mean_us"][half].items()}
             for half in HALVES}
    _bars(right, means, "{:.1f}", INTERVALS)
    right.set_title("What an fsync takes in the VM that fsyncs", fontsize=11)
    right.set_ylabel("mean flush latency, ms")
    means = {half: {k: value / 1000 for k, value in values.items()} for half, values
             in report["slow_disk"]["write_with_fsync_mean_us"].items()}
    _bars(slow, means, "{:.0f}", slow_report.SETTINGS)
    slow.set_title("On an HDD-like disk: a write with its fsync", fontsize=11)
    slow.set_ylabel("mean write + mean fsync / k, ms")
    for axes in (left, right, slow):
        axes.margins(y=0.12)
    figure.savefig(path, dpi=100)
    plt.close(figure)


def _rows(cells: list[list[str]]) -> str:
    return "\n".join(
        "<tr>" + "".join(f"<td>{html.escape(cell)}</td>" for cell in row) + "</tr>"
        for row in cells)


def _tag_rows(tags: list[dict[str, Any]]) -> str:
    return _rows([
        [tag["role"], str(tag["id"]), tag["name"], tag["mode"], str(tag["weight"]),
         ", ".join(tag["cgroup_paths"]), str(tag["extents_count"]),
         f"{tag['limit_bytes'] / 2**20:.0f} MiB"]
        for tag in tags])


def _device_rows(report: dict[str, Any]) -> str:
    devices = [report["device"][half] for half in HALVES]

    def latency(device: dict[str, Any], name: str) -> str:
        own = device["own_figures"][name]
        return (f"mean {own['mean'] / 1000:.2f} ms, p50 {own['p50'] / 1000:.2f}, "
                f"p99 {own['p99'] / 1000:.2f}")

    return _rows([
        ["", *(_NAMES[half] for half in HALVES)],
        ["made of", *(d["made_of"] for d in devices)],
        ["firmware", *(d["personality"] for d in devices)],
        ["NAND", *(f"{d['nand']}, all times multiplied by {d['slowdown']}" for d in devices)],
        ["a flush and what comes after it", *(d["flush"] for d in devices)],
        ["volatile cache", *(f"{d['write_cache']}, FUA {d['fua']}" for d in devices)],
        ["write, measured", *(latency(d, "write_us") for d in devices)],
        ["write with FUA, measured", *(latency(d, "fua_write_us") for d in devices)],
        ["flush, measured", *(latency(d, "flush_us") for d in devices)],
        ["FLUSH commands during the VMs' runs", *(str(d["flush_commands"]) for d in devices)],
    ])


def write_page(report: dict[str, Any], picture: Path, path: Path) -> None:
    """Write a page that needs nothing but itself."""
    warning = noise(report)
    slow, shared = report["slow_disk"], report["weights"]
    image = base64.b64encode(picture.read_bytes()).decode()
    details = {key: report[key] for key in ("settings", "versions", "vcache", "aims", "seconds")}
    path.write_text(string.Template(_PAGE.read_text()).substitute(
        image=image,
        table=html.escape(table(report)),
        tags=_tag_rows(report["tags"]),
        device=_device_rows(report),
        noise=html.escape(f"Note: {warning}." if warning else ""),
        method=html.escape(report["method"]),
        slow_table=html.escape(slow_report.table(slow)),
        slow_tags=_tag_rows(slow["tags"]),
        slow_cache=html.escape(slow_report.cache_line(slow)),
        slow_method=html.escape(slow["method"]),
        weights_table=html.escape(weights_report.table(shared)),
        weights_line=html.escape(weights_report.line(shared)),
        weights_tags=_tag_rows(shared["tags"]),
        weights_method=html.escape(shared["method"]),
        details=html.escape(json.dumps(details, indent=2)),
    ))
