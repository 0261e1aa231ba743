# SPDX-License-Identifier: Apache-2.0
"""nova-api's validators of ``vcache:*``; entry point ``nova.api.extra_spec_validators``.

They use the schema in :mod:`nova_vcache.extra_specs` and its messages. Nova's own
class checks by a regular expression. Its messages do not name the key, nor both
limits of an integer.

Nova passes one key at a time to a validator, and only keys that a request changes.
So a contradiction between keys (``min_mb`` above ``max_mb``) is not detected here. The
scheduler's filter, ``nova_vcache.placement.flavor`` and the agent check all keys.
"""

import dataclasses
from typing import Any

from nova import exception
from nova.api.validation.extra_specs import base

from nova_vcache import extra_specs
from nova_vcache.extra_specs import InvalidExtraSpecs, Key, Kind

#: Nova's type of a value; Nova has no type for fractions.
_NOVA_TYPES: dict[Kind, type] = {
    Kind.CHOICE: str, Kind.INTEGER: int, Kind.NUMBER: str, Kind.BOOLEAN: bool}


@dataclasses.dataclass
class VCacheValidator(base.ExtraSpecValidator):
    """A validator that uses the schema instead of Nova's description of the value."""

    def validate(self, name: str, value: str) -> None:
        """Check one extra spec.

        :raises nova.exception.ValidationError: names the key and the allowed values
        """
        try:
            extra_specs.check({name: value})
        except InvalidExtraSpecs as error:
            raise exception.ValidationError(f"Validation failed; {error}.") from None


def _describe(key: Key) -> dict[str, Any]:
    """Return the type and the limits of a value in Nova's format."""
    value: dict[str, Any] = {"type": _NOVA_TYPES[key.kind], "description": key.allowed}
    if key.choices is not None:
        value["enum"] = [choice.value for choice in key.choices]
    elif key.kind is Kind.INTEGER:
        value |= {"min": key.minimum, "max": key.maximum}
    return value


def register() -> list[VCacheValidator]:
    """Return the validators; Nova calls this function of its plug-ins."""
    known = [VCacheValidator(name=key.key, description=key.doc, value=_describe(key))
             for key in extra_specs.KEYS]
    # Nova looks for an exact name first, so this validator gets the unknown keys. The
    # schema's message lists the known ones.
    unknown = VCacheValidator(
        name=extra_specs.PREFIX + "{key}", description="Any other key; always rejected.",
        value={"type": str}, parameters=[{"name": "key", "pattern": ".*"}])
    return [*known, unknown]
