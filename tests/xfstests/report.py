# SPDX-License-Identifier: Apache-2.0
"""What check prints, which tests a group has, and the report: text in, data out."""

import hashlib
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

#: The devices under the file systems, in the order of the report: ours, and the peer.
OURS, PEER = "vcache", "linear"
DEVICES = (OURS, PEER)

PASS, FAIL, NOTRUN = "pass", "fail", "notrun"

#: A test counts as slower on our device if it takes this many times the peer's time
#: and at least this many seconds longer.
_SLOWER_FACTOR, _SLOWER_SECONDS = 1.5, 5.0

# check ends the line of a test that passed, and of no other, with its seconds.
_PASSED = re.compile(r"\s\d+s$")
_TEST = re.compile(r"^([a-z0-9]+/\d+)(?=\s)")

# The lines of check's summary, which follow the last test.
_SUMMARY = ("Ran: ", "Not run: ", "Failures: ", "Failed ", "Passed all ", "Interrupted!")

# Of a failure the report keeps this many lines.
_REASON_LINES = 14


@dataclass(frozen=True)
class Started:
    """check began with a test."""

    test: str


@dataclass(frozen=True)
class Ended:
    """A test is over: PASS, FAIL or NOTRUN, and why it did not pass."""

    test: str
    outcome: str
    reason: str = ""


Event = Started | Ended


class Output:
    """Follows what check prints, as it comes.

    :param tests: the tests that check was asked to run
    """

    def __init__(self, tests: Iterable[str]) -> None:
        self._tests = set(tests)
        self._rest = ""
        self._current = ""
        self._lines: list[str] = []

    def feed(self, text: str) -> list[Event]:
        """Take the next piece of output and return what it tells."""
        events: list[Event] = []
        *lines, self._rest = (self._rest + text).split("\n")
        for line in lines:
            events += self._start(line)
            events += self._line(line)
        # check prints the name when the test starts, and ends the line with the result.
        return events + self._start(self._rest)

    def end(self) -> list[Event]:
        """Return what is known when check has ended in order."""
        return self._fail()

    def _start(self, line: str) -> list[Event]:
        match = _TEST.match(line)
        if not match or match[1] not in self._tests or match[1] == self._current:
            return []
        events = self._fail()
        self._current = match[1]
        return [*events, Started(self._current)]

    def _line(self, line: str) -> list[Event]:
        """Take a complete line."""
        if not self._current:
            return []
        test, text = self._current, line.removeprefix(self._current).strip()
        if line.startswith(_SUMMARY):
            return self._fail()
        if not line.startswith(test):
            self._lines.append(line.rstrip())
            return []
        if "[not run]" in text or "[expunged]" in text:
            return self._end(NOTRUN, text.rpartition("[not run]")[2].strip())
        if _PASSED.search(line):
            return self._end(PASS)
        # More lines about the failure follow; the next test, or the summary, ends them.
        self._lines.append(text)
        return []

    def _fail(self) -> list[Event]:
        """End the test, if there is one whose end check has not told."""
        if not self._current:
            return []
        lines = [line for line in self._lines if line.strip()][:_REASON_LINES]
        return self._end(FAIL, "\n".join(lines))

    def _end(self, outcome: str, reason: str = "") -> list[Event]:
        test, self._current, self._lines = self._current, "", []
        self._tests.discard(test)
        return [Ended(test, outcome, reason)]


def group_tests(lists: Mapping[str, str], group: str) -> list[str]:
    """Return the tests of a group.

    :param lists: content of group.list of each folder of tests
    """
    found = []
    for folder, text in lists.items():
        for line in text.splitlines():
            name, *groups = line.partition("#")[0].split() or [""]
            if group in groups:
                found.append(f"{folder}/{name}")
    return sorted(found)


def spread(tests: Iterable[str]) -> list[str]:
    """Return the tests in an order of which any beginning is a sample of the whole.

    It is the same in every run, so that two interrupted runs have tests in common.
    """
    return sorted(tests, key=lambda test: hashlib.sha256(test.encode()).digest())


@dataclass(frozen=True)
class Row:
    """What became of a test on a device.

    :param fs: the file system
    :param reason: why it did not pass
    :param seconds: how long it took
    :param limit: the time limit in seconds when it ended
    """

    fs: str
    test: str
    device: str
    outcome: str
    reason: str
    seconds: float
    limit: float


def _counts(rows: Iterable[Row]) -> dict[str, int]:
    outcomes = [row.outcome for row in rows]
    return {outcome: outcomes.count(outcome) for outcome in (PASS, FAIL, NOTRUN)}


def _group(tests: Sequence[str], rows: Mapping[tuple[str, str], Row]) -> dict[str, Any]:
    """Return a group's part of the report.

    :param rows: by test and device
    """
    ran = {device: {test: rows[test, device] for test in tests if (test, device) in rows}
           for device in DEVICES}
    ours, peer = ran[OURS], ran[PEER]
    both = [test for test in tests if test in ours and test in peer]

    def chosen(our_outcome: str, peer_outcome: str) -> list[str]:
        return [test for test in both if ours[test].outcome == our_outcome
                and peer[test].outcome == peer_outcome]

    timed = chosen(PASS, PASS)
    slower = [test for test in timed
              if ours[test].seconds > peer[test].seconds * _SLOWER_FACTOR
              and ours[test].seconds - peer[test].seconds > _SLOWER_SECONDS]
    return {
        **_counts(ours.values()),
        "only_ours": chosen(FAIL, PASS),
        "tests": len(tests),
        "compared": len(both),
        "linear": {**_counts(peer.values()), "only_linear": chosen(PASS, FAIL)},
        "fail_on_both": chosen(FAIL, FAIL),
        "seconds_of_passed": {OURS: round(sum(ours[test].seconds for test in timed)),
                              PEER: round(sum(peer[test].seconds for test in timed))},
        "slower": {test: {OURS: round(ours[test].seconds), PEER: round(peer[test].seconds)}
                   for test in slower},
        "reasons": {test: ours[test].reason for test in ours if ours[test].outcome == FAIL},
    }


def make(groups: Mapping[tuple[str, str], Sequence[str]], rows: Iterable[Row],
         about: Mapping[str, Any]) -> dict[str, Any]:
    """Return the report.

    :param groups: the tests of each file system and group
    :param rows: what has been run; of a test that ran twice the last counts
    :param about: further keys: what ran, how long, within which limits
    """
    latest: dict[str, dict[tuple[str, str], Row]] = {}
    for row in rows:
        latest.setdefault(row.fs, {})[row.test, row.device] = row
    report: dict[str, Any] = {}
    partial = False
    for (fs, group), tests in groups.items():
        part = _group(sorted(tests), latest.get(fs, {}))
        partial = partial or part["compared"] < part["tests"]
        report.setdefault(fs, {})[group] = part
    return {"partial": partial, **about, **report}


def failures(report: Mapping[str, Any]) -> list[str]:
    """Return the tests that fail on our device only, with their file system."""
    return sorted({f"{fs} {test}" for fs, part in report.items() if isinstance(part, dict)
                   for group in part.values() if isinstance(group, dict)
                   for test in group.get("only_ours", ())})
