# SPDX-License-Identifier: Apache-2.0
"""nova-api's validators of ``vcache:*``; entry point ``nova.api.extra_spec_validators``.

They are made of the schema, :mod:`nova_vcache.extra_specs`, and answer with its
messages. Nova's own class checks by regular expression and says neither which
key is wrong nor, of integers, that both limits exist.

Nova shows a validator one key at a time, and only what a request changes, so
what contradicts another key (``min_mb`` above ``max_mb``) passes here; the
scheduler's filter, ``nova_vcache.placement.flavor`` and the agent see all of them.
"""

import dataclasses
from typing import Any

from nova import exception
from nova.api.validation.extra_specs import base

from nova_vcache import extra_specs
from nova_vcache.extra_specs import InvalidExtraSpecs, Key, Kind

#: Type by which Nova describes a value; it has none for fractions.
_NOVA_TYPES: dict[Kind, type] = {
    Kind.CHOICE: str, Kind.INTEGER: int, Kind.NUMBER: str, Kind.BOOLEAN: bool}


@dataclasses.dataclass
class VCacheValidator(base.ExtraSpecValidator):
    """A validator that asks the schema, whatever Nova's description of it says."""

    def validate(self, name: str, value: str) -> None:
        """Check one extra spec.

        :raises nova.exception.ValidationError: naming the key and what is allowed
        """
        try:
            extra_specs.parse({name: value})
        except InvalidExtraSpecs as error:
            raise exception.ValidationError(f"Validation failed; {error}.") from None


def _describe(key: Key) -> dict[str, Any]:
    """Return a value's type and limits as Nova describes them."""
    value: dict[str, Any] = {"type": _NOVA_TYPES[key.kind], "description": key.allowed}
    if key.choices is not None:
        value["enum"] = [choice.value for choice in key.choices]
    elif key.kind is Kind.INTEGER:
        value |= {"min": key.minimum, "max": key.maximum}
    return value


def register() -> list[VCacheValidator]:
    """Return the validators, as Nova asks its plug-ins for them."""
    known = [VCacheValidator(name=key.key, description=key.doc, value=_describe(key))
             for key in extra_specs.KEYS]
    # Nova looks for an exact name first. What this one gets is a key that is
    # not known: the schema's message lists those that are.
    unknown = VCacheValidator(
        name=extra_specs.PREFIX + "{key}", description="Any other key; refused.",
        value={"type": str}, parameters=[{"name": "key", "pattern": ".*"}])
    return [*known, unknown]
