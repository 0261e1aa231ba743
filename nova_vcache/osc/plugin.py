# SPDX-License-Identifier: Apache-2.0
"""The interface for python-openstackclient; entry point ``openstack.cli.extension``."""

import argparse
import os
from typing import Any

from keystoneauth1 import adapter

from nova_vcache.osc.client import SERVICE_TYPE, Client

DEFAULT_API_VERSION = "1"
API_VERSION_OPTION = "os_vcache_api_version"
#: Attribute of the client manager. The commands are in the group ``openstack.vcache.v1``.
API_NAME = "vcache"
API_VERSIONS = ("1",)


def make_client(instance: Any) -> Client:
    """Return the client of vcache-api.

    :param instance: openstackclient's client manager
    """
    # The value comes from the option, the environment, or clouds.yaml.
    override = instance.get_configuration().get("vcache_endpoint_override")
    return Client(adapter.Adapter(
        session=instance.session, service_type=SERVICE_TYPE, interface=instance.interface,
        region_name=instance.region_name, endpoint_override=override))


def build_option_parser(parser: argparse.ArgumentParser) -> argparse.ArgumentParser:
    """Add the global options of this plug-in."""
    # Set no default for the endpoint, because it would override clouds.yaml.
    parser.add_argument(
        "--os-vcache-api-version", metavar="<vcache-api-version>", choices=API_VERSIONS,
        default=os.environ.get("OS_VCACHE_API_VERSION"),
        help=f"Version of vcache-api (default: {DEFAULT_API_VERSION}) "
             "(Env: OS_VCACHE_API_VERSION)")
    parser.add_argument(
        "--os-vcache-endpoint-override", metavar="<url>",
        default=os.environ.get("OS_VCACHE_ENDPOINT_OVERRIDE"),
        help="URL of vcache-api without a version, used instead of the catalog "
             "(Env: OS_VCACHE_ENDPOINT_OVERRIDE)")
    return parser
