# SPDX-License-Identifier: Apache-2.0
"""The command ``vcache tag curve``: what a cache of any size would have done for a tag."""

import argparse
import json
from typing import Any

from vcache_agent import tables
from vcache_agent.model import BLOCK_BYTES, Curve, Tag
from vcache_agent.netlink import connect

#: Sizes of the cache that are shown, in thousandths of what the tag has accessed.
PER_MILLE = (10, 20, 50, 100, 200, 300, 400, 500, 600, 700, 800, 900, 1000)


class CurveError(Exception):
    """There is no such tag, or no curve of it; says why."""


def add_command(commands: Any, number: Any) -> None:
    """Add the command to those of ``vcache tag``.

    :param number: converts the number of a tag
    """
    command = commands.add_parser(
        "curve", help="the miss-ratio curve of a tag",
        description="Print how many of the 4 KiB blocks that a tag has read and written so far an "
                    "LRU cache would have missed, by its size. It is an estimate from a sample of "
                    "its blocks, which the kernel takes of each tag with a cache.")
    command.add_argument("tag", type=number, metavar="TAG")
    command.add_argument("--device", metavar="MAJOR:MINOR",
                         help="of the tag, where several have one of this number")
    command.add_argument("--json", action="store_true", help="for programs")
    command.set_defaults(run=_curve)


def _curve(arguments: argparse.Namespace) -> None:
    with connect() as client:
        tag = find(client.tags(), arguments.tag, arguments.device)
        curve = client.curve(tag.device, tag.id)
    found = describe(tag, curve)
    print(json.dumps(found, indent=2) if arguments.json else text(found))


def find(tags: list[Tag], number: int, device: str | None) -> Tag:
    """Return the tag that somebody means."""
    found = [tag for tag in tags if tag.id == number and device in (None, str(tag.device))]
    if not found:
        raise CurveError(f"no device has a tag {number}" if device is None else
                         f"device {device} has no tag {number}, or is none of vcache")
    if len(found) > 1:
        raise CurveError(f"tag {number} is on several devices, say --device with one of "
                         + ", ".join(str(tag.device) for tag in found))
    return found[0]


def describe(tag: Tag, curve: Curve) -> dict[str, Any]:
    """Return what ``--json`` prints."""
    sizes = sorted({-(-curve.footprint * part // 1000 // BLOCK_BYTES) for part in PER_MILLE} - {0})
    points = []
    for blocks in sizes:
        reads, writes = curve.misses(blocks * BLOCK_BYTES)
        points.append({"blocks": blocks, "read_misses": reads, "write_misses": writes,
                       "read_miss_ratio": _ratio(reads, curve.reads),
                       "write_miss_ratio": _ratio(writes, curve.writes)})
    return {"device": str(tag.device), "tag": tag.id, "name": tag.name,
            "reads": curve.reads, "writes": curve.writes,
            "footprint_bytes": curve.footprint, "grain_bytes": curve.grain, "sizes": points}


def _ratio(misses: int, accesses: int) -> float | None:
    return round(misses / accesses, 6) if accesses else None


def text(found: dict[str, Any]) -> str:
    """Return a curve as a table."""
    return (f"{found['reads']} reads and {found['writes']} writes of 4 KiB, to about "
            f"{tables.size(found['footprint_bytes'])}\n\n") + tables.table(
        ("SIZE", "READ-MISSES", "RATIO", "WRITE-MISSES", "RATIO"),
        [(tables.size(one["blocks"] * BLOCK_BYTES), one["read_misses"],
          _shown(one["read_miss_ratio"]), one["write_misses"],
          _shown(one["write_miss_ratio"])) for one in found["sizes"]])


def _shown(ratio: float | None) -> str | None:
    return None if ratio is None else f"{ratio:.4f}"
