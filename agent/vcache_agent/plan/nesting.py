# SPDX-License-Identifier: Apache-2.0
"""Nested shares: the weights of disks from those of projects, instances and disks.

Without nesting, each disk has the weight of its flavor, so an instance with more disks and a
project with more instances get more. With nesting, the host is divided among the projects by the
option ``project_weights``, the part of a project among its instances by ``vcache:weight``, and
that of an instance among its disks by the weights of ``vcache tag set``.
"""

import dataclasses
from collections.abc import Mapping, Sequence

from vcache_agent.decide import nested
from vcache_agent.model import DiskId, DiskState
from vcache_agent.plan.state import DEFAULT_WEIGHT, Nesting
from vcache_agent.plan.wanted import WantedDisk, deciding
from vcache_agent.records import DiskRow


def apply(disks: Sequence[WantedDisk], nesting: Nesting,
          rows: Mapping[DiskId, DiskRow]) -> list[WantedDisk]:
    """Return the disks with nested weights, if shares are nested.

    A disk that several domains use belongs to the first of them.

    :param rows: the store's disks, with the weights of operators
    """
    if not nesting.enabled or not disks:
        return list(disks)
    weights: dict[tuple[str, ...], float] = {}
    members = []
    for disk in disks:
        user = deciding(disk.item.holder.users)[0]
        project, instance = user.domain.project, user.domain.uuid
        weights[project,] = nesting.weight(project)
        weights[project, instance] = user.specs.weight
        members.append(nested.Disk((project, instance), _own(user, rows)))
    found = nested.kernel_weights(nested.fractions(members, weights))
    return [_with(disk, weight) for disk, weight in zip(disks, found, strict=True)]


def _own(user: DiskState, rows: Mapping[DiskId, DiskRow]) -> float:
    """Return the weight of a disk within its instance."""
    row = rows.get(user.id)
    return row.weight if row is not None and row.weight is not None else DEFAULT_WEIGHT


def _with(disk: WantedDisk, weight: int) -> WantedDisk:
    """Return a disk with another weight, on all its devices."""
    return dataclasses.replace(disk, weight=weight, tags=tuple(
        tag._replace(
            properties=dataclasses.replace(tag.properties, weight=weight),
            demand=None if tag.demand is None else dataclasses.replace(tag.demand, weight=weight))
        for tag in disk.tags))
