# SPDX-License-Identifier: Apache-2.0
"""The device of the target ``vcache-vssd``, see ``doc/source/reference/vssd.rst``."""

from collections.abc import Iterable
from typing import Protocol

from vcache_agent.dm import Lines
from vcache_agent.vssd.session import State
from vcache_guest.protocol import Range

SECTOR = 512
TARGET = "vcache-vssd"


class NotAVssd(ValueError):
    """A mapped device that is no elastic SSD."""


class Mapper(Protocol):
    """What is used of :class:`vcache_agent.dm.Dm`."""

    def status(self, name: str) -> Lines:
        """Return the status of a device."""

    def table(self, device: str) -> Lines:
        """Return the table of a device."""

    def message(self, name: str, text: str) -> None:
        """Send a message to a device."""

    def ask(self, name: str, text: str) -> str:
        """Send a message, and return its answer."""


class Device:
    """A mapped device that is an elastic SSD.

    :param mapper: device mapper
    :param name: name of the device
    :raises NotAVssd: if it has another target
    :raises DmError: if there is no such device
    """

    def __init__(self, mapper: Mapper, name: str) -> None:
        self._mapper, self._name = mapper, name
        (line,) = mapper.table(name) or (None,)
        if line is None or line.target != TARGET:
            raise NotAVssd(f"{name}: its target is {line.target if line else 'missing'}, must be "
                           f"{TARGET}")
        #: Device number of its pool.
        self.pool = line.arguments.split()[0]
        self.persist = line.arguments.endswith(" persist")
        self.block_bytes = self._words()[0] * SECTOR

    def _words(self) -> list[int]:
        (line,) = self._mapper.status(self._name)
        return [int(word) for word in line.arguments.split()]

    def state(self) -> State:
        """Return its state."""
        _, most, quota, owned, mapped, ready = self._words()[:6]
        return State(most, quota, owned, mapped, ready)

    def set_quota(self, blocks: int, *, keep: bool) -> None:
        """Change how many blocks it may own.

        :param keep: blocks above the quota stay until the next change, or until some are taken
        """
        self._mapper.message(self._name, f"quota {blocks}{' keep' if keep else ''}")

    def release(self, ranges: Iterable[Range]) -> None:
        """Free blocks that the guest does not need any more."""
        for one in ranges:
            self._mapper.message(self._name, f"release {one.first} {one.blocks}")

    def force(self) -> tuple[Range, ...]:
        """Take all blocks above the quota. Return those that had data."""
        before = set(self._blocks())
        self._mapper.message(self._name, "force")
        return tuple(_joined(block for block in self._blocks() if block not in before))

    def taken(self) -> tuple[Range, ...]:
        """Return the blocks that were taken and not given up since then."""
        return tuple(_joined(self._blocks()))

    def _blocks(self) -> Iterable[int]:
        words = [int(word) for word in self._mapper.ask(self._name, "list taken").split()]
        for first, count in zip(words[::2], words[1::2], strict=True):
            yield from range(first, first + count)


def _joined(blocks: Iterable[int]) -> list[Range]:
    """Join ascending blocks to ranges."""
    found: list[Range] = []
    for block in blocks:
        if found and found[-1].first + found[-1].blocks == block:
            found[-1] = Range(found[-1].first, found[-1].blocks + 1)
        else:
            found.append(Range(block, 1))
    return found
