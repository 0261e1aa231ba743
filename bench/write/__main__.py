# SPDX-License-Identifier: Apache-2.0
"""Compare caches for one, two and four writing tenants: ``python -m bench.write [STACK...]``.

Boots the box in virtual time, so the figures do not depend on the load of the machine,
and runs the same loads on each stack (loads.sh). Writes build/bench/write.json and
build/bench/write.png.
"""

import argparse
import json
import shutil
import sys
from dataclasses import asdict
from pathlib import Path

from bench import virtual
from bench.peers import result
from bench.peers.result import STACKS, Result
from bench.write import plot

OUT = virtual.ROOT / "build" / "bench"
LOADS = ("sync", "mixed", "sequential", "neighbour")
TENANTS = (1, 2, 4)


def loss(runs: list[Result], stack: str) -> dict[int, float]:
    """Return the loss of a tenant that never syncs by others that do, in percent."""
    alone, *others = [run for run in runs if run.stack == stack and run.load == "neighbour"]
    return {len(run.tenants): 100 * (1 - run.tenants[0].writes / alone.tenants[0].writes)
            for run in others}


def table(runs: list[Result]) -> str:
    """Return the figures as text."""
    lines = [f"{'stack':14}{'load':12}{'tenants':>8}{'writes/s each':>22}"
             f"{'fsync p50/p99/max us':>26}{'SSD writes':>12}{'FLUSH':>8}"]
    for run in runs:
        slowest = result.slowest_fsync(run)
        latency = "/".join(f"{slowest[name]:.0f}" for name in ("p50", "p99", "max")) \
            if slowest else "-"
        each = " ".join(f"{one.writes:.0f}" for one in run.tenants)
        lines.append(f"{run.stack:14}{run.load:12}{len(run.tenants):8}{each:>22}{latency:>26}"
                     f"{run.ssd_writes:12}{run.ssd_flushes:8}")
    return "\n".join(lines)


def record(raw: Path, stacks: list[str]) -> str:
    """Run the stacks in one box, and return the kernel release."""
    release, module = virtual.built("bench-write")
    shutil.rmtree(raw, ignore_errors=True)
    raw.mkdir(parents=True)
    virtual.run("bench-write", release,
                ["sh", "bench/write/loads.sh", str(raw), str(module), *stacks],
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
    # bcache's devices cannot be removed.
    stacks.sort(key=lambda stack: stack == "bcache")
    release = record(raw, stacks)
    runs = [result.read(raw, stack, load, tenants)
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
