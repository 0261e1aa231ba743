# SPDX-License-Identifier: Apache-2.0
"""The command ``vcache tag curve``: the miss-ratio curve of a tag."""

import argparse
import json
from typing import Any

from vcache_agent import tables
from vcache_agent.model import BLOCK_BYTES, Curve, Tag
from vcache_agent.netlink import connect

#: Cache sizes in the table, in thousandths of the tag's footprint.
PER_MILLE = (10, 20, 50, 100, 200, 300, 400, 500, 600, 700, 800, 900, 1000)


class CurveError(Exception):
    """The tag does not exist or is ambiguous."""


def add_command(commands: Any, number: Any) -> None:
    """Add ``curve`` to the commands of ``vcache tag``.

    :param number: argparse type that converts the number of a tag
    """
    command = commands.add_parser(
        "curve", help="show the miss-ratio curve of a tag",
        description="Print how many 4 KiB accesses of a tag an LRU cache would have missed, for "
                    "several cache sizes, since the tag was created. The kernel estimates this "
                    "from a sample of the blocks of each tag that has a cache.")
    command.add_argument("tag", type=number, metavar="TAG")
    command.add_argument("--device", metavar="MAJOR:MINOR",
                         help="device of the tag, if several devices have a tag of this number")
    command.add_argument("--json", action="store_true", help="print JSON")
    command.set_defaults(run=_curve)


def _curve(arguments: argparse.Namespace) -> None:
    with connect() as client:
        tag = find(client.tags(), arguments.tag, arguments.device)
        curve = client.curve(tag.device, tag.id)
    found = describe(tag, curve)
    print(json.dumps(found, indent=2) if arguments.json else text(found))


def find(tags: list[Tag], number: int, device: str | None) -> Tag:
    """Return the tag with a number.

    :param device: ``major:minor``; None: any device
    :raises CurveError: if there is none, or more than one
    """
    found = [tag for tag in tags if tag.id == number and device in (None, str(tag.device))]
    if not found:
        raise CurveError(f"no device has a tag {number}" if device is None else
                         f"device {device} has no tag {number}, or is not a vcache device")
    if len(found) > 1:
        raise CurveError(f"tag {number} is on several devices, use --device with one of "
                         + ", ".join(str(tag.device) for tag in found))
    return found[0]


def describe(tag: Tag, curve: Curve) -> dict[str, Any]:
    """Return a curve as ``--json`` prints it; sizes in bytes, ``blocks`` in 4 KiB."""
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
    return (f"{found['reads']} reads and {found['writes']} writes of 4 KiB, footprint about "
            f"{tables.size(found['footprint_bytes'])}\n\n") + tables.table(
        ("SIZE", "READ-MISSES", "RATIO", "WRITE-MISSES", "RATIO"),
        [(tables.size(one["blocks"] * BLOCK_BYTES), one["read_misses"],
          _shown(one["read_miss_ratio"]), one["write_misses"],
          _shown(one["write_miss_ratio"])) for one in found["sizes"]])


def _shown(ratio: float | None) -> str | None:
    return None if ratio is None else f"{ratio:.4f}"
