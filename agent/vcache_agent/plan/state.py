# SPDX-License-Identifier: Apache-2.0
"""The inputs and outputs of a decision."""

import dataclasses
from collections.abc import Mapping, Sequence
from typing import NamedTuple

from nova_vcache.extra_specs import Mode
from vcache_agent import policies
from vcache_agent import tags as numbers
from vcache_agent.decide.decision import Share
from vcache_agent.decide.division import Settings
from vcache_agent.decide.history import History
from vcache_agent.model import Device, DeviceNumber, DiskId, DiskState, Extents, Tag
from vcache_agent.observe.claim import Claim, PoolSize
from vcache_agent.observe.sample import Sample
from vcache_agent.plan.actions import Action, TagKey
from vcache_agent.records import DiskRow, LayerRow, RowChanges


class KernelState(NamedTuple):
    """The kernel's devices and tags, without the host tags.

    :param devices: the devices of the target, by number
    :param tags: the tags of disks and layers
    :param host_tags: the tags of the host's own I/O
    """

    devices: Mapping[DeviceNumber, Device]
    tags: Mapping[TagKey, Tag]
    host_tags: Sequence[Tag]


#: Weight of a project without an entry, and of a disk that has none of its own.
DEFAULT_WEIGHT = 100


@dataclasses.dataclass(frozen=True)
class Nesting:
    """How shares are nested.

    :param enabled: they are
    :param projects: weights of projects by id; others have 100
    """

    enabled: bool = False
    projects: Mapping[str, int] = dataclasses.field(default_factory=dict)

    def weight(self, project: str) -> int:
        """Return the weight of a project."""
        return self.projects.get(project, DEFAULT_WEIGHT)


@dataclasses.dataclass(frozen=True)
class Observed:
    """All inputs of a decision.

    :param disks: disks of the domains that run or are about to
    :param devices: the devices of the target
    :param tags: the kernel's tags
    :param complete: libvirt has listed the running domains, so all others are stopped
    :param defined: UUIDs of all domains that libvirt knows; None: unknown
    :param rows: the store's disks
    :param layers: the store's layers by key
    :param last_tag: the tag number that was assigned last
    :param applied: extents that this agent has set, by device and tag
    :param missing: host paths of released disks and layers that no longer exist
    :param now: Unix time in seconds
    :param forget_after: seconds for which a disk keeps its tag number after libvirt no
        longer knows its domain
    :param policy: name of the policy that divides pools
    :param pools: known sizes of the pools in bytes, by device number; only for a policy
        that needs them
    :param lanes: known sizes of the pools' lanes in bytes, by device number; only if a tag
        has or requests dedicated lanes
    :param survey: the newest sample with curves; None: none yet
    :param history: what the last decision about the pools has left
    :param settings: settings of the policies
    :param nesting: how shares are nested
    """

    disks: tuple[DiskState, ...]
    devices: tuple[Device, ...]
    tags: tuple[Tag, ...]
    complete: bool = True
    defined: frozenset[str] | None = None
    rows: Mapping[DiskId, DiskRow] = dataclasses.field(default_factory=dict)
    layers: Mapping[str, LayerRow] = dataclasses.field(default_factory=dict)
    last_tag: int = 0
    applied: Mapping[TagKey, Extents] = dataclasses.field(default_factory=dict)
    missing: frozenset[str] = frozenset()
    now: float = 0.0
    forget_after: float = 86400.0
    policy: str = policies.DEFAULT
    pools: Mapping[str, int] = dataclasses.field(default_factory=dict)
    lanes: Mapping[str, Sequence[int]] = dataclasses.field(default_factory=dict)
    survey: Sample | None = None
    history: History = dataclasses.field(default_factory=History)
    settings: Settings = dataclasses.field(default_factory=Settings)
    nesting: Nesting = dataclasses.field(default_factory=Nesting)

    def kernel(self) -> KernelState:
        """Return the kernel's part."""
        return KernelState(
            {device.number: device for device in self.devices},
            {(tag.device, tag.id): tag for tag in self.tags if tag.id != numbers.HOST_TAG},
            [tag for tag in self.tags if tag.id == numbers.HOST_TAG])


@dataclasses.dataclass(frozen=True)
class DiskReport:
    """The decision about one disk of one domain.

    :param tag: its tag; None: it runs untagged
    :param mode: the mode that it gets
    :param weight: the weight of its tag
    :param note: why it does not get what its flavor requests, or empty
    :param device: device of its tag
    :param volume: the table line of the device sets its tag
    :param extents: sectors of its tag on the device; None: unknown this time
    :param also_read: further tags that its reads have: those of shared layers, and its own
        on other devices
    :param managed: it is a managed volume that is attached to an instance, so its volume type
        decides, and all hosts reach it through this host's device
    """

    state: DiskState
    tag: int | None
    mode: Mode
    weight: int = 0
    note: str = ""
    device: DeviceNumber | None = None
    volume: bool = False
    extents: Extents | None = None
    also_read: tuple[TagKey, ...] = ()
    managed: bool = False

    @property
    def key(self) -> TagKey | None:
        """Device and number of its tag; None: it runs untagged."""
        return None if self.device is None or self.tag is None else (self.device, self.tag)


@dataclasses.dataclass(frozen=True)
class Orphan:
    """A tag without a running domain, in the kernel or only in the store.

    :param device: None: the tag is only in the store
    :param reason: why the tag is kept
    """

    device: DeviceNumber | None
    tag: int
    name: str
    dirty_bytes: int
    reason: str


@dataclasses.dataclass(frozen=True)
class PoolDecision:
    """The decision about the pools.

    :param shares: the shares of the tags, with the reasons
    :param history: for the next decision
    :param claims: the claims of the tags
    :param sizes: the pools
    """

    shares: Mapping[TagKey, Share] = dataclasses.field(default_factory=dict)
    history: History = dataclasses.field(default_factory=History)
    claims: tuple[Claim, ...] = ()
    sizes: tuple[PoolSize, ...] = ()


@dataclasses.dataclass(frozen=True)
class Plan:
    """The decision.

    :param actions: changes of the kernel's tags, in order
    :param rows: changes of the store
    :param disks: the result for each disk of each domain
    :param orphans: tags without a running domain
    :param used: tags that a running domain uses
    :param read_layers: keys of the layers that a running domain uses
    :param pools: the decision about the pools
    """

    actions: tuple[Action, ...]
    rows: RowChanges
    disks: tuple[DiskReport, ...]
    orphans: tuple[Orphan, ...]
    used: frozenset[TagKey] = frozenset()
    read_layers: frozenset[str] = frozenset()
    pools: PoolDecision = dataclasses.field(default_factory=PoolDecision)
