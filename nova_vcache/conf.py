# SPDX-License-Identifier: Apache-2.0
"""Options of the scheduler plug-ins: group ``[vcache]`` of nova.conf."""

from typing import Any

from keystoneauth1 import loading
from oslo_config import cfg

from nova_vcache import keystone

GROUP = "vcache"
_SERVICE = "vcache"

_TITLE = cfg.OptGroup(GROUP, title="vcache in the scheduler", help=(
    "Options of VCacheFilter and VCacheWeigher, and of their client for vcache-api, which "
    "provides the summary of all hosts. The client has the usual options of a keystoneauth "
    "client: auth_type and its options (or auth_section = placement to use the credentials of "
    "that section), endpoint_override, region_name, cafile and so on."))

_OPTS = [
    cfg.FloatOpt("summary_interval", default=10.0, min=1.0, max=600.0,
                 help="Seconds between two requests for the summary of all hosts. Each scheduler "
                      "process requests it in the background."),
    cfg.FloatOpt("summary_max_age", default=60.0, min=2.0, max=3600.0,
                 help="Age in seconds from which on the data of a host is stale. The age is the "
                      "time since the last answer of the host's agent. Must be at least twice "
                      "summary_interval."),
    cfg.StrOpt("stale_policy", default="pass", choices=[
        ("pass", "the host passes if Placement has allocated from its cache for the request; the "
                 "agent decides again when the instance starts"),
        ("fail", "the host does not pass")],
               help="Decision of VCacheFilter about a host without a summary, or with a stale "
                    "one, if the flavor has vcache:required. Hosts always pass for other "
                    "flavors."),
    cfg.FloatOpt("slo_headroom", default=10.0, min=0.0, max=90.0,
                 help="Percentage of an objective (vcache:slo_*) that must be left on a host if "
                      "the flavor has vcache:required. With 10, an objective of 5 ms needs a host "
                      "on which 99 percent of the flushes take at most 4.5 ms."),
    cfg.FloatOpt("weight_multiplier", default=1.0,
                 help="Multiplier of VCacheWeigher among the scheduler's weighers. A negative "
                      "value reverses the order. The metadata vcache_weight_multiplier of an "
                      "aggregate overrides this option. The multipliers below can be overridden "
                      "in the same way, by their name with the prefix vcache_."),
    cfg.FloatOpt("gain_multiplier", default=1.0, min=0.0,
                 help="Weight, within VCacheWeigher, of the cache that the instance would get, "
                      "minus the loss of the other instances on the host."),
    cfg.FloatOpt("slo_risk_multiplier", default=1.0, min=0.0,
                 help="Weight, within VCacheWeigher, of the risk that an objective of the "
                      "instance, or of another instance on the host, is missed."),
    cfg.FloatOpt("fragmentation_multiplier", default=0.2, min=0.0,
                 help="Weight, within VCacheWeigher, of low fragmentation: a guarantee is placed "
                      "on the host where it leaves the least free space in a pool."),
]


def list_opts() -> list[tuple[cfg.OptGroup, list[Any]]]:
    """Return all options by group, for oslo-config-generator."""
    return [(_TITLE, [*_OPTS, *keystone.client_opts(_SERVICE),
                      *loading.get_auth_common_conf_options()])]


def register(conf: cfg.ConfigOpts) -> None:
    """Register all options; keystoneauth adds those of the auth plug-in later."""
    conf.register_group(_TITLE)
    conf.register_opts(_OPTS, group=GROUP)
    keystone.register(conf, GROUP, _SERVICE)


def load_adapter(conf: cfg.ConfigOpts) -> Any | None:
    """Return a client of vcache-api, or None if it is not configured.

    :raises keystoneauth1.exceptions.ClientException: if the credentials are invalid
    """
    return keystone.load_adapter(conf, GROUP)
