# SPDX-License-Identifier: Apache-2.0
"""Figures of the benchmark of writing tenants."""

from pathlib import Path

import pytest

from bench.peers.result import Result, Tenant, tenant
from bench.write import figures, plot


def run(stack: str, load: str, *tenants: tuple[float, float, float]) -> Result:
    """Return a run with writes per second, p99 and maximum of fsync in ms of each tenant."""
    return Result(stack, load, len(tenants),
                  [Tenant(writes, 0, {"p50": 1, "p99": 1000 * p99, "max": 1000 * longest})
                   for writes, p99, longest in tenants], 3, 10, 1, 0, 0, 0)


RUNS = [
    run("vcache", "sync", (100, 2, 30)),
    run("vcache", "sync", (100, 2, 9), (100, 4, 40)),
    run("vcache", "sequential", (50, 1, 1)),
    run("vcache", "neighbour", (400, 0, 0)),
    run("vcache", "neighbour", (300, 0, 0), (9, 9, 9)),
    run("vcache", "outrun", (60, 1, 700), (20, 1, 5)),
    run("bcache", "sync", (50, 4, 500)),
    run("bcache", "sync", (50, 4, 500), (40, 2, 500)),
    run("bcache", "sequential", (200, 4, 500)),
    run("bcache", "neighbour", (400, 0, 0)),
    run("bcache", "neighbour", (100, 0, 0), (9, 9, 9)),
    run("bcache", "outrun", (60, 1, 900), (20, 1, 900)),
    run("dm-cache", "sync", (50, 8, 500)),
    run("dm-cache", "sync", (50, 8, 500), (40, 5, 500)),
    run("dm-cache", "sequential", (80, 2, 500)),
]


def test_figures_with_an_aim() -> None:
    assert figures.summary(RUNS) == {
        "fsync_p99_vs_best_peer": 1, "longest_fsync_ms": 40, "longest_fsync_outrun_ms": 700,
        "sequential_vs_best_peer": 0.25, "neighbour_loss_pct": {2: 25}}
    assert set(figures.summary(RUNS)) == set(figures.DEFINITIONS)


def test_the_worst_load_counts() -> None:
    worse = [*RUNS, run("vcache", "mixed", (1, 6, 6)), run("bcache", "mixed", (1, 2, 6)),
             run("dm-cache", "mixed", (1, 3, 6))]
    assert figures.summary(worse)["fsync_p99_vs_best_peer"] == pytest.approx(3)


def test_a_peer_without_an_fsync_does_not_count() -> None:
    slow = [run("vcache", "mixed", (9, 6, 6)), run("bcache", "mixed", (1, 0, 0)),
            run("dm-cache", "mixed", (1, 1, 6))]
    assert figures.summary([*RUNS, *slow])["fsync_p99_vs_best_peer"] == pytest.approx(6)


def test_a_write_counts_as_an_fsync_if_it_is_durable_when_it_completes() -> None:
    def latency(us: int) -> dict[str, object]:
        return {"percentile": {"50.000000": us * 1000}, "max": us * 2000}

    job = {"job_runtime": 2000, "read": {"total_ios": 0},
           "write": {"total_ios": 8, "clat_ns": latency(7)}, "sync": {"lat_ns": latency(3)}}
    assert tenant(job) == Tenant(4, 0, {"p50": 3, "max": 6})
    assert tenant(job, dsync=True) == Tenant(4, 0, {"p50": 7, "max": 14})


def test_loss_of_a_peer() -> None:
    assert figures.loss(RUNS, "bcache") == {2: 75}


def test_plot(tmp_path: Path) -> None:
    plot.draw(RUNS, tmp_path / "write.png")
    assert (tmp_path / "write.png").stat().st_size > 10000
