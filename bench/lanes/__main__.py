# SPDX-License-Identifier: Apache-2.0
"""Measure migration between shared and dedicated lanes: ``python -m bench.lanes [LOAD ...]``.

Boots the box in virtual time. A tag with a dedicated lane reads under several loads, beside a
tag with only the shared lane. Each load runs with the watermark and without migration. Writes
build/bench/lanes.json and lanes.png.
"""

import argparse
import json
import sys
from pathlib import Path
from typing import Any

from bench import virtual
from bench.lanes import figures, plot, settings

OUT = virtual.ROOT / "build" / "bench"


def measure(raw: Path, loads: list[str]) -> tuple[str, list[dict[str, Any]]]:
    """Return the kernel release and the measurements."""
    release, _ = virtual.built("bench-lanes")
    raw.parent.mkdir(parents=True, exist_ok=True)
    raw.unlink(missing_ok=True)
    virtual.run("bench-lanes", release,
                [sys.executable, "-m", "bench.lanes.inside", str(raw), *loads],
                memory="4G", timeout=5400)
    found: list[dict[str, Any]] = json.loads(raw.read_text())
    return release, found


def _waits(one: dict[str, float], name: str) -> str:
    return f"{one[f'{name}_p50_us']:.0f} / {one[f'{name}_p99_us']:.0f}"


def table(runs: list[dict[str, Any]]) -> str:
    """Return the figures as text."""
    lines = [f"{'load':6}{'phase':8}{'wm %':>5}{'hot % mean/end':>16}{'own hits %':>11}"
             f"{'hot in own %':>13}{'moved MiB':>10}{'hit %':>7}{'reads/s':>9}"
             f"{'read p50 / p99 us':>19}{'fsync':>12}   neighbour:"
             f"{'hit %':>6}{'reads/s':>9}{'read':>12}{'fsync':>12}"]
    for run in runs:
        for phase in run["phases"]:
            own = "-" if phase["hits_own"] is None else f"{phase['hits_own']:.0%}"
            lines.append(
                f"{run['load']:6}{phase['name']:8}{run['watermark']:5}"
                f"{phase['hot_mean']:9.0%} /{phase['hot_end']:5.0%}{own:>11}"
                f"{phase['hot_own'] / max(phase['hot'], 1):13.0%}{phase['migrated_mb']:10.1f}"
                f"{phase['hit']:7.1%}{phase['owner']['per_s']:9.0f}"
                f"{_waits(phase['owner'], 'read'):>19}{_waits(phase['owner_fsync'], 'fsync'):>12}"
                f"{'':13}{phase['neighbour_hit']:6.0%}{phase['neighbour']['per_s']:9.0f}"
                f"{_waits(phase['neighbour'], 'read'):>12}"
                f"{_waits(phase['neighbour_fsync'], 'fsync'):>12}")
    return "\n".join(lines)


def main() -> int:
    """Measure and report."""
    parser = argparse.ArgumentParser(prog="python -m bench.lanes", description=__doc__)
    parser.add_argument("load", nargs="*", help=f"some of {', '.join(settings.LOADS)}")
    loads = parser.parse_args().load
    if unknown := set(loads) - set(settings.LOADS):
        parser.error(f"no such load: {', '.join(sorted(unknown))}")
    release, runs = measure(OUT / "lanes" / "raw.json", loads)
    for run in runs:
        figures.add(run)
    summary = figures.summary(runs)
    (OUT / "lanes.json").write_text(json.dumps(
        {"summary": summary, "kernel": release, "runs": runs, "definitions": figures.DEFINITIONS,
         "method": "QEMU icount shift=0 (1 ns an instruction), one CPU; fio psync; a lane is a "
                   f"null_blk, {settings.SSD_US} us, one request at a time; slow disks: "
                   f"{settings.SLOW_US} us, one at a time"}, indent=1) + "\n")
    plot.draw(runs, OUT / "lanes.png")
    print(table(runs))
    print(json.dumps(summary, indent=1))
    print("bench-lanes: build/bench/lanes.json, build/bench/lanes.png")
    return 0


if __name__ == "__main__":
    sys.exit(main())
