# SPDX-License-Identifier: Apache-2.0
"""The microversions of the API, and their negotiation.

A client selects one with the header ``OpenStack-API-Version: vcache X.Y``, or ``vcache latest``.
Without the header it gets the lowest, so an existing client sees no change.

=======  =====================================================================
version  changes
=======  =====================================================================
1.0      the first one
1.1      a host has ``report_age_s`` and ``details_age_s``
1.2      an instance has ``slo_state``, ``objectives``, ``hit_ratio``, ``flush_p50_us`` and
         ``flush_p99_us``; a disk has ``hit_ratio``, ``flush_p50_us`` and ``requests_per_s``;
         instances can be selected and sorted by ``slo_state``, ``mode`` and ``host``; an
         instance has curves and reasons; a pool has ``lanes``; a host has ``drain``
=======  =====================================================================

A new version is needed for each change that a client can see: a new resource, parameter, field
or allowed value, and a changed status. The OpenAPI document describes the newest version, and
names the version in the description of what is new. ``x-since`` of an operation, of a parameter
or of a field is the first version that has it: openapi.py enforces it.
"""

from collections.abc import Mapping

import microversion_parse
from microversion_parse import Version

from nova_vcache.api.errors import NotAcceptable, bad_request

#: Type of the service in the header.
SERVICE_TYPE = "vcache"
#: Header of requests and responses.
HEADER = "OpenStack-API-Version"

MIN = Version(1, 0)
MAX = Version(1, 2)


def requested(headers: Mapping[str, str]) -> Version:
    """Return the microversion of a request.

    :raises ApiError: 400 if it has not the form X.Y; 406 if it is not supported
    """
    text = microversion_parse.get_version(dict(headers), SERVICE_TYPE)
    if text is None:
        return MIN
    if text == "latest":
        return MAX
    # int() accepts more than digits.
    parts = text.split(".")
    if len(parts) != 2 or not all(part.isascii() and part.isdigit() and len(part) < 10
                                  for part in parts):
        raise bad_request(f"{HEADER} {text[:60]!r} is not allowed, must be {SERVICE_TYPE} X.Y, "
                          f"with X.Y from {MIN} to {MAX}, or {SERVICE_TYPE} latest.")
    found = Version(int(parts[0]), int(parts[1]))
    if not found.matches(MIN, MAX):
        raise NotAcceptable(f"Microversion {found} is not supported, must be from {MIN} to {MAX}, "
                            "or latest.", str(MIN), str(MAX))
    return found
