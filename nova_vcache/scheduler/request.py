# SPDX-License-Identifier: Apache-2.0
"""Access to the request for filter and weigher."""

from collections.abc import Mapping
from typing import Any

from nova_vcache.extra_specs import Mode
from nova_vcache.placement import flavor, names
from nova_vcache.scheduler.fit import Wanted


def flavor_specs(spec_obj: Any) -> Mapping[str, str]:
    """Return the extra specs of a request's flavor.

    The result is empty if the field is not loaded, because loading it would query the
    database. Nova's own filters do the same.
    """
    flavor = spec_obj.flavor
    found: Mapping[str, str] = flavor.extra_specs if "extra_specs" in flavor else {}
    return found


def allocated(host_state: Any) -> dict[str, int]:
    """Return what Placement allocates from a host's cache for the request.

    :return: amounts by resource class; empty: nothing
    """
    for candidate in host_state.allocation_candidates:
        for allocation in candidate["allocations"].values():
            resources: dict[str, int] = allocation["resources"]
            found = {name: resources[name] for name in names.RESOURCE_CLASSES
                     if name in resources}
            if found:
                return found
    return {}


def granted(host_state: Any, wanted: Wanted, specs: Mapping[str, str]) -> bool:
    """Return True if Placement has granted what a flavor requests of a host's cache.

    That needs the Placement keys of the flavor to match its ``vcache:*`` keys.

    :param specs: all extra specs of the flavor
    """
    keys = flavor.placement_keys(wanted.specs)
    if not keys or any(specs.get(key) != value for key, value in keys.items()):
        return False
    found = allocated(host_state)
    tag = wanted.specs.mode is Mode.NONE or names.TAG in found
    return tag and found.get(names.CACHE_MB, 0) >= wanted.min_mb
