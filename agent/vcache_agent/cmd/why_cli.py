# SPDX-License-Identifier: Apache-2.0
"""The command ``vcache why``: the decisions about a tag and their inputs."""

import argparse
import json
from typing import Any

from vcache_agent import tables
from vcache_agent.admin_client import ask


def add_command(commands: Any, number: Any) -> None:
    """Add ``why`` to the commands of ``vcache``.

    :param number: argparse type that converts the number of a tag
    """
    command = commands.add_parser(
        "why", help="explain the mode, weight, share and lanes of a tag",
        description="Show what a tag has, and from which inputs that follows: the flavor's extra "
                    "specs, the settings of operators, the device, the pool and the policy.")
    command.add_argument("tag", type=number, metavar="TAG")
    command.add_argument("--device", metavar="MAJOR:MINOR",
                         help="device of the tag, if several devices have a tag of this number")
    command.add_argument("--json", action="store_true", help="print JSON")
    command.set_defaults(run=_why)


def _why(arguments: argparse.Namespace) -> None:
    request: dict[str, Any] = {"op": "why", "tag": arguments.tag}
    if arguments.device is not None:
        request["device"] = arguments.device
    found = ask(arguments.socket, request)["why"]
    print(json.dumps(found, indent=2) if arguments.json else text(found))


def text(found: dict[str, Any]) -> str:
    """Return the explanation as text."""
    lines = [f"tag {found['tag']} on device {found['device_name']} ({found['device']})"]
    for disk in found["disks"]:
        project = f", project {disk['project']}" if disk["project"] else ""
        lines.append(f"  disk {disk['disk']} of {disk['domain']} ({disk['uuid']}{project}): "
                     f"{disk['path']}")
    for decision in found["decisions"]:
        lines += ["", f"{decision['what']}: {_value(decision['value'])}",
                  *(f"  - {reason}" for reason in decision["because"])]
    if found["notes"]:
        lines += ["", "notes:", *(f"  - {note}" for note in found["notes"])]
    return "\n".join(lines)


def _value(value: Any) -> str:
    if value is None:
        return "unknown"
    if isinstance(value, dict):
        most = tables.size(value["max_bytes"]) or "no limit"
        return (f"{tables.size(value['share_bytes'])}, from {tables.size(value['min_bytes'])} to "
                f"{most}; {tables.size(value['cached_bytes'])} are cached")
    if isinstance(value, list):
        return ", ".join(map(str, value)) or "none dedicated"
    return str(value)
