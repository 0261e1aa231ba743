# SPDX-License-Identifier: Apache-2.0
"""How fast the machine is now: time limits are in units of it, not in seconds."""

import statistics
import subprocess
import threading
import time
from collections import deque
from collections.abc import Callable

_RUNS = 8
_EVERY_SECONDS = 15
_KEPT = 4


def run_programs() -> float:
    """Return how long this machine takes to run a program."""
    start = time.monotonic()
    for _ in range(_RUNS):
        subprocess.run(["/bin/true"], check=True)
    return (time.monotonic() - start) / _RUNS


class Clock:
    """How long a unit takes now.

    A unit is the time to run a program in User Mode Linux, measured there at each boot.
    While tests run, the time to run a program on the host tells how it has changed since.

    :param measure: measures on the host
    """

    def __init__(self, measure: Callable[[], float] = run_programs) -> None:
        self._measure = measure
        self._samples = deque([measure()], maxlen=_KEPT)
        self._units: dict[str, tuple[float, float]] = {}
        self._ended = threading.Event()

    def _host(self) -> float:
        return statistics.median(self._samples)

    def sample(self) -> None:
        """Measure once more."""
        self._samples.append(self._measure())

    def measured(self, device: str, seconds: float) -> None:
        """Take what a unit takes in the User Mode Linux of a device."""
        self._units[device] = (seconds, self._host())

    def unit(self) -> float | None:
        """Return what a unit takes now, where it takes longer; None if no one knows."""
        host = self._host()
        return max((seconds * max(host / before, 1.0) for seconds, before in self._units.values()),
                   default=None)

    def __enter__(self) -> "Clock":
        threading.Thread(target=self._run, daemon=True).start()
        return self

    def __exit__(self, *_: object) -> None:
        self._ended.set()

    def _run(self) -> None:
        while not self._ended.wait(_EVERY_SECONDS):
            self.sample()
