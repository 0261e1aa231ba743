# SPDX-License-Identifier: Apache-2.0
"""Routes, parameters and bodies, as openapi.yaml has them."""

import dataclasses
import functools
import importlib.resources
import json
from collections.abc import Mapping
from typing import Any

import jsonschema
import yaml
from werkzeug.routing import Map, Rule

from nova_vcache.api.errors import ApiError, bad_request

_METHODS = ("get", "put", "post", "patch", "delete")

# Values come from clients; an error shows no more of them.
_SHOWN = 60

# A float above this may not be the number that was written.
_EXACT = 1 << 53


@functools.cache
def document() -> dict[str, Any]:
    """Return the document."""
    text = (importlib.resources.files("nova_vcache.api") / "openapi.yaml").read_text()
    found: dict[str, Any] = yaml.safe_load(text)
    return found


@dataclasses.dataclass(frozen=True, eq=False)
class Operation:
    """One operation of the document.

    :param id: its operationId, the name of its handler
    :param public: it needs no token
    :param policy: the rule that is checked first; empty: none
    :param parameters: of the path and the query, by (in, name)
    :param body: schema of the body; None: there is none
    """

    id: str
    method: str
    path: str
    public: bool
    policy: str
    parameters: Mapping[tuple[str, str], Mapping[str, Any]]
    body: Mapping[str, Any] | None

    def query(self, arguments: Mapping[str, list[str]]) -> dict[str, Any]:
        """Return the parameters of a query, checked and typed; those absent by default.

        :raises ApiError: naming the parameter, its value and what is allowed
        """
        known = {name: item["schema"] for (where, name), item in self.parameters.items()
                 if where == "query"}
        values: dict[str, Any] = {}
        for name, texts in arguments.items():
            if name not in known:
                allowed = f"there are {', '.join(known)}" if known else "there is none here"
                raise bad_request(f"Query parameter {_shown(name)!r} is not known, {allowed}.")
            if len(texts) > 1:
                raise bad_request(f"Query parameter {name!r} is given {len(texts)} times, once "
                                  "is allowed.")
            values[name] = _typed(name, texts[0], known[name])
        return {name: schema.get("default") for name, schema in known.items()} | values

    def check_body(self, data: bytes, mimetype: str) -> Any:
        """Return a body, checked.

        :raises ApiError: saying where it is wrong and what is allowed
        """
        if self.body is None:
            return None
        if mimetype != "application/json":
            raise ApiError(415, f"Content-Type {_shown(mimetype)!r} is not supported, it must be "
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
        """Tell whether something of the path's parameters can exist at all."""
        return all(not _problem(value, self.parameters["path", name]["schema"])
                   and "\0" not in value for name, value in values.items())


def _number(text: str) -> int | float:
    """Return a number that was written with a point or an exponent.

    To JSON Schema 97.0 is an integer; those who are handed it know it by its type.
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
    """Return what is wrong with a value, and what is allowed; empty: nothing."""
    error = jsonschema.exceptions.best_match(_validator(schema).iter_errors(value))
    if error is None:
        return ""
    where = "".join(f"[{part}]" if isinstance(part, int) else f".{_shown(part)}"
                    for part in error.absolute_path).lstrip(".")
    return f"{where}: {_words(error)}" if where else _words(error)


# By identity of the schema: those of the document stay for ever.
_validators: dict[int, Any] = {}


def _validator(schema: Mapping[str, Any]) -> Any:
    found = _validators.get(id(schema))
    if found is None:
        # Formats are only asserted when there is a checker of them.
        found = _validators[id(schema)] = jsonschema.Draft202012Validator(
            {**schema, "components": document()["components"]},
            format_checker=jsonschema.Draft202012Validator.FORMAT_CHECKER)
    return found


def _words(error: Any) -> str:
    """Return an error of jsonschema in our words, with what is allowed."""
    schema, value, limit = error.schema, _shown(error.instance), error.validator_value
    match error.validator:
        case "additionalProperties" if limit is False:
            extra = sorted(error.instance.keys() - schema.get("properties", {}).keys())
            return (f"{_shown(extra[0])!r} is not known, there are "
                    f"{', '.join(schema.get('properties', {}))}")
        case "required":
            return error.message.replace("is a required property", "is missing")
        case "type":
            kinds = [limit] if isinstance(limit, str) else limit
            return f"{value!r} is not allowed, it must be {_allowed(schema, kinds)}"
        case "minimum" | "maximum":
            return f"{value!r} is not allowed, it must be {_allowed(schema, [schema['type']])}"
        case "enum":
            words = ", ".join("null" if word is None else str(word) for word in limit)
            return f"{value!r} is not allowed, it must be one of {words}"
        case "minProperties":
            return f"it is empty, there are {', '.join(schema.get('properties', {}))}"
        case "minLength" | "maxLength":
            return (f"{value!r} has {len(error.instance)} characters, allowed are "
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
    """Return what a reference within the document stands for, or what it is."""
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
        {(found["in"], found["name"]): found for found in parameters}, body)


def routes() -> Map:
    """Return the routes; an endpoint is an :class:`Operation`."""
    rules = [Rule(item.path.replace("{", "<").replace("}", ">"), methods=[item.method],
                  endpoint=item)
             for item in operations()]
    # A path is what it is: no redirects, which lose the body and the token.
    return Map(rules, strict_slashes=True, merge_slashes=False, redirect_defaults=False)
