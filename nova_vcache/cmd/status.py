# SPDX-License-Identifier: Apache-2.0
"""The command ``nova-vcache-status``: ``upgrade check`` says whether Nova is set up.

Run it where nova-api or nova-scheduler runs, with their configuration. Exit
status: 0 all is well, 1 a warning, 2 a failure, 255 it could not be found out.
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
    """Return Placement by Nova's own credentials for it, ``[placement]``.

    :raises keystoneauth1.exceptions.ClientException: if they cannot be used
    """
    auth = loading.load_auth_from_conf_options(conf, "placement")
    session = loading.load_session_from_conf_options(conf, "placement", auth=auth)
    return Client(loading.load_adapter_from_conf_options(
        conf, "placement", session=session, auth=auth))


class Checks(upgradecheck.UpgradeCommands):
    """The checks, in the order in which they are done."""

    def _validators(self) -> Result:
        found = importlib.metadata.entry_points(group=_VALIDATORS, name="vcache")
        if not found:
            return Result(Code.FAILURE, (
                f"No entry point 'vcache' in {_VALIDATORS}: nova-api takes any value of "
                "vcache:*. Install nova-vcache for the Python that runs nova-api."))
        return Result(Code.SUCCESS)

    def _scheduler_filter(self) -> Result:
        group = CONF.filter_scheduler
        if "VCacheFilter" not in group.enabled_filters:
            return Result(Code.FAILURE, (
                "VCacheFilter is not in [filter_scheduler] enabled_filters: vcache:required is "
                "decided by Placement and the hosts alone."))
        if _FILTER not in group.available_filters:
            return Result(Code.FAILURE, (
                f"{_FILTER} is not in [filter_scheduler] available_filters: nova-scheduler will "
                "not start with VCacheFilter enabled."))
        return Result(Code.SUCCESS)

    def _scheduler_weigher(self) -> Result:
        if _WEIGHER not in CONF.filter_scheduler.weight_classes:
            return Result(Code.WARNING, (
                f"{_WEIGHER} is not in [filter_scheduler] weight_classes: instances without "
                "vcache:required may be put on hosts without a cache."))
        return Result(Code.SUCCESS)

    def _placement_names(self) -> Result:
        try:
            client = placement_client(CONF)
            missing = [name for name in names.RESOURCE_CLASSES if not client.has_class(name)]
            missing += [name for name in names.TRAITS if not client.has_trait(name)]
        except (PlacementError, ks_exc.ClientException) as error:
            return Result(Code.FAILURE, f"Placement cannot be asked: {error}")
        if missing:
            return Result(Code.WARNING, (
                f"Placement has no {', '.join(missing)}: no host has reported a cache yet, and "
                "flavors that ask for one find no host."))
        return Result(Code.SUCCESS)

    def _options(self) -> Result:
        group = CONF.vcache
        if group.summary_max_age < 2 * group.summary_interval:
            return Result(Code.FAILURE, (
                f"[vcache] summary_max_age, {group.summary_max_age:g} s, is less than twice "
                f"summary_interval, {group.summary_interval:g} s: every host would be stale "
                "again and again."))
        try:
            client = vcache_conf.load_adapter(CONF)
        except ks_exc.ClientException as error:
            return Result(Code.FAILURE, f"The credentials of [vcache] cannot be used: {error}")
        if client is None:
            return Result(Code.WARNING, (
                "[vcache] has neither credentials nor endpoint_override: the scheduler has no "
                f"summary of hosts, and stale_policy = {group.stale_policy} decides."))
        return Result(Code.SUCCESS)

    _upgrade_checks = (
        ("Extra-Spec Validators", _validators),
        ("Scheduler Filter", _scheduler_filter),
        ("Scheduler Weigher", _scheduler_weigher),
        ("Placement Names", _placement_names),
        ("Options", _options),
    )


def main() -> int:
    """Run the command."""
    vcache_conf.register(CONF)
    return int(upgradecheck.main(CONF, "nova", Checks()))


if __name__ == "__main__":
    sys.exit(main())
