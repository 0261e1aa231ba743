# SPDX-License-Identifier: Apache-2.0
"""Check whether a host meets the requests of a flavor, and how well.

Pure functions of one host's summary. The module imports only the standard library.
The filter uses :func:`lacks`, the weigher the other functions.
"""

import dataclasses

from nova_vcache.extra_specs import ExtraSpecs, Isolation, Mode
from nova_vcache.placement import flavor
from nova_vcache.summary import HostSummary


@dataclasses.dataclass(frozen=True, slots=True)
class Wanted:
    """The requests of a flavor, computed once for all hosts.

    :param specs: extra specs of the flavor
    :param caches: it requests a cache device
    :param min_mb: guaranteed MiB, of the cache and of the elastic SSD
    :param lane: it requests a dedicated lane
    :param slo_flush_ms: limit of the p99 of the flush latency; None: no limit
    :param slo_read_us: limit of the p99 of the read latency; None: no limit
    :param slo_iops: requests per second that the host must have left; None: no limit
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
        """Return the requests of a flavor.

        :param headroom: percentage of an objective that must be left on a host
        """
        part = 1 - headroom / 100
        caches = flavor.caches(specs)
        return cls(
            specs, caches, flavor.guaranteed_mb(specs),
            caches and specs.isolation is Isolation.DEDICATED,
            None if specs.slo_flush_ms is None else specs.slo_flush_ms * part,
            None if specs.slo_read_us is None else specs.slo_read_us * part,
            None if specs.slo_iops is None else specs.slo_iops / part)


def lacks(host: HostSummary, wanted: Wanted, *, there: bool = False, granted: bool = False,
          taken: int = 0) -> str:
    """Return what a host lacks for a flavor, or nothing if it meets all requests.

    The text is the reason, a colon, and details.

    :param there: the instance is already on this host and uses its resources
    :param granted: Placement has granted the mode, the tag and the guarantee for this
        request; a summary, which can be older, does not decide about them again. It still
        decides whether the guarantee fits into one pool.
    :param taken: lanes that earlier instances of the same request will take
    """
    return lacks_room(host, wanted, there=there, granted=granted, taken=taken) or \
        _late(host, wanted)


def lacks_room(host: HostSummary, wanted: Wanted, *, there: bool = False, granted: bool = False,
               taken: int = 0) -> str:
    """Return what a host lacks, as :func:`lacks` does, without the objectives."""
    reason = "" if granted else _lacks_stock(host, wanted, there)
    if reason:
        return reason
    # Placement counts all pools together, and does not know that none has enough.
    knows = not granted or host.cache_free_mb >= wanted.min_mb
    if not there and knows and host.largest_free_mb < wanted.min_mb:
        return (f"cache full: {wanted.min_mb} MiB to be guaranteed, "
                f"{host.largest_free_mb} MiB free")
    if wanted.lane and not there and host.lanes_free <= taken:
        return (f"no free lane: vcache:isolation is dedicated, {host.lanes_free} lanes are free, "
                f"and other instances of the request take {taken}")
    return ""


def _lacks_stock(host: HostSummary, wanted: Wanted, there: bool) -> str:
    """Return what a host lacks of that which Placement can grant."""
    mode = wanted.specs.mode
    if mode not in host.modes and not (mode is Mode.FLUSH_ONLY and host.modes):
        return (f"mode not available: {mode} requested, available are "
                f"{', '.join(sorted(host.modes)) or 'none'}")
    if not host.flush_isolation:
        return "flushes not isolated: its device has a volatile write cache and no FUA"
    if not there and host.tags_free < 1:
        return "no free tag: all tags are in use"
    return ""


def _late(host: HostSummary, wanted: Wanted) -> str:
    """Return which objective a host would miss, by its current figures, or nothing."""
    limit, now = wanted.slo_flush_ms, host.flush_p99_ms
    if limit is not None and now is not None and now > limit:
        return f"flushes too slow: p99 is {now:g} ms, must be at most {limit:g} ms with headroom"
    limit, now = wanted.slo_read_us, host.read_p99_us
    if limit is not None and now is not None and now > limit:
        return f"reads too slow: p99 is {now:g} us, must be at most {limit:g} us with headroom"
    limit, now = wanted.slo_iops, host.iops_free
    if limit is not None and now is not None and now < limit:
        return f"too few IOPS: {now:g} free, must be at least {limit:g} with headroom"
    return ""


def share_mb(host: HostSummary, wanted: Wanted) -> float:
    """Return the cache that an instance would get on a host, in MiB.

    This follows the default policy: the minimum, and a part of the remaining cache by
    weight, up to the maximum.
    """
    if not wanted.caches:
        return 0.0
    specs = wanted.specs
    rest = host.cache_free_mb - wanted.min_mb
    share = specs.min_mb + max(0, rest) * specs.weight / (host.weight + specs.weight)
    return share if specs.max_mb is None else min(share, specs.max_mb)


def loss(host: HostSummary, share: float) -> float:
    """Return the additional read misses per second of the instances on a host.

    Unused cache costs no instance anything.

    :param share: share of the new instance in MiB
    """
    return max(0.0, share - host.idle_mb) / 1024 * (host.loss_per_gb or 0.0)


def slo_risk(host: HostSummary, wanted: Wanted) -> float:
    """Return the risk that an objective is missed, from 0 to 1.

    It is the larger of two fractions: the part of the instance's objective that is used
    up on the host, and the part of the host's objectives that are missed already.
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
    """Return how much a guarantee would fragment a host's cache, from 0 to 1.

    It is the rest of the largest free part, as a fraction of the whole cache. It is 0
    without a guarantee, and smallest on the host where the guarantee fits best.
    """
    if not wanted.min_mb or not host.cache_mb:
        return 0.0
    return min(1.0, max(0, host.largest_free_mb - wanted.min_mb) / host.cache_mb)
