# SPDX-License-Identifier: Apache-2.0
"""The whole decision, from its parts; see the package's description."""

import dataclasses
from collections.abc import Iterable, Mapping, Sequence

from nova_vcache.extra_specs import Mode
from vcache_agent.model import DiskId, DiskState
from vcache_agent.netlink import spec
from vcache_agent.plan import (
    actions,
    assign,
    divide,
    holders,
    identify,
    modes,
    nesting,
    release,
    remember,
    wanted,
)
from vcache_agent.plan.actions import Action, TagKey
from vcache_agent.plan.assign import Assigned, Assignment
from vcache_agent.plan.divide import Division
from vcache_agent.plan.state import DiskReport, KernelState, Observed, Plan, PoolDecision
from vcache_agent.plan.wanted import WantedDisk, WantedTag
from vcache_agent.records import RowChanges


def decide(observed: Observed) -> Plan:
    """Return the changes that make the kernel's tags match the domains."""
    observed = dataclasses.replace(observed, disks=identify.identify(
        observed.disks, observed.rows, observed.layers))
    kernel = observed.kernel()
    asking = [state for state in observed.disks
              if state.specs.mode is not Mode.NONE and (state.location or state.unknown
                                                        or state.backing)]
    found = holders.find(asking, observed.rows, observed.layers)
    assignment = assign.assign(found.found, kernel, observed.rows, observed.layers,
                               observed.last_tag)
    disks = nesting.apply(
        wanted.disks((item for item in assignment.tagged if not item.holder.shared),
                     observed.rows, kernel), observed.nesting, observed.rows)
    shared = wanted.shared_layers((item for item in assignment.tagged if item.holder.shared),
                                  disks, _without_tag(assignment, found.unplaced))
    tags = [tag for item in (*disks, *shared) for tag in item.tags]
    used = frozenset(tag.key for tag in tags)
    released = release.tags(observed, kernel, used, found)
    division = divide.divide(
        tags, kernel, divide.Sizes(observed.policy, observed.pools, observed.lanes,
                                   observed.survey, observed.history, observed.settings),
        actions.freed_lanes(released.actions))
    rows = remember.in_use(assignment.tagged, kernel, observed.rows, observed.layers)
    unused, lost = release.rows(
        observed, kernel, {user.id for item in disks for user in item.item.holder.users},
        found.read)
    return Plan(
        actions.in_order([*released.actions, *_changes(tags, kernel, observed, division)]),
        _merged(rows, unused, assignment.last_tag),
        tuple(_reports(observed.disks, disks, shared, assignment, division)),
        released.orphans + lost, used, found.read,
        PoolDecision(division.shares, division.history, division.claims, division.pools))


def _without_tag(assignment: Assignment, unplaced: Iterable[DiskState]) -> list[DiskState]:
    """Return the disks that have no tag."""
    return [*unplaced, *(user for item in assignment.refused if not item.holder.shared
                         for user in item.holder.users)]


def _changes(tags: Iterable[WantedTag], kernel: KernelState, observed: Observed,
             division: Division) -> list[Action]:
    """Return the actions for the tags that domains use."""
    found: list[Action] = []
    for tag in tags:
        part = division.parts[tag.key]
        properties = tag.properties
        if part.limits is not None:
            properties = dataclasses.replace(
                properties, cache_min=part.limits.least, cache_max=part.limits.most)
        found += actions.changes(tag.device, properties, part.lanes, tag.extents,
                                 kernel.tags.get(tag.key), observed.applied.get(tag.key))
    return found


def _merged(rows: RowChanges, unused: RowChanges, last_tag: int) -> RowChanges:
    """Return all changes of the store. A layer that is written again is not forgotten."""
    written = {row.key for row in rows.layers}
    gone = dict.fromkeys((*rows.forgotten_layers, *unused.forgotten_layers))
    return RowChanges(
        rows.disks + unused.disks, unused.forgotten,
        rows.layers + tuple(row for row in unused.layers if row.key not in gone),
        tuple(key for key in gone if key not in written), last_tag)


def _reports(states: Sequence[DiskState], disks: Sequence[WantedDisk],
             shared: Sequence[WantedDisk], assignment: Assignment,
             division: Division) -> Iterable[DiskReport]:
    """Yield the result for each disk of each domain."""
    found: dict[DiskId, DiskReport] = {}
    also = wanted.shared_by_user(shared)
    conflicts = _conflicts(assignment.tagged)
    for disk in disks:
        for user in disk.item.holder.users:
            found[user.id] = _report(disk, user, also.get(user.id, ()), conflicts, division)
    for item in assignment.refused:
        if item.holder.shared:
            continue
        for user in item.holder.users:
            found[user.id] = DiskReport(user, None, Mode.NONE, note=item.reason,
                                        also_read=tuple(also.get(user.id, ())))
    for state in sorted(states, key=lambda disk: disk.label):
        report = found.get(state.id)
        yield report if report is not None and report.state is state else DiskReport(
            state, None, Mode.NONE, note=state.reason, also_read=tuple(also.get(state.id, ())))


def _report(disk: WantedDisk, user: DiskState, shared: Iterable[TagKey],
            conflicts: Mapping[int, str], division: Division) -> DiskReport:
    home = disk.item.home
    managed = user not in wanted.deciding(disk.item.holder.users)
    limited = "its volume type has this mode" if managed else disk.limited
    note = disk.given.note or modes.other_mode(user.specs.mode, disk.given.mode, limited)
    if len(wanted.all_cgroups(disk.item.holder.users)) > spec.CGROUPS_MAX:
        note = (f"more than {spec.CGROUPS_MAX} domains use the disk, some of them are not "
                "isolated")
    if home.device.scope is spec.Scope.VOLUME:
        note = conflicts.get(home.number, note)
    if user.unknown and user.reason:
        note = f"{user.reason}; its last known state stays in force"
    if user.source.deeper:
        note = note or (f"{user.source.deeper} of its layers are too deep in the chain to have "
                        "a tag")
    first = disk.tags[0]
    return DiskReport(
        user, home.number, disk.given.mode, disk.weight,
        note or division.lacking.get(first.key, ""), home.device.number,
        home.device.scope is spec.Scope.VOLUME,
        None if disk.item.holder.unknown else home.extents,
        (*(tag.key for tag in disk.tags[1:]), *shared), managed)


def _conflicts(tagged: Iterable[Assigned]) -> dict[int, str]:
    """Return notes about numbers of table lines that other disks have, too."""
    found = {}
    volumes = {item.home.number for item in tagged
               if item.home.device.scope is spec.Scope.VOLUME}
    for item in tagged:
        number = item.home.number
        if number in volumes and item.home.device.scope is not spec.Scope.VOLUME:
            found[number] = (f"{item.holder.path} has the same tag {number}, tags should be "
                             "unique")
    return found
