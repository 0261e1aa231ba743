# SPDX-License-Identifier: Apache-2.0
"""What filter and weigher read of a request."""

from collections.abc import Mapping
from typing import Any


def flavor_specs(spec_obj: Any) -> Mapping[str, str]:
    """Return the extra specs of a request's flavor.

    A flavor without the field would load it from the database; no filter of Nova's
    does that either.
    """
    flavor = spec_obj.flavor
    found: Mapping[str, str] = flavor.extra_specs if "extra_specs" in flavor else {}
    return found
