# SPDX-License-Identifier: Apache-2.0
"""Detect origins on NVMe drives that support tags, by their log page C0h.

doc/source/reference/nvme.rst describes the page. Reading page C0h of another
vendor is harmless, but a drive may log it as an error. So a drive without tag
support is queried only once.

A query has the timeout of the driver for admin commands (60 s by default): a command
that exceeds its timeout makes the driver reset the controller, which delays the I/O of
all guests. So each query has a thread of its own, and nobody waits for it.
"""

import ctypes
import dataclasses
import errno
import fcntl
import os
import struct
import threading
from collections.abc import Callable, Iterable
from concurrent.futures import Future, wait
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
_DRIVERS_TIMEOUT = 0

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
            _DRIVERS_TIMEOUT, 0))
        status = fcntl.ioctl(descriptor, _IOCTL_ADMIN_CMD, command)
    finally:
        os.close(descriptor)
    return None if status else parse_log(nsid, page.raw)


# The number of an origin, and its diskseq, which distinguishes drives that had the same
# number in turn.
_Key = tuple[str, str]


class Drives:
    """Enables the tags of drives in the target.

    :param changed: called in another thread when a drive has answered
    :param root: path of /sys/dev/block
    :param ask: queries a drive; see :func:`read_drive`
    """

    def __init__(self, changed: Callable[[], object] = lambda: None, root: Path = sysfs.BLOCK,
                 ask: Callable[[str], TaggedDrive | None] = read_drive) -> None:
        self._changed = changed
        self._root = root
        self._ask = ask
        self._without: set[_Key] = set()
        self._queries: dict[_Key, Future[TaggedDrive | None]] = {}

    def use_tags(self, client: Client, devices: Iterable[Device],
                 patience: float = 0.0) -> list[str]:
        """Enable the tags of origins that support them; return texts about failures.

        The first call starts the query of a drive. A call after its answer uses it.

        :param patience: seconds to wait for the answer of each drive
        """
        problems = []
        for device in devices:
            if device.isolation != spec.Isolation.FUA or device.suspended:
                continue
            try:
                self._use_tags(client, device, patience)
            except OSError as error:
                problems.append(f"device {device.name}: cannot enable the tags of its origin "
                                f"{device.origin}: {error.strerror}")
        return problems

    def _use_tags(self, client: Client, device: Device, patience: float) -> None:
        name = self._nvme_name(device.origin)
        if name is None:
            return
        key = (device.origin, sysfs.diskseq(device.origin, self._root))
        if key in self._without:
            return
        if key not in self._queries:
            self._queries[key] = self._query(f"/dev/{name}")
        if not wait([self._queries[key]], patience).done:
            return
        drive = self._queries.pop(key).result()
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

    def _query(self, path: str) -> "Future[TaggedDrive | None]":
        """Start to query a drive."""
        answer: Future[TaggedDrive | None] = Future()

        def run() -> None:
            try:
                answer.set_result(self._ask(path))
            except Exception as error:  # raised where the answer is used
                answer.set_exception(error)
            self._changed()

        threading.Thread(target=run, name=f"nvme-{path}", daemon=True).start()
        return answer

    def _nvme_name(self, origin: str) -> str | None:
        """Return the kernel's name of an origin if it is on an NVMe drive, otherwise None."""
        name = sysfs.name(origin, self._root)
        return name if name.startswith("nvme") else None

