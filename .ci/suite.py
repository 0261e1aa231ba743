# SPDX-License-Identifier: Apache-2.0
"""Run the test suites and add up what they ran: suite.py [SUITE ...].

A suite is a folder under tests/; one that has no folder is left out. Each
leaves a JUnit file in build/test/, from which the last line is counted. A
suite that fails without having said so in that file counts as one failure,
and so does one that ran no test.

Two suites run at a time, those that take long before the others. What one of
the two prints is shown as it comes, the other's when a suite of it has ended.
"""

import argparse
import concurrent.futures
import contextlib
import dataclasses
import pathlib
import subprocess
import sys
import threading
import time
import xml.etree.ElementTree as ET

ROOT = pathlib.Path(__file__).resolve().parents[1]
RESULTS = ROOT / "build" / "test"


@dataclasses.dataclass(frozen=True)
class Suite:
    """One folder of tests and where its tests run.

    :param folder: below tests/
    :param boxed: pytest itself runs inside the box, as root under our kernel,
        which `python -m tests.FOLDER PYTEST-ARGUMENT...` boots; otherwise it
        runs here, and boots boxes as its tests need them
    :param minutes: time limit, for one that hangs: three times what it takes beside
        another on two cores, where that is less than all may take
    """

    folder: str
    boxed: bool
    minutes: int


# In the order in which they start: the long ones first, or one of them runs
# alone at the end.
SUITES = (
    Suite("host", boxed=True, minutes=55),
    Suite("kernel", boxed=True, minutes=55),
    Suite("powercut", boxed=False, minutes=55),
    Suite("firmware", boxed=False, minutes=30),
    Suite("packaging", boxed=False, minutes=30),
    Suite("nvmetcp", boxed=False, minutes=25),
    Suite("unit", boxed=False, minutes=25),
    Suite("core", boxed=False, minutes=35),
    Suite("tools", boxed=False, minutes=15),
)


@dataclasses.dataclass
class Counts:
    """What became of the tests of one or more suites."""

    passed: int = 0
    failed: int = 0
    skipped: int = 0

    def add(self, other: "Counts") -> None:
        """Add the counts of another suite."""
        self.passed += other.passed
        self.failed += other.failed
        self.skipped += other.skipped

    def __str__(self) -> str:
        return f"{self.passed} passed, {self.failed} failed, {self.skipped} skipped"


def read_junit(path: pathlib.Path) -> Counts:
    """Count the test cases of a JUnit file; none if there is no such file."""
    counts = Counts()
    try:
        cases = ET.parse(path).getroot().iter("testcase")  # noqa: S314 - our own file
    except (FileNotFoundError, ET.ParseError):
        return counts
    for case in cases:
        outcomes = {child.tag for child in case}
        if outcomes & {"failure", "error"}:
            counts.failed += 1
        elif "skipped" in outcomes:
            counts.skipped += 1
        else:
            counts.passed += 1
    return counts


def command(suite: Suite, junit: pathlib.Path, *options: str) -> list[str]:
    """Return the command line of a suite."""
    module = f"tests.{suite.folder}" if suite.boxed else "pytest"
    return [
        sys.executable, "-m", module, "-p", "no:cacheprovider", f"--junitxml={junit}",
        *options, f"tests/{suite.folder}"]


def run(suite: Suite, *options: str, quiet: bool = False) -> Counts:
    """Run one suite and return its counts.

    :param options: for pytest
    :param quiet: keep what it prints until it has ended
    """
    junit = RESULTS / f"{suite.folder}.xml"
    log = RESULTS / f"{suite.folder}.log"
    junit.unlink(missing_ok=True)
    print(f"==== tests/{suite.folder}", flush=True)
    start = time.monotonic()
    try:
        with open(log, "w") if quiet else contextlib.nullcontext() as output:
            # The last resort: a box has a shorter limit of its own.
            status = subprocess.run(
                command(suite, junit, *options), cwd=ROOT, stdin=subprocess.DEVNULL, check=False,
                stdout=output, stderr=subprocess.STDOUT if quiet else None,
                timeout=suite.minutes * 60).returncode
    except subprocess.TimeoutExpired:
        print(f"tests/{suite.folder}: not finished after {suite.minutes} minutes", flush=True)
        status = 1
    if quiet:
        print(log.read_text(errors="replace"), end="", flush=True)
    counts = read_junit(junit)
    if status and not counts.failed:
        print(f"tests/{suite.folder}: exit status {status}", flush=True)
        counts.failed += 1
    elif not counts.passed and not counts.failed:
        print(f"tests/{suite.folder}: no test ran", flush=True)
        counts.failed += 1
    print(f"==== tests/{suite.folder}: {counts} in {time.monotonic() - start:.0f} s", flush=True)
    return counts


# A run has an hour; a second try has to be over before that.
RETRY_UNTIL = time.monotonic() + 52 * 60


def attempt(suite: Suite, *options: str, quiet: bool = False) -> Counts:
    """Run one suite; once more, and say so, if that failed.

    Boxes emulate processors in real time: on a machine that is busy with
    other things a time limit may pass that has nothing to do with the code.
    """
    start = time.monotonic()
    counts = run(suite, *options, quiet=quiet)
    end = time.monotonic()
    if counts.failed and end + (end - start) < RETRY_UNTIL:
        print(f"==== tests/{suite.folder}: failed, a second and last try", flush=True)
        counts = run(suite, *options, quiet=quiet)
    return counts


def run_all(suites: list[Suite], *options: str) -> Counts:
    """Run two suites at a time and add up what all ran."""
    screen = threading.Lock()

    def work(suite: Suite) -> Counts:
        shown = screen.acquire(blocking=False)
        try:
            return attempt(suite, *options, quiet=not shown)
        finally:
            if shown:
                screen.release()

    total = Counts()
    with concurrent.futures.ThreadPoolExecutor(2) as threads:
        for counts in threads.map(work, suites):
            total.add(counts)
    return total


def main() -> int:
    """Run the suites that were asked for, or all."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n")[0])
    parser.add_argument("suites", nargs="*", metavar="SUITE", help="folders below tests/")
    parser.add_argument("--quick", action="store_true", help="without tests marked slow")
    arguments = parser.parse_args()
    wanted = arguments.suites
    known = [suite.folder for suite in SUITES]
    unknown = sorted(set(wanted) - set(known))
    if unknown:
        parser.error(f"no suite {unknown[0]!r}; there are {', '.join(known)}")
    RESULTS.mkdir(parents=True, exist_ok=True)
    total = run_all([suite for suite in SUITES
                     if (not wanted or suite.folder in wanted)
                     and (ROOT / "tests" / suite.folder).is_dir()],
                    *(["-m", "not slow"] if arguments.quick else []))
    print(total)
    return 1 if total.failed or not total.passed else 0


if __name__ == "__main__":
    sys.exit(main())
