# SPDX-License-Identifier: Apache-2.0
"""Compare the cache's replacement rules with LRU and others: ``python -m bench.replace``.

For each real trace and each cache size with a result of libCacheSim: the miss ratios of model.c,
which uses the rules of native/core. In one, writes go to the log, as in the target. In the
other, all accesses are reads, as in libCacheSim. Writes build/bench/replace.json and
replace.png. VCACHE_TRACES names the folder of the traces.
"""

import argparse
import array
import csv
import json
import statistics
import subprocess
import sys
from collections import defaultdict
from pathlib import Path
from typing import Any

from bench.replace import plot
from bench.traces import SUFFIX, TRACES, read

ROOT = Path(__file__).resolve().parents[2]
HERE = Path(__file__).resolve().parent
OUT = ROOT / "build" / "bench"
PEERS = ("lru", "s3fifo", "arc", "wtinylfu", "sieve")
#: The hot level of the target, and others; see model.c.
LEVELS = ("target", "fixed", "feedback", "half", "smq")
#: Smaller caches, in blocks, have too few chunks.
LEAST_BLOCKS = 256


def build() -> Path:
    """Compile the model."""
    folder = OUT / "replace"
    folder.mkdir(parents=True, exist_ok=True)
    program = folder / "model"
    core = ROOT / "native" / "core"
    subprocess.run(["cc", "-std=c11", "-D_GNU_SOURCE", "-O2", "-Wall", "-Wextra", "-Werror", "-o",
                    program, HERE / "model.c", core / "ghost.c", core / "hot.c", core / "level.c"],
                   check=True)
    return program


def known() -> dict[str, list[dict[str, float]]]:
    """Return the miss ratios of libCacheSim's policies, by trace; a row for each cache size."""
    found: dict[str, list[dict[str, float]]] = defaultdict(list)
    with (TRACES / "expected" / "policies_4k.csv").open() as file:
        for row in csv.DictReader(file):
            name = row.pop("trace")
            found[name].append({key: float(value) for key, value in row.items()})
    return found


def run(program: Path, cells: int, blocks: int, accesses: bytes,
        level: str = LEVELS[0]) -> dict[str, int]:
    """Return the model's counters."""
    done = subprocess.run([program, str(cells), str(blocks), level], input=accesses,
                          stdout=subprocess.PIPE, check=True)
    counts: dict[str, int] = json.loads(done.stdout)
    return counts


def measure(program: Path, name: str, rows: list[dict[str, float]]) -> list[dict[str, Any]]:
    """Return the miss ratios of a trace, for each size."""
    blocks, written = read(TRACES / (name + SUFFIX))
    number: dict[int, int] = {}
    dense = [number.setdefault(block, len(number)) for block in blocks]
    mixed = array.array("Q", (2 * block + write
                              for block, write in zip(dense, written, strict=True))).tobytes()
    reads = array.array("Q", (2 * block for block in dense)).tobytes()
    found = []
    for row in rows:
        cells = int(row["cache_blocks_4k"])
        if cells < LEAST_BLOCKS:
            continue
        ours, same = (run(program, cells, len(number), accesses) for accesses in (mixed, reads))
        n = ours["accesses"]
        levels = {level: [_level(run(program, cells, len(number), accesses, level))
                          for accesses in (mixed, reads)] for level in LEVELS}
        found.append({
            "levels": levels,
            "trace": name, "blocks": cells, "fraction": row["fraction"],
            "vcache": (ours["read_misses"] + ours["write_misses"]) / n,
            "vcache_as_reads": same["read_misses"] / n,
            # Blocks written to the SSD, per accessed block.
            "ssd_writes": (ours["writes"] + ours["promoted"] + ours["kept"]) / n,
            "ssd_writes_as_reads": (same["promoted"] + same["kept"]) / n,
            **{peer: row[peer] for peer in PEERS}})
    return found


def _level(counts: dict[str, int]) -> dict[str, float]:
    """Return the miss ratio and the blocks written to the SSD per accessed block."""
    n = counts["accesses"]
    return {"misses": (counts["read_misses"] + counts["write_misses"]) / n,
            "ssd_writes": (counts["writes"] + counts["promoted"] + counts["kept"]) / n}


def levels(found: list[dict[str, Any]]) -> dict[str, Any]:
    """Compare the hot levels: means over all traces and sizes, and the worst against "fixed"."""
    total = {}
    for level in LEVELS:
        total[level] = {
            name: {**{key: statistics.mean(one["levels"][level][at][key] for one in found)
                      for key in ("misses", "ssd_writes")},
                   **{end: fold(one["levels"][level][at]["misses"]
                                - one["levels"]["fixed"][at]["misses"] for one in found)
                      for end, fold in (("best_vs_fixed", min), ("worst_vs_fixed", max))}}
            for at, name in enumerate(("vcache", "vcache_as_reads"))}
    return total


def summary(found: list[dict[str, Any]]) -> dict[str, Any]:
    """Compare both variants with the peers, over all traces and sizes."""
    return {key: {"mean": statistics.mean(one[key] for one in found),
                  "worst_over_lru": max(one[key] - one["lru"] for one in found),
                  "worst_over_s3fifo": max(one[key] - one["s3fifo"] for one in found)}
            for key in ("vcache", "vcache_as_reads", *PEERS)}


def table(found: list[dict[str, Any]], total: dict[str, Any]) -> str:
    """Return the figures as text."""
    columns = ("vcache", "vcache_as_reads", *PEERS)
    heads = ("vcache", "as reads", *PEERS)
    lines = [f"{'trace':22}{'blocks':>8}" + "".join(f"{head:>10}" for head in heads)
             + f"{'SSD':>7}{'reads':>7}"]
    lines += [f"{one['trace']:22}{one['blocks']:8}"
              + "".join(f"{one[key]:10.4f}" for key in columns)
              + f"{one['ssd_writes']:7.2f}{one['ssd_writes_as_reads']:7.2f}" for one in found]
    for label, key in (("mean", "mean"), ("worst over LRU", "worst_over_lru")):
        lines.append(f"{label:30}" + "".join(f"{total[one][key]:10.4f}" for one in columns))
    lines.append("miss ratios of blocks of 4 KiB; SSD: blocks written to it for each accessed")
    return "\n".join(lines)


def main() -> int:
    """Measure and report."""
    argparse.ArgumentParser(prog="python -m bench.replace", description=__doc__).parse_args()
    if not (TRACES / "expected").is_dir():
        print(f"bench-replace: no traces: {TRACES}/expected does not exist (VCACHE_TRACES)",
              file=sys.stderr)
        return 1
    program = build()
    found = [one for name, rows in known().items() for one in measure(program, name, rows)]
    total = summary(found)
    plot.draw(found, OUT / "replace.png")
    (OUT / "replace.json").write_text(json.dumps(
        {"summary": total, "hot_level": levels(found), "runs": found,
         "method": "vcache: a model with the rules of native/core on 64 chunks; others: "
                   "libCacheSim's, from expected/policies_4k.csv"}, indent=1) + "\n")
    print(table(found, total))
    for level, one in levels(found).items():
        print(f"hot level {level:9}" + "; ".join(
            f"{name}: misses {row['misses']:.4f}, against fixed {row['best_vs_fixed']:+.4f} to "
            f"{row['worst_vs_fixed']:+.4f}, SSD {row['ssd_writes']:.3f}"
            for name, row in one.items()))
    print("bench-replace: build/bench/replace.json, build/bench/replace.png")
    return 0


if __name__ == "__main__":
    sys.exit(main())
