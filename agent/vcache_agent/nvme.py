# SPDX-License-Identifier: Apache-2.0
"""Detect origins on NVMe drives that support tags, by their log page C0h.

doc/source/reference/nvme.rst describes the page. Reading page C0h of another
vendor is harmless, but a drive may log it as an error. So a drive without tag
support is queried only once.
"""

import ctypes
import dataclasses
import errno
import fcntl
import os
import struct
from collections.abc import Callable, Iterable
from pathlib import Path

from oslo_log import log as logging

from vcache_agent import sysfs
from vcache_agent.model import Device
from vcache_agent.netlink import spec
from vcache_agent.netlink.client import Client
from vcache_agent.netlink.errors import NetlinkError

LOG = logging.getLogger(__name__)

# From linux/nvme_ioctl.h.
_IOCTL_ID = 0x4E40
_IOCTL_ADMIN_CMD = 0xC0484E41
_PASSTHRU = struct.Struct("=BBHIIIQQII6III")
_GET_LOG_PAGE = 0x02
_ALL_NAMESPACES = 0xFFFFFFFF
_TIMEOUT_MS = 2000

_LOG_PAGE = 0xC0
_LOG_BYTES = 512
_LOG = struct.Struct("<8sHBBB3xIIII24xI")
_SIGNATURE = b"vcacheSS"
_VERSION = 1
_OPCODES = (0xC0, 0xC1)
_TAGGED_FLUSH_AND_WRITE = 0x3


@dataclasses.dataclass(frozen=True)
class TaggedDrive:
    """A drive that supports tags.

    :param nsid: namespace identifier
    :param tag_max: largest supported tag
    :param instance: random number, not 0, that changes with each power-on
    """

    nsid: int
    tag_max: int
    instance: int


def parse_log(nsid: int, page: bytes) -> TaggedDrive | None:
    """Parse log page C0h; return None if it is of another vendor or another version."""
    signature, version, flush, write, _, capabilities, tag_max, _, _, instance = \
        _LOG.unpack_from(page)
    if signature != _SIGNATURE or version != _VERSION or (flush, write) != _OPCODES \
            or capabilities & _TAGGED_FLUSH_AND_WRITE != _TAGGED_FLUSH_AND_WRITE \
            or not instance or not nsid:
        return None
    return TaggedDrive(nsid, tag_max, instance)


def read_drive(path: str) -> TaggedDrive | None:
    """Query a block device; return None if its drive does not support tags.

    :param path: block device of an NVMe namespace, or of a partition of one
    :raises OSError: if the query fails
    """
    page = (ctypes.c_char * _LOG_BYTES)()
    descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    try:
        nsid = fcntl.ioctl(descriptor, _IOCTL_ID)
        command = bytearray(_PASSTHRU.pack(
            _GET_LOG_PAGE, 0, 0, _ALL_NAMESPACES, 0, 0, 0, ctypes.addressof(page), 0,
            _LOG_BYTES, _LOG_PAGE | (_LOG_BYTES // 4 - 1) << 16, 0, 0, 0, 0, 0,
            _TIMEOUT_MS, 0))
        status = fcntl.ioctl(descriptor, _IOCTL_ADMIN_CMD, command)
    finally:
        os.close(descriptor)
    return None if status else parse_log(nsid, page.raw)


class Drives:
    """Enables the tags of drives in the target.

    :param root: path of /sys/dev/block
    :param ask: queries a drive; see :func:`read_drive`
    """

    def __init__(self, root: Path = sysfs.BLOCK,
                 ask: Callable[[str], TaggedDrive | None] = read_drive) -> None:
        self._root = root
        self._ask = ask
        self._without: set[tuple[str, str]] = set()

    def use_tags(self, client: Client, devices: Iterable[Device]) -> list[str]:
        """Enable the tags of origins that support them; return texts about failures."""
        problems = []
        for device in devices:
            if device.isolation != spec.Isolation.FUA or device.suspended:
                continue
            try:
                self._use_tags(client, device)
            except OSError as error:
                problems.append(f"device {device.name}: cannot enable the tags of its origin "
                                f"{device.origin}: {error.strerror}")
        return problems

    def _use_tags(self, client: Client, device: Device) -> None:
        name = self._nvme_name(device.origin)
        if name is None:
            return
        # The sequence number distinguishes drives that had the same name in turn.
        key = (device.origin, sysfs.diskseq(device.origin, self._root))
        if key in self._without:
            return
        drive = self._ask(f"/dev/{name}")
        if drive is None:
            self._without.add(key)
            return
        try:
            client.device_set(device.number, nsid=drive.nsid, tag_max=drive.tag_max,
                              instance=drive.instance)
        except NetlinkError as error:
            # Try again later, except on a device that does not support it.
            if error.errno == errno.EOPNOTSUPP:
                self._without.add(key)
            raise
        LOG.info("device %s: enabled the tags of its origin %s", device.name, name)

    def _nvme_name(self, origin: str) -> str | None:
        """Return the kernel's name of an origin if it is on an NVMe drive, otherwise None."""
        name = sysfs.name(origin, self._root)
        return name if name.startswith("nvme") else None

