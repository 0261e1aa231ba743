# SPDX-License-Identifier: Apache-2.0
"""Input and figures of the benchmarks against other caches."""

import dataclasses
import json
from pathlib import Path
from typing import Any

import pytest

from bench.cache import figures, plot
from bench.peers import result
from bench.peers.result import Result, Tenant


def job(reads: int, writes: int, sync: dict[str, Any] | None = None, error: int = 0) -> Any:
    return {"job_runtime": 2000, "error": error, "read": {"total_ios": reads},
            "write": {"total_ios": writes}, "sync": {"lat_ns": sync or {}}}


def leave(raw: Path, jobs: list[Any]) -> None:
    """Write the results of a load."""
    (raw / "vcache-mixed-2.json").write_text(json.dumps({"jobs": jobs}))
    before = [[number] * 17 for number in (1, 2, 3)]
    after = [list(range(first, first + 17)) for first in (100, 1000, 5000)]
    for name, lines in (("before", before), ("after", after)):
        (raw / f"vcache-mixed-2.{name}").write_text(
            "\n".join(" ".join(map(str, line)) for line in lines) + "\n")


def test_what_a_load_leaves(tmp_path: Path) -> None:
    sync = {"max": 9000, "percentile": {"50.000000": 1000, "99.000000": 5000, "99.900000": 8000}}
    leave(tmp_path, [job(10, 20, sync), job(30, 0)])
    assert result.read(tmp_path, "vcache", "mixed", 2) == Result(
        "vcache", "mixed", 2,
        [Tenant(10, 5, {"p50": 1, "p99": 5, "p99.9": 8, "max": 9}), Tenant(0, 15, {})],
        seconds=2, ssd_writes=103, ssd_mib=105 / 2048, ssd_flushes=114, disk_reads=998,
        disk_writes=1002)


def test_a_load_that_failed(tmp_path: Path) -> None:
    leave(tmp_path, [job(10, 20), job(30, 0, error=5)])
    with pytest.raises(SystemExit, match="vcache-mixed-2: fio failed"):
        result.read(tmp_path, "vcache", "mixed", 2)


def run(stack: str, load: str, of: int, *reads: float, disk_reads: int = 0) -> Result:
    return Result(stack, load, of, [Tenant(0, one, {}) for one in reads], 3, 10, 1, 0, disk_reads,
                  0)


RUNS = [
    run("vcache", "reads", 4, 100, 100, 100, 100, disk_reads=300),
    run("vcache", "mixed", 4, 100, 200, 300, 400),
    run("vcache", "alone", 4, 1000),
    run("vcache", "neighbours", 4, 990, 1, 1, 1),
    run("bcache", "reads", 4, 50, 50, 50, 50),
    run("bcache", "mixed", 4, 100, 100, 100, 100),
    run("bcache", "alone", 4, 1000),
    run("bcache", "neighbours", 4, 500, 1, 1, 1),
    run("dm-cache", "reads", 4, 10, 10, 10, 10),
    run("dm-cache", "mixed", 4, 400, 0, 0, 100),
    run("dm-cache", "alone", 4, 800),
    run("dm-cache", "neighbours", 4, 1000, 1, 1, 1),
]


def test_summary() -> None:
    assert figures.missed(RUNS[0]) == pytest.approx(300 / (400 * 3))
    assert figures.summary(RUNS) == {
        "total_vs_best_peer": 2.0, "worst_tenant_vs_best_peer": 0.25,
        "neighbour_loss_pct": pytest.approx(1), "best_peer": "dm-cache",
        "neighbour_loss_pct_of_peers": {"bcache": pytest.approx(50),
                                        "dm-cache": pytest.approx(-25)}}


def test_the_summary_of_another_policy_has_the_same_peers() -> None:
    ours = [dataclasses.replace(one, stack="vcache-mrc", tenants=[
        dataclasses.replace(tenant, reads=2 * tenant.reads) for tenant in one.tenants])
        for one in RUNS if one.stack == "vcache"]
    found = figures.summary([*RUNS, *ours])
    assert found.pop("with_mrc") == {
        "total_vs_best_peer": 4.0, "worst_tenant_vs_best_peer": 0.5,
        "neighbour_loss_pct": pytest.approx(1), "best_peer": "dm-cache"}
    assert found == figures.summary(RUNS)


def test_a_picture(tmp_path: Path) -> None:
    plot.draw(RUNS, tmp_path / "cache.png")
    assert (tmp_path / "cache.png").read_bytes().startswith(b"\x89PNG")
