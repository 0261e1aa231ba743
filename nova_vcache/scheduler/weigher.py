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

    def __init__(self) -> None:
        super().__init__()
        # Nova asks for it for each host of a request, and looking it up would be a third of
        # all that is done for a host.
        self._multiplier: float = CONF.vcache.weight_multiplier

    def weight_multiplier(self, host_state: Any) -> float:
        """Return the weigher's multiplier; an aggregate may override it."""
        if not host_state.aggregates:
            return self._multiplier
        found: float = utils.get_weight_multiplier(
            host_state, "vcache_weight_multiplier", self._multiplier)
        return found

    def weigh_objects(self, weighed_obj_list: Sequence[Any], weight_properties: Any) -> list[float]:
        """Return the weights of all hosts of a request."""
        self._multiplier = CONF.vcache.weight_multiplier
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
        self._shares: list[float] = []
        self._losses: list[float] = []
        for host in hosts:
            found = view.fresh(host.nodename)
            # Objectives are a matter of degree here.
            if found is None or fit.lacks_room(found, wanted):
                found, share, loss = None, 0.0, 0.0
            else:
                share = fit.share_mb(found, wanted)
                loss = fit.loss(found, share)
            self._summaries.append(found)
            self._shares.append(share)
            self._losses.append(loss)
        self._multipliers: dict[tuple[int, ...], tuple[float, ...]] = {}

    def weights(self) -> list[float]:
        """Return the weights."""
        wanted = self._wanted
        # Where there is none it divides nothing: shares and losses are 0 then.
        most_share = max(self._shares, default=0.0)
        no_share = 0.0 if most_share else 1.0
        most_share = most_share or 1.0
        most_loss = max(self._losses, default=0.0) or 1.0
        found = []
        for host, summary, share, lost in zip(
                self._hosts, self._summaries, self._shares, self._losses, strict=True):
            if summary is None:
                found.append(0.0)
                continue
            gain = (1 + no_share + share / most_share - lost / most_loss) / 2
            of_gain, of_risk, of_fragments = self._of_terms(host)
            found.append(0.5 + 0.5 * (
                of_gain * gain + of_risk * (1 - fit.slo_risk(summary, wanted))
                + of_fragments * (1 - fit.fragmentation(summary, wanted))))
        return found

    def _of_terms(self, host: Any) -> tuple[float, ...]:
        """Return what part of a host's quality each term is; its aggregates may say."""
        # Most hosts have the same aggregates as others, if any.
        key = tuple(map(id, host.aggregates)) if host.aggregates else ()
        found = self._multipliers.get(key)
        if found is None:
            # Below zero an aggregate cannot go, as the options cannot.
            factors = [max(0.0, utils.get_weight_multiplier(
                host, f"vcache_{term}_multiplier", CONF.vcache[f"{term}_multiplier"]))
                for term in _TERMS]
            total = sum(factors) or 1.0
            found = self._multipliers[key] = tuple(factor / total for factor in factors)
        return found
