# SPDX-License-Identifier: Apache-2.0
"""A file system on granted blocks of the elastic SSD, which grows and shrinks while it is in use.

The blocks are put together to one device by dm-linear. The file system is btrfs, because it is the
only one of the usual ones that shrinks while it is mounted: it moves what is behind the new end. So
a shrink loses nothing. Then the device gets shorter, and only then are blocks given up: no request
can reach them any more, whatever the file system does.

If blocks were taken by force, the whole device fails from then on (dm-error), is unmounted, and a
new file system begins on the blocks that are left.
"""

import contextlib
import errno
import fcntl
import logging
import os
import struct
import subprocess
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Protocol

from vcache_guest.blocks import Ranges, normal, without
from vcache_guest.dm import DmError, Line
from vcache_guest.protocol import Range

LOG = logging.getLogger(__name__)

SECTOR = 512

#: The least size of a file system that btrfs can shrink to, in bytes.
LEAST = 256 << 20

_BTRFS_RESIZE = 0x50009403
_ARGS = struct.Struct("=q4088s")


class VolumeError(Exception):
    """The file system cannot be made or changed; the text has the reason."""


class FullError(VolumeError):
    """The file system has too much data for a smaller size."""


class Mapper(Protocol):
    """What is used of :class:`vcache_guest.dm.Dm`."""

    def path(self, name: str) -> str:
        """Return the node of a device."""

    def names(self) -> list[str]:
        """Return the names of all devices."""

    def create(self, name: str) -> None:
        """Create a device without a table."""

    def remove(self, name: str, *, deferred: bool = False) -> None:
        """Remove a device."""

    def load_lines(self, name: str, lines: Sequence[Line]) -> None:
        """Load a table."""

    def suspend(self, name: str, *, sync: bool = True) -> None:
        """Suspend a device."""

    def resume(self, name: str) -> None:
        """Resume a device."""


def _run(*words: str) -> None:
    done = subprocess.run(words, capture_output=True, text=True, check=False)
    if done.returncode:
        raise VolumeError(f"{' '.join(words)}: {done.stderr.strip() or done.returncode}")


def resize_btrfs(folder: str, size: str) -> None:
    """Resize a mounted btrfs of one device.

    :param size: in bytes, or ``max``
    :raises OSError: if that is not possible
    """
    fd = os.open(folder, os.O_RDONLY | os.O_CLOEXEC)
    try:
        # A bytearray: Python limits others to 1024 bytes.
        fcntl.ioctl(fd, _BTRFS_RESIZE, bytearray(_ARGS.pack(0, f"1:{size}".encode())))
    finally:
        os.close(fd)


class Volume:
    """A file system on granted blocks.

    :param mapper: device mapper
    :param name: beginning of the names of devices
    :param folder: where it is mounted
    :param run: runs a program, raises VolumeError
    :param resize: as :func:`resize_btrfs`
    """

    def __init__(self, mapper: Mapper, name: str, folder: str,
                 run: Callable[..., None] = _run,
                 resize: Callable[[str, str], None] = resize_btrfs) -> None:
        self._dm, self._name, self.folder, self._run, self._resize = (
            mapper, name, folder, run, resize)
        self._vssd, self._block = "", 0
        # The number of the device, whose name must be new while an old one is still in use.
        self._number = 0
        #: The blocks in the order in which the device has them.
        self.order: list[Range] = []
        #: Whether the file system is there.
        self.mounted = False

    @property
    def size(self) -> int:
        """How many blocks it has."""
        return sum(one.blocks for one in self.order)

    @property
    def least(self) -> int:
        """How many blocks a file system needs at least."""
        return -(-LEAST // (self._block * SECTOR)) if self._block else 0

    def disk(self, path: str, block_bytes: int) -> None:
        """Use an elastic SSD."""
        self._vssd, self._block = path, block_bytes // SECTOR

    def grow(self, ranges: Ranges) -> None:
        """Use more blocks.

        :raises VolumeError: if that is not possible; the blocks are kept for a later attempt
        """
        self.order += ranges
        try:
            if self.mounted:
                self._swap(self._lines())
                self._resize(self.folder, "max")
            elif self.size >= self.least:
                self._create()
        except (DmError, OSError) as error:
            raise VolumeError(f"{self.folder}: cannot use {self.size} blocks: {error}") from None

    def shrink(self, blocks: int) -> Ranges:
        """Use fewer blocks; return those that are not used any more.

        If the rest is too small for a file system, there is none then.

        :param blocks: how many to give up
        :raises FullError: if the file system has too much data; nothing has changed
        :raises VolumeError: if it is not possible otherwise
        """
        rest = self.size - blocks
        if self.mounted and rest < self.least:
            self.destroy()
        given, keep = _cut(self.order, rest)
        if self.mounted:
            try:
                self._resize(self.folder, str(rest * self._block * SECTOR))
            except OSError as error:
                kind = FullError if error.errno == errno.ENOSPC else VolumeError
                raise kind(f"{self.folder}: cannot shrink to {rest} blocks: "
                           f"{error.strerror}") from None
            before, self.order = self.order, keep
            try:
                self._swap(self._lines())
            except DmError as error:
                self.order = before
                raise VolumeError(f"{self.folder}: {error}") from None
        self.order = keep
        return normal(given)

    def lose(self, ranges: Ranges) -> None:
        """Handle that blocks were taken: begin again with the rest, if that is enough.

        When this returns, nothing uses the lost blocks any more.

        :raises VolumeError: if something may still use them; then nothing has changed
        """
        self.destroy()
        self.order = list(without(normal(self.order), ranges))
        try:
            self.grow(())
        except VolumeError as error:
            LOG.error("%s", error)

    def used(self) -> int:
        """Return how many bytes the file system uses."""
        stat = os.statvfs(self.folder)
        return (stat.f_blocks - stat.f_bfree) * stat.f_frsize

    def destroy(self) -> None:
        """Remove the file system. When this returns, nothing can use its blocks any more.

        :raises VolumeError: if that is not possible; it can be tried again
        """
        if not self.mounted:
            return
        try:
            self._fail(self._device(), self.size * self._block)
        except DmError as error:
            raise VolumeError(f"{self._device()}: {error}") from None
        self.mounted = False

    def clean(self) -> None:
        """Remove what a process that was killed has left.

        :raises VolumeError: if something may still write; it can be tried again
        """
        failed = []
        try:
            left = [name for name in self._dm.names() if name.startswith(f"{self._name}-")]
        except DmError as error:
            raise VolumeError(f"{self._name}: {error}") from None
        for name in left:
            try:
                self._fail(name, 1)
            except DmError as error:
                failed.append(f"{name}: {error}")
        if failed:
            raise VolumeError("; ".join(failed))

    def _fail(self, device: str, length: int) -> None:
        """Make a device fail, unmount it, and remove it when nobody has it open any more.

        :raises DmError: if it may still write; what fails later is of no consequence
        """
        # What is under way is completed, and not what the file system would like to write.
        self._dm.load_lines(device, [Line(0, length, "error", "")])
        self._dm.suspend(device, sync=False)
        self._dm.resume(device)
        with contextlib.suppress(VolumeError):
            self._run("umount", "--lazy", self.folder)
        try:
            self._dm.remove(device, deferred=True)
        except DmError as error:
            LOG.warning("%s: %s", device, error)

    def _device(self) -> str:
        return f"{self._name}-{self._number}"

    def _lines(self) -> list[Line]:
        lines, at = [], 0
        for first, blocks in self.order:
            lines.append(Line(at, blocks * self._block, "linear",
                              f"{self._vssd} {first * self._block}"))
            at += blocks * self._block
        return lines

    def _swap(self, lines: Sequence[Line]) -> None:
        self._dm.load_lines(self._device(), lines)
        self._dm.suspend(self._device())
        self._dm.resume(self._device())

    def _create(self) -> None:
        taken = self._dm.names()
        while self._device() in taken:
            self._number += 1
        device = self._device()
        self._dm.create(device)
        try:
            self._dm.load_lines(device, self._lines())
            self._dm.resume(device)
            node = self._dm.path(device)
            # One copy of all: what is lost can be fetched again. Blocks are zero already.
            self._run("mkfs.btrfs", "--quiet", "--force", "--nodiscard", "--metadata", "single",
                      "--data", "single", node)
            Path(self.folder).mkdir(parents=True, exist_ok=True)
            self._run("mount", "-t", "btrfs", "-o", "noatime", node, self.folder)
        except (DmError, OSError, VolumeError):
            # The first error is the one to report.
            with contextlib.suppress(DmError):
                self._dm.remove(device, deferred=True)
            raise
        self.mounted = True


def _cut(order: Sequence[Range], keep: int) -> tuple[list[Range], list[Range]]:
    """Divide blocks into those behind the first `keep` ones, and these."""
    given, kept = [], []
    for first, blocks in order:
        here = min(blocks, keep)
        if here:
            kept.append(Range(first, here))
        if blocks > here:
            given.append(Range(first + here, blocks - here))
        keep -= here
    return given, kept
