# SPDX-License-Identifier: Apache-2.0
"""A sample of the simulation: no violations, and defects are found. One minute of a processor."""

import json
import re
from pathlib import Path
from typing import Any

import pytest

from tests.sim import build, runner
from tests.sim.mutations import MUTATIONS, NARROW


@pytest.fixture(scope="session")
def report() -> dict[str, Any]:
    """Run the sample once."""
    result = runner.campaign(runner.sample_plan())
    runner.write_report(result, build.BUILD / "sample.json")
    return result


def test_no_violations(report: dict[str, Any]) -> None:
    assert report["violation"] == []


def test_all_parts_ran(report: dict[str, Any]) -> None:
    """Each configuration has all histories of up to two requests, in three orders."""
    for config in runner.CONFIGS:
        part = report["parts"][f"exhaustive {config} 2"]
        assert part["complete"], config
        assert part["orders"] == 3 * part["histories"], config
        assert part["cuts"] > part["orders"], config
    for name in ("directed", "random", "sanitized", "narrow"):
        assert report["parts"][name]["cuts"] > 100, name


def test_defects_are_found(report: dict[str, Any]) -> None:
    caught = {one["name"]: one["caught"] for one in report["mutations"]}
    assert caught == dict.fromkeys(runner.sample_plan().mutations or (), True)


def test_report_is_complete(report: dict[str, Any]) -> None:
    written = json.loads((build.BUILD / "sample.json").read_text())
    assert written["cuts"] == report["cuts"] > 10000
    for name in ("histories", "orders", "cuts", "violations", "seconds", "probes", "mutations",
                 "probes_missed", "per_hour"):
        assert name in written, name


def test_violation_is_replayed() -> None:
    """The name of a case runs it again, with the same result."""
    mutation = next(one for one in MUTATIONS if one.name == "write-outs-without-fua")
    found = runner.is_caught(mutation, 600)
    assert found["caught"]
    program = build.build(build.PLAIN, mutation.edits, f"mutation-{mutation.name}")
    again = runner.run(program, "replay", found["case"])
    assert [one["violation"] for one in again.violations] == [found["violation"]]


def test_all_directed_cases_run() -> None:
    """The runner has a list of its own."""
    text = (build.NATIVE / "sim" / "directed.c").read_text()
    assert sorted(re.findall(r'^\t\{ "([a-z-]+)", \w+ \},$', text, re.MULTILINE)) == sorted(
        runner.DIRECTED)


def test_edits_apply() -> None:
    """Each mutation finds its place in the sources."""
    assert [one.name for one in MUTATIONS if not build.applies(one.edits)] == []
    assert build.applies(NARROW)


def test_edit_that_does_not_apply() -> None:
    with pytest.raises(build.BuildError, match="does not apply"):
        build.build(build.PLAIN, (build.Edit("flush.c", "no such text", ""),), "none")


def test_no_kernel_text_is_needed(tmp_path: Path) -> None:
    """The program needs no headers of a kernel: all of them lead to the shims."""
    wrappers = build.BUILD / "include"
    build.build()
    assert {path.read_text() for path in wrappers.rglob("*.h")} == {'#include "block.h"\n'}
    assert not list(tmp_path.iterdir())
