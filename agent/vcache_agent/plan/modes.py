# SPDX-License-Identifier: Apache-2.0
"""The mode that a disk gets: what was requested, and what its device can do."""

from collections.abc import Iterable, Sequence
from typing import NamedTuple

from nova_vcache.extra_specs import Mode
from vcache_agent.model import Device, DiskState
from vcache_agent.netlink import spec

#: From the least to the most use of the cache.
ORDER = (Mode.NONE, Mode.FLUSH_ONLY, Mode.WRITETHROUGH, Mode.WRITEBACK)
CACHED = (Mode.WRITEBACK, Mode.WRITETHROUGH)
_MODES = {mode: Mode(mode.name.lower().replace("_", "-")) for mode in spec.Mode}
_KERNEL_MODES = {ours: mode for mode, ours in _MODES.items()}


class Effective(NamedTuple):
    """The mode that a disk gets on its device.

    :param mode: the mode
    :param note: why it differs from the requested mode or does not work, or empty
    :param lacking: the mode gives less than the requested mode, or does not work now
    """

    mode: Mode
    note: str = ""
    lacking: bool = False


def effective_mode(asked: Mode, device: Device) -> Effective:
    """Return the mode that a disk gets on a device.

    :param asked: mode that its flavor requests
    """
    served = _MODES[device.mode]
    if asked is Mode.NONE:
        return Effective(asked)
    if served is Mode.WRITEBACK or asked is served:
        if asked in CACHED and device.cache_broken:
            return Effective(asked, f"I/O to the cache of device {device.name} fails", True)
        return Effective(asked)
    if served is Mode.NONE:
        return Effective(served, f"device {device.name} is in mode none, which isolates nothing",
                         True)
    if served is Mode.FLUSH_ONLY:
        return Effective(served, f"{asked} needs a cache pool, but device {device.name} is in "
                         "mode flush-only", True)
    return Effective(served, f"device {device.name} is in mode {served} for all its tags",
                     ORDER.index(served) < ORDER.index(asked))


def requested(flavors: Iterable[Mode], set_by_operator: Sequence[str]) -> Mode:
    """Return the highest mode that an operator has set, or else that the flavors request."""
    return max((Mode(mode) for mode in set_by_operator) if set_by_operator else flavors,
               key=ORDER.index)


def limit(users: Iterable[DiskState], device: Device) -> tuple[Mode | None, str]:
    """Return the highest mode that a disk may have on a device, and why; None: any.

    Other hosts may see a volume, but not a file: a file system with a target below it is used
    by one host at a time. So if several hosts may write a volume, this one must not answer
    reads from a cache either.

    :param users: the disks that use it, one of each domain
    """
    volume = device.scope is spec.Scope.VOLUME
    found: list[tuple[Mode, str]] = []
    for user in users:
        if user.source.shareable:
            found.append((Mode.FLUSH_ONLY if volume else Mode.WRITETHROUGH,
                          "the disk is <shareable/>, so others may write it"))
        most = user.limits.volume if volume else user.limits.file
        if most is not None:
            found.append((most, user.limits.reason))
    return min(found, key=lambda item: ORDER.index(item[0]), default=(None, ""))


def at_most(asked: Mode, most: Mode | None) -> Mode:
    """Return a mode, or its limit if that is lower."""
    return asked if most is None else min(asked, most, key=ORDER.index)


def of_shared_layer(users: Iterable[Mode]) -> Mode:
    """Return the mode to request for a layer that disks only read.

    A guest never writes it, so there is nothing to write back.

    :param users: modes of the disks that use it
    """
    return Mode.WRITETHROUGH if any(mode in CACHED for mode in users) else Mode.FLUSH_ONLY


def kernel_mode(mode: Mode, device: Device) -> spec.Mode | None:
    """Return the mode of a tag for the kernel; None: the device offers no choice."""
    return _KERNEL_MODES[mode] if device.mode is spec.Mode.WRITEBACK else None


def other_mode(asked: Mode, given: Mode, limited: str = "") -> str:
    """Return a note if a disk's mode is not the one of its flavor, or nothing.

    :param limited: why the mode of the disk has a limit that took effect, or empty
    """
    if asked is given:
        return ""
    if limited:
        return f"mode {given} instead of {asked}: {limited}"
    return (f"mode {given} instead of {asked}: set by an operator, or by the flavor of another "
            "domain that uses the disk")
