# SPDX-License-Identifier: Apache-2.0
"""Compare caches under databases: ``python -m bench.database [STACK...]``.

Runs PostgreSQL (pgbench) and SQLite on tenant 1 in boxes in virtual time, alone and beside
tenant 2 (loads.sh). Writes build/bench/database.json and database.png.
"""

import argparse
import json
import os
import shutil
import sys
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict
from itertools import product
from pathlib import Path

from bench import virtual
from bench.database import figures, plot, template
from bench.database.figures import LOADS, Run
from bench.peers.result import DIRECTSYNC, STACKS

OUT = virtual.ROOT / "build" / "bench"
# MiB of SSD for each tenant: with the one in the middle, the database and its log just fit.
SIZES = (48, 96, 192)
_NORMAL = 96

METHOD = ("PostgreSQL, pgbench TPC-B, scale 5, four clients; SQLite, WAL, synchronous=FULL; ext4; "
          "QEMU icount shift=0 (1 ns an instruction), one CPU; SSD: null_blk with volatile cache, "
          "80 us; origins: one disk, 4 ms a request, one at a time; two tenants of 248 MiB")


def record(raw: Path, options: argparse.Namespace, case: tuple[str, int, int]) -> list[Run]:
    """Run the loads on one stack, in a separate box.

    :param case: stack, MiB of SSD for each tenant, number of the run
    """
    stack, size, seed = case
    release, module = virtual.built("bench-database")
    virtual.run("bench-database", release,
                ["env", f"SECONDS_EACH={options.seconds}", f"SECONDS_WARM={options.warm}",
                 "sh", "bench/database/loads.sh", str(raw), str(module),
                 str(raw / "template.tar"), str(size), str(seed), " ".join(options.loads), stack],
                memory="4G", timeout=14400)
    return [figures.read(raw, stack, load, size, seed, options.seconds)
            for load in options.loads]


def table(runs: list[Run]) -> str:
    """Return the figures as text."""
    lines = [f"{'SSD':>4} {'load':8}{'stack':15}{'seed':>4}{'transactions/s':>15}"
             f"{'p50/p99/max ms':>20}{'tenant 2/s':>11}{'MiB written':>12}"
             f"{'SSD MiB written/copied/read':>29}{'disk MiB/KiB a write':>22}"
             f"{'FLUSH':>8}{'idle %':>8}"]
    for run in sorted(runs, key=lambda run: (run.ssd_mib, LOADS.index(run.load), run.stack)):
        us = run.transaction_us
        latency = "/".join(f"{us[name] / 1000:.1f}" for name in ("p50", "p99", "max"))
        copied = "?" if run.ssd_copied is None else run.ssd_copied >> 20
        ssd = f"{run.ssd_written >> 20}/{copied}/{run.ssd_read >> 20}"
        disk = f"{run.disk_written >> 20}/{run.disk_written / 1024 / (run.disk_writes or 1):.0f}"
        lines.append(f"{run.ssd_mib:4} {run.load:8}{run.stack:15}{run.seed:4}{run.per_s:15.0f}"
                     f"{latency:>20}{run.neighbour_per_s:11.0f}{run.volume_written >> 20:12}"
                     f"{ssd:>29}{disk:>22}{run.flushes:8}{100 * run.idle:8.0f}")
    return "\n".join(lines)


def arguments() -> argparse.Namespace:
    """Return the command line's options, checked."""
    parser = argparse.ArgumentParser(prog="python -m bench.database", description=__doc__)
    parser.add_argument("stack", nargs="*", metavar="STACK",
                        help=f"some of {', '.join(STACKS)} (these); {DIRECTSYNC}: the SSD itself")
    parser.add_argument("--loads", nargs="+", choices=LOADS, default=LOADS)
    parser.add_argument("--sizes", nargs="+", type=int, default=SIZES, metavar="MIB",
                        help=f"MiB of SSD for each tenant ({' '.join(map(str, SIZES))})")
    parser.add_argument("--seeds", type=int, default=3, help="runs of each (3)")
    parser.add_argument("--seconds", type=int, default=20, help="duration of a load (20)")
    parser.add_argument("--warm", type=int, default=10, help="duration of the warm-up (10)")
    parser.add_argument("--boxes", type=int, default=os.cpu_count() or 1,
                        help="boxes that run at a time (one for each processor)")
    options = parser.parse_args()
    options.stack = options.stack or list(STACKS)
    if unknown := set(options.stack) - {*STACKS, DIRECTSYNC}:
        parser.error(f"no such stack: {', '.join(sorted(unknown))}")
    options.loads = [load for load in LOADS if load in options.loads]
    return options


def main() -> int:
    """Measure and report."""
    options = arguments()
    raw = OUT / "database"
    shutil.rmtree(raw, ignore_errors=True)
    raw.mkdir(parents=True)
    template.make(raw / "template.tar")
    cases = product(options.stack, options.sizes, range(1, options.seeds + 1))
    with ThreadPoolExecutor(options.boxes) as pool:
        runs = [run for found in pool.map(lambda case: record(raw, options, case), cases)
                for run in found]
    compared = set(options.stack) - {DIRECTSYNC} > {figures.US}
    summaries = {size: figures.summary([run for run in runs if run.ssd_mib == size])
                 for size in options.sizes} if compared else {}
    normal = _NORMAL if _NORMAL in options.sizes else options.sizes[0]
    report = {"summary": summaries.get(normal), "summary_by_ssd_mib": summaries,
              "runs": [asdict(run) for run in runs], "definitions": figures.DEFINITIONS,
              "seconds": options.seconds, "kernel": virtual.built("bench-database")[0],
              "method": METHOD}
    (OUT / "database.json").write_text(json.dumps(report, indent=1) + "\n")
    plot.draw(runs, OUT / "database.png")
    print(table(runs))
    print(json.dumps(summaries, indent=1))
    print("bench-database: build/bench/database.json, build/bench/database.png")
    return 0


if __name__ == "__main__":
    sys.exit(main())
