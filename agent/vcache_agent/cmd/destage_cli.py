# SPDX-License-Identifier: Apache-2.0
"""The command ``vcache destage``."""

import argparse
import dataclasses
import json
import time
from collections.abc import Callable
from typing import Any

from vcache_agent import destage
from vcache_agent.cmd import pool_cli
from vcache_agent.destage import Progress
from vcache_agent.dm import Dm
from vcache_agent.pools import LIMITS
from vcache_agent.tables import size

_MIB = 1 << 20


def add_command(commands: Any, integer: Callable[[int, int], Callable[[str], int]]) -> None:
    """Add the command to those of ``vcache``.

    :param integer: makes a parser of integers of a range
    """
    command = commands.add_parser(
        "destage", help="show, limit or pause the write-back of a device's cache",
        description="Show how much of a device's cache is not on its origin yet, and change how "
                    "it gets there. The limits last until the device is detached or the host is "
                    "shut down. They do not apply to space that other instances wait for.")
    command.add_argument("device", metavar="DEVICE", help="path or name of a mapped device")
    command.add_argument("--rate", dest="destage_mib", type=integer(0, _MIB), metavar="MIB",
                         help="most MiB per second to the origin; 0: no limit")
    command.add_argument("--low", dest="destage_low", type=integer(0, 80), metavar="PERCENT",
                         help="begin when more than this part of an instance's share is dirty, "
                              "0 to 80 (25)")
    command.add_argument("--high", dest="destage_high", type=integer(1, 80), metavar="PERCENT",
                         help="run at full speed when more than this part is dirty, 1 to 80 (75)")
    group = command.add_mutually_exclusive_group()
    group.add_argument("--pause", type=integer(1, destage.PAUSE_MAX), metavar="SECONDS",
                       help="write nothing to the origin for so long")
    group.add_argument("--resume", dest="pause", action="store_const", const=0,
                       help="end a pause")
    command.add_argument("--follow", action="store_true",
                         help="print the state each second until nothing is dirty")
    command.add_argument("--json", action="store_true", help="print JSON")
    command.set_defaults(run=_destage)


def _destage(arguments: argparse.Namespace) -> None:
    limits = {name: value for name in LIMITS
              if (value := getattr(arguments, name)) is not None}
    with pool_cli.mapper() as dm:
        if limits or arguments.pause is not None:
            destage.change(dm, arguments.device, limits, arguments.pause)
        found = _show(dm, arguments, None, 0)
        while arguments.follow and found.dirty:
            start = time.monotonic()
            time.sleep(1)
            found = _show(dm, arguments, found, time.monotonic() - start)


def _show(dm: Dm, arguments: argparse.Namespace, before: Progress | None,
          seconds: float) -> Progress:
    found = destage.progress(dm, arguments.device)
    rate = None if before is None else (found.destaged - before.destaged) / seconds
    if arguments.json:
        pool_cli.say(json.dumps(dataclasses.asdict(found) | {"bytes_per_second": rate}))
    else:
        pool_cli.say(text(found, rate))
    return found


def text(found: Progress, rate: float | None) -> str:
    """Return the state of a device's destage as a line.

    :param rate: bytes per second; None: not measured
    """
    limits = found.limits
    parts = [f"{found.name}: {found.state}", f"{size(found.dirty)} dirty"]
    if rate is not None:
        parts.append(f"{size(int(rate))}/s to the origin")
    parts.append(f"begins at {limits['destage_low']} %, full speed from "
                 f"{limits['destage_high']} % of a share")
    if limits["destage_mib"]:
        parts.append(f"at most {limits['destage_mib']} MiB/s")
    if found.paused:
        parts.append(f"paused for {found.paused} s")
    return ", ".join(parts)
