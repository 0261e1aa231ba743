# SPDX-License-Identifier: Apache-2.0
"""VCacheWeigher: prefer hosts whose cache does an instance most good.

``weight_classes = nova.scheduler.weights.all_weighers,
nova_vcache.scheduler.weigher.VCacheWeigher``.

A host's weight, from 0 to 1:

    0                        if it cannot give what is asked for, or is not known
    1/2 + 1/2 * quality      otherwise

    quality = (G * gain + S * (1 - risk) + F * (1 - fragmentation)) / (G + S + F)
    gain    = (1 + share / largest share - loss / largest loss) / 2

G, S and F are the options ``gain_multiplier``, ``slo_risk_multiplier`` and
``fragmentation_multiplier``; the other terms are of ``nova_vcache.scheduler.fit``,
largest is of the hosts in the request. So a host that can is always before one
that cannot, which matters where the flavor does not require it. The terms are
ratios and the weight is on a scale of its own: hosts that differ by little get
weights that do, where Nova would stretch them to the whole range.

Flavors without ``vcache:mode`` weigh nothing.
"""

from collections.abc import Sequence
from typing import Any

import nova.conf
from nova.scheduler import utils, weights

from nova_vcache import conf as vcache_conf
from nova_vcache import extra_specs
from nova_vcache.extra_specs import InvalidExtraSpecs, Mode
from nova_vcache.scheduler import fit, snapshot
from nova_vcache.scheduler.request import flavor_specs
from nova_vcache.scheduler.snapshot import View
from nova_vcache.summary import HostSummary

CONF = nova.conf.CONF

vcache_conf.register(CONF)

_TERMS = ("gain", "slo_risk", "fragmentation")


class VCacheWeigher(weights.BaseHostWeigher):
    """Weigh by marginal gain, risk of objectives and fragmentation."""

    # Given, so that Nova does not stretch what lies between.
    minval = 0.0
    maxval = 1.0

    def weight_multiplier(self, host_state: Any) -> float:
        """Return the weigher's multiplier; an aggregate may override it."""
        found: float = utils.get_weight_multiplier(
            host_state, "vcache_weight_multiplier", CONF.vcache.weight_multiplier)
        return found

    def weigh_objects(self, weighed_obj_list: Sequence[Any], weight_properties: Any) -> list[float]:
        """Return the weights of all hosts of a request."""
        hosts = [weighed.obj for weighed in weighed_obj_list]
        wanted = _wanted(weight_properties)
        if wanted is None:
            return [0.0] * len(hosts)
        return _Quality(hosts, wanted, snapshot.shared(CONF).view()).weights()

    def _weigh_object(self, obj: Any, weight_properties: Any) -> float:
        """Return the weight of a host that has no other beside it."""
        return self.weigh_objects([weights.WeighedHost(obj, 0.0)], weight_properties)[0]


def _wanted(spec_obj: Any) -> fit.Wanted | None:
    """Return what a flavor asks for; None: nothing."""
    try:
        specs = extra_specs.parse(flavor_specs(spec_obj))
    except InvalidExtraSpecs:
        return None
    return None if specs.mode is Mode.NONE else fit.Wanted.of(specs)


class _Quality:
    """Weighs the hosts of one request."""

    def __init__(self, hosts: list[Any], wanted: fit.Wanted, view: View) -> None:
        self._wanted = wanted
        self._hosts = hosts
        self._summaries: list[HostSummary | None] = []
        for host in hosts:
            found = view.fresh(host.nodename)
            # Objectives are a matter of degree here.
            if found is not None and fit.lacks_room(found, wanted):
                found = None
            self._summaries.append(found)
        self._shares = [0.0 if found is None else fit.share_mb(found, wanted)
                        for found in self._summaries]
        self._losses = [0.0 if found is None else fit.loss(found, share)
                        for found, share in zip(self._summaries, self._shares, strict=True)]
        self._multipliers: dict[tuple[int, ...], tuple[float, ...]] = {}

    def weights(self) -> list[float]:
        """Return the weights."""
        most_share = max(self._shares, default=0.0)
        most_loss = max(self._losses, default=0.0)
        found = []
        for host, summary, share, lost in zip(
                self._hosts, self._summaries, self._shares, self._losses, strict=True):
            if summary is None:
                found.append(0.0)
                continue
            gain = (1 + (share / most_share if most_share else 1.0)
                    - (lost / most_loss if most_loss else 0.0)) / 2
            terms = (gain, 1 - fit.slo_risk(summary, self._wanted),
                     1 - fit.fragmentation(summary, self._wanted))
            found.append(0.5 + 0.5 * _mean(self._of_terms(host), terms))
        return found

    def _of_terms(self, host: Any) -> tuple[float, ...]:
        """Return the multipliers of the terms, which a host's aggregates may override."""
        key = tuple(map(id, host.aggregates))
        found = self._multipliers.get(key)
        if found is None:
            # Below zero an aggregate cannot go, as the options cannot.
            found = self._multipliers[key] = tuple(
                max(0.0, utils.get_weight_multiplier(
                    host, f"vcache_{term}_multiplier", CONF.vcache[f"{term}_multiplier"]))
                for term in _TERMS)
        return found


def _mean(multipliers: tuple[float, ...], terms: tuple[float, ...]) -> float:
    total = sum(multipliers)
    if not total:
        return 0.0
    return sum(factor * term for factor, term in zip(multipliers, terms, strict=True)) / total
