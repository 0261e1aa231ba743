# SPDX-License-Identifier: Apache-2.0
"""Run the test suites and print the sum of their results: suite.py [SUITE ...].

A suite is a folder under tests/, or a part of one. Folders that do not exist are
skipped. Each suite writes a JUnit file to build/test/; the last line of output adds
up these files. A suite counts as one failure if it fails without a failure in its
file, or if it runs no test. Failed tests run a second and last time.

Some suites run at a time, see lanes(). The output of one of them is shown at once, the
output of the others when they have ended. Each ends with its duration and its processor
time, that is the time of all processes that it has started and waited for.
"""

import argparse
import concurrent.futures
import contextlib
import dataclasses
import os
import pathlib
import subprocess
import sys
import threading
import time
import xml.etree.ElementTree as ET
from typing import Any

ROOT = pathlib.Path(__file__).resolve().parents[1]
RESULTS = ROOT / "build" / "test"

# What a suite may take to end its boxes and services.
TERMINATE_SECONDS = 60

# Memory for one suite. Three of them, and what else ran, took less than 6 GiB; a machine that
# is sold with 8 GiB has a little less.
SUITE_GIB = 2.5


@dataclasses.dataclass(frozen=True)
class Suite:
    """A folder of tests, or a part of one, and where its tests run.

    :param folder: name of the folder below tests/
    :param boxed: run pytest in the box, as root under the kernel to test, by
        `python -m tests.FOLDER PYTEST-ARGUMENT...`; otherwise pytest runs on the
        host, and tests boot boxes as they need them
    :param minutes: time limit for a suite that hangs: three times its duration beside
        other suites on two cores, or the limit of a whole run if that is less
    :param part: name of the part
    :param marks: expression for pytest's -m that selects the tests of the part
    :param box: options for the box
    :param venv: name of a separate environment, which .ci/NAME-venv creates in
        build/NAME/venv
    :param asked: run the suite only if it is named, since it downloads other projects, or
        since another suite runs its tests
    """

    folder: str
    boxed: bool
    minutes: int
    part: str = ""
    marks: str = ""
    box: tuple[str, ...] = ()
    venv: str = ""
    asked: bool = False

    @property
    def name(self) -> str:
        """Name of the suite in the output and of its files in build/test/."""
        return f"{self.folder}-{self.part}" if self.part else self.folder

    def selected(self, names: list[str]) -> bool:
        """Tell whether to run the suite if the command line names these folders and suites.

        The name of a folder selects its parts, except those to be named themselves.
        """
        if self.name in names:
            return True
        if self.asked and (self.part or not names):
            return False
        return self.folder in names if names else True


# In the order in which they start: long suites first, and short ones last, so that none of
# them runs alone at the end. Most tests of "kernel" sleep, and the box of kernel-smp needs two
# processors, so they begin beside each other.
SUITES = (
    # The tests that need two processors and a sample of the others run in the emulated box.
    # The rest runs in User Mode Linux, whose kernel is built first if it is not in the cache.
    # On a machine without spare processors, the two processors of a box wait for each other. So
    # tests without concurrency get a box with one.
    Suite("kernel", boxed=True, minutes=50, marks="not smp", box=("--uml",)),
    Suite("kernel", boxed=True, minutes=40, part="smp", marks="smp"),
    Suite("openstack", boxed=False, minutes=25, venv="openstack"),
    Suite("powercut", boxed=False, minutes=40),
    Suite("host", boxed=True, minutes=40, marks="not life", box=("--uml",)),
    Suite("host", boxed=True, minutes=50, part="life", marks="life", box=("--uml",)),
    Suite("openstack_api", boxed=False, minutes=30, venv="openstack"),
    Suite("firmware", boxed=False, minutes=36),
    Suite("kernel", boxed=True, minutes=40, part="box", marks="not smp and box",
          box=("--cpus", "1")),
    Suite("nvmetcp", boxed=False, minutes=25),
    Suite("host", boxed=True, minutes=40, part="box", marks="box"),
    Suite("kernel", boxed=True, minutes=10, part="quick", marks="quick", box=("--uml",),
          asked=True),
    Suite("core", boxed=False, minutes=35),
    Suite("cinder", boxed=False, minutes=15, venv="openstack"),
    Suite("packaging", boxed=False, minutes=30),
    Suite("unit", boxed=False, minutes=25),
    Suite("tools", boxed=False, minutes=15),
    Suite("libvssd", boxed=False, minutes=15),
    Suite("sim", boxed=False, minutes=20),
    Suite("devstack", boxed=False, minutes=60, venv="openstack", asked=True),
)


@dataclasses.dataclass
class Counts:
    """Results of the tests of one or more suites."""

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


def failures(junit: pathlib.Path) -> list[str]:
    """Return the node ids of the failed tests of a JUnit file, as arguments for pytest.

    The list is empty if there is no such file, or if a failure is not of a test in a file.
    """
    wanted = []
    try:
        cases = list(ET.parse(junit).getroot().iter("testcase"))  # noqa: S314 - our own file
    except (FileNotFoundError, ET.ParseError):
        return []
    for case in cases:
        if {child.tag for child in case} & {"failure", "error"}:
            path = case.get("classname", "").replace(".", "/") + ".py"
            if not (ROOT / path).is_file():
                return []
            wanted.append(f"{path}::{case.get('name')}")
    # A test and its teardown may both have failed.
    return list(dict.fromkeys(wanted))


def command(suite: Suite, junit: pathlib.Path, quick: bool, tests: list[str]) -> list[str]:
    """Return the command line of a suite.

    :param quick: leave out the tests marked slow
    :param tests: node ids of the tests to run; empty for all
    """
    module = f"tests.{suite.folder}" if suite.boxed else "pytest"
    # pytest applies only the last -m.
    wanted = [f"({marks})" for marks in (suite.marks, "not slow" if quick else "") if marks]
    marks = ["-m", " and ".join(wanted)] if wanted and not tests else []
    python = str(ROOT / "build" / suite.venv / "venv/bin/python") if suite.venv else sys.executable
    return [
        python, "-m", module, *suite.box, "-p", "no:cacheprovider", f"--junitxml={junit}",
        *marks, *(tests or [f"tests/{suite.folder}"])]


def processor_seconds(pid: int) -> float:
    """Return the processor time of a process that has ended, and of those it has waited for."""
    fields = pathlib.Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    # utime, stime, cutime, cstime are fields 14 to 17; the first one here is field 3.
    return sum(map(int, fields[11:15])) / os.sysconf("SC_CLK_TCK")


def finish(words: list[str], seconds: float, **streams: Any) -> tuple[int, float]:
    """Run a command and return its exit status and its processor time in seconds.

    A command that hangs gets SIGTERM first: it then ends its boxes, which SIGKILL would
    leave behind.

    :raises subprocess.TimeoutExpired: if it does not end in time
    """
    limit = time.monotonic() + seconds
    # Programs that start again and again keep what they have compiled.
    env = {name: value for name, value in os.environ.items() if name != "PYTHONDONTWRITEBYTECODE"}
    with subprocess.Popen(words, cwd=ROOT, stdin=subprocess.DEVNULL, env=env,
                          **streams) as process:
        try:
            # Wait, but leave it in /proc.
            while not os.waitid(os.P_PID, process.pid, os.WEXITED | os.WNOWAIT | os.WNOHANG):
                if time.monotonic() > limit:
                    raise subprocess.TimeoutExpired(words, seconds)
                time.sleep(0.1)
            used = processor_seconds(process.pid)
            return process.wait(), used
        except BaseException:
            process.terminate()
            try:
                process.wait(TERMINATE_SECONDS)
            except subprocess.TimeoutExpired:
                process.kill()
            raise


def run(suite: Suite, quick: bool, tests: list[str], *, quiet: bool = False) -> Counts:
    """Run one suite and return its counts.

    :param quick: leave out the tests marked slow
    :param tests: node ids of the tests to run; empty for all
    :param quiet: print the output of the suite only when it has ended
    """
    junit = RESULTS / f"{suite.name}.xml"
    log = RESULTS / f"{suite.name}.log"
    junit.unlink(missing_ok=True)
    print(f"==== tests/{suite.name}", flush=True)
    start = time.monotonic()
    used = 0.0
    try:
        with open(log, "w") if quiet else contextlib.nullcontext() as output:
            streams = {"stdout": output, "stderr": subprocess.STDOUT if quiet else None}
            status = 0
            if suite.venv:
                venv = str(ROOT / ".ci" / f"{suite.venv}-venv")
                status, used = finish([venv], suite.minutes * 60, **streams)
                if status:
                    print(f"tests/{suite.name}: {venv}: exit status {status}", flush=True)
            # The last resort: boxes have shorter time limits.
            if not status:
                status, more = finish(command(suite, junit, quick, tests), suite.minutes * 60,
                                      **streams)
                used += more
    except subprocess.TimeoutExpired:
        print(f"tests/{suite.name}: not finished after {suite.minutes} minutes", flush=True)
        status = 1
    if quiet:
        print(log.read_text(errors="replace"), end="", flush=True)
    counts = read_junit(junit)
    if status and not counts.failed:
        print(f"tests/{suite.name}: exit status {status}", flush=True)
        counts.failed += 1
    elif not counts.passed and not counts.failed:
        print(f"tests/{suite.name}: no test ran", flush=True)
        counts.failed += 1
    print(f"==== tests/{suite.name}: {counts} in {time.monotonic() - start:.0f} s, "
          f"{used:.0f} s of processor time", flush=True)
    return counts


# A run should take less than an hour. Repeated tests may make it longer, but its callers
# stop waiting after an hour and a half.
RETRY_UNTIL = time.monotonic() + 80 * 60


def attempt(suite: Suite, quick: bool, *, quiet: bool = False) -> Counts:
    """Run one suite, then repeat the tests that failed, and print that it does so.

    Boxes emulate processors in real time. On a busy machine a time limit may pass
    although the code is correct.
    """
    start = time.monotonic()
    counts = run(suite, quick, [], quiet=quiet)
    end = time.monotonic()
    if not counts.failed or end + (end - start) > RETRY_UNTIL:
        return counts
    again = failures(RESULTS / f"{suite.name}.xml")
    print(f"==== tests/{suite.name}: failed, a second and last try of "
          f"{', '.join(again) or 'all'}", flush=True)
    second = run(suite, quick, again, quiet=quiet)
    if again:
        second.add(Counts(passed=counts.passed, skipped=counts.skipped))
    return second


def lanes(processors: int, gib: float) -> int:
    """Return how many suites run at a time: two more than processors, since many of them sleep.

    There are fewer, but at least two, if they would need more memory than there is.

    :param processors: number of processors
    :param gib: memory of the machine
    """
    return max(2, min(processors + 2, int(gib // SUITE_GIB)))


def run_all(suites: list[Suite], quick: bool) -> Counts:
    """Run the suites, some at a time, and return the sum of their counts."""
    screen = threading.Lock()

    def work(suite: Suite) -> Counts:
        shown = screen.acquire(blocking=False)
        try:
            return attempt(suite, quick, quiet=not shown)
        finally:
            if shown:
                screen.release()

    total = Counts()
    gib = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / (1 << 30)
    wide = lanes(len(os.sched_getaffinity(0)), gib)
    with concurrent.futures.ThreadPoolExecutor(wide) as threads:
        for counts in threads.map(work, suites):
            total.add(counts)
    return total


def main() -> int:
    """Run the suites named on the command line, or all."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n")[0])
    parser.add_argument("suites", nargs="*", metavar="SUITE",
                        help="folders below tests/, or parts of one")
    parser.add_argument("--quick", action="store_true", help="leave out tests marked slow")
    arguments = parser.parse_args()
    wanted = arguments.suites
    known = list(dict.fromkeys(
        name for suite in SUITES for name in (suite.folder, suite.name)))
    unknown = sorted(set(wanted) - set(known))
    if unknown:
        parser.error(f"no suite {unknown[0]!r}; there are {', '.join(known)}")
    RESULTS.mkdir(parents=True, exist_ok=True)
    total = run_all([suite for suite in SUITES
                     if suite.selected(wanted) and (ROOT / "tests" / suite.folder).is_dir()],
                    arguments.quick)
    print(total)
    return 1 if total.failed or not total.passed else 0


if __name__ == "__main__":
    sys.exit(main())
