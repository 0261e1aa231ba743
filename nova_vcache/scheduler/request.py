# SPDX-License-Identifier: Apache-2.0
"""Access to the request for filter and weigher."""

from collections.abc import Mapping
from typing import Any


def flavor_specs(spec_obj: Any) -> Mapping[str, str]:
    """Return the extra specs of a request's flavor.

    The result is empty if the field is not loaded, because loading it would query the
    database. Nova's own filters do the same.
    """
    flavor = spec_obj.flavor
    found: Mapping[str, str] = flavor.extra_specs if "extra_specs" in flavor else {}
    return found
