# SPDX-License-Identifier: Apache-2.0
"""Block devices in sysfs: partitions, and the devices below a device.

Reads of sysfs do no I/O on the devices, so they do not wait for a device that hangs.
"""

import re
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import NamedTuple

from vcache_agent.model import DeviceNumber

BLOCK = Path("/sys/dev/block")
RBD_BUS = Path("/sys/bus/rbd/devices")
_RBD = re.compile(r"rbd[0-9]+")


class Partition(NamedTuple):
    """A partition; sizes in sectors.

    :param disk: the device that it is on
    :param start: its first sector on that device
    """

    disk: DeviceNumber
    start: int
    size: int


def number(text: str) -> DeviceNumber:
    """Return the device number in a text ``major:minor``.

    :raises ValueError: if it is not a device number
    """
    major, _, minor = text.strip().partition(":")
    try:
        return DeviceNumber(int(major), int(minor))
    except ValueError:
        raise ValueError(f"{text.strip()!r} is not a device number") from None


def partition(at: DeviceNumber, root: Path = BLOCK) -> Partition | None:
    """Return a partition; None if the device is not one.

    :raises OSError: if the device has disappeared
    """
    folder = root / str(at)
    if not (folder / "partition").exists():
        return None
    return Partition(number((folder.resolve().parent / "dev").read_text()),
                     int((folder / "start").read_text()), int((folder / "size").read_text()))


def is_mapped(at: DeviceNumber, root: Path = BLOCK) -> bool:
    """Return True if a device is one of device mapper."""
    return (root / str(at) / "dm").is_dir()


def name(at: DeviceNumber | str, root: Path = BLOCK) -> str:
    """Return the kernel's name of a block device, or its number if it does not exist."""
    return (root / str(at)).resolve().name


def node(at: DeviceNumber) -> str:
    """Return the path of a block device's node, whose name does not depend on udev."""
    return f"/dev/block/{at}" if Path(f"/dev/block/{at}").exists() else f"/dev/{name(at)}"


def sectors(at: DeviceNumber, root: Path = BLOCK) -> int:
    """Return the size of a block device.

    :raises OSError: if the device has disappeared
    """
    return int((root / str(at) / "size").read_text())


class RbdImage(NamedTuple):
    """An RBD image that is mapped by krbd.

    :param pool: name of its pool in Ceph
    :param name: its name
    :param identity: what distinguishes it from all other images
    """

    pool: str
    name: str
    identity: str


def is_rbd(at: DeviceNumber, root: Path = BLOCK) -> bool:
    """Return True if a device is one of krbd."""
    return _RBD.fullmatch(name(at, root)) is not None


def rbd(at: DeviceNumber, root: Path = BLOCK, bus: Path = RBD_BUS) -> RbdImage | None:
    """Return the RBD image of a block device; None if it is none.

    The kernel chooses the number of the device, so only the image identifies its data.

    :param bus: folder of krbd's devices
    """
    if not is_rbd(at, root):
        return None
    folder = bus / name(at, root).removeprefix("rbd")

    def read(attribute: str) -> str:
        try:
            return (folder / attribute).read_text().strip()
        except FileNotFoundError:
            return ""  # an older kernel

    pool, image = read("pool"), read("name")
    if not pool or not image:
        return None
    return RbdImage(pool, image, "-".join([
        read("cluster_fsid"), read("pool_id") or pool, read("pool_ns"),
        read("image_id") or image, read("current_snap")]))


class NvmeDrive(NamedTuple):
    """The drive that an NVMe namespace is on.

    :param name: the kernel's name of its controller
    :param subsystem: name of its NVM subsystem, which all its namespaces and controllers share
    """

    name: str
    subsystem: str


def nvme_drive(at: DeviceNumber, root: Path = BLOCK) -> NvmeDrive | None:
    """Return the drive of an NVMe namespace, or of a partition of one; None: there is none."""
    try:
        part = partition(at, root)
        folder = root / str(part.disk if part else at) / "device"
        return NvmeDrive(folder.resolve().name, (folder / "subsysnqn").read_text().strip())
    except OSError:
        return None  # another kind of device, or it has disappeared


def diskseq(at: DeviceNumber | str, root: Path = BLOCK) -> str:
    """Return the number that distinguishes disks that had the same name in turn.

    It is empty for a partition, and in a kernel without this attribute.
    """
    try:
        return (root / str(at) / "diskseq").read_text().strip()
    except FileNotFoundError:
        return ""


def below(tops: Iterable[DeviceNumber], root: Path = BLOCK) -> Iterator[DeviceNumber]:
    """Yield devices and all devices below them, each once.

    :raises OSError: if one of them has disappeared
    """
    pending, seen = list(tops), set()
    while pending:
        current = pending.pop()
        if current in seen:
            continue
        seen.add(current)
        yield current
        for slave in (root / str(current)).glob("slaves/*/dev"):
            pending.append(number(slave.read_text()))
