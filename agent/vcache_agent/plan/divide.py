# SPDX-License-Identifier: Apache-2.0
"""Divide the pools: the range and the lanes of each tag."""

import dataclasses
from collections import defaultdict
from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import NamedTuple

from nova_vcache.extra_specs import Isolation
from vcache_agent import lanes as lanes_of_pool
from vcache_agent import policies
from vcache_agent.model import DeviceNumber, Tag, mask_of
from vcache_agent.netlink import spec
from vcache_agent.plan.actions import TagKey
from vcache_agent.plan.state import KernelState
from vcache_agent.plan.wanted import WantedTag
from vcache_agent.policies import Demand, Range


class Part(NamedTuple):
    """The part of a pool that a tag gets.

    :param limits: its range; None: its device has no pool
    :param lanes: bit mask of its dedicated lanes
    """

    limits: Range | None = None
    lanes: int = 0


@dataclasses.dataclass(frozen=True)
class Sizes:
    """How the pools are to be divided.

    :param policy: name of the policy
    :param pools: known sizes of the pools in bytes, by device number
    :param lanes: known sizes of the pools' lanes in bytes, by device number
    """

    policy: str
    pools: Mapping[str, int]
    lanes: Mapping[str, Sequence[int]]


@dataclasses.dataclass(frozen=True)
class Division:
    """The result.

    :param parts: the part of each tag
    :param lacking: why a tag does not get the lanes that it requests
    """

    parts: Mapping[TagKey, Part]
    lacking: Mapping[TagKey, str]


def divide(wanted: Iterable[WantedTag], kernel: KernelState, sizes: Sizes,
           freed: Collection[TagKey]) -> Division:
    """Return the part of each tag.

    :param freed: tags whose lanes are released by the same decision
    """
    parts: dict[TagKey, Part] = {}
    lacking: dict[TagKey, str] = {}
    of_pool: dict[str, list[WantedTag]] = defaultdict(list)
    for tag in wanted:
        if tag.demand is None:
            parts[tag.key] = Part()
        else:
            of_pool[tag.device.pool].append(tag)
    for number, tags in of_pool.items():
        pool = _Pool(number, sizes, kernel)
        lanes = pool.lanes(tags, freed)
        # A tag that uses only dedicated lanes gets no part of the shared lanes.
        alone = {tag.key: size for tag in tags if (size := pool.alone(tag, lanes[tag.key]))}
        ranges = pool.ranges([tag for tag in tags if tag.key not in alone], sum(alone.values()))
        for tag in tags:
            limits = _within(_demand(tag).asked, alone[tag.key]) if tag.key in alone \
                else ranges[tag.key]
            parts[tag.key] = Part(limits, lanes[tag.key])
            if note := _lacking(tag, lanes[tag.key], alone=tag.key in alone, known=pool.known):
                lacking[tag.key] = note
    return Division(parts, lacking)


class _Pool:
    """One pool.

    :param number: its device number
    """

    def __init__(self, number: str, sizes: Sizes, kernel: KernelState) -> None:
        self._number = number
        self._policy = policies.POLICIES[sizes.policy]
        self._size = sizes.pools.get(number, 0)
        self._lanes = sizes.lanes.get(number, ())
        self._kernel = kernel

    @property
    def known(self) -> bool:
        """The sizes of its lanes are known."""
        return bool(self._lanes)

    def lanes(self, tags: Sequence[WantedTag], freed: Collection[TagKey]) -> dict[TagKey, int]:
        """Return the dedicated lanes of the tags, as bit masks.

        Lanes that an operator has set override those that the flavors request.
        """
        held = {tag.key: self._held(tag.key) for tag in tags}
        found = {tag.key: held[tag.key] if tag.lanes is None else mask_of(tag.lanes)
                 for tag in tags}
        if not self.known:
            return found  # every tag keeps its lanes
        taken = 0
        for key in self._kernel.tags.keys() - found.keys() - set(freed):
            if self._holds(key[0]):
                taken |= self._held(key)
        for tag in tags:
            if tag.lanes is not None:
                taken |= found[tag.key]
        open_to = [tag for tag in tags if tag.lanes is None]
        claims = [lanes_of_pool.Claim(
            tag.isolation if _demand(tag).cached else Isolation.SHARED,
            _demand(tag).asked.least, held[tag.key]) for tag in open_to]
        assigned = lanes_of_pool.assign(self._lanes, claims, taken)
        return found | {tag.key: mask for tag, mask in zip(open_to, assigned, strict=True)}

    def alone(self, tag: WantedTag, lanes: int) -> int:
        """Return the bytes of a tag's dedicated lanes if it uses only those, otherwise 0."""
        if tag.isolation is not Isolation.DEDICATED or not lanes:
            return 0
        size = lanes_of_pool.capacity(self._lanes, lanes)
        return size if size >= _demand(tag).asked.least else 0

    def ranges(self, tags: Sequence[WantedTag], alone: int) -> dict[TagKey, Range]:
        """Return the ranges of tags.

        :param alone: bytes of the pool in lanes of tags that use only dedicated lanes
        """
        found = {tag.key: _demand(tag).asked for tag in tags}
        size = max(0, self._size - alone)
        if self._policy.sized and not size:
            return found
        # The host tags take part in the division, but get no limits.
        hosts = [Demand(tag.weight) for tag in self._kernel.host_tags if self._shares(tag)]
        using = [tag for tag in tags if _demand(tag).cached]
        given = self._policy.divide([*(_demand(tag) for tag in using), *hosts], size)
        return found | {tag.key: limits for tag, limits in zip(using, given, strict=False)}

    def _held(self, key: TagKey) -> int:
        """Return the bit mask of a tag's current dedicated lanes."""
        present = self._kernel.tags.get(key)
        return present.cache_lanes if present else 0

    def _holds(self, number: DeviceNumber) -> bool:
        """Return True if a device uses this pool."""
        device = self._kernel.devices.get(number)
        return device is not None and device.pool == self._number

    def _shares(self, tag: Tag) -> bool:
        """Return True if the host tag of a device can have data in this pool.

        It cannot in scope volume, where all I/O has the tag of the volume.
        """
        return self._holds(tag.device) and \
            self._kernel.devices[tag.device].scope is spec.Scope.FILESYSTEM


def _demand(tag: WantedTag) -> Demand:
    assert tag.demand is not None  # noqa: S101 - its device has a pool
    return tag.demand


def _lacking(tag: WantedTag, lanes: int, *, alone: bool, known: bool) -> str:
    """Return why a tag does not get the lanes that its flavor requests, or nothing."""
    if not known or tag.lanes is not None or tag.isolation is not Isolation.DEDICATED \
            or not _demand(tag).cached or alone:
        return ""
    if not lanes:
        return "vcache:isolation is dedicated, but the pool has no free lane"
    return (f"vcache:isolation is dedicated, but the {lanes.bit_count()} free lanes have "
            "less than vcache:min_mb: the disk uses shared lanes, too")


def _within(asked: Range, size: int) -> Range:
    """Return a range limited to `size` bytes."""
    return Range(min(asked.least, size), min(asked.most or size, size))
