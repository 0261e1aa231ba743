# SPDX-License-Identifier: Apache-2.0
"""A sample: all devices and tags of the kernel at one moment."""

import dataclasses
import functools
import time
from typing import TYPE_CHECKING

from vcache_agent.model import Curve, Device, DeviceNumber, Lane, Tag
from vcache_agent.observe.claim import Claim, PoolSize

if TYPE_CHECKING:
    from vcache_agent.netlink.bulk import TagDecoder
    from vcache_agent.netlink.client import Client

TagKey = tuple[DeviceNumber, int]


@dataclasses.dataclass(frozen=True)
class TagCurve:
    """The miss-ratio curve of a tag."""

    device: DeviceNumber
    id: int
    curve: Curve


@dataclasses.dataclass(frozen=True)
class Sample:
    """The devices and tags of the kernel at one moment.

    The counters in :class:`vcache_agent.model.Stats` grow from the creation of a tag. The
    difference of two samples is the activity between them, unless a counter has decreased:
    then the tag was recreated.

    :param wall: Unix time in seconds, when the dump began
    :param monotonic: monotonic time in seconds of the same moment, for differences; it is
        comparable only within one boot of the host
    :param devices: the devices of the target vcache
    :param tags: the tags of all devices, including the host tag
    :param curves: the curves of the tags that have one; only in one sample of each period
    :param claims: the claims of the tags; only in recordings, beside curves
    :param pools: the pools; only in recordings, beside curves
    :param lanes: the lanes of all pools
    """

    wall: float
    monotonic: float
    devices: tuple[Device, ...]
    tags: tuple[Tag, ...]
    curves: tuple[TagCurve, ...] = ()
    claims: tuple[Claim, ...] = ()
    pools: tuple[PoolSize, ...] = ()
    lanes: tuple[Lane, ...] = ()

    @functools.cached_property
    def by_key(self) -> dict[TagKey, Tag]:
        """The tags by device and number."""
        return {(tag.device, tag.id): tag for tag in self.tags}

    @functools.cached_property
    def device_names(self) -> dict[DeviceNumber, str]:
        """The names of the devices by number."""
        return {device.number: device.name for device in self.devices}


def take(client: "Client", decoder: "TagDecoder") -> Sample:
    """Return a sample of the kernel.

    :param decoder: the decoder of the previous sample, with which this one shares memory
    :raises NetlinkError: if the kernel refuses or does not answer in time
    """
    wall, monotonic = time.time(), time.monotonic()
    return Sample(wall, monotonic, *client.snapshot(decoder), lanes=client.lanes())
