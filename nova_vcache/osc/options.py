# SPDX-License-Identifier: Apache-2.0
"""Options of several commands; those for ``vcache:*`` come from the schema."""

import argparse
from collections.abc import Callable, Iterable
from typing import Any

from nova_vcache import extra_specs
from nova_vcache.extra_specs import InvalidExtraSpecs, Key, Kind


def option_of(key: Key) -> str:
    """Return the option of a key."""
    return "--" + key.name.replace("_", "-")


def add_keys(parser: argparse.ArgumentParser, keys: Iterable[Key]) -> None:
    """Add an option with a value for each key; values are texts, or None if absent."""
    for key in keys:
        if key.kind is Kind.BOOLEAN:
            both = parser.add_mutually_exclusive_group()
            both.add_argument(option_of(key), dest=key.name, action="store_const", const="true",
                              help=key.doc)
            both.add_argument(f"--no-{option_of(key)[2:]}", dest=key.name, action="store_const",
                              const="false", help=f"Set {key.key} to false (the default)")
            continue
        parser.add_argument(option_of(key), dest=key.name, metavar=f"<{option_of(key)[2:]}>",
                            type=_text_of(key), choices=_choices(key),
                            help=f"{key.doc} Must be {key.allowed}.".replace("%", "%%"))


def add_flags(parser: argparse.ArgumentParser, keys: Iterable[Key], what: str) -> None:
    """Add an option without a value for each key.

    :param what: help text before the name of the key
    """
    for key in keys:
        parser.add_argument(option_of(key), dest=key.name, action="store_true",
                            help=f"{what} {key.key}")


def given(arguments: argparse.Namespace, keys: Iterable[Key]) -> dict[str, Any]:
    """Return the options that were given, by name of the key."""
    found = {key.name: getattr(arguments, key.name) for key in keys}
    return {name: value for name, value in found.items() if value not in (None, False)}


def add_pages(parser: argparse.ArgumentParser) -> None:
    """Add the options for parts of a list."""
    parser.add_argument("--limit", metavar="<number>", type=_positive,
                        help="Largest number of items to list (all)")
    parser.add_argument("--marker", metavar="<id>", help="List the items after this ID")


def _choices(key: Key) -> list[str] | None:
    # For the shell completion of osc.
    return None if key.choices is None else [choice.value for choice in key.choices]


def _text_of(key: Key) -> Callable[[str], str]:
    def check(text: str) -> str:
        if key.choices is None:
            try:
                extra_specs.parse({key.key: text})
            except InvalidExtraSpecs:
                raise argparse.ArgumentTypeError(
                    f"{text[:60]!r} is not allowed, must be {key.allowed}") from None
        return text
    return check


def _positive(text: str) -> int:
    if not text.isascii() or not text.isdigit() or int(text[:18]) < 1:
        raise argparse.ArgumentTypeError(f"{text[:60]!r} is not allowed, must be an integer of "
                                         "at least 1")
    return int(text)
