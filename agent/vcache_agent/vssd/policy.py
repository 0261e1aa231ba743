# SPDX-License-Identifier: Apache-2.0
"""From what was observed of tags and elastic SSDs to the next sizes of the latter; pure."""

import dataclasses
from collections import defaultdict
from collections.abc import Iterable

from vcache_agent.observe.sample import Sample
from vcache_agent.vssd import sizing


@dataclasses.dataclass(frozen=True)
class Disk:
    """An elastic SSD; sizes in bytes.

    :param pool: device number of its pool
    :param weight: of its instance
    :param least: what the flavor guarantees
    :param most: what the flavor allows, at most the size of the disk
    :param size: its quota
    :param used: what has data
    :param adjustable: its size may change now
    """

    name: str
    pool: str
    weight: int
    least: int
    most: int
    size: int
    used: int
    adjustable: bool

    @property
    def tenant(self) -> sizing.Tenant:
        """What the division needs of it."""
        return sizing.Tenant(self.weight, min(self.least, self.most), self.most, self.size,
                             self.used)


def _tags(survey: Sample) -> dict[str, list[sizing.Tenant]]:
    """Return the tags by the number of their pool."""
    found: dict[str, list[sizing.Tenant]] = defaultdict(list)
    for claim in survey.claims:
        tag = survey.by_key.get(claim.key)
        if claim.cached and tag is not None:
            found[claim.pool].append(sizing.Tenant(
                claim.weight, claim.least, claim.most, tag.cache_share_bytes,
                tag.cached_bytes))
    return found


def targets(survey: Sample, disks: Iterable[Disk]) -> dict[str, int]:
    """Return the next sizes of those elastic SSDs that change, in bytes, by name.

    :param survey: with claims and pools
    """
    of_pool: dict[str, list[Disk]] = defaultdict(list)
    for disk in disks:
        of_pool[disk.pool].append(disk)
    tags, found = _tags(survey), {}
    for pool in survey.pools:
        fixed = sum(disk.size for disk in of_pool[pool.number] if not disk.adjustable)
        moving = [disk for disk in of_pool[pool.number] if disk.adjustable]
        wanted = sizing.sizes(max(0, pool.size - fixed), tags[pool.number],
                              [disk.tenant for disk in moving])
        for disk, size in zip(moving, wanted, strict=True):
            after = sizing.step(disk.tenant, size)
            if after != disk.size:
                found[disk.name] = after
    return found
