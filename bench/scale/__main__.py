# SPDX-License-Identifier: Apache-2.0
"""Measure how vcache scales: ``python -m bench.scale``.

Boots the box in virtual time. Measures requests per second by the number of requests in
flight, the recovery time and memory of a cache after a crash, and the speed of a drain.
Writes build/bench/scale.json and scale.png.
"""

import argparse
import json
import sys
from pathlib import Path
from typing import Any

from bench import virtual
from bench.scale import plot, settings

OUT = virtual.ROOT / "build" / "bench"


def measure(raw: Path) -> tuple[str, dict[str, Any]]:
    """Return the kernel release and the measurements."""
    release, _ = virtual.built("bench-scale")
    raw.parent.mkdir(parents=True, exist_ok=True)
    raw.unlink(missing_ok=True)
    virtual.run("bench-scale", release,
                [sys.executable, "-m", "bench.scale.inside", str(raw)], memory="6G", timeout=5400)
    found: dict[str, Any] = json.loads(raw.read_text())
    return release, found


def figures(found: dict[str, Any]) -> dict[str, Any]:
    """Return the published figures."""
    recovery = [{"cache_mb": one["cache_mb"], "dirty_share": one["dirty_share"],
                 "dirty_mb": int(one["volume"][2]) / 2048,
                 "pool_ms": 1000 * one["pool_s"], "volume_ms": 1000 * one["volume_s"],
                 "resident_bytes": one["resident_bytes"],
                 "resident_mib_per_gib":
                     one["resident_bytes"] / one["cache_mb"] * 1024 / (1 << 20),
                 "index_bytes_per_block": float(one["pool"][9])}
                for one in found["recovery"]]
    drain = found["drain"]
    return {"widths": found["widths"], "recovery": recovery,
            "drain": {**drain, "dirty_mb": drain["dirty_sectors"] / 2048,
                      "times_random": drain["random_s"] / drain["drain_s"],
                      "times_sequential": drain["sequential_s"] / drain["drain_s"]}}


def table(shown: dict[str, Any]) -> str:
    """Return the figures as text."""
    lines = [f"{'load':10} {'':6} " + "".join(f"{width:>22}" for width in settings.WIDTHS)]
    for load in settings.LOADS:
        for kind in ("depth", "jobs"):
            cells = []
            for width in settings.WIDTHS:
                rate = {one["stack"]: one["per_s"] for one in shown["widths"]
                        if (one["load"], one["kind"], one["width"]) == (load, kind, width)}
                cells.append(f"{rate['vcache']:.0f} / {rate['dm-linear']:.0f}")
            lines.append(f"{load:10} {kind:6} " + "".join(f"{cell:>22}" for cell in cells))
    lines += ["requests a second, vcache / dm-linear on the SSD", "",
              f"{'cache MiB':>10}{'dirty MiB':>10}{'pool ms':>10}{'volume ms':>10}"
              f"{'memory MiB per GiB':>20}"]
    lines += [f"{one['cache_mb']:10}{one['dirty_mb']:10.0f}{one['pool_ms']:10.0f}"
              f"{one['volume_ms']:10.0f}{one['resident_mib_per_gib']:20.2f}"
              for one in shown["recovery"]]
    drain = shown["drain"]
    lines += ["", f"drain of {drain['dirty_mb']:.0f} MiB at random: {drain['drain_s']:.2f} s; "
              f"the disk itself: {drain['random_s']:.2f} s in that order, "
              f"{drain['sequential_s']:.2f} s in a row"]
    return "\n".join(lines)


def main() -> int:
    """Measure and report."""
    argparse.ArgumentParser(prog="python -m bench.scale", description=__doc__).parse_args()
    release, found = measure(OUT / "scale" / "raw.json")
    shown = figures(found)
    (OUT / "scale.json").write_text(json.dumps(
        {"kernel": release, **shown,
         "method": "QEMU icount shift=0 (1 ns an instruction), one CPU; fio libaio; SSD: null_blk, "
                   f"{settings.SSD_US} us, 64 at a time; slow disk: {settings.SLOW_US} us, "
                   "one at a time"}, indent=1) + "\n")
    plot.draw(shown, OUT / "scale.png")
    print(table(shown))
    print("bench-scale: build/bench/scale.json, build/bench/scale.png")
    return 0


if __name__ == "__main__":
    sys.exit(main())
