# SPDX-License-Identifier: Apache-2.0
"""Pure decisions about a migration: may a domain come here, and is it over at the source."""

import dataclasses
from typing import NamedTuple

from nova_vcache.extra_specs import Mode
from vcache_agent.admission import specs_of
from vcache_agent.hook_server import Refused
from vcache_agent.migration.messages import Answer
from vcache_agent.model import Domain

# Seconds without a migration job after which a migration counts as failed. libvirt has no job
# for a moment between two phases of a migration that its client controls.
_SETTLED = 2.0


def shared_disks(domain: Domain) -> list[str]:
    """Return the targets of the disks that both hosts may see: block devices.

    QEMU copies image files, because a file system with a target below it is used by one host
    at a time; and a file on NFS is not on a target. Network disks have no target either.
    """
    return [disk.target for disk in domain.disks if disk.kind == "block" and not disk.readonly]


def decide(domain: Domain, answer: Answer | str, *, accept_unanswered: bool) -> str:
    """Decide whether a domain may migrate to this host; return a note for the log, or nothing.

    :param answer: the source's answer, or why there is none
    :param accept_unanswered: accept without an answer
    :raises Refused: if this host could read data that is older than that of the source
    """
    specs, problem = specs_of(domain.extra_specs)
    asks = bool(problem) or specs.mode is not Mode.NONE
    disks = ", ".join(shared_disks(domain))
    if isinstance(answer, Answer):
        if answer.ready or not disks:
            return ""
        raise Refused(
            f"{domain.name}: the source host has {answer.dirty_bytes >> 10} KiB that are not on "
            f"the storage of disk {disks} yet{': ' + answer.reason if answer.reason else ''}; "
            "migrate again when they are, see vcache disks there")
    if not asks:
        return ""
    if not disks:
        return f"{domain.name}: the settings of operators stay behind: {answer}"
    text = (f"{domain.name}: it is unknown whether the source host has newer data of disk {disks} "
            f"than the storage has: {answer}")
    if accept_unanswered:
        return text
    raise Refused(f"{text}; see [migration] unanswered in vcache-agent.conf")


class Sight(NamedTuple):
    """What libvirt reports of a domain that migrates.

    :param active: QEMU runs
    :param migrating: libvirt has a job for it that is a migration, or it waits for the end of
        one, paused
    """

    active: bool
    migrating: bool


@dataclasses.dataclass(frozen=True)
class Departure:
    """The source's knowledge of a migration. Times are monotonic, in seconds.

    :param asked: when the destination asked last
    :param ready: the last answer was that all data is on the origins
    :param job: when libvirt last had a migration; None: it has not had one yet
    :param dirty: when the domain last had data that was not on its origins
    """

    asked: float
    ready: bool = False
    job: float | None = None
    dirty: float | None = None


def is_over(departure: Departure, sight: Sight, now: float, grace: float) -> bool:
    """Return True if the domain stays here: its migration has failed or was cancelled.

    If the destination was told to wait, the domain keeps its limits until all its data is on
    the origins, and `grace` longer: otherwise a second attempt would begin where the first
    did.

    :param grace: seconds that may pass from a question to the migration
    """
    if not sight.active or sight.migrating:
        return False
    if departure.ready and departure.job is not None:
        return now - max(departure.job, departure.asked) >= _SETTLED
    last = max(departure.asked, departure.job or 0.0, departure.dirty or 0.0)
    return now - last >= grace
