# SPDX-License-Identifier: Apache-2.0
"""Options of vcache-host: groups ``[host]`` and ``[placement]`` of vcache-host.conf."""

import socket
from typing import Any

from keystoneauth1 import loading
from oslo_config import cfg

from nova_vcache import keystone

GROUP = "host"
PLACEMENT = "placement"

_HOST = cfg.OptGroup(GROUP, title="vcache-host, which connects vcache-agent with OpenStack")
_OPTS = [
    cfg.StrOpt("node", sample_default="<host name in libvirt>",
               help="Name of the compute node, as 'openstack hypervisor list' shows it."),
    cfg.StrOpt("admin_socket", default="/run/vcache/admin.sock",
               help="Path of vcache-agent's admin socket. Must equal admin_socket in "
                    "vcache-agent.conf."),
    cfg.StrOpt("relay_socket", default="/run/vcache-host/relay.sock",
               help="Path of the Unix socket on which the agent asks the agents of other hosts "
                    "about live migrations. Must equal relay_socket in vcache-agent.conf. Empty: "
                    "do not serve it."),
    cfg.FloatOpt("agent_timeout", default=5.0, min=0.5, max=60.0,
                 help="Timeout of a query of the agent, in seconds. A change has 70 percent of "
                      "rpc_timeout of vcache-api."),
    cfg.FloatOpt("look_interval", default=5.0, min=0.1, max=60.0,
                 help="Seconds between two queries of the agent's state."),
    cfg.FloatOpt("report_interval", default=10.0, min=0.1, max=60.0,
                 help="Seconds between two periodic reports to vcache-api. Important changes are "
                      "reported at once. Must be well below stale_after of vcache-api."),
    cfg.FloatOpt("details_interval", default=60.0, min=0.0, max=3600.0,
                 help="Seconds between two reports with all instances and disks, with a random "
                      "deviation of up to 20 percent. The other periodic reports have only the "
                      "figures of the host and its pools. Important changes are reported with all "
                      "details at once. Choose more for a cloud with thousands of hosts; 0: all "
                      "reports have details."),
    cfg.FloatOpt("placement_interval", default=60.0, min=1.0, max=3600.0,
                 help="Seconds between two periodic comparisons of Placement with the host. "
                      "Changes of the host are reported at once."),
    cfg.FloatOpt("close_after", default=120.0, min=1.0, max=86400.0,
                 help="Seconds after which the inventory of the host in Placement is reduced to "
                      "nothing, if the agent does not answer or has a problem, such as a missing "
                      "kernel module."),
    cfg.StrOpt("rpc_api_cap", help="Version of vcache-api's RPC interface that all its processes "
                                   "support, for use during an upgrade. By default the newest "
                                   "version."),
]

_PLACEMENT = cfg.OptGroup(PLACEMENT, title="Client of Placement")


def register_placement(conf: cfg.ConfigOpts) -> None:
    """Register the options of a client of Placement."""
    conf.register_group(_PLACEMENT)
    keystone.register(conf, PLACEMENT, PLACEMENT)


class NotConfigured(Exception):
    """The configuration has no client of Placement; the text names what is missing."""


def load_placement(conf: cfg.ConfigOpts) -> Any:
    """Return an adapter for Placement.

    :raises NotConfigured: if there are neither credentials nor an endpoint
    :raises keystoneauth1.exceptions.ClientException: if the credentials are invalid
    """
    found = keystone.load_adapter(conf, PLACEMENT)
    if found is None:
        raise NotConfigured("section [placement] has no credentials; set auth_type = password, "
                            "auth_url, username, password, project_name and the domains")
    return found


def list_opts() -> list[tuple[cfg.OptGroup, list[Any]]]:
    """Return all options by group, for oslo-config-generator."""
    return [(_HOST, list(_OPTS)),
            (_PLACEMENT, [*keystone.client_opts(PLACEMENT), *loading.get_auth_common_conf_options(),
                          *loading.get_auth_plugin_conf_options("password")])]


def register(conf: cfg.ConfigOpts) -> None:
    """Register all options."""
    conf.register_group(_HOST)
    conf.register_opts(_OPTS, group=GROUP)
    register_placement(conf)


def node_name(conf: cfg.ConfigOpts) -> str:
    """Return the name of the compute node."""
    return str(conf[GROUP].node or hostname())


def hostname() -> str:
    """Return the name of this host in libvirt, and so in nova-compute: virGetHostname()."""
    name = socket.gethostname()
    if "." in name or name.startswith("localhost"):
        return name
    try:
        found = socket.getaddrinfo(name, None, flags=socket.AI_CANONNAME)[0][3]
    except OSError:
        return name
    return name if not found or found.startswith("localhost") else found
