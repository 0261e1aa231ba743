# SPDX-License-Identifier: Apache-2.0
"""The command ``vcache events``: the agent's log of events."""

import argparse
import json
import sys
import time
from typing import Any

from vcache_agent.admin_client import AgentNotRunning, ask

_POLL_SECONDS = 1.0


def add_command(commands: Any) -> None:
    """Add ``events`` to the commands of ``vcache``."""
    command = commands.add_parser(
        "events", help="show events of the kernel, decisions, and changed settings",
        description="Show the newest 2000 events since the start of the agent: the kernel's "
                    "events, the agent's decisions, failed passes, and settings that operators "
                    "have changed. Times are local.")
    command.add_argument("--follow", "-f", action="store_true",
                         help="wait for further events, until Ctrl-C")
    command.add_argument("--json", action="store_true", help="print one JSON object per line")
    command.set_defaults(run=_events)


def _events(arguments: argparse.Namespace) -> int:
    request: dict[str, Any] = {"op": "events", "after": 0}
    while True:
        try:
            answer = ask(arguments.socket, request)
        except AgentNotRunning:
            if not arguments.follow or "log" not in request:
                raise
            # It restarts; its new log begins at the first event.
            time.sleep(_POLL_SECONDS)
            continue
        if answer["restarted"]:
            print("the agent was restarted", file=sys.stderr)
        if answer["lost"]:
            print(f"{answer['lost']} older events are no longer kept", file=sys.stderr)
        for event in answer["events"]:
            print(json.dumps(event) if arguments.json else line(event), flush=True)
        if not arguments.follow:
            return 0
        request |= {"after": answer["next"], "log": answer["log"]}
        time.sleep(_POLL_SECONDS)


def line(event: dict[str, Any]) -> str:
    """Return an event as one line of text."""
    moment = time.strftime("%Y-%m-%d %H:%M:%S", time.localtime(event["wall"]))
    where = [f"device {event['device']}" if event["device"] else "",
             f"tag {event['tag']}" if event["tag"] is not None else "", event["disk"]]
    place = " ".join(filter(None, where))
    return f"{moment}  {event['kind']:<12}  " + (f"{place}: " if place else "") + event["text"]
