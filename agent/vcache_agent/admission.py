# SPDX-License-Identifier: Apache-2.0
"""Whether a domain may start: what its flavor asks for against what the host has."""

import dataclasses
from collections.abc import Callable, Mapping

from nova_vcache import extra_specs
from nova_vcache.extra_specs import ExtraSpecs, InvalidExtraSpecs, Mode
from vcache_agent.blockstack import NotOnVcache
from vcache_agent.hook_server import Refused
from vcache_agent.model import Device, DeviceNumber, DiskSource, Domain, Location
from vcache_agent.reconcile import effective_mode

# What can lie on this host; a network disk is none of a host cache's business.
_LOCAL = ("file", "block")


def specs_of(specs: Mapping[str, str]) -> tuple[ExtraSpecs, str]:
    """Return parsed extra specs, or those of no cache at all and what is wrong.

    A flavor may have got bad specs past an old microversion of nova-api.
    """
    try:
        return extra_specs.parse(specs), ""
    except InvalidExtraSpecs as error:
        required = extra_specs.is_required(specs)
        return ExtraSpecs(required=required), f"extra specs of the flavor: {error}"


@dataclasses.dataclass(frozen=True)
class Host:
    """What a host can do for a domain.

    :param locate: finds a disk, or raises NotOnVcache
    :param free_tags: tag numbers that can be given
    :param problem: why nothing can be done at all, or empty
    :param devices: the devices of the target
    """

    locate: Callable[[DiskSource], Location]
    free_tags: int
    problem: str = ""
    devices: Mapping[DeviceNumber, Device] = dataclasses.field(default_factory=dict)


def admit(domain: Domain, host: Host) -> str:
    """Decide about a domain's start; return a note for the log.

    :raises Refused: if it asks for vcache:required and does not get what its
        mode asks for, on each of its disks that are on this host, at least one
    """
    specs, problem = specs_of(domain.extra_specs)
    notes = [problem] if problem else []
    if not problem:
        if specs.mode is Mode.NONE:
            return ""
        notes = _shortcomings(domain, specs, host)
    if notes and specs.required:
        raise Refused(f"{domain.name}: its flavor says vcache:required: " + "; ".join(notes))
    return f"{domain.name}: " + "; ".join(notes) if notes else ""


def _shortcomings(domain: Domain, specs: ExtraSpecs, host: Host) -> list[str]:
    """Return what the domain does not get, and why."""
    if host.problem:
        return [host.problem]
    notes = []
    located = 0
    for disk in domain.disks:
        if disk.readonly or disk.kind not in _LOCAL:
            continue
        try:
            device = host.devices[host.locate(disk).device]
            located += 1
        except NotOnVcache as error:
            notes.append(f"disk {disk.target} is not isolated: {error}")
            continue
        given = effective_mode(specs.mode, device)
        if given.lacking:
            notes.append(f"disk {disk.target}: {given.note}")
    if not located:
        notes.append("none of its disks is on a vcache device")
    if located > host.free_tags:
        notes.append("not enough free tags for its disks")
    return notes
