# SPDX-License-Identifier: Apache-2.0
"""Run a built xfstests on a volume of a pool and on dm-linear: ``python -m tests.xfstests DIR``.

Writes build/xfstests/report.json, anew after each test. The exit status is 1 if a test
fails on our device and passes on dm-linear, 2 if the tests cannot be run.
"""

import argparse
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from tests.box import uml
from tests.box.machine import BoxError
from tests.xfstests import report, runner
from tests.xfstests.runner import BUILD, Board, Part

_FILESYSTEMS = ("ext4", "xfs")
_GROUPS = ("quick", "recoveryloop")


def _names(text: str) -> list[str]:
    return text.replace(",", " ").split()


def parser() -> argparse.ArgumentParser:
    """Return the parser of the command line."""
    p = argparse.ArgumentParser(prog="python -m tests.xfstests",
                                description=(__doc__ or "").split("\n\n")[0])
    p.add_argument("checkout", type=Path, metavar="DIR", help="xfstests, built")
    p.add_argument("--minutes", type=float, default=60, metavar="N",
                   help="time budget, shared evenly by file systems and groups (%(default)s)")
    p.add_argument("--fs", type=_names, default=_FILESYSTEMS, metavar="FS,...",
                   help=f"file systems (default: {','.join(_FILESYSTEMS)})")
    p.add_argument("--groups", type=_names, default=_GROUPS, metavar="GROUP,...",
                   help=f"groups of tests (default: {','.join(_GROUPS)})")
    p.add_argument("--tests", type=_names, default=(), metavar="TEST,...",
                   help="these tests instead of groups")
    p.add_argument("--units", type=float, default=10000, metavar="N",
                   help="time limit of a test: as long as it takes to run N programs (%(default)g)")
    p.add_argument("--resume", action="store_true",
                   help="continue the last run: keep its results, run what it has not reached")
    return p


def _read_lists(checkout: Path, fs: str) -> dict[str, str]:
    """Return the lists of groups of the folders of tests for a file system."""
    found = {}
    for folder in ("generic", fs):
        path = checkout / "tests" / folder / "group.list"
        if not path.exists():
            raise runner.RunnerError(f"{path} does not exist: is {checkout} a built xfstests?")
        found[folder] = path.read_text()
    return found


def plan(options: argparse.Namespace) -> list[Part]:
    """Return what is to be run."""
    parts = []
    for group in ["tests"] if options.tests else options.groups:
        for fs in options.fs:
            lists = _read_lists(options.checkout, fs)
            tests = list(options.tests) or report.spread(report.group_tests(lists, group))
            parts.append(Part(fs, group, [test for test in tests
                                          if test.partition("/")[0] in lists]))
    return parts


def _version(checkout: Path) -> str:
    """Return the commit of a checkout, or an empty string."""
    done = subprocess.run(["git", "-C", str(checkout), "rev-parse", "HEAD"],
                          capture_output=True, text=True, check=False)
    return done.stdout.strip()


def main() -> int:
    """Run them and report."""
    p = parser()
    options = p.parse_args()
    options.checkout = options.checkout.resolve()
    if not (options.checkout / "ltp" / "fsstress").exists():
        p.error(f"{options.checkout}: not a built xfstests")
    try:
        parts = plan(options)
        kernel = uml.release(uml.tree())
    except (runner.RunnerError, BoxError) as error:
        print(f"xfstests: {error}", file=sys.stderr)
        return 2
    if not options.resume:
        shutil.rmtree(BUILD, ignore_errors=True)
    BUILD.mkdir(parents=True, exist_ok=True)
    start = time.monotonic()

    def about() -> Mapping[str, Any]:
        return {"kernel": kernel, "xfstests": _version(options.checkout),
                "minutes": options.minutes, "limit_units": options.units,
                "seconds": round(time.monotonic() - start)}

    rows = runner.read_rows()
    board = Board(parts, options.minutes * 60, rows, about)
    stopped: list[signal.Signals] = []

    def stop(number: int, _frame: object) -> None:
        stopped.append(signal.Signals(number))
        board.stop.set()

    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, stop)
    board.write()
    errors = runner.run(options.checkout, parts, board, options.units)
    if stopped:
        errors.append(f"stopped by {stopped[0].name}; RESUME=1 continues")
    made = board.write()
    for part in parts:
        numbers = made[part.fs][part.group]
        print(f"{part.fs} {part.group}: {numbers['compared']} of {numbers['tests']} compared; "
              f"{report.OURS}: {numbers['pass']} passed, {numbers['fail']} failed, "
              f"{numbers['notrun']} not run")
    for line in errors:
        print(f"xfstests: {line}", file=sys.stderr)
    ours = report.failures(made)
    for test in ours:
        print(f"fails on {report.OURS} only: {test}")
    print(f"xfstests: {BUILD / 'report.json'}{' (partial)' if made['partial'] else ''}")
    return 2 if errors else 1 if ours else 0


if __name__ == "__main__":
    sys.exit(main())
