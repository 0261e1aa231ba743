# SPDX-License-Identifier: Apache-2.0
"""The extra specs of a flavor that belong to the cache."""

from collections.abc import Mapping

from nova_vcache.extra_specs import PREFIX, InvalidExtraSpecs
from nova_vcache.placement import flavor as compiler


def is_ours(key: str) -> bool:
    """Return True if an extra spec is a key vcache:* or one of its Placement keys."""
    return key.startswith(PREFIX) or compiler.is_ours(key)


def problems(specs: Mapping[str, str]) -> list[str]:
    """Return what is wrong with the extra specs of a flavor, as sentences."""
    try:
        return [str(item) for item in compiler.disagreements(specs)]
    except InvalidExtraSpecs as error:
        return [str(item) for item in error.problems]
