# SPDX-License-Identifier: Apache-2.0
"""Repeat the vFLUSH paper's experiments: ``python -m bench.vflush [simulation|box]``.

Writes build/bench/vflush.json and plots beside it, and prints a table beside the
published figures. With an argument, only that part is measured again, and the
other is taken from the last run.
"""

import json
import sys
import time
from pathlib import Path
from typing import Any

from bench.vflush import boxpoints, figures, plots, settings, simulate, table
from bench.vflush.box import measure

OUT = simulate.ROOT / "build" / "bench"
PARTS = ("simulation", "box")


def say(text: str) -> None:
    """Print a line of progress."""
    print(f"bench-vflush: {text}", file=sys.stderr, flush=True)


def measured(part: str) -> dict[str, Any]:
    """Measure one part, and store its counters."""
    started = time.monotonic()
    result: dict[str, Any]
    if part == "simulation":
        say(f"simulating {len(simulate.experiments())} runs on the preconditioned SSD")
        result = {"runs": simulate.run(simulate.build(), simulate.experiments(), report=say)}
    else:
        say(f"booting the box for {', '.join(settings.BOX_SYSTEMS)}")
        kernel, runs = measure.measure(OUT / "vflush", list(settings.BOX_SYSTEMS))
        result = {"kernel": kernel, "runs": runs}
    (OUT / "vflush" / f"{part}-runs.json").write_text(json.dumps(result))
    say(f"{part}: {time.monotonic() - started:.0f} s")
    return result


def kept(part: str) -> dict[str, Any]:
    """Return the counters of the last run."""
    path = OUT / "vflush" / f"{part}-runs.json"
    if not path.exists():
        raise SystemExit(f"bench-vflush: {part} has not been measured: run `make bench-vflush`")
    result: dict[str, Any] = json.loads(path.read_text())
    return result


def report(simulation: dict[str, Any], box: dict[str, Any]) -> dict[str, Any]:
    """Compute the contents of the JSON from the counters."""
    runs = simulation["runs"]
    simulated, boxed = figures.points(runs), boxpoints.points(box["runs"])
    page_kib = runs[0]["page_blocks"] * 4
    systems = {
        name: {
            "points": found,
            "against_baseline": figures.against(found, simulated["baseline"]),
            "vm1_loss_pct": figures.loss(found, "vm1_mb_s"),
            "vm2_loss_pct": figures.loss(found, "vm2_mb_s"),
            "composition_pct": {every: figures.composition(one, page_kib)
                                for every, one in found.items()},
        } for name, found in simulated.items()}
    return {
        "settings": {"hardware": settings.HARDWARE, "systems": settings.SYSTEMS,
                     "seeds": dict.fromkeys(settings.ATTRIBUTION, settings.SEEDS),
                     "warm_ms": settings.WARM_MS, "run_ms": settings.RUN_MS,
                     "box": settings.BOX, "box_drive": settings.BOX_DRIVE,
                     "box_systems": settings.BOX_SYSTEMS,
                     "kernel": box["kernel"]},
        "published": settings.PUBLISHED,
        "aims": settings.AIMS,
        "simulation": {"systems": systems, "macro": figures.macro(runs), "runs": runs,
                       "tags_against_namespaces": figures.attribution(simulated)},
        "box": {
            "systems": {name: {"points": found,
                               "against_baseline": figures.against(found, boxed["baseline"]),
                               "vm1_loss_pct": figures.loss(found, "vm1_mb_s")}
                        for name, found in boxed.items()},
            "runs": box["runs"]},
        "summary": {
            "tagged": figures.summary(simulated["tagged"], simulated["baseline"]),
            "full": figures.summary(boxed["full"], boxed["baseline"])},
    }


def write(result: dict[str, Any], folder: Path) -> None:
    """Write the JSON and the plots."""
    (OUT / "vflush.json").write_text(json.dumps(result, indent=1) + "\n")
    runs = result["simulation"]["runs"]
    plots.draw_simulation(folder, [run for run in runs if run["seed"] == settings.SEEDS[0]],
                          figures.points(runs))
    plots.draw_box(folder, boxpoints.points(result["box"]["runs"]))


def main() -> int:
    """Measure, compute, report."""
    wanted = sys.argv[1:] or list(PARTS)
    if set(wanted) - set(PARTS):
        raise SystemExit(f"bench-vflush: {' '.join(wanted)}: must be simulation or box")
    folder = OUT / "vflush"
    folder.mkdir(parents=True, exist_ok=True)
    found = {part: measured(part) if part in wanted else kept(part) for part in PARTS}
    result = report(found["simulation"], found["box"])
    write(result, folder)
    print(table.text(result))
    say("build/bench/vflush.json, plots in build/bench/vflush/")
    return 0


if __name__ == "__main__":
    sys.exit(main())
