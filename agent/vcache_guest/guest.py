# SPDX-License-Identifier: Apache-2.0
"""What the guest does with the messages of the host. No I/O but through the cache."""

import logging
from collections.abc import Callable, Iterator
from typing import Protocol

from vcache_guest.cache import CacheError
from vcache_guest.protocol import (
    VERSION,
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

    def drop(self, size: int) -> None:
        """Start again, because blocks were lost."""


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

    def received(self, message: Message) -> Iterator[Message]:
        """Handle a message of the host; return what to answer.

        An error of the cache is logged: the host takes what it needs after its deadline.
        """
        try:
            match message:
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
        again = self._welcome is not None and self._consumer.size
        self._welcome, self._size = message, message.size
        # After a restart the host may not know any more which blocks it has taken: it counts all
        # without data. What is behind the size has no data that we need.
        if message.size < message.most:
            yield Give(0, False, (Range(message.size, message.most - message.size),))
        if again:
            self._consumer.resize(message.size)
        else:
            self._consumer.attach(self._find(message.serial), message.block_bytes, message.most,
                                  message.size)

    def _inflate(self, request: int, size: int) -> Iterator[Message]:
        self._size = size
        self._consumer.resize(size)
        yield Done(request, self._consumer.size)

    def _deflate(self, request: int, size: int, deadline_ms: int) -> Iterator[Message]:
        before, self._size = max(self._consumer.size, size), size
        self._consumer.resize(size, deadline_ms / 1000)
        if before > size:
            yield Give(request, False, (Range(size, before - size),))
        yield Done(request, self._consumer.size)

    def _forced(self, more: bool, ranges: tuple[Range, ...]) -> Iterator[Message]:
        self._lost += ranges
        if more:
            return
        lost, self._lost = tuple(self._lost), []
        if any(one.first < self._size for one in lost):
            self._consumer.drop(self._size)
        elif self._consumer.size > self._size:
            self._shrink_or_drop()
        yield from lists(Give, 0, lost)

    def _shrink_or_drop(self) -> None:
        try:
            self._consumer.resize(self._size, 0)
        except CacheError as error:
            LOG.warning("%s", error)
            self._consumer.drop(self._size)
