# SPDX-License-Identifier: Apache-2.0
"""In the box, in virtual time: measure all of it, write it to the file that is named."""

import argparse
import json
import os
import time
from collections.abc import Iterator
from contextlib import AbstractContextManager, ExitStack, contextmanager
from pathlib import Path
from typing import Any

from bench.scale import settings
from tests.box.disks import mapped, null_block
from tests.box.inside import load_module, progress, run
from vcache_agent.dm import Dm, Line

_LONG = 3000


def _ssd(name: str, megabytes: int) -> AbstractContextManager[str]:
    return null_block(name, size=megabytes, memory_backed=1, irqmode=2,
                      completion_nsec=settings.SSD_US * 1000, submit_queues=1, hw_queue_depth=64,
                      cache_size=megabytes)


def _slow_disk(megabytes: int) -> AbstractContextManager[str]:
    return null_block("slow", size=megabytes, memory_backed=1, irqmode=2,
                      completion_nsec=settings.SLOW_US * 1000, submit_queues=1, hw_queue_depth=1)


def _sectors(megabytes: int) -> int:
    return megabytes * 2048


def _linear(path: str, megabytes: int) -> str:
    return f"0 {_sectors(megabytes)} linear {path} 0"


def _pool(path: str, megabytes: int) -> AbstractContextManager[str]:
    return mapped("pool", f"0 {_sectors(megabytes)} vcache-pool {path}")


def _volume(origin: str, megabytes: int) -> AbstractContextManager[str]:
    return mapped("volume", f"0 {_sectors(megabytes)} vcache writeback {origin} volume 1 3 pool "
                  "/dev/mapper/pool 1", timeout=_LONG)


def _swap(name: str, table: str) -> None:
    run("dmsetup", "load", name, "--table", table)
    run("dmsetup", "suspend", "--noflush", "--nolockfs", name)
    run("dmsetup", "resume", name)


def _fio(device: str, **options: object) -> dict[str, Any]:
    """Run fio and return its first job's figures."""
    options = {"name": "load", "filename": device, "direct": 1, "allow_file_create": 0,
               "thread": 1, "group_reporting": 1, "randrepeat": 1, **options}
    text = run("fio", "--output-format=json",
               *(f"--{name}={value}" for name, value in options.items()), timeout=_LONG)
    report: dict[str, Any] = json.loads(text[text.index("{"):])
    job: dict[str, Any] = report["jobs"][0]
    if job["error"]:
        raise SystemExit(f"bench-scale: fio failed on {device}")
    return job


@contextmanager
def _timed(dm: Dm, name: str, megabytes: int, target: str,
           arguments: str) -> Iterator[tuple[str, float]]:
    """Make a mapped device; give its path, and how long its table took to be in force.

    By ioctl: a program that has to start takes longer than what is measured.
    """
    dm.create(name)
    try:
        start = time.monotonic()
        dm.load(name, [Line(0, _sectors(megabytes), target, arguments)])
        dm.resume(name)
        took = time.monotonic() - start
        info = dm.info(name)
        assert info is not None  # noqa: S101
        yield info.path, took
    finally:
        dm.remove(name)


def widths() -> Iterator[dict[str, object]]:
    """Measure the rate of requests by how many are under way."""
    for stack in settings.STACKS:
        with ExitStack() as layers:
            ssd = layers.enter_context(_ssd("ssd", settings.CACHE_MB))
            if stack == "vcache":
                origin = layers.enter_context(_ssd("origin", settings.REGION_MB))
                layers.enter_context(_pool(ssd, settings.CACHE_MB))
                device = layers.enter_context(_volume(origin, settings.REGION_MB))
            else:
                device = layers.enter_context(
                    mapped("line", _linear(ssd, settings.REGION_MB)))
            _fio(device, ioengine="psync", rw="write", bs="64k", end_fsync=1)
            for load in settings.LOADS:
                for width in settings.WIDTHS:
                    for kind, depth, jobs in (("depth", width, 1), ("jobs", 1, width)):
                        job = _fio(device, ioengine="libaio", iodepth=depth, numjobs=jobs, rw=load,
                                   bs="4k", time_based=1, runtime=f"{settings.SECONDS * 1000:g}ms")
                        figures = job[load.removeprefix("rand")]
                        yield {"stack": stack, "load": load, "kind": kind, "width": width,
                               "per_s": figures["iops"],
                               "mean_us": figures["lat_ns"]["mean"] / 1000}
        progress(f"{stack} done")


def _resident() -> int:
    """Return the bytes that the module has from vmalloc."""
    return sum(int(line.split()[1]) for line in Path("/proc/vmallocinfo").read_text().splitlines()
               if "[dm_vcache]" in line)


def _pool_words(dm: Dm) -> list[str]:
    return dm.status("pool")[0].arguments.split()


def _cache_words(dm: Dm) -> list[str]:
    words = dm.status("volume")[0].arguments.split()
    return words[words.index("cache") + 1:]


def _dirty(dm: Dm) -> int:
    """Return the sectors of the volume that its origin has not."""
    return int(_cache_words(dm)[2])


@contextmanager
def _crashed(megabytes: int, share: float) -> Iterator[tuple[str, str]]:
    """Leave a pool as a crash does; give its device and the volume's origin."""
    dirty = int(megabytes * share)
    usable = _linear("/dev/origin", megabytes)
    refusing = f"0 {_sectors(megabytes)} flakey /dev/origin 0 0 3600 1 error_writes"
    with _ssd("ssd", megabytes) as ssd, _ssd("origin", megabytes), \
            mapped("below", usable) as origin, mapped("cache", _linear(ssd, megabytes)) as cache:
        with _pool(cache, megabytes), _volume(origin, megabytes) as volume:
            # So that all of it stays dirty.
            _swap("below", refusing)
            _fio(volume, ioengine="psync", rw="write", bs="64k", size=f"{dirty}m", end_fsync=1)
            # From here on nothing that is written arrives.
            _swap("cache", f"0 {_sectors(megabytes)} error")
        _swap("below", usable)
        _swap("cache", _linear(ssd, megabytes))
        yield cache, origin


def recovery() -> Iterator[dict[str, object]]:
    """Measure how long a crashed cache takes to be back, and the memory that it then has."""
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
    """Measure how fast dirty data reaches a slow disk, against the disk itself."""
    size = settings.DRAINED_MB
    with _slow_disk(size) as slow, Dm() as dm:
        bare = {f"{name}_s": _fio(slow, ioengine="libaio", iodepth=16, bs=block, rw=load,
                                  end_fsync=1)["job_runtime"] / 1000
                for name, block, load in (("random", "4k", "randwrite"),
                                          ("sequential", "512k", "write"))}
        with _ssd("ssd", 4 * size) as ssd, _pool(ssd, 4 * size), _volume(slow, size) as volume:
            _fio(volume, ioengine="libaio", iodepth=16, bs="4k", rw="randwrite", end_fsync=1)
            dirty = _dirty(dm)
            start = time.monotonic()
            dm.message("volume", "drain")
            while _dirty(dm):
                time.sleep(0.01)
            took = time.monotonic() - start
    progress("drain done")
    return {**bare, "drain_s": took, "dirty_sectors": dirty}


def main() -> None:
    """Measure all."""
    parser = argparse.ArgumentParser(prog="python -m bench.scale.inside", description=__doc__)
    parser.add_argument("out", type=Path, help="the file to write to")
    out: Path = parser.parse_args().out
    # It would look at each disk, on the only processor, and keep it from going.
    run("udevadm", "control", "--exit")
    # Else lvm and dmsetup say that udev runs and does not answer.
    Path("/run/udev/control").unlink(missing_ok=True)
    os.environ["DM_DISABLE_UDEV"] = "1"
    run("modprobe", "null_blk", "nr_devices=0")
    run("modprobe", "dm-flakey")
    load_module()
    found = {"drain": drain(), "recovery": list(recovery()), "widths": list(widths())}
    out.write_text(json.dumps(found))


if __name__ == "__main__":
    main()
