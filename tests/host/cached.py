# SPDX-License-Identifier: Apache-2.0
"""A file system with images on a device with a cache, whose destage can be held back.

From below: the disk, whose writes can be made to fail; a device that can delay writes; the
mapped device that an operator would attach. It can be taken away as by a power failure.
"""

import contextlib
from collections.abc import Iterator
from pathlib import Path

from tests.box.inside import run
from tests.box.steps import at_end
from tests.host import lab
from tests.host.lab import cli, eventually
from vcache_agent.model import Device, DeviceNumber, Tag
from vcache_agent.netlink.client import Client

# Tables of the device that delays writes. An hour is longer than any test takes.
_FREE = "delay /dev/mapper/cells-disk 0 0"
_HELD = f"{_FREE} /dev/mapper/cells-disk 0 3600000"


class CachedFilesystem:
    """The file system; see :func:`cached_filesystem`.

    :param disk: block device of the data
    :param ssd: block device of the cache
    """

    NAME = "cells"
    POOL = "ssd"

    def __init__(self, disk: Path, ssd: Path, folder: Path) -> None:
        self.folder = folder
        self._disk = disk
        self._ssd = ssd
        self._sectors = int(run("blockdev", "--getsz", str(disk)))

    def up(self, create: bool = False, held: bool = False) -> None:
        """Activate and mount it, as after the start of a host.

        :param create: create the file system
        :param held: hold back destage from the beginning
        """
        self._map("cells-disk", f"linear {self._disk} 0")
        self._map("cells-slow", _HELD if held else _FREE)
        self._map(self.NAME, "linear /dev/mapper/cells-slow 0")
        if create:
            run("mkfs.ext4", "-q", "-b", "4096", f"/dev/mapper/{self.NAME}")
        cli("pool", "create", self.POOL, str(self._ssd))
        cli("attach", self.NAME, "--pool", self.POOL, "--filesystem")
        self.folder.mkdir(parents=True, exist_ok=True)
        run("mount", "-o", "noatime", f"/dev/mapper/{self.NAME}", str(self.folder))

    def down(self, detach: bool = False) -> None:
        """Unmount it, and remove all of its devices.

        :param detach: destage all before; otherwise dirty data stays in the pool
        """
        run("umount", str(self.folder))
        if detach:
            cli("detach", self.NAME)
        run("dmsetup", "remove", "--retry", self.NAME)
        if not detach:
            run("dmsetup", "remove", "--retry", f"{self.NAME}-vcorigin")
        cli("pool", "remove", self.POOL)
        for name in ("cells-slow", "cells-disk"):
            run("dmsetup", "remove", "--retry", name)

    def fail(self) -> None:
        """Let all further writes to the disk fail, also those that are held back."""
        self._swap("cells-disk", f"flakey {self._disk} 0 0 1 1 error_writes")
        self.let_go()

    def hold(self) -> None:
        """Hold back destage: what the cache has written for others stays dirty."""
        self._swap("cells-slow", _HELD)

    def let_go(self) -> None:
        """Let destage continue."""
        self._swap("cells-slow", _FREE)

    def destage(self, tag: int) -> None:
        """Let destage continue until a tag has no dirty data."""
        self.let_go()
        eventually(lambda: not self.tag(tag).cache_dirty_bytes, f"tag {tag} is clean")

    @property
    def number(self) -> DeviceNumber:
        """Number of the device."""
        return lab.number_of(Path("/dev/mapper") / self.NAME)

    def state(self) -> Device:
        """Return the kernel's state of the device."""
        number = self.number
        with Client() as client:
            return next(found for found in client.devices() if found.number == number)

    def tag(self, number: int) -> Tag:
        """Return a tag."""
        return lab.tags(self.number)[number]

    def hits(self) -> int:
        """Return the bytes that reads of all tags, also of the host's, found in the cache.

        What was written a moment ago may still be in the buffer.
        """
        number = self.number
        with Client() as client:
            return sum(tag.stats.cache_hit_bytes + tag.stats.read_hit_bytes
                       for tag in client.tags(number))

    def _map(self, name: str, table: str) -> None:
        run("dmsetup", "create", name, "--table", f"0 {self._sectors} {table}")
        run("dmsetup", "mknodes", name)

    def _swap(self, name: str, table: str) -> None:
        run("dmsetup", "load", name, "--table", f"0 {self._sectors} {table}")
        run("dmsetup", "suspend", name)
        run("dmsetup", "resume", name)


@contextlib.contextmanager
def cached_filesystem(disk: Path, ssd: Path, folder: Path) -> Iterator[CachedFilesystem]:
    """Create a file system on a disk with a cache, and mount it."""
    found = CachedFilesystem(disk, ssd, folder)
    found.up(create=True)
    with at_end(found.down, detach=True), at_end(found.let_go):
        yield found
