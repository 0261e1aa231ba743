# SPDX-License-Identifier: Apache-2.0
"""Options of vcache-host: groups ``[host]`` and ``[placement]`` of vcache-host.conf."""

import socket
from typing import Any

from keystoneauth1 import loading
from oslo_config import cfg

from nova_vcache import keystone

GROUP = "host"
PLACEMENT = "placement"

_HOST = cfg.OptGroup(GROUP, title="vcache-host: a compute host's side of OpenStack")
_OPTS = [
    cfg.StrOpt("node", sample_default="<what libvirt calls the host>",
               help="Name of the compute node: what 'openstack hypervisor list' shows."),
    cfg.StrOpt("admin_socket", default="/run/vcache/admin.sock",
               help="Unix socket of vcache-agent, its admin_socket."),
    cfg.FloatOpt("agent_timeout", default=5.0, min=0.5, max=60.0,
                 help="Seconds that the agent may take to answer."),
    cfg.FloatOpt("look_interval", default=5.0, min=0.1, max=60.0,
                 help="Seconds between looks at what the agent says."),
    cfg.FloatOpt("report_interval", default=10.0, min=0.1, max=60.0,
                 help="Seconds between reports to vcache-api, while nothing changes that they "
                      "should know at once. A fraction of its stale_after."),
    cfg.FloatOpt("placement_interval", default=60.0, min=1.0, max=3600.0,
                 help="Seconds between looks whether Placement says what the host has; a change "
                      "of the host is told at once."),
    cfg.FloatOpt("close_after", default=120.0, min=1.0, max=86400.0,
                 help="Seconds after which Placement is told that the host has nothing to give, "
                      "when the agent does not answer, or has no kernel module."),
    cfg.StrOpt("rpc_api_cap", help="Version of vcache-api's RPC interface that all its processes "
                                   "understand, during an upgrade. Unset: the newest."),
]

_PLACEMENT = cfg.OptGroup(PLACEMENT, title="Placement, as a client")


def register_placement(conf: cfg.ConfigOpts) -> None:
    """Register the options of a client of Placement."""
    conf.register_group(_PLACEMENT)
    keystone.register(conf, PLACEMENT, PLACEMENT)


def load_placement(conf: cfg.ConfigOpts) -> Any | None:
    """Return an adapter for Placement; None: nothing says how.

    :raises keystoneauth1.exceptions.ClientException: if the credentials cannot be used
    """
    return keystone.load_adapter(conf, PLACEMENT)


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
    """Return what libvirt, and so nova-compute, calls this host: virGetHostname()."""
    name = socket.gethostname()
    if "." in name or name.startswith("localhost"):
        return name
    try:
        found = socket.getaddrinfo(name, None, flags=socket.AI_CANONNAME)[0][3]
    except OSError:
        return name
    return name if not found or found.startswith("localhost") else found
