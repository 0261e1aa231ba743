# SPDX-License-Identifier: Apache-2.0
"""The interface for python-openstackclient; entry point ``openstack.cli.extension``."""

import argparse
import os
import re
from typing import Any

from keystoneauth1 import adapter, discover
from keystoneauth1 import exceptions as ks_exc
from osc_lib import exceptions

from nova_vcache.osc.client import SERVICE_TYPE, Client

DEFAULT_API_VERSION = "1"
API_VERSION_OPTION = "os_vcache_api_version"
#: Attribute of the client manager. The commands are in the group ``openstack.vcache.v1``.
API_NAME = "vcache"
#: Newest microversion that the commands use; an older API gets its newest.
MICROVERSION = (1, 1)


def make_client(instance: Any) -> Client:
    """Return the client of vcache-api.

    :param instance: openstackclient's client manager
    """
    # The value comes from the option, the environment, or clouds.yaml.
    settings = instance.get_configuration()
    http = adapter.Adapter(
        session=instance.session, service_type=SERVICE_TYPE, interface=instance.interface,
        region_name=instance.region_name,
        endpoint_override=settings.get("vcache_endpoint_override"))
    wanted = str(settings.get("vcache_api_version") or DEFAULT_API_VERSION)
    http.default_microversion = _negotiated(http, wanted)
    return Client(http)


def _negotiated(http: adapter.Adapter, wanted: str) -> str | None:
    """Return the microversion for all requests; None: the API has no microversions.

    :param wanted: ``1`` for the newest that both sides support, or ``1.N``
    :raises CommandError: if the API does not support the wanted one
    """
    try:
        data = http.get_endpoint_data()
    except ks_exc.ClientException:
        data = None
    if data is None or not data.max_microversion:
        # No endpoint, which the first request reports; or an older API, without a header.
        if "." in wanted and data is not None:
            raise exceptions.CommandError(
                f"The vcache-api at {data.url} has no microversions, so --os-vcache-api-version "
                f"must be 1, not {wanted}.")
        return None
    lowest, highest = data.min_microversion, data.max_microversion
    if "." not in wanted:
        return discover.version_to_string(max(lowest, min(highest, MICROVERSION)))
    if not lowest <= discover.normalize_version_number(wanted) <= highest:
        raise exceptions.CommandError(
            f"--os-vcache-api-version {wanted} is not supported by the vcache-api at {data.url}, "
            f"must be from {discover.version_to_string(lowest)} to "
            f"{discover.version_to_string(highest)}.")
    return wanted


def _version(text: str) -> str:
    """Return a version of the option, which is 1 or 1.N."""
    if re.fullmatch(r"1(\.[0-9]{1,4})?", text, re.ASCII) is None:
        raise argparse.ArgumentTypeError(f"{text[:20]!r} is not allowed, must be 1 or 1.N")
    return text


def build_option_parser(parser: argparse.ArgumentParser) -> argparse.ArgumentParser:
    """Add the global options of this plug-in."""
    # Set no default for the endpoint, because it would override clouds.yaml.
    parser.add_argument(
        "--os-vcache-api-version", metavar="<vcache-api-version>", type=_version,
        default=os.environ.get("OS_VCACHE_API_VERSION"),
        help="Version of vcache-api: 1 for the newest microversion that both sides support, or "
             f"a microversion, 1.N (default: {DEFAULT_API_VERSION}) (Env: OS_VCACHE_API_VERSION)")
    parser.add_argument(
        "--os-vcache-endpoint-override", metavar="<url>",
        default=os.environ.get("OS_VCACHE_ENDPOINT_OVERRIDE"),
        help="URL of vcache-api without a version, used instead of the catalog "
             "(Env: OS_VCACHE_ENDPOINT_OVERRIDE)")
    return parser
