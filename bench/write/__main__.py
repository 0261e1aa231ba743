# SPDX-License-Identifier: Apache-2.0
"""Writes of one, two and four tenants through a cache: ``python -m bench.write [STACK...]``.

Boots the box in virtual time, so that the figures repeat whatever else the
machine does, and runs the same loads on each stack: see stacks.sh. Writes
build/bench/write.json and build/bench/write.png.
"""

import argparse
import json
import shutil
import sys
from dataclasses import asdict, dataclass
from pathlib import Path

from bench import virtual
from bench.write import plot

OUT = virtual.ROOT / "build" / "bench"
STACKS = ("vcache", "dm-writecache", "dm-cache", "bcache")
LOADS = ("sync", "mixed", "sequential", "neighbour")
TENANTS = (1, 2, 4)

# Fields of /sys/block/DEVICE/stat (Documentation/admin-guide/iostats.rst).
_WRITES, _WRITE_SECTORS, _FLUSHES = 4, 6, 15


@dataclass(frozen=True)
class Tenant:
    """What one tenant got.

    :param writes: a second
    :param reads: a second
    :param fsync_us: percentiles of its fsyncs in microseconds, and the longest
    """

    writes: float
    reads: float
    fsync_us: dict[str, float]


@dataclass(frozen=True)
class Run:
    """One load on one stack.

    :param ssd_writes: requests that the SSD got, with what went on behind
    :param ssd_mib: their size
    :param ssd_flushes: FLUSH commands that it got
    """

    stack: str
    load: str
    tenants: list[Tenant]
    ssd_writes: int
    ssd_mib: float
    ssd_flushes: int


def tenant(job: dict[str, dict[str, object]]) -> Tenant:
    """Return what fio says of a job."""
    seconds = job["job_runtime"] / 1000  # type: ignore[operator]
    sync = job["sync"]["lat_ns"]
    assert isinstance(sync, dict)  # noqa: S101
    found = sync.get("percentile", {})
    wanted = {"p50": "50.000000", "p99": "99.000000", "p99.9": "99.900000"}
    latency = {name: found[key] / 1000 for name, key in wanted.items() if key in found}
    if latency:
        latency["max"] = sync["max"] / 1000
    return Tenant(job["write"]["total_ios"] / seconds,  # type: ignore[operator]
                  job["read"]["total_ios"] / seconds, latency)  # type: ignore[operator]


def read_run(raw: Path, stack: str, load: str, tenants: int) -> Run:
    """Collect what a run has left in the folder `raw`."""
    name = f"{stack}-{load}-{tenants}"
    jobs = json.loads((raw / f"{name}.json").read_text())["jobs"]
    if any(job["error"] for job in jobs):
        raise SystemExit(f"bench-write: {name}: fio failed")
    before, after = ([int(word) for word in (raw / f"{name}.{when}").read_text().split()]
                     for when in ("before", "after"))
    change = [new - old for old, new in zip(before, after, strict=True)]
    return Run(stack, load, [tenant(job) for job in jobs], change[_WRITES],
               change[_WRITE_SECTORS] / 2048, change[_FLUSHES])


def loss(runs: list[Run], stack: str) -> dict[int, float]:
    """Return what a tenant that never syncs loses to others that do, in percent."""
    alone, *others = [run for run in runs if run.stack == stack and run.load == "neighbour"]
    return {len(run.tenants): 100 * (1 - run.tenants[0].writes / alone.tenants[0].writes)
            for run in others}


def table(runs: list[Run]) -> str:
    """Return the figures as people read them."""
    lines = [f"{'stack':14}{'load':12}{'tenants':>8}{'writes/s each':>22}"
             f"{'fsync p50/p99/max us':>26}{'SSD writes':>12}{'FLUSH':>8}"]
    for run in runs:
        slowest = max(run.tenants, key=lambda one: one.fsync_us.get("p99", 0)).fsync_us
        latency = "/".join(f"{slowest[name]:.0f}" for name in ("p50", "p99", "max")) \
            if slowest else "-"
        each = " ".join(f"{one.writes:.0f}" for one in run.tenants)
        lines.append(f"{run.stack:14}{run.load:12}{len(run.tenants):8}{each:>22}{latency:>26}"
                     f"{run.ssd_writes:12}{run.ssd_flushes:8}")
    return "\n".join(lines)


def record(raw: Path, stacks: list[str]) -> str:
    """Run the stacks in one box and return the kernel's release."""
    release, module = virtual.built("bench-write")
    shutil.rmtree(raw, ignore_errors=True)
    raw.mkdir(parents=True)
    virtual.run("bench-write", release,
                ["sh", "bench/write/stacks.sh", str(raw), str(module), *stacks],
                memory="4G", timeout=7200)
    return release


def main() -> int:
    """Measure and report."""
    parser = argparse.ArgumentParser(prog="python -m bench.write", description=__doc__)
    parser.add_argument("stack", nargs="*", metavar="STACK", help=f"some of {', '.join(STACKS)}")
    stacks = parser.parse_args().stack or list(STACKS)
    if unknown := set(stacks) - set(STACKS):
        parser.error(f"no such stack: {', '.join(sorted(unknown))}")
    raw = OUT / "write"
    # bcache's devices do not go away.
    stacks.sort(key=lambda stack: stack == "bcache")
    release = record(raw, stacks)
    runs = [read_run(raw, stack, load, tenants)
            for stack in stacks for load in LOADS for tenants in TENANTS]
    figures = {"runs": [asdict(run) for run in runs], "kernel": release,
               "neighbour_loss_pct": {stack: loss(runs, stack) for stack in stacks},
               "method": "fio psync in QEMU icount shift=0 (1 ns an instruction), one CPU; SSD: "
                         "null_blk with volatile cache, 80 us; origins: one disk, 4 ms a request"}
    (OUT / "write.json").write_text(json.dumps(figures, indent=1) + "\n")
    plot.draw(runs, OUT / "write.png")
    print(table(runs))
    print("bench-write: build/bench/write.json, build/bench/write.png")
    return 0


if __name__ == "__main__":
    sys.exit(main())
