# SPDX-License-Identifier: Apache-2.0
"""The figures of `make bench-svd`: from log pages to the summary."""

import json
import random
import struct
import subprocess
from pathlib import Path
from typing import Any

import pytest

from bench.svd import __main__ as bench
from bench.svd import figures, prepare, settings, table
from bench.svd.box import counters

DRIVE = {"written": 1000, "erases": 100, "flushes": 1000, "checkpoints": 4, "host": 1000,
         "gc": 2000, "log": 900, "map": 90, "padding": 10, "merge": 0}


def run(place: str, mapping: str = "page", form: str = "raw", load: str = "sync",
        **changed: Any) -> dict[str, Any]:
    return {"place": place, "mapping": mapping, "format": form, "load": load, "writes": 1000,
            "seconds": 4.0, "fsync_us": {"mean": 3000.0, "p99": 9000.0},
            "drive": {**DRIVE, **changed.pop("drive", {})}, "before": DRIVE, "pool": [{}, {}],
            **changed}


def all_runs() -> list[dict[str, Any]]:
    """Return runs in which vcache saves 50 % of the erases, in FAST 90 %, and is twice as fast."""
    return [run(place, mapping, form, load,
                seconds=4.0 if place == "direct" else 2.0,
                drive={"erases": 100 if place == "direct" else 50 if mapping == "page" else 10})
            for load in settings.LOADS for mapping in settings.MAPPINGS
            for form in settings.FORMATS for place in settings.PLACES]


def page(causes: int = 6, block: int = 4096) -> bytes:
    numbers = (7, 1, 2, 100, 3, 4, 55, 9, 0, 0, 0, 0, 0, 300)
    programmed = (10, 20, 30, 40, 50, 60, *[0] * 10)
    head = struct.pack("<8sHHI", b"vcacheSS", 1, causes, block)
    counts = struct.pack("<14Q", *numbers) + struct.pack("<16Q", *programmed)
    return (head + counts).ljust(512, b"\0")


def test_log_page() -> None:
    assert counters.parse(page()) == {
        "flushes": 7, "written": 100, "erases": 55, "checkpoints": 9,
        "host": 10, "gc": 20, "log": 30, "map": 40, "padding": 50, "merge": 60}


@pytest.mark.parametrize("bad", [b"", page()[:100], b"x" * 512, page(causes=7), page(block=512)])
def test_other_log_pages_are_refused(bad: bytes) -> None:
    with pytest.raises(ValueError):
        counters.parse(bad)


def test_pool_status() -> None:
    line = "0 265504 vcache-pool ok 2048 127 15 111 69 1 1 0 16.37"
    wanted = {"chunks": 127, "free": 15, "dirty": 69, "clean": 42}
    assert counters.parse_pool(line) == counters.parse_pool(f"svd-pool: {line}\n") == wanted


def test_difference() -> None:
    assert counters.difference({"erases": 7, "gc": 5}, {"erases": 3, "gc": 5}) \
        == {"erases": 4, "gc": 0}


def test_figures_of_a_run() -> None:
    found = figures.figures(run("direct"))
    assert found["writes_s"] == 250
    assert found["fsync_ms"] == 3
    assert found["erases_per_mib"] == pytest.approx(25.6)
    # the guest's writes, and the writes to the SSD, which include vcache's records
    assert found["waf_guest"] == 4.0
    assert figures.figures(run("vcache", drive={"written": 2000}))["waf_drive"] == 2.0
    assert found["data_per_write"] == 3.01


def test_cases_are_compared() -> None:
    case, = figures.compare([run("vcache", seconds=1.0, drive={"erases": 25, "gc": 0}),
                             run("direct")])
    assert (case["load"], case["mapping"], case["format"]) == ("sync", "page", "raw")
    assert case["erase_reduction_pct"] == 75
    assert case["throughput_gain_pct"] == 300
    assert case["data_reduction_pct"] == pytest.approx(100 * (1 - 1.01 / 3.01))


def test_a_loss_is_negative() -> None:
    case, = figures.compare([run("direct"), run("vcache", seconds=8.0, drive={"erases": 150})])
    assert case["erase_reduction_pct"] == -50
    assert case["throughput_gain_pct"] == -50


def test_unequal_work_is_not_compared() -> None:
    with pytest.raises(ValueError, match="different numbers"):
        figures.compare([run("direct"), run("vcache", writes=999)])
    with pytest.raises(ValueError, match="only direct"):
        figures.compare([run("direct")])


def test_summary_is_the_mean_of_the_four_cases() -> None:
    runs = all_runs()
    for one in runs:
        # the other load is not part of the summary
        if one["load"] != settings.SUMMARY_LOAD:
            one["drive"]["erases"] = 1
    found = figures.summary(figures.compare(runs))
    assert found == {"erase_reduction_pct": pytest.approx(70.0),
                     "throughput_gain_pct": pytest.approx(100.0)}


def test_report_and_table() -> None:
    result = bench.report("6.1", all_runs())
    assert json.loads(json.dumps(result))["summary"] == result["summary"]
    assert len(result["cases"]) == 4 * len(settings.LOADS)
    assert set(result["means"]) == set(settings.LOADS)
    lines = table.text(result).splitlines()
    erases, throughput = lines[-2:]
    assert erases.split() == ["erase_reduction_pct", "70.0", "56", "70.0", "met"]
    assert throughput.split()[:2] == ["throughput_gain_pct", "100.0"]
    assert throughput.endswith("NOT MET")


def test_picture(tmp_path: Path) -> None:
    plot = pytest.importorskip("bench.svd.plot")
    plot.draw(bench.report("6.1", all_runs()), tmp_path / "svd.png")
    assert (tmp_path / "svd.png").stat().st_size > 10000


def test_blocks_of_the_working_set() -> None:
    # output of debugfs, in the order of the file; the first MiB is left out
    blocks = prepare.numbers(" ".join(map(str, range(5000, 6000))) + "\n")
    assert prepare.working_set(blocks, 2) == list(range(5256, 5256 + 512))
    with pytest.raises(ValueError, match="only 1000"):
        prepare.working_set(blocks, 3)


def test_an_aged_ssd(tmp_path: Path) -> None:
    """It contains the content, and is refused if its file exists."""
    content = tmp_path / "content"
    content.write_bytes(random.Random(1).randbytes(4096) * (24 << 8))
    program = prepare.build(tmp_path)
    line: list[str | Path] = [program, tmp_path / "ssd", str(24 << 20), "fast", content,
                              "2000", "7"]
    first = subprocess.run(line, input="5 6 7 4000", text=True, capture_output=True, check=False)
    assert (first.returncode, first.stderr) == (0, "")
    # with spare blocks and spare bytes of the pages
    assert (tmp_path / "ssd").stat().st_size > 24 << 20
    again = subprocess.run(line, input="5", text=True, capture_output=True, check=False)
    assert (again.returncode, again.stderr) == (1, "age: the SSD exists already\n")
    line[1] = tmp_path / "other"
    beyond = subprocess.run(line, input=str(24 << 8), text=True, capture_output=True, check=False)
    assert (beyond.returncode, beyond.stderr) == (1, "age: a block is beyond the end\n")


def test_the_image_fills_the_drive() -> None:
    assert 0.9 < settings.IMAGE_MB / settings.DRIVE_MB < 1
    assert settings.WORKING_SET_MB < settings.IMAGE_MB
    assert settings.SUMMARY_LOAD in settings.LOADS
