# SPDX-License-Identifier: Apache-2.0
"""Divide the pools: the range and the lanes of each tag, by decide/decision.py."""

import dataclasses
from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import NamedTuple

from nova_vcache.extra_specs import Isolation
from vcache_agent.decide.decision import Config, Share, decide
from vcache_agent.decide.division import Settings
from vcache_agent.decide.history import History
from vcache_agent.model import DeviceNumber, Tag, mask_of
from vcache_agent.netlink import spec
from vcache_agent.observe.claim import Claim, PoolSize
from vcache_agent.observe.sample import Sample
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
    :param survey: the newest survey; None: none yet
    :param history: what the last decision has left
    :param settings: settings of the policies
    """

    policy: str
    pools: Mapping[str, int]
    lanes: Mapping[str, Sequence[int]]
    survey: Sample | None = None
    history: History = dataclasses.field(default_factory=History)
    settings: Settings = dataclasses.field(default_factory=Settings)


@dataclasses.dataclass(frozen=True)
class Division:
    """The result.

    :param parts: the part of each tag
    :param lacking: why a tag does not get the lanes that it requests
    :param shares: the shares of the tags that have a pool, with the reasons
    :param history: for the next decision
    :param claims: the claims of the tags
    :param pools: the pools
    """

    parts: Mapping[TagKey, Part]
    lacking: Mapping[TagKey, str]
    shares: Mapping[TagKey, Share] = dataclasses.field(default_factory=dict)
    history: History = dataclasses.field(default_factory=History)
    claims: tuple[Claim, ...] = ()
    pools: tuple[PoolSize, ...] = ()


def divide(wanted: Iterable[WantedTag], kernel: KernelState, sizes: Sizes,
           freed: Collection[TagKey]) -> Division:
    """Return the part of each tag.

    :param freed: tags whose lanes are released by the same decision
    """
    wanted = list(wanted)
    using = {tag.key: tag for tag in wanted if tag.demand is not None}
    claims = tuple(_claim(tag, kernel) for tag in using.values())
    pools = {number: _pool(number, using, kernel, sizes, freed)
             for number in {claim.pool for claim in claims}}
    decided = decide(sizes.survey, sizes.history,
                     Config(sizes.policy, claims, pools, sizes.settings))
    parts = {tag.key: Part() for tag in wanted}
    lacking = {}
    for key, share in decided.shares.items():
        parts[key] = Part(share.limits, share.lanes)
        note = _lacking(using[key], share, known=bool(pools[using[key].device.pool].lanes))
        if note:
            lacking[key] = note
    return Division(parts, lacking, decided.shares, decided.history, claims,
                    tuple(pools[number] for number in sorted(pools)))


def _claim(tag: WantedTag, kernel: KernelState) -> Claim:
    demand, present = _demand(tag), kernel.tags.get(tag.key)
    held = present.cache_lanes if present else 0
    return Claim(
        *tag.key, tag.device.pool, demand.weight, demand.asked.least, demand.asked.most,
        demand.cached, tag.properties.mode is spec.Mode.WRITEBACK, tag.isolation,
        held if tag.lanes is None else mask_of(tag.lanes), tag.lanes is not None,
        tag.level.read_s or 0.0, tag.flush_s, tag.level.iops or 0.0)


def _pool(number: str, wanted: Collection[TagKey], kernel: KernelState, sizes: Sizes,
          freed: Collection[TagKey]) -> PoolSize:
    """Return what is known about a pool."""
    taken = 0
    for key in kernel.tags.keys() - set(wanted) - set(freed):
        if _holds(key[0], number, kernel):
            taken |= kernel.tags[key].cache_lanes
    return PoolSize(number, sizes.pools.get(number, 0), tuple(sizes.lanes.get(number, ())), taken,
                    tuple(tag.weight for tag in kernel.host_tags if _shares(tag, number, kernel)))


def _holds(device: DeviceNumber, pool: str, kernel: KernelState) -> bool:
    """Return True if a device uses a pool."""
    found = kernel.devices.get(device)
    return found is not None and found.pool == pool


def _shares(tag: Tag, pool: str, kernel: KernelState) -> bool:
    """Return True if the host tag of a device can have data in a pool.

    It cannot in scope volume, where all I/O has the tag of the volume.
    """
    return _holds(tag.device, pool, kernel) and \
        kernel.devices[tag.device].scope is spec.Scope.FILESYSTEM


def _demand(tag: WantedTag) -> Demand:
    assert tag.demand is not None  # noqa: S101 - its device has a pool
    return tag.demand


def _lacking(tag: WantedTag, share: Share, *, known: bool) -> str:
    """Return why a tag does not get the lanes that its flavor requests, or nothing."""
    if not known or tag.lanes is not None or tag.isolation is not Isolation.DEDICATED \
            or not _demand(tag).cached or share.alone:
        return ""
    if not share.lanes:
        return "vcache:isolation is dedicated, but the pool has no free lane"
    return (f"vcache:isolation is dedicated, but the {share.lanes.bit_count()} free lanes have "
            "less than vcache:min_mb: the disk uses shared lanes, too")
