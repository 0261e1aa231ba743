# SPDX-License-Identifier: Apache-2.0
"""The commands ``vcache policy``: how the pools of this host are divided among the tags."""

import argparse
import json
from typing import Any

from vcache_agent import tables
from vcache_agent.admin_client import ask
from vcache_agent.policies import POLICIES

_CONFIGURED = "configured"


def add_commands(commands: Any) -> None:
    """Add ``policy`` to the commands of ``vcache``."""
    policy = commands.add_parser("policy", help="show or set how pools are divided among tags")
    policy_commands = policy.add_subparsers(required=True, metavar="COMMAND")
    command = policy_commands.add_parser("show", help="show the policy and the share of each tag")
    command.add_argument("--json", action="store_true", help="print JSON")
    command.set_defaults(run=_show)
    command = policy_commands.add_parser(
        "set", help="set the policy",
        description="Set how pools are divided among tags. "
                    + "".join(f"{name}: {policy.meaning}. " for name, policy in POLICIES.items())
                    + f"{_CONFIGURED}: the policy in the agent's configuration. The change takes "
                    "effect at once, also under I/O, and stays until the next 'policy set'.")
    command.add_argument("policy", choices=[*POLICIES, _CONFIGURED])
    command.set_defaults(run=_set)


def _set(arguments: argparse.Namespace) -> None:
    name = None if arguments.policy == _CONFIGURED else arguments.policy
    ask(arguments.socket, {"op": "policy-set", "policy": name}, seconds=60.0)


def _show(arguments: argparse.Namespace) -> None:
    found = describe(ask(arguments.socket, {"op": "state"}))
    print(json.dumps(found, indent=2) if arguments.json else text(found))


def describe(state: dict[str, Any]) -> dict[str, Any]:
    """Return the policy and the tags of pools, as ``--json`` prints them."""
    pool_of = {item["device"]: item["cache"]["pool"] for item in state["devices"] if item["cache"]}
    return {"policy": state["policy"]["name"], "set": state["policy"]["set"], "tags": [
        {"pool": pool_of[item["device"]], **{name: item[name] for name in (
            "device", "tag", "name", "mode", "weight", "cache_min_bytes", "cache_max_bytes",
            "cache_share_bytes", "cached_bytes", "cache_lanes", "cache_own_bytes",
            "cache_hot_bytes")}}
        for item in state["tags"] if item["device"] in pool_of]}


def text(found: dict[str, Any]) -> str:
    """Return the result of :func:`describe` as a table."""
    said = "set by an operator" if found["set"] else "as configured"
    if not found["tags"]:
        return f"policy {found['policy']}, {said}; no tag has a cache"
    return f"policy {found['policy']}, {said}\n\n" + tables.table(
        ("POOL", "DEVICE", "TAG", "NAME", "MODE", "WEIGHT", "MIN", "MAX", "SHARE", "HAS", "LANES",
         "OWN", "HOT"),
        [(item["pool"], item["device"], item["tag"], item["name"], item["mode"], item["weight"],
          tables.size(item["cache_min_bytes"]),
          tables.size(item["cache_max_bytes"]) if item["cache_max_bytes"] else None,
          tables.size(item["cache_share_bytes"]), tables.size(item["cached_bytes"]),
          *_own(item))
         for item in found["tags"]])


def _own(item: dict[str, Any]) -> tuple[str | None, str | None, str | None]:
    """Return a tag's dedicated lanes, its bytes in them, and its hot bytes in shared lanes.

    :return: three times None if the tag has no dedicated lanes
    """
    if not item["cache_lanes"]:
        return None, None, None
    return (",".join(map(str, item["cache_lanes"])), tables.size(item["cache_own_bytes"]),
            tables.size(item["cache_hot_bytes"]))
