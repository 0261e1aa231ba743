# SPDX-License-Identifier: Apache-2.0
"""``openstack vcache flavor``: the keys ``vcache:*`` of flavors, and their Placement keys.

These commands use Nova only and do not need vcache-api. They validate the values
themselves, because openstacksdk uses a microversion with which nova-api does not.
"""

import argparse
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from openstack import exceptions as sdk_exc
from osc_lib import exceptions
from osc_lib.command import command

from nova_vcache import extra_specs
from nova_vcache.extra_specs import KEYS, PREFIX, InvalidExtraSpecs, Problem
from nova_vcache.osc import options
from nova_vcache.osc.columns import Lines, Specs
from nova_vcache.placement import flavor as compiler
from nova_vcache.placement import plan

_KNOWN = {key.key for key in KEYS}
_OPTIONS = ", ".join(options.option_of(key) for key in KEYS)


class SetFlavor(command.Command):
    """Set vcache:* keys of a flavor, and the matching resources:* and trait:* keys.

    Without an option, only update the matching keys.
    """

    def get_parser(self, prog_name: str) -> argparse.ArgumentParser:
        """Return the parser."""
        parser = super().get_parser(prog_name)
        _add_flavor(parser)
        options.add_keys(parser, KEYS)
        return parser

    def take_action(self, parsed_args: argparse.Namespace) -> None:
        """Change the flavor."""
        values = options.given(parsed_args, KEYS)
        _change(self.app.client_manager.sdk_connection.compute, parsed_args.flavor,
                {PREFIX + name: value for name, value in values.items()})


class UnsetFlavor(command.Command):
    """Delete vcache:* keys of a flavor, and update the matching resources:* and trait:* keys."""

    def get_parser(self, prog_name: str) -> argparse.ArgumentParser:
        """Return the parser."""
        parser = super().get_parser(prog_name)
        _add_flavor(parser)
        options.add_flags(parser, KEYS, "Delete")
        parser.add_argument("--all", action="store_true", help="Delete all vcache:* keys")
        return parser

    def take_action(self, parsed_args: argparse.Namespace) -> None:
        """Change the flavor."""
        names = options.given(parsed_args, KEYS)
        if bool(names) == parsed_args.all:
            raise exceptions.CommandError(f"Use either --all, or one or more of {_OPTIONS}.")
        _change(self.app.client_manager.sdk_connection.compute, parsed_args.flavor,
                None if parsed_args.all else {PREFIX + name: None for name in names})


class ShowFlavor(command.ShowOne):
    """Show the effective vcache:* values of a flavor, its Placement keys, and problems."""

    def get_parser(self, prog_name: str) -> argparse.ArgumentParser:
        """Return the parser."""
        parser = super().get_parser(prog_name)
        _add_flavor(parser)
        return parser

    def take_action(self, parsed_args: argparse.Namespace) -> tuple[Sequence[str], Any]:
        """Return names and values."""
        found = _find(self.app.client_manager.sdk_connection.compute, parsed_args.flavor)
        specs = dict(found.extra_specs)
        wrong = [text for *_, text in _wrong(specs)]
        try:
            values = extra_specs.parse(specs)
            holds = {key.name: getattr(values, key.name) for key in KEYS}
        except InvalidExtraSpecs:
            # Show the values as they are; the column "problems" has the errors.
            holds = {key.name: specs.get(key.key) for key in KEYS}
        names = ["id", "name", *holds, "placement", "problems"]
        return names, [found.id, found.name, *holds.values(),
                       Specs({key: value for key, value in sorted(specs.items())
                              if compiler.is_ours(key)}), Lines(wrong)]


class CheckFlavor(command.Lister):
    """List invalid vcache:* keys of flavors, and Placement keys that do not match them.

    The exit status is 1 if there is a problem.
    """

    _found = False

    def get_parser(self, prog_name: str) -> argparse.ArgumentParser:
        """Return the parser."""
        parser = super().get_parser(prog_name)
        parser.add_argument("flavors", metavar="<flavor>", nargs="*",
                            help="Name or ID of a flavor (all flavors, with private ones)")
        return parser

    def take_action(self, parsed_args: argparse.Namespace) -> tuple[Sequence[str], Any]:
        """Return columns and rows."""
        compute = self.app.client_manager.sdk_connection.compute
        flavors: Iterable[Any] = (
            [_find(compute, name) for name in parsed_args.flavors]
            if parsed_args.flavors else compute.flavors(get_extra_specs=True))
        rows = [[item.name, item.id, *columns] for item in flavors
                for *columns, _ in _wrong(item.extra_specs)]
        self._found = bool(rows)
        return ("Flavor", "ID", "Key", "Has", "Should Be", "Why"), rows

    def run(self, parsed_args: argparse.Namespace) -> int:
        """Run the command and return the exit status."""
        status = int(super().run(parsed_args))
        return status or int(self._found)


def _wrong(specs: Mapping[str, str]) -> list[tuple[str, str | None, str | None, str, str]]:
    """Return the problems of extra specs.

    :return: for each: key, current value, correct value, reason, and a complete sentence
    """
    try:
        return [(item.key, item.has, item.should, item.why, str(item))
                for item in compiler.disagreements(specs)]
    except InvalidExtraSpecs as error:
        return [(item.key, item.value, item.allowed, "the value is invalid", str(item))
                for item in error.problems]


def _add_flavor(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("flavor", metavar="<flavor>", help="Name or ID of the flavor")


def _find(compute: Any, name: str) -> Any:
    found = compute.find_flavor(name, get_extra_specs=True)
    if found is None:
        raise exceptions.CommandError(
            f"No flavor {name[:60]!r}. 'openstack flavor list --all' lists all flavors.")
    return found


def _change(compute: Any, name: str, changes: Mapping[str, str | None] | None) -> None:
    """Change a flavor.

    :param changes: values by key; a value None deletes the key; None: delete all vcache:* keys
    """
    found = _find(compute, name)
    specs = dict(found.extra_specs)
    if changes is None:
        changes = {key: None for key in specs if key.startswith(PREFIX)}
    try:
        wanted = plan.make(specs, changes)
    except InvalidExtraSpecs as error:
        raise exceptions.CommandError(_refusal(found, error.problems)) from error
    if wanted.values:
        compute.create_flavor_extra_specs(found, wanted.values)
    # Delete keys last. If a request fails in between, the flavor requests too much from
    # Placement, but never less than it guarantees to instances.
    for index, key in enumerate(wanted.gone):
        try:
            compute.delete_flavor_extra_specs_property(found, key)
        except sdk_exc.SDKException as error:
            raise exceptions.CommandError(
                f"Flavor {found.name!r}: could not delete {', '.join(wanted.gone[index:])}: "
                f"{error}. All other changes are done. Run the command again, or run 'openstack "
                "vcache flavor check'.") from error


def _refusal(found: Any, problems: tuple[Problem, ...]) -> str:
    text = f"Flavor {found.name!r} is unchanged: {'; '.join(map(str, problems))}."
    # Keys of the flavor that no option of this command can change.
    unknown = [item.key for item in problems if item.key not in _KNOWN]
    if unknown:
        words = " ".join(f"--property {key}" for key in unknown)
        text += f" 'openstack flavor unset {words} {found.name}' deletes the unknown keys."
    return text
