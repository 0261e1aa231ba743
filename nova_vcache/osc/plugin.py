# SPDX-License-Identifier: Apache-2.0
"""The interface for python-openstackclient; entry point ``openstack.cli.extension``."""

import argparse
import os
import re
from typing import Any

from keystoneauth1 import adapter

from nova_vcache.client import versions
from nova_vcache.client.rest import SERVICE_TYPE, Client

DEFAULT_API_VERSION = "1"
API_VERSION_OPTION = "os_vcache_api_version"
#: Attribute of the client manager. The commands are in the group ``openstack.vcache.v1``.
API_NAME = "vcache"

_NO_ENDPOINT = (f"'openstack catalog show {SERVICE_TYPE}' lists the endpoints. Select one with "
                "--os-interface and --os-region-name, or set --os-vcache-endpoint-override.")


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
    http.default_microversion = versions.negotiated(http, wanted, "--os-vcache-api-version")
    return Client(http, _NO_ENDPOINT)


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
