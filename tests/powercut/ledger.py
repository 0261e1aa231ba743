# SPDX-License-Identifier: Apache-2.0
"""The required contents after a power cut, for each sector.

The rule for each sector: of its writes that a completed flush covers (or that are
durable by themselves), take those that had completed when the flush was sent. The
sector holds one of them, or a write that was not complete before each of them was
sent. If there is none, it may hold any of its writes, or the initial content. It
never holds anything else: no parts of two writes in one sector, and no content of
another sector or file.
"""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from tests.powercut import stamps
from tests.powercut.journal import NEVER, Op, name
from tests.powercut.stamps import Ops

#: Returns whether a flush covers a write; both are of the journal.
Covers = Callable[[Op, Op], bool]

_NOTHING = -1

# Sectors per block of the cache.
_BLOCK = 8


@dataclass(frozen=True)
class Violation:
    """A sector with a content that is not allowed."""

    file: int
    sector: int
    found: int
    must: int | None

    def __str__(self) -> str:
        what = {stamps.TORN: "torn: parts of two writes", stamps.ZERO: "zeroes",
                stamps.FOREIGN: "another place's or another owner's content",
                }.get(self.found, f"op {name(self.found)}")
        if self.must is not None:
            what += f", but the write sent at {self.must} was made durable"
        return f"file {self.file} sector {self.sector}: {what}"


class Ledger:
    """Follows the journal, and knows the requirements at each moment.

    :param files: the watched files: number -> sectors
    :param ops: all operations of the journal
    :param covers: which writes a flush covers
    :param discards_forget: a discard cancels the requirements of its sectors: they may hold
        any of their writes, until one that was made after it
    :param alive: time at which an interrupted target was set up again: completed writes that no
        flush had covered may be lost, and no later flush restores them
    """

    def __init__(self, files: Mapping[int, int], ops: Iterable[Op], covers: Covers, *,
                 discards_forget: bool = False, alive: int = NEVER) -> None:
        self._covers = covers
        self._alive = alive
        self._forget = discards_forget
        self._base: dict[int, int] = {}
        size = 0
        for file, sectors in files.items():
            self._base[file] = size
            size += sectors
        self._size = dict(files)
        #: Number of watched sectors.
        self.size = size
        # Latest submission of a write that must be present, by sector.
        self._must = np.full(size, _NOTHING, np.int64)
        # Completion of the latest request that wrote zeroes.
        self._zeroed = np.zeros(size, np.int64)
        # Writes submitted before this may be discarded.
        self._forgotten = np.full(size, _NOTHING, np.int64)
        # Submission of the latest completed discard.
        self._dropped = np.full(size, _NOTHING, np.int64)
        everything = list(ops)
        watched = [op for op in everything if op.file in self._base and op.kind in "WZD"]
        self._numbers, self._completed = _completions(watched)
        events = [(op.submit, 0, op) for op in everything]
        events += [(op.complete, 1, op) for op in everything if op.complete != NEVER]
        self._events = sorted(events, key=lambda event: event[0])
        self._next = 0
        self._pending: list[Op] = []
        self._zeroing: dict[int, Op] = {}

    def span(self, op: Op) -> slice:
        """Return the place of an operation's sectors among all watched ones."""
        base = self._base[op.file]
        return slice(base + op.sector, base + min(op.sector + op.count, self._size[op.file]))

    def whole(self, file: int) -> slice:
        """Return the place of the sectors of a file among all watched ones."""
        return slice(self._base[file], self._base[file] + self._size[file])

    def advance(self, time: int) -> None:
        """Process all events up to a later moment."""
        while self._next < len(self._events) and self._events[self._next][0] <= time:
            at, done, op = self._events[self._next]
            self._next += 1
            if at > self._alive:
                self._pending = []
                self._alive = NEVER
            if op.kind == "F" and done:
                self._flushed(op)
            elif op.kind in "WZD" and op.file in self._base:
                self._wrote(op, bool(done))

    def _wrote(self, op: Op, done: bool) -> None:
        if op.kind in "ZD":
            if done:
                del self._zeroing[op.number]
            else:
                self._zeroing[op.number] = op
            self._zeroed[self.span(op)] = op.complete if done else NEVER
            for other in self._zeroing.values():
                if other.file == op.file:
                    self._zeroed[self.span(other)] = NEVER
        if op.kind == "D" and self._forget:
            self._discarded(op, done)
        if not done or op.kind == "D":
            return
        if op.detail == "D":
            self._demand(op)
        else:
            self._pending.append(op)

    def _discarded(self, op: Op, done: bool) -> None:
        at = self.span(op)
        self._must[at] = _NOTHING
        self._forgotten[at] = op.complete if done else NEVER
        if done:
            self._dropped[_blocks(at)] = op.submit
        for other in self._zeroing.values():
            if other.kind == "D" and other.file == op.file:
                self._forgotten[self.span(other)] = NEVER

    def _flushed(self, flush: Op) -> None:
        left = []
        for op in self._pending:
            if op.complete < flush.submit and self._covers(flush, op):
                self._demand(op)
            else:
                left.append(op)
        self._pending = left

    def _demand(self, op: Op) -> None:
        at = self.span(op)
        kept = self._forgotten[at] < op.submit
        np.maximum(self._must[at], op.submit, out=self._must[at], where=kept)

    def check(self, found: Ops) -> list[Violation]:
        """Compare the content of all watched sectors with the requirements.

        :param found: for each sector the op that wrote it, or ZERO, TORN, FOREIGN
        """
        places = np.searchsorted(self._numbers, found)
        places[places == len(self._numbers)] = 0
        known = self._numbers[places] == found
        completed = np.where(known, self._completed[places], _NOTHING - 1)
        completed = np.where(found == stamps.ZERO, self._zeroed, completed)
        wrong = np.flatnonzero(completed <= self._must)
        return [self._violation(int(at), int(found[at])) for at in wrong]

    def check_cache(self, found: Ops, cached: npt.NDArray[np.bool_]) -> list[Violation]:
        """Find discarded data that is in the cache again.

        :param found: as for check()
        :param cached: which of the sectors the cache has
        """
        places = np.searchsorted(self._numbers, found)
        places[places == len(self._numbers)] = 0
        known = self._numbers[places] == found
        wrong = np.flatnonzero(cached & known & (self._completed[places] < self._dropped))
        return [Violation(self._file(int(at)), int(at) - self._base[self._file(int(at))],
                          int(found[at]), None) for at in wrong]

    def discarding(self) -> npt.NDArray[np.bool_]:
        """Return the sectors for which a discard is in progress."""
        return self._forgotten == NEVER

    def must_mask(self) -> npt.NDArray[np.bool_]:
        """Return the sectors with a requirement."""
        return self._must != _NOTHING

    def _file(self, at: int) -> int:
        return max((f for f, base in self._base.items() if base <= at),
                   key=lambda f: self._base[f])

    def _violation(self, at: int, found: int) -> Violation:
        file = self._file(at)
        must = int(self._must[at])
        return Violation(file, at - self._base[file], found,
                         None if must == _NOTHING else must)


def _blocks(at: slice) -> slice:
    """Return the part of a range with whole blocks: a pool keeps the data of others."""
    start = -(-at.start // _BLOCK) * _BLOCK
    return slice(start, max(start, at.stop // _BLOCK * _BLOCK))


def _completions(ops: list[Op]) -> tuple[Ops, npt.NDArray[np.int64]]:
    """Return the numbers of the writes, sorted, and the completion of each."""
    writes = sorted((op for op in ops if op.kind == "W"), key=lambda op: op.number)
    numbers = np.array([op.number for op in writes] or [0], np.uint64)
    completed = np.array([op.complete for op in writes] or [_NOTHING - 1], np.int64)
    return numbers, completed
