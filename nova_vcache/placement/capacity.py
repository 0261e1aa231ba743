# SPDX-License-Identifier: Apache-2.0
"""The capacity of a host, as inventories and traits of Placement."""

import dataclasses
from collections.abc import Iterable, Mapping

from nova_vcache.extra_specs import Mode
from nova_vcache.placement import names

Inventory = dict[str, int | float]

_MIB = 1 << 20

#: Largest amount that Placement stores.
_AMOUNT_MAX = 2**31 - 1


def guaranteed_mb(pool_bytes: int) -> int:
    """Return the MiB of a pool that can be guaranteed: nine tenths, rounded down.

    The target keeps the last tenth free for tags below their share.

    :param pool_bytes: size of the pool (not of its device) in bytes
    """
    return pool_bytes * 9 // 10 // _MIB


@dataclasses.dataclass(frozen=True)
class Capacity:
    """The capacity of one host.

    :param tags: number of tags for disks, used and free, at least 0
    :param tags_reserved: used tags without an allocation: those of second and further
        disks of instances, of instances without an allocation, and of disks that keep their
        tag after their domain has gone
    :param cache_mb: sum of :func:`guaranteed_mb` of all pools; 0: no pool
    :param largest_mb: largest guarantee for one instance: that of the largest pool, because
        all cached disks of an instance are in one pool
    :param cache_reserved_mb: MiB that are guaranteed to instances without an allocation
    :param step_mb: unit of a guarantee, in MiB
    :param flush_isolation: a flush does not wait for data of other instances
    :param elastic: shares change with the demand
    :param tagged_ssd: the SSD supports tags
    :param modes: modes that disks can have now
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
                raise ValueError(f"{name} is {getattr(self, name)}, must be at least 0")
        if self.step_mb < 1:
            raise ValueError(f"step_mb is {self.step_mb}, must be at least 1")
        if self.largest_mb > self.cache_mb:
            raise ValueError(f"largest_mb is {self.largest_mb}, must be at most cache_mb, "
                             f"which is {self.cache_mb}")

    @property
    def inventories(self) -> dict[str, Inventory]:
        """The inventories by resource class, without empty ones."""
        found = {}
        if self.tags:
            found[names.TAG] = _inventory(self.tags, self.tags_reserved, 1, 1)
        if self.largest_mb >= self.step_mb:
            found[names.CACHE_MB] = _inventory(
                self.cache_mb, self.cache_reserved_mb, self.step_mb, self.largest_mb)
        return found

    @property
    def traits(self) -> frozenset[str]:
        """The traits."""
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
    """Return the inventory for a resource that a host no longer has, but that has allocations.

    Placement does not delete an inventory with allocations. So the inventory stays as
    large as the allocations, and all of it is reserved.

    :param used: sum of the allocations
    """
    return _inventory(max(1, used), max(1, used), 1, 1)


def overcommitted(inventories: Mapping[str, Inventory], usages: Mapping[str, int],
                  classes: Iterable[str] = names.RESOURCE_CLASSES) -> dict[str, int]:
    """Return by resource class how much the allocations exceed the unreserved inventory."""
    over = {}
    for name in classes:
        has = inventories.get(name)
        free = int(has["total"] - has["reserved"]) if has else 0
        if usages.get(name, 0) > free:
            over[name] = usages[name] - free
    return over
