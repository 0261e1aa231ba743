# SPDX-License-Identifier: Apache-2.0
"""The commands ``vcache vssd``: elastic SSDs of this host.

All but ``resize`` use device mapper directly, and need no running agent.
"""

import argparse
import contextlib
import json
import time
from pathlib import Path
from typing import Any

from vcache_agent import tables
from vcache_agent.admin_client import AgentNotRunning, ask
from vcache_agent.boot.setup_file import VssdLine
from vcache_agent.cmd import pool_cli
from vcache_agent.dm import Dm
from vcache_agent.vssd import devices
from vcache_agent.vssd.devices import Vssd
from vcache_agent.vssd.session import DEADLINE_MAX

_LOOK_S = 0.2


def add_commands(commands: Any) -> None:
    """Add the commands to those of ``vcache``."""
    vssd = commands.add_parser("vssd", help="manage elastic SSDs of instances")
    found = vssd.add_subparsers(required=True, metavar="COMMAND")
    _add_create(found)
    command = found.add_parser(
        "delete", help="delete an elastic SSD and its data",
        description="Delete an elastic SSD that no domain uses. Its data is discarded.")
    command.add_argument("name", metavar="NAME")
    pool_cli.add_state(command)
    pool_cli.add_setup(command)
    command.set_defaults(run=_delete)
    command = found.add_parser("list", help="list the elastic SSDs and their guests")
    command.add_argument("--json", action="store_true", help="print JSON")
    command.set_defaults(run=_list)
    command = found.add_parser(
        "resize", help="change how much of an elastic SSD its guest may use",
        description="Change how much of an elastic SSD its guest may use. If that is less, the "
                    "guest is asked to give up blocks, and after a deadline they are taken. "
                    "Needs the agent. If the command is interrupted, the agent continues.")
    command.add_argument("name", metavar="NAME")
    command.add_argument("size", type=_size, metavar="SIZE",
                         help="in bytes, or with suffix K, M, G or T; up to the maximum")
    command.add_argument("--deadline", type=_seconds, metavar="SECONDS",
                         help="how long the guest may take, 0 to 3600 (option deadline of the "
                              "agent); 0: take blocks at once")
    command.add_argument("--no-wait", action="store_true",
                         help="do not wait until it has the new size")
    pool_cli.add_setup(command)
    command.set_defaults(run=_resize)
    command = found.add_parser("show", help="show an elastic SSD and its guest")
    command.add_argument("name", metavar="NAME")
    command.add_argument("--json", action="store_true", help="print JSON")
    command.set_defaults(run=_show)


def _add_create(found: Any) -> None:
    command = found.add_parser(
        "create", help="create an elastic SSD in a pool",
        description="Create a disk whose blocks are chunks of a pool, for a domain of this host. "
                    "Sizes are rounded up to whole blocks.")
    command.add_argument("name", metavar="NAME", help="name of the mapped device")
    command.add_argument("pool", metavar="POOL")
    command.add_argument("--max", type=pool_cli.size, required=True, metavar="SIZE",
                         help="size of the disk in bytes, or with suffix K, M, G or T")
    command.add_argument("--size", type=_size, metavar="SIZE",
                         help="how much of it the guest may use now (all)")
    command.add_argument("--persist", action="store_true",
                         help="keep its data over restarts of the host and of the domain")
    command.add_argument("--volume", type=pool_cli.volume, metavar="N",
                         help="volume number in the pool (the previous number of the name, or the "
                              "lowest free one)")
    pool_cli.add_state(command)
    pool_cli.add_setup(command)
    command.set_defaults(run=_create)


def _size(text: str) -> int:
    return 0 if text == "0" else pool_cli.size(text)


def _seconds(text: str) -> float:
    try:
        seconds = float(text)
    except ValueError:
        seconds = -1.0
    if not 0 <= seconds <= DEADLINE_MAX:
        raise argparse.ArgumentTypeError(f"{text!r}: must be a number from 0 to {DEADLINE_MAX:g}")
    return seconds


def _create(arguments: argparse.Namespace) -> None:
    size = arguments.max if arguments.size is None else arguments.size
    with pool_cli.mapper() as dm, pool_cli.locked_store(arguments.state) as store:
        made = devices.create(dm, store, devices.Wanted(
            arguments.name, arguments.pool, arguments.max, size, arguments.persist,
            arguments.volume))
        unit = made.block_bytes
        pool_cli.say(f"elastic SSD {arguments.name}: {tables.size(made.quota * unit)} of at most "
                     f"{tables.size(made.most * unit)}, volume {made.volume} of pool "
                     f"{arguments.pool}")
        pool_cli.recorder(arguments).vssd(VssdLine(
            arguments.name, arguments.pool, made.most * unit, made.quota * unit, made.volume,
            made.persist))
    with contextlib.suppress(AgentNotRunning):
        ask(arguments.socket, {"op": "vssds"})  # the agent looks at once


def _delete(arguments: argparse.Namespace) -> None:
    with pool_cli.mapper() as dm, pool_cli.locked_store(arguments.state) as store:
        pool_cli.say(devices.delete(dm, store, arguments.name))
        pool_cli.recorder(arguments).vssd_removed(arguments.name)


def _rows(socket: Path, found: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Add the guests to rows; None: unknown, because no agent runs."""
    guests: dict[str, Any] | None = None
    with contextlib.suppress(AgentNotRunning):
        guests = ask(socket, {"op": "vssds"})["guests"]
    return [row | {"guest": None if guests is None else guests.get(row["name"])} for row in found]


def _list(arguments: argparse.Namespace) -> None:
    with pool_cli.mapper() as dm:
        rows = _rows(arguments.socket, [devices.row(dm, one) for one in devices.every(dm)])
    print(json.dumps({"vssds": rows}, indent=2) if arguments.json else tables.vssds(rows))


def _show(arguments: argparse.Namespace) -> None:
    with pool_cli.mapper() as dm:
        (row,) = _rows(arguments.socket, [devices.row(dm, devices.find(dm, arguments.name))])
    print(json.dumps(row, indent=2) if arguments.json else tables.vssd(row))


def _resize(arguments: argparse.Namespace) -> None:
    with pool_cli.mapper() as dm:
        before = devices.find(dm, arguments.name)
        name, unit = before.info.name, before.block_bytes
        forced = _forced(arguments.socket, name)
        size = ask(arguments.socket, {"op": "vssd-set", "name": name, "size": arguments.size,
                                      "seconds": arguments.deadline})["size"]
        pool_cli.recorder(arguments).vssd_size(name, size)
        now = devices.find(dm, name)
        if not arguments.no_wait:
            now = _settled(dm, name, now)
        forced = _forced(arguments.socket, name) - forced
    text = f"elastic SSD {name}: {tables.size(size)}, was {tables.size(before.quota * unit)}"
    if forced:
        text += f"; {tables.size(forced)} were taken by force"
    if not now.settled:
        text += f"; it owns {tables.size(now.owned * unit)} now"
    pool_cli.say(text)


def _forced(socket: Path, name: str) -> int:
    """Return how many bytes the agent has taken by force so far."""
    guest = ask(socket, {"op": "vssds"})["guests"].get(name)
    return int(guest["forced_bytes"]) if guest else 0


def _settled(dm: Dm, name: str, now: Vssd) -> Vssd:
    """Wait until an elastic SSD has the size that it is to have."""
    while not now.settled:
        time.sleep(_LOOK_S)
        now = devices.find(dm, name)
    return now
