# SPDX-License-Identifier: Apache-2.0
"""The capacity of a host, as inventories and traits of Placement."""

import dataclasses
from collections.abc import Mapping

from nova_vcache.extra_specs import Mode
from nova_vcache.placement import names

Inventory = dict[str, int | float]

#: Allocations of one provider: amounts by resource class, by consumer.
Allocations = Mapping[str, Mapping[str, int]]

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
    :param closed: the host accepts no more instances, so all that is unused is reserved
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
    closed: bool = False

    def __post_init__(self) -> None:
        for name in ("tags", "tags_reserved", "cache_mb", "largest_mb", "cache_reserved_mb"):
            if getattr(self, name) < 0:
                raise ValueError(f"{name} is {getattr(self, name)}, must be at least 0")
        if self.step_mb < 1:
            raise ValueError(f"step_mb is {self.step_mb}, must be at least 1")
        if self.largest_mb > self.cache_mb:
            raise ValueError(f"largest_mb is {self.largest_mb}, must be at most cache_mb, "
                             f"which is {self.cache_mb}")

    def inventories(self, allocations: Allocations) -> dict[str, Inventory]:
        """Return the inventories by resource class, without empty ones.

        Placement checks the units of each allocation, even of one that only moves to another
        consumer, as at the begin of a migration. So ``max_unit`` is at least the largest
        existing allocation. If that exceeds the largest pool, stock is reserved, so that
        no new allocation can exceed it. A class that the host no longer has, but that has
        allocations, stays: Placement does not delete it.

        :param allocations: the present allocations of the host's provider
        """
        offers = {names.TAG: (self.tags, self.tags_reserved, 1, 1),
                  names.CACHE_MB: (self.cache_mb, self.cache_reserved_mb, self.step_mb,
                                   self.largest_mb)}
        found = {}
        for name, (total, reserved, step, largest) in offers.items():
            taken = [amounts[name] for amounts in allocations.values() if amounts.get(name)]
            most, used = max(taken, default=0), sum(taken)
            if largest < step or not total:
                if not taken:
                    continue
                total = reserved = used
                step = 1
            elif self.closed:
                reserved = total
            elif most > largest:
                reserved = max(reserved, total - used - largest)
            found[name] = _inventory(total, reserved, step, max(min(largest, total), most))
        return found

    def excess(self, allocations: Allocations) -> dict[str, int]:
        """Return by resource class how much more is promised than the host has.

        What is promised are the allocations, and the resources of instances without one.
        """
        over = {}
        for name, total, reserved in ((names.TAG, self.tags, self.tags_reserved),
                                      (names.CACHE_MB, self.cache_mb, self.cache_reserved_mb)):
            used = sum(amounts.get(name, 0) for amounts in allocations.values())
            if used > total - min(reserved, total):
                over[name] = used - (total - min(reserved, total))
        return over

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
    return {"total": total, "reserved": max(0, min(reserved, total)), "min_unit": step,
            "max_unit": largest, "step_size": step, "allocation_ratio": 1.0}
