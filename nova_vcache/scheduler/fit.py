# SPDX-License-Identifier: Apache-2.0
"""Whether a host can give a flavor what it asks for, and how well.

Pure functions of one host's summary; standard library only. The filter asks
:func:`lacks`, the weigher :func:`gain` and the others.
"""

import dataclasses

from nova_vcache.extra_specs import ExtraSpecs, Isolation, Mode
from nova_vcache.placement import flavor
from nova_vcache.summary import HostSummary


@dataclasses.dataclass(frozen=True, slots=True)
class Wanted:
    """What a flavor asks for, worked out once for all hosts.

    :param specs: the flavor's
    :param caches: a cache device
    :param min_mb: MiB that are guaranteed
    :param lane: a lane of its own
    :param slo_flush_ms, slo_read_us: 99 % may take so long; None: any time
    :param slo_iops: requests a second; None: any number
    """

    specs: ExtraSpecs
    caches: bool
    min_mb: int
    lane: bool
    slo_flush_ms: float | None
    slo_read_us: float | None
    slo_iops: float | None

    @classmethod
    def of(cls, specs: ExtraSpecs, headroom: float = 0.0) -> "Wanted":
        """Work it out.

        :param headroom: percent of an objective that must be left
        """
        part = 1 - headroom / 100
        caches = flavor.caches(specs)
        return cls(
            specs, caches, flavor.guaranteed_mb(specs),
            caches and specs.isolation is Isolation.DEDICATED,
            None if specs.slo_flush_ms is None else specs.slo_flush_ms * part,
            None if specs.slo_read_us is None else specs.slo_read_us * part,
            None if specs.slo_iops is None else specs.slo_iops / part)


def lacks(host: HostSummary, wanted: Wanted, *, there: bool = False) -> str:
    """Return what a host lacks for a flavor, or nothing if it can give all.

    The text is a kind of reason, a colon and the figures.

    :param there: the instance is on this host, with what it has
    """
    return lacks_room(host, wanted, there=there) or _late(host, wanted)


def lacks_room(host: HostSummary, wanted: Wanted, *, there: bool = False) -> str:
    """Return what a host lacks but for objectives, as :func:`lacks` does."""
    mode = wanted.specs.mode
    if mode not in host.modes and not (mode is Mode.FLUSH_ONLY and host.modes):
        return f"mode not offered: {mode}, it has {', '.join(sorted(host.modes)) or 'none'}"
    if not host.flush_isolation:
        return "flushes not isolated: its device has a volatile cache and no FUA"
    if not there:
        if host.tags_free < 1:
            return "no tag left: all tag numbers are in use"
        if wanted.caches and host.largest_free_mb < wanted.min_mb:
            return (f"cache full: {wanted.min_mb} MiB to be guaranteed, "
                    f"{host.largest_free_mb} MiB left")
        if wanted.lane and host.lanes_free < 1:
            return "no lane left: vcache:isolation is dedicated, all lanes are in use"
    return ""


def _late(host: HostSummary, wanted: Wanted) -> str:
    """Return which objective a host would miss, by what it does now."""
    limit, now = wanted.slo_flush_ms, host.flush_p99_ms
    if limit is not None and now is not None and now > limit:
        return f"flushes too slow: 99 % take {now:g} ms, {limit:g} ms with head-room wanted"
    limit, now = wanted.slo_read_us, host.read_p99_us
    if limit is not None and now is not None and now > limit:
        return f"reads too slow: 99 % take {now:g} us, {limit:g} us with head-room wanted"
    limit, now = wanted.slo_iops, host.iops_free
    if limit is not None and now is not None and now < limit:
        return f"too few requests: {now:g} a second left, {limit:g} with head-room wanted"
    return ""


def share_mb(host: HostSummary, wanted: Wanted) -> float:
    """Return the cache that an instance would have there, in MiB.

    As the default policy divides a pool: its minimum, and by weight of what the
    minima leave, up to its maximum.
    """
    if not wanted.caches:
        return 0.0
    specs = wanted.specs
    rest = host.cache_free_mb - wanted.min_mb
    share = wanted.min_mb + max(0, rest) * specs.weight / (host.weight + specs.weight)
    return share if specs.max_mb is None else min(share, specs.max_mb)


def loss(host: HostSummary, share: float) -> float:
    """Return how many requests a second would miss on the host by a newcomer's share.

    What is lent anyway costs nobody anything.

    :param share: in MiB
    """
    return max(0.0, share - host.idle_mb) / 1024 * (host.loss_per_gb or 0.0)


def slo_risk(host: HostSummary, wanted: Wanted) -> float:
    """Return the risk that an objective is missed, from 0 to 1.

    How much of its objective the instance would find used up, or the part of the
    objectives on the host that are missed already, whichever is more.
    """
    risk = host.slo_missed / host.slo_tags if host.slo_tags else 0.0
    if wanted.slo_flush_ms and host.flush_p99_ms is not None:
        risk = max(risk, host.flush_p99_ms / wanted.slo_flush_ms)
    if wanted.slo_read_us and host.read_p99_us is not None:
        risk = max(risk, host.read_p99_us / wanted.slo_read_us)
    if wanted.slo_iops and host.iops_free is not None:
        risk = max(risk, wanted.slo_iops / max(host.iops_free, 1e-9))
    return min(risk, 1.0)


def fragmentation(host: HostSummary, wanted: Wanted) -> float:
    """Return the part of a host's cache that a guarantee would cut up, from 0 to 1.

    What is left of the largest free part, in relation to all; nothing without a
    guarantee. Least where the guarantee fits best.
    """
    if not wanted.min_mb or not host.cache_mb:
        return 0.0
    return min(1.0, max(0, host.largest_free_mb - wanted.min_mb) / host.cache_mb)
