# SPDX-License-Identifier: Apache-2.0
"""The versions of the API and the OpenAPI document."""

from typing import Any

from nova_vcache.api import microversions, openapi
from nova_vcache.api.request import Call


def _version(call: Call) -> dict[str, Any]:
    return {"id": "v1", "status": "CURRENT", "min_version": str(microversions.MIN),
            "max_version": str(microversions.MAX),
            "links": [{"rel": "self", "href": f"{call.base}/v1"},
                      {"rel": "describedby", "href": f"{call.base}/v1/openapi.json"}]}


def versions(call: Call) -> dict[str, Any]:
    """Return the versions."""
    return {"versions": [_version(call)]}


def version(call: Call) -> dict[str, Any]:
    """Return this version."""
    return {"version": _version(call)}


def document(_call: Call) -> dict[str, Any]:
    """Return the OpenAPI document."""
    return openapi.document()
