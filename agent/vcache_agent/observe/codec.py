# SPDX-License-Identifier: Apache-2.0
"""Convert samples to and from JSON values.

The fields are those of the dataclasses. A field that has its default value is left out, so
a reader of a later version, with more fields, still reads earlier recordings. Curves end where
they become constant.
"""

import dataclasses
import enum
import functools
import math
import types
import typing
from collections.abc import Callable, Sequence
from typing import Any, TypeVar

from vcache_agent.model import Curve, DeviceNumber
from vcache_agent.observe.claim import Claim, PoolSize
from vcache_agent.observe.sample import Sample

Part = TypeVar("Part", Claim, PoolSize)


class FieldError(ValueError):
    """A value is not of the type of its field; the text names the field."""


def encode(sample: Sample) -> dict[str, Any]:
    """Return a sample as a JSON object."""
    return _object(sample)


def encode_part(part: Claim | PoolSize) -> dict[str, Any]:
    """Return a part of a sample as a JSON object."""
    return _object(part)


def decode_parts(value: Any, kind: type[Part], where: str) -> tuple[Part, ...]:
    """Return parts of a sample from a JSON list.

    :param where: name of the list, for messages
    :raises FieldError: if the value is not a list of what :func:`encode_part` returns
    """
    found: tuple[Part, ...] = _many(types.GenericAlias(tuple, (kind, ...)), value, where)
    return found


def decode(value: Any) -> Sample:
    """Return the sample of a JSON object.

    :raises FieldError: if the value is not what :func:`encode` returns
    """
    found = _decode(Sample, value, "")
    assert isinstance(found, Sample)  # noqa: S101 - for mypy
    return found


def _object(value: Any) -> dict[str, Any]:
    return {field.name: _encode(item) for field in dataclasses.fields(value)
            if (item := getattr(value, field.name)) != field.default}


def _encode(value: Any) -> Any:
    if isinstance(value, Curve):
        value = value.short()
    if dataclasses.is_dataclass(value):
        return _object(value)
    if isinstance(value, DeviceNumber):
        return str(value)
    if isinstance(value, enum.Enum):
        return value.name
    if isinstance(value, frozenset):
        return sorted(value)
    if isinstance(value, tuple) and _all_int(value):
        return value
    return [_encode(item) for item in value] if isinstance(value, tuple) else value


@functools.cache
def _fields(kind: type) -> tuple[dict[str, Any], tuple[str, ...]]:
    """Return the types of the fields of a dataclass by name, and the names that are required."""
    hints = typing.get_type_hints(kind)
    fields = dataclasses.fields(kind)
    return {field.name: hints[field.name] for field in fields}, tuple(
        field.name for field in fields if field.default is dataclasses.MISSING)


def _decode(kind: Any, value: Any, where: str) -> Any:
    # Most values are counters, and a recording of a week has a hundred million.
    if kind is int and type(value) is int and value >= 0:
        return value
    return _decoder(kind)(kind, value, where)


@functools.cache
def _decoder(kind: Any) -> Callable[[Any, Any, str], Any]:
    """Return the function that decodes values of a type."""
    if kind is DeviceNumber:
        return lambda _, value, where: _number(value, where)
    if isinstance(kind, types.GenericAlias):
        return _many
    if dataclasses.is_dataclass(kind):
        return _dataclass
    return _enum if issubclass(kind, enum.Enum) else _plain


def _enum(kind: Any, value: Any, where: str) -> Any:
    if not isinstance(value, str) or value not in kind.__members__:
        raise FieldError(f"{where} must be one of {', '.join(kind.__members__)}, "
                         f"is {_shown(value)}")
    return kind[value]


def _dataclass(kind: Any, value: Any, where: str) -> Any:
    if not isinstance(value, dict):
        raise FieldError(f"{where or 'a sample'} must be an object, is {_shown(value)}")
    fields, required = _fields(kind)
    prefix = f"{where}." if where else ""
    if not fields.keys() >= value.keys():
        name = next(name for name in value if name not in fields)
        raise FieldError(f"{prefix}{name[:40]} is unknown, must be one of "
                         f"{', '.join(fields)}")
    for name in required:
        if name not in value:
            raise FieldError(f"{prefix}{name} is missing")
    return kind(**{name: _decode(fields[name], item, prefix + name)
                   for name, item in value.items()})


def _many(kind: types.GenericAlias, value: Any, where: str) -> Any:
    """Return a tuple or frozenset of values of one type."""
    if not isinstance(value, list):
        raise FieldError(f"{where} must be a list, is {_shown(value)}")
    inner = typing.get_args(kind)[0]
    # Curves are long, so their items are not looked at one by one unless one is wrong.
    if inner is int and _all_int(value) and min(value) >= 0:
        return typing.get_origin(kind)(value)
    return typing.get_origin(kind)(
        [_decode(inner, item, f"{where}[{at}]") for at, item in enumerate(value)])


def _all_int(values: Sequence[Any]) -> bool:
    """Return True if there are values, and all are integers."""
    return set(map(type, values)) == {int}


def _number(value: Any, where: str) -> DeviceNumber:
    parts = value.split(":") if isinstance(value, str) else []
    if len(parts) != 2 or not all(part.isascii() and part.isdigit() for part in parts):
        raise FieldError(f"{where} must be a device number such as '254:0', is {_shown(value)}")
    return DeviceNumber(int(parts[0]), int(parts[1]))


def _plain(kind: Any, value: Any, where: str) -> Any:
    if kind is float and type(value) in (int, float) and math.isfinite(value):
        return float(value)
    if type(value) is kind and kind in (int, str, bool) and (kind is not int or value >= 0):
        return value
    wanted = {int: "an integer of at least 0", float: "a finite number", str: "a string",
              bool: "true or false"}[kind]
    raise FieldError(f"{where} must be {wanted}, is {_shown(value)}")


def _shown(value: Any) -> str:
    return repr(value)[:60]
