# SPDX-License-Identifier: Apache-2.0
"""Options of vcache-api: group ``[api]`` of vcache-api.conf, beside those of libraries."""

from typing import Any

from oslo_config import cfg

from nova_vcache.host import conf as host_conf

GROUP = "api"

_API = cfg.OptGroup(GROUP, title="vcache-api")
_OPTS = [
    cfg.FloatOpt("stale_after", default=60.0, min=0.5, max=3600.0,
                 help="Seconds after which what a host's agent has said is stale."),
    cfg.FloatOpt("first_wait", default=3.0, min=0.0, max=60.0,
                 help="Seconds that the first request of a process waits for the hosts' first "
                      "reports, which it asks for."),
    cfg.FloatOpt("hosts_interval", default=30.0, min=0.1, max=3600.0,
                 help="Seconds between questions to Placement which hosts there are."),
    cfg.FloatOpt("rpc_timeout", default=30.0, min=0.5, max=300.0,
                 help="Seconds that a host may take for a change. Its agent waits up to 20 s for "
                      "the kernel."),
    cfg.IntOpt("max_limit", default=1000, min=1, max=10000,
               help="Most items of one answer, and how many there are without a limit."),
    cfg.StrOpt("rpc_host_cap", help="Version of the hosts' RPC interface that all of them "
                                    "understand, during an upgrade. Unset: the newest."),
]

# RabbitMQ keeps what nobody takes of a process that has ended until its queue goes: with
# 1,000 hosts that would be gigabytes in oslo.messaging's half an hour.
_QUEUE_TTL = 120


def list_opts() -> list[tuple[cfg.OptGroup, list[Any]]]:
    """Return all options by group, for oslo-config-generator."""
    return [(_API, list(_OPTS)), host_conf.list_opts()[1]]


def register(conf: cfg.ConfigOpts) -> None:
    """Register all options."""
    conf.register_group(_API)
    conf.register_opts(_OPTS, group=GROUP)
    host_conf.register_placement(conf)


def set_messaging_defaults(conf: cfg.ConfigOpts) -> None:
    """Set defaults of oslo.messaging's options, once they are registered."""
    if "oslo_messaging_rabbit" in conf:
        conf.set_default("rabbit_transient_queues_ttl", _QUEUE_TTL, "oslo_messaging_rabbit")
