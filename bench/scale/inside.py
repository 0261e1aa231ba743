# SPDX-License-Identifier: Apache-2.0
"""In the box, in virtual time: run some measurements, write the results to the given file."""

import argparse
import json
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

from bench import inside as boxed
from bench.scale import destage as far
from bench.scale import settings
from tests.box.disks import mapped
from tests.box.inside import progress
from tests.box.steps import at_end, explained, step
from vcache_agent.dm import Dm, Line

# Virtual seconds after which a drain is considered hung.
_LIMIT_S = 3000


@contextmanager
def _timed(dm: Dm, name: str, megabytes: int, target: str,
           arguments: str) -> Iterator[tuple[str, float]]:
    """Create a mapped device; give its path, and the time until its table was active.

    By ioctl: starting a program takes longer than the measured time.
    """
    dm.create(name)
    with at_end(dm.remove, name):
        start = time.monotonic()
        dm.load(name, [Line(0, boxed.sectors(megabytes), target, arguments)])
        dm.resume(name)
        took = time.monotonic() - start
        info = dm.info(name)
        assert info is not None  # noqa: S101
        yield info.path, took


def widths() -> Iterator[dict[str, object]]:
    """Measure the rate of requests by the number in flight."""
    for stack in settings.STACKS:
        with ExitStack() as layers:
            ssd = layers.enter_context(boxed.ssd("ssd", settings.CACHE_MB, settings.SSD_US))
            if stack == "vcache":
                origin = layers.enter_context(
                    boxed.ssd("origin", settings.REGION_MB, settings.SSD_US))
                layers.enter_context(boxed.pool(ssd, settings.CACHE_MB))
                device = layers.enter_context(boxed.volume(origin, settings.REGION_MB))
            else:
                device = layers.enter_context(
                    mapped("line", boxed.linear(ssd, settings.REGION_MB)))
            boxed.fio(device, ioengine="psync", rw="write", bs="64k", end_fsync=1)
            for load in settings.LOADS:
                for width in settings.WIDTHS:
                    for kind, depth, jobs in (("depth", width, 1), ("jobs", 1, width)):
                        job = boxed.fio(
                            device, ioengine="libaio", iodepth=depth, numjobs=jobs, rw=load,
                            bs="4k", time_based=1, runtime=f"{settings.SECONDS * 1000:g}ms")
                        figures = job[load.removeprefix("rand")]
                        yield {"stack": stack, "load": load, "kind": kind, "width": width,
                               "per_s": figures["iops"],
                               "mean_us": figures["lat_ns"]["mean"] / 1000}
        progress(f"{stack} done")


def _resident() -> int:
    """Return the bytes of the module's vmalloc memory."""
    return sum(int(line.split()[1]) for line in Path("/proc/vmallocinfo").read_text().splitlines()
               if "[dm_vcache]" in line)


def _pool_words(dm: Dm) -> list[str]:
    return dm.status("pool")[0].arguments.split()


def _cache_words(dm: Dm) -> list[str]:
    words = dm.status("volume")[0].arguments.split()
    return words[words.index("cache") + 1:]


@contextmanager
def _crashed(megabytes: int, share: float) -> Iterator[tuple[str, str]]:
    """Leave a pool in the state of a crash; give its device and the volume's origin."""
    dirty = int(megabytes * share)
    usable = boxed.linear("/dev/origin", megabytes)
    refusing = f"0 {boxed.sectors(megabytes)} flakey /dev/origin 0 0 3600 1 error_writes"
    with boxed.ssd("ssd", megabytes, settings.SSD_US) as ssd, \
            boxed.ssd("origin", megabytes, settings.SSD_US), \
            mapped("below", usable) as origin, \
            mapped("cache", boxed.linear(ssd, megabytes)) as cache:
        with boxed.pool(cache, megabytes), boxed.volume(origin, megabytes) as volume:
            # This keeps all data dirty.
            boxed.swap("below", refusing)
            boxed.fio(volume, ioengine="psync", rw="write", bs="64k", size=f"{dirty}m", end_fsync=1)
            # From here on, all writes are lost.
            boxed.swap("cache", f"0 {boxed.sectors(megabytes)} error")
        boxed.swap("below", usable)
        boxed.swap("cache", boxed.linear(ssd, megabytes))
        yield cache, origin


def recovery() -> Iterator[dict[str, object]]:
    """Measure the recovery time of a crashed cache, and its memory afterwards."""
    for megabytes in settings.RECOVERED_MB:
        for share in settings.DIRTY_SHARES:
            before = _resident()
            with _crashed(megabytes, share) as (cache, origin), Dm() as dm, \
                    _timed(dm, "pool", megabytes, "vcache-pool", cache) as (path, pool_s), \
                    _timed(dm, "volume", megabytes, "vcache", f"writeback {origin} volume 1 3 "
                           f"pool {path} 1") as (_, volume_s):
                words, pool = _cache_words(dm), _pool_words(dm)
                yield {"cache_mb": megabytes, "dirty_share": share, "pool_s": pool_s,
                       "volume_s": volume_s, "volume": words, "pool": pool,
                       "resident_bytes": _resident() - before}
            progress(f"recovery of {megabytes} MiB, {share:.0%} dirty: done")


def drain() -> dict[str, float]:
    """Measure how fast dirty data reaches a slow disk, compared with the disk itself."""
    size = settings.DRAINED_MB
    with boxed.slow_disk("slow", size, settings.SLOW_US) as slow, Dm() as dm:
        bare = {f"{name}_s": boxed.fio(slow, ioengine="libaio", iodepth=16, bs=block, rw=load,
                                  end_fsync=1)["job_runtime"] / 1000
                for name, block, load in (("random", "4k", "randwrite"),
                                          ("sequential", "512k", "write"))}
        with boxed.ssd("ssd", 4 * size, settings.SSD_US) as ssd, boxed.pool(ssd, 4 * size), \
                boxed.volume(slow, size) as volume:
            boxed.fio(volume, ioengine="libaio", iodepth=16, bs="4k", rw="randwrite", end_fsync=1)
            dirty, took = far.drain(dm, 0.01, _LIMIT_S)
    progress("drain done")
    return {**bare, "drain_s": took, "dirty_sectors": dirty}


def main() -> None:
    """Run the measurements of a part."""
    parser = argparse.ArgumentParser(prog="python -m bench.scale.inside", description=__doc__)
    parser.add_argument("part", choices=("main", "destage"))
    parser.add_argument("out", type=Path, help="file for the results")
    options = parser.parse_args()
    with explained("bench-scale"):
        boxed.prepare()
        found: dict[str, Any] = {}
        if options.part == "destage":
            with step("destage"):
                found["destage"] = far.destage()
        else:
            with step("drain"):
                found["drain"] = drain()
            with step("recovery"):
                found["recovery"] = list(recovery())
            with step("widths"):
                found["widths"] = list(widths())
        options.out.write_text(json.dumps(found))


if __name__ == "__main__":
    main()
