# SPDX-License-Identifier: Apache-2.0
"""Map what is at a path, a file or a block device, to sectors of a vcache device.

A path is that of one layer of a disk: its active layer, or one below it.
"""

from vcache_agent import inode
from vcache_agent.blockstack import (
    BlockStack,
    LocationUnknown,
    NotCacheable,
    NotOnVcache,
    Segment,
    follow,
)
from vcache_agent.model import Device, DeviceNumber, Extent, Extents, Location
from vcache_agent.netlink import spec
from vcache_agent.packed_extents import join


def check(kind: str, path: str | None, *, readonly: bool) -> str:
    """Return the path of a disk whose data may be on a vcache device.

    :param kind: source type of libvirt
    :param path: host path of its file or block device; None: it has none
    :raises NotOnVcache: if the disk cannot have a tag; the text says why
    """
    if readonly:
        raise NotOnVcache("it is read-only")
    if kind == "network":
        raise NotCacheable("its type is 'network': QEMU accesses it itself, for example by "
                           "librbd, and no block device of this host has its data; an RBD image "
                           "that krbd maps can have a cache")
    if kind not in ("file", "block"):
        raise NotCacheable(f"its type is {kind!r}, must be 'file' or 'block'")
    if path is None:
        raise NotOnVcache("it has no source")
    return path


def file_key(device: Device, number: DeviceNumber, ino: int, generation: str, *,
             direct: bool) -> str:
    """Return the identity of a file on this host.

    :param number: device of its file system
    :param generation: what distinguishes it from other files with its inode number
    :param direct: the file system is on the vcache device itself
    """
    key = f"file:{device.name}:{ino}" if direct else f"file:{device.name}:{number}:{ino}"
    return inode.with_generation(key, generation)


def of_file(number: DeviceNumber, ino: int, generation: str, extents: Extents,
            stack: BlockStack) -> Location:
    """Return the location of a file.

    :param number: device of its file system
    :param generation: see :func:`inode.generation`
    :param extents: its extents on that device
    :raises NotOnVcache: if it is not on a vcache device
    """
    segments = stack.segments(number)
    same = len(segments) == 1 and segments[0] == Segment(0, segments[0].device.sectors,
                                                         segments[0].device, 0)
    device, found = (segments[0].device, extents) if same else follow(segments, extents)
    if device.scope == spec.Scope.VOLUME:
        return _volume(device)
    key = file_key(device, number, ino, generation,
                   direct=segments[0].device.number == number)
    if same:
        return Location(key, device.number, found)
    return Location(key, device.number, join(found))


def of_block(number: DeviceNumber, stack: BlockStack) -> Location:
    """Return the location of a block device.

    :raises NotOnVcache: if it is not on a vcache device
    """
    try:
        segments = stack.segments(number)
    except LocationUnknown:
        raise
    except NotOnVcache:
        if not stack.may_be_attached(number):
            raise NotCacheable(f"{stack.name(number)} is a plain disk, which 'vcache attach' does "
                               "not accept; a device of multipath, dm-crypt or LVM, or an RBD "
                               "image of krbd can have a cache") from None
        raise
    whole = [Extent(segment.start, segment.length) for segment in segments]
    device, extents = follow(segments, whole)
    if device.scope == spec.Scope.VOLUME:
        return _volume(device)
    joined = join(extents)
    return Location(f"block:{device.name}:{joined[0].start}", device.number, joined)


def _volume(device: Device) -> Location:
    return Location(f"volume:{device.name}", device.number)
