# SPDX-License-Identifier: Apache-2.0
"""Use the tags of NVMe drives that support them.

Reading the log page of another vendor is harmless, but a drive may log it as an error. So a
drive without tag support is queried only once.

A query has the timeout of the driver for admin commands (60 s by default): a command
that exceeds its timeout makes the driver reset the controller, which delays the I/O of
all guests. So each query has a thread of its own, and nobody waits for it.
"""

import errno
import threading
from collections.abc import Callable, Iterable
from concurrent.futures import Future, wait
from pathlib import Path

from oslo_log import log as logging

from vcache_agent import sysfs
from vcache_agent.drive.tagged import TaggedDrive, read_drive
from vcache_agent.model import Device
from vcache_agent.netlink import spec
from vcache_agent.netlink.client import Client
from vcache_agent.netlink.errors import NetlinkError

LOG = logging.getLogger(__name__)

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

