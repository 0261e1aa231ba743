# SPDX-License-Identifier: Apache-2.0
"""The changes that make a flavor's Placement keys match its ``vcache:*`` keys."""

import dataclasses
from collections.abc import Mapping

from nova_vcache.placement import flavor as compiler


@dataclasses.dataclass(frozen=True)
class Plan:
    """Changes of a flavor's extra specs.

    :param values: keys to set, in one request
    :param gone: keys to delete, sorted
    """

    values: dict[str, str]
    gone: tuple[str, ...]


def make(before: Mapping[str, str], changes: Mapping[str, str | None]) -> Plan:
    """Return the complete changes for changes of ``vcache:*`` keys.

    :param before: all extra specs of the flavor
    :param changes: values by key; None: delete the key
    :raises nova_vcache.extra_specs.InvalidExtraSpecs: if the result is invalid
    """
    after = _changed(before, changes)
    # Apply the corrections of "flavor check", so that it finds no problem afterwards.
    # Optional traits, which it permits, are kept.
    after = _changed(after, {item.key: item.should for item in compiler.disagreements(after)})
    return Plan({key: value for key, value in after.items() if before.get(key) != value},
                tuple(sorted(before.keys() - after.keys())))


def _changed(specs: Mapping[str, str], changes: Mapping[str, str | None]) -> dict[str, str]:
    return {key: value for key, value in {**specs, **changes}.items() if value is not None}
