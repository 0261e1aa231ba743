# SPDX-License-Identifier: Apache-2.0
"""The command vcache: show and change the tags, pools and cached devices of this host.

Exit status: 0 success; 1 failure; 2 wrong usage; 3 the kernel module is not
loaded; 4 permission denied; 5 the command needs the agent, which is not
running; 130 interrupted.
"""

import argparse
import errno
import json
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from vcache_agent import tables, view
from vcache_agent.admin_client import AdminDenied, AdminError, AgentNotRunning, ask
from vcache_agent.boot.setup_file import SetupError
from vcache_agent.cmd import (
    curve_cli,
    destage_cli,
    device_cli,
    events_cli,
    map_cli,
    module_cli,
    mrc_cli,
    policy_cli,
    pool_cli,
    record_cli,
    replay_cli,
    setup_cli,
    top_cli,
    vssd_cli,
    why_cli,
)
from vcache_agent.dm import DmError
from vcache_agent.mapfile import MapFileError
from vcache_agent.model import TAG_MODES
from vcache_agent.netlink import connect, spec
from vcache_agent.netlink.errors import ModuleNotLoaded, NetlinkError
from vcache_agent.pools import PoolError
from vcache_agent.store import StoreError

EXIT_FAILED, EXIT_USAGE, EXIT_NO_MODULE, EXIT_PERMISSION, EXIT_NO_AGENT = 1, 2, 3, 4, 5
EXIT_INTERRUPTED = 130


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command."""
    arguments = _parser().parse_args(argv)
    try:
        return int(arguments.run(arguments) or 0)
    except AgentNotRunning as error:
        return _fail(EXIT_NO_AGENT, str(error))
    except ModuleNotLoaded as error:
        return _fail(EXIT_NO_MODULE, str(error.strerror))
    except NetlinkError as error:
        denied = error.errno in (errno.EPERM, errno.EACCES)
        return _fail(EXIT_PERMISSION if denied else EXIT_FAILED, f"kernel: {error.strerror}")
    except AdminDenied as error:
        return _fail(EXIT_PERMISSION, str(error))
    except (AdminError, MapFileError, PoolError, SetupError, StoreError, curve_cli.CurveError,
            device_cli.ProbeError, mrc_cli.MrcError, record_cli.RecordError,
            replay_cli.ReplayError) as error:
        return _fail(EXIT_FAILED, str(error))
    except DmError as error:
        denied = error.errno in (errno.EPERM, errno.EACCES)
        return _fail(EXIT_PERMISSION if denied else EXIT_FAILED, str(error.strerror))
    except KeyboardInterrupt:
        return _fail(EXIT_INTERRUPTED, "interrupted; run the command again to continue")
    except BrokenPipeError:
        return 0


def _fail(status: int, text: str) -> int:
    print(f"vcache: {text}", file=sys.stderr)
    return status


def _integer(low: int, high: int) -> Any:
    def convert(text: str) -> int:
        if not text.isascii() or not text.isdigit() or not low <= int(text[:9]) <= high:
            raise argparse.ArgumentTypeError(f"{text!r}: must be an integer from {low} to {high}")
        return int(text)
    return convert


def _lanes(text: str) -> str | None:
    lane = _integer(0, 63)
    return None if text == "none" else ",".join(str(lane(part)) for part in text.split(","))


class _Version(argparse.Action):
    """Print the version. Looked up only on demand, because it is read from a file."""

    def __call__(self, parser: argparse.ArgumentParser, *_: object) -> None:
        from importlib.metadata import version

        print(version("nova-vcache"))
        parser.exit()


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="vcache", description=(
        "Show and change the tags, pools and cached devices of this host."))
    parser.add_argument("--version", action=_Version, nargs=0,
                        help="show the program's version and exit")
    parser.add_argument("--socket", type=Path, default=Path("/run/vcache/admin.sock"),
                        metavar="PATH", help="admin socket of the agent (%(default)s)")
    commands = parser.add_subparsers(required=True, metavar="COMMAND")
    for name, run, text in (
            ("status", _status, "show devices, tags and warnings"),
            ("disks", _disks, "show the disks of the domains on this host and their tags")):
        command = commands.add_parser(name, help=text)
        command.add_argument("--json", action="store_true", help="print JSON")
        command.set_defaults(run=run)
    command = commands.add_parser(
        "reconcile", help="compare libvirt, the disks and the kernel now, and correct the tags")
    command.set_defaults(run=_reconcile)
    tag = commands.add_parser("tag", help="change a tag, or show its use of the cache")
    tag_commands = tag.add_subparsers(required=True, metavar="COMMAND")
    command = tag_commands.add_parser(
        "set", help="set a tag's weight, mode or lanes",
        description="Set a tag's weight, mode or lanes. The value overrides the flavor and "
                    "survives restarts of the domain and of the agent. To return to the flavor's "
                    "value, use --flavor-weight, --flavor-mode or --lanes none.")
    command.add_argument("tag", type=_integer(1, spec.TAG_MAX), metavar="TAG")
    group = command.add_mutually_exclusive_group()
    group.add_argument("--weight", type=_integer(1, spec.WEIGHT_MAX), metavar="1..1000")
    group.add_argument("--flavor-weight", action="store_true",
                       help="use the weight of the flavor again")
    group = command.add_mutually_exclusive_group()
    group.add_argument("--mode", choices=TAG_MODES,
                       help="how the tag uses the cache; needs a device in mode writeback")
    group.add_argument("--flavor-mode", action="store_true",
                       help="use the mode of the flavor again")
    command.add_argument("--lanes", type=_lanes, default=argparse.SUPPRESS, metavar="N,N...|none",
                         help="lanes of the pool to dedicate to this tag")
    command.set_defaults(run=_tag_set, usage=command.error)
    curve_cli.add_command(tag_commands, _integer(0, spec.TAG_MAX))
    map_cli.add_commands(tag_commands, _integer(0, spec.TAG_MAX))
    pool_cli.add_commands(commands)
    vssd_cli.add_commands(commands)
    setup_cli.add_commands(commands)
    destage_cli.add_command(commands, _integer)
    device_cli.add_commands(commands)
    module_cli.add_commands(commands)
    policy_cli.add_commands(commands)
    mrc_cli.add_command(commands)
    top_cli.add_command(commands, _integer(1, 3600))
    events_cli.add_command(commands)
    why_cli.add_command(commands, _integer(1, spec.TAG_MAX))
    record_cli.add_command(commands, _integer(1, 7 * 86400))
    replay_cli.add_command(commands)
    return parser


def _load(arguments: argparse.Namespace) -> dict[str, Any]:
    """Return the agent's state; if no agent is running, the devices and tags of the kernel."""
    try:
        state = ask(arguments.socket, {"op": "state"})
        del state["ok"]
    except AgentNotRunning as error:
        with connect() as client:
            state = view.kernel(client.devices(), client.tags())
        state |= {"agent": {"problem": str(error), "libvirt": False, "domains": None},
                  "disks": [], "orphans": []}
    return state


def _status(arguments: argparse.Namespace) -> None:
    state = _load(arguments)
    print(json.dumps(state, indent=2) if arguments.json else tables.status(state))


def _disks(arguments: argparse.Namespace) -> int:
    state = _load(arguments)
    if arguments.json:
        print(json.dumps({"agent": state["agent"], "disks": state["disks"]}, indent=2))
    else:
        print(tables.disks(state))
    if state["agent"]["domains"] is None:
        # Only the agent knows the disks; an empty list would be wrong.
        raise AgentNotRunning(state["agent"]["problem"])
    return 0


def _reconcile(arguments: argparse.Namespace) -> int:
    answer = ask(arguments.socket, {"op": "reconcile"}, seconds=60.0)
    if not answer["libvirt"]:
        return _fail(EXIT_FAILED, "libvirt did not answer; the last known list of domains was used")
    return 0


def _tag_set(arguments: argparse.Namespace) -> None:
    request = {"op": "tag-set", "tag": arguments.tag}
    if arguments.weight is not None or arguments.flavor_weight:
        request["weight"] = arguments.weight
    if arguments.mode is not None or arguments.flavor_mode:
        request["mode"] = arguments.mode
    if "lanes" in arguments:
        request["lanes"] = arguments.lanes
    if len(request) == 2:
        arguments.usage(
            "one of --weight, --flavor-weight, --mode, --flavor-mode, --lanes is required")
    ask(arguments.socket, request)


if __name__ == "__main__":
    sys.exit(main())
