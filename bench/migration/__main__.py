# SPDX-License-Identifier: Apache-2.0
"""Measure synchronous writes across a live migration: ``python -m bench.migration [MODE...]``.

Runs two hosts with a shared disk (tests/pair), whose writes take 5 ms each. Writes
build/bench/migration.json and build/bench/migration.png.
"""

import argparse
import json
import sys
import tempfile
from pathlib import Path
from typing import Any

from bench.migration import plot
from tests.box import uml
from tests.box.guest import image
from tests.box.kernels import default
from tests.box.machine import REPO
from tests.pair.__main__ import run

OUT = REPO / "build" / "bench"
WRITE_MS = 5
MODES = ("writeback", "writethrough", "flush-only")
METHOD = ("two machines of User Mode Linux with one processor each, in real time; guests under "
          f"TCG; one disk for both, {WRITE_MS} ms a write (dm-delay); caches: RAM disks; a 4 KiB "
          "write with fdatasync every 5 ms, one sample a second")


def summary(found: dict[str, Any]) -> dict[str, Any]:
    """Return the median p99, and the largest latency, before, during and after a migration."""
    began, ended = found["migration_s"]
    parts = {"before": lambda item: item["until_s"] <= began,
             "during": lambda item: item["until_s"] > began and item["at_s"] < ended,
             "after": lambda item: item["at_s"] >= ended}
    result: dict[str, Any] = {"mode": found["mode"], "seconds": round(ended - began, 1),
                              "hooks_s": found["hooks_s"]}
    for name, fits in parts.items():
        samples = [item for item in found["samples"] if fits(item)]
        p99 = sorted(item["p99_ms"] for item in samples)
        result[name] = {
            "samples": len(samples), "p99_ms": round(p99[len(p99) // 2], 2) if p99 else None,
            "max_ms": round(max((item["max_ms"] for item in samples), default=0), 1)}
    return result


def main() -> int:
    """Measure and report."""
    parser = argparse.ArgumentParser(prog="python -m bench.migration", description=__doc__)
    parser.add_argument("mode", nargs="*", metavar="MODE",
                        help=f"some of {', '.join(MODES)}")
    modes = parser.parse_args().mode or list(MODES)
    if unknown := set(modes) - set(MODES):
        parser.error(f"no such mode: {', '.join(sorted(unknown))}")
    image.build(default())
    uml.build_module()
    OUT.mkdir(parents=True, exist_ok=True)
    raw = OUT / "migration.raw.json"
    with tempfile.TemporaryDirectory(prefix="pair-", dir=REPO / "build") as folder:
        status = run([sys.executable, "-m", "bench.migration.inside", str(raw), *modes],
                     Path(folder), write_ms=WRITE_MS)
    if status:
        return status
    runs = json.loads(raw.read_text())
    raw.unlink()
    found = [summary(one) for one in runs]
    (OUT / "migration.json").write_text(json.dumps(
        {"summary": found, "runs": runs, "method": METHOD}, indent=1) + "\n")
    plot.draw(runs, OUT / "migration.png")
    for one in found:
        print(json.dumps(one))
    print("bench-migration: build/bench/migration.json, build/bench/migration.png")
    return 0


if __name__ == "__main__":
    sys.exit(main())
