# SPDX-License-Identifier: Apache-2.0
"""Measure the cost of a request without flushes: ``python -m bench.overhead``.

Boots the box in virtual time (QEMU counts instructions, 1 ns each), so the figures
do not depend on the load of the machine, and compares all targets in one run.
Writes build/bench/overhead.json.
"""

import json
import pathlib
import shutil
import sys

from bench import virtual

OUT = virtual.ROOT / "build" / "bench"
STACKS = ("raw", "dm-linear", "dm-cache", "dm-writecache", "bcache", "vcache", "vcache-pool")

# These are the aims of DESIGN, printed beside the results; no test checks them. "vcache" has no
# pool. The aims with a pool are 12,000 ns each, given with the results of the peers at that time:
# dm-linear 11,500 and dm-writecache 23,300. These were measured with other builds of QEMU and of
# the kernel, under which a read of the raw device took a tenth less.
AIMS = (("read", "vcache", "dm-linear", 1.10),
        ("buffered write", "vcache", "dm-writecache", 0.60),
        ("read hit", "vcache-pool", "dm-linear", 1.04),
        ("buffered write", "vcache-pool", "dm-writecache", 0.52))


def fio_ns(path: pathlib.Path, direction: str) -> dict[str, float]:
    """Return the latency measured by fio, in virtual ns.

    :param path: its JSON file
    :param direction: read or write
    """
    job = json.loads(path.read_text())["jobs"][0]
    if job["error"] or not job[direction]["total_ios"]:
        raise SystemExit(f"bench-overhead: {path}: fio failed with error {job['error']}")
    latency = job[direction]["clat_ns"]
    return {"mean": latency["mean"], "p50": latency["percentile"]["50.000000"],
            "p99": latency["percentile"]["99.000000"], "requests": job[direction]["total_ios"]}


def measure(raw: pathlib.Path) -> str:
    """Run all stacks in one box, and return the kernel release."""
    release, module = virtual.built("bench-overhead")
    shutil.rmtree(raw, ignore_errors=True)
    raw.mkdir(parents=True)
    virtual.run("bench-overhead", release,
                ["sh", "bench/overhead/stacks.sh", str(raw), str(module)],
                memory="4G", timeout=1500)
    return release


def report(raw: pathlib.Path, release: str) -> dict[str, object]:
    """Collect fio's results."""
    reads = {s: fio_ns(raw / f"{s}-read.json", "read") for s in STACKS}
    writes = {s: fio_ns(raw / f"{s}-write.json", "write") for s in STACKS}
    return {
        "read_ns": {s: reads[s]["mean"] for s in STACKS},
        "write_ns": {s: writes[s]["mean"] for s in STACKS},
        "vcache_buffered_read_ns": fio_ns(raw / "vcache-buffered-read.json", "read")["mean"],
        "vcache_full_buffer_write_ns": fio_ns(raw / "vcache-full-write.json", "write")["mean"],
        "detail": {"read": reads, "write": writes},
        "kernel": release,
        "method": "fio psync 4 KiB random, queue depth 1, 64 MiB on memory-backed null_blk, "
                  "QEMU icount shift=0 (1 ns an instruction), one CPU, mean of clat",
    }


def table(figures: dict[str, object]) -> str:
    """Return the figures as text."""
    reads, writes = figures["read_ns"], figures["write_ns"]
    assert isinstance(reads, dict) and isinstance(writes, dict)  # noqa: S101
    lines = [f"{'':14}{'read ns':>10}{'write ns':>10}"]
    lines += [f"{s:14}{reads[s]:10.0f}{writes[s]:10.0f}" for s in STACKS]
    for what, ours, peer, aim in AIMS:
        values = writes if "write" in what else reads
        lines.append(f"{ours}, {what}: {values[ours] / values[peer]:.2f} x {peer} "
                     f"(aim: at most {aim:.2f})")
    lines.append(f"read from the buffer: {figures['vcache_buffered_read_ns']:.0f} ns; "
                 f"write into a full buffer: {figures['vcache_full_buffer_write_ns']:.0f} ns")
    return "\n".join(lines)


def main() -> int:
    """Measure and report."""
    raw = OUT / "overhead"
    release = measure(raw)
    figures = report(raw, release)
    path = OUT / "overhead.json"
    path.write_text(json.dumps(figures, indent=1) + "\n")
    print(table(figures))
    print(f"bench-overhead: {path.relative_to(virtual.ROOT)}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
