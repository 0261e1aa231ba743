# SPDX-License-Identifier: Apache-2.0
"""VCacheFilter: reject hosts that do not meet the requirements of a flavor.

Enable it with ``enabled_filters = ...,VCacheFilter`` and ``available_filters =
nova_vcache.scheduler.filter.VCacheFilter`` in addition to Nova's filters.

The filter acts only on flavors with ``vcache:required``. For other flavors any host
is possible, and the weigher sorts the hosts. Placement has already checked amounts
and traits, atomically. Other data comes from the summary of all hosts.
"""

import logging
from collections.abc import Iterable
from typing import Any

import nova.conf
from nova.scheduler import filters, utils

from nova_vcache import conf as vcache_conf
from nova_vcache import extra_specs
from nova_vcache.extra_specs import ExtraSpecs, InvalidExtraSpecs, Mode
from nova_vcache.placement import names
from nova_vcache.scheduler import fit, snapshot
from nova_vcache.scheduler.request import flavor_specs

CONF = nova.conf.CONF
LOG = logging.getLogger(__name__)

vcache_conf.register(CONF)

# Largest number of hosts that the log names for each reason.
_NAMED = 3


class VCacheFilter(filters.BaseHostFilter):
    """Filter by mode, tags, cache, lanes and headroom of the objectives."""

    # The inputs are the same for all instances of a request.
    run_filter_once_per_request = True
    # An instance that already runs on the host may be rebuilt there.
    RUN_ON_REBUILD = False

    def filter_all(self, filter_obj_list: Iterable[Any], spec_obj: Any) -> Iterable[Any]:
        """Return the hosts that pass; log the reasons for the others in one line."""
        if utils.request_is_rebuild(spec_obj):
            return filter_obj_list
        specs, problem = required_specs(spec_obj)
        if specs is None:
            return filter_obj_list
        decide = _Decision(specs, problem, spec_obj)
        passed, refused = [], []
        for host in filter_obj_list:
            reason = decide.refuses(host)
            if reason:
                refused.append((host.nodename, reason))
            else:
                passed.append(host)
        if refused:
            _log(spec_obj, len(passed), refused)
        return passed

    def host_passes(self, host_state: Any, spec_obj: Any) -> bool:
        """Return True if one host passes."""
        return bool(list(self.filter_all([host_state], spec_obj)))


def required_specs(spec_obj: Any) -> tuple[ExtraSpecs | None, str]:
    """Return the extra specs of a flavor with requirements, and the problem with them.

    The extra specs are None if the flavor has no requirements. They can be invalid,
    because nova-api validates them only from microversion 2.86 on. If they are, and the
    flavor has ``vcache:required``, no host passes, and the agents refuse the instance.
    """
    found = flavor_specs(spec_obj)
    if not extra_specs.is_required(found):
        return None, ""
    try:
        specs = extra_specs.parse(found)
    except InvalidExtraSpecs as error:
        return ExtraSpecs(required=True), f"invalid extra specs: {error}"
    return (None, "") if specs.mode is Mode.NONE else (specs, "")


class _Decision:
    """Decides about the hosts of one request."""

    def __init__(self, specs: ExtraSpecs, problem: str, spec_obj: Any) -> None:
        self._problem = problem
        self._instance = spec_obj.instance_uuid
        group = CONF.vcache
        self._wanted = fit.Wanted.of(specs, group.slo_headroom)
        self._trusts = group.stale_policy == "pass"
        self._view = snapshot.shared(CONF).view()

    def refuses(self, host_state: Any) -> str:
        """Return why a host is rejected, or nothing."""
        if self._problem:
            return self._problem
        host = self._view.fresh(host_state.nodename)
        if host is None:
            return self._unknown(host_state)
        return fit.lacks(host, self._wanted, there=self._instance in host_state.instances)

    def _unknown(self, host_state: Any) -> str:
        """Return why a host without a fresh summary is rejected, or nothing."""
        allocated = _allocated(host_state)
        if self._trusts and allocated:
            return ""
        problem = f" ({self._view.problem})" if self._view.problem else ""
        old = self._view.hosts.get(host_state.nodename)
        if old is None:
            kind = "no summary: vcache-api does not know the host"
        elif old.age_s is None:
            kind = "no summary: its agent has never reported"
        else:
            kind = "stale summary: older than [vcache] summary_max_age"
        if self._trusts:
            return f"{kind}, and Placement has no allocation from its cache{problem}"
        return f"{kind}{problem}"


def _allocated(host_state: Any) -> bool:
    """Return True if Placement allocates from a host's cache for the request."""
    for candidate in host_state.allocation_candidates:
        for allocation in candidate["allocations"].values():
            resources = allocation["resources"]
            if names.TAG in resources or names.CACHE_MB in resources:
                return True
    return False


def _log(spec_obj: Any, passed: int, refused: list[tuple[str, str]]) -> None:
    """Log the rejected hosts by reason, with a few hosts for each reason."""
    kinds: dict[str, list[str]] = {}
    for node, reason in refused:
        kind, _, detail = reason.partition(": ")
        kinds.setdefault(kind, []).append(f"{node}: {detail}" if detail else node)
    texts = []
    for kind, hosts in kinds.items():
        more = f"; and {len(hosts) - _NAMED} more" if len(hosts) > _NAMED else ""
        texts.append(f"{kind}, {len(hosts)} ({'; '.join(hosts[:_NAMED])}{more})")
    LOG.info("VCacheFilter rejected %d of %d hosts for instance %s: %s", len(refused),
             passed + len(refused), spec_obj.instance_uuid, ". ".join(texts))
