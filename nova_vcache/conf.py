# SPDX-License-Identifier: Apache-2.0
"""Options of Nova's side: group ``[vcache]`` of nova.conf."""

from typing import Any

from keystoneauth1 import loading
from oslo_config import cfg

from nova_vcache import keystone

GROUP = "vcache"
_SERVICE = "vcache"

_TITLE = cfg.OptGroup(GROUP, title="vcache in the scheduler", help=(
    "Where nova-scheduler asks vcache-api for the summary of all hosts, and what it makes of "
    "it. The usual options of a service's client are here too: auth_type and its options, or "
    "auth_section = placement to use the credentials of that section; endpoint_override, "
    "region_name, cafile and so on."))

_OPTS = [
    cfg.FloatOpt("summary_interval", default=10.0, min=1.0, max=600.0,
                 help="Seconds between requests for the summary of all hosts. Each scheduler "
                      "process makes one at a time, in the background."),
    cfg.FloatOpt("summary_max_age", default=60.0, min=2.0, max=3600.0,
                 help="Seconds after which what a host's agent has said is stale: its time in "
                      "the API and in the scheduler together. At least twice summary_interval."),
    cfg.StrOpt("stale_policy", default="pass", choices=[
        ("pass", "a host passes VCacheFilter if Placement has allocated from its cache for the "
                 "request; the agent has the last word when the instance starts"),
        ("fail", "the host is refused")],
               help="What becomes of a host of which there is no summary, or a stale one, where a "
                    "flavor says vcache:required. Other flavors are never refused."),
    cfg.FloatOpt("slo_headroom", default=10.0, min=0.0, max=90.0,
                 help="Percent of an objective (vcache:slo_*) that a host must have left, where a "
                      "flavor says vcache:required: with 10, an objective of 5 ms needs a host "
                      "whose flushes take 4.5 ms at most."),
    cfg.FloatOpt("weight_multiplier", default=1.0,
                 help="Weight of VCacheWeigher among the scheduler's weighers; a negative one "
                      "reverses it. Metadata vcache_weight_multiplier of an aggregate overrides "
                      "it, as the other multipliers below by their name with vcache_ before."),
    cfg.FloatOpt("gain_multiplier", default=1.0, min=0.0,
                 help="Within VCacheWeigher: weight of the cache that the instance would have, "
                      "less what those on the host would lose by it."),
    cfg.FloatOpt("slo_risk_multiplier", default=1.0, min=0.0,
                 help="Within VCacheWeigher: weight of the risk that an objective is missed, the "
                      "instance's or one on the host."),
    cfg.FloatOpt("fragmentation_multiplier", default=0.2, min=0.0,
                 help="Within VCacheWeigher: weight of keeping large guarantees possible, by "
                      "putting one where it leaves least of a pool."),
]


def list_opts() -> list[tuple[cfg.OptGroup, list[Any]]]:
    """Return all options by group, for oslo-config-generator."""
    return [(_TITLE, [*_OPTS, *keystone.client_opts(_SERVICE),
                      *loading.get_auth_common_conf_options()])]


def register(conf: cfg.ConfigOpts) -> None:
    """Register all options; those of the auth plug-in when it is known."""
    conf.register_group(_TITLE)
    conf.register_opts(_OPTS, group=GROUP)
    keystone.register(conf, GROUP, _SERVICE)


def load_adapter(conf: cfg.ConfigOpts) -> Any | None:
    """Return a client of vcache-api, or None if it is not configured.

    :raises keystoneauth1.exceptions.ClientException: if the credentials cannot be used
    """
    return keystone.load_adapter(conf, GROUP)
