# SPDX-License-Identifier: Apache-2.0
"""Run lists of tests on both devices, each in its own User Mode Linux, within a time budget."""

import contextlib
import dataclasses
import io
import json
import os
import shutil
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, BinaryIO

from tests.box.machine import REPO, BoxError
from tests.box.uml import Uml
from tests.xfstests import report
from tests.xfstests.clock import Clock
from tests.xfstests.report import DEVICES, FAIL, Ended, Event, Output, Row

BUILD = REPO / "build" / "xfstests"

# For the disks of tests.xfstests.inside, full, and the kernel itself; taken as it is needed.
_MEMORY = "5G"

# Until a machine has measured its unit it has this long, boot not counted.
_SETUP_SECONDS = 900

_POLL_SECONDS = 0.5

# What runs when the time of a part is over may go on for this fraction of that time.
_GRACE = 0.1

# So often a machine may end before the first of its tests has started.
_FRUITLESS = 2


class RunnerError(Exception):
    """The tests cannot be run."""


@dataclass(frozen=True)
class Part:
    """A group on a file system; its tests in the order in which they run."""

    fs: str
    group: str
    tests: Sequence[str]


class Board:
    """What both devices share: which tests may start, and the results.

    :param parts: what is to be run, in that order
    :param seconds: the budget for all
    :param rows: results of an earlier run that this one continues
    :param about: makes further keys of the report
    :param folder: for the report and the logs
    """

    def __init__(self, parts: Sequence[Part], seconds: float, rows: Sequence[Row],
                 about: Callable[[], Mapping[str, Any]], folder: Path = BUILD,
                 now: Callable[[], float] = time.monotonic) -> None:
        self._parts = parts
        self._rows = list(rows)
        self._about = about
        self.folder = folder
        self._now = now
        self._end = now() + seconds
        self._ends: dict[int, tuple[float, float]] = {}
        self._started: set[tuple[str, str]] = set()
        self._lock = threading.Lock()
        self.stop = threading.Event()

    def pending(self, part: Part, device: str) -> list[str]:
        """Return the tests of a part that a device has yet to run."""
        with self._lock:
            done = {row.test for row in self._rows if (row.fs, row.device) == (part.fs, device)}
        return [test for test in part.tests if test not in done]

    def _part_ends(self, number: int) -> tuple[float, float]:
        """Return when the last test of a part may start, and when none may run any more.

        Set as the first device comes to it: what is left of the budget is shared evenly by
        the parts that are left.
        """
        if number not in self._ends:
            now = self._now()
            share = max(0.0, self._end - now) / (len(self._parts) - number)
            self._ends[number] = (now + share, now + share * (1 + _GRACE))
        return self._ends[number]

    def may_start(self, number: int, test: str) -> bool:
        """Tell whether a test may start now; what one device has started the other may, too."""
        key = (self._parts[number].fs, test)
        with self._lock:
            last_start, _ = self._part_ends(number)
            if self.stop.is_set() or (self._now() >= last_start and key not in self._started):
                return False
            self._started.add(key)
            return True

    def is_over(self, number: int) -> bool:
        """Tell whether no test of a part may run any more."""
        with self._lock:
            return self.stop.is_set() or self._now() >= self._part_ends(number)[1]

    def add(self, row: Row) -> None:
        """Record a result, and write the report anew."""
        with self._lock:
            self._rows.append(row)
            with open(self.folder / "results.jsonl", "a") as file:
                file.write(json.dumps(dataclasses.asdict(row)) + "\n")
            self._write()

    def write(self) -> dict[str, Any]:
        """Write the report and return it."""
        with self._lock:
            return self._write()

    def _write(self) -> dict[str, Any]:
        groups = {(part.fs, part.group): part.tests for part in self._parts}
        made = report.make(groups, self._rows, self._about())
        new = self.folder / "report.json.new"
        new.write_text(json.dumps(made, indent=1) + "\n")
        new.replace(self.folder / "report.json")
        return made


@dataclass
class Killable(Uml):
    """User Mode Linux that can be ended from outside."""

    process: subprocess.Popen[bytes] | None = field(default=None, init=False)

    def _start(self, release: str, state: Path, log: BinaryIO, stdout: int,
               stderr: int) -> subprocess.Popen[bytes]:
        self.process = super()._start(release, state, log, stdout, stderr)
        return self.process

    def kill(self) -> None:
        """End it now."""
        if self.process is not None:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(self.process.pid, signal.SIGKILL)


class _Sink(io.BytesIO):
    """Passes on each piece of what a machine prints."""

    def __init__(self, take: Callable[[bytes], None]) -> None:
        super().__init__()
        self._take = take

    def write(self, data: Any) -> int:
        """Pass it on."""
        self._take(bytes(data))
        return len(data)


class Side(threading.Thread):
    """Runs all parts on one device, and boots a new machine after one that hangs or crashes.

    :param device: of report.DEVICES
    :param checkout: the built xfstests
    :param units: time limit of a test
    :param machine: makes a machine
    """

    def __init__(self, device: str, checkout: Path, parts: Sequence[Part], board: Board,
                 clock: Clock, units: float,
                 machine: Callable[..., Killable] = Killable) -> None:
        super().__init__(name=device, daemon=True)
        self.device = device
        self.errors: list[str] = []
        self._checkout = checkout
        self._parts = parts
        self._board = board
        self._clock = clock
        self._units = units
        self._machine = machine

    def run(self) -> None:
        """Run the parts; why some could not be run is in `errors`."""
        for number, part in enumerate(self._parts):
            try:
                self._part(number, part)
            except (RunnerError, OSError) as error:
                self.errors.append(f"{self.device}: {part.fs} {part.group}: {error}")

    def _part(self, number: int, part: Part) -> None:
        fruitless = 0
        while pending := self._board.pending(part, self.device):
            machine = self._machine(memory=_MEMORY, cwd=self._checkout, rw=[self._board.folder],
                                    allow_splats=True, env={"PYTHONPATH": str(REPO)})
            boot = _Boot(self.device, machine, number, part.fs, pending, self._board,
                         self._clock, self._units)
            boot.run()
            if boot.closed:
                return
            fruitless = 0 if boot.progress else fruitless + 1
            if fruitless == _FRUITLESS:
                raise RunnerError(f"none of {len(pending)} tests starts: {boot.why}; "
                                  f"see {boot.log}")


class _Boot:
    """One machine: runs check, follows what it prints and ends the machine when it must.

    :ivar closed: no further test of this part may start
    :ivar progress: a test has a result
    :ivar why: why the machine has ended
    """

    def __init__(self, device: str, machine: Killable, number: int, fs: str, tests: Sequence[str],
                 board: Board, clock: Clock, units: float) -> None:
        self.progress = False
        self.closed = False
        self.why = ""
        self.log = board.folder / device / f"{fs}.log"
        self._device = device
        self._number = number
        self._fs = fs
        self._tests = tests
        self._board = board
        self._clock = clock
        self._units = units
        self._output = Output(tests)
        self._head = b""
        self._lock = threading.Lock()
        self._since = time.monotonic()
        self._measured = False
        self._test = ""
        self._killed = ""
        self._machine = machine
        results = board.folder / device / fs
        results.mkdir(parents=True, exist_ok=True)
        self._command = [sys.executable, "-m", "tests.xfstests.inside", device, fs, str(results),
                         *tests]

    def run(self) -> None:
        """Run it to its end; no test is left without a result but for want of time."""
        with open(self.log, "ab", buffering=0) as log:
            def take(data: bytes) -> None:
                log.write(data)
                self._take(data)

            failures: list[BoxError] = []

            def work() -> None:
                try:
                    # Its own limit is the last resort, ours come first.
                    self._machine.run(self._command, timeout=1e6, stdout=_Sink(take), stderr=log)
                except BoxError as error:
                    failures.append(error)

            thread = threading.Thread(target=work, daemon=True)
            thread.start()
            while thread.is_alive():
                thread.join(_POLL_SECONDS)
                self._look()
        with self._lock:
            self._finish(failures[0] if failures else None)

    def _take(self, data: bytes) -> None:
        """Take a piece of what the machine prints."""
        with self._lock:
            if not self._measured:
                self._head += data
                _, _, data = self._head.partition(b"unit ")
                seconds, newline, data = data.partition(b"\n")
                if not newline:
                    return
                self._clock.measured(self._device, float(seconds))
                self._measured = True
                self._since = time.monotonic()
            for event in self._output.feed(data.decode(errors="replace")):
                self._event(event)

    def _event(self, event: Event) -> None:
        if self._killed:
            return
        if isinstance(event, Ended):
            self._record(event.outcome, event.reason)
        elif self._board.may_start(self._number, event.test):
            self._test = event.test
            self._since = time.monotonic()
        else:
            self.closed = True
            self._kill("the part is over")

    def _limit(self) -> float:
        unit = self._clock.unit()
        return _SETUP_SECONDS if unit is None or not self._measured else self._units * unit

    def _record(self, outcome: str, reason: str) -> None:
        seconds = time.monotonic() - self._since
        row = Row(self._fs, self._test, self._device, outcome, reason, round(seconds, 1),
                  round(self._limit(), 1))
        self._test = ""
        self._since = time.monotonic()
        self.progress = True
        self._board.add(row)
        print(f"{self._fs:5} {row.test:12} {self._device:7} {outcome:7} {seconds:6.1f} s"
              f"{'  ' + reason.splitlines()[0] if reason else ''}", flush=True)

    def _look(self) -> None:
        """End the machine if its test has passed its time limit."""
        with self._lock:
            if self._board.is_over(self._number):
                # It is not the test's fault: it has no result.
                self.closed = True
                self._kill("the time is over")
            elif time.monotonic() - self._since > self._limit():
                self._kill(f"not finished after {self._limit():.0f} s ({self._units:g} units)")

    def _kill(self, why: str) -> None:
        self._killed = self._killed or why
        self._machine.kill()

    def _finish(self, error: BoxError | None) -> None:
        if error is None and not self._killed:
            for event in self._output.end():
                self._event(event)
            self.why = ("check has ended" if self._measured
                        else "the devices or the file system could not be made")
            return
        self.why = self._killed or str(error)
        log = error.log if error else None
        failed = bool(self._test) and not self.closed
        where = ""
        if log is not None and log.exists():
            if failed:
                kept = self.log.with_name(f"{self._fs}-{self._test.replace('/', '-')}.console")
                shutil.copy(log, kept)
                where = f"\nconsole: {kept}"
            shutil.rmtree(log.parent, ignore_errors=True)
        if failed:
            self._record(FAIL, self.why.partition("\nconsole log:")[0] + where)


def read_rows(folder: Path = BUILD) -> list[Row]:
    """Return the results that an earlier run has left."""
    try:
        lines = (folder / "results.jsonl").read_text().splitlines()
    except FileNotFoundError:
        return []
    return [Row(**json.loads(line)) for line in lines]


def run(checkout: Path, parts: Sequence[Part], board: Board, units: float) -> list[str]:
    """Run the parts on both devices and return what went wrong with the machines."""
    with Clock() as clock:
        sides = [Side(device, checkout, parts, board, clock, units) for device in DEVICES]
        for side in sides:
            side.start()
        for side in sides:
            while side.is_alive():
                side.join(_POLL_SECONDS)
    return [error for side in sides for error in side.errors]


__all__ = ["BUILD", "Board", "Part", "RunnerError", "read_rows", "run"]
