# SPDX-License-Identifier: Apache-2.0
"""What the agent remembers about disks and layers: the rows of its store."""

import dataclasses
import enum
import functools
from collections.abc import Mapping

from vcache_agent.model import DiskId


@dataclasses.dataclass(frozen=True)
class DiskRow:
    """A disk: its tag number, the settings of operators, and its last known place.

    :param domain: UUID of its domain
    :param target: its name in the domain, such as ``vda``, when it was first seen
    :param tag: its tag number. Disks of several domains have the same number if they are
        one disk, that is, have the same active layer.
    :param name: name of the domain
    :param path: host path of its active layer
    :param layer: key of its active layer; empty: never located
    :param device: name of the mapped device of its active layer
    :param current: its name in the domain now; see plan/identify.py
    :param weight: weight set by an operator; None: the flavor's
    :param released: Unix time since which its domain does not use it; None: in use
    :param mode: mode set by an operator; None: the flavor's
    :param persist: the flavor has vcache:persist
    :param lanes: dedicated lanes set by an operator, such as "1,3"; None: as the flavor
        requests
    """

    domain: str
    target: str
    tag: int
    name: str
    path: str
    layer: str
    device: str
    current: str
    weight: int | None = None
    released: float | None = None
    mode: str | None = None
    persist: bool = False
    lanes: str | None = None

    @functools.cached_property
    def id(self) -> DiskId:
        """The identity of the disk."""
        return DiskId(self.domain, self.target)


@dataclasses.dataclass(frozen=True)
class LayerRow:
    """A layer: the disk that it belongs to, or the tag that it has as a shared layer.

    :param key: identity of the layer; see :class:`vcache_agent.model.Location`
    :param path: its host path
    :param device: name of its mapped device
    :param domain: UUID of the domain of the disk whose active layer it is or was; None: it
        never was an active layer, as far as the agent knows
    :param target: name of that disk in its domain
    :param tag: its own tag number, if disks share it as a backing layer
    :param released: Unix time since which no disk shares it; None: in use, or never shared
    """

    key: str
    path: str
    device: str
    domain: str | None = None
    target: str | None = None
    tag: int | None = None
    released: float | None = None

    @functools.cached_property
    def owner(self) -> DiskId | None:
        """The disk whose active layer it is or was."""
        if self.domain is None or self.target is None:
            return None
        return DiskId(self.domain, self.target)


class VolumeState(enum.StrEnum):
    """What the agent does with the cache of a managed volume."""

    #: The device has its cache, also after a restart of the agent or the host.
    ATTACHED = "attached"
    #: The cache is being written back and removed; the agent continues this after a restart.
    LEAVING = "leaving"
    #: The device has its original table, and stays so until the next volume-put.
    DRAINED = "drained"


@dataclasses.dataclass(frozen=True)
class ManagedVolume:
    """A volume that the agent manages for Cinder; see volumes.py.

    :param id: what Cinder names it by, a UUID
    :param device: host path of its device
    :param identity: identity of its mapped device (:func:`.pools.identity`)
    :param pool: name of the pool; empty: none
    :param specs: extra specs ``vcache:*`` of its volume type, as a JSON object
    """

    id: str
    device: str
    identity: str
    pool: str
    specs: str
    state: VolumeState


@dataclasses.dataclass(frozen=True)
class RowChanges:
    """Changes of the store, to be written in one transaction.

    :param disks: rows to write
    :param forgotten: disks whose rows are to be deleted
    :param layers: rows to write
    :param forgotten_layers: keys of layers whose rows are to be deleted
    :param last_tag: the tag number that was allocated last; None: unchanged
    """

    disks: tuple[DiskRow, ...] = ()
    forgotten: tuple[DiskId, ...] = ()
    layers: tuple[LayerRow, ...] = ()
    forgotten_layers: tuple[str, ...] = ()
    last_tag: int | None = None

    def __bool__(self) -> bool:
        """Return True if there is anything to write."""
        return bool(self.disks or self.forgotten or self.layers or self.forgotten_layers)

    def new_numbers(self, disks: Mapping[DiskId, DiskRow],
                    layers: Mapping[str, LayerRow]) -> frozenset[int]:
        """Return the tag numbers that a disk or layer gets by these changes.

        :param disks: the rows before the changes
        :param layers: the rows before the changes, by key
        """
        of_disks = {row.tag for row in self.disks
                    if row.id not in disks or disks[row.id].tag != row.tag}
        of_layers = {row.tag for row in self.layers if row.tag is not None
                     and (row.key not in layers or layers[row.key].tag != row.tag)}
        return frozenset(of_disks | of_layers)
