# SPDX-License-Identifier: Apache-2.0
"""In the box: disks of memory, mapped devices and mounts, for as long as a block takes."""

import contextlib
from collections.abc import Iterator
from pathlib import Path

from tests.box.inside import run
from tests.box.steps import at_end

_NULLB = Path("/sys/kernel/config/nullb")
_UDEV = Path("/run/udev/control")


@contextlib.contextmanager
def null_block(name: str, **settings: int) -> Iterator[str]:
    """Make a disk of memory; null_blk is loaded with nr_devices=0.

    :param settings: its attributes, in that order
    """
    folder = _NULLB / name
    folder.mkdir()
    with at_end(folder.rmdir), at_end((folder / "power").write_text, "0"):
        for key, value in settings.items():
            (folder / key).write_text(str(value))
        (folder / "power").write_text("1")
        yield f"/dev/{name}"


def settle() -> None:
    """Wait until udev has made all nodes. Without udev, make those of mapped devices."""
    if _UDEV.exists():
        run("udevadm", "settle")
    else:
        run("dmsetup", "mknodes")


@contextlib.contextmanager
def mapped(name: str, table: str, *, timeout: float = 300) -> Iterator[str]:
    """Make a mapped device.

    :param timeout: seconds that it may take to remove it; limits.py adapts them
    """
    run("dmsetup", "create", name, "--table", table)
    with at_end(run, "dmsetup", "remove", "--retry", name, timeout=timeout):
        yield f"/dev/mapper/{name}"


@contextlib.contextmanager
def mounted(device: str, folder: Path, *, timeout: float = 300) -> Iterator[Path]:
    """Mount ext4.

    :param timeout: seconds that it may take to unmount it; limits.py adapts them
    """
    folder.mkdir(exist_ok=True)
    run("mount", "-t", "ext4", "-o", "noatime", device, str(folder))
    with at_end(run, "umount", str(folder), timeout=timeout):
        yield folder
