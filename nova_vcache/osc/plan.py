# SPDX-License-Identifier: Apache-2.0
"""What has to be changed of a flavor so that its keys for Placement go with ``vcache:*``."""

import dataclasses
from collections.abc import Mapping

from nova_vcache.placement import flavor as compiler


@dataclasses.dataclass(frozen=True)
class Plan:
    """What to change of a flavor's extra specs.

    :param values: to set, in one request
    :param gone: to delete, sorted
    """

    values: dict[str, str]
    gone: tuple[str, ...]


def make(before: Mapping[str, str], changes: Mapping[str, str | None]) -> Plan:
    """Return what changes of ``vcache:*`` come to, with what Placement needs to know.

    :param before: all extra specs of the flavor
    :param changes: None: delete
    :raises nova_vcache.extra_specs.InvalidExtraSpecs: if the flavor could not be used then
    """
    after = _changed(before, changes)
    # The check of flavors says what is to be done: so it has nothing to say afterwards, and
    # what it lets an operator add stays.
    after = _changed(after, {item.key: item.should for item in compiler.disagreements(after)})
    return Plan({key: value for key, value in after.items() if before.get(key) != value},
                tuple(sorted(before.keys() - after.keys())))


def _changed(specs: Mapping[str, str], changes: Mapping[str, str | None]) -> dict[str, str]:
    return {key: value for key, value in {**specs, **changes}.items() if value is not None}
