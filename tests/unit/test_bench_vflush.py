# SPDX-License-Identifier: Apache-2.0
"""The figures of `make bench-vflush`: repeatable, and computed from the counters."""

import copy
import subprocess
from pathlib import Path
from typing import Any

import pytest

from bench.vflush import __main__ as bench
from bench.vflush import boxpoints, figures, settings, simulate, table
from bench.vflush.simulate import Experiment, Run, random_loads
from tests.firmware.build import REPO, copy_tree

TINY = {**settings.HARDWARE, "blocks": 32, "buffer_blocks": 512, "file_blocks": 8192,
        "journal_blocks": 1024, "vms": 2}
WANTED = [Experiment(system, random_loads(every)) for system in settings.ATTRIBUTION
          for every in (0, 8, 1)]
NAMES = {"flush_latency_reduction_pct", "flushed_data_reduction_pct", "map_pages_reduction_pct",
         "neighbour_loss_pct_max"}


def _simulate(program: Path, wanted: list[simulate.Experiment] = WANTED) -> list[Run]:
    return simulate.run(program, wanted, TINY, warm_ms=500, run_ms=6000, sample_ms=100)


@pytest.fixture(scope="module")
def program(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return simulate.build(tmp_path_factory.mktemp("vflush"))


@pytest.fixture(scope="module")
def runs(program: Path) -> list[Run]:
    return _simulate(program)


def test_same_again(program: Path, runs: list[Run]) -> None:
    assert _simulate(program) == runs
    assert len({run["trace"] for run in runs}) == len(runs)


def test_macro_loads_run(program: Path) -> None:
    wanted = [Experiment(system, "varmail,tpcc") for system in ("baseline", "tagged")]
    wanted += [Experiment(system, "fileserver") for system in ("baseline", "tagged")]
    found = _simulate(program, wanted)
    for run in found:
        vms = len(run["loads"].split(","))
        assert all(run["operations"][1:vms + 1])
        assert not any(run["operations"][vms + 1:])
    row = figures.macro(found)[0]
    assert row["loads"] == ["fileserver"]
    by = {run["system"]: run for run in found if run["loads"] == "fileserver"}
    assert row["ratio"] == [pytest.approx(
        by["tagged"]["operations"][1] / by["baseline"]["operations"][1])]


def test_counts_add_up(runs: list[Run]) -> None:
    for run in runs:
        asked = sum(sum(one["entries"]) for one in run["flushes"])
        assert 0 < asked <= run["programmed"]["host"] + TINY["buffer_blocks"]
        inside = sum(one["map_pages"] for one in run["flushes"]) * run["page_blocks"]
        assert inside <= run["programmed"]["map"]
        assert all(sum(sample) <= TINY["buffer_blocks"] for sample in run["buffered"])
        parts = figures.composition(figures.point(run), run["page_blocks"] * 4)
        assert sum(parts.values()) == pytest.approx(100)
        assert set(parts) == {"map", "host", "vm1", "vm2"}
        assert run["programmed"]["gc"] > 0  # in a steady state


def _per_flush(run: Run, what: str) -> float:
    flushes = sum(one["count"] for one in run["flushes"])
    pages = (run["programmed"]["map"] + run["programmed"]["log"]) / 4
    values = {"ns": sum(one["ns"] for one in run["flushes"]), "pages": pages,
              "data": pages * 16 + 4 * sum(sum(one["entries"]) for one in run["flushes"])}
    return values[what] / flushes


def test_summary_is_computed_from_the_runs(runs: list[Run]) -> None:
    by = {(run["system"], run["loads"]): run for run in runs}
    points = figures.points(runs)
    found = figures.summary(points["tagged"], points["baseline"])
    assert set(found) == NAMES
    for name, what in (("flush_latency_reduction_pct", "ns"),
                       ("flushed_data_reduction_pct", "data"),
                       ("map_pages_reduction_pct", "pages")):
        best = max(100 - 100 * _per_flush(by["tagged", random_loads(every)], what)
                   / _per_flush(by["baseline", random_loads(every)], what) for every in (8, 1))
        assert found[name] == pytest.approx(best)
    alone = by["tagged", random_loads(0)]["written"][1]
    worst = max(100 - 100 * by["tagged", random_loads(every)]["written"][1] / alone
                for every in (8, 1))
    assert found["neighbour_loss_pct_max"] == pytest.approx(worst)


def test_tags_gain(runs: list[Run]) -> None:
    """Otherwise the next test would prove nothing."""
    points = figures.points(runs)
    found = figures.summary(points["tagged"], points["baseline"])
    assert found["map_pages_reduction_pct"] > 40
    assert found["flush_latency_reduction_pct"] > 40


def test_what_a_flush_covers(runs: list[Run]) -> None:
    """All of the data, that of a namespace, that of a tag: each covers less than the one before."""
    points = figures.points(runs)
    for every in (8, 1):
        everything, namespace, tag = (points[system][every] for system in
                                      ("logged", "namespaces", "tagged"))
        assert everything["entries"]["vm1"] > 1.5 * namespace["entries"]["vm1"]
        assert namespace["entries_all"] < everything["entries_all"]
        assert tag["flush_ms"] < everything["flush_ms"] < points["baseline"][every]["flush_ms"]
    found = figures.attribution(points)
    assert found["by_interval_pct"][8] == pytest.approx(
        100 - 100 * points["tagged"][8]["flush_ms"] / points["namespaces"][8]["flush_ms"])


def test_seeds_are_combined_by_their_median(runs: list[Run]) -> None:
    run = next(run for run in runs if run["loads"] == random_loads(8))
    seeds = [{**run, "ns": run["ns"] * factor} for factor in (1, 5, 3)]
    (only,) = figures.points(seeds).values()
    assert only[8] == figures.point(seeds[2])
    wanted = simulate.experiments()
    assert {one.seed for one in wanted if one.system == "namespaces"} == {1, 2, 3}
    assert {one.seed for one in wanted if one.system == "tagged_overlapping"} == {1}


def test_firmware_that_flushes_everything_gains_nothing(tmp_path: Path, runs: list[Run]) -> None:
    tree = copy_tree(tmp_path / "tree")
    for folder in ("bench/vflush", "firmware/host"):
        (tree / folder).mkdir(parents=True)
        for source in (REPO / folder).glob("*.[ch]"):
            (tree / folder / source.name).write_bytes(source.read_bytes())
    for file, old, new in (
            ("ssd.c", "if (s->c.personality == VS_BASELINE) {\n\t\tstruct", "if (1) {\n\t\tstruct"),
            ("log.c", "if (s->c.personality == VS_BASELINE || l->full)", "if (1)")):
        source = tree / "firmware" / "core" / file
        text = source.read_text()
        assert text.count(old) == 1
        source.write_text(text.replace(old, new))
    wanted = [one for one in WANTED if one.system == "tagged"]
    broken = _simulate(simulate.build(tmp_path / "build", tree), wanted)
    points = figures.points([run for run in runs if run["system"] == "baseline"] + broken)
    found = figures.summary(points["tagged"], points["baseline"])
    assert found["map_pages_reduction_pct"] < 10
    assert found["flush_latency_reduction_pct"] < 10


def test_unknown_words_are_refused(program: Path) -> None:
    for words in (["blocks=many"], ["colour=1"], ["personality=fast"]):
        done = subprocess.run([program, *words], input="", capture_output=True, text=True,
                              check=False)
        assert done.returncode == 2
        assert words[0] in done.stderr


def _box_run(system: str, every: int, **drive: int) -> dict[str, Any]:
    counted = {"flushes": 10, "flush_ns": 20_000_000, "flushed": 0, "written": 0, "host": 0,
               "gc": 0, "log": 0, "map": 0, "padding": 0, "checkpoints": 0, **drive}
    syncs = {"count": 400 if every else 0, "ns": 800_000_000 if every else 0, "max_ns": 5_000_000}
    writes = {"count": 4000 if system == "full" or not every else 1000, "ns": 1, "max_ns": 1}
    ns = settings.BOX["time_ms"] * 1_000_000
    return {"system": system, "every": every, "status": "", "drive": counted,
            "vms": [{"ns": ns, "writes": writes, "syncs": {"count": 0, "ns": 0, "max_ns": 0}},
                    {"ns": ns, "writes": writes, "syncs": syncs}]}


def test_points_of_the_box() -> None:
    scale = (settings.BOX["ramp_ms"] + settings.BOX["time_ms"]
             + settings.BOX["tail_ms"]) / settings.BOX["time_ms"]
    found = boxpoints.point(_box_run("baseline", 8, flushed=4000, map=1600))
    assert found["flush_ms"] == 2
    assert found["drive_flush_ms"] == 2
    assert found["entries_all"] == pytest.approx(10 / scale)
    assert found["map_pages"] == pytest.approx(1 / scale)
    assert found["flushed_kib"] == pytest.approx((40 + 16) / scale)
    # A flush never writes FUA data.
    fua = boxpoints.point(_box_run("fua", 8, host=800))
    assert fua["entries_all"] == pytest.approx(2 / scale)


def test_no_sync_is_no_gain() -> None:
    """A system so slow that no sync completed must not appear to have no cost."""
    stuck = _box_run("fua", 8)
    stuck["vms"][1]["syncs"] = {"count": 0, "ns": 0, "max_ns": 0}
    points = boxpoints.points([_box_run("baseline", 8, flushed=4000), stuck])
    assert figures.against(points["fua"], points["baseline"]) == {}


def _report(runs: list[Run]) -> dict[str, Any]:
    box = [_box_run(system, every, flushed=400 if system == "full" else 4000,
                    map=160 if system == "full" else 1600)
           for system in settings.BOX_SYSTEMS for every in (0, 8)]
    return bench.report({"runs": runs}, {"kernel": "6.1", "runs": box})


def test_report(runs: list[Run]) -> None:
    result = _report(runs)
    assert set(result["summary"]) == {"tagged", "full"}
    assert all(set(values) == NAMES for values in result["summary"].values())
    assert result["summary"]["full"]["map_pages_reduction_pct"] == pytest.approx(90)
    assert result["summary"]["full"]["neighbour_loss_pct_max"] == pytest.approx(0)
    assert result["box"]["systems"]["baseline"]["vm1_loss_pct"] == {8: pytest.approx(75)}
    assert result["settings"]["hardware"] == settings.HARDWARE
    assert set(result["summary"]["full"]) == set(settings.AIMS["full"])


def test_table_says_what_is_not_met(runs: list[Run]) -> None:
    result = copy.deepcopy(_report(runs))
    result["summary"]["full"]["neighbour_loss_pct_max"] = 2.1
    result["summary"]["full"]["map_pages_reduction_pct"] = 90.1
    lines = [line for line in table.text(result).splitlines() if line.startswith("full: ")]
    assert any("VM1's worst loss" in line and "NOT MET" in line for line in lines)
    assert any("map pages" in line and line.endswith("  met") for line in lines)
