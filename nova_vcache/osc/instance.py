# SPDX-License-Identifier: Apache-2.0
"""The commands ``openstack vcache instance``: show instances, and override their flavor."""

import argparse
import uuid
from collections.abc import Sequence
from typing import Any

from osc_lib import exceptions
from osc_lib.command import command

from nova_vcache import extra_specs
from nova_vcache.client.rest import path_of
from nova_vcache.extra_specs import OVERRIDABLE, Kind
from nova_vcache.osc import options
from nova_vcache.osc.columns import Bytes, Disks, Lines, Objectives, Specs, size, verdict

_KEYS = [key for key in extra_specs.KEYS if key.name in OVERRIDABLE]
_OPTIONS = ", ".join(options.option_of(key) for key in _KEYS)

_COLUMNS = ("UUID", "Project", "Phase", "Mode", "Weight", "Cached", "Dirty", "Missed", "Stale")
# Those of a newer API.
_NEW_COLUMNS = ("SLO State", "Hit Ratio", "Flush p99 us")
_FORMATTERS = {"specs": Specs, "flavor": Specs, "override": Specs, "disks": Disks,
               "objectives": Objectives}

_STATES = ("met", "missed", "unknown", "none")
_SORT_KEYS = ("uuid", "host", "mode", "slo_state")
# First microversion with what is not in 1.0.
_SELECTING = _EXPLAINING = "1.2"


def _sum(item: dict[str, Any], field: str) -> Bytes:
    known = [disk[field] for disk in item["disks"] if disk.get(field) is not None]
    return Bytes(sum(known) if known else None)


def _row(item: dict[str, Any]) -> list[Any]:
    return [item["uuid"], item["project_id"], item["phase"], item["specs"].get("mode"),
            item["specs"].get("weight"), _sum(item, "cached_bytes"), _sum(item, "dirty_bytes"),
            item["slo_missed"], item["stale"]]


def _new(item: dict[str, Any]) -> list[Any]:
    return [item.get("slo_state"), item.get("hit_ratio"), item.get("flush_p99_us")]


def _sorting(text: str) -> tuple[str, str]:
    """Return field and direction of an option --sort."""
    key, _, direction = text.partition(":")
    if key not in _SORT_KEYS or direction not in ("", "asc", "desc"):
        raise argparse.ArgumentTypeError(
            f"{text[:60]!r} is not allowed, must be one of {', '.join(_SORT_KEYS)}, with :asc or "
            ":desc, or without")
    return key, direction or "asc"


class ListInstance(command.Lister):
    """List the running instances."""

    def get_parser(self, prog_name: str) -> argparse.ArgumentParser:
        """Return the parser."""
        parser = super().get_parser(prog_name)
        parser.add_argument("--all-projects", action="store_true", default=None,
                            help="List instances of all projects (admin only)")
        parser.add_argument("--project", metavar="<project>",
                            help="List instances of this project, by name or ID (admin only)")
        parser.add_argument("--host", metavar="<node>",
                            help="List only instances on this compute node (admin only)")
        parser.add_argument("--mode", choices=list(extra_specs.Mode),
                            help="List only instances whose flavor requests this mode")
        parser.add_argument("--slo-state", choices=_STATES,
                            help="List only instances in this state: an objective is missed, all "
                                 "that could be measured are met, none could be measured, or "
                                 "there is none")
        parser.add_argument("--sort", metavar="<key>[:<direction>]", type=_sorting,
                            help=f"Sort by one of {', '.join(_SORT_KEYS)} (host: admin only), asc "
                                 "(default) or desc")
        options.add_pages(parser)
        return parser

    def take_action(self, parsed_args: argparse.Namespace) -> tuple[Sequence[str], Any]:
        """Return columns and rows."""
        manager = self.app.client_manager
        project = parsed_args.project
        if project is not None:
            project = manager.sdk_connection.identity.find_project(
                project, ignore_missing=False).id
        key, direction = parsed_args.sort or (None, None)
        for option, value in (("--mode", parsed_args.mode), ("--slo-state", parsed_args.slo_state),
                              ("--sort", key)):
            if value is not None:
                manager.vcache.require(_SELECTING, option)
        found = manager.vcache.list(
            "instances", "uuid", limit=parsed_args.limit, marker=parsed_args.marker,
            all_projects=parsed_args.all_projects, project_id=project, host=parsed_args.host,
            mode=parsed_args.mode, slo_state=parsed_args.slo_state, sort_key=key,
            sort_dir=direction)
        columns, rows = list(_COLUMNS), [_row(item) for item in found]
        if any("slo_state" in item for item in found):
            columns += _NEW_COLUMNS
            rows = [row + _new(item) for row, item in zip(rows, found, strict=True)]
        # Omit the columns for users who may not see hosts.
        if any("host" in item for item in found):
            columns += ["Host", "Problem"]
            rows = [[*row, item.get("host"), item.get("problem")]
                    for row, item in zip(rows, found, strict=True)]
        return columns, rows


class _OfInstance(command.Command):
    """A command about one instance."""

    def get_parser(self, prog_name: str) -> argparse.ArgumentParser:
        """Return the parser."""
        parser: argparse.ArgumentParser = super().get_parser(prog_name)
        parser.add_argument("server", metavar="<server>",
                            help="UUID of the instance, or its name if it is in your project")
        return parser


class ShowInstance(_OfInstance, command.ShowOne):
    """Show one instance."""

    def take_action(self, parsed_args: argparse.Namespace) -> tuple[Sequence[str], Any]:
        """Return names and values."""
        manager = self.app.client_manager
        found = manager.vcache.get(path_of("instances", _uuid(manager, parsed_args.server)))
        item: dict[str, Any] = found["instance"]
        return list(item), [_FORMATTERS[name](value) if name in _FORMATTERS else value
                            for name, value in item.items()]


class ExplainInstance(_OfInstance, command.Lister):
    """Explain what an instance gets: its objectives, and the decisions about its disks."""

    def take_action(self, parsed_args: argparse.Namespace) -> tuple[Sequence[str], Any]:
        """Return columns and rows."""
        manager = self.app.client_manager
        manager.vcache.require(_EXPLAINING, "This command")
        at = _uuid(manager, parsed_args.server)
        item = manager.vcache.get(path_of("instances", at))["instance"]
        rows = [[one["disk"], one["objective"], verdict(one),
                 Lines([one["text"]] if one.get("text") else [])] for one in item["objectives"]]
        for disk in manager.vcache.get(path_of("instances", at, "why"))["disks"]:
            rows += [[disk["disk"], one["what"], _decided(one["value"]), Lines(one["because"])]
                     for one in disk["decisions"]]
            if disk["notes"]:
                rows.append([disk["disk"], "notes", "", Lines(disk["notes"])])
        return ("Disk", "What", "Value", "Because"), rows


class CurveInstance(_OfInstance, command.Lister):
    """List the miss-ratio curves of an instance: what a smaller or larger cache would miss."""

    def take_action(self, parsed_args: argparse.Namespace) -> tuple[Sequence[str], Any]:
        """Return columns and rows."""
        manager = self.app.client_manager
        manager.vcache.require(_EXPLAINING, "This command")
        found = manager.vcache.get(path_of("instances", _uuid(manager, parsed_args.server),
                                           "curves"))["curves"]
        return (("Disk", "Cache", "Read Miss Ratio", "Write Miss Ratio"),
                [[curve["disk"], Bytes(point["size_bytes"]), point["read_miss_ratio"],
                  point["write_miss_ratio"]] for curve in found for point in curve["points"]])


class SetInstance(_OfInstance):
    """Set the weight and objectives of a running instance, which overrides its flavor."""

    def get_parser(self, prog_name: str) -> argparse.ArgumentParser:
        """Return the parser."""
        parser = super().get_parser(prog_name)
        options.add_keys(parser, _KEYS)
        return parser

    def take_action(self, parsed_args: argparse.Namespace) -> None:
        """Change the instance."""
        texts = options.given(parsed_args, _KEYS)
        if not texts:
            raise exceptions.CommandError(f"Nothing to set: use one or more of {_OPTIONS}.")
        kinds = {key.name: key.kind for key in _KEYS}
        _change(self.app.client_manager, parsed_args.server, {
            name: int(text) if kinds[name] is Kind.INTEGER else float(text)
            for name, text in texts.items()})


class UnsetInstance(_OfInstance):
    """Return to the flavor's weight and objectives of an instance."""

    def get_parser(self, prog_name: str) -> argparse.ArgumentParser:
        """Return the parser."""
        parser = super().get_parser(prog_name)
        options.add_flags(parser, _KEYS, "Return to the flavor's value of")
        parser.add_argument("--all", action="store_true",
                            help="Return to all values of the flavor")
        return parser

    def take_action(self, parsed_args: argparse.Namespace) -> None:
        """Change the instance."""
        names = options.given(parsed_args, _KEYS)
        if bool(names) == parsed_args.all:
            raise exceptions.CommandError(f"Use either --all, or one or more of {_OPTIONS}.")
        manager = self.app.client_manager
        if parsed_args.all:
            manager.vcache.delete(
                path_of("instances", _uuid(manager, parsed_args.server), "override"))
        else:
            _change(manager, parsed_args.server, dict.fromkeys(names))


def _decided(value: Any) -> str:
    """Return the value of a decision as text."""
    if isinstance(value, list):
        return ", ".join(map(str, value))
    if isinstance(value, dict):
        return "\n".join(f"{name.removesuffix('_bytes')} {size(amount) or 'unlimited'}"
                         for name, amount in value.items())
    return "unknown" if value is None else str(value)


def _change(manager: Any, server: str, values: dict[str, Any]) -> None:
    manager.vcache.patch(path_of("instances", _uuid(manager, server), "override"), values)


def _uuid(manager: Any, server: str) -> str:
    """Return the UUID of an instance. Nova resolves names, which vcache-api does not know."""
    try:
        return str(uuid.UUID(server))
    except ValueError:
        found = manager.sdk_connection.compute.find_server(server, details=False)
    if found is None:
        raise exceptions.CommandError(
            f"No server {server[:60]!r} in this project. Use the UUID of a server in another "
            "project.")
    return str(found.id)
