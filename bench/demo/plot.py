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

from bench.demo.report import HALVES, noise, table
from bench.demo.settings import INTERVALS

_PAGE = Path(__file__).with_name("report.html.in")
_NAMES = {"bare": "bare device", "vcache": "under vcache"}
# Distinguishable without colour vision and in grey.
_COLOURS = {"bare": "#b2560d", "vcache": "#1b6ca8"}


def _bars(axes: Axes, values: dict[str, dict[str, float]], form: str) -> None:
    """Draw one pair of bars for each setting, with its value."""
    width = 0.38
    for number, half in enumerate(HALVES):
        places = [x + (number - 0.5) * width for x in range(len(INTERVALS))]
        heights = [values[half][str(k)] for k in INTERVALS]
        bars = axes.bar(places, heights, width, label=_NAMES[half], color=_COLOURS[half],
                        zorder=2)
        axes.bar_label(bars, [form.format(height) for height in heights], fontsize=8, padding=2)
    axes.set_xticks(range(len(INTERVALS)), [str(k) for k in INTERVALS])
    axes.set_xlabel("the other VM fsyncs every k writes of 4 KiB")
    axes.yaxis.grid(True, color="#d0d0d0", linewidth=0.6)
    axes.spines[["top", "right"]].set_visible(False)


def draw(report: dict[str, Any], path: Path) -> None:
    """Write the plot as PNG."""
    figure, (left, right) = plt.subplots(1, 2, figsize=(11, 4.4), layout="constrained")
    _bars(left, report["neighbour_loss_pct"], "{:.0f}")
    left.axhline(0, color="#404040", linewidth=0.8)
    left.set_title("What a VM that never fsyncs loses to its neighbour", fontsize=11)
    left.set_ylabel("throughput lost, % (below 0: gained)")
    means = {half: {k: value / 1000 for k, value in report["flush_mean_us"][half].items()}
             for half in HALVES}
    _bars(right, means, "{:.1f}")
    right.set_title("What an fsync takes in the VM that fsyncs", fontsize=11)
    right.set_ylabel("mean flush latency, ms")
    for axes in (left, right):
        axes.margins(y=0.12)
    figure.legend(*left.get_legend_handles_labels(), loc="outside lower center", ncols=2,
                  frameon=False)
    figure.savefig(path, dpi=100)
    plt.close(figure)


def _rows(cells: list[list[str]]) -> str:
    return "\n".join(
        "<tr>" + "".join(f"<td>{html.escape(cell)}</td>" for cell in row) + "</tr>"
        for row in cells)


def _tag_rows(report: dict[str, Any]) -> str:
    return _rows([
        [tag["role"], str(tag["id"]), tag["name"], str(tag["weight"]),
         ", ".join(tag["cgroup_paths"]), str(tag["extents_count"]),
         f"{tag['limit_bytes'] / 2**20:.0f} MiB"]
        for tag in report["tags"]])


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
    image = base64.b64encode(picture.read_bytes()).decode()
    details = {key: report[key] for key in ("settings", "versions", "vcache", "aims", "seconds")}
    path.write_text(string.Template(_PAGE.read_text()).substitute(
        image=image,
        table=html.escape(table(report)),
        tags=_tag_rows(report),
        device=_device_rows(report),
        noise=html.escape(f"Note: {warning}." if warning else ""),
        method=html.escape(report["method"]),
        details=html.escape(json.dumps(details, indent=2)),
    ))
