# SPDX-License-Identifier: Apache-2.0
"""In the box, in virtual time: measure all of it, write it to the file that is named."""

import argparse
import json
import os
import signal
import subprocess
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

from bench import inside as boxed
from bench.resize import settings
from bench.resize.settings import Deflation
from tests.box.disks import mapped
from tests.box.inside import progress
from vcache_agent.dm import Dm
from vcache_agent.model import DeviceNumber, Tag
from vcache_agent.netlink.client import Client

_MIB = 1 << 20
_POLL_S = 0.002
# Virtual seconds after which something hangs.
_LIMIT_S = 600

_LOAD: dict[str, object] = {
    "ioengine": "psync", "rw": "randrw", "rwmixread": 70, "bs": "4k", "fsync": 16,
    "time_based": 1}


def until(done: Callable[[], bool], limit: float = _LIMIT_S) -> float:
    """Wait for something.

    :returns: how long that took
    :raises SystemExit: if it takes longer than `limit` seconds
    """
    start = time.monotonic()
    while not done():
        if time.monotonic() > start + limit:
            raise SystemExit("bench-resize: what was asked for did not happen")
        time.sleep(_POLL_S)
    return time.monotonic() - start


class Stack:
    """A pool, and volumes on it whose tags have their numbers.

    :param layers: what is made goes with it
    """

    def __init__(self, layers: ExitStack) -> None:
        self._layers = layers
        self.dm = layers.enter_context(Dm())
        self.client = layers.enter_context(Client())
        self._numbers: dict[int, DeviceNumber] = {}

    def add(self, number: int, origin: str, megabytes: int) -> str:
        """Make a volume; return its path."""
        path = self._layers.enter_context(boxed.volume(origin, megabytes, number))
        info = self.dm.info(Path(path).name)
        assert info is not None  # noqa: S101
        self._numbers[number] = info.number
        return path

    def tag(self, number: int) -> Tag:
        """Return the tag of a volume."""
        return self.client.tag(self._numbers[number], number)

    def change(self, number: int, *, weight: int | None = None,
               cache_max: int | None = None) -> None:
        """Change the tag of a volume."""
        self.client.tag_set(self._numbers[number], number, weight=weight, cache_max=cache_max)

    def dirty(self, number: int) -> int:
        """Return the sectors of a volume that its origin has not."""
        name = "volume" if number == 1 else f"volume{number}"
        words = self.dm.status(name)[0].arguments.split()
        return int(words[words.index("cache") + 3])

    def pool(self) -> tuple[int, int]:
        """Return the chunks of the pool, and how many have to leave."""
        words = self.dm.status("pool")[0].arguments.split()
        return int(words[2]), int(words[14])


def _latency(job: dict[str, Any]) -> dict[str, float]:
    """Return what fio's job has waited for, in us."""
    sync = job["sync"]["lat_ns"]
    found = {"fsync_max_us": sync["max"] / 1000,
             "per_s": job["read"]["iops"] + job["write"]["iops"]}
    for name, part in (("read", job["read"]["clat_ns"]), ("write", job["write"]["clat_ns"]),
                       ("fsync", sync)):
        for percent in ("50.000000", "99.000000"):
            found[f"{name}_p{float(percent):g}_us"] = part["percentile"][percent] / 1000
    found["read_max_us"] = job["read"]["clat_ns"]["max"] / 1000
    found["write_max_us"] = job["write"]["clat_ns"]["max"] / 1000
    return found


def _requests(path: str) -> int:
    """Return how many reads and writes a disk has done."""
    number = os.stat(path).st_rdev
    words = Path(f"/sys/dev/block/{os.major(number)}:{os.minor(number)}/stat").read_text().split()
    return int(words[0]) + int(words[4])


@contextmanager
def _busy(path: str, into: dict[str, float]) -> Iterator[None]:
    """Have a load on a volume for a while, and note what it has waited for."""
    process = subprocess.Popen(boxed.fio_command(path, **_LOAD, runtime=f"{_LIMIT_S}s"),
                               stdout=subprocess.PIPE, text=True)
    before = _requests(path)
    try:
        until(lambda: _requests(path) > before + 100)
        yield
    finally:
        process.send_signal(signal.SIGINT)
        text, _ = process.communicate()
    into.update(_latency(boxed.fio_report(text, path)))


def _fill_cache(state: str, path: str, megabytes: int) -> None:
    size = f"{megabytes}m"
    if state == "dirty":
        boxed.fio(path, ioengine="libaio", iodepth=16, rw="randwrite", bs="4k", size=size,
                  end_fsync=1)
    elif state == "written":
        boxed.fio(path, ioengine="psync", rw="write", bs="256k", size=size, end_fsync=1)
    else:
        for _ in range(3):
            boxed.fio(path, ioengine="psync", rw="randread", bs="64k", size=size)


def deflation(how: Deflation) -> dict[str, object]:
    """Make a tag smaller, and larger again; measure how long that takes."""
    full, left = settings.FULL_MB[how.state], settings.LEFT_MB[how.state]
    found: dict[str, Any] = how._asdict()
    beside: dict[str, float] = {}
    with ExitStack() as layers:
        enter = layers.enter_context
        ssd = enter(boxed.ssd("ssd", settings.CACHE_MB, how.ssd_us))
        slow = enter(boxed.slow_disk("slow", full, settings.SLOW_US))
        other = enter(boxed.ssd("other", settings.NEIGHBOUR_MB, settings.SSD_US))
        enter(boxed.pool(ssd, settings.CACHE_MB))
        stack = Stack(layers)
        path = stack.add(1, slow, full)
        neighbour = stack.add(2, other, settings.NEIGHBOUR_MB)
        boxed.fio(neighbour, ioengine="psync", rw="write", bs="256k", end_fsync=1)
        if how.neighbour:
            found["alone"] = _latency(boxed.fio(
                neighbour, **_LOAD, runtime=f"{settings.ALONE_S}s"))
        _fill_cache(how.state, path, full)
        if how.state != "dirty":
            until(lambda: not stack.dirty(1))
        with ExitStack() as load:
            if how.neighbour:
                found["beside"] = beside
                load.enter_context(_busy(neighbour, beside))
            found["had_mb"] = stack.tag(1).cached_bytes / _MIB
            found["dirty_mb"] = stack.dirty(1) / 2048
            stack.change(1, cache_max=left * _MIB)
            found["deflate_s"] = until(lambda: stack.tag(1).cached_bytes <= left * _MIB)
            found["has_mb"] = stack.tag(1).cached_bytes / _MIB
            stack.change(1, cache_max=full * _MIB)
            found["inflate_s"] = until(
                lambda: stack.tag(1).cache_share_bytes > left * _MIB)
    progress(f"{how.state}, SSD {how.ssd_us} us, neighbour {how.neighbour}: "
             f"{found['deflate_s']:.3f} s")
    return found


def disk_itself() -> dict[str, float]:
    """Measure how long the slow disk takes for what the dirty tag has."""
    size = settings.FULL_MB["dirty"]
    with boxed.slow_disk("slow", size, settings.SLOW_US) as slow:
        return {f"{name}_s": boxed.fio(slow, ioengine="libaio", iodepth=16, bs=block, rw=load,
                                       end_fsync=1)["job_runtime"] / 1000
                for name, block, load in (("random", "4k", "randwrite"),
                                          ("sequential", "512k", "write"))}


def pool_size() -> dict[str, object]:
    """Let the pool grow and shrink beside a load."""
    small, large = settings.SMALL_MB, settings.LARGE_MB
    found: dict[str, Any] = {"grow": {}, "shrink": {}}
    with ExitStack() as layers:
        enter = layers.enter_context
        ssd = enter(boxed.ssd("ssd", large, settings.SSD_US))
        origin = enter(boxed.ssd("origin", settings.FILLED_MB, settings.SSD_US))
        other = enter(boxed.ssd("other", settings.NEIGHBOUR_MB, settings.SSD_US))
        part = enter(mapped("part", boxed.linear(ssd, small)))
        enter(boxed.pool(part, small))
        stack = Stack(layers)
        path = stack.add(1, origin, settings.FILLED_MB)
        neighbour = stack.add(2, other, settings.NEIGHBOUR_MB)
        boxed.fio(neighbour, ioengine="psync", rw="write", bs="256k", end_fsync=1)
        found["alone"] = _latency(boxed.fio(neighbour, **_LOAD, runtime=f"{settings.ALONE_S}s"))
        found["small_chunks"] = stack.pool()[0]
        boxed.swap("part", boxed.linear(ssd, large))
        with _busy(neighbour, found["grow"]):
            start = time.monotonic()
            stack.dm.message("pool", "resize 0")
            found["grow_s"] = time.monotonic() - start
        found["large_chunks"] = stack.pool()[0]
        _fill_cache("written", path, settings.FILLED_MB)
        until(lambda: not stack.dirty(1))
        with _busy(neighbour, found["shrink"]):
            start = time.monotonic()
            stack.dm.message("pool", f"resize {boxed.sectors(small)}")
            found["leaving"] = stack.pool()[1]
            until(lambda: not stack.pool()[1])
            found["shrink_s"] = time.monotonic() - start
    progress(f"pool: grows in {found['grow_s']:.3f} s, shrinks in {found['shrink_s']:.3f} s")
    return found


def share_errors() -> dict[str, object]:
    """Give tags that all want more other weights; see when they have their shares."""
    found: dict[str, object] = {}
    numbers = range(1, 1 + len(settings.WEIGHTS))
    with ExitStack() as layers:
        enter = layers.enter_context
        ssd = enter(boxed.ssd("ssd", settings.SMALL_MB, settings.SSD_US))
        enter(boxed.pool(ssd, settings.SMALL_MB))
        stack = Stack(layers)
        paths = {n: stack.add(n, enter(boxed.ssd(f"origin{n}", settings.SHARED_MB,
                                                 settings.SSD_US)), settings.SHARED_MB)
                 for n in numbers}

        def errors() -> list[float]:
            """How far each is from its part of what all have, as a part of that."""
            have = [stack.tag(n).cached_bytes for n in numbers]
            return [has * sum(settings.WEIGHTS) / weight / sum(have) - 1
                    for has, weight in zip(have, settings.WEIGHTS, strict=True)]

        with ExitStack() as loads:
            noted: list[dict[str, float]] = [{} for _ in numbers]
            for n in numbers:
                boxed.fio(paths[n], ioengine="psync", rw="write", bs="256k", end_fsync=1)
            for n in numbers:
                loads.enter_context(_busy(paths[n], noted[n - 1]))
            time.sleep(2)
            found["equal_mb"] = [stack.tag(n).cached_bytes / _MIB for n in numbers]
            for n, weight in zip(numbers, settings.WEIGHTS, strict=True):
                stack.change(n, weight=weight)
            start = time.monotonic()
            over: list[tuple[float, list[float]]] = []
            while time.monotonic() < start + settings.SETTLE_S:
                over.append((time.monotonic() - start, errors()))
                time.sleep(0.1)
            found["over"] = over
            found["shares_mb"] = [stack.tag(n).cached_bytes / _MIB for n in numbers]
    progress("shares: done")
    return found


def main() -> None:
    """Measure all."""
    parser = argparse.ArgumentParser(prog="python -m bench.resize.inside", description=__doc__)
    parser.add_argument("out", type=Path, help="the file to write to")
    out: Path = parser.parse_args().out
    boxed.prepare()
    found = {"disk": disk_itself(),
             "deflations": [deflation(how) for how in settings.DEFLATIONS],
             "pool": pool_size(), "shares": share_errors()}
    out.write_text(json.dumps(found))


if __name__ == "__main__":
    main()
