# SPDX-License-Identifier: Apache-2.0
"""The crash model: the possible contents of the origin after a power cut.

The origin has a volatile cache. At a given moment, the following is durable: each FUA write
that has completed, and each other write or discard that had completed before the submission
of a flush that has completed. Every other request submitted before the moment, completed
or in flight, may be present or not, for each sector independently: the cache may
have written back any part of it. Later requests are not present. A cut is a moment
and a choice among these possibilities.
"""

import random
from dataclasses import dataclass
from typing import Literal

import numpy as np
import numpy.typing as npt

from tests.powercut.journal import NEVER, Request
from tests.powercut.logwrites import Flag

#: For each sector of the origin, the sector of the log with its content.
Image = npt.NDArray[np.int64]

#: The surviving part of the uncertain writes: none, all, or some, drawn from a seed.
Survives = Literal["none", "all", "some"]


@dataclass(frozen=True, order=True)
class Cut:
    """A power cut.

    :param time: it happens after this event of the trace
    :param survives: surviving part of the writes that are not durable
    :param seed: seed of the draw
    """

    time: int
    survives: Survives = "none"
    seed: int = 0


@dataclass(frozen=True)
class Origin:
    """The guarantees of the origin.

    :param volatile: it has a volatile cache; otherwise completed writes are durable
    :param honours_fua: a FUA write is durable when it completes
    :param honours_flush: a flush makes durable what completed before it
    """

    volatile: bool = True
    honours_fua: bool = True
    honours_flush: bool = True


#: The origin of most recordings.
HONEST = Origin()


class Replay:
    """The state of the origin, from the beginning of the log.

    :param sectors: size of the origin
    """

    def __init__(self, requests: list[Request], sectors: int,
                 origin: Origin = HONEST) -> None:
        self._origin = origin
        self._starts = sorted(requests, key=lambda r: r.submit)
        self._ends = sorted(requests, key=lambda r: r.complete)
        self._started = self._ended = 0
        self.time = 0
        #: The durable content.
        self.durable: Image = np.zeros(sectors, np.int64)
        # Submission time of the durable content of a sector. It has overwritten all writes that
        # had completed before.
        self._since: Image = np.zeros(sectors, np.int64)
        self._cached: list[Request] = []
        self._flying: dict[int, Request] = {}

    def advance(self, time: int) -> None:
        """Advance to a later moment.

        :param time: all events of the trace up to this one have happened
        """
        if time < self.time:
            raise ValueError(f"cannot go back from {self.time} to {time}")
        self.time = time
        while (self._started < len(self._starts)
               and self._starts[self._started].submit <= time):
            request = self._starts[self._started]
            self._flying[id(request)] = request
            self._started += 1
        while self._ended < len(self._ends) and self._ends[self._ended].complete <= time:
            request = self._ends[self._ended]
            del self._flying[id(request)]
            self._complete(request)
            self._ended += 1

    def _complete(self, request: Request) -> None:
        if request.flags & Flag.FLUSH:
            if not self._origin.honours_flush:
                return
            still = []
            for write in self._cached:
                if write.complete < request.submit:
                    self._persist(write)
                else:
                    still.append(write)
            self._cached = still
        elif not self._origin.volatile or (
                request.flags & Flag.FUA and self._origin.honours_fua):
            self._persist(request)
        else:
            self._cached.append(request)

    def _persist(self, write: Request) -> None:
        at = slice(write.sector, write.sector + write.count)
        newer = write.complete > self._since[at]
        self.durable[at][newer] = _content(write)[newer]
        self._since[at][newer] = write.submit

    def volatile(self) -> list[Request]:
        """Return the requests that may be present or not, in the order of submission."""
        writes = [w for w in [*self._cached, *self._flying.values()]
                  if not w.flags & Flag.FLUSH]
        return sorted(writes, key=lambda w: w.submit)

    def image(self, cut: Cut) -> Image:
        """Return the content of the origin after a cut at the present moment."""
        if cut.time != self.time:
            raise ValueError(f"the cut is at {cut.time}, the replay at {self.time}")
        image = self.durable.copy()
        if cut.survives == "none":
            return image
        draw = random.Random(cut.seed)  # noqa: S311 - repeatable, not secret
        for write in self.volatile():
            completed = write.complete if write.complete <= cut.time else NEVER
            at = slice(write.sector, write.sector + write.count)
            there = completed > self._since[at]
            if cut.survives == "some":
                there &= _some(draw, write.count)
            image[at][there] = _content(write)[there]
        return image


def _content(write: Request) -> Image:
    if write.flags & Flag.DISCARD:
        return np.zeros(write.count, np.int64)
    return np.arange(write.data, write.data + write.count)


def _some(draw: random.Random, count: int) -> npt.NDArray[np.bool_]:
    """Draw the surviving sectors of a write: none, all, or a part."""
    kind = draw.randrange(4)
    if kind < 2:
        return np.full(count, bool(kind))
    bits = draw.getrandbits(count)
    drawn = np.frombuffer(bits.to_bytes((count + 7) // 8, "little"), np.uint8)
    return np.unpackbits(drawn, count=count, bitorder="little").astype(bool)


def overlapping(requests: list[Request]) -> list[tuple[Request, Request]]:
    """Find writes to the same sector that were at the origin at the same time.

    The origin decides which of the two remains.
    """
    found: list[tuple[Request, Request]] = []
    flying: list[Request] = []
    for request in sorted(requests, key=lambda r: r.submit):
        if request.flags & Flag.FLUSH:
            continue
        flying = [other for other in flying if other.complete > request.submit]
        found += [(other, request) for other in flying
                  if other.sector < request.sector + request.count
                  and request.sector < other.sector + other.count]
        flying.append(request)
    return found
