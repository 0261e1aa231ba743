# SPDX-License-Identifier: Apache-2.0
"""Measure how vcache scales: ``python -m bench.scale``.

Boots the box in virtual time. Measures requests per second by the number of requests in
flight, the recovery time and memory of a cache after a crash, and the speed of drains.
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

# Without these flags of the processor, the kernel copies by loads and stores. With them, QEMU
# counts an instruction for each byte: the simulated SSD would take 4 us to copy 4 KiB.
PARTS = {"main": (), "destage": ("clearcpuid=erms,fsrm",)}


def measure(raw: Path) -> tuple[str, dict[str, Any]]:
    """Return the kernel release and the measurements."""
    release, _ = virtual.built("bench-scale")
    raw.parent.mkdir(parents=True, exist_ok=True)
    found: dict[str, Any] = {}
    for part, kernel_args in PARTS.items():
        raw.unlink(missing_ok=True)
        virtual.run("bench-scale", release,
                    [sys.executable, "-m", "bench.scale.inside", part, str(raw)], memory="6G",
                    timeout=5400, kernel_args=kernel_args)
        found |= json.loads(raw.read_text())
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
    return {"widths": found["widths"], "recovery": recovery, "destage": found["destage"],
            "destage_vs_fio": {name: one["ratio"] for name, one in found["destage"].items()},
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
    lines += [f"destage to an origin {settings.FAR_US / 1000:g} ms away, {name}: "
              f"{one['vcache_mb_s']:.0f} MB/s; fio at depth {settings.FAR_DEPTH}: "
              f"{one['fio_mb_s']:.0f} MB/s; ratio {one['ratio']:.2f}"
              for name, one in shown["destage"].items()]
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
                   f"one at a time; far origin: {settings.FAR_US} us, {settings.FAR_REQUESTS} at a "
                   f"time, {settings.FAR_MB_S} MB/s"}, indent=1) + "\n")
    plot.draw(shown, OUT / "scale.png")
    print(table(shown))
    print("bench-scale: build/bench/scale.json, build/bench/scale.png")
    return 0


if __name__ == "__main__":
    sys.exit(main())
