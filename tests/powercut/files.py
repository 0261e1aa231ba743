# SPDX-License-Identifier: Apache-2.0
"""The contract seen through the file system: the files of a mounted crash image."""

import struct
from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from tests.powercut import stamps
from tests.powercut.contract import Attribution
from tests.powercut.journal import NEVER, Journal, Op
from tests.powercut.ledger import Ledger
from tests.powercut.scenario import Scenario
from tests.powercut.stamps import Ops

_HEADER = struct.Struct("<IIQ")


@dataclass(frozen=True)
class Dumped:
    """A file after the recovery of its file system; see load/dump.c."""

    file: int
    content: Ops


def read(dump: bytes) -> Iterator[Dumped]:
    """Read the output of `load dump`."""
    at = 0
    while at < len(dump):
        file, sectors, _ = _HEADER.unpack_from(dump, at)
        at += _HEADER.size
        yield Dumped(file, np.frombuffer(dump, "<u8", sectors, at))
        at += sectors * 8


class FileOracle:
    """The required contents of the files after a cut; called for one cut after another."""

    def __init__(self, scenario: Scenario, journal: Journal) -> None:
        rule = Attribution(scenario, journal.ops)
        self._ops = journal.ops
        self._images = set(rule.images)
        self._sizes = dict(rule.images)
        for op in journal.ops:
            if op.kind in "WZN":
                self._sizes[op.file] = max(self._sizes.get(op.file, 1), op.sector + op.count)
        self._ledger = Ledger(self._sizes, journal.ops, rule.covers_file,
                              alive=journal.marks.get("alive", NEVER))
        self._created = {op.file: op for op in journal.ops if op.kind == "N"}
        self._deleted = {op.file: op for op in journal.ops if op.kind == "U"}

    def _must_exist(self, time: int) -> set[int]:
        """Return the files that their own flush has made known, and that were not deleted."""
        gone = {file for file, op in self._deleted.items() if op.submit <= time}
        return self._images | {op.file for op in self._ops if self._makes_known(op, time)} - gone

    def _makes_known(self, op: Op, time: int) -> bool:
        new = self._created.get(op.file)
        if new is None or op.complete > time or op.submit < new.complete:
            return False
        return op.kind == "F" or op.detail == "D"

    def check(self, time: int, dump: bytes) -> list[str]:
        """Compare a dump with the contract after a cut.

        :param time: time of the cut; not before that of the last call
        """
        self._ledger.advance(time)
        found = np.zeros(self._ledger.size, np.uint64)
        seen: set[int] = set()
        wrong: list[str] = []
        for dumped in read(dump):
            seen.add(dumped.file)
            if dumped.file not in self._sizes:
                wrong.append(f"file {dumped.file} was never made")
                continue
            span = self._ledger.whole(dumped.file)
            size = span.stop - span.start
            found[span][:len(dumped.content)] = dumped.content[:size]
            if (dumped.content[size:] != stamps.ZERO).any():
                wrong.append(f"file {dumped.file}: content behind all that was written")
        wrong += [f"file {file} is missing" for file in sorted(self._must_exist(time) - seen)]
        # A missing file has no further violations. A file that is being deleted may have lost its
        # end already.
        ignored = (set(self._sizes) - seen) | {
            file for file, op in self._deleted.items() if op.submit <= time}
        return wrong + self._wrong_content(found, ignored)

    def _wrong_content(self, found: Ops, ignored: set[int]) -> list[str]:
        return [str(v) for v in self._ledger.check(found)
                if v.file not in ignored or v.found != stamps.ZERO]
