# SPDX-License-Identifier: Apache-2.0
"""What the guest does with the messages of the host. No I/O but through the cache."""

import logging
from collections.abc import Callable, Iterator
from typing import Protocol

from vcache_guest.cache import START_S, CacheError
from vcache_guest.protocol import (
    VERSION,
    Call,
    Deflate,
    Done,
    Forced,
    Give,
    Hello,
    Inflate,
    Message,
    Range,
    Welcome,
    lists,
)

LOG = logging.getLogger(__name__)


class Consumer(Protocol):
    """Who uses the elastic SSD: :class:`vcache_guest.cache.Cache`."""

    size: int

    def attach(self, vssd: str, block_bytes: int, most: int, size: int) -> None:
        """Use an elastic SSD."""

    def resize(self, size: int, seconds: float = ...) -> None:
        """Use another number of blocks."""

    def drop(self, *, wiped: bool) -> None:
        """Stop using it, and forget what is on it, because blocks were lost."""


class Guest:
    """The guest of one elastic SSD.

    :param consumer: who uses it
    :param find: returns the path of the disk with a serial number
    :param boot: 16 random bytes
    """

    def __init__(self, consumer: Consumer, find: Callable[[str], str], boot: bytes) -> None:
        self._consumer, self._find, self._boot = consumer, find, boot
        self._welcome: Welcome | None = None
        # Blocks that were taken and not given up yet: they fail.
        self._lost: list[Range] = []
        # What the consumer may use, as the host has said last.
        self._size = 0

    @property
    def welcome(self) -> bool:
        """Whether the host has answered."""
        return self._welcome is not None

    def hello(self) -> Hello:
        """Return the message to begin with, repeated until the host answers."""
        return Hello(VERSION, VERSION, self._boot)

    def ended(self) -> None:
        """Note that the channel has ended: the host has to answer again."""
        self._welcome, self._lost = None, []

    def received(self, message: Message) -> Iterator[Message]:
        """Handle a message of the host; return what to answer.

        An error of the cache is logged: the host takes what it needs after its deadline.
        """
        try:
            match message:
                case Call():
                    self.ended()
                    yield self.hello()
                case Welcome():
                    yield from self._welcomed(message)
                case Inflate(request, size) if self._known(size):
                    yield from self._inflate(request, size)
                case Deflate(request, size, deadline_ms) if self._known(size):
                    yield from self._deflate(request, size, deadline_ms)
                case Forced(_, more, ranges) if self._welcome is not None:
                    yield from self._forced(more, ranges)
                case _:
                    pass
        except CacheError as error:
            LOG.error("%s", error)

    def _known(self, size: int) -> bool:
        return self._welcome is not None and size <= self._welcome.most

    def _welcomed(self, message: Welcome) -> Iterator[Message]:
        self._welcome, self._size = message, message.size
        if self._consumer.size:
            self._consumer.resize(message.size, START_S)
        else:
            self._consumer.attach(self._find(message.serial), message.block_bytes, message.most,
                                  message.size)
        # After a restart the host may not know any more which blocks it has taken: it counts all
        # without data. What is behind the size is not used any more; not before here, because what
        # is given up reads as zeroes.
        if message.size < message.most:
            yield from lists(Give, 0, self._unused(message.size, message.most))

    def _inflate(self, request: int, size: int) -> Iterator[Message]:
        self._size = size
        self._consumer.resize(size)
        yield Done(request, self._consumer.size)

    def _deflate(self, request: int, size: int, deadline_ms: int) -> Iterator[Message]:
        before, self._size = max(self._consumer.size, size), size
        self._consumer.resize(size, deadline_ms / 1000)
        if before > size:
            yield from lists(Give, request, self._unused(size, before))
        yield Done(request, self._consumer.size)

    def _forced(self, more: bool, ranges: tuple[Range, ...]) -> Iterator[Message]:
        self._lost += ranges
        if more:
            return
        lost, self._lost = tuple(self._lost), []
        given, again = self._lose(lost)
        yield from lists(Give, 0, given)
        if again:
            # The host answers when it has released them. Before that, they cannot be written.
            self._welcome = None
            yield self.hello()

    def _unused(self, first: int, end: int) -> tuple[Range, ...]:
        """Return what the host is to release of the blocks `first` to `end` - 1."""
        return (Range(first, end - first),)

    def _lose(self, lost: tuple[Range, ...]) -> tuple[tuple[Range, ...], bool]:
        """Handle the loss of blocks.

        :return: what the host is to release, and whether the consumer has to begin again then
        """
        again = any(one.first < self._size for one in lost) or not self._shrunk()
        if again:
            self._consumer.drop(wiped=any(one.first == 0 for one in lost))
        return lost, again

    def _shrunk(self) -> bool:
        """Shrink to the size that is left. Return False if that is not possible."""
        if self._consumer.size <= self._size:
            return True
        try:
            self._consumer.resize(self._size, 0)
        except CacheError as error:
            LOG.warning("%s", error)
            return False
        return True
