# SPDX-License-Identifier: Apache-2.0
"""Interfaces of the debug kernel: memory leaks, executed lines, fault injection."""

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

# A block that is only in a register or on its way between two lists looks lost;
# younger ones than this are not reported (kmemleak's own limit is five seconds).
_SETTLE_SECONDS = 6


def leaks() -> str:
    """Return what of the module's memory nothing points to any more; "" if all is well."""
    if not _KMEMLEAK.exists():
        return ""
    time.sleep(_SETTLE_SECONDS)
    _KMEMLEAK.write_text("scan")
    _KMEMLEAK.write_text("scan")
    found = _KMEMLEAK.read_text().split("unreferenced object")[1:]
    return "".join(f"unreferenced object{one}" for one in found if "[dm_vcache]" in one)


def save_counts() -> None:
    """Copy how often each line ran, if the kernel counts, beside the objects of the module.

    Where those are, debugfs says by its own folders. After the module has gone.
    """
    for source in _GCOV.rglob("*.gcda") if _GCOV.exists() else ():
        # The files of debugfs have no size: a plain copy would be empty.
        (Path("/") / source.relative_to(_GCOV)).write_bytes(source.read_bytes())


@contextlib.contextmanager
def failing_allocation(number: int) -> Iterator[list[bool]]:
    """Let one allocation of this thread fail, the `number`-th from here.

    Gives a list that has, at the end, whether there were so many.
    """
    for name in ("failslab", "fail_page_alloc"):
        (_DEBUGFS / name / "ignore-gfp-wait").write_text("N")
        # Each failure with its stack takes seconds on an emulated console.
        (_DEBUGFS / name / "verbose").write_text("0")
    (_DEBUGFS / "fail_page_alloc" / "min-order").write_text("0")
    failed: list[bool] = []
    # Opened before, so that opening it is not what fails.
    fd = os.open("/proc/thread-self/fail-nth", os.O_RDWR)

    def no_more() -> None:
        left = int(os.pread(fd, 16, 0))
        os.pwrite(fd, b"0", 0)
        failed.append(left == 0)

    with at_end(os.close, fd), at_end(no_more):
        os.write(fd, str(number).encode())
        yield failed
