# SPDX-License-Identifier: Apache-2.0
"""What tests.xfstests makes of what check prints, of groups, results and time."""

import json
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from tests.box.machine import BoxError, Result
from tests.xfstests import report
from tests.xfstests.clock import Clock
from tests.xfstests.report import FAIL, NOTRUN, OURS, PASS, PEER, Ended, Output, Row, Started
from tests.xfstests.runner import Board, Killable, Part, Side, read_rows

_TESTS = ["generic/001", "generic/004", "generic/009", "generic/034", "xfs/290", "generic/1230"]

_SAID = """\
FSTYP         -- ext4
PLATFORM      -- Linux/x86_64 box 6.1.1 #1
MOUNT_OPTIONS -- -o acl,user_xattr /dev/mapper/scratch /mnt

generic/001          12s
generic/004 3s ...  [not run] O_TMPFILE is not supported
generic/009 2s ... [failed, exit status 1]- output mismatch (see /r/generic/009.out.bad)
    --- tests/generic/009.out
    +generic/001 is here
    ...
generic/034        _check_dmesg: something found in dmesg (see /r/generic/034.dmesg)

xfs/290             4s ...  6s
generic/1230        [failed, exit status 1]
Ran: generic/001 generic/004
Not run: generic/004
Failures: generic/009 generic/034 generic/1230
Failed 3 of 6 tests
"""


def _follow(text: str, size: int) -> list[report.Event]:
    output = Output(_TESTS)
    events = [event for at in range(0, len(text), size)
              for event in output.feed(text[at:at + size])]
    return events + output.end()


def test_output() -> None:
    expected = [
        Started("generic/001"), Ended("generic/001", PASS),
        Started("generic/004"), Ended("generic/004", NOTRUN, "O_TMPFILE is not supported"),
        Started("generic/009"),
        Ended("generic/009", FAIL,
              "2s ... [failed, exit status 1]- output mismatch (see /r/generic/009.out.bad)\n"
              "    --- tests/generic/009.out\n    +generic/001 is here\n    ..."),
        Started("generic/034"),
        Ended("generic/034", FAIL,
              "_check_dmesg: something found in dmesg (see /r/generic/034.dmesg)"),
        Started("xfs/290"), Ended("xfs/290", PASS),
        Started("generic/1230"), Ended("generic/1230", FAIL, "[failed, exit status 1]")]
    for size in (1, 7, len(_SAID)):
        assert _follow(_SAID, size) == expected


def test_output_tells_a_start_at_once() -> None:
    output = Output(["generic/001", "generic/002"])
    assert output.feed("generic/001  ") == [Started("generic/001")]
    assert output.feed("     3s\ngeneric/0") == [Ended("generic/001", PASS)]
    assert output.feed("02 ") == [Started("generic/002")]
    # The machine has crashed: how it ended is not for the output to say.
    assert output.feed("") == []


def test_group_tests() -> None:
    lists = {"generic": "# comment\n001 auto quick rw\n002 auto quickly\n\n",
             "xfs": "001 quick # x\n"}
    assert report.group_tests(lists, "quick") == ["generic/001", "xfs/001"]
    names = [f"generic/{number:03}" for number in range(50)]
    assert sorted(report.spread(names)) == names
    assert report.spread(names) == report.spread(reversed(names)) != names


def _row(test: str, device: str, outcome: str, seconds: float = 1) -> Row:
    return Row("ext4", test, device, outcome, "why" if outcome == FAIL else "", seconds, 9)


def test_report() -> None:
    rows = [
        _row("generic/001", OURS, FAIL), _row("generic/001", PEER, PASS),
        _row("generic/002", OURS, FAIL), _row("generic/002", PEER, FAIL),
        _row("generic/003", OURS, PASS, 30), _row("generic/003", PEER, PASS, 10),
        _row("generic/004", OURS, NOTRUN), _row("generic/004", PEER, NOTRUN),
        # The other device did not come so far.
        _row("generic/005", OURS, FAIL),
        # Run again: the last counts.
        _row("generic/006", OURS, FAIL), _row("generic/006", PEER, PASS),
        _row("generic/006", OURS, PASS)]
    quick = [f"generic/{number:03}" for number in range(1, 9)]
    groups = {("ext4", "quick"): quick, ("ext4", "recoveryloop"): ["generic/001"],
              ("xfs", "quick"): ["xfs/001"]}
    made = report.make(groups, rows, {"kernel": "6.1"})
    assert made["kernel"] == "6.1"
    assert made["partial"] is True
    part = made["ext4"]["quick"]
    assert {key: part[key] for key in ("pass", "fail", "notrun", "only_ours")} == {
        "pass": 2, "fail": 3, "notrun": 1, "only_ours": ["generic/001"]}
    assert part["tests"] == 8
    assert part["compared"] == 5
    assert part["fail_on_both"] == ["generic/002"]
    assert part["linear"] == {"pass": 3, "fail": 1, "notrun": 1, "only_linear": []}
    assert part["slower"] == {"generic/003": {OURS: 30, PEER: 10}}
    assert part["seconds_of_passed"] == {OURS: 31, PEER: 11}
    assert made["xfs"]["quick"]["pass"] == 0
    # A test counts in each of its groups, and is named once.
    assert made["ext4"]["recoveryloop"]["fail"] == 1
    assert report.failures(made) == ["ext4 generic/001"]
    whole = report.make({("ext4", "recoveryloop"): ["generic/001"]}, rows, {})
    assert whole["partial"] is False


def test_clock() -> None:
    host = iter([1.0, 4.0, 4.0, 4.0, 0.1, 0.1, 0.1, 0.1])
    clock = Clock(lambda: next(host))
    assert clock.unit() is None
    clock.measured(OURS, 0.01)
    clock.measured(PEER, 0.02)
    assert clock.unit() == 0.02
    for _ in range(3):
        clock.sample()
    # The machine has become four times as slow; one that becomes faster changes nothing.
    assert clock.unit() == 0.08
    for _ in range(4):
        clock.sample()
    assert clock.unit() == 0.02


def test_board(tmp_path: Path) -> None:
    now = 0.0
    parts = [Part("ext4", "quick", ["generic/001", "generic/002", "generic/003"]),
             Part("xfs", "quick", ["generic/001"])]
    board = Board(parts, 100, [], lambda: {"kernel": "6.1"}, tmp_path, lambda: now)
    assert board.may_start(0, "generic/001")
    now = 49
    assert board.may_start(0, "generic/002")
    now = 51
    # Half of the budget was the first part's; the second device may finish what both have begun.
    assert not board.may_start(0, "generic/003")
    assert board.may_start(0, "generic/002")
    assert board.may_start(1, "generic/001")
    # What still runs is ended some time later.
    assert not board.is_over(0)
    now = 56
    assert board.is_over(0)
    now = 99
    assert board.may_start(1, "generic/001")
    assert not board.is_over(1)
    board.add(_row("generic/001", OURS, PASS))
    assert board.pending(parts[0], OURS) == ["generic/002", "generic/003"]
    assert board.pending(parts[0], PEER) == parts[0].tests
    assert board.pending(parts[1], OURS) == ["generic/001"]
    made = json.loads((tmp_path / "report.json").read_text())
    assert made["partial"] is True
    assert made["ext4"]["quick"]["pass"] == 1
    assert read_rows(tmp_path) == [_row("generic/001", OURS, PASS)]
    board.stop.set()
    assert not board.may_start(1, "generic/001")


class _Script(Killable):
    """A machine that prints what the next entry of a script says, and then ends as it says."""

    script: Iterator[tuple[str, str]]
    asked: list[list[str]]
    state: Path

    def run(self, command: Any, **options: Any) -> Result:
        said, end = next(self.script)
        self.asked.append(list(command[command.index("ext4") + 2:]))
        self.dead = threading.Event()
        options["stdout"].write(said.encode())
        if end == "crashes":
            self.state.mkdir()
            (self.state / "console").write_text("BUG: at last")
            raise BoxError("box: the kernel has crashed", self.state / "console")
        if end == "hangs":
            assert self.dead.wait(60), "nobody has ended it"
            raise BoxError("box: it ended before the command did")
        return Result(1, b"", 1)

    def kill(self) -> None:
        self.dead.set()


def _run(script: list[tuple[str, str]], board: Board, part: Part, units: float) -> Side:
    _Script.script, _Script.asked, _Script.state = iter(script), [], board.folder / "state"
    side = Side(OURS, Path("/x"), [part], board, Clock(lambda: 1.0), units, machine=_Script)
    side.run()
    return side


def test_a_machine_that_hangs_or_crashes(tmp_path: Path) -> None:
    part = Part("ext4", "quick", [f"generic/00{number}" for number in range(1, 6)])
    board = Board([part], 1000, [], dict, tmp_path)
    side = _run([
        ("unit 0.001\nFSTYP -- ext4\ngeneric/001   1s\ngeneric/002   ", "hangs"),
        ("unit 0.001\ngeneric/003  ", "crashes"),
        ("unit 0.001\ngeneric/004   2s\ngeneric/005  [failed, exit status 1]\nRan: x\n", "ends"),
    ], board, part, 300)
    assert side.errors == []
    rows = read_rows(tmp_path)
    assert [(row.test[-1], row.outcome) for row in rows] == [
        ("1", PASS), ("2", FAIL), ("3", FAIL), ("4", PASS), ("5", FAIL)]
    assert "not finished after 0 s (300 units)" in rows[1].reason
    assert "the kernel has crashed" in rows[2].reason
    console = tmp_path / OURS / "ext4-generic-003.console"
    assert str(console) in rows[2].reason
    assert console.read_text() == "BUG: at last"
    assert not _Script.state.exists()
    assert _Script.asked == [list(part.tests), list(part.tests[2:]), list(part.tests[3:])]


def test_a_machine_that_runs_no_test(tmp_path: Path) -> None:
    part = Part("ext4", "quick", ["generic/001"])
    board = Board([part], 1000, [], dict, tmp_path)
    side = _run([("mkfs: no such disk\n", "ends")] * 3, board, part, 300)
    assert len(_Script.asked) == 2
    assert "devices or the file system could not be made" in side.errors[0]
    side = _run([("unit 1\ncheck: no group list\n", "ends")] * 3, board, part, 300)
    assert "none of 1 tests starts: check has ended" in side.errors[0]


def test_the_end_of_the_budget(tmp_path: Path) -> None:
    part = Part("ext4", "quick", ["generic/001", "generic/002"])
    board = Board([part], 0, [], dict, tmp_path)
    side = _run([("unit 1\ngeneric/001  ", "hangs")], board, part, 300)
    assert side.errors == []
    assert read_rows(tmp_path) == []
    # A test that runs when the time is over has neither passed nor failed.
    board = Board([part], 1, [], dict, tmp_path)
    side = _run([("unit 1\ngeneric/001  ", "hangs")], board, part, 300)
    assert side.errors == []
    assert read_rows(tmp_path) == []
