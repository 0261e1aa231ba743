# SPDX-License-Identifier: Apache-2.0
"""Options of vcache-api: group ``[api]`` of vcache-api.conf."""

from typing import Any

from oslo_config import cfg

from nova_vcache.host import conf as host_conf

GROUP = "api"

_API = cfg.OptGroup(GROUP, title="vcache-api")
_OPTS = [
    cfg.FloatOpt("stale_after", default=60.0, min=0.5, max=3600.0,
                 help="Age in seconds of the last answer of a host's agent from which on the "
                      "host is in state stale."),
    cfg.FloatOpt("first_wait", default=3.0, min=0.0, max=60.0,
                 help="Longest time in seconds for which the first request of a process waits "
                      "for reports of all hosts."),
    cfg.FloatOpt("hosts_interval", default=120.0, min=0.1, max=3600.0,
                 help="Seconds between two requests of a process to Placement for the list of "
                      "hosts, with a random deviation of up to 20 percent. A host that reports is "
                      "known at once; only one that never reports is found by the list."),
    cfg.FloatOpt("rpc_timeout", default=30.0, min=0.5, max=300.0,
                 help="Timeout of an RPC call to a host, in seconds. In 70 percent of it the host "
                      "must begin and apply a change; after that it refuses. The clocks of "
                      "controllers and hosts must be synchronized."),
    cfg.FloatOpt("bus_timeout", default=60.0, min=0.0, max=3600.0,
                 help="Seconds without an answer of the message bus to a process's own requests "
                      "after which its /healthcheck returns 503. 0: never; then a load balancer "
                      "keeps processes that cannot change anything and have old data."),
    cfg.IntOpt("max_limit", default=1000, min=1, max=10000,
               help="Largest number of items in one answer, and the number without the query "
                    "parameter limit."),
    cfg.StrOpt("rpc_host_cap", help="Version of the hosts' RPC interface that all hosts support, "
                                    "for use during an upgrade. By default the newest version."),
]

# Lifetime in seconds of the queue of a process that has ended. RabbitMQ keeps the
# undelivered reports until then: with 1,000 hosts and oslo.messaging's default of half an
# hour, that would be gigabytes.
_QUEUE_TTL = 120


def list_opts() -> list[tuple[cfg.OptGroup, list[Any]]]:
    """Return all options by group, for oslo-config-generator."""
    return [(_API, list(_OPTS)), host_conf.list_opts()[1]]


def set_cors_defaults() -> None:
    """Change defaults of oslo.middleware's options for CORS."""
    # Not at import: the generator of samples works without oslo.middleware.
    from oslo_middleware import cors

    cors.set_defaults(
        allow_headers=["X-Auth-Token", "X-Openstack-Request-Id", "OpenStack-API-Version"],
        expose_headers=["X-Openstack-Request-Id", "OpenStack-API-Version", "Retry-After"],
        allow_methods=["GET", "PUT", "POST", "DELETE", "PATCH"])


def register(conf: cfg.ConfigOpts) -> None:
    """Register all options."""
    conf.register_group(_API)
    conf.register_opts(_OPTS, group=GROUP)
    host_conf.register_placement(conf)


def set_messaging_defaults(conf: cfg.ConfigOpts) -> None:
    """Change defaults of oslo.messaging's options, if they are registered."""
    if "oslo_messaging_rabbit" in conf:
        conf.set_default("rabbit_transient_queues_ttl", _QUEUE_TTL, "oslo_messaging_rabbit")
