# SPDX-License-Identifier: Apache-2.0
"""Compare caches for one, two and four writing tenants: ``python -m bench.write [STACK...]``.

Boots boxes in virtual time, so the figures do not depend on the load of the machine,
and runs the same loads on each stack (loads.sh). Writes build/bench/write.json and
build/bench/write.png.
"""

import argparse
import json
import shutil
import sys
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict
from pathlib import Path

from bench import virtual
from bench.peers import result
from bench.peers.result import DIRECTSYNC, Result
from bench.peers.result import STACKS as CACHES
from bench.write import figures, plot

OUT = virtual.ROOT / "build" / "bench"
STACKS = (*CACHES, DIRECTSYNC)
TENANTS = (1, 2, 4)
METHOD = ("fio psync in QEMU icount shift=0 (1 ns an instruction), one CPU; SSD: null_blk with "
          "volatile cache, 80 us; origins: one disk, 4 ms a request, one at a time")


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


def record(raw: Path, module: Path, release: str, stack: str) -> list[Result]:
    """Run all loads on one stack; those that the SSD does not hold in a separate box.

    Without a slow disk, only what the SSD holds can run.
    """
    outruns = stack != DIRECTSYNC
    for setup in ("fits", figures.OUTRUN) if outruns else ("fits",):
        virtual.run("bench-write", release,
                    ["sh", "bench/write/loads.sh", str(raw), str(module), setup, stack],
                    memory="4G", timeout=7200)
    return [result.read(raw, stack, load, tenants)
            for load in figures.FITS for tenants in TENANTS] \
        + ([result.read(raw, stack, figures.OUTRUN, 2)] if outruns else [])


def main() -> int:
    """Measure and report."""
    parser = argparse.ArgumentParser(prog="python -m bench.write", description=__doc__)
    parser.add_argument("stack", nargs="*", metavar="STACK", help=f"some of {', '.join(STACKS)}")
    parser.add_argument("--boxes", type=int, default=1, help="boxes that run at a time (1)")
    arguments = parser.parse_args()
    stacks = arguments.stack or list(STACKS)
    if unknown := set(stacks) - set(STACKS):
        parser.error(f"no such stack: {', '.join(sorted(unknown))}")
    raw = OUT / "write"
    release, module = virtual.built("bench-write")
    shutil.rmtree(raw, ignore_errors=True)
    raw.mkdir(parents=True)
    with ThreadPoolExecutor(arguments.boxes) as pool:
        runs = [run for found in pool.map(lambda stack: record(raw, module, release, stack), stacks)
                for run in found]
    summary = figures.summary(runs) if set(stacks) > {figures.US} else None
    report = {"summary": summary, "runs": [asdict(run) for run in runs],
              "definitions": figures.DEFINITIONS, "kernel": release, "method": METHOD,
              "neighbour_loss_pct": {stack: figures.loss(runs, stack) for stack in stacks}}
    (OUT / "write.json").write_text(json.dumps(report, indent=1) + "\n")
    plot.draw(runs, OUT / "write.png")
    print(table(runs))
    print(json.dumps(summary, indent=1))
    print("bench-write: build/bench/write.json, build/bench/write.png")
    return 0


if __name__ == "__main__":
    sys.exit(main())
