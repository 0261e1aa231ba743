# SPDX-License-Identifier: Apache-2.0
"""Interfaces of the debug kernel: memory leaks, executed lines; fault injection, also in UML."""

import contextlib
import os
import time
from collections.abc import Iterator
from pathlib import Path

from tests.box.steps import at_end

_DEBUGFS = Path("/sys/kernel/debug")
_KMEMLEAK = _DEBUGFS / "kmemleak"
_GCOV = _DEBUGFS / "gcov"
FAILSLAB = _DEBUGFS / "failslab"

# Memory that is referenced only by a register, or that moves between two lists, appears to be
# lost. Younger memory than this is not reported in the box (kmemleak's own limit is five seconds).
_SETTLE_SECONDS = 6


def _scan() -> str:
    """Look once, and return the module's memory that has no reference."""
    _KMEMLEAK.write_text("scan")
    found = _KMEMLEAK.read_text().split("unreferenced object")[1:]
    return "".join(f"unreferenced object{one}" for one in found if "[dm_vcache]" in one)


def leaks(*, all_ages: bool = False) -> str:
    """Return the module's unreferenced memory; "" if there is none.

    What appears to be lost counts if it appears so again after some time. It is then forgotten,
    so that one test only reports it.

    :param all_ages: wait until no memory is too young to be reported
    """
    if not _KMEMLEAK.exists():
        return ""
    if all_ages or _scan():
        time.sleep(_SETTLE_SECONDS)
        _scan()
        lost = _scan()
        _KMEMLEAK.write_text("clear")
        return lost
    return ""


def save_counts() -> None:
    """Copy the line counters, if the kernel has them, to the object files of the module.

    The paths in debugfs name their folders. Call this after the module is unloaded.
    """
    for source in _GCOV.rglob("*.gcda") if _GCOV.exists() else ():
        # The files of debugfs have no size: a plain copy would be empty.
        (Path("/") / source.relative_to(_GCOV)).write_bytes(source.read_bytes())


@contextlib.contextmanager
def failing_allocation(number: int) -> Iterator[list[bool]]:
    """Make the `number`-th allocation of this thread from here fail.

    Provides a list that contains, at the end, whether there were so many.
    """
    for name in ("failslab", "fail_page_alloc"):
        (_DEBUGFS / name / "ignore-gfp-wait").write_text("N")
        # Each failure with a stack trace takes seconds on an emulated console.
        (_DEBUGFS / name / "verbose").write_text("0")
    (_DEBUGFS / "fail_page_alloc" / "min-order").write_text("0")
    failed: list[bool] = []
    # Opened before, so that the open itself does not fail.
    fd = os.open("/proc/thread-self/fail-nth", os.O_RDWR)

    def no_more() -> None:
        left = int(os.pread(fd, 16, 0))
        os.pwrite(fd, b"0", 0)
        failed.append(left == 0)

    with at_end(os.close, fd), at_end(no_more):
        os.write(fd, str(number).encode())
        yield failed
