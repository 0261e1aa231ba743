# SPDX-License-Identifier: Apache-2.0
"""The commands ``openstack vcache host``."""

import argparse
import time
from collections.abc import Sequence
from typing import Any

from osc_lib import exceptions
from osc_lib.command import command

from nova_vcache.client.rest import Client, path_of
from nova_vcache.osc import options
from nova_vcache.osc.columns import Bytes, Drain, Words, size

# Name of the agent's configured policy, which is null in the API.
_CONFIGURED = "configured"

_SHORT = (("Node", "node"), ("State", "state"), ("Draining", "draining"),
          ("Instances", "instances"), ("Cache MiB", "cache_mb"),
          ("Cache Free MiB", "cache_free_mb"), ("Tags Free", "tags_free"),
          ("Dirty", "dirty_bytes"), ("Problem", "problem"))
_LONG = (("Drain", "drain"), ("Modes", "modes"), ("Policy", "policy"),
         ("Flush Isolation", "flush_isolation"),
         ("Pools", "pools"), ("Largest Free MiB", "largest_free_mb"), ("Idle MiB", "idle_mb"),
         ("Lanes Free", "lanes_free"), ("Flush p99 ms", "flush_p99_ms"),
         ("Read p99 us", "read_p99_us"),
         ("Objectives", "slo_tags"), ("Missed", "slo_missed"), ("Age s", "age_s"))

_FORMATTERS = {"dirty_bytes": Bytes, "drain": Drain, "modes": Words}

# Seconds between two checks of a host that drains.
_LOOK = 1.0


def _value(item: dict[str, Any], field: str) -> Any:
    value = item.get(field)
    return _FORMATTERS[field](value) if field in _FORMATTERS and value is not None else value


class ListHost(command.Lister):
    """List the hosts that have a cache."""

    def get_parser(self, prog_name: str) -> argparse.ArgumentParser:
        """Return the parser."""
        parser = super().get_parser(prog_name)
        parser.add_argument("--long", action="store_true", help="List additional columns")
        options.add_pages(parser)
        return parser

    def take_action(self, parsed_args: argparse.Namespace) -> tuple[Sequence[str], Any]:
        """Return columns and rows."""
        columns = _SHORT + (_LONG if parsed_args.long else ())
        found = self.app.client_manager.vcache.list(
            "hosts", "node", limit=parsed_args.limit, marker=parsed_args.marker)
        return ([title for title, _ in columns],
                [[_value(item, field) for _, field in columns] for item in found])


class ShowHost(command.ShowOne):
    """Show one host."""

    def get_parser(self, prog_name: str) -> argparse.ArgumentParser:
        """Return the parser."""
        parser = super().get_parser(prog_name)
        _add_node(parser)
        return parser

    def take_action(self, parsed_args: argparse.Namespace) -> tuple[Sequence[str], Any]:
        """Return names and values."""
        found = _get(self.app.client_manager.vcache, parsed_args.node)
        # Show all fields, because version 1 of the API may get more.
        return list(found), [_value(found, field) for field in found]


class SetHost(command.Command):
    """Set the policy of a host's pools, or start or stop draining the host."""

    def get_parser(self, prog_name: str) -> argparse.ArgumentParser:
        """Return the parser."""
        parser = super().get_parser(prog_name)
        _add_node(parser)
        parser.add_argument(
            "--policy", choices=["static", "weighted", "throughput", "mrc", _CONFIGURED],
            help=f"How the pools are divided; {_CONFIGURED}: the policy in the agent's "
                 "configuration")
        drain = parser.add_mutually_exclusive_group()
        drain.add_argument("--draining", action="store_true", default=None,
                           help="Accept no more instances, and write all dirty data to the "
                                "origins")
        drain.add_argument("--no-draining", dest="draining", action="store_false", default=None,
                           help="Accept instances again")
        return parser

    def take_action(self, parsed_args: argparse.Namespace) -> None:
        """Change the host."""
        body: dict[str, Any] = {}
        if parsed_args.policy is not None:
            body["policy"] = None if parsed_args.policy == _CONFIGURED else parsed_args.policy
        if parsed_args.draining is not None:
            body["draining"] = parsed_args.draining
        if not body:
            raise exceptions.CommandError(
                "Nothing to set: use --policy, --draining or --no-draining.")
        self.app.client_manager.vcache.patch(path_of("hosts", parsed_args.node), body)


class DrainHost(command.Command):
    """Drain a host: it accepts no more instances and writes all dirty data to the origins."""

    def get_parser(self, prog_name: str) -> argparse.ArgumentParser:
        """Return the parser."""
        parser = super().get_parser(prog_name)
        _add_node(parser)
        parser.add_argument("--wait", action="store_true",
                            help="Wait until its pools have no dirty data")
        parser.add_argument("--timeout", metavar="<seconds>", type=float, default=3600.0,
                            help="Time limit of --wait, after which the command fails (default: "
                                 "%(default)g)")
        return parser

    def take_action(self, parsed_args: argparse.Namespace) -> None:
        """Start to drain the host."""
        client, node = self.app.client_manager.vcache, parsed_args.node
        client.patch(path_of("hosts", node), {"draining": True})
        end = time.monotonic() + parsed_args.timeout
        while parsed_args.wait:
            left = _left(client, node)
            if not left:
                return
            if time.monotonic() >= end:
                raise exceptions.CommandError(
                    f"Host {node!r} is not drained after {parsed_args.timeout:g} s: {left}. "
                    "The host continues to drain; 'openstack vcache host set --no-draining' "
                    "stops that.")
            time.sleep(_LOOK)


def _left(client: Client, node: str) -> str:
    """Return why a host is not drained yet; empty: it is."""
    host = _get(client, node)
    if host["state"] != "up":
        return f"it is {host['state']}: {host['problem'] or 'its dirty data is unknown'}"
    # Another process of the API may not have the latest report yet.
    if not host["draining"]:
        return "it has not reported yet that it drains"
    if host["dirty_bytes"]:
        return f"its instances have {size(host['dirty_bytes'])} of dirty data"
    # The pools also count dirty data of stopped instances.
    pools = client.list("pools", "id", host=node)
    dirty = [f"{item['name']} {size(item['dirty_bytes'])}"
             for item in pools if item["dirty_bytes"]]
    return f"dirty data in pools: {', '.join(dirty)}" if dirty else ""


def _add_node(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("node", metavar="<node>",
                        help="Name of the compute node; see 'openstack vcache host list'")


def _get(client: Client, node: str) -> dict[str, Any]:
    found: dict[str, Any] = client.get(path_of("hosts", node))["host"]
    return found
