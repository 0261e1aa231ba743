# SPDX-License-Identifier: Apache-2.0
"""Measure random writes with fsync to images on, or cached by, an SSD: ``python -m bench.svd``.

Writes build/bench/svd.json and build/bench/svd.png, and prints a table beside
the SVD paper's figures. It uses virtual time: see README.md.
"""

import argparse
import json
import os
import sys
import time
from pathlib import Path
from typing import Any

from bench.svd import figures, plot, settings, table
from bench.svd.box import measure

OUT = Path(__file__).resolve().parents[2] / "build" / "bench"

METHOD = (
    "fio psync, O_DIRECT, 4 KiB at random and evenly over the working set of a virtual disk "
    "(qemu-nbd, cache=none, image on ext4) in QEMU icount shift=0 (1 ns an instruction), one CPU. "
    "SSD: vcache-ssd over NVMe/TCP and loopback, every block of it written before. direct: the "
    "image fills the SSD. vcache: the image is on the slow disk, as in the paper, and all of the "
    "SSD is a vcache-pool before it; what the slow disk is given to do counts in the time.")


def report(kernel: str, runs: list[dict[str, Any]]) -> dict[str, Any]:
    """Compute the contents of the JSON from the counters."""
    cases = figures.compare(runs)
    return {
        "summary": figures.summary(cases),
        "means": {load: figures.mean(cases, load) for load in settings.LOADS},
        "cases": cases,
        "definitions": figures.DEFINITIONS,
        "published": settings.PUBLISHED,
        "aims": settings.AIMS,
        "method": METHOD,
        "settings": {"kernel": kernel,
                     "cache_per_working_set": settings.DRIVE_MB / settings.WORKING_SET_MB,
                     **{name.lower(): getattr(settings, name) for name in (
                         "DRIVE", "DRIVE_MB", "IMAGE_MB", "WORKING_SET_MB", "SLOW_US",
                         "BUFFER_MB", "AGE_WRITES", "SETTLE", "WARM_WRITES", "LOADS", "WRITES",
                         "SUMMARY_LOAD", "SEED")}},
        "runs": runs,
    }


def main() -> int:
    """Measure, compute, report."""
    parser = argparse.ArgumentParser(prog="python -m bench.svd", description=__doc__)
    parser.add_argument("--boxes", type=int, default=min(2, os.cpu_count() or 1),
                        help="boxes that run at a time (default: 2, or 1 on one processor)")
    boxes = parser.parse_args().boxes
    started = time.monotonic()
    kernel, runs = measure.measure(OUT / "svd", boxes)
    result = report(kernel, runs)
    (OUT / "svd.json").write_text(json.dumps(result, indent=1) + "\n")
    plot.draw(result, OUT / "svd.png")
    print(table.text(result))
    print(f"bench-svd: build/bench/svd.json, build/bench/svd.png "
          f"({time.monotonic() - started:.0f} s)")
    return 0


if __name__ == "__main__":
    sys.exit(main())
