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
    found: tuple[Part, ...] = _decoder(types.GenericAlias(tuple, (kind, ...)))(value, where)
    return found


def decode(value: Any) -> Sample:
    """Return the sample of a JSON object.

    :raises FieldError: if the value is not what :func:`encode` returns
    """
    found = _decoder(Sample)(value, "")
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


#: Decodes a value; the second argument names it in messages.
Decoder = Callable[[Any, str], Any]


@functools.cache
def _decoder(kind: Any) -> Decoder:
    """Return the function that decodes values of a type."""
    if kind is DeviceNumber:
        return _number
    if isinstance(kind, types.GenericAlias):
        return _many(kind)
    if dataclasses.is_dataclass(kind):
        assert isinstance(kind, type)  # noqa: S101 - for mypy
        return _dataclass(kind)
    return functools.partial(_enum if issubclass(kind, enum.Enum) else _plain, kind)


def _enum(kind: Any, value: Any, where: str) -> Any:
    if not isinstance(value, str) or value not in kind.__members__:
        raise FieldError(f"{where} must be one of {', '.join(kind.__members__)}, "
                         f"is {_shown(value)}")
    return kind[value]


def _dataclass(kind: type) -> Decoder:
    hints = typing.get_type_hints(kind)
    fields = dataclasses.fields(kind)
    decoders = {field.name: _decoder(hints[field.name]) for field in fields}
    # Most values are counters, and a recording of a week has a hundred million.
    counters = frozenset(name for name in decoders if hints[name] is int)
    required = tuple(field.name for field in fields if field.default is dataclasses.MISSING)

    def decode_object(value: Any, where: str) -> Any:
        if not isinstance(value, dict):
            raise FieldError(f"{where or 'a sample'} must be an object, is {_shown(value)}")
        prefix = f"{where}." if where else ""
        if not decoders.keys() >= value.keys():
            name = next(name for name in value if name not in decoders)
            raise FieldError(f"{prefix}{name[:40]} is unknown, must be one of "
                             f"{', '.join(decoders)}")
        for name in required:
            if name not in value:
                raise FieldError(f"{prefix}{name} is missing")
        for name, item in value.items():
            if name not in counters or type(item) is not int or item < 0:
                value[name] = decoders[name](item, prefix + name)
        return kind(**value)

    return decode_object


def _many(kind: types.GenericAlias) -> Decoder:
    """Return what decodes a tuple or frozenset of values of one type."""
    collection, (inner, *_) = typing.get_origin(kind), typing.get_args(kind)
    decoder = _decoder(inner)

    def decode_list(value: Any, where: str) -> Any:
        if not isinstance(value, list):
            raise FieldError(f"{where} must be a list, is {_shown(value)}")
        # Curves are long, so their items are not looked at one by one unless one is wrong.
        if inner is int and _all_int(value) and min(value) >= 0:
            return collection(value)
        return collection([decoder(item, f"{where}[{at}]") for at, item in enumerate(value)])

    return decode_list


def _all_int(values: Sequence[Any]) -> bool:
    """Return True if there are values, and all are integers."""
    return set(map(type, values)) == {int}


def _number(value: Any, where: str) -> DeviceNumber:
    found = _numbers(value) if isinstance(value, str) else None
    if found is None:
        raise FieldError(f"{where} must be a device number such as '254:0', is {_shown(value)}")
    return found


@functools.lru_cache(maxsize=1024)
def _numbers(text: str) -> DeviceNumber | None:
    parts = text.split(":")
    if len(parts) != 2 or not all(part.isascii() and part.isdigit() for part in parts):
        return None
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
