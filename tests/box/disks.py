# SPDX-License-Identifier: Apache-2.0
"""In the box: disks of memory, mapped devices and mounts, for as long as a block takes."""

import contextlib
from collections.abc import Iterator
from pathlib import Path

from tests.box.inside import run

_NULLB = Path("/sys/kernel/config/nullb")


@contextlib.contextmanager
def null_block(name: str, **settings: int) -> Iterator[str]:
    """Make a disk of memory; null_blk is loaded with nr_devices=0.

    :param settings: its attributes, in that order
    """
    folder = _NULLB / name
    folder.mkdir()
    try:
        for key, value in settings.items():
            (folder / key).write_text(str(value))
        (folder / "power").write_text("1")
        yield f"/dev/{name}"
    finally:
        (folder / "power").write_text("0")
        folder.rmdir()


@contextlib.contextmanager
def mapped(name: str, table: str, *, timeout: float = 120) -> Iterator[str]:
    """Make a mapped device.

    :param timeout: seconds that it may take to remove it
    """
    run("dmsetup", "create", name, "--table", table)
    try:
        yield f"/dev/mapper/{name}"
    finally:
        run("dmsetup", "remove", "--retry", name, timeout=timeout)


@contextlib.contextmanager
def mounted(device: str, folder: Path, *, timeout: float = 120) -> Iterator[Path]:
    """Mount ext4.

    :param timeout: seconds that it may take to unmount it
    """
    folder.mkdir(exist_ok=True)
    run("mount", "-t", "ext4", "-o", "noatime", device, str(folder))
    try:
        yield folder
    finally:
        run("umount", str(folder), timeout=timeout)
