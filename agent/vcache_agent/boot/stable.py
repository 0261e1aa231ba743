# SPDX-License-Identifier: Apache-2.0
"""Names of block devices that stay the same over restarts, and where devices are mounted."""

import os
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

_BY_ID = Path("/dev/disk/by-id")
_BY_PARTUUID = Path("/dev/disk/by-partuuid")
_FSTAB = Path("/etc/fstab")
# Names of links in by-id, best first. The UUID of a mapped device is its identity for vcache, too.
_BEST = ("dm-uuid-", "wwn-", "nvme-eui.", "nvme-", "virtio-", "scsi-", "ata-", "mmc-", "md-uuid-")
#: Names that may belong to another device after a restart.
UNSTABLE = ("/dev/sd", "/dev/vd", "/dev/nvme", "/dev/dm-", "/dev/xvd", "/dev/block/", "/dev/rbd")


def stable_name(path: str) -> str:
    """Return a name of a device that stays the same over restarts, or its path if there is none.

    A name that the user has chosen, such as that of a logical volume, is stable, too; but
    another device may get it later.
    """
    real = os.path.realpath(path)
    links = sorted(link.name for link in _links(_BY_ID) if os.path.realpath(link) == real)
    for begin in _BEST:
        for name in links:
            if name.startswith(begin):
                return str(_BY_ID / name)
    for link in _links(_BY_PARTUUID):
        if os.path.realpath(link) == real:
            return str(link)
    return path


def is_stable(path: str) -> bool:
    """Return False for a name that may belong to another device after a restart."""
    return not path.startswith(UNSTABLE) or path.startswith("/dev/rbd/")


class Mount(NamedTuple):
    """A mount at boot.

    :param nofail: the boot continues if it fails
    """

    path: str
    nofail: bool


def fstab_mounts(device: str, fstab: Path = _FSTAB) -> list[Mount]:
    """Return where ``/etc/fstab`` mounts a device at boot, by any of its names."""
    real, found = os.path.realpath(device), []
    try:
        lines = fstab.read_text().splitlines()
    except OSError:
        return []
    for line in lines:
        words = line.split()
        if len(words) < 3 or words[0].startswith("#") or not words[1].startswith("/"):
            continue
        options = words[3].split(",") if len(words) > 3 else []
        source = words[0].strip('"')
        for key in ("UUID", "LABEL", "PARTUUID", "PARTLABEL"):
            if source.startswith(f"{key}="):
                source = f"/dev/disk/by-{key.lower()}/{source[len(key) + 1:].strip(chr(34))}"
        # setup.conf has no way to write a space.
        if source.startswith("/dev/") and os.path.realpath(source) == real and \
                "noauto" not in options and "\\040" not in words[1]:
            found.append(Mount(words[1], "nofail" in options))
    return found


def _links(folder: Path) -> Iterator[Path]:
    try:
        yield from sorted(folder.iterdir())
    except OSError:
        return
