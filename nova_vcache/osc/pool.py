# SPDX-License-Identifier: Apache-2.0
"""The commands ``openstack vcache pool``."""

import argparse
from collections.abc import Sequence
from typing import Any

from osc_lib import exceptions
from osc_lib.command import command

from nova_vcache.client.rest import path_of
from nova_vcache.osc import options
from nova_vcache.osc.columns import Bytes

_COLUMNS = (("ID", "id"), ("State", "state"), ("Host State", "host_state"),
            ("Size", "size_bytes"), ("Used", "used_bytes"), ("Free", "free_bytes"),
            ("Guaranteed", "guaranteed_bytes"), ("Dirty", "dirty_bytes"), ("Volumes", "volumes"))


def _value(item: dict[str, Any], field: str) -> Any:
    value = item.get(field)
    return Bytes(value) if field.endswith("_bytes") else value


class ListPool(command.Lister):
    """List the pools of all hosts, or of one host."""

    def get_parser(self, prog_name: str) -> argparse.ArgumentParser:
        """Return the parser."""
        parser = super().get_parser(prog_name)
        parser.add_argument("--host", metavar="<node>", help="List only pools of this compute node")
        options.add_pages(parser)
        return parser

    def take_action(self, parsed_args: argparse.Namespace) -> tuple[Sequence[str], Any]:
        """Return columns and rows."""
        found = self.app.client_manager.vcache.list(
            "pools", "id", limit=parsed_args.limit, marker=parsed_args.marker,
            host=parsed_args.host)
        return ([title for title, _ in _COLUMNS],
                [[_value(item, field) for _, field in _COLUMNS] for item in found])


class SetPool(command.Command):
    """Change options of an active pool, until the pool is removed or the host shuts down."""

    def get_parser(self, prog_name: str) -> argparse.ArgumentParser:
        """Return the parser."""
        parser = super().get_parser(prog_name)
        _add_pool(parser)
        parser.add_argument("--reads-percent", type=int, metavar="<0-100>",
                            help="Reclaim read chunks of a disk first if they are more than this "
                                 "percentage of its chunks")
        parser.add_argument("--hot-percent", type=int, metavar="<0-100>",
                            help="If more than this percentage of a disk's data in shared lanes "
                                 "is hot, exchange it with colder data in its dedicated lanes; "
                                 "100: never")
        return parser

    def take_action(self, parsed_args: argparse.Namespace) -> None:
        """Change the pool."""
        body = {name: value for name in ("reads_percent", "hot_percent")
                if (value := getattr(parsed_args, name)) is not None}
        if not body:
            raise exceptions.CommandError(
                "Nothing to set: use --reads-percent or --hot-percent.")
        self.app.client_manager.vcache.patch(_path(parsed_args.pool), body)


class ShowPool(command.ShowOne):
    """Show one pool."""

    def get_parser(self, prog_name: str) -> argparse.ArgumentParser:
        """Return the parser."""
        parser = super().get_parser(prog_name)
        _add_pool(parser)
        return parser

    def take_action(self, parsed_args: argparse.Namespace) -> tuple[Sequence[str], Any]:
        """Return names and values."""
        found = self.app.client_manager.vcache.get(_path(parsed_args.pool))["pool"]
        return list(found), [_value(found, field) for field in found]


def _add_pool(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("pool", metavar="<node>/<pool>",
                        help="ID of the pool; see 'openstack vcache pool list'")


def _path(ident: str) -> str:
    node, _, pool = ident.partition("/")
    if not node or not pool:
        raise exceptions.CommandError(
            f"{ident!r} is not the ID of a pool, must be <node>/<pool>; see 'openstack vcache "
            "pool list'.")
    return path_of("hosts", node, "pools", pool)
