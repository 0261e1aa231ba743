# SPDX-License-Identifier: Apache-2.0
"""Decide whether a domain may start: compare the demands of its flavor with the host."""

import dataclasses
import functools
from collections.abc import Callable, Mapping, Sequence

from nova_vcache import extra_specs
from nova_vcache.extra_specs import ExtraSpecs, InvalidExtraSpecs, Mode
from vcache_agent.hook_server import Refused
from vcache_agent.locate import Located
from vcache_agent.model import Device, DeviceNumber, DiskSource, Domain
from vcache_agent.observe.claim import Claim
from vcache_agent.plan.modes import CACHED, effective_mode

# Disk types that can be on this host. The cache does not handle network disks.
_LOCAL = ("file", "block")


def specs_of(specs: Mapping[str, str]) -> tuple[ExtraSpecs, str]:
    """Return the parsed extra specs and an empty text.

    If they are invalid, return specs without a cache and the reason. nova-api validates
    only from microversion 2.86 on, so a flavor can have invalid specs.
    """
    return _specs_of(tuple(specs.items()))


# Each pass needs the specs of all domains, which have few flavors.
@functools.lru_cache(maxsize=1024)
def _specs_of(items: tuple[tuple[str, str], ...]) -> tuple[ExtraSpecs, str]:
    specs = dict(items)
    try:
        return extra_specs.parse(specs), ""
    except InvalidExtraSpecs as error:
        required = extra_specs.is_required(specs)
        return ExtraSpecs(required=required), f"extra specs of the flavor: {error}"


@dataclasses.dataclass(frozen=True)
class Host:
    """The capabilities of a host.

    :param locate: returns the locations of disks
    :param free_tags: number of unused tags
    :param problem: why the host cannot isolate any disk, or empty
    :param devices: the devices of the target
    :param reserve: reserves the claims of a domain, by its UUID, or returns why they do not fit
    :param managed: the devices of managed volumes, which have the modes of their volume types
    """

    locate: Callable[[Sequence[DiskSource]], Sequence[Located]]
    free_tags: int
    problem: str = ""
    devices: Mapping[DeviceNumber, Device] = dataclasses.field(default_factory=dict)
    reserve: Callable[[str, Sequence[Claim]], Sequence[str]] = lambda *_: ()
    managed: frozenset[DeviceNumber] = frozenset()


def admit(domain: Domain, host: Host) -> str:
    """Decide whether a domain may start; return a note for the log, or an empty text.

    What it requests of pools is reserved if it fits.

    Volumes of Cinder do not count if they are not on a device of the target: they may be remote,
    and the flavor asks for a cache of this host. Nor do managed volumes and elastic SSDs.

    :raises Refused: if the flavor has vcache:required, and a local writable disk does not
        get the requested mode, or there is no such disk, or too few tags are free, or its
        guarantee or its dedicated lanes are not available
    """
    specs, problem = specs_of(domain.extra_specs)
    notes = [problem] if problem else []
    if not problem:
        if specs.mode is Mode.NONE:
            return ""
        notes = _shortcomings(domain, specs, host)
    if notes and specs.required:
        raise Refused(f"{domain.name}: its flavor has vcache:required: " + "; ".join(notes))
    ignored = extra_specs.warning(domain.extra_specs)
    notes += [ignored] if ignored else []
    return f"{domain.name}: " + "; ".join(notes) if notes else ""


def _only_volumes(domain: Domain) -> bool:
    """Return True if all writable disks of a domain are volumes of Cinder."""
    disks = [disk for disk in domain.disks if not disk.readonly]
    return bool(disks) and all(disk.volume for disk in disks)


def _shortcomings(domain: Domain, specs: ExtraSpecs, host: Host) -> list[str]:
    """Return what the domain requests and does not get, and the reasons."""
    if host.problem:
        return [host.problem]
    notes = []
    given_by_device: list[tuple[Device, Mode]] = []
    disks = [disk for disk in domain.disks if not disk.readonly and disk.kind in _LOCAL]
    for disk, found in zip(disks, host.locate(disks), strict=True):
        if found.vssd or (disk.volume and found.location is None and not found.unknown):
            continue
        if found.location is not None and found.location.device in host.managed:
            continue
        # A last known location is not enough: the disk may be another one now.
        if found.problem or found.location is None:
            notes.append(f"disk {disk.target} is not isolated: {found.problem}")
            continue
        device = host.devices[found.location.device]
        given = effective_mode(specs.mode, device)
        given_by_device.append((device, given.mode))
        if given.lacking:
            notes.append(f"disk {disk.target}: {given.note}")
    located = len(given_by_device)
    if not located and not _only_volumes(domain):
        notes.append("none of its disks is on a vcache device")
    if located > host.free_tags:
        notes.append(f"it needs {located} tags, but only {host.free_tags} are free")
    claims = _claims(specs, given_by_device)
    if claims and not (notes and specs.required):
        notes += host.reserve(domain.uuid, claims)
    return notes


def _claims(specs: ExtraSpecs, disks: Sequence[tuple[Device, Mode]]) -> list[Claim]:
    """Return what the disks of a domain claim of their pools, as plan/wanted.py divides it.

    Their tags are not assigned yet, so the numbers are negative.
    """
    using = [(device, mode) for device, mode in disks if device.pool]
    least = specs.min_mb // max(len(using), 1) << 20
    return [Claim(device.number, -1 - at, device.pool, specs.weight, least, 0, mode in CACHED,
                  isolation=specs.isolation) for at, (device, mode) in enumerate(using)]
