# SPDX-License-Identifier: Apache-2.0
"""What the kernel and the drive report about a block device. Nothing is written."""

import dataclasses
import os
from pathlib import Path

from vcache_agent import sysfs
from vcache_agent.drive import identify, nvme_admin, tagged
from vcache_agent.model import DeviceNumber

# Identifiers of features.
_WRITE_CACHE, _FDP = 0x06, 0x1D


@dataclasses.dataclass(frozen=True)
class Queue:
    """How the kernel treats a device (/sys/block/NAME/queue).

    :param write_back: the kernel sends FLUSH
    :param fua: it sends FUA
    :param rotational: it is a disk with moving parts
    :param discard: it can discard blocks
    """

    write_back: bool
    fua: bool
    rotational: bool
    discard: bool


@dataclasses.dataclass(frozen=True)
class NvmeDrive:
    """What an NVMe drive reports.

    :param nsid: identifier of the namespace
    :param cache_enabled: the volatile cache is enabled; None: the drive does not tell
    :param fdp_enabled: Flexible Data Placement is enabled in the endurance group
    :param tagged: it has the commands of doc/source/reference/nvme.rst
    """

    nsid: int
    controller: identify.Controller
    namespace: identify.Namespace
    cache_enabled: bool | None
    fdp_enabled: bool
    tagged: bool


@dataclasses.dataclass(frozen=True)
class Facts:
    """A disk: not a partition, and nothing that is mapped.

    :param nvme: None for another kind of disk
    """

    name: str
    queue: Queue
    nvme: NvmeDrive | None


def _word(folder: Path, attribute: str) -> str:
    try:
        return (folder / "queue" / attribute).read_text().strip()
    except FileNotFoundError:
        return ""


def queue(folder: Path) -> Queue:
    """Return how the kernel treats a disk.

    :param folder: of the disk in sysfs
    """
    return Queue(_word(folder, "write_cache") == "write back", _word(folder, "fua") == "1",
                 _word(folder, "rotational") == "1",
                 _word(folder, "discard_max_bytes") not in ("", "0"))


def _nvme(path: str) -> NvmeDrive | None:
    descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    try:
        nsid = nvme_admin.namespace(descriptor)
        about = nvme_admin.read(descriptor, nvme_admin.IDENTIFY, 0, identify.SIZE,
                                identify.CONTROLLER)
        space = nvme_admin.read(descriptor, nvme_admin.IDENTIFY, nsid, identify.SIZE,
                                identify.NAMESPACE)
        if about is None or space is None:
            return None
        controller, namespace = identify.controller(about), identify.namespace(space)
        cache = nvme_admin.feature(descriptor, _WRITE_CACHE) if controller.volatile_cache else 0
        fdp = nvme_admin.feature(descriptor, _FDP, namespace.group) if controller.fdp else 0
        page = nvme_admin.log_page(descriptor, tagged.LOG_PAGE, tagged.LOG_BYTES)
        return NvmeDrive(nsid, controller, namespace, None if cache is None else bool(cache & 1),
                         bool(fdp and fdp & 1),
                         page is not None and tagged.parse_log(nsid, page) is not None)
    finally:
        os.close(descriptor)


def disks(at: DeviceNumber, root: Path = sysfs.BLOCK) -> list[DeviceNumber]:
    """Return the disks that a block device is on: below partitions and mapped devices.

    :raises OSError: if one of them has disappeared
    """
    found = []
    for device in sysfs.below([at], root):
        if any((root / str(device)).glob("slaves/*")):
            continue
        part = sysfs.partition(device, root)
        disk = part.disk if part else device
        if disk not in found:
            found.append(disk)
    return found


def collect(at: DeviceNumber, root: Path = sysfs.BLOCK) -> Facts:
    """Collect what is known about a disk.

    :raises OSError: if it has disappeared, or if a query fails
    """
    name = sysfs.name(at, root)
    return Facts(name, queue(root / str(at)),
                 _nvme(f"/dev/{name}") if name.startswith("nvme") else None)
