# SPDX-License-Identifier: Apache-2.0
"""Write amplification of four tenants without and with placement handles.

``python -m bench.fdp`` writes build/bench/fdp.json and prints a table.
"""

import json
import os
import statistics
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

from bench import simulated

OUT = simulated.ROOT / "build" / "bench"
SEEDS = (1, 2, 3)
#: Placement handles that the tenants use.
HANDLES = {"without": 1, "with": 4}
#: Why the drive programs blocks.
CAUSES = ("host", "gc", "log", "map", "padding", "merge")

Counters = dict[str, int]


def build(folder: Path = OUT / "fdp") -> Path:
    """Compile the program, and return its path."""
    return simulated.build(folder / "fdp", ["bench/fdp/*.c"])


def measure(program: Path, handles: int, seed: int) -> Counters:
    """Run the load once, and return its counters."""
    done = subprocess.run([program, str(handles), str(seed)], capture_output=True, text=True,
                          check=True)
    return {name: int(value) for name, value in map(str.split, done.stdout.splitlines())}


def figures(counters: Counters) -> dict[str, Any]:
    """Compute the figures of a run.

    ``device_waf`` is what log page 22h has: media bytes over bytes that the host wrote. Blocks
    overwritten in the write buffer are never programmed, so ``programmed_waf`` leaves them out.
    """
    programmed = sum(counters[cause] for cause in CAUSES)
    return {
        "device_waf": round(programmed / counters["written"], 3),
        "programmed_waf": round(programmed / counters["host"], 3),
        "programmed": {cause: counters[cause] for cause in CAUSES},
        "erases": counters["erases"],
        "written": counters["written"],
    }


def median(runs: list[dict[str, Any]]) -> dict[str, Any]:
    """Return the run whose device_waf is the median, with all values of it."""
    runs = sorted(runs, key=lambda run: run["device_waf"])
    chosen = runs[len(runs) // 2]
    assert chosen["device_waf"] == statistics.median_high(  # noqa: S101 - own arithmetic
        run["device_waf"] for run in runs)
    return chosen | {"all_device_waf": [run["device_waf"] for run in runs]}


def main() -> None:
    """Measure, store and print."""
    program = build()
    with ThreadPoolExecutor(os.cpu_count()) as pool:
        jobs = {name: [pool.submit(measure, program, handles, seed) for seed in SEEDS]
                for name, handles in HANDLES.items()}
        found = {name: [job.result() for job in runs] for name, runs in jobs.items()}
    first = found["with"][0]
    result: dict[str, Any] = {
        "drive": {"capacity_blocks": first["capacity"], "reclaim_unit_blocks": first["unit"],
                  "block_bytes": 4096},
        "tenants": {name.removeprefix("blocks."): blocks for name, blocks in first.items()
                    if name.startswith("blocks.")},
        "seeds": list(SEEDS),
        **{name: median([figures(run) for run in runs]) for name, runs in found.items()},
    }
    (OUT / "fdp.json").write_text(json.dumps(result, indent=2) + "\n")
    print(f"{'handles':8} {'device WAF':>10} {'erases':>8} {'moved blocks':>13}")
    for name in HANDLES:
        run = result[name]
        print(f"{name:8} {run['device_waf']:10.3f} {run['erases']:8} "
              f"{run['programmed']['gc']:13}")
    print(f"build/bench/fdp.json written; aim: device WAF with handles at most 1.05: "
          f"{'reached' if result['with']['device_waf'] <= 1.05 else 'missed'}", file=sys.stderr)


if __name__ == "__main__":
    main()
