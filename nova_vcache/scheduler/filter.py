# SPDX-License-Identifier: Apache-2.0
"""VCacheFilter: reject hosts that do not meet the requirements of a flavor.

Enable it with ``enabled_filters = ...,VCacheFilter`` and ``available_filters =
nova_vcache.scheduler.filter.VCacheFilter`` in addition to Nova's filters.

The filter acts only on flavors with ``vcache:required``. For other flavors any host
is possible, and the weigher sorts the hosts. Placement has already checked amounts
and traits, atomically. Other data comes from the summary of all hosts. It can be older than
Placement's, so the filter does not refuse what Placement has granted.
"""

import functools
import logging
import weakref
from collections.abc import Iterable
from typing import Any

import nova.conf
from nova.scheduler import filters, utils

from nova_vcache import conf as vcache_conf
from nova_vcache import extra_specs
from nova_vcache.extra_specs import ExtraSpecs, InvalidExtraSpecs, Mode
from nova_vcache.scheduler import fit, snapshot
from nova_vcache.scheduler.request import allocated, flavor_specs, granted

CONF = nova.conf.CONF
LOG = logging.getLogger(__name__)

vcache_conf.register(CONF)

# Largest number of hosts that the log names for each reason.
_NAMED = 3


class VCacheFilter(filters.BaseHostFilter):
    """Filter by mode, tags, cache, lanes and headroom of the objectives."""

    # Each instance of a request takes lanes, and the summary does not know of them yet.
    run_filter_once_per_request = False
    # An instance that already runs on the host may be rebuilt there.
    RUN_ON_REBUILD = False

    def __init__(self) -> None:
        super().__init__()
        self._before = _Before()

    def filter_all(self, filter_obj_list: Iterable[Any], spec_obj: Any) -> Iterable[Any]:
        """Return the hosts that pass; log the reasons for the others in one line."""
        if utils.request_is_rebuild(spec_obj):
            return filter_obj_list
        specs, problem = required_specs(spec_obj)
        if specs is None:
            return filter_obj_list
        decide = _Decision(specs, problem, spec_obj, self._before)
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
    ignored = extra_specs.warning(found)
    if ignored:
        _warn(ignored)
    return (None, "") if specs.mode is Mode.NONE else (specs, "")


@functools.lru_cache(maxsize=100)
def _warn(text: str) -> None:
    """Log a warning once."""
    LOG.warning("VCacheFilter: %s; upgrade nova-scheduler", text)


class _Before:
    """Counts the instances that a request has placed on each host so far.

    nova-scheduler increments the number of a host's instances when it selects the host. An
    instance of another request may count, too, so the result is never too small.
    """

    def __init__(self) -> None:
        self._first: weakref.WeakKeyDictionary[Any, dict[str, int]] = weakref.WeakKeyDictionary()

    def placed(self, spec_obj: Any, host_state: Any) -> int:
        """Return the number of instances since the first call for this request and host."""
        first = self._first.setdefault(spec_obj, {})
        now = int(host_state.num_instances)
        return max(0, now - first.setdefault(host_state.nodename, now))


class _Decision:
    """Decides about the hosts of one request."""

    def __init__(self, specs: ExtraSpecs, problem: str, spec_obj: Any, before: _Before) -> None:
        self._problem = problem
        self._request = spec_obj
        self._before = before
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
        there = self._instance in host_state.instances
        taken = self._before.placed(self._request, host_state) if self._wanted.lane else 0
        reason = fit.lacks(host, self._wanted, there=there, taken=taken)
        if reason and granted(host_state, self._wanted, flavor_specs(self._request)):
            reason = fit.lacks(host, self._wanted, there=there, granted=True, taken=taken)
        return reason

    def _unknown(self, host_state: Any) -> str:
        """Return why a host without a fresh summary is rejected, or nothing."""
        if self._trusts and allocated(host_state):
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
