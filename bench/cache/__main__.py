# SPDX-License-Identifier: Apache-2.0
"""Compare caches for tenants with different working sets: ``python -m bench.cache [STACK...]``.

Boots a box in virtual time for each stack and number of tenants, and runs the
same loads in each (loads.sh). Writes build/bench/cache.json and cache.png.
"""

import argparse
import json
import shutil
import sys
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict
from itertools import product
from pathlib import Path

from bench import virtual
from bench.cache import figures, plot
from bench.peers import result
from bench.peers.result import Result

OUT = virtual.ROOT / "build" / "bench"
LOADS = ("reads", "mixed", "alone", "neighbours")
TENANTS = (2, 4)

METHOD = ("fio psync in QEMU icount shift=0 (1 ns an instruction), one CPU; SSD: 192 MiB, null_blk "
          "with volatile cache, 80 us; origins: one disk, 4 ms a request, one at a time")


def record(raw: Path, module: Path, release: str, stack: str, tenants: int) -> list[Result]:
    """Run all loads on one stack, in a separate box."""
    virtual.run("bench-cache", release, ["env", f"PYTHON={sys.executable}", "sh",
                                         "bench/cache/loads.sh", str(raw), str(module),
                                         str(tenants), stack], memory="4G", timeout=7200)
    return [result.read(raw, stack, load, tenants) for load in LOADS]


def table(results: list[Result]) -> str:
    """Return the figures as text."""
    lines = [f"{'load':11}{'stack':14}{'operations/s each':>34}{'missed':>8}"
             f"{'fsync p50/p99/max us':>24}{'SSD KiB a write':>16}{'FLUSH':>7}"]
    for run in sorted(results, key=lambda run: (run.of, LOADS.index(run.load))):
        fsync = result.slowest_fsync(run)
        latency = "/".join(f"{fsync[name]:.0f}" for name in ("p50", "p99", "max")) \
            if fsync else "-"
        each = " ".join(f"{figures.operations(one):.0f}" for one in run.tenants)
        size = run.ssd_mib * 1024 / run.ssd_writes if run.ssd_writes else 0
        lines.append(f"{run.load:11}{run.stack:14}{each:>34}{figures.missed(run):8.3f}"
                     f"{latency:>24}{size:16.0f}{run.ssd_flushes:7}")
    return "\n".join(lines)


def main() -> int:
    """Measure and report."""
    parser = argparse.ArgumentParser(prog="python -m bench.cache", description=__doc__)
    parser.add_argument("stack", nargs="*", metavar="STACK",
                        help=f"some of {', '.join(figures.STACKS)}")
    parser.add_argument("--boxes", type=int, default=1, help="boxes that run at a time (1)")
    arguments = parser.parse_args()
    stacks = arguments.stack or list(figures.STACKS)
    if unknown := set(stacks) - set(figures.STACKS):
        parser.error(f"no such stack: {', '.join(sorted(unknown))}")
    release, module = virtual.built("bench-cache")
    raw = OUT / "cache"
    shutil.rmtree(raw, ignore_errors=True)
    raw.mkdir(parents=True)
    with ThreadPoolExecutor(arguments.boxes) as pool:
        runs = pool.map(lambda case: record(raw, module, release, *case),
                        product(stacks, TENANTS))
        results = [one for run in runs for one in run]
    peers = set(stacks) - {figures.US, figures.WITH_MRC}
    summary = figures.summary(results) if figures.US in stacks and peers else None
    figure = {"summary": summary, "runs": [asdict(one) for one in results],
              "definitions": figures.DEFINITIONS, "kernel": release, "method": METHOD}
    (OUT / "cache.json").write_text(json.dumps(figure, indent=1) + "\n")
    plot.draw(results, OUT / "cache.png")
    print(table(results))
    print(json.dumps(summary, indent=1))
    print("bench-cache: build/bench/cache.json, build/bench/cache.png")
    return 0


if __name__ == "__main__":
    sys.exit(main())
