# SPDX-License-Identifier: Apache-2.0
"""What a host has for instances, as Placement's inventories and traits."""

import dataclasses
from collections.abc import Iterable, Mapping

from nova_vcache.extra_specs import Mode
from nova_vcache.placement import names

Inventory = dict[str, int | float]

_MIB = 1 << 20

#: Largest amount that Placement stores.
_AMOUNT_MAX = 2**31 - 1


def guaranteed_mb(pool_bytes: int) -> int:
    """Return the MiB of a pool that can be guaranteed: nine tenths, in whole MiB.

    The last tenth is what the target keeps free for tags below their share.

    :param pool_bytes: size of the pool, not of its device
    """
    return pool_bytes * 9 // 10 // _MIB


@dataclasses.dataclass(frozen=True)
class Capacity:
    """What one host has for instances.

    :param tags: tag numbers for disks, used or not, at least 0
    :param tags_reserved: those of them that are not for new instances although no
        allocation says so: of instances' second and further disks, of instances
        without an allocation, of disks whose number is kept for a while
    :param cache_mb: MiB that can be guaranteed, of all pools: the sum of their
        :func:`guaranteed_mb`; 0: there is no pool
    :param largest_mb: MiB that can be guaranteed to one instance: the largest
        pool's, since all cached disks of an instance are in one
    :param cache_reserved_mb: MiB that are guaranteed to instances without an
        allocation
    :param step_mb: what a guarantee must be a multiple of
    :param flush_isolation: a flush waits for no other instance's data
    :param elastic: shares move with demand
    :param tagged_ssd: the SSD understands tags
    :param modes: modes in which disks can be cached now
    """

    tags: int
    tags_reserved: int = 0
    cache_mb: int = 0
    largest_mb: int = 0
    cache_reserved_mb: int = 0
    step_mb: int = 1
    flush_isolation: bool = True
    elastic: bool = False
    tagged_ssd: bool = False
    modes: frozenset[Mode] = frozenset()

    def __post_init__(self) -> None:
        for name in ("tags", "tags_reserved", "cache_mb", "largest_mb", "cache_reserved_mb"):
            if getattr(self, name) < 0:
                raise ValueError(f"{name}: {getattr(self, name)} is negative")
        if self.step_mb < 1:
            raise ValueError(f"step_mb: {self.step_mb} must be at least 1")
        if self.largest_mb > self.cache_mb:
            raise ValueError(f"largest_mb: {self.largest_mb} is more than cache_mb, "
                             f"which is {self.cache_mb}")

    @property
    def inventories(self) -> dict[str, Inventory]:
        """Return the inventories; a class of which there is nothing is not in it."""
        found = {}
        if self.tags:
            found[names.TAG] = _inventory(self.tags, self.tags_reserved, 1, 1)
        if self.largest_mb >= self.step_mb:
            found[names.CACHE_MB] = _inventory(
                self.cache_mb, self.cache_reserved_mb, self.step_mb, self.largest_mb)
        return found

    @property
    def traits(self) -> frozenset[str]:
        """Return the traits."""
        has = {names.FLUSH_ISOLATION: self.flush_isolation, names.ELASTIC: self.elastic,
               names.TAGGED_SSD: self.tagged_ssd,
               names.WRITEBACK: Mode.WRITEBACK in self.modes,
               names.WRITETHROUGH: Mode.WRITETHROUGH in self.modes}
        return frozenset({names.OWNER, *(name for name, true in has.items() if true)})


def _inventory(total: int, reserved: int, step: int, largest: int) -> Inventory:
    total = min(total, _AMOUNT_MAX)
    return {"total": total, "reserved": min(reserved, total), "min_unit": step,
            "max_unit": min(largest, total), "step_size": step, "allocation_ratio": 1.0}


def closed(used: int) -> Inventory:
    """Return the inventory of something that a host no longer has, but that is in use.

    Placement does not remove an inventory that something is allocated from. So it
    stays as large as what is allocated, and all of it is reserved.
    """
    return _inventory(max(1, used), max(1, used), 1, 1)


def overcommitted(inventories: Mapping[str, Inventory], usages: Mapping[str, int],
                  classes: Iterable[str] = names.RESOURCE_CLASSES) -> dict[str, int]:
    """Return by class how much more is allocated than there is."""
    over = {}
    for name in classes:
        has = inventories.get(name)
        free = int(has["total"] - has["reserved"]) if has else 0
        if usages.get(name, 0) > free:
            over[name] = usages[name] - free
    return over
