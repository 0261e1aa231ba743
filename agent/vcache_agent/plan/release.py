# SPDX-License-Identifier: Apache-2.0
"""What no domain uses: tags in the kernel, and rows of the store."""

import dataclasses
import re
from collections.abc import Collection, Iterator
from typing import NamedTuple

from nova_vcache.extra_specs import Mode
from vcache_agent.model import DiskId, DiskState, Tag, shared_label
from vcache_agent.netlink import spec
from vcache_agent.plan.actions import Action, DeleteTag, SetExtents, SetLanes, SetTag, TagKey
from vcache_agent.plan.holders import Holders
from vcache_agent.plan.state import KernelState, Observed, Orphan
from vcache_agent.records import DiskRow, LayerRow, RowChanges

# Names of the tags that an agent has created: DiskId.label and shared_label.
_LABEL = re.compile(r"[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}:.+|base:.+")


class Released(NamedTuple):
    """Tags that no domain uses.

    :param actions: changes of the kernel's tags
    :param orphans: tags that remain
    """

    actions: tuple[Action, ...]
    orphans: tuple[Orphan, ...]


def tags(observed: Observed, kernel: KernelState, used: Collection[TagKey],
         holders: Holders) -> Released:
    """Release the tags in the kernel that no domain uses.

    :param used: the tags that domains use
    :param holders: the disks and shared layers in use
    """
    recorded = {row.tag for row in observed.rows.values()}
    recorded |= {row.tag for row in observed.layers.values() if row.tag is not None}
    kept_names = {shared_label(path) for path in holders.unknown_paths}
    handed_over = _handed_over(observed, holders)
    # These run, so a tag with such a name is one that the disk had on another device.
    known_names = {name for holder in holders.found if not holder.unknown
                   for name in holder.names}
    # So do these, without a tag.
    known_names |= {state.label for state in observed.disks if not state.unknown} - {
        name for holder in holders.found for name in holder.names}
    actions: list[Action] = []
    orphans: list[Orphan] = []
    for (number, tag), found in kernel.tags.items():
        device = kernel.devices.get(number)
        if (number, tag) in used or device is None or found.name in kept_names:
            continue
        if device.scope is spec.Scope.VOLUME:
            if observed.complete:
                actions += _lend(found)
        elif tag not in recorded and not _LABEL.fullmatch(found.name):
            orphans.append(_orphan(found, "not created by the agent, left unchanged"))
        elif not observed.complete and found.name not in known_names:
            if (number, tag) in handed_over:
                actions += _give_up(found)
            orphans.append(_orphan(found, "libvirt does not answer whether its domain runs"))
        elif not found.dirty_bytes and not found.inflight_bytes:
            actions.append(DeleteTag(found.device, found.id))
        else:
            actions += _give_up(found)
            orphans.append(_orphan(
                found, "its domain has stopped, but its data is not durable yet"))
    return Released(tuple(actions), tuple(orphans))


def _handed_over(observed: Observed, holders: Holders) -> set[TagKey]:
    """Return the tags whose layer now belongs to another disk or is shared.

    The kernel does not allow two tags with the same sectors. So such a tag must give up its
    sectors, even if it is unknown whether its domain runs: attribution to the host tag is
    always safe.
    """
    found: set[TagKey] = set()
    for holder in holders.found:
        for location in holder.layers:
            row = observed.layers.get(location.key)
            if row is None:
                continue
            disk = observed.rows.get(row.owner) if row.owner is not None else None
            numbers = {row.tag, disk.tag if disk is not None else None} - {None}
            found |= {(location.device, number) for number in numbers if number is not None}
    return found


def _lend(found: Tag) -> Iterator[Action]:
    """Clear the limits and lanes of a volume that no domain uses.

    Its data stays in the cache until other tags need the space.
    """
    if not _LABEL.fullmatch(found.name):
        return
    if found.cache_min_bytes or found.cache_max_bytes:
        yield SetTag(found.device, found.id, found.name, found.weight, None,
                     cache_min=0, cache_max=0)
    if found.cache_lanes:
        yield SetLanes(found.device, found.id, 0, found.cache_lanes)


def _give_up(found: Tag) -> Iterator[Action]:
    """Clear the cgroups and extents of a tag that still has buffered data."""
    if found.extents_count:
        yield SetExtents(found.device, found.id, ())
    if found.cgroups:
        yield SetTag(found.device, found.id, found.name, found.weight, ())


def _orphan(found: Tag, reason: str) -> Orphan:
    return Orphan(found.device, found.id, found.name, found.dirty_bytes, reason)


def rows(observed: Observed, kernel: KernelState, in_use: Collection[DiskId],
         read: Collection[str]) -> tuple[RowChanges, tuple[Orphan, ...]]:
    """Record when disks and shared layers are released; forget those that no longer exist.

    :param in_use: disks with a tag
    :param read: keys of the layers that a domain uses
    """
    if not observed.complete:
        return RowChanges(), ()
    in_kernel = {tag for _, tag in kernel.tags}
    changed: list[DiskRow] = []
    forgotten: list[DiskId] = []
    orphans: list[Orphan] = []
    for row in observed.rows.values():
        if row.id in in_use:
            continue
        if row.released is None:
            changed.append(dataclasses.replace(row, released=observed.now))
        elif observed.defined is None or row.domain in observed.defined or row.tag in in_kernel:
            continue
        elif row.path in observed.missing \
                or observed.now - row.released > observed.forget_after:
            forgotten.append(row.id)
        else:
            orphans.append(Orphan(None, row.tag, f"{row.domain}:{row.target}", 0,
                                  "libvirt no longer knows its domain"))
    layers, gone = _layers(observed, in_kernel, read, set(forgotten))
    return RowChanges(tuple(changed), tuple(forgotten), layers, gone), tuple(orphans)


def _layers(observed: Observed, in_kernel: Collection[int], read: Collection[str],
            forgotten: Collection[DiskId]) -> tuple[tuple[LayerRow, ...], tuple[str, ...]]:
    """Return the changed rows of layers, and the keys of those to forget."""
    certain = {state.id for state in observed.disks if _is_certain(state)}
    changed, gone = [], []
    for row in observed.layers.values():
        if row.key in read:
            continue
        kept = row
        if row.tag is not None and row.released is None:
            kept = dataclasses.replace(row, released=observed.now)
        elif row.tag is not None and row.released is not None and row.tag not in in_kernel and (
                row.path in observed.missing
                or observed.now - row.released > observed.forget_after):
            kept = dataclasses.replace(row, tag=None, released=None)
        # A running disk no longer has the layer, or the disk itself is forgotten.
        owner = kept.owner
        owned = owner is not None and owner not in certain and owner not in forgotten \
            and owner in observed.rows
        if kept.tag is None and not owned:
            gone.append(row.key)
        elif kept != row:
            changed.append(kept)
    return tuple(changed), tuple(gone)


def _is_certain(state: DiskState) -> bool:
    """Return True if all layers of a disk are known; without a tag they are not located."""
    return state.specs.mode is not Mode.NONE and not state.unknown and state.source.chain_known \
        and not any(layer.unknown for layer in state.backing)
