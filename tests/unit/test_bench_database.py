# SPDX-License-Identifier: Apache-2.0
"""Figures of the benchmark with databases."""

import json
import sqlite3
from pathlib import Path

import pytest

from bench.database import figures, plot, sqlite
from bench.database.figures import Run


def run(stack: str, load: str, per_s: float, p99: float = 1000, written: int = 1000,
        seed: int = 1) -> Run:
    return Run(stack, load, 96, seed, per_s, {"p50": 10, "p99": p99, "max": 2 * p99}, 5,
               0, 0, written, 0, None, 0, 0, 0, 0, 0)


def leave(raw: Path, name: str, log: str) -> None:
    """Write the results of a load."""
    (raw / f"{name}.log").write_text(log)
    for when, start in (("before", 0), ("after", 100)):
        (raw / f"{name}.{when}").write_text("".join(
            " ".join(str(start * disk + at) for at in range(17)) + "\n" for disk in (1, 2, 3)))
        (raw / f"{name}.{when}.cpu").write_text(
            f"cpu  {5 * start} 0 {start} {3 * start} {start} 0 0 0 0 0\n")


def test_transactions_of_pgbench(tmp_path: Path) -> None:
    leave(tmp_path, "vcache-96-1-busy",
          "".join(f"0 {at} {1000 + at} 0 1795925315 5\n" for at in range(200)))
    (tmp_path / "vcache-96-1-busy.json").write_text(json.dumps(
        {"jobs": [{"error": 0, "read": {"iops": 70.0}, "write": {"iops": 30.0}}]}))
    assert figures.read(tmp_path, "vcache", "busy", 96, 1, 10) == Run(
        "vcache", "busy", 96, 1, 20, {"p50": 1100, "p99": 1198, "max": 1199}, 100,
        512 * 300, 300, 512 * 100, 100, None, 512 * 100, 512 * 200, 200, 100, 0.4)


def test_what_was_relocated(tmp_path: Path) -> None:
    leave(tmp_path, "vcache-96-1-alone", "0 0 1000 0 1 1\n")
    for when, relocated in (("before", 700), ("after", 1000)):
        (tmp_path / f"vcache-96-1-alone.{when}.pool").write_text(
            f"0 393216 vcache-pool ok 2048 95 0 95 60 2 2 0 31.52 {relocated} 7 9 50 0 1 0 50\n")
    assert figures.read(tmp_path, "vcache", "alone", 96, 1, 10).ssd_copied == 300 * 4096


def test_a_second_database(tmp_path: Path) -> None:
    for suffix in ("log", "log2"):
        leave(tmp_path, "vcache-96-1-second", "0 0 1000 0 1 1\n")
        (tmp_path / f"vcache-96-1-second.{suffix}").write_text("0 0 1000 0 1 1\n")
    assert figures.read(tmp_path, "vcache", "second", 96, 1, 2).neighbour_per_s == 0.5


def test_no_transactions(tmp_path: Path) -> None:
    leave(tmp_path, "vcache-96-1-alone", "")
    with pytest.raises(SystemExit, match="no transactions in .*vcache-96-1-alone.log"):
        figures.read(tmp_path, "vcache", "alone", 96, 1, 10)


def test_a_neighbour_that_failed(tmp_path: Path) -> None:
    leave(tmp_path, "vcache-96-1-busy", "0 0 1000 0 1 1\n")
    (tmp_path / "vcache-96-1-busy.json").write_text(json.dumps({"jobs": [{"error": 5}]}))
    with pytest.raises(SystemExit, match="vcache-96-1-busy: fio failed"):
        figures.read(tmp_path, "vcache", "busy", 96, 1, 10)


def test_the_ssd_itself_is_no_peer() -> None:
    found = figures.summary([*RUNS, run("directsync", "alone", 9000, p99=1, written=1)])
    assert found == figures.summary(RUNS)


RUNS = [run("vcache", "alone", 300, p99=50, written=3000),
        run("vcache", "quiet", 285, p99=90), run("vcache", "busy", 100, p99=40),
        run("vcache", "sqlite", 10),
        run("bcache", "alone", 200, p99=100, written=1000), run("bcache", "quiet", 100, p99=60),
        run("bcache", "busy", 200, p99=80), run("bcache", "sqlite", 20),
        run("dm-cache", "alone", 250, p99=200, written=5000),
        run("dm-cache", "quiet", 190, p99=500),
        run("dm-cache", "busy", 50, p99=500), run("dm-cache", "sqlite", 40)]


def test_each_figure_has_its_best_peer() -> None:
    summary = figures.summary(RUNS)
    assert summary == pytest.approx({
        "alone_vs_best_peer": 300 / 250,
        "ssd_bytes_vs_best_peer": (3000 / 300) / (1000 / 200),
        "neighbour_vs_best_peer": 100 / 200,
        "p99_commit_vs_best_peer": 90 / 60,
        "neighbour_loss_pct": 5,
        "sqlite_vs_best_peer": 10 / 40,
    })
    assert set(summary) == set(figures.DEFINITIONS)


def test_loads_that_were_not_run_are_left_out() -> None:
    assert set(figures.summary([one for one in RUNS if one.load == "sqlite"])) == {
        "sqlite_vs_best_peer"}


def test_medians_of_the_seeds() -> None:
    runs = [run("vcache", "alone", per_s, seed=seed)
            for seed, per_s in enumerate((100, 900, 200))]
    runs += [run("bcache", "alone", 100)]
    assert figures.summary(runs)["alone_vs_best_peer"] == 2


def test_plot(tmp_path: Path) -> None:
    plot.draw(RUNS, tmp_path / "plot.png")
    assert (tmp_path / "plot.png").stat().st_size > 10_000


def test_sqlite_commits(tmp_path: Path) -> None:
    with sqlite3.connect(tmp_path / "file", isolation_level=None) as database:
        sqlite.prepare(database)
        found = sqlite.run(database, 0.05, 1)
        assert found
        assert all(0 < commit < whole for whole, commit in found)
        assert database.execute("SELECT count(*) FROM history").fetchone() == (len(found),)
        assert database.execute("PRAGMA synchronous").fetchone() == (2,)
