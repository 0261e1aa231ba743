# SPDX-License-Identifier: Apache-2.0
"""What follows from the facts and measurements of a drive."""

import dataclasses
import enum

from vcache_agent.drive.facts import Facts
from vcache_agent.drive.measure import DIRTY, Measured, Neighbour

# A FLUSH of dirty data must take so many times as long as one of a block, or nothing follows.
_VISIBLE = 3.0
# FUA is expensive if it takes so many times as long as a write in the volatile cache.
_EXPENSIVE = 4.0


class Isolation(enum.StrEnum):
    """What a flush of one tag costs the others, from the best to the worst."""

    #: no volatile cache, or one with power-loss protection: a completed write is durable
    PLP = "plp"
    #: a volatile cache, and commands that make the data of one tag durable
    TAGGED = "tagged"
    #: a volatile cache and FUA
    FUA = "fua"
    #: a volatile cache, no FUA, and a FLUSH that covers one namespace only
    NAMESPACE = "namespace"
    #: a volatile cache, and only a FLUSH of all data
    DEGRADED = "degraded"
    #: a volatile cache that the kernel does not flush: data is lost if the power is cut
    UNSAFE = "unsafe"


@dataclasses.dataclass(frozen=True)
class Verdict:
    """The result.

    :param flush_limited: a FLUSH covers one namespace only; None: not known
    :param advice: sentences for the operator, the most important one first
    """

    isolation: Isolation
    flush_limited: bool | None
    advice: tuple[str, ...]


def flush_is_limited(found: Neighbour) -> bool | None:
    """Tell whether a FLUSH leaves out the dirty data of the other device; None: unclear.

    The data must be visible in the other device's own FLUSH. Then the flush beside it is compared
    with both: nearer to the one without dirty data, or nearer to the other device's own.
    """
    if found.own < _VISIBLE * found.alone:
        return None
    part = (found.beside - found.alone) / (found.own - found.alone)
    if part < 0.25:
        return True
    return False if part > 0.5 else None


def _isolation(facts: Facts, limited: bool | None) -> Isolation:
    drive, queue = facts.nvme, facts.queue
    if not queue.write_back:
        volatile = drive and drive.controller.volatile_cache and drive.cache_enabled is not False
        return Isolation.UNSAFE if volatile else Isolation.PLP
    if drive and drive.tagged:
        return Isolation.TAGGED
    if queue.fua:
        return Isolation.FUA
    return Isolation.NAMESPACE if limited else Isolation.DEGRADED


_ADVICE = {
    Isolation.UNSAFE:
        "The drive has a volatile cache, but the kernel was told that it has none, and sends no "
        "FLUSH: a power cut loses data that was reported as durable. Write 'write back' to "
        "/sys/block/{name}/queue/write_cache, and remove the rule that changed it.",
    Isolation.PLP:
        "A completed write is durable. Flushes cost the drive nothing and are isolated. Use it "
        "as a cache device or as an origin.",
    Isolation.TAGGED:
        "A flush makes the data of its own tag durable. Use it as an origin; the agent enables "
        "the tags.",
    Isolation.FUA:
        "Flushes are isolated: vcache writes with FUA, and sends no FLUSH.",
    Isolation.NAMESPACE:
        "Each flush is one of the whole namespace. Give each tenant a namespace, or use the "
        "drive behind a pool on a drive with FUA.",
    Isolation.DEGRADED:
        "Each flush is one of the whole drive, and waits for everybody's data. Use the drive "
        "behind a pool on a drive with FUA or without a volatile cache.",
}


def _advice(facts: Facts, isolation: Isolation, limited: bool | None,
            measured: Measured | None) -> list[str]:
    drive = facts.nvme
    found = [_ADVICE[isolation].format(name=facts.name)]
    if drive and drive.cache_enabled is False:
        found.append("The volatile cache of the drive is disabled (feature 06h). Enabled, writes "
                     "may be faster, and vcache would use FUA.")
    if measured and measured.fua and isolation is Isolation.FUA \
            and measured.fua.p50 > _EXPENSIVE * measured.write.p50:
        found.append(f"A write with FUA takes {measured.fua.p50:.0f} us, one without "
                     f"{measured.write.p50:.0f} us: use mode writeback with a pool on another "
                     "drive for tenants that sync often.")
    if limited is False and isolation is Isolation.FUA:
        found.append("A FLUSH waits for the data of other namespaces, too: what is not behind "
                     "vcache disturbs all tenants with its flushes.")
    if drive and drive.fdp_enabled:
        found.append("Flexible Data Placement is enabled.")
    elif drive and drive.controller.fdp:
        found.append("The drive supports Flexible Data Placement, but it is not enabled (nvme "
                     "fdp feature --enable).")
    if drive and drive.controller.sets:
        found.append(f"The drive has NVM sets; this namespace is in set "
                     f"{drive.namespace.nvm_set}. Namespaces of different sets can be lanes of a "
                     "pool.")
    if facts.queue.rotational:
        found.append("It is a disk with moving parts: use it as an origin behind a cache.")
    return found


def judge(facts: Facts, measured: Measured | None = None,
          neighbour: Neighbour | None = None) -> Verdict:
    """Decide what follows.

    :param measured: None: not measured
    :param neighbour: None: no other namespace was given
    """
    limited = flush_is_limited(neighbour) if neighbour else None
    isolation = _isolation(facts, limited)
    advice = _advice(facts, isolation, limited, measured)
    if neighbour and limited is None:
        advice.append(f"Whether a FLUSH is limited to a namespace is unclear: {DIRTY >> 20} MiB of "
                      f"dirty data make a FLUSH take {neighbour.own:.0f} instead of "
                      f"{neighbour.alone:.0f} us.")
    return Verdict(isolation, limited, tuple(advice))
