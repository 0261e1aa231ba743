# SPDX-License-Identifier: Apache-2.0
"""VCacheWeigher: prefer hosts whose cache suits an instance best.

Enable it with ``weight_classes = nova.scheduler.weights.all_weighers,
nova_vcache.scheduler.weigher.VCacheWeigher``.

The weight of a host is from 0 to 1:

    0                        if it does not meet the requests, or is unknown
    1/2 + 1/2 * quality      otherwise

    quality = (G * gain + S * (1 - risk) + F * (1 - fragmentation)) / (G + S + F)
    gain    = (1 + share / largest share - loss / largest loss) / 2

G, S and F are the options ``gain_multiplier``, ``slo_risk_multiplier`` and
``fragmentation_multiplier``. ``nova_vcache.scheduler.fit`` has the other terms;
"largest" is the maximum over the hosts of the request. So a host that meets the
requests always precedes one that does not, which matters if the flavor has no
``vcache:required``. The terms are ratios, and the weigher defines its own scale, so
small differences between hosts remain small. Nova would otherwise stretch them to the
whole range.

For flavors without ``vcache:mode`` all weights are 0.
"""

from collections.abc import Mapping, Sequence
from typing import Any

import nova.conf
from nova.scheduler import utils, weights

from nova_vcache import conf as vcache_conf
from nova_vcache import extra_specs
from nova_vcache.extra_specs import InvalidExtraSpecs, Mode
from nova_vcache.scheduler import fit, snapshot
from nova_vcache.scheduler.request import flavor_specs, granted
from nova_vcache.scheduler.snapshot import View
from nova_vcache.summary import HostSummary

CONF = nova.conf.CONF

vcache_conf.register(CONF)

_TERMS = ("gain", "slo_risk", "fragmentation")


class VCacheWeigher(weights.BaseHostWeigher):
    """Weigh by marginal gain, risk of missed objectives, and fragmentation."""

    # A fixed scale, so that Nova does not normalize the weights.
    minval = 0.0
    maxval = 1.0

    def __init__(self) -> None:
        super().__init__()
        # Cached, because Nova requests it for each host, and the lookup would take a third
        # of the time of a host.
        self._multiplier: float = CONF.vcache.weight_multiplier

    def weight_multiplier(self, host_state: Any) -> float:
        """Return the multiplier of the weigher, which an aggregate may override."""
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
        return _Quality(hosts, wanted, snapshot.shared(CONF).view(),
                        flavor_specs(weight_properties)).weights()

    def _weigh_object(self, obj: Any, weight_properties: Any) -> float:
        """Return the weight of a single host."""
        return self.weigh_objects([weights.WeighedHost(obj, 0.0)], weight_properties)[0]


def _wanted(spec_obj: Any) -> fit.Wanted | None:
    """Return the requests of a flavor; None: it has none or they are invalid."""
    try:
        specs = extra_specs.parse(flavor_specs(spec_obj))
    except InvalidExtraSpecs:
        return None
    return None if specs.mode is Mode.NONE else fit.Wanted.of(specs)


class _Quality:
    """Weighs the hosts of one request."""

    def __init__(self, hosts: list[Any], wanted: fit.Wanted, view: View,
                 specs: Mapping[str, str]) -> None:
        self._wanted = wanted
        self._hosts = hosts
        self._summaries: list[HostSummary | None] = []
        self._shares: list[float] = []
        self._losses: list[float] = []
        for host in hosts:
            found = view.fresh(host.nodename)
            # Objectives do not exclude a host; the term "risk" considers them.
            if found is None or (fit.lacks_room(found, wanted) and (
                    not granted(host, wanted, specs)
                    or fit.lacks_room(found, wanted, granted=True))):
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
        # Avoid a division by 0 if all shares or losses are 0.
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
        """Return the fraction of each term in a host's quality; aggregates may override it."""
        # Cached by aggregates, because most hosts have the same ones, or none.
        key = tuple(map(id, host.aggregates)) if host.aggregates else ()
        found = self._multipliers.get(key)
        if found is None:
            # Negative values are not allowed, as in the options.
            factors = [max(0.0, utils.get_weight_multiplier(
                host, f"vcache_{term}_multiplier", CONF.vcache[f"{term}_multiplier"]))
                for term in _TERMS]
            total = sum(factors) or 1.0
            found = self._multipliers[key] = tuple(factor / total for factor in factors)
        return found
