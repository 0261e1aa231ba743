# SPDX-License-Identifier: Apache-2.0
"""Which origins are NVMe drives that understand tags: their log page C0h says so.

The page is described in doc/source/reference/nvme.rst. Reading an unknown
vendor's page C0h is harmless, but a drive may note it as an error, so a drive
that has none is asked once.
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
    """What a drive that understands tags says of itself.

    :param nsid: the namespace
    :param tag_max: largest tag it knows
    :param instance: random, another one after each power-on; not 0
    """

    nsid: int
    tag_max: int
    instance: int


def parse_log(nsid: int, page: bytes) -> TaggedDrive | None:
    """Return what log page C0h says, or None if it is another vendor's, or of another version."""
    signature, version, flush, write, _, capabilities, tag_max, _, _, instance = \
        _LOG.unpack_from(page)
    if signature != _SIGNATURE or version != _VERSION or (flush, write) != _OPCODES \
            or capabilities & _TAGGED_FLUSH_AND_WRITE != _TAGGED_FLUSH_AND_WRITE \
            or not instance or not nsid:
        return None
    return TaggedDrive(nsid, tag_max, instance)


def read_drive(path: str) -> TaggedDrive | None:
    """Ask a block device; None if it is no NVMe namespace, or knows no tags.

    :raises OSError: if it does not answer
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
    """Has the target use the tags of drives that know some.

    :param sysfs: where /sys/dev/block is
    :param ask: reads a drive's log page
    """

    def __init__(self, sysfs: Path = Path("/sys/dev/block"),
                 ask: Callable[[str], TaggedDrive | None] = read_drive) -> None:
        self._sysfs = sysfs
        self._ask = ask
        self._without: set[tuple[str, str]] = set()

    def use_tags(self, client: Client, devices: Iterable[Device]) -> list[str]:
        """Tell the kernel of drives that know tags; return what went wrong."""
        problems = []
        for device in devices:
            if device.isolation != spec.Isolation.FUA or device.suspended:
                continue
            try:
                self._use_tags(client, device)
            except OSError as error:
                problems.append(f"device {device.name}: the tags of its origin {device.origin} "
                                f"are not used: {error.strerror}")
        return problems

    def _use_tags(self, client: Client, device: Device) -> None:
        name = self._nvme_name(device.origin)
        if name is None:
            return
        # The sequence number tells a drive from another under the same name.
        key = (device.origin, _text(self._sysfs / device.origin / "diskseq"))
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
            # A busy device is asked again, one that cannot is not.
            if error.errno == errno.EOPNOTSUPP:
                self._without.add(key)
            raise
        LOG.info("device %s: the tags of its origin %s are used", device.name, name)

    def _nvme_name(self, origin: str) -> str | None:
        """Return the name of an NVMe namespace or a partition of one."""
        folder = (self._sysfs / origin).resolve()
        name = folder.name
        return name if name.startswith("nvme") else None


def _text(path: Path) -> str:
    try:
        return path.read_text().strip()
    except FileNotFoundError:
        return ""  # of a partition, or a kernel that has none
