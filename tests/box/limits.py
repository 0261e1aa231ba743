# SPDX-License-Identifier: Apache-2.0
"""Time limits that grow with the slowness of the machine.

A limit is there to end what hangs. On a machine that is slow, or busy with
other work, the same thing takes longer without hanging. So every limit is
multiplied by a factor, never below 1: how much longer a short, fixed piece of
work takes here than on the machine where the limits were chosen. It is measured
once a box (or process, outside of boxes), and again whenever a limit has passed,
because other work may have begun in the meantime.

$VCACHE_TIME_SCALE sets the factor instead.
"""

import contextlib
import math
import os
import subprocess
import time
from pathlib import Path

VARIABLE = "VCACHE_TIME_SCALE"

# Seconds that the two pieces of work below take in a box under TCG with one processor, and
# in a process on the machine itself, where nothing else runs: 2 cores of an Intel Xeon, QEMU
# 10.0.2, kernel 6.1. That machine was never quite idle, so each piece was cut into hundreds
# (1,000 rounds of the loop, one sleep, one process), and these are sums of the fastest tenth.
# `python -m tests.box.limits` prints what it is here and now.
_BOX_WORK, _BOX_WAIT = 0.36, 0.22
_HOST_WORK, _HOST_WAIT = 0.04, 0.04

# What hangs has to end some time.
_LARGEST = 10.0

# Where the processes of a box share the factor; /run is the box's own.
_SHARED = Path("/run/vcache-time-scale")

_known = 0.0


def _work() -> float:
    """Return the seconds for a fixed amount of computing."""
    start = time.monotonic()
    total = 0
    for number in range(200_000):
        total += number * number & 0xff
    return time.monotonic() - start


def _wait() -> float:
    """Return the seconds for a fixed number of sleeps and of processes that start and end."""
    start = time.monotonic()
    for _ in range(20):
        time.sleep(0.001)
    for _ in range(4):
        subprocess.run(["true"], check=True)
    return time.monotonic() - start


def measure() -> float:
    """Measure the factor; takes less than a second on an idle machine."""
    inside = "VCACHE_BOX" in os.environ
    work, wait = (_BOX_WORK, _BOX_WAIT) if inside else (_HOST_WORK, _HOST_WAIT)
    return min(_LARGEST, max(1.0, _work() / work, _wait() / wait))


def _wanted() -> float | None:
    """Return the factor that the environment sets."""
    text = os.environ.get(VARIABLE)
    if not text:
        return None
    try:
        factor = float(text)
    except ValueError:
        factor = 0
    if not 0 < factor < math.inf:
        raise ValueError(f"{VARIABLE}={text}: must be a number above 0")
    return factor


def scale() -> float:
    """Return the factor, as known so far."""
    global _known
    wanted = _wanted()
    if wanted is not None:
        return wanted
    if "VCACHE_BOX" in os.environ:
        with contextlib.suppress(OSError, ValueError):
            _known = float(_SHARED.read_text())
    return _known or again()


def again() -> float:
    """Measure anew and return the factor of this moment.

    scale() is from then on the mean of this and what it was before: other work comes
    and goes, and one moment says little of all that follows.
    """
    global _known
    wanted = _wanted()
    if wanted is not None:
        return wanted
    now = measure()
    _known = (_known + now) / 2 if _known else now
    if "VCACHE_BOX" in os.environ:
        with contextlib.suppress(OSError):
            _SHARED.write_text(f"{_known}\n")
    return now


def limit(seconds: float) -> float:
    """Return the seconds to allow here for what takes less than `seconds` elsewhere."""
    return seconds * scale()


class Deadline:
    """A time limit that has begun.

    :param seconds: before the factor is applied
    :param factor: the least factor, if the environment does not set it
    """

    def __init__(self, seconds: float, factor: float = 1) -> None:
        self._start = time.monotonic()
        self._unscaled = seconds
        self.seconds = seconds * (_wanted() or max(factor, scale()))

    def __str__(self) -> str:
        return f"{round(self.seconds, 1):g} s"

    def left(self) -> float:
        """Return how many seconds are left, at least 0."""
        return max(0.0, self._start + self.seconds - time.monotonic())

    def passed(self) -> bool:
        """Tell whether the time is over, on a machine as slow as this one is now."""
        if self.left():
            return False
        if not self._unscaled:
            return True
        self.seconds = max(self.seconds, self._unscaled * again())
        return not self.left()


if __name__ == "__main__":
    _wait()  # what it needs is read from the disk
    print("work", *(f"{_work():.3f}" for _ in range(15)))
    print("wait", *(f"{_wait():.3f}" for _ in range(15)))
    print(f"factor {measure():.2f}")
