# SPDX-License-Identifier: Apache-2.0
"""The dm-cache and applications as one consumer of the elastic SSD."""

import fcntl
import logging
import math
import os
import struct
import time
from collections.abc import Callable
from pathlib import Path
from typing import Protocol

from vcache_guest import guest
from vcache_guest.app_protocol import (
    NEVER_MS,
    Give,
    Message,
    Register,
    Welcome,
)
from vcache_guest.blocks import Ranges
from vcache_guest.cache import START_S, CacheError
from vcache_guest.protocol import ProtocolError, Range
from vcache_guest.shares import Claim
from vcache_guest.sharing import Process, Sends, Sharing

LOG = logging.getLogger(__name__)

#: Most applications.
APPS_MAX = 64

_BLKDISCARD = 0x1277
# The part of a deadline of the host that applications get; the rest is for what follows.
_PART = 0.8


def _milliseconds(seconds: float) -> int:
    return NEVER_MS if math.isinf(seconds) else min(round(seconds * 1000), NEVER_MS - 1)


class Server(Protocol):
    """What is used of :class:`vcache_guest.app_server.AppServer`."""

    def send(self, sends: Sends) -> None:
        """Send messages."""

    def pump(self, seconds: float) -> None:
        """Handle what applications have sent, and wait up to some seconds for something."""


class Disk:
    """The elastic SSD as far as its blocks are discarded."""

    def __init__(self) -> None:
        self._fd, self._block_bytes = -1, 0

    def open(self, path: str, block_bytes: int) -> bool:
        """Use a disk. Return whether its blocks can be discarded.

        :raises OSError: if it cannot be opened
        """
        self.close()
        self._fd, self._block_bytes = os.open(path, os.O_RDWR | os.O_CLOEXEC), block_bytes
        number = os.fstat(self._fd).st_rdev
        limit = Path(f"/sys/dev/block/{os.major(number)}:{os.minor(number)}/queue/"
                     "discard_max_bytes")
        return limit.exists() and int(limit.read_text()) > 0

    def close(self) -> None:
        """Close it."""
        if self._fd >= 0:
            os.close(self._fd)
        self._fd = -1

    def discard(self, ranges: Ranges) -> None:
        """Discard blocks. The kernel drops what its page cache has of them, too.

        :raises OSError: if the disk does not allow it
        """
        for first, blocks in ranges:
            fcntl.ioctl(self._fd, _BLKDISCARD, struct.pack(
                "=QQ", first * self._block_bytes, blocks * self._block_bytes))


class Shared:
    """All consumers, for :class:`vcache_guest.guest.Guest`.

    :param cache: the dm-cache; None: there is none
    :param claim: its weight and minimum
    :param disk: discards blocks
    :param clock: seconds
    """

    def __init__(self, cache: guest.Consumer | None, claim: Claim, disk: Disk,
                 clock: Callable[[], float] = time.monotonic) -> None:
        self._cache, self._disk, self._clock = cache, disk, clock
        self.sharing = Sharing(disk.discard, claim if cache is not None else None)
        #: How many blocks all may use; 0: there is no disk.
        self.size = 0
        #: Serves the applications.
        self.server: Server | None = None
        #: Whether blocks of the disk can be discarded. If not, there are no applications.
        self.discards = False
        self._welcome: Welcome | None = None
        self._resizing = self._attached = False

    def attach(self, vssd: str, block_bytes: int, most: int, size: int) -> None:
        """Use an elastic SSD; see :meth:`vcache_guest.cache.Cache.attach`."""
        sharing = self.sharing
        first, self._attached = self._welcome is None, False
        sharing.attached(most, size)
        self._welcome = Welcome(block_bytes, most, vssd)
        if first:
            self._open(vssd, block_bytes)
            self.greet(list(sharing.apps))
        if self._cache is not None:
            try:
                self._cache.attach(vssd, block_bytes, most, sharing.cache_wanted())
            finally:
                sharing.cache = self._cache.size
        self.size, self._attached = size, True
        self.release()
        self.settle()

    def _open(self, vssd: str, block_bytes: int) -> None:
        try:
            self.discards = self._disk.open(vssd, block_bytes)
        except OSError as error:
            raise CacheError(f"{vssd}: {error.strerror}") from None
        if not self.discards:
            LOG.warning("%s: its blocks cannot be discarded, so applications cannot share it", vssd)

    def resize(self, size: int, seconds: float = float("inf")) -> None:
        """Use another number of blocks.

        :param size: how many
        :param seconds: after that, blocks of applications are taken by force
        :raises CacheError: if more blocks are used than allowed
        """
        if not self._attached:
            # A cache of an earlier start may be there, with the only copy of data.
            raise CacheError("the elastic SSD is not in use")
        sharing = self.sharing
        end = self._clock() + seconds * _PART
        sharing.size = size
        failed = None
        self._resizing = True
        try:
            if sharing.used > size:
                self._send(sharing.balance(_milliseconds(seconds * _PART)))
            try:
                self._shrink(seconds * _PART)
            except CacheError as error:
                failed = error
            self._wait(size + self._unwilling(), end)
            if sharing.used > size:
                self._send(sharing.force())
        finally:
            self._resizing = False
        if sharing.used > size:
            raise failed or CacheError(f"{sharing.used} blocks are used, must be at most {size}")
        if failed:
            LOG.warning("%s", failed)
        self.size = size
        self.release()
        self.settle()

    def _unwilling(self) -> int:
        """Return how many blocks too many the dm-cache has: nobody has to wait for these."""
        return max(self.sharing.cache - self.sharing.cache_wanted(), 0)

    def _wait(self, most: int, end: float) -> None:
        """Wait until applications have given up enough."""
        while self.sharing.used > most and self.sharing.apps and self.server is not None:
            left = end - self._clock()
            if left <= 0:
                break
            self.server.pump(min(left, 1.0))

    def _shrink(self, seconds: float) -> None:
        wanted = self.sharing.cache_wanted()
        if self._cache is not None and wanted < self.sharing.cache:
            self._cache.resize(wanted, seconds)
            self._cache_has(wanted)

    def _cache_has(self, blocks: int) -> None:
        before, self.sharing.cache = self.sharing.cache, blocks
        if before > blocks and self.discards:
            try:
                self._disk.discard((Range(blocks, before - blocks),))
            except OSError as error:
                LOG.error("cannot discard blocks: %s", error)

    def drop(self, *, wiped: bool) -> None:
        """Drop the dm-cache, because it has lost blocks; see :meth:`Cache.drop`."""
        if self._cache is not None:
            self._cache.drop(wiped=wiped)
        self.sharing.cache = self.size = 0
        self._attached = False

    def settle(self) -> None:
        """Bring all consumers to their parts, as far as that is possible now."""
        if self._resizing or not self._attached:
            return
        sharing = self.sharing
        self._send(sharing.balance())
        try:
            self._shrink(START_S)
            self._send(sharing.balance())
            wanted = sharing.cache_wanted()
            if self._cache is not None and wanted > sharing.cache:
                self._cache.resize(wanted)
                self._cache_has(wanted)
        except CacheError as error:
            LOG.warning("%s", error)

    def received(self, number: int, message: Message) -> None:
        """Handle a message of an application.

        :raises ProtocolError: if it is not allowed; then the connection has to end
        """
        apps = self.sharing.apps
        match message:
            case Register(name, weight, least):
                self._register(number, name, Claim(weight, least))
            case Give(_, ranges) if number in apps:
                self.sharing.gave(number, ranges)
            case _:
                raise ProtocolError(f"{type(message).__name__} is not expected here")
        self.settle()

    def _register(self, number: int, name: str, claim: Claim) -> None:
        apps = self.sharing.apps
        if any(app.name == name for other, app in apps.items() if other != number):
            raise ProtocolError(f"the name {name!r} is in use")
        if self._welcome is not None and not self.discards:
            raise ProtocolError("the disk has no discard, so it cannot be shared")
        if number not in apps and len(apps) >= APPS_MAX:
            raise ProtocolError(f"there are {APPS_MAX} applications, the most that are possible")
        if number in apps and apps[number].name != name:
            raise ProtocolError(f"the name was {apps[number].name!r} and cannot change")
        new = number not in apps
        self.sharing.join(number, name, claim)
        if new:
            LOG.info("%s: an application with weight %d", name, claim.weight)
            self.greet([number])

    def greet(self, numbers: list[int]) -> None:
        """Tell applications about the disk, if there is one."""
        if self._welcome is not None:
            self._send([(number, self._welcome) for number in numbers])

    def left(self, number: int) -> None:
        """Note that an application has ended its connection."""
        self.sharing.leave(number)
        self.settle()

    def abandoned(self, number: int, process: Process) -> None:
        """Note that the connection of an application was ended by us."""
        self.sharing.abandon(number, process)
        self.settle()

    def gone(self, process: Process) -> None:
        """Note that a process has ended."""
        self.sharing.gone(process)
        self.settle()

    def lose(self, ranges: tuple[Range, ...]) -> bool:
        """Note that the host has taken blocks. Return whether the dm-cache has lost some."""
        self._send(self.sharing.lost(ranges))
        return any(one.first < self.sharing.cache for one in ranges)

    def release(self) -> None:
        """Discard all that nobody uses: it may count as taken on the host, and would fail."""
        if not self.discards:
            return
        try:
            self._disk.discard(self.sharing.unused())
        except OSError as error:
            LOG.error("cannot discard blocks: %s", error)

    def _send(self, sends: Sends) -> None:
        if self.server is not None and sends:
            self.server.send(sends)


class SharedGuest(guest.Guest):
    """The guest of an elastic SSD that several consumers share.

    It releases blocks by discards, which are complete when they return: a message to the host that
    arrives late could release what another consumer has written meanwhile.
    """

    def __init__(self, shared: Shared, find: Callable[[str], str], boot: bytes) -> None:
        super().__init__(shared, find, boot)
        self._shared = shared

    def _unused(self, first: int, end: int) -> tuple[Range, ...]:
        return () if self._shared.discards else super()._unused(first, end)

    def _lose(self, lost: tuple[Range, ...]) -> tuple[tuple[Range, ...], bool]:
        if not self._shared.discards:
            return super()._lose(lost)
        cached = self._shared.lose(lost)
        shrunk = self._shrunk()
        if cached or not shrunk:
            self._shared.drop(wiped=any(one.first == 0 for one in lost))
            cached = True
        self._shared.release()
        return (), cached
