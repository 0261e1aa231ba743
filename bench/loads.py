# SPDX-License-Identifier: Apache-2.0
"""In the box: a pool with volumes, samples of its tags, and loads for a limited time."""

import os
import signal
import subprocess
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

from bench import inside as boxed
from tests.box.inside import InsideError
from tests.box.steps import at_end
from vcache_agent.dm import Dm
from vcache_agent.model import DeviceNumber, Tag
from vcache_agent.netlink.client import Client
from vcache_agent.netlink.spec import CachedRun

_POLL_S = 0.002
# The measured time of a wait can be too long by this part of it.
_ERROR = 0.05
# Virtual seconds after which a wait is considered hung.
_LIMIT_S = 600


def until(done: Callable[[], bool], what: str, limit: float = _LIMIT_S) -> float:
    """Wait for a condition.

    :param what: text for the error message
    :returns: duration of the wait
    :raises InsideError: if it takes longer than `limit` seconds
    """
    start = time.monotonic()
    while not done():
        if time.monotonic() > start + limit:
            raise InsideError(f"{what}: not within {limit:g} s")
        # Each check takes the only processor for some milliseconds.
        time.sleep(max(_POLL_S, (time.monotonic() - start) * _ERROR))
    return time.monotonic() - start


class Stack:
    """A pool, and volumes on it. Each tag has the number of its volume.

    :param layers: removes the devices at its end
    """

    def __init__(self, layers: ExitStack) -> None:
        self._layers = layers
        self.dm = layers.enter_context(Dm())
        self.client = layers.enter_context(Client())
        self._numbers: dict[int, DeviceNumber] = {}

    def add(self, number: int, origin: str, megabytes: int) -> str:
        """Create a volume; return its path."""
        path = self._layers.enter_context(boxed.volume(origin, megabytes, number))
        info = self.dm.info(Path(path).name)
        assert info is not None  # noqa: S101
        self._numbers[number] = info.number
        return path

    def tag(self, number: int) -> Tag:
        """Return the tag of a volume."""
        return self.client.tag(self._numbers[number], number)

    def change(self, number: int, *, weight: int | None = None,
               cache_max: int | None = None, cache_lanes: int | None = None) -> None:
        """Change the tag of a volume."""
        self.client.tag_set(self._numbers[number], number, weight=weight, cache_max=cache_max,
                            cache_lanes=cache_lanes)

    def cached(self, number: int) -> list[CachedRun]:
        """Return the cached blocks of a volume's tag, with their heat."""
        return self.client.cached(self._numbers[number], number)

    def prefetch(self, number: int, first_mb: int, megabytes: int) -> None:
        """Prefetch a part of a volume, cold, and wait until it is in the cache."""
        runs = [CachedRun(boxed.sectors(first_mb), boxed.sectors(megabytes), 0)]
        self.client.prefetch(self._numbers[number], number, runs)
        end = time.monotonic() + _LIMIT_S
        while waiting := self.tag(number).prefetch_waiting_bytes:
            if time.monotonic() > end:
                raise InsideError(f"prefetch of {megabytes} MiB of volume {number}: {waiting} "
                                  f"bytes are left after {_LIMIT_S} s")
            time.sleep(20 * _POLL_S)

    def dirty(self, number: int) -> int:
        """Return the sectors of a volume that are not on its origin."""
        name = "volume" if number == 1 else f"volume{number}"
        words = self.dm.status(name)[0].arguments.split()
        return int(words[words.index("cache") + 3])

    def pool(self) -> tuple[int, int]:
        """Return the chunks of the pool, and the number still to be reclaimed."""
        words = self.dm.status("pool")[0].arguments.split()
        return int(words[2]), int(words[14])


def latency(job: dict[str, Any]) -> dict[str, float]:
    """Return the requests per second of fio's job, and their latency in us.

    Only for the kinds of requests that it had: reads, writes, fsyncs.
    """
    found = {"per_s": job["read"]["iops"] + job["write"]["iops"]}
    for name, part in (("read", job["read"]["clat_ns"]), ("write", job["write"]["clat_ns"]),
                       ("fsync", job["sync"]["lat_ns"])):
        if not part.get("percentile"):
            continue
        found[f"{name}_max_us"] = part["max"] / 1000
        for percent in ("50.000000", "99.000000"):
            found[f"{name}_p{float(percent):g}_us"] = part["percentile"][percent] / 1000
    return found


def _requests(path: str) -> int:
    """Return the number of reads and writes of a disk."""
    number = os.stat(path).st_rdev
    words = Path(f"/sys/dev/block/{os.major(number)}:{os.minor(number)}/stat").read_text().split()
    return int(words[0]) + int(words[4])


@contextmanager
def busy(path: str, into: dict[str, float], **options: object) -> Iterator[None]:
    """Run a load on a volume for the duration of the context, and record its latencies.

    :param into: see :func:`latency`
    :param options: options of fio
    """
    found: dict[str, dict[str, float]] = {}
    with busy_all({"load": (path, options)}, found):
        yield
    into.update(found["load"])


@contextmanager
def busy_all(loads: Mapping[str, tuple[str, Mapping[str, object]]],
             into: dict[str, dict[str, float]]) -> Iterator[None]:
    """Run several loads at a time with one fio: names, volumes and options."""
    command = ["fio", "--output-format=json"]
    for name, (path, options) in loads.items():
        command += boxed.fio_job(path, **{"name": name, "group_reporting": 0, **options,
                                          "runtime": f"{_LIMIT_S}s"})
    paths = {path for path, _ in loads.values()}
    before = {path: _requests(path) for path in paths}
    process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
    names = ", ".join(sorted(paths))

    def under_way() -> bool:
        if process.poll() is not None:
            text = process.stdout.read() if process.stdout else ""
            raise InsideError(f"fio on {names} ended with status {process.returncode}: "
                              f"{text.strip()[-1000:]!r}")
        return all(_requests(path) > before[path] + 100 for path in paths)

    said: list[str] = []
    with at_end(lambda: said.append(_end(process, names))):
        until(under_way, f"I/O of fio on {names}")
        yield
    for job in boxed.fio_jobs(said[0], names):
        into[job["jobname"]] = latency(job)


def _end(process: subprocess.Popen[str], names: str) -> str:
    """Stop fio; return its output."""
    process.send_signal(signal.SIGINT)
    try:
        return process.communicate(timeout=_LIMIT_S)[0]
    except subprocess.TimeoutExpired:
        process.kill()
        raise InsideError(f"fio on {names} did not end within {_LIMIT_S} s of SIGINT") from None
