# SPDX-License-Identifier: Apache-2.0
"""The command ``nova-vcache-status upgrade check``: check the configuration of Nova.

Run it on a host of nova-api or nova-scheduler, with their configuration. Exit
status: 0 success, 1 warning, 2 failure, 255 unexpected error.
"""

import importlib.metadata
import sys
from typing import Any

import nova.conf
from keystoneauth1 import exceptions as ks_exc
from keystoneauth1 import loading
from oslo_upgradecheck import upgradecheck
from oslo_upgradecheck.upgradecheck import Code, Result

from nova_vcache import conf as vcache_conf
from nova_vcache.placement import names
from nova_vcache.placement.client import Client, PlacementError

CONF = nova.conf.CONF

_VALIDATORS = "nova.api.extra_spec_validators"
_FILTER = "nova_vcache.scheduler.filter.VCacheFilter"
_WEIGHER = "nova_vcache.scheduler.weigher.VCacheWeigher"


def placement_client(conf: Any) -> Client:
    """Return a client of Placement with Nova's credentials, ``[placement]``.

    :raises keystoneauth1.exceptions.ClientException: if they are invalid
    """
    auth = loading.load_auth_from_conf_options(conf, "placement")
    session = loading.load_session_from_conf_options(conf, "placement", auth=auth)
    return Client(loading.load_adapter_from_conf_options(
        conf, "placement", session=session, auth=auth))


class Checks(upgradecheck.UpgradeCommands):
    """The checks, in their order."""

    def _validators(self) -> Result:
        found = importlib.metadata.entry_points(group=_VALIDATORS, name="vcache")
        if not found:
            return Result(Code.FAILURE, (
                f"No entry point 'vcache' in {_VALIDATORS}: nova-api accepts any value of "
                "vcache:* keys. Install nova-vcache in the Python environment of nova-api."))
        return Result(Code.SUCCESS)

    def _scheduler_filter(self) -> Result:
        group = CONF.filter_scheduler
        if "VCacheFilter" not in group.enabled_filters:
            return Result(Code.FAILURE, (
                "VCacheFilter is not in [filter_scheduler] enabled_filters: only Placement and "
                "the agents enforce vcache:required."))
        if _FILTER not in group.available_filters:
            return Result(Code.FAILURE, (
                f"{_FILTER} is not in [filter_scheduler] available_filters: nova-scheduler does "
                "not start, because VCacheFilter is in enabled_filters."))
        return Result(Code.SUCCESS)

    def _scheduler_weigher(self) -> Result:
        if _WEIGHER not in CONF.filter_scheduler.weight_classes:
            return Result(Code.WARNING, (
                f"{_WEIGHER} is not in [filter_scheduler] weight_classes: the scheduler does not "
                "prefer hosts with a cache for instances without vcache:required."))
        return Result(Code.SUCCESS)

    def _placement_names(self) -> Result:
        try:
            client = placement_client(CONF)
            missing = [name for name in names.RESOURCE_CLASSES if not client.has_class(name)]
            missing += [name for name in names.TRAITS if not client.has_trait(name)]
        except (PlacementError, ks_exc.ClientException) as error:
            return Result(Code.FAILURE, f"The request to Placement failed: {error}")
        if missing:
            return Result(Code.WARNING, (
                f"Placement has no {', '.join(missing)}: no host has reported a cache yet. "
                "Instances that request a cache from Placement cannot be scheduled."))
        return Result(Code.SUCCESS)

    def _options(self) -> Result:
        group = CONF.vcache
        if group.summary_max_age < 2 * group.summary_interval:
            return Result(Code.FAILURE, (
                f"[vcache] summary_max_age is {group.summary_max_age:g} s, must be at least twice "
                f"summary_interval, which is {group.summary_interval:g} s: otherwise hosts become "
                "stale between two summaries."))
        try:
            client = vcache_conf.load_adapter(CONF)
        except ks_exc.ClientException as error:
            return Result(Code.FAILURE, f"The credentials in [vcache] are invalid: {error}")
        if client is None:
            return Result(Code.WARNING, (
                "[vcache] has neither credentials nor endpoint_override: the scheduler has no "
                f"summary of hosts and applies stale_policy = {group.stale_policy}."))
        return Result(Code.SUCCESS)

    _upgrade_checks = (
        ("Extra-Spec Validators", _validators),
        ("Scheduler Filter", _scheduler_filter),
        ("Scheduler Weigher", _scheduler_weigher),
        ("Placement Names", _placement_names),
        ("Options", _options),
    )


def main() -> int:
    """Run the command; return the exit status."""
    vcache_conf.register(CONF)
    return int(upgradecheck.main(CONF, "nova", Checks()))


if __name__ == "__main__":
    sys.exit(main())
