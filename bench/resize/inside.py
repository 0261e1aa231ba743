# SPDX-License-Identifier: Apache-2.0
"""In the box, in virtual time: run all measurements, write the results to the given file."""

import argparse
import json
import time
from contextlib import ExitStack
from pathlib import Path
from typing import Any

from bench import inside as boxed
from bench.loads import Stack, busy, latency, until
from bench.resize import settings
from bench.resize.settings import Deflation
from tests.box.disks import mapped
from tests.box.inside import progress
from tests.box.steps import explained, step

_MIB = 1 << 20

_LOAD: dict[str, object] = {
    "ioengine": "psync", "rw": "randrw", "rwmixread": 70, "bs": "4k", "fsync": 16,
    "time_based": 1}


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
    """Shrink a tag and grow it again; measure how long that takes."""
    full, left = settings.FULL_MB[how.state], settings.LEFT_MB[how.state]
    found: dict[str, Any] = how._asdict()
    beside: dict[str, float] = {}
    with (step(f"deflation, {how.state}, SSD {how.ssd_us} us, neighbour {how.neighbour}"),
          ExitStack() as layers):
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
            found["alone"] = latency(boxed.fio(
                neighbour, **_LOAD, runtime=f"{settings.ALONE_S}s"))
        _fill_cache(how.state, path, full)
        if how.state != "dirty":
            until(lambda: not stack.dirty(1), "destage of volume 1")
        with ExitStack() as load:
            if how.neighbour:
                found["beside"] = beside
                load.enter_context(busy(neighbour, beside, **_LOAD))
            found["had_mb"] = stack.tag(1).cached_bytes / _MIB
            found["dirty_mb"] = stack.dirty(1) / 2048
            stack.change(1, cache_max=left * _MIB)
            found["deflate_s"] = until(lambda: stack.tag(1).cached_bytes <= left * _MIB,
                                       f"shrinking tag 1 to {left} MiB")
            found["has_mb"] = stack.tag(1).cached_bytes / _MIB
            stack.change(1, cache_max=full * _MIB)
            found["inflate_s"] = until(
                lambda: stack.tag(1).cache_share_bytes > left * _MIB, "a larger share of tag 1")
    progress(f"{how.state}, SSD {how.ssd_us} us, neighbour {how.neighbour}: "
             f"{found['deflate_s']:.3f} s")
    return found


def disk_itself() -> dict[str, float]:
    """Measure how long the slow disk takes for the data of the dirty tag."""
    size = settings.FULL_MB["dirty"]
    with boxed.slow_disk("slow", size, settings.SLOW_US) as slow:
        return {f"{name}_s": boxed.fio(slow, ioengine="libaio", iodepth=16, bs=block, rw=load,
                                       end_fsync=1)["job_runtime"] / 1000
                for name, block, load in (("random", "4k", "randwrite"),
                                          ("sequential", "512k", "write"))}


def pool_size() -> dict[str, object]:
    """Grow and shrink the pool beside a load."""
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
        found["alone"] = latency(boxed.fio(neighbour, **_LOAD, runtime=f"{settings.ALONE_S}s"))
        found["small_chunks"] = stack.pool()[0]
        boxed.swap("part", boxed.linear(ssd, large))
        with busy(neighbour, found["grow"], **_LOAD):
            start = time.monotonic()
            stack.dm.message("pool", "resize 0")
            found["grow_s"] = time.monotonic() - start
        found["large_chunks"] = stack.pool()[0]
        _fill_cache("written", path, settings.FILLED_MB)
        until(lambda: not stack.dirty(1), "destage of volume 1")
        with busy(neighbour, found["shrink"], **_LOAD):
            start = time.monotonic()
            stack.dm.message("pool", f"resize {boxed.sectors(small)}")
            found["leaving"] = stack.pool()[1]
            until(lambda: not stack.pool()[1], "shrinking the pool")
            found["shrink_s"] = time.monotonic() - start
    progress(f"pool: grows in {found['grow_s']:.3f} s, shrinks in {found['shrink_s']:.3f} s")
    return found


def share_errors() -> dict[str, object]:
    """Change the weights of tags that all want more; measure when they have their shares."""
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
            """Return the relative errors of the tags' parts of the total."""
            have = [stack.tag(n).cached_bytes for n in numbers]
            return [has * sum(settings.WEIGHTS) / weight / sum(have) - 1
                    for has, weight in zip(have, settings.WEIGHTS, strict=True)]

        with ExitStack() as loads:
            noted: list[dict[str, float]] = [{} for _ in numbers]
            for n in numbers:
                boxed.fio(paths[n], ioengine="psync", rw="write", bs="256k", end_fsync=1)
            for n in numbers:
                loads.enter_context(busy(paths[n], noted[n - 1], **_LOAD))
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
    """Run all measurements."""
    parser = argparse.ArgumentParser(prog="python -m bench.resize.inside", description=__doc__)
    parser.add_argument("out", type=Path, help="file for the results")
    out: Path = parser.parse_args().out
    with explained("bench-resize"):
        boxed.prepare()
        found: dict[str, Any] = {}
        with step("the slow disk"):
            found["disk"] = disk_itself()
        found["deflations"] = [deflation(how) for how in settings.DEFLATIONS]
        with step("pool size"):
            found["pool"] = pool_size()
        with step("shares"):
            found["shares"] = share_errors()
        out.write_text(json.dumps(found))


if __name__ == "__main__":
    main()
