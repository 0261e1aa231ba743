# SPDX-License-Identifier: Apache-2.0
"""A sample: all devices and tags of the kernel at one moment."""

import dataclasses
import functools
import time
from typing import TYPE_CHECKING

from vcache_agent.model import Device, DeviceNumber, Tag

if TYPE_CHECKING:
    from vcache_agent.netlink.bulk import TagDecoder
    from vcache_agent.netlink.client import Client

TagKey = tuple[DeviceNumber, int]


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
    """

    wall: float
    monotonic: float
    devices: tuple[Device, ...]
    tags: tuple[Tag, ...]

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
    return Sample(wall, monotonic, *client.snapshot(decoder))
