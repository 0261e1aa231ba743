# SPDX-License-Identifier: Apache-2.0
"""Read the trace of a recording: one total order of all events.

The kernel's trace buffer, with its "counter" clock, orders the requests to the
origin (block_bio_queue, block_bio_complete) and the events of the load
(trace_marker, see load/io.c). A completion is traced after the request is durable or in
the cache, and before the layer above receives it. The load writes an event before it
submits a request and after it has the result. So "A completed before B was
submitted" in the trace is true in the machine.
"""

import re
from collections import defaultdict, deque
from collections.abc import Iterable
from dataclasses import dataclass, field

from tests.powercut.logwrites import Flag, Log

#: Time of an event that has not happened.
NEVER = 1 << 62

_LINE = re.compile(r"\s(\d+): (block_bio_queue|block_bio_complete|tracing_mark_write): (.*)$")
_BIO = re.compile(r"\d+,\d+ (\S+) (\d+) \+ (\d+) ")


class JournalError(Exception):
    """The trace is inconsistent, or does not match the log."""


def name(op: int) -> str:
    """Return the number of an operation as text: worker.count."""
    return f"{op >> 32}.{op & 0xFFFFFFFF}"


@dataclass(slots=True)
class Request:
    """A write, flush or discard that reached the origin.

    :param submit: time of submission
    :param complete: time of the origin's answer
    :param data: sector of the log where its data begins; 0: zeroes
    """

    sector: int
    count: int
    flags: Flag
    submit: int
    complete: int = NEVER
    data: int = 0


@dataclass(slots=True)
class Op:
    """An operation of the load.

    :param kind: W write, Z zeroes, D discard, F flush, N new file, U unlink,
        T removal of the tag of the file
    :param detail: for a write, D: durable by itself; for a flush, how it was made
    :param complete: NEVER also if it failed
    """

    number: int
    kind: str
    file: int
    sector: int
    count: int
    detail: str
    submit: int
    complete: int = NEVER
    error: int = 0

    @property
    def worker(self) -> int:
        """Number of the worker."""
        return self.number >> 32

    def __str__(self) -> str:
        return name(self.number)


@dataclass
class Journal:
    """All events of a recording, in order."""

    requests: list[Request] = field(default_factory=list)
    ops: list[Op] = field(default_factory=list)
    marks: dict[str, int] = field(default_factory=dict)
    misreads: list[str] = field(default_factory=list)


def _flags(rwbs: str) -> Flag | None:
    """Convert the block layer's letters to flags; None: a read."""
    # A leading F is a flush before the data, an F after the W is FUA.
    body = rwbs
    flags = Flag(0)
    if len(body) > 1 and body[0] == "F" and body[1] in "WDRN":
        flags |= Flag.FLUSH
        body = body[1:]
    if body[0] == "D":
        return flags | Flag.DISCARD
    if body[0] != "W":
        return None
    return flags | Flag.FUA if body[1:2] == "F" else flags


class _Reader:
    """Collects the events of one trace."""

    def __init__(self) -> None:
        self.journal = Journal()
        self._ops: dict[int, Op] = {}
        self._crashed = False
        self._open: dict[tuple[Flag, int, int], deque[Request]] = defaultdict(deque)

    def line(self, line: str) -> None:
        match = _LINE.search(line)
        if not match:
            return
        time, what, text = int(match[1]), match[2], match[3]
        if what == "tracing_mark_write":
            self._event(time, text)
        else:
            self._bio(time, what == "block_bio_queue", text)

    def _bio(self, time: int, queued: bool, text: str) -> None:
        match = _BIO.match(text)
        if not match:
            raise JournalError(f"cannot read the request {text!r}")
        flags, sector, count = _flags(match[1]), int(match[2]), int(match[3])
        if flags is None:
            return
        if flags & Flag.FLUSH and count:
            raise JournalError(f"a flush with data at the origin: {text!r}")
        if flags & Flag.FLUSH:
            flags &= ~Flag.FUA
        key = (flags, sector, count)
        if queued:
            request = Request(sector, count, flags, time)
            self.journal.requests.append(request)
            self._open[key].append(request)
        elif self._open[key]:
            # Flushes are indistinguishable. Assume that the latest one has completed, which
            # guarantees most, so that a correct target is never blamed.
            pending = self._open[key]
            request = pending.pop() if flags & Flag.FLUSH else pending.popleft()
            request.complete = time
        else:
            raise JournalError(f"completed but never queued: {text!r}")

    def _event(self, time: int, text: str) -> None:
        words = text.split()
        if not words or words[0] != "pc":
            return
        kind = words[1]
        if kind == "mark":
            self.journal.marks[words[2]] = time
        elif kind == "X":
            self.journal.misreads.append(
                f"file {words[3]} sector {words[4]}: read op {words[5]}, wrote op {words[6]}")
        elif kind in ("crash", "alive"):
            # Answers of a target that was cut off from its device are ignored.
            self._crashed = kind == "crash"
            self.journal.marks[kind] = time
        elif kind == "C":
            op = self._ops[int(words[2])]
            op.error = int(words[3])
            if not op.error and not self._crashed:
                op.complete = time
        else:
            op = _op(time, kind, [*words[2:]])
            self._ops[op.number] = op
            self.journal.ops.append(op)


def _op(time: int, kind: str, words: list[str]) -> Op:
    number, file = int(words[0]), int(words[1])
    if kind in "WZD":
        detail = words[4] if kind == "W" else ""
        return Op(number, kind, file, int(words[2]), int(words[3]), detail, time)
    if kind == "F":
        return Op(number, kind, file, 0, 0, words[2], time)
    if kind in "NUT":
        return Op(number, kind, file, 0, 0, "", time)
    raise JournalError(f"an event of unknown kind {kind!r}")


def read(lines: Iterable[str]) -> Journal:
    """Read a trace, as text, oldest event first.

    :raises JournalError: if events are missing
    """
    reader = _Reader()
    for line in lines:
        reader.line(line)
    return reader.journal


def join(journal: Journal, log: Log) -> None:
    """Join the requests of a trace with their data, from the log.

    The log has the data, the trace has the true order: dm-log-writes holds back non-FUA writes
    until a flush. Identical requests were logged in the order of their completion.

    :raises JournalError: if a request is only in one of them
    """
    logged: dict[tuple[Flag, int, int], deque[int]] = defaultdict(deque)
    for entry in log.entries:
        flags = entry.flags & ~Flag.METADATA
        if flags & Flag.FLUSH:
            flags &= ~Flag.FUA
        logged[flags, entry.sector if entry.count else 0, entry.count].append(entry.data)
    for request in sorted(journal.requests, key=lambda r: r.complete):
        if request.complete == NEVER:
            raise JournalError(f"sector {request.sector} + {request.count}: never completed")
        key = (request.flags, request.sector if request.count else 0, request.count)
        if not logged[key]:
            raise JournalError(f"sector {request.sector} + {request.count} "
                               f"({request.flags!r}): traced but not logged")
        request.data = logged[key].popleft()
    left = sum(len(queue) for queue in logged.values())
    if left:
        raise JournalError(f"{left} requests are in the log but not in the trace")
