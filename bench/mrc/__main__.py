# SPDX-License-Identifier: Apache-2.0
"""Measure the accuracy and speed of miss-ratio curves: ``python -m bench.mrc``.

For each real trace and some synthetic ones: the exact curve, compared with the integers of
other programs; the error of 8,192 samples; requests per second, compared with libCacheSim's LRU
simulation. Writes build/bench/mrc.json and mrc.png. Real traces are in VCACHE_TRACES, or in
shared/traces beside the repository. VCACHE_LIBCACHESIM names a Python with libcachesim. If it is
not set, the benchmark creates one in build/bench/mrc/venv.
"""

import argparse
import array
import csv
import json
import os
import statistics
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from bench.mrc import plot, settings
from bench.traces import SUFFIX, TRACES, read

ROOT = Path(__file__).resolve().parents[2]
HERE = Path(__file__).resolve().parent
OUT = ROOT / "build" / "bench"
WORK = OUT / "mrc"

Blocks = array.array  # of "Q"


def build() -> Path:
    """Compile the measuring program, as make tools compiles vcache-mrc."""
    program = WORK / "measure"
    subprocess.run(["cc", "-std=c11", "-D_GNU_SOURCE", "-O2", "-Wall", "-Wextra", "-Werror", "-o",
                    program, HERE / "measure.c", ROOT / "native" / "core" / "shards.c"],
                   check=True)
    return program


def simulator() -> str | None:
    """Return a Python with libcachesim, or None if it is not available."""
    given = os.environ.get("VCACHE_LIBCACHESIM")
    if given:
        return given
    python = WORK / "venv" / "bin" / "python"
    try:
        if not python.exists():
            subprocess.run([sys.executable, "-m", "venv", python.parents[1]], check=True)
        subprocess.run([python, "-m", "pip", "install", "-q", "--disable-pip-version-check", "-r",
                        HERE / "requirements.txt"], check=True)
    except subprocess.CalledProcessError as error:
        print(f"bench-mrc: libCacheSim is not available and left out: {error}", file=sys.stderr)
        return None
    return str(python)


def expected() -> dict[str, dict[int, int]]:
    """Return the misses on which independent programs agree, by trace and size."""
    found: dict[str, dict[int, int]] = {}
    with (TRACES / "expected" / "lru_mrc_4k.csv").open() as file:
        for row in csv.DictReader(file):
            found.setdefault(row["trace"], {})[int(row["cache_blocks_4k"])] = int(
                row["exact_misses_mattson"])
    return found


def traces() -> Iterator[tuple[str, Blocks, dict[int, int] | None]]:
    """Yield name, blocks and known misses of each trace: real ones, then synthetic ones (None)."""
    if (TRACES / "expected").is_dir():
        known = expected()
        for path in sorted(TRACES.glob("*" + SUFFIX)):
            name = path.name.removesuffix(SUFFIX)
            yield name, read(path)[0], known.get(name, {})
    else:
        print(f"bench-mrc: no real traces: {TRACES}/expected does not exist (VCACHE_TRACES)",
              file=sys.stderr)
    for name, make in settings.MADE.items():
        yield name, array.array("Q", make()), None


def simulate(python: str, blocks: Blocks, size: int) -> dict[str, Any]:
    """Return the result and the time of libCacheSim's LRU."""
    path = WORK / "trace.bin"
    # Little-endian, like the numbers of arrays on all supported machines.
    with path.open("wb") as file:
        for block in blocks:
            file.write(bytes(4) + block.to_bytes(8, "little") + b"\1\0\0\0" + b"\xfe" + b"\xff" * 7)
    done = subprocess.run([python, HERE / "simulate.py", path, str(size), str(settings.RUNS)],
                          stdout=subprocess.PIPE, check=True)
    found: dict[str, Any] = json.loads(done.stdout)
    return found


def measure(program: Path, python: str | None, blocks: Blocks,
            known: dict[int, int] | None) -> dict[str, Any]:
    """Return the published figures of a trace.

    :param known: known misses of a real trace, by size; None: it is synthetic
    """
    real, known = known is not None, known or {}
    footprint = len(set(blocks))
    points = [max(1, footprint * (i + 1) // settings.POINTS) for i in range(settings.POINTS)]
    one_size = max(1, int(footprint * settings.SIMULATED))
    sizes = sorted({*points, *known, one_size})
    (WORK / "sizes.bin").write_bytes(array.array("Q", sizes).tobytes())
    done = subprocess.run([program, str(settings.SALTS), str(settings.RUNS), WORK / "sizes.bin"],
                          input=blocks.tobytes(), stdout=subprocess.PIPE, check=True)
    curves = [json.loads(line) for line in done.stdout.splitlines()]
    of_size = [dict(zip(sizes, curve["misses"], strict=True)) for curve in curves]
    exact, sampled = of_size[0], of_size[1:]
    n = len(blocks)
    errors = [[abs(curve[size] - exact[size]) / n for size in points] for curve in sampled]
    means = [statistics.mean(one) for one in errors]
    simulated = simulate(python, blocks, one_size) if python else None
    if simulated:
        simulated |= {"blocks": one_size, "per_s": n / simulated["seconds"],
                      "agrees": round(simulated["miss_ratio"] * n) == exact[one_size]}
    return {
        "accesses": n, "footprint": footprint, "real": real,
        "known_points": len(known),
        "wrong_points": sum(exact[size] != misses for size, misses in known.items()),
        "error_mean": statistics.mean(means), "error_worst_salt": max(means),
        "error_worst_point": max(max(one) for one in errors),
        "exact_per_s": n / curves[0]["seconds"],
        "sampled_per_s": n / statistics.median(one["seconds"] for one in curves[1:]),
        "libcachesim_lru": simulated,
        "points": points, "exact": [exact[size] / n for size in points],
        "sampled": [sampled[0][size] / n for size in points]}


def summary(found: dict[str, Any]) -> dict[str, Any]:
    """Return the figures of all real traces."""
    real = [one for one in found.values() if one["real"]]
    large = [one for one in real if one["footprint"] >= settings.LARGE_BLOCKS]
    if not large:
        return {}
    return {"known_points": sum(one["known_points"] for one in real),
            "wrong_points": sum(one["wrong_points"] for one in real),
            "error_mean": statistics.mean(one["error_mean"] for one in real),
            "error_mean_large": statistics.mean(one["error_mean"] for one in large),
            "error_worst": max(one["error_worst_salt"] for one in real),
            "sampled_per_s_large": min(one["sampled_per_s"] for one in large),
            "exact_per_s": min(one["exact_per_s"] for one in real)}


def table(found: dict[str, Any], total: dict[str, Any]) -> str:
    """Return the figures as text."""
    lines = [f"{'trace':26}{'accesses':>10}{'blocks':>9}{'wrong':>8}{'error':>9}{'worst':>9}"
             f"{'point':>8}{'sampled':>9}{'exact':>7}{'LRU':>7}"]
    for name, one in found.items():
        other = one["libcachesim_lru"]
        wrong = f"{one['wrong_points']}/{one['known_points']}"
        lines.append(
            f"{name:26}{one['accesses']:10}{one['footprint']:9}{wrong:>8}"
            f"{one['error_mean']:9.5f}{one['error_worst_salt']:9.5f}"
            f"{one['error_worst_point']:8.4f}{one['sampled_per_s'] / 1e6:9.1f}"
            f"{one['exact_per_s'] / 1e6:7.1f}" + (f"{other['per_s'] / 1e6:7.1f}" if other else ""))
    lines += ["error: mean of 100 sizes and 4 salts, worst: that of a salt, point: of all; million "
              "accesses a second of CPU time: 8,192 samples, exact, libCacheSim's LRU of one size"]
    if total:
        lines.append(f"real traces: {total['wrong_points']} of {total['known_points']} points "
                     f"wrong; error {total['error_mean']:.5f}, large ones "
                     f"{total['error_mean_large']:.5f}, worst {total['error_worst']:.5f}")
    return "\n".join(lines)


def main() -> int:
    """Measure and report."""
    argparse.ArgumentParser(prog="python -m bench.mrc", description=__doc__).parse_args()
    WORK.mkdir(parents=True, exist_ok=True)
    program, python = build(), simulator()
    found = {name: measure(program, python, blocks, known) for name, blocks, known in traces()}
    total = summary(found)
    plot.draw(found, OUT / "mrc.png")
    for one in found.values():
        for key in ("points", "exact", "sampled"):
            del one[key]
    (OUT / "mrc.json").write_text(json.dumps(
        {"total": total, "traces": found,
         "method": f"{settings.SAMPLES} samples, {settings.POINTS} sizes, {settings.SALTS} salts; "
                   f"one thread, CPU time, median of {settings.RUNS}, requests in memory"},
        indent=1) + "\n")
    print(table(found, total))
    print("bench-mrc: build/bench/mrc.json, build/bench/mrc.png")
    return 1 if any(one["wrong_points"] for one in found.values()) else 0


if __name__ == "__main__":
    sys.exit(main())
