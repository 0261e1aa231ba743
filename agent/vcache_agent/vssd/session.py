# SPDX-License-Identifier: Apache-2.0
"""What the host does with one elastic SSD, as a function of events. No I/O, no clock.

The guest may lie, hang, reboot or never answer: nothing here waits for it longer than the
deadline. The quota in the kernel is changed first, so a guest that ignores everything cannot get
more, and after the deadline its blocks are taken.
"""

import dataclasses

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

#: Longest time that a guest has to give up blocks, in seconds.
DEADLINE_MAX = 3600.0


@dataclasses.dataclass(frozen=True)
class State:
    """What the kernel says of the device, in blocks.

    :param most: its size
    :param quota: how many it may own
    :param owned: how many it owns
    :param mapped: how many of these have data
    :param ready: how many of these can take data at once
    """

    most: int
    quota: int
    owned: int
    mapped: int
    ready: int


@dataclasses.dataclass(frozen=True)
class Send:
    """Send a message to the guest."""

    message: Message


@dataclasses.dataclass(frozen=True)
class SetQuota:
    """Change the quota in the kernel.

    :param keep: leave the guest the blocks above the quota until the next change, or until some
        are taken
    """

    blocks: int
    keep: bool = False


@dataclasses.dataclass(frozen=True)
class Release:
    """Release blocks in the kernel, which are inside the device."""

    ranges: tuple[Range, ...]


@dataclasses.dataclass(frozen=True)
class Force:
    """Take all blocks above the quota; then call :meth:`Session.forced`."""


@dataclasses.dataclass(frozen=True)
class Recall:
    """List the blocks that were taken and not given up; then call :meth:`Session.recalled`."""


Action = Send | SetQuota | Release | Force | Recall


@dataclasses.dataclass
class _Shrinking:
    """The device owns more than its quota.

    :param request: what the guest answers with Done
    :param deadline: when blocks are taken
    :param keeps: the kernel leaves the guest all its blocks
    """

    request: int
    deadline: float
    keeps: bool


def _inside(ranges: tuple[Range, ...], most: int) -> tuple[Range, ...]:
    """Return the part of some ranges that is inside the device, each block once.

    So one message costs the host no more than a pass over the device.
    """
    found: list[Range] = []
    for first, count in sorted(ranges):
        start = max(first, found[-1].first + found[-1].blocks) if found else first
        end = min(first + count, most)
        if start < end:
            found.append(Range(start, end - start))
    return tuple(found)


class Session:
    """An elastic SSD and its guest.

    A change of the size that is under way, such as one of an agent that was killed, goes on.

    :param block_bytes: size of a block
    :param persist: as of the device
    :param state: of the device; the guest may use its quota
    :param now: the time in seconds, of any clock
    :param deadline: how long the guest may take for a shrink that is under way, in seconds
    """

    def __init__(self, block_bytes: int, persist: bool, state: State, now: float = 0.0,
                 deadline: float = 0.0) -> None:
        self._block_bytes, self._persist = block_bytes, persist
        #: How many blocks the disk has.
        self.most = state.most
        #: Serial number of the disk, by which the guest finds it.
        self.serial = ""
        #: How many blocks the guest may use, as it was last told.
        self.size = min(state.quota, state.owned)
        #: How many it is to have.
        self.target = state.quota
        #: Whether a daemon in the guest has introduced itself, with a version that we speak.
        self.present = False
        #: How many blocks were taken by force so far.
        self.taken = 0
        self._request = int(state.owned > state.quota)
        # Whether there is a daemon is not known yet.
        self._shrinking = _Shrinking(self._request, now + deadline, keeps=True) \
            if state.owned > state.quota else None
        # A growing guest is told its new size when the kernel has the blocks.
        self._grows = state.owned < state.quota

    @property
    def busy(self) -> bool:
        """Whether a change of the size is under way."""
        return self._shrinking is not None or self._grows

    @property
    def deadline(self) -> float | None:
        """When the blocks of a shrink under way are taken; None: it does not shrink."""
        return self._shrinking.deadline if self._shrinking else None

    def connected(self, serial: str) -> list[Action]:
        """Begin with a channel, over which a daemon may have been served before.

        :param serial: serial number of the disk
        """
        self.serial = serial
        return [Send(Call())]

    def resize(self, blocks: int, now: float, deadline: float) -> list[Action]:
        """Give the guest another size.

        :param blocks: how many blocks, up to the size of the device
        :param now: the time in seconds, of any clock
        :param deadline: how long the guest may take to give up blocks, in seconds
        :raises ValueError: if a value is out of range
        """
        if not 0 <= blocks <= self.most:
            raise ValueError(f"size of {blocks} blocks, must be 0 to {self.most}")
        if not 0 <= deadline <= DEADLINE_MAX:
            raise ValueError(f"deadline of {deadline} s, must be 0 to {DEADLINE_MAX:g}")
        self._grows, self.target = blocks > self.size, blocks
        tell: list[Action] = []
        if blocks < self.size:
            self._request += 1
            # Without a daemon nobody could answer.
            wait = deadline if self.present else 0.0
            self._shrinking = _Shrinking(self._request, now + wait, keeps=self.present)
            # A guest that asks meanwhile must not be told the old size.
            self.size = blocks
            if self.present:
                tell = [Send(Deflate(self._request, blocks, round(deadline * 1000)))]
        # Otherwise a shrink that is under way goes on, and a growth follows it.
        keeps = self._shrinking is not None and self._shrinking.keeps
        return [SetQuota(blocks, keeps), *tell]

    def received(self, message: Message, now: float) -> list[Action]:
        """Handle a message of the guest. What does not fit the state is ignored."""
        match message:
            case Hello():
                return self._hello(message, now)
            case Give():
                return self._give(message)
            case Done():
                return self._done(message)
            case _:
                return []

    def _hello(self, message: Hello, now: float) -> list[Action]:
        if not message.oldest <= VERSION <= message.newest:
            self.present = False
            return []
        self.present = True
        # What a guest that was silent has lost may be inside a size that has grown again.
        actions: list[Action] = [Send(Welcome(self._block_bytes, self.most, self.size,
                                              self._persist, self.serial)), Recall()]
        shrinking = self._shrinking
        if shrinking is not None:
            # The deadline stays: a guest that reboots must not gain time.
            left = max(round((shrinking.deadline - now) * 1000), 0)
            actions.append(Send(Deflate(shrinking.request, self.size, left)))
        return actions

    def recalled(self, ranges: tuple[Range, ...]) -> list[Action]:
        """Tell the guest what :class:`Recall` has found of the blocks that it may use."""
        lost = _inside(ranges, self.size)
        return [Send(message) for message in lists(Forced, 0, lost)] if lost else []

    def _give(self, message: Give) -> list[Action]:
        """Release what the guest gives up, whenever it does so: these are its own blocks."""
        ranges = _inside(message.ranges, self.most)
        return [Release(ranges)] if ranges else []

    def _done(self, message: Done) -> list[Action]:
        """Take back blocks without data, because the guest uses no more than its new size."""
        shrinking = self._shrinking
        if shrinking is None or not shrinking.keeps or message.request != shrinking.request \
                or message.size > self.size:
            return []
        shrinking.keeps = False
        return [SetQuota(self.target)]

    def observed(self, state: State, now: float) -> list[Action]:
        """Go on after the state of the device was read, each second or more often."""
        if self._shrinking is not None:
            return self._shrink(state, now, self._shrinking)
        if self._grows and state.owned >= min(state.quota, self.target) \
                and state.ready >= state.owned - state.mapped:
            self._grows = False
            return self._tell(Inflate)
        return []

    def _shrink(self, state: State, now: float, shrinking: _Shrinking) -> list[Action]:
        if state.owned <= state.quota:
            self._shrinking = None
            return [Send(Done(shrinking.request, self.size))] if self.present else []
        if now >= shrinking.deadline and (shrinking.keeps or state.mapped > state.quota):
            shrinking.keeps = False
            return [Force()]
        # Blocks without data are on their way back to the pool.
        return []

    def _tell(self, kind: type[Inflate]) -> list[Action]:
        self.size = self.target
        self._request += 1
        return [Send(kind(self._request, self.size))] if self.present else []

    def forced(self, ranges: tuple[Range, ...]) -> list[Action]:
        """Tell the guest what :class:`Force` has taken."""
        shrinking = self._shrinking
        self.taken += sum(one.blocks for one in ranges)
        if shrinking is None or not self.present or not ranges:
            return []
        return [Send(message) for message in lists(Forced, shrinking.request, ranges)]

    def disconnected(self) -> None:
        """Note that the channel has ended. A shrink under way goes on without the guest."""
        self.present = False
