# SPDX-License-Identifier: Apache-2.0
"""Routes, and validation of parameters and bodies, from openapi.yaml."""

import dataclasses
import functools
import importlib.resources
import json
from collections.abc import Mapping
from typing import Any

import jsonschema
import microversion_parse
import yaml
from microversion_parse import Version
from werkzeug.routing import Map, Rule

from nova_vcache.api.errors import ApiError, bad_request

_METHODS = ("get", "put", "post", "patch", "delete")

# Largest part of a value in a message, because clients choose the values.
_SHOWN = 60

# Largest float that is exactly the integer in the text.
_EXACT = 1 << 53


@functools.cache
def document() -> dict[str, Any]:
    """Return the OpenAPI document."""
    text = (importlib.resources.files("nova_vcache.api") / "openapi.yaml").read_text()
    found: dict[str, Any] = yaml.safe_load(text)
    return found


@dataclasses.dataclass(frozen=True, eq=False)
class Operation:
    """One operation of the document.

    :param id: its operationId, the key of its handler
    :param public: it needs no token
    :param policy: its policy rule; empty: none
    :param parameters: parameters of the path and the query, by (in, name)
    :param body: schema of the body; None: it has no body
    :param since: the first microversion that has it; empty: the lowest
    """

    id: str
    method: str
    path: str
    public: bool
    policy: str
    parameters: Mapping[tuple[str, str], Mapping[str, Any]]
    body: Mapping[str, Any] | None
    since: str = ""

    def query(self, arguments: Mapping[str, list[str]], version: Version) -> dict[str, Any]:
        """Return the query parameters, validated and typed, with defaults for absent ones.

        :param version: parameters of newer microversions have their defaults
        :raises ApiError: names the parameter, its value and the allowed values
        """
        every = {name: item for (where, name), item in self.parameters.items()
                 if where == "query"}
        known = {name: item["schema"] for name, item in every.items()
                 if is_in(item.get("x-since", ""), version)}
        values: dict[str, Any] = {}
        for name, texts in arguments.items():
            if name not in known:
                allowed = f"must be one of {', '.join(known)}" if known else "there are none here"
                raise bad_request(f"Query parameter {_shown(name)!r} is unknown, {allowed}.")
            if len(texts) > 1:
                raise bad_request(f"Query parameter {name!r} occurs {len(texts)} times, must "
                                  "occur once.")
            values[name] = _typed(name, texts[0], known[name])
        return {name: item["schema"].get("default") for name, item in every.items()} | values

    def default(self, name: str) -> Any:
        """Return the default of a query parameter."""
        return self.parameters["query", name]["schema"].get("default")

    def check_body(self, data: bytes, mimetype: str) -> Any:
        """Return the validated body.

        :raises ApiError: names the wrong part and the allowed values
        """
        if self.body is None:
            return None
        if mimetype != "application/json":
            raise ApiError(415, f"Content-Type {_shown(mimetype)!r} is not supported, must be "
                                "application/json.")
        try:
            found = json.loads(data, parse_constant=_refuse_constant, parse_float=_number)
        except (ValueError, RecursionError) as error:
            raise bad_request(f"The body is not JSON: {error}.") from None
        problem = _problem(found, self.body)
        if problem:
            raise bad_request(f"Body: {problem}.")
        return found

    def check_path(self, values: Mapping[str, str]) -> bool:
        """Return False if the parameters of the path cannot be those of any resource."""
        return all(not _problem(value, self.parameters["path", name]["schema"])
                   and "\0" not in value for name, value in values.items())


def is_in(since: str, version: Version) -> bool:
    """Return True if a microversion has what exists since another one; empty: all have it."""
    return not since or version >= microversion_parse.parse_version_string(since)


@functools.cache
def _fields(name: str, version: Version) -> frozenset[str]:
    """Return the fields of a schema that a microversion has."""
    properties = document()["components"]["schemas"][name]["properties"]
    return frozenset(field for field, schema in properties.items()
                     if is_in(schema.get("x-since", ""), version))


def visible(name: str, values: Mapping[str, Any], version: Version) -> dict[str, Any]:
    """Return the fields of a resource that its schema has in a microversion.

    :param name: name of the schema
    """
    fields = _fields(name, version)
    return {field: value for field, value in values.items() if field in fields}


def _number(text: str) -> int | float:
    """Convert a number with a decimal point or an exponent.

    97.0 is an integer in JSON Schema, so it must become one in Python.
    """
    found = float(text)
    return int(found) if found.is_integer() and abs(found) <= _EXACT else found


def _refuse_constant(name: str) -> None:
    raise ValueError(f"{name} is not a JSON number")


def _typed(name: str, text: str, schema: Mapping[str, Any]) -> Any:
    value: Any = text
    if schema["type"] == "integer" and text.isascii() and text.isdigit() and len(text) < 19:
        value = int(text)
    elif schema["type"] == "boolean":
        value = {"true": True, "false": False}.get(text, text)
    problem = _problem(value, schema)
    if problem:
        raise bad_request(f"Query parameter {name!r}: {problem}.")
    return value


def _problem(value: Any, schema: Mapping[str, Any]) -> str:
    """Return the problem with a value, and the allowed values; empty: it is valid."""
    error = jsonschema.exceptions.best_match(_validator(schema).iter_errors(value))
    if error is None:
        return ""
    where = "".join(f"[{part}]" if isinstance(part, int) else f".{_shown(part)}"
                    for part in error.absolute_path).lstrip(".")
    return f"{where}: {_words(error)}" if where else _words(error)


# Validators by identity of the schema, which is stable because the document is cached.
_validators: dict[int, Any] = {}


def _validator(schema: Mapping[str, Any]) -> Any:
    found = _validators.get(id(schema))
    if found is None:
        # Without a format checker, formats are not validated.
        found = _validators[id(schema)] = jsonschema.Draft202012Validator(
            {**schema, "components": document()["components"]},
            format_checker=jsonschema.Draft202012Validator.FORMAT_CHECKER)
    return found


def _words(error: Any) -> str:
    """Return the message for an error of jsonschema, with the allowed values."""
    schema, value, limit = error.schema, _shown(error.instance), error.validator_value
    match error.validator:
        case "additionalProperties" if limit is False:
            extra = sorted(error.instance.keys() - schema.get("properties", {}).keys())
            return (f"{_shown(extra[0])!r} is unknown, must be one of "
                    f"{', '.join(schema.get('properties', {}))}")
        case "required":
            return error.message.replace("is a required property", "is missing")
        case "type":
            kinds = [limit] if isinstance(limit, str) else limit
            return f"{value!r} is not allowed, must be {_allowed(schema, kinds)}"
        case "minimum" | "maximum":
            return f"{value!r} is not allowed, must be {_allowed(schema, [schema['type']])}"
        case "enum":
            words = ", ".join("null" if word is None else str(word) for word in limit)
            return f"{value!r} is not allowed, must be one of {words}"
        case "minProperties":
            return (f"it is empty, must have at least one of "
                    f"{', '.join(schema.get('properties', {}))}")
        case "minLength" | "maxLength":
            return (f"{value!r} has {len(error.instance)} characters, must have "
                    f"{schema.get('minLength', 0)} to {schema.get('maxLength', 'any number')}")
        case "format":
            return f"{value!r} is not a {limit}"
    return f"{value!r} is not allowed: {error.validator} {limit}"


def _allowed(schema: Mapping[str, Any], kinds: list[Any]) -> str:
    flat = [kind for item in kinds for kind in (item if isinstance(item, list) else [item])]
    text = " or ".join(flat)
    if "minimum" in schema:
        text += f", from {schema['minimum']} to {schema.get('maximum', 'any number')}"
    return text


def _shown(value: object) -> str:
    text = str(value)
    return text if len(text) <= _SHOWN else text[:_SHOWN] + "…"


def resolve(item: Mapping[str, Any]) -> Mapping[str, Any]:
    """Return an item of the document, with a reference to another item resolved."""
    while "$ref" in item:
        found: Any = document()
        for part in item["$ref"].removeprefix("#/").split("/"):
            found = found[part]
        item = found
    return item


@functools.cache
def operations() -> tuple[Operation, ...]:
    """Return all operations of the document."""
    return tuple(_operation(path, method, item)
                 for path, item in document()["paths"].items()
                 for method in _METHODS if method in item)


def _operation(path: str, method: str, item: Mapping[str, Any]) -> Operation:
    operation = item[method]
    parameters = [resolve(found) for found in
                  (*item.get("parameters", ()), *operation.get("parameters", ()))]
    body = None
    if "requestBody" in operation:
        body = resolve(operation["requestBody"])["content"]["application/json"]["schema"]
    return Operation(
        operation["operationId"], method.upper(), path, operation.get("security") == [],
        operation.get("x-policy", ""),
        {(found["in"], found["name"]): found for found in parameters}, body,
        operation.get("x-since", ""))


def routes() -> Map:
    """Return the routes; each endpoint is an :class:`Operation`."""
    rules = [Rule(item.path.replace("{", "<").replace("}", ">"), methods=[item.method],
                  endpoint=item)
             for item in operations()]
    # No redirects, because clients drop the body and the token when they follow one.
    return Map(rules, strict_slashes=True, merge_slashes=False, redirect_defaults=False)
