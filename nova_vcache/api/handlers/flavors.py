# SPDX-License-Identifier: Apache-2.0
"""Flavors: check whether extra specs are valid and match each other."""

import dataclasses
from typing import Any

from nova_vcache import extra_specs
from nova_vcache.api.request import Call
from nova_vcache.extra_specs import InvalidExtraSpecs
from nova_vcache.placement import flavor


def check(call: Call) -> dict[str, Any]:
    """Return the problems of the extra specs in the request."""
    specs = call.body["extra_specs"]
    try:
        wanted = flavor.placement_keys(extra_specs.check(specs))
        found = flavor.disagreements(specs)
    except InvalidExtraSpecs as error:
        return {"valid": False, "disagreements": [], "placement_keys": {},
                "problems": [dataclasses.asdict(item) for item in error.problems]}
    return {"valid": not found, "problems": [], "placement_keys": wanted,
            "disagreements": [dataclasses.asdict(item) for item in found]}
