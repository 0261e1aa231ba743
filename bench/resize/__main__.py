# SPDX-License-Identifier: Apache-2.0
"""Measure how fast shares and the pool change their size: ``python -m bench.resize``.

Boots the box in virtual time. Measures the time to shrink and grow a tag and the
pool, with and without other I/O, and how accurately tags reach their weights.
Writes build/bench/resize.json and resize.png.
"""

import argparse
import json
import statistics
import sys
from pathlib import Path
from typing import Any

from bench import virtual
from bench.resize import plot, settings

OUT = virtual.ROOT / "build" / "bench"


def measure(raw: Path) -> tuple[str, dict[str, Any]]:
    """Return the kernel release and the measurements."""
    release, _ = virtual.built("bench-resize")
    raw.parent.mkdir(parents=True, exist_ok=True)
    raw.unlink(missing_ok=True)
    virtual.run("bench-resize", release,
                [sys.executable, "-m", "bench.resize.inside", str(raw)], memory="4G", timeout=5400)
    found: dict[str, Any] = json.loads(raw.read_text())
    return release, found


def settled(over: list[tuple[float, list[float]]]) -> float | None:
    """Return the time since which all tags are near their shares; None: never.

    As a mean over a second: tags have whole chunks, and each of them comes and goes.
    """
    since = None
    for at, _ in over:
        last = [errors for then, errors in over if at - 1 <= then <= at]
        means = [abs(statistics.mean(tag)) for tag in zip(*last, strict=True)]
        near = at >= 1 and max(means) <= settings.NEAR
        since = (round(at, 1) if since is None else since) if near else None
    return since


def figures(found: dict[str, Any]) -> dict[str, Any]:
    """Return the published figures."""
    for one in found["deflations"]:
        gone = one["had_mb"] - one["has_mb"]
        one["s_per_gib"] = one["deflate_s"] / gone * 1024
    # Time that does not depend on the speed of the SSD is that of the software.
    took = {(one["state"], one["ssd_us"]): one["s_per_gib"]
            for one in found["deflations"] if not one["neighbour"]}
    ours = {state: took[state, 0] / took[state, settings.SSD_US]
            for state, ssd_us in took if not ssd_us}
    pool, shares = found["pool"], found["shares"]
    # A chunk is 1 MiB.
    pool["shrink_s_per_gib"] = pool["shrink_s"] / pool["leaving"] * 1024
    shares["settled_s"] = settled(shares["over"])
    shares["error"] = max(map(abs, shares["over"][-1][1]))
    return {**found, "part_that_is_ours": ours}


def _waits(beside: dict[str, float], alone: dict[str, float], name: str) -> str:
    return (f"{alone[f'{name}_p50_us']:.0f} / {alone[f'{name}_p99_us']:.0f} -> "
            f"{beside[f'{name}_p50_us']:.0f} / {beside[f'{name}_p99_us']:.0f}")


def table(shown: dict[str, Any]) -> str:
    """Return the figures as text."""
    lines = [f"{'a tag has':10}{'SSD us':>8}{'MiB':>12}{'dirty':>7}{'s':>8}"
             f"{'s a GiB':>9}{'again s':>9}"
             f"  {'neighbour: read p50 / p99, us':34}{'fsync p50 / p99, us'}"]
    for one in shown["deflations"]:
        line = (f"{one['state']:10}{one['ssd_us']:8}{one['had_mb']:6.0f} ->{one['has_mb']:3.0f}"
                f"{one['dirty_mb']:7.0f}"
                f"{one['deflate_s']:8.3f}{one['s_per_gib']:9.2f}{one['inflate_s']:9.3f}")
        if one["neighbour"]:
            line += (f"  {_waits(one['beside'], one['alone'], 'read'):34}"
                     f"{_waits(one['beside'], one['alone'], 'fsync')}")
        lines.append(line)
    lines.append("ours: " + ", ".join(f"{state} {part:.0%}" for state, part
                                      in shown["part_that_is_ours"].items()))
    disk = shown["disk"]
    lines.append(f"{settings.FULL_MB['dirty']} MiB on the slow disk itself: "
                 f"{disk['random_s']:.2f} s as they were written, {disk['sequential_s']:.2f} s "
                 "in a row")
    pool, shares = shown["pool"], shown["shares"]
    lines += ["", f"pool: {pool['small_chunks']} -> {pool['large_chunks']} chunks in "
              f"{pool['grow_s']:.3f} s, longest read {pool['grow']['read_max_us']:.0f} us, write "
              f"{pool['grow']['write_max_us']:.0f} us; back, {pool['leaving']} chunks, in "
              f"{pool['shrink_s']:.3f} s, {pool['shrink_s_per_gib']:.2f} s a GiB; neighbour's read "
              f"{_waits(pool['shrink'], pool['alone'], 'read')}, fsync "
              f"{_waits(pool['shrink'], pool['alone'], 'fsync')}",
              f"shares by weights {settings.WEIGHTS}: "
              f"{' '.join(f'{mb:.0f}' for mb in shares['shares_mb'])} MiB, error "
              f"{shares['error']:.1%}, all within {settings.NEAR:.0%} after "
              f"{shares['settled_s']} s"]
    return "\n".join(lines)


def main() -> int:
    """Measure and report."""
    argparse.ArgumentParser(prog="python -m bench.resize", description=__doc__).parse_args()
    release, found = measure(OUT / "resize" / "raw.json")
    shown = figures(found)
    (OUT / "resize.json").write_text(json.dumps(
        {"kernel": release, **shown,
         "method": "QEMU icount shift=0 (1 ns an instruction), one CPU; fio; SSD: null_blk, "
                   f"{settings.SSD_US} us, 64 at a time; slow disk: {settings.SLOW_US} us, "
                   "one at a time"}, indent=1) + "\n")
    plot.draw(shown, OUT / "resize.png")
    print(table(shown))
    print("bench-resize: build/bench/resize.json, build/bench/resize.png")
    return 0


if __name__ == "__main__":
    sys.exit(main())
