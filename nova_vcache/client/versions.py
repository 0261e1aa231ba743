# SPDX-License-Identifier: Apache-2.0
"""The microversion that a client and vcache-api both support."""

from keystoneauth1 import adapter, discover
from keystoneauth1 import exceptions as ks_exc

from nova_vcache.client.rest import ApiError

#: Newest microversion that this release uses; an older API gets its newest.
NEWEST = (1, 2)


def negotiated(http: adapter.Adapter, wanted: str, option: str) -> str | None:
    """Return the microversion for all requests; None: the API has no microversions.

    :param wanted: ``1`` for the newest that both sides support, or ``1.N``
    :param option: what the user has set it with, for messages
    :raises ApiError: if the API does not support the wanted one
    """
    try:
        data = http.get_endpoint_data()
    except ks_exc.ClientException:
        data = None
    if data is None or not data.max_microversion:
        # No endpoint, which the first request reports; or an older API, without a header.
        if "." in wanted and data is not None:
            raise ApiError(
                f"The vcache-api at {data.url} has no microversions, so {option} must be 1, "
                f"not {wanted}.")
        return None
    lowest, highest = data.min_microversion, data.max_microversion
    if "." not in wanted:
        return discover.version_to_string(max(lowest, min(highest, NEWEST)))
    if not lowest <= discover.normalize_version_number(wanted) <= highest:
        raise ApiError(
            f"{option} {wanted} is not supported by the vcache-api at {data.url}, "
            f"must be from {discover.version_to_string(lowest)} to "
            f"{discover.version_to_string(highest)}.")
    return wanted
