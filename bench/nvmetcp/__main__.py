# SPDX-License-Identifier: Apache-2.0
"""Compare the speed of the controller with the kernel's target: ``python -m bench.nvmetcp``.

Boots the box in virtual time (QEMU counts instructions, 1 ns each), so the figures
do not depend on the load of the machine. The Linux host driver connects over loopback TCP,
with one I/O queue and no digests. Neither target waits for a medium: vcache-ssd
has NAND that takes no time, and nvmet-tcp uses memory-backed null_blk. Writes
build/bench/nvmetcp.json.
"""

import json
import pathlib
import shutil
import sys

from bench import virtual
from tests.box import kernels

OUT = virtual.ROOT / "build" / "bench"
PROGRAM = virtual.ROOT / "build" / "firmware" / "vcache-ssd"
TARGETS = ("nvmet", "vcache")
LOADS = tuple(f"{direction}-{depth}" for direction in ("read", "write") for depth in (1, 32))


def fio(path: pathlib.Path) -> dict[str, float]:
    """Return the speed measured by fio, with times in virtual ns.

    :param path: its JSON file, NAME-DIRECTION-DEPTH.json
    """
    direction = path.stem.split("-")[1]
    job = json.loads(path.read_text())["jobs"][0]
    if job["error"] or not job[direction]["total_ios"]:
        raise SystemExit(f"bench-nvmetcp: {path}: fio failed with error {job['error']}")
    latency = job[direction]["lat_ns"]
    percentile = latency["percentile"]
    return {"iops": job[direction]["iops"], "mean_ns": latency["mean"],
            "p50_ns": percentile["50.000000"], "p99_ns": percentile["99.000000"],
            "requests": job[direction]["total_ios"]}


def measure(raw: pathlib.Path, release: str) -> None:
    """Run all loads on both targets in one box."""
    if not PROGRAM.exists():
        raise SystemExit(f"bench-nvmetcp: {PROGRAM} is missing: run `make firmware`")
    shutil.rmtree(raw, ignore_errors=True)
    raw.mkdir(parents=True)
    virtual.run("bench-nvmetcp", release,
                ["sh", "bench/nvmetcp/targets.sh", str(raw), str(PROGRAM)],
                memory="2G", timeout=1500)


def report(raw: pathlib.Path, release: str) -> dict[str, object]:
    """Collect fio's results. A ratio above 1 means that vcache-ssd is faster."""
    figures = {target: {load: fio(raw / f"{target}-{load}.json") for load in LOADS}
               for target in TARGETS}
    ratios = {load: figures["vcache"][load]["iops"] / figures["nvmet"][load]["iops"]
              for load in LOADS}
    return {
        "targets": figures,
        "iops_ratio": ratios,
        "kernel": release,
        "method": "fio libaio 4 KiB random, direct, 64 MiB, over loopback NVMe/TCP, one I/O "
                  "queue, no digests; QEMU icount shift=0 (1 ns an instruction), one CPU; "
                  "vcache-ssd --nand none against nvmet-tcp on memory-backed null_blk; "
                  "latencies from submission to completion",
    }


def table(figures: dict[str, object]) -> str:
    """Return the figures as text."""
    targets, ratios = figures["targets"], figures["iops_ratio"]
    assert isinstance(targets, dict) and isinstance(ratios, dict)  # noqa: S101
    lines = [f"{'':10}{'':8}{'IOPS':>9}{'mean us':>9}{'p50 us':>9}{'p99 us':>9}"]
    for load in LOADS:
        for target in TARGETS:
            one = targets[target][load]
            times = "".join(f"{one[name] / 1000:9.1f}" for name in ("mean_ns", "p50_ns", "p99_ns"))
            lines.append(f"{load:10}{target:8}{one['iops']:9.0f}{times}")
        lines.append(f"{load:10}IOPS of vcache-ssd are {ratios[load]:.2f} times nvmet's")
    return "\n".join(lines)


def main() -> int:
    """Measure and report."""
    raw = OUT / "nvmetcp"
    release = kernels.select(kernels.default())
    measure(raw, release)
    figures = report(raw, release)
    path = OUT / "nvmetcp.json"
    path.write_text(json.dumps(figures, indent=1) + "\n")
    print(table(figures))
    print(f"bench-nvmetcp: {path.relative_to(virtual.ROOT)}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
